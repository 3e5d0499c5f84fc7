//! A cache in front of a scripted origin, and the words to ask it with.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::launch::{Launch, Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use tempfile::TempDir;

/// Ports that the system chooses.
pub(crate) const ANYWHERE: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

/// How long a process may take to end once nothing holds it.
pub(crate) const END_MAX: Duration = Duration::from_secs(8);

/// How often it is asked whether all is written: far more than any disk needs.
const ASKED_MAX: usize = 10_000;

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_forebay");

/// The command, with arguments.
pub(crate) fn forebay<const N: usize>(args: [&str; N]) -> Launch {
    Launch::binary(BINARY).args(args)
}

/// `serve` in front of `origin`, on ports that the system chooses.
pub(crate) async fn serve(origin: &Origin) -> anyhow::Result<Launched> {
    forebay(["serve", "--origin", &origin.url()]).args(ANYWHERE).start().await
}

/// An origin whose answers may be kept for a minute.
pub(crate) async fn fresh_origin() -> anyhow::Result<Origin> {
    Ok(Origin::always(Answer::ok("hello").field("Cache-Control", "max-age=60")).await?)
}

/// A configuration file in a folder that goes away with it.
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) folder: TempDir,
}

impl ConfigFile {
    /// A file with exactly this text.
    pub(crate) fn of(text: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("forebay.toml");
        std::fs::write(&path, text)?;
        Ok(Self { path, folder })
    }

    /// A file that serves `origin` on ports that the system chooses, with these lines at the top
    /// and these in its site.
    pub(crate) fn serving(origin: &str, top: &str, site: &str) -> anyhow::Result<Self> {
        Self::of(&serving(origin, top, site))
    }

    /// Puts another text in its place.
    pub(crate) fn rewrite(&self, text: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(&self.path, text)?)
    }

    /// Starts `serve` with it.
    pub(crate) async fn serve(&self) -> anyhow::Result<Launched> {
        forebay(["serve", "--config"]).args([&self.path]).start().await
    }
}

/// The text of [`ConfigFile::serving`].
pub(crate) fn serving(origin: &str, top: &str, site: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n{top}\n\
         [[site]]\nid = \"shop\"\norigin = \"{origin}\"\n{site}\n"
    )
}

/// One request on a connection of its own.
pub(crate) async fn ask(address: SocketAddr, request: &Request) -> anyhow::Result<Reply> {
    Client::connect(address).await?.ask(request).await
}

/// One GET on a connection of its own.
pub(crate) async fn get(cache: &Launched, target: &str) -> anyhow::Result<Reply> {
    ask(cache.address(), &Request::get(target)).await
}

/// Where the admin listener is, reached by the loopback.
pub(crate) fn admin_of(cache: &Launched) -> anyhow::Result<SocketAddr> {
    let admin = cache.admin().context("the ready line names no admin listener")?;
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, admin.port())))
}

/// A request that the admin listener admits, as far as names go.
pub(crate) fn to_admin(cache: &Launched, method: &str, path: &str) -> anyhow::Result<Request> {
    Ok(Request::new(method, path).field("Host", admin_of(cache)?.to_string()))
}

/// One GET to the admin listener.
pub(crate) async fn get_admin(cache: &Launched, path: &str) -> anyhow::Result<Reply> {
    ask(admin_of(cache)?, &to_admin(cache, "GET", path)?).await
}

/// The sum of the samples of a metric, all labels that are not named left aside.
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

/// An address where nobody listens.
pub(crate) fn nowhere() -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?)
}

/// Whether a reply is a hit, by its own account.
pub(crate) fn is_hit(reply: &Reply) -> bool {
    reply.field("cache-status").is_some_and(|status| status.starts_with("forebay; hit"))
}

/// Waits until what is stored behind an answer has been written: no flight is left then.
pub(crate) async fn written(cache: &Launched) -> anyhow::Result<()> {
    for _ in 0..ASKED_MAX {
        if metric(cache, "forebay_flights", "").await? == 0 {
            return Ok(());
        }
    }
    anyhow::bail!("a flight does not end")
}

/// Ends it.
pub(crate) async fn end(mut cache: Launched, signal: Signal) -> anyhow::Result<()> {
    cache.signal(signal).await?;
    cache.wait_exit(END_MAX).await?;
    Ok(())
}
