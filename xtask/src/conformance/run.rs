//! A run: the suite's origin, the cache in front of it, the suite's client in front of the cache.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::Options;
use super::report::{self, Outcomes};
use crate::background::Background;
use crate::{process, workspace};

/// Time limit for a server to accept connections.
const READY_MAX: Duration = Duration::from_secs(20);
/// Time limit for all cases, which take about 15 s.
const CLIENT_MAX: Duration = Duration::from_secs(120);
/// Time limit for npm to install five small packages.
const INSTALL_MAX: Duration = Duration::from_secs(180);
/// Time limit for the copy of a checkout of a few megabytes.
const COPY_MAX: Duration = Duration::from_secs(60);

const FOLDER: &str = "xtask/conformance";
const DRIVER: &str = "xtask/conformance/drive.mjs";
const PACKAGE: &str = "http-cache-tests";
/// The lock file holds a hash of every package. It names only what the suite's origin and client
/// use; its web pages need more.
const MANIFEST: &str = "package.json";
const LOCK: &str = "package-lock.json";

/// The installed suite.
#[derive(Debug)]
pub(super) struct Suite {
    /// Name with version.
    pub(super) name: String,
    /// Folder of the installed package.
    installed: PathBuf,
    /// Folder whose `tests` are run.
    cases: PathBuf,
}

impl Suite {
    /// Installs the pinned package if it is missing; the cases are its own or those of `other`.
    pub(super) fn install(other: Option<&Path>) -> Result<Self> {
        let folder = workspace::target_dir()?.join("conformance");
        let from = workspace::root().join(FOLDER);
        let lock = std::fs::read_to_string(from.join(LOCK)).context("cannot read the lock file")?;
        // Written after npm has succeeded, so that a broken installation is repeated.
        let done = folder.join("installed");
        if std::fs::read_to_string(&done).ok().as_ref() != Some(&lock) {
            std::fs::create_dir_all(&folder)?;
            for file in [MANIFEST, LOCK] {
                std::fs::copy(from.join(file), folder.join(file))
                    .context("cannot copy a lock file")?;
            }
            let mut npm = Command::new("npm");
            npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
            let npm = process::capture(npm.current_dir(&folder), INSTALL_MAX)?;
            let is_installed = npm.status.is_some_and(|status| status.success());
            ensure!(is_installed, "npm failed to install {PACKAGE}:\n{}", npm.text);
            std::fs::write(&done, lock)?;
        }
        let installed = folder.join("node_modules").join(PACKAGE);
        if let Some(other) = other {
            // Beside node_modules: the head imports a package that a checkout does not hold.
            let cases = folder.join("checkout");
            copy(other, &cases)?;
            return Ok(Self { name: other.display().to_string(), installed, cases });
        }
        let manifest =
            std::fs::read(installed.join(MANIFEST)).context("cannot read the suite's manifest")?;
        let manifest: Value = serde_json::from_slice(&manifest)?;
        let version = manifest["version"]
            .as_str()
            .context("the manifest of the conformance suite has no version")?;
        let cases = installed.clone();
        Ok(Self { name: format!("{PACKAGE} {version}"), installed, cases })
    }

    /// Program of the suite's origin: that of the cases, if they have one.
    fn origin(&self) -> PathBuf {
        let folders = [self.cases.join("test-engine"), self.cases.clone(), self.installed.clone()];
        let mut programs = folders.map(|folder| folder.join("server/server.mjs")).into_iter();
        programs.find(|program| program.is_file()).unwrap_or_default()
    }
}

/// Runs all cases, or only the one of the options.
pub(super) fn drive(options: &Options, suite: &Suite, binary: &Path) -> Result<Outcomes> {
    let temporary = tempfile::tempdir()?;
    let folder = temporary.path();
    let (origin, origin_url) = start_origin(suite, folder)?;
    let redis = options.redis.then(|| start_redis(folder)).transpose()?;
    let redis_url = redis.as_ref().map(|(_, url)| url.as_str());
    let config = configuration(options, &origin_url, redis_url);
    let (mut cache, cache_url) = start_cache(binary, config, folder)?;
    if let Some(url) = redis_url {
        let answers = format!("{url} answers");
        cache.wait_for(READY_MAX, |line| line.contains(&answers).then_some(()))?;
    }
    let report = folder.join("report.json");
    let mut client = Command::new("node");
    client.args(["--no-warnings", DRIVER]).current_dir(workspace::root());
    client.args([&suite.installed, &suite.cases, &report]).arg(cache_url).args(&options.only);
    let client = process::capture(&mut client, CLIENT_MAX)?;
    let is_done = client.status.is_some_and(|status| status.success());
    ensure!(is_done, "the suite's client failed:\n{}", client.text);
    let text = cache.text()?;
    ensure!(cache.ended()?.is_none(), "forebay ended during the run:\n{text}");
    ensure!(!text.contains("panicked"), "forebay panicked during the run:\n{text}");
    if options.only.is_some() {
        println!("== the client ==\n{}\n== the origin ==\n{}", client.text, origin.text()?);
    }
    report::read(&std::fs::read_to_string(&report).context("cannot read the suite's report")?)
}

/// Replaces the folder `to` by a copy of `from`.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        std::fs::remove_dir_all(to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(from).arg(to);
    let copied = process::capture(&mut copy, COPY_MAX)?;
    let is_copied = copied.status.is_some_and(|status| status.success());
    ensure!(is_copied, "copy {}: {}", from.display(), copied.text);
    Ok(())
}

fn start_origin(suite: &Suite, folder: &Path) -> Result<(Background, String)> {
    let mut command = Command::new("node");
    command.arg("--no-warnings").arg(suite.origin()).current_dir(folder);
    command.envs([("npm_config_protocol", "http"), ("npm_config_port", "0")]);
    command.env("npm_config_pidfile", folder.join("origin.pid"));
    let mut origin = Background::start("the origin", &mut command, &folder.join("origin.log"))?;
    // `Listening on http://[::]:8000/`
    let port = origin.wait_for(READY_MAX, |line| {
        let address = line.strip_prefix("Listening on ")?.trim_end_matches('/');
        address.rsplit_once(':')?.1.parse::<u16>().ok()
    })?;
    Ok((origin, format!("http://127.0.0.1:{port}")))
}

/// A Redis without persistence on a Unix socket, which needs no free port.
fn start_redis(folder: &Path) -> Result<(Background, String)> {
    let socket = folder.join("redis.sock");
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
    command.arg(&socket).current_dir(folder);
    let mut redis = Background::start("redis-server", &mut command, &folder.join("redis.log"))?;
    redis.wait_for(READY_MAX, |line| {
        line.to_lowercase().contains("ready to accept connections").then_some(())
    })?;
    Ok((redis, format!("unix://{}", socket.display())))
}

fn start_cache(binary: &Path, config: String, folder: &Path) -> Result<(Background, String)> {
    let file = folder.join("forebay.toml");
    std::fs::write(&file, config).context("cannot write the configuration")?;
    let mut command = Command::new(binary);
    command.arg("serve").arg("--config").arg(file).current_dir(folder);
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.to_string_lossy().starts_with("FOREBAY_")) {
        command.env_remove(name);
    }
    let mut cache = Background::start("forebay", &mut command, &folder.join("forebay.log"))?;
    // `forebay ready: http://127.0.0.1:8080 (admin http://127.0.0.1:8081)`
    let url = cache.wait_for(READY_MAX, |line| {
        let (_, addresses) = line.split_once("forebay ready: ")?;
        addresses.split([' ', ',']).next().map(str::to_owned)
    })?;
    Ok((cache, url))
}

/// The configuration that `--origin` alone makes, with the options. With Redis, memory takes no
/// entry, and the timeouts allow for a busy machine.
fn configuration(options: &Options, origin: &str, redis: Option<&str>) -> String {
    let tiers = redis.map_or_else(String::new, |url| {
        format!(
            "[memory]\nobject_max = \"1B\"\n\
             [redis]\nurl = \"{url}\"\nread_timeout = \"2s\"\nwrite_timeout = \"2s\"\n"
        )
    });
    let cookies = if options.store_set_cookie { "store_set_cookie = true\n" } else { "" };
    let rules = if options.rules { rules() } else { String::new() };
    format!("{tiers}[[site]]\nid = \"default\"\norigin = \"{origin}\"\n{cookies}{rules}")
}

/// Rules that match no request of the suite, with every kind of condition and class of setting, and
/// one that adds a field to every response.
fn rules() -> String {
    let rule = |n: usize| {
        let lines = match n % 4 {
            0 => format!("when.path = \"/none-{n}/**\"\nttl = \"1h\"\nkeep_cookies = []\n"),
            1 => format!("when.path_regex = \"^/none-{n}/[0-9]+$\"\nstore = false\n"),
            2 => format!(
                "when.header = {{ x-none-{n} = \"1*\" }}\nclient_response.set = {{ x-a = \"1\" }}\n"
            ),
            _ => format!("when = {{ path = \"/none-{n}\", cookie = [\"none\"] }}\nbypass = true\n"),
        };
        format!("[[site.rule]]\nname = \"none-{n}\"\n{lines}")
    };
    let all = "[[site.rule]]\nname = \"all\"\nclient_response.set = { x-rule = \"1\" }\n";
    (0..100).map(rule).chain([all.to_owned()]).collect()
}
