//! The servers that are measured, and the origin behind those that are caches.

use std::ffi::OsStr;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::cpu::Cores;
use super::nginx::{self, OpenFiles};
use super::{Plan, Size};
use crate::background::Background;
use crate::{needs, process, workspace};

/// How long a server may take until it accepts connections.
const READY_MAX: Duration = Duration::from_secs(20);

/// A server that answers from memory or from its cache.
pub(super) struct Rival {
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    /// The field of a response, and what it holds when the response is a hit.
    pub(super) hit_mark: Option<(&'static str, &'static str)>,
    targets: Targets,
    running: Background,
}

impl Rival {
    pub(super) fn pid(&self) -> u32 {
        self.running.pid()
    }

    pub(super) fn target(&self, size: Size) -> String {
        match self.targets {
            Targets::Bare if size.bytes == 1024 => "/1k".to_owned(),
            Targets::Bare => "/1m".to_owned(),
            Targets::Items => format!("/items/a?size={}&cc=max-age%3D3600", size.bytes),
        }
    }

    pub(super) fn url(&self, size: Size) -> String {
        format!("http://{}{}", self.address, self.target(size))
    }
}

/// How the origin behind a server calls what it has.
#[derive(Clone, Copy)]
enum Targets {
    Bare,
    Items,
}

/// The programs that are ours.
pub(super) struct Programs {
    bare_hyper: PathBuf,
    forebay: PathBuf,
}

/// Where servers are started: with what, on which core, in which folder.
pub(super) struct Ground<'a> {
    pub(super) programs: Programs,
    pub(super) cores: Cores,
    pub(super) folder: &'a Path,
}

/// All that runs; the origin must outlive the caches.
pub(super) struct Started {
    pub(super) rivals: Vec<Rival>,
    _origin: Background,
}

/// Builds our own programs as they are shipped.
pub(super) fn build(plan: &Plan) -> Result<Programs> {
    build_one(&["-p", "forebay-http", "--example", "bare_hyper"])?;
    if plan.with_forebay {
        build_one(&["-p", "forebay-cli"])?;
    }
    let folder = workspace::target_dir(&workspace::metadata()?)?.join("dist");
    Ok(Programs {
        bare_hyper: folder.join("examples").join("bare_hyper"),
        forebay: folder.join("forebay"),
    })
}

fn build_one(what: &[&str]) -> Result<()> {
    println!("building {} (the first time takes minutes)", what[what.len() - 1]);
    let mut command = workspace::cargo();
    command.args(["build", "--profile", "dist", "--locked", "--quiet"]).args(what);
    let mut printed = String::new();
    let status = process::lines(&mut command, |line| {
        printed.push_str(line);
        printed.push('\n');
    })?;
    ensure!(status.success(), "the build failed:\n{printed}");
    Ok(())
}

/// Starts everything, each server pinned to the servers' core.
pub(super) fn start(plan: &Plan, ground: &Ground<'_>) -> Result<Started> {
    let (origin, origin_address, targets) = start_origin(plan, ground)?;
    let mut rivals = vec![start_bare_hyper(ground)?];
    if plan.with_forebay {
        rivals.push(start_forebay(ground, origin_address)?);
    }
    for (name, open_files) in
        [("nginx", OpenFiles::Reopened), ("nginx, files kept open", OpenFiles::Kept)]
    {
        let (running, address) = start_nginx(ground, origin_address, open_files)?;
        let hit_mark = Some(("x-cache", "HIT"));
        rivals.push(Rival { name, address, hit_mark, targets, running });
    }
    Ok(Started { rivals, _origin: origin })
}

/// The sample origin, on the load's core; without forebay, bare hyper has to do.
fn start_origin(plan: &Plan, ground: &Ground<'_>) -> Result<(Background, SocketAddr, Targets)> {
    let core = ground.cores.load;
    let log = ground.folder.join("origin.log");
    let (mut command, targets) = if plan.with_forebay {
        let mut command = pinned(core, &ground.programs.forebay)?;
        command.args(["origin", "--listen", "127.0.0.1:0"]);
        (command, Targets::Items)
    } else {
        (pinned(core, &ground.programs.bare_hyper)?, Targets::Bare)
    };
    let (running, address) = ready(Background::start("the origin", &mut command, &log)?)?;
    Ok((running, address, targets))
}

fn start_bare_hyper(ground: &Ground<'_>) -> Result<Rival> {
    let mut command = pinned(ground.cores.server, &ground.programs.bare_hyper)?;
    let log = ground.folder.join("bare-hyper.log");
    let (running, address) = ready(Background::start("bare hyper", &mut command, &log)?)?;
    Ok(Rival { name: "bare hyper", address, hit_mark: None, targets: Targets::Bare, running })
}

fn start_forebay(ground: &Ground<'_>, origin: SocketAddr) -> Result<Rival> {
    let file = ground.folder.join("forebay.toml");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nthreads = 1\n\n\
         [[site]]\nid = \"bench\"\norigin = \"http://{origin}\"\n"
    );
    std::fs::write(&file, text).context("write forebay.toml")?;
    let mut command = pinned(ground.cores.server, &ground.programs.forebay)?;
    command.arg("serve").arg("--config").arg(&file);
    let log = ground.folder.join("forebay.log");
    let (running, address) = ready(Background::start("forebay", &mut command, &log)?)?;
    let hit_mark = Some(("cache-status", "hit"));
    Ok(Rival { name: "forebay", address, hit_mark, targets: Targets::Items, running })
}

fn start_nginx(
    ground: &Ground<'_>,
    origin: SocketAddr,
    open_files: OpenFiles,
) -> Result<(Background, SocketAddr)> {
    let folder = ground.folder.join(format!("nginx-{open_files:?}").to_lowercase());
    std::fs::create_dir(&folder).context("create a folder for nginx")?;
    let address = free_address()?;
    let file = folder.join("nginx.conf");
    let text = nginx::configuration(&folder, address, origin, open_files);
    std::fs::write(&file, text).context("write nginx.conf")?;
    let mut command = pinned(ground.cores.server, &needs::find("nginx")?)?;
    command.arg("-p").arg(&folder).arg("-c").arg(&file).arg("-e").arg(folder.join("errors"));
    let running = Background::start("nginx", &mut command, &folder.join("printed"))?;
    let connected = process::poll(READY_MAX, || Ok(TcpStream::connect(address).ok()))?;
    ensure!(connected.is_some(), "nginx does not accept connections:\n{}", running.text()?);
    Ok((running, address))
}

/// A command that keeps to one core; `taskset` becomes the program, so the pid is the program's.
fn pinned(core: usize, program: impl AsRef<OsStr>) -> Result<Command> {
    let mut command = Command::new(needs::find("taskset")?);
    command.args(["-c", &core.to_string()]).arg(program);
    Ok(command)
}

/// Waits for the line that says where a server listens: `... ready: http://ADDRESS ...`.
fn ready(mut running: Background) -> Result<(Background, SocketAddr)> {
    let address = running.wait_for(READY_MAX, address_in)?;
    Ok((running, address))
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("ready: http://")?;
    rest.split([' ', '/']).next()?.parse().ok()
}

/// A free port, for a server that cannot tell which one it was given.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("find a free port")?;
    listener.local_addr().context("find a free port")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readiness_line_tells_the_address() {
        let expected: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        for line in [
            "forebay ready: http://127.0.0.1:8080 (admin http://127.0.0.1:8081)",
            "forebay ready: http://127.0.0.1:8080",
            "bare hyper ready: http://127.0.0.1:8080/",
        ] {
            assert_eq!(address_in(line), Some(expected), "{line}");
        }
        assert_eq!(address_in("warming up http://127.0.0.1:8080"), None);
        assert_eq!(address_in("forebay ready: http://nowhere"), None);
    }
}
