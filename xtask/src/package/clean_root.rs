//! A clean Debian root, in which packages are installed as on a new machine.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::succeed;

/// Root folder of a Debian system without anything that is not essential. It is removed when dropped.
pub(super) struct CleanRoot(TempDir);

impl CleanRoot {
    /// Unpacks a root of the release of this machine below `results`, where the first call keeps an
    /// archive of it.
    pub(super) fn unpack(results: &Path) -> Result<Self> {
        let archive = results.join("debian.tar");
        let root = tempfile::Builder::new().prefix("debian-").tempdir_in(results)?;
        if !archive.is_file() {
            bootstrap(root.path())?;
            let partial = results.join("debian.tar.partial");
            succeed(
                Command::new("tar")
                    .arg("-cf")
                    .arg(&partial)
                    .arg("-C")
                    .args([root.path(), Path::new(".")]),
            )?;
            fs::rename(&partial, &archive)?;
            return Ok(Self(root));
        }
        succeed(Command::new("tar").arg("-xpf").arg(&archive).arg("-C").arg(root.path()))?;
        Ok(Self(root))
    }

    /// Path on this machine of an absolute path inside.
    pub(super) fn path(&self, inside: &str) -> std::path::PathBuf {
        self.0.path().join(inside.trim_start_matches('/'))
    }

    /// Command that runs inside.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("chroot");
        command.arg(self.0.path()).arg(program);
        // Without these, maintainer scripts ask questions, or use the locale of this machine.
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
        command
    }
}

fn bootstrap(root: &Path) -> Result<()> {
    let release = fs::read_to_string("/etc/os-release")?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.context("/etc/os-release has no VERSION_CODENAME: this is no Debian")?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", suite]).arg(root);
    succeed(&mut debootstrap).context("debootstrap needs root and the network")?;
    Ok(())
}
