//! Automatic certificates from pebble, the test server of Let's Encrypt: `cargo xtask soak
//! certificates` installs it and runs these tests.
//!
//! Names resolve to 127.0.0.1 by a name server of the test.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::Origin;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::tls::Authority;
use crate::world::{ConfigFile, end, forebay, fresh_origin, get_admin, metric, nowhere};

/// Variable with the folder of pebble.
const TOOLS: &str = "FOREBAY_TOOLS";

/// Maximum wait for a certificate. A first failure is repeated after 66 s at most.
const ISSUED_MAX: Duration = Duration::from_secs(100);

/// Maximum time from the end of an order until the certificate is in use.
const IN_USE_MAX: Duration = Duration::from_secs(2);

const POLL: Duration = Duration::from_millis(100);

/// Port numbers of one world: pebble connects to those of the cache.
#[derive(Clone, Copy)]
struct Ports {
    https: SocketAddr,
    http: SocketAddr,
    directory: SocketAddr,
    management: SocketAddr,
}

/// Pebble with its files, and a name server.
struct World {
    folder: TempDir,
    ports: Ports,
    names: SocketAddr,
    origin: Origin,
}

impl World {
    async fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let authority = Authority::new("directory")?;
        std::fs::write(folder.path().join("ca.pem"), &authority.pem)?;
        authority.write(folder.path(), "pebble", &["localhost"])?;
        let ports = Ports {
            https: nowhere()?,
            http: nowhere()?,
            directory: nowhere()?,
            management: nowhere()?,
        };
        let names = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = names.local_addr()?;
        tokio::spawn(resolve_all(names));
        Ok(Self { folder, ports, names: address, origin: fresh_origin().await? })
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Starts pebble; certificates live for `lifetime` seconds.
    async fn pebble(&self, lifetime: u64, environment: &[(&str, &str)]) -> anyhow::Result<Child> {
        let Ports { https, http, directory, management } = self.ports;
        let config = json!({ "pebble": {
            "listenAddress": directory.to_string(),
            "managementListenAddress": management.to_string(),
            "certificate": self.path("pebble.pem"),
            "privateKey": self.path("pebble.key"),
            "httpPort": http.port(),
            "tlsPort": https.port(),
            "externalAccountBindingRequired": false,
            "retryAfter": { "authz": 1, "order": 1 },
            "profiles": { "default": { "description": "test", "validityPeriod": lifetime } },
        }});
        std::fs::write(self.path("pebble.json"), config.to_string())?;
        let tools = std::env::var(TOOLS).context("use `cargo xtask soak certificates`")?;
        let mut command = Command::new(Path::new(&tools).join("pebble"));
        command.arg("-strict").arg("-config").arg(self.path("pebble.json"));
        command.args(["-dnsserver", &self.names.to_string()]).kill_on_drop(true);
        command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_AUTHZREUSE", "0");
        command.env("PEBBLE_WFE_NONCEREJECT", "0").envs(environment.iter().copied());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let begun = Instant::now();
        while tokio::net::TcpStream::connect(directory).await.is_err() {
            ensure!(begun.elapsed() < Duration::from_secs(20), "pebble does not start");
            sleep(POLL).await;
        }
        Ok(child)
    }

    fn config(&self, ports: Ports, more: &str) -> String {
        let Ports { https, http, directory, .. } = ports;
        let (port, origin) = (directory.port(), self.origin.url());
        let (ca, storage) = (self.path("ca.pem"), self.path("state"));
        format!(
            "admin = \"127.0.0.1:0\"\n\
             [[listener]]\naddress = \"{http}\"\nrole = \"redirect\"\n\
             [[listener]]\naddress = \"{https}\"\ntls = true\n\
             [tls]\nwatch = \"100ms\"\n\
             [tls.acme]\nagree_to_terms = true\nca = {ca:?}\nstorage = {storage:?}\n\
             directory = \"https://localhost:{port}/dir\"\n{more}\n\
             [[site]]\nid = \"shop\"\norigin = \"{origin}\"\nhosts = [\"shop.example\"]\n"
        )
    }

    /// Sends a GET until the new certificate is in use.
    async fn get_soon(&self) -> anyhow::Result<String> {
        let begun = Instant::now();
        loop {
            match self.get(self.ports.https).await {
                Err(_) if begun.elapsed() < IN_USE_MAX => sleep(POLL).await,
                answer => return answer,
            }
        }
    }

    /// File of the certificate.
    fn certificate(&self) -> std::path::PathBuf {
        let folder = format!("localhost-{}-dir", self.ports.directory.port());
        self.path("state").join(folder).join("certificates/shop.example.pem")
    }

    async fn cache(&self, more: &str) -> anyhow::Result<Launched> {
        ConfigFile::of(&self.config(self.ports, more))?.serve().await
    }

    /// Writes the root certificate of pebble, and sends a GET that trusts no other.
    async fn get(&self, https: SocketAddr) -> anyhow::Result<String> {
        let roots = format!("https://localhost:{}/roots/0", self.ports.management.port());
        curl(&self.path("ca.pem"), &["-o", &self.path("root.pem").to_string_lossy(), &roots])
            .await?;
        self.get_with_root(https).await
    }

    /// Sends a GET that trusts the root certificate that was written last.
    async fn get_with_root(&self, https: SocketAddr) -> anyhow::Result<String> {
        let port = https.port();
        let (resolve, url) =
            (format!("shop.example:{port}:127.0.0.1"), format!("https://shop.example:{port}/"));
        let format = "%{http_version} %{http_code}";
        curl(
            &self.path("root.pem"),
            &["-o", "/dev/null", "-w", format, "--resolve", &resolve, &url],
        )
        .await
    }
}

async fn curl(ca: &Path, args: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("curl");
    let output = command.args(["-sS", "--max-time", "10", "--cacert"]).arg(ca).args(args);
    let output = output.output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Answers the queries of each connection: 127.0.0.1 for addresses of version 4, and nothing for
/// others. Pebble asks over TCP.
async fn resolve_all(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            while let Ok(length) = stream.read_u16().await {
                let mut query = vec![0; usize::from(length)];
                stream.read_exact(&mut query).await?;
                let Some(reply) = resolved(&query) else { break };
                stream.write_u16(u16::try_from(reply.len()).unwrap_or_default()).await?;
                stream.write_all(&reply).await?;
            }
            std::io::Result::Ok(())
        });
    }
}

/// Response to a DNS query (RFC 1035 section 4.1).
fn resolved(query: &[u8]) -> Option<Vec<u8>> {
    let name_end = 12 + query.get(12..)?.iter().position(|byte| *byte == 0)? + 1;
    let question = query.get(..name_end + 4)?;
    let is_address = question[name_end..] == [0, 1, 0, 1];
    let mut reply = question.to_vec();
    reply[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    if is_address {
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1]);
    }
    Some(reply)
}

async fn orders(cache: &Launched, result: &str) -> anyhow::Result<u64> {
    metric(cache, "forebay_acme_orders_total", &format!("result=\"{result}\"")).await
}

async fn wait_for_orders(cache: &Launched, result: &str, count: u64) -> anyhow::Result<()> {
    let begun = Instant::now();
    while orders(cache, result).await? < count {
        let log = || cache.stderr().join("\n");
        ensure!(begun.elapsed() < ISSUED_MAX, "{count} orders are not {result}: {}", log());
        sleep(POLL).await;
    }
    Ok(())
}

async fn health(cache: &Launched) -> anyhow::Result<serde_json::Value> {
    Ok(serde_json::from_str(&get_admin(cache, "/healthz").await?.text())?)
}

#[tokio::test]
#[ignore = "needs pebble: cargo xtask soak certificates"]
async fn each_challenge_gives_a_certificate_also_with_bad_nonces() -> anyhow::Result<()> {
    for (challenge, rejected) in
        [("tls-alpn-01", "0"), ("http-01", "0"), ("tls-alpn-01", "20"), ("http-01", "20")]
    {
        let world = World::new().await?;
        let _pebble = world.pebble(86_400, &[("PEBBLE_WFE_NONCEREJECT", rejected)]).await?;
        let cache = world.cache(&format!("challenges = [{challenge:?}]")).await?;
        wait_for_orders(&cache, "issued", 1).await?;
        assert_eq!(world.get_soon().await?, "2 200", "{challenge}");
        assert_eq!(orders(&cache, "failed").await?, 0, "{challenge} {rejected}");
        assert_eq!(health(&cache).await?["state"], "ready");
        end(cache, Signal::Term).await?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs pebble: cargo xtask soak certificates"]
async fn the_second_challenge_is_tried_after_the_first() -> anyhow::Result<()> {
    let mut world = World::new().await?;
    // Pebble connects to a port on which nothing listens, like a proxy that ends TLS.
    let https = std::mem::replace(&mut world.ports.https, nowhere()?);
    let _pebble = world.pebble(86_400, &[]).await?;
    world.ports.https = https;
    let cache = world.cache("").await?;
    wait_for_orders(&cache, "issued", 1).await?;
    assert_eq!(orders(&cache, "failed").await?, 0);
    Ok(())
}

#[tokio::test]
#[ignore = "needs pebble: cargo xtask soak certificates"]
async fn a_certificate_is_renewed_without_a_failed_handshake() -> anyhow::Result<()> {
    let world = World::new().await?;
    let _pebble = world.pebble(20, &[]).await?;
    let cache = world.cache("").await?;
    wait_for_orders(&cache, "issued", 1).await?;
    let end = || async { metric(&cache, "forebay_certificate_expiry_timestamp_seconds", "").await };
    let begun = Instant::now();
    let first = loop {
        match end().await? {
            0 if begun.elapsed() > ISSUED_MAX => bail!("the certificate is not loaded"),
            0 => sleep(POLL).await,
            end => break end,
        }
    };
    let mut served = 0;
    while end().await? == first {
        ensure!(begun.elapsed() < ISSUED_MAX, "no renewal");
        assert_eq!(world.get(world.ports.https).await?, "2 200");
        served += 1;
    }
    assert!(served > 0 && end().await? > first);
    assert_eq!(orders(&cache, "failed").await?, 0);
    Ok(())
}

#[tokio::test]
#[ignore = "needs pebble: cargo xtask soak certificates"]
async fn an_authority_that_is_down_delays_certificates_only() -> anyhow::Result<()> {
    let world = World::new().await?;
    let cache = world.cache("").await?;
    wait_for_orders(&cache, "failed", 1).await?;
    let health = health(&cache).await?;
    assert_eq!(health["state"], "degraded");
    assert_eq!(health["certificates_overdue"][0], "shop.example");
    let url = format!("http://{}/", world.ports.http);
    let show = ["-o", "/dev/null", "-w", "%{http_code}", "-H", "Host: shop.example", &url];
    assert_eq!(curl(&world.path("ca.pem"), &show).await?, "308");
    let _pebble = world.pebble(86_400, &[]).await?;
    wait_for_orders(&cache, "issued", 1).await
}

#[tokio::test]
#[ignore = "needs pebble: cargo xtask soak certificates"]
async fn a_process_that_is_killed_at_any_time_leaves_nothing_in_the_way() -> anyhow::Result<()> {
    const KILLS: u32 = 12;
    let world = World::new().await?;
    let _pebble = world.pebble(86_400, &[]).await?;
    for kill in 0..KILLS {
        let mut cache = world.cache("").await?;
        sleep(POLL * kill).await;
        cache.signal(Signal::Kill).await?;
        cache.wait_exit(POLL * 100).await?;
        // The certificate of an earlier round would hide the steps before it.
        let _ = std::fs::remove_file(world.certificate());
    }
    let cache = world.cache("").await?;
    wait_for_orders(&cache, "issued", 1).await?;
    assert_eq!(orders(&cache, "failed").await?, 0);
    Ok(())
}

#[tokio::test]
#[ignore = "needs pebble: cargo xtask soak certificates"]
async fn instances_that_share_the_storage_order_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    let _pebble = world.pebble(86_400, &[]).await?;
    let other_ports = Ports { https: nowhere()?, http: nowhere()?, ..world.ports };
    let other = ConfigFile::of(&world.config(other_ports, ""))?;
    // Only one of them is reached by the authority, so it answers for both.
    let (first, second) = tokio::try_join!(world.cache(""), other.serve())?;
    let begun = Instant::now();
    loop {
        let sum = orders(&first, "issued").await? + orders(&second, "issued").await?;
        let served = world.get(other_ports.https).await;
        match served {
            Ok(answer) if sum > 0 => {
                assert_eq!((answer.as_str(), sum), ("2 200", 1));
                return Ok(());
            }
            _ => ensure!(begun.elapsed() < ISSUED_MAX, "{sum} orders, {served:?}"),
        }
        sleep(POLL).await;
    }
}

#[tokio::test]
#[ignore = "needs pebble: cargo xtask soak certificates"]
async fn a_stored_certificate_is_used_after_a_restart() -> anyhow::Result<()> {
    let world = World::new().await?;
    let pebble = world.pebble(86_400, &[]).await?;
    let cache = world.cache("").await?;
    wait_for_orders(&cache, "issued", 1).await?;
    assert_eq!(world.get_soon().await?, "2 200");
    end(cache, Signal::Term).await?;
    drop(pebble);
    // The authority is down now, and the first handshake succeeds.
    let cache = world.cache("").await?;
    assert_eq!(world.get_with_root(world.ports.https).await?, "2 200");
    assert_eq!(health(&cache).await?["state"], "ready");
    assert_eq!((orders(&cache, "issued").await?, orders(&cache, "failed").await?), (0, 0));
    Ok(())
}

#[tokio::test]
#[ignore = "needs pebble: cargo xtask soak certificates"]
async fn an_account_that_the_authority_has_forgotten_is_replaced() -> anyhow::Result<()> {
    let world = World::new().await?;
    let pebble = world.pebble(86_400, &[]).await?;
    let cache = world.cache("").await?;
    wait_for_orders(&cache, "issued", 1).await?;
    end(cache, Signal::Term).await?;
    // Pebble keeps accounts in memory.
    drop(pebble);
    let _pebble = world.pebble(86_400, &[]).await?;
    std::fs::remove_file(world.certificate())?;
    let cache = world.cache("").await?;
    wait_for_orders(&cache, "issued", 1).await?;
    assert_eq!(world.get_soon().await?, "2 200");
    assert_eq!(orders(&cache, "failed").await?, 0);
    Ok(())
}

#[tokio::test]
#[ignore = "needs pebble: cargo xtask soak certificates"]
async fn an_order_fails_with_the_reason_of_each_challenge() -> anyhow::Result<()> {
    let mut world = World::new().await?;
    let ports = world.ports;
    world.ports = Ports { https: nowhere()?, http: nowhere()?, ..ports };
    let _pebble = world.pebble(86_400, &[]).await?;
    world.ports = ports;
    let cache = world.cache("").await?;
    wait_for_orders(&cache, "failed", 1).await?;
    for challenge in ["tls-alpn-01", "http-01"] {
        let text = format!("certificate: challenge {challenge} failed: ");
        let line = cache.wait_stderr(&text).await?;
        assert!(line.contains("name=shop.example") && line.contains("127.0.0.1:"), "{line}");
    }
    let line = cache.wait_stderr("certificate not obtained, the next attempt follows in ").await?;
    assert!(line.contains("name=\"shop.example\"") && line.contains("failures=1"), "{line}");
    assert_eq!(health(&cache).await?["certificates_overdue"][0], "shop.example");
    Ok(())
}

#[tokio::test]
#[ignore = "needs pebble: cargo xtask soak certificates"]
async fn a_directory_that_is_not_trusted_gets_no_request() -> anyhow::Result<()> {
    let world = World::new().await?;
    let _pebble = world.pebble(86_400, &[]).await?;
    std::fs::write(world.path("ca.pem"), &Authority::new("another")?.pem)?;
    let cache = world.cache("").await?;
    wait_for_orders(&cache, "failed", 1).await?;
    let line = cache.wait_stderr("certificate not obtained").await?;
    assert!(line.contains("UnknownIssuer"), "{line}");
    Ok(())
}

/// The flags alone, with addresses and an authority that a test can have.
#[tokio::test]
#[ignore = "needs pebble: cargo xtask soak certificates"]
async fn domain_and_agreement_are_a_complete_https_cache() -> anyhow::Result<()> {
    let world = World::new().await?;
    let _pebble = world.pebble(86_400, &[]).await?;
    let Ports { https, http, directory, .. } = world.ports;
    let (port, ca, origin) = (directory.port(), world.path("ca.pem"), world.origin.url());
    let file = ConfigFile::of(&format!(
        "admin = \"127.0.0.1:0\"\n\
         [[listener]]\naddress = \"{https}\"\ntls = true\n\
         [[listener]]\naddress = \"{http}\"\nrole = \"redirect\"\n\
         [tls]\nwatch = \"100ms\"\n\
         [tls.acme]\nca = {ca:?}\ndirectory = \"https://localhost:{port}/dir\"\n"
    ))?;
    let flags = ["--origin", &origin, "--domain", "shop.example", "--agree-to-terms"];
    let cache = forebay(["serve", "--config"]).args([&file.path]).args(flags);
    let cache = cache.env("STATE_DIRECTORY", world.path("state")).start().await?;
    wait_for_orders(&cache, "issued", 1).await?;
    assert_eq!(world.get_soon().await?, "2 200");
    assert!(world.path("state").join("acme").is_dir());
    let url = format!("http://{http}/a?b");
    let show = ["-o", "/dev/null", "-w", "%{http_code} %{redirect_url}"];
    let redirected = curl(&ca, &[&show[..], &["-H", "Host: shop.example", &url]].concat()).await?;
    assert_eq!(redirected, format!("308 https://shop.example:{}/a?b", https.port()));
    Ok(())
}
