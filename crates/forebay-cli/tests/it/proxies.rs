//! Proxies in front of the cache: the configurations of `docs/behind-a-proxy.md`, run with the real
//! programs, and the PROXY protocol.
//!
//! The origin is an application that redirects to https until a request says that it used it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use forebay_testkit::client::{Client, Request};
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::world::{ConfigFile, ask, is_hit, metric, nowhere};

/// Maximum time for a proxy to listen.
const START_MAX: Duration = Duration::from_secs(20);

/// Folders of servers that are missing in the search path of ordinary users.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/usr/bin"];

const HOST: &str = "shop.example";

/// Address of the client, which is not a trusted proxy.
const CLIENT: &str = "127.0.0.2";

/// Application that redirects to https, and otherwise answers with what it was told.
async fn application() -> anyhow::Result<Origin> {
    let origin = Origin::start(|asked| {
        let told = |name: &str| asked.fields.first(name).unwrap_or("-").to_owned();
        if told("x-forwarded-proto") != "https" {
            return Answer::status(301)
                .field("Location", format!("https://{HOST}{}", asked.path()))
                .field("Cache-Control", "max-age=60");
        }
        let body = format!("{} {}", told("x-forwarded-for"), told("x-forwarded-host"));
        let lifetime = if asked.path() == "/cached" { "max-age=60" } else { "no-store" };
        Answer::ok(body).field("Cache-Control", lifetime)
    });
    Ok(origin.await?)
}

/// Running proxy; dropping it kills the process.
struct Proxy {
    address: SocketAddr,
    _process: Child,
    folder: TempDir,
}

impl Proxy {
    /// Starts a program with a block of `docs/behind-a-proxy.md`, in which its own port and that of
    /// the cache are replaced.
    async fn start(program: &str, block: &str, cache: SocketAddr) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = nowhere()?;
        write_certificate(folder.path())?;
        let text = documented(block)?;
        let replaced = [
            ("127.0.0.1:8080", cache.to_string()),
            ("listen 443", format!("listen {address}")),
            ("bind :443", format!("bind {address}")),
            (":443", format!(":{}", address.port())),
        ];
        let text = replaced.iter().fold(text, |text, (from, to)| text.replace(from, to));
        let file = folder.path().join("proxy.conf");
        std::fs::write(&file, text)?;
        let file = file.to_str().context("a temporary path is not UTF-8")?;
        let root = folder.path().to_str().context("a temporary path is not UTF-8")?;
        let args: Vec<String> = match program {
            "nginx" => {
                let own =
                    format!("daemon off; master_process off; pid {root}/pid; error_log stderr;");
                ["-p", root, "-c", file, "-g", &own].map(str::to_owned).to_vec()
            }
            "haproxy" => ["-db", "-f", file].map(str::to_owned).to_vec(),
            "caddy" => {
                ["run", "--adapter", "caddyfile", "--config", file].map(str::to_owned).to_vec()
            }
            other => bail!("unknown proxy {other}"),
        };
        let mut command = Command::new(find(program)?);
        command.args(args).current_dir(&folder).env("HOME", root).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().with_context(|| format!("start {program}"))?;
        let begun = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            if let Some(status) = process.try_wait()? {
                bail!("{program} ended with {status}");
            }
            anyhow::ensure!(begun.elapsed() < START_MAX, "{program} does not listen");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { address, _process: process, folder })
    }

    /// Sends a GET over TLS with curl; returns its output.
    async fn curl(&self, path: &str, more: &[&str]) -> anyhow::Result<String> {
        let port = self.address.port();
        let url = format!("https://{HOST}:{port}{path}");
        let to = format!("{HOST}:{port}:{}", self.address.ip());
        let certificate = self.folder.path().join("cert.pem");
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "10", "-i", "--http1.1", "--interface", CLIENT]);
        command.args(["--resolve", &to, "--cacert"]);
        command.arg(certificate).args(more).arg(url);
        let output = command.output().await?;
        anyhow::ensure!(
            output.status.success(),
            "curl: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn find(program: &str) -> anyhow::Result<PathBuf> {
    let paths = FOLDERS.iter().map(|folder| Path::new(folder).join(program));
    paths.into_iter().find(|path| path.is_file()).with_context(|| {
        format!("{program} is not installed; `cargo xtask test` installs what the tests need")
    })
}

/// Certificate for the host, for the proxies and curl.
fn write_certificate(folder: &Path) -> anyhow::Result<()> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([HOST.to_owned()])?;
    let (cert, key) = (cert.pem(), signing_key.serialize_pem());
    std::fs::write(folder.join("cert.pem"), &cert)?;
    std::fs::write(folder.join("key.pem"), &key)?;
    std::fs::write(folder.join("shop.pem"), cert + &key)?;
    Ok(())
}

/// Block of `docs/behind-a-proxy.md` with this language, or with `LANGUAGE N` the Nth of them.
fn documented(block: &str) -> anyhow::Result<String> {
    let page: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "docs", "behind-a-proxy.md"].iter().collect();
    let text = std::fs::read_to_string(page)?;
    let (language, number) = block.split_once(' ').unwrap_or((block, "1"));
    let fence = format!("```{language}\n");
    let found = text.split(&fence).nth(number.parse()?);
    let found = found.and_then(|rest| rest.split("```").next());
    Ok(found.with_context(|| format!("no block {block}"))?.to_owned())
}

/// Cache that trusts the loopback addresses.
async fn cache(origin: &Origin, top: &str) -> anyhow::Result<Launched> {
    let file = ConfigFile::serving(
        &origin.url(),
        &format!("trusted_proxies = [\"127.0.0.1\"]\n{top}"),
        "",
    )?;
    file.serve().await
}

/// Checks what the application sees of a client behind a proxy, also of one that claims to be
/// another.
async fn assert_known(proxy: &Proxy, cache: &Launched) -> anyhow::Result<()> {
    let port = proxy.address.port();
    let plain = proxy.curl("/login", &[]).await?;
    assert!(plain.starts_with("HTTP/1.1 200"), "the application sees https: {plain}");
    let expected = |reply: &str| {
        let told = reply.lines().last().unwrap_or_default().to_owned();
        assert!(told.starts_with(CLIENT), "{told}");
        assert!(told.ends_with(&format!(" {HOST}:{port}")), "{told}");
        assert!(!told.contains("8.8.8.8"), "{told}");
        told
    };
    let told = expected(&plain);
    let claims = [
        "-H",
        "X-Forwarded-For: 8.8.8.8",
        "-H",
        "X-Forwarded-Proto: http",
        "-H",
        "X-Forwarded-Host: evil.example",
        "-H",
        "Forwarded: for=8.8.8.8;proto=http",
        "-H",
        "X-Real-IP: 8.8.8.8",
    ];
    assert_eq!(expected(&proxy.curl("/login", &claims).await?), told);
    // One stored response for all clients over https, whatever they claim.
    proxy.curl("/cached", &[]).await?;
    let hit = proxy.curl("/cached", &claims).await?.to_ascii_lowercase();
    assert!(hit.contains("cache-status: forebay; hit"), "{hit}");
    // A client that is not behind the proxy: its redirect is another entry.
    let request = Request::get("/cached").without_host().field("Host", format!("{HOST}:{port}"));
    let direct = ask(cache.address(), &request).await?;
    assert_eq!(direct.status, 301);
    Ok(())
}

async fn assert_http_proxy(program: &str, block: &str) -> anyhow::Result<()> {
    let origin = application().await?;
    let cache = cache(&origin, "").await?;
    let proxy = Proxy::start(program, block, cache.address()).await?;
    assert_known(&proxy, &cache).await?;
    // One hop: the client's address, then the proxy's.
    let told = proxy.curl("/login", &[]).await?;
    assert!(told.contains("\n127.0.0.2, 127.0.0.1 "), "{told}");
    assert!(metric(&cache, "forebay_forwarded_total", "result=\"named\"").await? >= 4);
    Ok(())
}

#[tokio::test]
async fn the_documented_nginx_names_the_client() -> anyhow::Result<()> {
    assert_http_proxy("nginx", "nginx").await
}

#[tokio::test]
async fn the_documented_haproxy_names_the_client() -> anyhow::Result<()> {
    assert_http_proxy("haproxy", "haproxy 1").await
}

#[tokio::test]
async fn the_documented_caddy_names_the_client() -> anyhow::Result<()> {
    assert_http_proxy("caddy", "caddyfile").await
}

const PROXIED: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = \"required\"";

/// Cache whose only listener requires PROXY headers from these proxies.
async fn proxied(origin: &Origin, trusted: &str, top: &str) -> anyhow::Result<Launched> {
    let file = ConfigFile::of(&format!(
        "admin = \"127.0.0.1:0\"\ntrusted_proxies = [{trusted}]\n{top}\n{PROXIED}\n\
         [[site]]\nid = \"shop\"\norigin = \"{}\"\n",
        origin.url()
    ))?;
    file.serve().await
}

#[tokio::test]
async fn the_documented_proxy_protocol_names_client_and_scheme() -> anyhow::Result<()> {
    let origin = application().await?;
    let cache = proxied(&origin, "\"127.0.0.1\"", "").await?;
    let proxy = Proxy::start("haproxy", "haproxy 2", cache.address()).await?;
    assert_known_tls(&proxy).await
}

/// Checks that the application sees https and only the client's address.
async fn assert_known_tls(proxy: &Proxy) -> anyhow::Result<()> {
    let port = proxy.address.port();
    let claims = ["-H", "X-Forwarded-For: 8.8.8.8", "-H", "X-Forwarded-Proto: http"];
    let told = proxy.curl("/login", &claims).await?;
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    assert!(told.ends_with(&format!("\n{CLIENT} {HOST}:{port}")), "{told}");
    Ok(())
}

/// Sends a PROXY header and a request; returns the status and the body.
async fn through(
    cache: &Launched,
    header: &str,
    request: &Request,
) -> anyhow::Result<(u16, String)> {
    let mut client = Client::connect(cache.address()).await?;
    client.send_raw(header.as_bytes()).await?;
    let reply = client.ask(request).await?;
    Ok((reply.status, reply.text().into_owned()))
}

#[tokio::test]
async fn a_proxy_header_names_the_client_and_its_claims_do_not() -> anyhow::Result<()> {
    let origin = Origin::start(|asked| {
        let told = asked.fields.first("x-forwarded-for").unwrap_or("-").to_owned();
        Answer::ok(told).field("Cache-Control", "no-store")
    });
    let origin = origin.await?;
    let cache = proxied(&origin, "\"127.0.0.1\"", "").await?;
    let claim = Request::get("/").field("X-Forwarded-For", "8.8.8.8");
    let rows = [
        ("PROXY TCP4 203.0.113.9 10.0.0.1 4711 443\r\n", "203.0.113.9"),
        ("PROXY TCP6 2001:db8::9 ::1 4711 443\r\n", "2001:db8::9"),
        // A connection of the proxy itself, which may name a client.
        ("PROXY UNKNOWN\r\n", "8.8.8.8, 127.0.0.1"),
    ];
    for (header, expected) in rows {
        assert_eq!(through(&cache, header, &claim).await?, (200, expected.into()), "{header}");
    }
    // Without a header, or with an invalid one, there is no answer.
    let fetched = origin.requests();
    for start in ["", "PROXY TCP4 203.0.113.9\r\n", "PROXY \r\n"] {
        assert!(through(&cache, start, &claim).await.is_err(), "{start}");
    }
    assert_eq!(origin.requests(), fetched);
    assert_eq!(metric(&cache, "forebay_refused_total", "limit=\"proxy-header\"").await?, 3);
    Ok(())
}

#[tokio::test]
async fn a_proxy_header_of_an_untrusted_peer_is_refused() -> anyhow::Result<()> {
    let origin = application().await?;
    let cache = proxied(&origin, "\"192.0.2.0/24\"", "").await?;
    let header = "PROXY TCP4 192.0.2.1 10.0.0.1 4711 443\r\n";
    assert!(through(&cache, header, &Request::get("/")).await.is_err());
    assert_eq!(metric(&cache, "forebay_refused_total", "limit=\"proxy-header\"").await?, 1);
    assert_eq!(origin.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn connections_are_limited_per_client_address() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("a").field("Cache-Control", "max-age=60")).await?;
    let cache = proxied(&origin, "\"127.0.0.1\"", "connections_per_address_max = 2").await?;
    let one = "PROXY TCP4 203.0.113.9 10.0.0.1 4711 443\r\n";
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(cache.address()).await?;
        client.send_raw(one.as_bytes()).await?;
        assert_eq!(client.ask(&Request::get("/")).await?.status, 200);
        open.push(client);
    }
    assert!(through(&cache, one, &Request::get("/")).await.is_err());
    let other = "PROXY TCP4 203.0.113.8 10.0.0.1 4711 443\r\n";
    assert_eq!(through(&cache, other, &Request::get("/")).await?.0, 200);
    // The proxy's own connections are not limited.
    for _ in 0..4 {
        let mut client = Client::connect(cache.address()).await?;
        client.send_raw(b"PROXY UNKNOWN\r\n").await?;
        assert_eq!(client.ask(&Request::get("/")).await?.status, 200);
        open.push(client);
    }
    assert_eq!(metric(&cache, "forebay_refused_total", "limit=\"address-connections\"").await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_reload_changes_the_trusted_proxies() -> anyhow::Result<()> {
    let origin = Origin::start(|asked| {
        let told = asked.fields.first("x-forwarded-for").unwrap_or("-").to_owned();
        Answer::ok(told).field("Cache-Control", "no-store")
    });
    let origin = origin.await?;
    let file = ConfigFile::serving(&origin.url(), "", "forwarded = true")?;
    let cache = file.serve().await?;
    let claim = Request::get("/").field("X-Forwarded-For", "203.0.113.9");
    let mut client = Client::connect(cache.address()).await?;
    assert_eq!(client.ask(&claim).await?.text(), "127.0.0.1");
    let trusting = "trusted_proxies = [\"loopback\"]";
    file.rewrite(&crate::world::serving(&origin.url(), trusting, ""))?;
    let reload = crate::world::to_admin(&cache, "POST", "/reload")?;
    let reload = reload.field("Content-Type", "application/json");
    assert_eq!(ask(crate::world::admin_of(&cache)?, &reload).await?.status, 200);
    // Also for the connection that was open.
    assert_eq!(client.ask(&claim).await?.text(), "203.0.113.9, 127.0.0.1");
    let forwarded = &origin.received()[0].fields;
    let first = forwarded.first("forwarded").unwrap_or_default();
    assert!(first.starts_with("for=127.0.0.1;proto=http;host="), "{first}");
    Ok(())
}

#[tokio::test]
async fn a_unix_socket_is_a_listener() -> anyhow::Result<()> {
    let origin = application().await?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("http.sock");
    // A socket file of a process that has ended.
    drop(std::os::unix::net::UnixListener::bind(&path)?);
    let top = format!(
        "trusted_proxies = [\"unix\"]\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [[listener]]\naddress = \"unix:{}\"",
        path.display()
    );
    let file = ConfigFile::of(&format!(
        "admin = \"127.0.0.1:0\"\n{top}\n[[site]]\nid = \"shop\"\norigin = \"{}\"\n",
        origin.url()
    ))?;
    let cache = file.serve().await?;
    let claims = "-H X-Forwarded-Proto:https -H X-Forwarded-For:203.0.113.9";
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "10", "--unix-socket"]).arg(&path);
    command.args(claims.split(' ')).arg("http://shop.example/cached");
    let output = command.output().await?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "203.0.113.9 shop.example");
    let direct = Request::get("/cached").without_host().field("Host", HOST);
    assert!(!is_hit(&ask(cache.address(), &direct).await?));
    // A second process cannot take the socket.
    let second = ConfigFile::of(&std::fs::read_to_string(&file.path)?)?;
    let Err(error) = second.serve().await else { bail!("two processes have one socket") };
    assert!(error.to_string().contains("cannot listen on unix:"), "{error:#}");
    Ok(())
}

#[tokio::test]
async fn networks_are_allowed_and_denied_by_the_client_address() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("a").field("Cache-Control", "max-age=60")).await?;
    let file = ConfigFile::serving(
        &origin.url(),
        "trusted_proxies = [\"127.0.0.1\"]",
        "allow = [\"203.0.113.0/24\", \"loopback\"]\ndeny = [\"203.0.113.9\"]",
    )?;
    let cache = file.serve().await?;
    let rows =
        [("127.0.0.1", 200), ("203.0.113.8", 200), ("203.0.113.9", 403), ("198.51.100.1", 403)];
    for _ in 0..2 {
        // A stored response is not for denied clients either.
        for (client, status) in rows {
            let request = Request::get("/").field("X-Forwarded-For", client);
            assert_eq!(ask(cache.address(), &request).await?.status, status, "{client}");
        }
    }
    assert_eq!(metric(&cache, "forebay_denied_total", "site=\"shop\"").await?, 4);
    assert_eq!(origin.requests(), 1);
    Ok(())
}

#[tokio::test]
async fn clients_above_their_rate_get_429_on_every_path() -> anyhow::Result<()> {
    let origin = Origin::start(|asked| {
        let is_stored = asked.target.starts_with("/stored");
        let lifetime = if is_stored { "max-age=60" } else { "no-store" };
        Answer::ok("a").field("Cache-Control", lifetime)
    });
    let origin = origin.await?;
    let top = "trusted_proxies = [\"127.0.0.1\"]";
    for (exempt_hits, path, expected) in
        [(false, "/stored", 3), (false, "/never", 3), (true, "/stored", 10), (true, "/never", 3)]
    {
        let limit = format!("[site.rate_limit]\nrequests = \"3/h\"\nexempt_hits = {exempt_hits}");
        let cache = ConfigFile::serving(&origin.url(), top, &limit)?.serve().await?;
        for client in ["203.0.113.1", "2001:db8::1"] {
            let mut answered = 0;
            for _ in 0..10 {
                let request = Request::get(path).field("X-Forwarded-For", client);
                let reply = ask(cache.address(), &request).await?;
                if reply.status == 200 {
                    answered += 1;
                    continue;
                }
                assert_eq!(reply.status, 429);
                let wait: u64 = reply.field("retry-after").context("no Retry-After")?.parse()?;
                assert!((1..=1_200).contains(&wait), "{wait}");
                let status = reply.field("cache-status").unwrap_or_default();
                assert!(status.ends_with("detail=rate-limited"), "{status}");
            }
            assert_eq!(answered, expected, "{path} {client} {exempt_hits}");
        }
        // The other half of the network is no other client.
        let neighbour = Request::get("/never").field("X-Forwarded-For", "2001:db8::ffff:1");
        let is_used_up = expected == 3;
        let status = ask(cache.address(), &neighbour).await?.status;
        assert_eq!(status == 429, is_used_up, "{path} {exempt_hits}");
        let limited = metric(&cache, "forebay_rate_limited_total", "site=\"shop\"").await?;
        assert_eq!(limited, if is_used_up { 15 } else { 0 });
    }
    Ok(())
}

#[tokio::test]
async fn direct_hits_count_once() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("a").field("Cache-Control", "max-age=60")).await?;
    let limit = "[site.rate_limit]\nrequests = \"10/h\"";
    let cache = ConfigFile::serving(&origin.url(), "", limit)?.serve().await?;
    let mut statuses = Vec::new();
    for _ in 0..12 {
        statuses.push(ask(cache.address(), &Request::get("/")).await?.status);
    }
    assert_eq!(statuses[..10], [200; 10]);
    assert_eq!(statuses[10..], [429; 2]);
    Ok(())
}
