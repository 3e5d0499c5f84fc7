//! Packages for Debian and for distributions with RPM, built, checked and installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::clean_root::CleanRoot;
use super::served::{DEMO, demo_answers_a_hit};
use super::{Site, succeed};
use crate::workspace;

/// Crate with the metadata of both packages.
const CRATE: &str = "crates/forebay-cli";

/// Configuration that both packages install.
const CONFIGURATION: &str = "/etc/forebay/forebay.toml";

/// Files that both packages install, beside the configuration.
const FILES: [&str; 6] = [
    "/usr/bin/forebay",
    "/usr/lib/systemd/system/forebay.service",
    "/usr/lib/systemd/system/forebay.socket",
    "/usr/share/bash-completion/completions/forebay",
    "/usr/share/fish/vendor_completions.d/forebay.fish",
    "/usr/share/man/man1/forebay-serve.1",
];

/// Line that an operator adds to the configuration.
const OWN_LINE: &str = "# a line of the operator\n";

impl Site {
    /// Builds the Debian package, and installs, upgrades and removes it in a clean root.
    pub(super) fn make_deb(&self) -> Result<String> {
        self.make_pages()?;
        fs::write(self.results.join("changelog"), changelog()?)?;
        let package = self.results.join("forebay.deb");
        let mut deb = workspace::cargo();
        deb.args(["deb", "--package", "forebay-cli", "--no-build", "--no-strip", "--locked"]);
        deb.args(["--target", &self.target, "--output"]).arg(&package);
        succeed(&mut deb)?;
        let mut lintian = Command::new("lintian");
        lintian.args(["--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"]);
        succeed(lintian.arg(&package))?;
        let root = CleanRoot::unpack(&self.results)?;
        fs::copy(&package, root.path("/forebay.deb"))?;
        let install = || succeed(root.command("dpkg").args(["--install", "/forebay.deb"]));
        install()?;
        ensure_files(&root, FILES.iter().map(|file| file.replace(".1", ".1.gz")))?;
        let hit = runs_in(&root, &self.results)?;
        // A second installation keeps what the operator wrote.
        append(&root.path(CONFIGURATION))?;
        install()?;
        let kept = fs::read_to_string(root.path(CONFIGURATION))?;
        ensure!(kept.ends_with(OWN_LINE), "an upgrade replaced {CONFIGURATION}");
        succeed(root.command("dpkg").args(["--purge", "forebay"]))?;
        ensure!(!root.path("/usr/bin/forebay").exists(), "a removal left the binary");
        ensure!(!root.path(CONFIGURATION).exists(), "a purge left {CONFIGURATION}");
        Ok(format!("{} bytes, {hit}", fs::metadata(package)?.len()))
    }

    /// Builds the RPM package, and installs, upgrades and removes it in a clean root.
    pub(super) fn make_rpm(&self) -> Result<String> {
        self.make_pages()?;
        let package = self.results.join("forebay.rpm");
        let mut rpm = workspace::cargo();
        rpm.args(["generate-rpm", "--package", CRATE, "--target", &self.target, "--output"]);
        succeed(rpm.arg(&package))?;
        let root = CleanRoot::unpack(&self.results)?;
        let folder = root.path("/");
        let rpm = |arguments: &[&str]| {
            let mut rpm = Command::new("rpm");
            rpm.arg("--root").arg(&folder).args(arguments);
            rpm
        };
        fs::create_dir_all(root.path("/var/lib/rpm"))?;
        succeed(&mut rpm(&["--initdb"]))?;
        succeed(rpm(&["--checksig", "--nosignature"]).arg(&package))?;
        // A Debian root has a shell, which the database of rpm does not know.
        let install = ["--upgrade", "--nodeps", "--force"];
        succeed(rpm(&install).arg(&package))?;
        ensure_files(&root, FILES.iter().map(|&file| file.to_owned()))?;
        let hit = runs_in(&root, &self.results)?;
        append(&root.path(CONFIGURATION))?;
        succeed(rpm(&install).arg(&package))?;
        let kept = fs::read_to_string(root.path(CONFIGURATION))?;
        ensure!(kept.ends_with(OWN_LINE), "an upgrade replaced {CONFIGURATION}");
        succeed(&mut rpm(&["--erase", "forebay"]))?;
        ensure!(!root.path("/usr/bin/forebay").exists(), "a removal left the binary");
        Ok(format!("{} bytes, {hit}", fs::metadata(package)?.len()))
    }
}

fn ensure_files(root: &CleanRoot, files: impl Iterator<Item = String>) -> Result<()> {
    for file in files {
        ensure!(root.path(&file).is_file(), "the package does not install {file}");
    }
    Ok(())
}

/// Runs the installed binary: its configuration is valid, and its demo answers a hit.
fn runs_in(root: &CleanRoot, results: &Path) -> Result<String> {
    succeed(root.command("/usr/bin/forebay").args(["check", "--strict", CONFIGURATION]))?;
    let mut demo = root.command("/usr/bin/forebay");
    demo_answers_a_hit(demo.args(DEMO), &results.join("demo.log"))
}

fn append(file: &PathBuf) -> Result<()> {
    let text = fs::read_to_string(file)?;
    fs::write(file, text + OWN_LINE).with_context(|| format!("write {}", file.display()))
}

/// Changelog in the format of Debian, of this version and the time of its commit.
fn changelog() -> Result<String> {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%aD"]).current_dir(workspace::root());
    let time = succeed(&mut git)?;
    let manifest = workspace::root().join(CRATE).join("Cargo.toml");
    let manifest: toml::Table = toml::from_str(&fs::read_to_string(manifest)?)?;
    let maintainer = manifest["package"]["metadata"]["deb"]["maintainer"].as_str();
    let maintainer = maintainer.context("the metadata names no maintainer")?;
    let version = env!("CARGO_PKG_VERSION");
    Ok(format!(
        "forebay ({version}-1) unstable; urgency=medium\n\n  * Version {version}: see CHANGELOG.md \
         of the project.\n\n -- {maintainer}  {time}"
    ))
}
