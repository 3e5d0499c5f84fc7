//! One run: the suite's origin, the cache in front of it, the suite's client in front of that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::suite::Suite;
use super::verdict::{self, Outcome};
use crate::background::Background;
use crate::scratch::Scratch;
use crate::{process, workspace};

/// How long the origin and the cache may take until they accept connections.
const READY_MAX: Duration = Duration::from_secs(20);
/// How long the client may take for all cases; a quarter of a minute is usual.
const CLIENT_MAX: Duration = Duration::from_secs(120);
const DRIVER: &str = "xtask/conformance/drive.mjs";
/// What begins the name of every variable that changes how forebay is configured.
const OURS: &str = "FOREBAY_";

/// What a run needs.
pub(super) struct Ground<'a> {
    pub(super) suite: &'a Suite,
    pub(super) forebay: PathBuf,
    /// Whether the cache is told to store answers that set cookies.
    pub(super) store_set_cookie: bool,
    /// Whether everything is kept in Redis, and next to nothing in memory.
    pub(super) redis: bool,
}

/// Builds the binary as the tests do and tells where it is.
pub(super) fn build() -> Result<PathBuf> {
    let mut command = workspace::cargo();
    command.args(["build", "--locked", "--quiet", "-p", "forebay-cli"]);
    let mut printed = String::new();
    let status = process::lines(&mut command, |line| {
        printed.push_str(line);
        printed.push('\n');
    })?;
    ensure!(status.success(), "the build failed:\n{printed}");
    let metadata = workspace::metadata()?;
    let folder = workspace::target_dir(&metadata)?.join("debug");
    Ok(folder.join(workspace::default_binary(&metadata)?))
}

/// All cases that apply.
pub(super) fn all(ground: &Ground<'_>) -> Result<BTreeMap<String, Outcome>> {
    Ok(drive(ground, None)?.outcomes)
}

/// One case; prints what the client and the origin sent and received.
pub(super) fn only(ground: &Ground<'_>, id: &str) -> Result<BTreeMap<String, Outcome>> {
    let driven = drive(ground, Some(id))?;
    println!("== the client ==\n{}\n== the origin ==\n{}", driven.client, driven.origin);
    Ok(driven.outcomes)
}

/// What came out, and what was printed meanwhile.
struct Driven {
    outcomes: BTreeMap<String, Outcome>,
    client: String,
    origin: String,
}

fn drive(ground: &Ground<'_>, only: Option<&str>) -> Result<Driven> {
    let scratch = Scratch::new("conformance")?;
    let (origin, origin_url) = start_origin(ground.suite, scratch.path())?;
    let redis = if ground.redis { Some(start_redis(scratch.path())?) } else { None };
    let redis_url = redis.as_ref().map(|(_, url)| &**url);
    let config = configuration(ground, &origin_url, redis_url);
    let (mut cache, cache_url) = start_cache((ground, config), &origin_url, scratch.path())?;
    let report = scratch.path().join("report.json");
    let mut client = Command::new("node");
    client.args(["--no-warnings", DRIVER]).current_dir(workspace::root());
    client.args([&ground.suite.installed, &ground.suite.cases, &report]);
    client.arg(&cache_url).args(only);
    let client = process::capture(&mut client, CLIENT_MAX)?;
    let is_through = client.status.is_some_and(|status| status.success());
    ensure!(is_through, "the suite's client did not come to its end:\n{}", client.text);
    unharmed(&mut cache)?;
    if let Some((_, url)) = &redis {
        let used = cache.text()?.contains(&format!("{url} answers"));
        ensure!(used, "forebay has not found its Redis:\n{}", cache.text()?);
    }
    let text = std::fs::read_to_string(&report).context("read what the client wrote")?;
    Ok(Driven { outcomes: verdict::read(&text)?, client: client.text, origin: origin.text()? })
}

/// What the suite sends must not end the cache, nor make it panic where it did not show.
fn unharmed(cache: &mut Background) -> Result<()> {
    let ended = cache.ended()?;
    let text = cache.text()?;
    ensure!(ended.is_none(), "forebay ended during the run:\n{text}");
    ensure!(!text.contains("panicked"), "forebay panicked during the run:\n{text}");
    Ok(())
}

fn start_origin(suite: &Suite, folder: &Path) -> Result<(Background, String)> {
    let mut command = Command::new("node");
    command
        .arg("--no-warnings")
        .arg(suite.origin())
        .current_dir(folder)
        .env("npm_config_protocol", "http")
        .env("npm_config_port", "0")
        .env("npm_config_pidfile", folder.join("origin.pid"));
    let mut running =
        Background::start("the suite's origin", &mut command, &folder.join("origin.log"))?;
    let port = running.wait_for(READY_MAX, origin_port)?;
    Ok((running, format!("http://127.0.0.1:{port}")))
}

/// Reads `Listening on http://[::]:8000/`.
fn origin_port(line: &str) -> Option<u16> {
    let address = line.strip_prefix("Listening on ")?.trim_end_matches('/');
    address.rsplit_once(':')?.1.parse().ok()
}

/// A Redis that keeps nothing on disk, by its socket: so no port has to be found for it.
fn start_redis(folder: &Path) -> Result<(Background, String)> {
    let socket = folder.join("redis.sock");
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
    command.arg(&socket).current_dir(folder);
    let mut running = Background::start("redis-server", &mut command, &folder.join("redis.log"))?;
    let ready = |line: &str| line.contains("ready to accept connections").then_some(());
    running.wait_for(READY_MAX, |line| ready(&line.to_lowercase()))?;
    Ok((running, format!("unix://{}", socket.display())))
}

/// The cache as it is without a single option of behaviour, unless there is a configuration.
fn start_cache(
    (ground, config): (&Ground<'_>, Option<String>),
    origin: &str,
    folder: &Path,
) -> Result<(Background, String)> {
    let mut command = Command::new(&ground.forebay);
    command.arg("serve");
    if let Some(config) = config {
        let file = folder.join("forebay.toml");
        std::fs::write(&file, config).context("write a configuration")?;
        command.arg("--config").arg(file);
    } else {
        command.args(["--origin", origin]);
    }
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).current_dir(folder);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with(OURS) {
            command.env_remove(name);
        }
    }
    let mut running = Background::start("forebay", &mut command, &folder.join("forebay.log"))?;
    let url = running.wait_for(READY_MAX, cache_url)?;
    if ground.redis {
        running.wait_for(READY_MAX, |line| line.contains(" answers").then_some(()))?;
    }
    Ok((running, url))
}

/// All that `--origin` says, and what is asked for beside it. With a Redis: memory that takes no
/// entry, and patience with a machine that does other things.
fn configuration(ground: &Ground<'_>, origin: &str, redis: Option<&str>) -> Option<String> {
    let tiers = redis.map(|url| {
        format!(
            "[memory]\nobject_max = \"1B\"\n[redis]\nurl = \"{url}\"\n\
             read_timeout = \"2s\"\nwrite_timeout = \"2s\"\n"
        )
    });
    let option = ground.store_set_cookie.then_some("store_set_cookie = true\n");
    (tiers.is_some() || option.is_some()).then(|| {
        let site = format!("[[site]]\nid = \"default\"\norigin = \"{origin}\"\n");
        [tiers.unwrap_or_default(), site, option.unwrap_or_default().to_owned()].concat()
    })
}

/// Reads `forebay ready: http://127.0.0.1:8080 (admin http://127.0.0.1:8081)`.
fn cache_url(line: &str) -> Option<String> {
    let (_, addresses) = line.split_once("forebay ready: ")?;
    Some(addresses.split([' ', ',']).next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_where_they_are_printed() {
        assert_eq!(origin_port("Listening on http://[::]:38911/"), Some(38911));
        assert_eq!(origin_port("Listening on http://0.0.0.0:80/"), Some(80));
        assert_eq!(origin_port("SERVER WARNING: / Not Found"), None);
        let line = "forebay ready: http://127.0.0.1:8080 (admin http://127.0.0.1:8081)";
        assert_eq!(cache_url(line).as_deref(), Some("http://127.0.0.1:8080"));
        assert_eq!(cache_url("forebay: nothing to serve"), None);
    }

    #[test]
    fn a_cache_that_panicked_or_ended_is_told() {
        let scratch = Scratch::new("conformance").unwrap();
        let start = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let log = scratch.path().join("log");
            let mut running = Background::start("a script", &mut command, &log).unwrap();
            running.wait_for(READY_MAX, |line| line.ends_with("ready").then_some(())).unwrap();
            running
        };
        let waits = "exec sleep 1000";
        assert!(unharmed(&mut start(&format!("echo ready; {waits}"))).is_ok());
        let panicked = unharmed(&mut start(&format!("echo panicked; echo ready; {waits}")));
        assert!(panicked.unwrap_err().to_string().contains("panicked"));
        let mut ended = start("echo ready");
        while ended.ended().unwrap().is_none() {
            std::thread::yield_now();
        }
        assert!(unharmed(&mut ended).unwrap_err().to_string().contains("ended"));
    }
}
