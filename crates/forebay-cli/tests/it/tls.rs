//! TLS listeners of the real binary: names, changed files, tickets, client certificates, redirects.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use forebay_testkit::client::Request;
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::process::Command;

use crate::world::{ConfigFile, admin_of, ask, forebay, metric, nowhere, to_admin};

/// Maximum wait for a changed file to be noticed.
const NOTICE_MAX: Duration = Duration::from_secs(10);

/// Maximum number of certificate changes while the clients of a test run.
const CHANGES_MAX: usize = 10_000;

/// Certificate authority of a test.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// Writes `STEM.pem` and `STEM.key` for these names.
    pub(crate) fn write(&self, folder: &Path, stem: &str, names: &[&str]) -> anyhow::Result<()> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, stem);
        let certificate = params.signed_by(&key, &self.issuer)?;
        // The key first: between the two writes, the pair does not match and is not used.
        std::fs::write(folder.join(format!("{stem}.key")), key.serialize_pem())?;
        std::fs::write(folder.join(format!("{stem}.pem")), certificate.pem())?;
        Ok(())
    }
}

/// Cache with a TLS listener and a plain one.
struct SecureCache {
    cache: Launched,
    file: ConfigFile,
    https: SocketAddr,
    _origin: Origin,
}

/// Origin whose responses say what it was told.
async fn telling_origin() -> anyhow::Result<Origin> {
    let origin = Origin::start(|asked| {
        let told = |name: &str| asked.fields.first(name).unwrap_or("-").to_owned();
        let certificate = if told("client-cert").len() > 1 { "certified" } else { "-" };
        let body = format!("{} {} {certificate}", told("x-forwarded-proto"), told("host"));
        let answer = Answer::ok(body).field("Cache-Control", "max-age=60");
        answer.field("Vary", "Client-Cert").field("Alt-Svc", "h3=\":443\"")
    });
    Ok(origin.await?)
}

impl SecureCache {
    /// Starts the cache. In `text`, `HTTPS` is the address of the TLS listener, and `ORIGIN` the URL
    /// of the origin.
    async fn start(folder: TempDir, text: &str) -> anyhow::Result<Self> {
        let (origin, https) = (telling_origin().await?, nowhere()?);
        let text = text.replace("HTTPS", &https.to_string()).replace("ORIGIN", &origin.url());
        let path = folder.path().join("forebay.toml");
        std::fs::write(&path, text)?;
        let file = ConfigFile { path, folder };
        let cache = file.serve().await?;
        Ok(Self { cache, file, https, _origin: origin })
    }

    fn folder(&self) -> &Path {
        self.file.folder.path()
    }

    /// Sends a GET for a host over TLS with curl.
    async fn curl(&self, host: &str, path: &str, more: &[&str]) -> anyhow::Result<String> {
        let (port, ip) = (self.https.port(), self.https.ip());
        let mut command = Command::new("curl");
        command.args(["-sS", "-i", "--max-time", "10", "--cacert"]);
        command.arg(self.folder().join("ca.pem")).current_dir(self.folder()).args(more);
        command.args(["--resolve", &format!("{host}:{port}:{ip}")]);
        let output = command.arg(format!("https://{host}:{port}{path}")).output().await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    async fn reload(&self) -> anyhow::Result<u16> {
        let request = to_admin(&self.cache, "POST", "/reload")?;
        let request = request.field("Content-Type", "application/json");
        Ok(ask(admin_of(&self.cache)?, &request).await?.status)
    }

    async fn handshakes(&self, result: &str) -> anyhow::Result<u64> {
        let label = format!("result=\"{result}\"");
        metric(&self.cache, "forebay_handshakes_total", &label).await
    }
}

const PLAIN: &str = "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n";
const SITE: &str = "[[site]]\nid = \"shop\"\norigin = \"ORIGIN\"\n";

/// Short form of a TLS listener, with further lines.
fn short(more: &str) -> String {
    format!(
        "{PLAIN}[tls]\nlisten = \"HTTPS\"\ncertificate = \"a.pem\"\nkey = \"a.key\"\n{more}\n{SITE}"
    )
}

fn folder_with(authority: &Authority, stems: &[(&str, &str)]) -> anyhow::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("ca.pem"), &authority.pem)?;
    for (stem, name) in stems {
        authority.write(folder.path(), stem, &[*name])?;
    }
    Ok(folder)
}

#[tokio::test]
async fn certificates_without_a_listener_are_warned_of() -> anyhow::Result<()> {
    let folder = folder_with(&Authority::new("test")?, &[("a", "shop.example")])?;
    for (listen, is_warned) in [("", true), ("listen = \"127.0.0.1:0\"", false)] {
        let text = short("").replace("listen = \"HTTPS\"", listen).replace("ORIGIN", "http://o");
        let path = folder.path().join("forebay.toml");
        std::fs::write(&path, text)?;
        let checked = forebay(["check"]).args([&path]).finish().await?;
        assert_eq!(checked.status.code(), Some(0), "{checked:?}");
        let warning = "warning: [tls]: no listener has TLS, so that clients are served without it";
        assert_eq!(checked.stderr.iter().any(|line| line.starts_with(warning)), is_warned);
    }
    Ok(())
}

#[tokio::test]
async fn a_tls_listener_serves_https_as_another_key_than_http() -> anyhow::Result<()> {
    let authority = Authority::new("test")?;
    let folder = folder_with(&authority, &[("a", "shop.example")])?;
    let text = format!("{}hsts = \"max-age=60\"\n", short(""));
    let cache = SecureCache::start(folder, &text).await?;
    let port = cache.https.port();
    let told = format!("https shop.example:{port} -");
    let first = cache.curl("shop.example", "/", &[]).await?;
    assert!(first.ends_with(&format!("\r\n\r\n{told}")), "{first}");
    assert!(first.contains("strict-transport-security: max-age=60"), "{first}");
    assert!(!first.contains("alt-svc"), "{first}");
    let second = cache.curl("shop.example", "/", &[]).await?;
    assert!(second.contains("cache-status: forebay; hit"), "{second}");
    assert!(second.contains("strict-transport-security: max-age=60"), "{second}");
    let plain = Request::get("/").without_host().field("Host", format!("shop.example:{port}"));
    let plain = ask(cache.cache.address(), &plain).await?;
    assert_eq!(plain.text(), format!("http shop.example:{port} -"));
    assert!(plain.field("strict-transport-security").is_none());
    // Claims over TLS are removed as well.
    let claims = ["-H", "X-Forwarded-Proto: http", "-H", "Client-Cert: :AAAA:"];
    assert!(cache.curl("shop.example", "/b", &claims).await?.ends_with(&told));
    let label = format!("listener=\"{}\"", cache.https);
    assert_eq!(metric(&cache.cache, "forebay_connections_total", &label).await?, 3);
    let end = metric(&cache.cache, "forebay_certificate_expiry_timestamp_seconds", "").await?;
    assert!(end > 4_000_000_000, "{end}");
    Ok(())
}

#[tokio::test]
async fn the_certificate_is_that_of_the_requested_name() -> anyhow::Result<()> {
    let authority = Authority::new("test")?;
    let stems = [("a", "a.example"), ("b", "b.example"), ("c", "*.c.example")];
    let folder = folder_with(&authority, &stems)?;
    let more = "unknown_name = \"refuse\"\ncertificates = [\n\
        { certificate = \"b.pem\", key = \"b.key\" }, { certificate = \"c.pem\", key = \"c.key\" }]";
    let cache = SecureCache::start(folder, &short(more)).await?;
    for host in ["a.example", "b.example", "x.c.example"] {
        assert!(cache.curl(host, "/", &[]).await?.starts_with("HTTP/2 200"), "{host}");
    }
    let refused = cache.curl("d.example", "/", &[]).await.unwrap_err().to_string();
    assert!(refused.contains("unrecognized name"), "{refused}");
    assert_eq!(cache.handshakes("unknown-name").await?, 1);
    assert_eq!(cache.handshakes("full").await?, 3);
    Ok(())
}

#[tokio::test]
async fn changed_files_are_used_and_broken_ones_are_not() -> anyhow::Result<()> {
    let authority = Authority::new("test")?;
    let folder = folder_with(&authority, &[("a", "a.example")])?;
    let cache = SecureCache::start(folder, &short("watch = \"50ms\"")).await?;
    assert!(cache.curl("a.example", "/", &[]).await?.starts_with("HTTP/2 200"));
    authority.write(cache.folder(), "a", &["b.example"])?;
    let begun = Instant::now();
    while cache.curl("b.example", "/", &[]).await.is_err() {
        ensure!(begun.elapsed() < NOTICE_MAX, "the new certificate is not used");
    }
    // Neither the watch nor a reload takes a certificate without its key.
    std::fs::write(cache.folder().join("a.key"), "nonsense")?;
    let begun = Instant::now();
    while metric(&cache.cache, "forebay_certificate_loads_total", "failed").await? == 0 {
        ensure!(begun.elapsed() < NOTICE_MAX, "the broken key is not noticed");
    }
    assert_eq!(cache.reload().await?, 400);
    assert!(cache.curl("b.example", "/", &[]).await?.starts_with("HTTP/2 200"));
    authority.write(cache.folder(), "a", &["c.example"])?;
    assert_eq!(cache.reload().await?, 200);
    assert!(cache.curl("c.example", "/", &[]).await?.starts_with("HTTP/2 200"));
    Ok(())
}

#[tokio::test]
async fn no_handshake_fails_while_certificates_change() -> anyhow::Result<()> {
    let authority = Authority::new("test")?;
    let folder = folder_with(&authority, &[("a", "a.example")])?;
    let cache = SecureCache::start(folder, &short("watch = \"1ms\"")).await?;
    let clients = async {
        for number in 0..60 {
            cache.curl("a.example", &format!("/{number}"), &[]).await?;
        }
        anyhow::Ok(())
    };
    let changes = async {
        for _ in 0..CHANGES_MAX {
            authority.write(cache.folder(), "a", &["a.example"])?;
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        anyhow::bail!("the clients do not end")
    };
    tokio::select! {
        ended = clients => ended?,
        ended = changes => ended?,
    }
    assert_eq!(cache.handshakes("failed").await?, 0);
    assert!(metric(&cache.cache, "forebay_certificate_loads_total", "loaded").await? > 5);
    Ok(())
}

#[tokio::test]
async fn sessions_are_resumed_by_tickets() -> anyhow::Result<()> {
    let authority = Authority::new("test")?;
    let folder = folder_with(&authority, &[("a", "a.example")])?;
    let cache = SecureCache::start(folder, &short("")).await?;
    for version in ["-tls1_2", "-tls1_3"] {
        let session = format!("session{version}");
        let first = openssl(&cache, &[version, "-sess_out", &session]).await?;
        assert!(first.contains("New, "), "{first}");
        let second = openssl(&cache, &[version, "-sess_in", &session]).await?;
        assert!(second.contains("Reused, "), "{second}");
    }
    assert_eq!(cache.handshakes("resumed").await?, 2);
    let old = openssl(&cache, &["-tls1_1"]).await?;
    assert!(!old.contains("HTTP/1.1 200"), "{old}");
    Ok(())
}

/// Runs `openssl s_client` with a request that ends the connection.
async fn openssl(cache: &SecureCache, more: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-ign_eof", "-servername", "a.example", "-connect"]);
    command.arg(cache.https.to_string()).args(more).current_dir(cache.folder());
    command.stdin(std::process::Stdio::piped()).kill_on_drop(true);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().context("no stdin")?;
    let request = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    // A refused handshake closes the pipe.
    let _ = tokio::io::AsyncWriteExt::write_all(&mut input, request).await;
    let output = tokio::time::timeout(NOTICE_MAX, child.wait_with_output()).await??;
    drop(input);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test]
async fn client_certificates_are_verified_and_told_to_the_origin() -> anyhow::Result<()> {
    let (authority, other) = (Authority::new("test")?, Authority::new("other")?);
    let folder = folder_with(&authority, &[("a", "a.example"), ("client", "client.example")])?;
    other.write(folder.path(), "foreign", &["client.example"])?;
    for (asked, without) in [("optional", true), ("required", false)] {
        let text = format!(
            "{PLAIN}[tls]\ncertificate = \"a.pem\"\nkey = \"a.key\"\nclient_ca = \"ca.pem\"\n\
             [[listener]]\naddress = \"HTTPS\"\ntls = true\nclient_certificates = \"{asked}\"\n{SITE}"
        );
        let copy = tempfile::tempdir()?;
        for entry in std::fs::read_dir(folder.path())? {
            let entry = entry?;
            std::fs::copy(entry.path(), copy.path().join(entry.file_name()))?;
        }
        let cache = SecureCache::start(copy, &text).await?;
        let own = ["--cert", "client.pem", "--key", "client.key"];
        let certified = cache.curl("a.example", "/", &own).await?;
        assert!(certified.ends_with(" certified"), "{certified}");
        let foreign = ["--cert", "foreign.pem", "--key", "foreign.key"];
        assert!(cache.curl("a.example", "/", &foreign).await.is_err(), "{asked}");
        let none = cache.curl("a.example", "/", &["-H", "Client-Cert: :AAAA:"]).await;
        assert_eq!(none.is_ok(), without, "{asked}");
        if let Ok(none) = none {
            assert!(none.ends_with(" -"), "the stored response is not for this client: {none}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_redirect_listener_redirects_hosts_of_sites() -> anyhow::Result<()> {
    let authority = Authority::new("test")?;
    let folder = folder_with(&authority, &[("a", "a.example")])?;
    let text = format!(
        "admin = \"127.0.0.1:0\"\n[tls]\nlisten = \"HTTPS\"\ncertificate = \"a.pem\"\nkey = \"a.key\"\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\nrole = \"redirect\"\n{SITE}hosts = [\"a.example\"]\n"
    );
    let cache = SecureCache::start(folder, &text).await?;
    let post = Request::new("POST", "/a?b=c").without_host().field("Host", "A.example:80");
    let reply = ask(cache.cache.address(), &post.body("x")).await?;
    let expected = format!("https://a.example:{}/a?b=c", cache.https.port());
    assert_eq!((reply.status, reply.field("location")), (308, Some(&*expected)));
    let other = Request::get("/").without_host().field("Host", "b.example");
    assert_eq!(ask(cache.cache.address(), &other).await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn a_listener_serves_its_sites_only() -> anyhow::Result<()> {
    let origin = telling_origin().await?;
    let url = origin.url();
    let file = ConfigFile::of(&format!(
        "admin = \"127.0.0.1:0\"\n[[listener]]\naddress = \"127.0.0.1:0\"\nsites = [\"a\"]\n\
         [[site]]\nid = \"a\"\nhosts = [\"a.example\"]\norigin = \"{url}\"\n\
         [[site]]\nid = \"b\"\nhosts = [\"b.example\"]\norigin = \"{url}\"\n"
    ))?;
    let cache = file.serve().await?;
    for (host, status) in [("a.example", 200), ("b.example", 421), ("c.example", 404)] {
        let request = Request::get("/").without_host().field("Host", host);
        assert_eq!(ask(cache.address(), &request).await?.status, status, "{host}");
    }
    Ok(())
}

#[tokio::test]
async fn a_slow_handshake_and_an_address_in_use_are_reported() -> anyhow::Result<()> {
    let authority = Authority::new("test")?;
    let folder = folder_with(&authority, &[("a", "a.example")])?;
    let cache = SecureCache::start(folder, &short("handshake_timeout = \"100ms\"")).await?;
    let _silent = tokio::net::TcpStream::connect(cache.https).await?;
    let begun = Instant::now();
    while cache.handshakes("timeout").await? == 0 {
        ensure!(begun.elapsed() < NOTICE_MAX, "the handshake is not ended");
    }
    let text = std::fs::read_to_string(&cache.file.path)?;
    let second = cache.folder().join("second.toml");
    std::fs::write(&second, text)?;
    let launch = forebay(["serve", "--config"]).args([&second]);
    let Err(error) = launch.start().await else { bail!("two processes have one address") };
    let expected = format!("cannot listen on {}: Address already in use", cache.https);
    assert!(error.to_string().contains(&expected), "{error:#}");
    Ok(())
}

/// Starts a cache whose origin is the TLS listener of another one. `more` are lines of its
/// `[site.origin]`.
async fn before(secure: &SecureCache, more: &str) -> anyhow::Result<(Launched, ConfigFile)> {
    let more = more.replace("FOLDER", &secure.folder().display().to_string());
    let file = ConfigFile::of(&format!(
        "{PLAIN}[[site]]\nid = \"front\"\n[site.origin]\nurls = [\"https://{}\"]\n{more}\n",
        secure.https
    ))?;
    Ok((file.serve().await?, file))
}

#[tokio::test]
async fn the_certificate_of_an_https_origin_is_verified() -> anyhow::Result<()> {
    let authority = Authority::new("test")?;
    let folder = folder_with(&authority, &[("a", "shop.example"), ("client", "client.example")])?;
    let open = SecureCache::start(folder, &short("")).await?;
    let folder = folder_with(&authority, &[("a", "shop.example"), ("client", "client.example")])?;
    let closed = format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[tls]\ncertificate = \"a.pem\"\n\
         key = \"a.key\"\nclient_ca = \"ca.pem\"\n[[listener]]\naddress = \"HTTPS\"\ntls = true\n\
         client_certificates = \"required\"\n{SITE}"
    );
    let closed = SecureCache::start(folder, &closed).await?;
    let right = "ca = \"FOLDER/ca.pem\"\nserver_name = \"shop.example\"\n";
    let wrong = "ca = \"FOLDER/ca.pem\"\nserver_name = \"other.example\"\n";
    let pair = "client_certificate = \"FOLDER/client.pem\"\nclient_key = \"FOLDER/client.key\"\n";
    let rows = [
        (&open, right.to_owned(), 200, "forebay; "),
        (&open, wrong.to_owned(), 502, "detail=origin-certificate-name"),
        (&open, String::new(), 502, "detail=origin-certificate-authority"),
        (&open, format!("{wrong}verify = false\n"), 200, "forebay; "),
        (&closed, right.to_owned(), 502, "detail=origin-client-certificate"),
        (&closed, format!("{right}{pair}"), 200, "forebay; "),
    ];
    for (secure, more, status, expected) in rows {
        let (front, _file) = before(secure, &more).await?;
        let reply = crate::world::get(&front, "/a").await?;
        let shown = reply.field("cache-status").unwrap_or_default().to_owned();
        assert_eq!((reply.status, shown.contains(expected)), (status, true), "{more}: {shown}");
    }
    Ok(())
}
