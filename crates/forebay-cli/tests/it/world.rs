//! Helpers: a cache in front of a scripted origin, and requests to both listeners.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::launch::{Launch, Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use tempfile::TempDir;

/// Flags for ports that the system chooses.
pub(crate) const ANYWHERE: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

/// Maximum time for a process without open requests to exit.
pub(crate) const END_MAX: Duration = Duration::from_secs(8);

/// Maximum number of polls of a metric.
const ASKED_MAX: usize = 10_000;

/// Maximum number of ports that are tried.
const PORTS_TRIED_MAX: usize = 100;

/// Path of the binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_forebay");

/// Command with these arguments.
pub(crate) fn forebay<const N: usize>(args: [&str; N]) -> Launch {
    Launch::binary(BINARY).args(args)
}

/// Starts `serve` in front of `origin`, on ports that the system chooses.
pub(crate) async fn serve(origin: &Origin) -> anyhow::Result<Launched> {
    forebay(["serve", "--origin", &origin.url()]).args(ANYWHERE).start().await
}

/// Origin whose responses are fresh for a minute.
pub(crate) async fn fresh_origin() -> anyhow::Result<Origin> {
    Ok(Origin::always(Answer::ok("hello").field("Cache-Control", "max-age=60")).await?)
}

/// Configuration file in a temporary directory, which is deleted with it.
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) folder: TempDir,
}

impl ConfigFile {
    /// File with exactly this text.
    pub(crate) fn of(text: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("forebay.toml");
        std::fs::write(&path, text)?;
        Ok(Self { path, folder })
    }

    /// File that serves `origin` on ports that the system chooses, with additional lines at the top
    /// and in the site.
    pub(crate) fn serving(origin: &str, top: &str, site: &str) -> anyhow::Result<Self> {
        Self::of(&serving(origin, top, site))
    }

    /// Replaces the text of the file.
    pub(crate) fn rewrite(&self, text: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(&self.path, text)?)
    }

    /// Starts `serve` with the file.
    pub(crate) async fn serve(&self) -> anyhow::Result<Launched> {
        forebay(["serve", "--config"]).args([&self.path]).start().await
    }
}

/// Text of [`ConfigFile::serving`].
pub(crate) fn serving(origin: &str, top: &str, site: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n{top}\n\
         [[site]]\nid = \"shop\"\norigin = \"{origin}\"\n{site}\n"
    )
}

/// Sends one request on a new connection.
pub(crate) async fn ask(address: SocketAddr, request: &Request) -> anyhow::Result<Reply> {
    Client::connect(address).await?.ask(request).await
}

/// Sends one GET on a new connection.
pub(crate) async fn get(cache: &Launched, target: &str) -> anyhow::Result<Reply> {
    ask(cache.address(), &Request::get(target)).await
}

/// Loopback address of the admin listener.
pub(crate) fn admin_of(cache: &Launched) -> anyhow::Result<SocketAddr> {
    let admin = cache.admin().context("the ready line names no admin listener")?;
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, admin.port())))
}

/// Request with the `Host` that the admin listener accepts.
pub(crate) fn to_admin(cache: &Launched, method: &str, path: &str) -> anyhow::Result<Request> {
    Ok(Request::new(method, path).field("Host", admin_of(cache)?.to_string()))
}

/// Sends one GET to the admin listener.
pub(crate) async fn get_admin(cache: &Launched, path: &str) -> anyhow::Result<Reply> {
    ask(admin_of(cache)?, &to_admin(cache, "GET", path)?).await
}

/// Sum of the samples of a metric whose labels contain `label`.
pub(crate) async fn metric(cache: &Launched, name: &str, label: &str) -> anyhow::Result<u64> {
    let reply = get_admin(cache, "/metrics").await?;
    let text = reply.text();
    let samples = text.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && line.contains(label)
    });
    let values = samples.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<u64>());
    Ok(values.collect::<Result<Vec<_>, _>>()?.into_iter().sum())
}

/// Waits until the number of recorded responses whose labels contain `label` is `expected`. A client
/// may have its response a moment before it is recorded.
pub(crate) async fn wait_requests(
    cache: &Launched,
    label: &str,
    expected: u64,
) -> anyhow::Result<()> {
    let mut came = 0;
    for _ in 0..ASKED_MAX {
        came = metric(cache, "forebay_requests_total", label).await?;
        if came >= expected {
            break;
        }
    }
    anyhow::ensure!(came == expected, "{label}: expected {expected} responses, came {came}");
    Ok(())
}

/// Address without a listener. The system does not choose its port for connections of other tests:
/// their ports begin at 32,768.
pub(crate) fn nowhere() -> anyhow::Result<SocketAddr> {
    let free = (0..PORTS_TRIED_MAX).find_map(|_| {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, fastrand::u16(10_000..32_768)));
        std::net::TcpListener::bind(address).ok().map(|_| address)
    });
    free.context("no free port")
}

/// Returns whether `Cache-Status` reports a hit.
pub(crate) fn is_hit(reply: &Reply) -> bool {
    reply.field("cache-status").is_some_and(|status| status.starts_with("forebay; hit"))
}

/// Waits until all loads have ended, so that everything fetched has been stored.
pub(crate) async fn written(cache: &Launched) -> anyhow::Result<()> {
    for _ in 0..ASKED_MAX {
        if metric(cache, "forebay_flights", "").await? == 0 {
            return Ok(());
        }
    }
    anyhow::bail!("a flight does not end")
}

/// Stops the process with a signal.
pub(crate) async fn end(mut cache: Launched, signal: Signal) -> anyhow::Result<()> {
    cache.signal(signal).await?;
    cache.wait_exit(END_MAX).await?;
    Ok(())
}
