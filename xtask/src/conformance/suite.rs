//! The suite: its package, installed by npm as the committed lock file says, byte for byte.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{process, workspace};

/// The files that say what is installed; the lock file holds the hash of every package.
///
/// Of what the suite's package asks for, the lock file names only what its origin and its client
/// use: the rest is for its web pages.
const MANIFEST: &str = "package.json";
const LOCK: &str = "package-lock.json";
const PACKAGE: &str = "http-cache-tests";
/// How long npm may take: five small packages over a slow line.
const INSTALL_MAX: Duration = Duration::from_secs(180);

/// Where the parts of the suite lie.
#[derive(Debug)]
pub(super) struct Suite {
    /// What it calls itself, with its version.
    pub(super) name: String,
    /// The folder of the installed package.
    pub(super) installed: PathBuf,
    /// The folder whose `tests` are run.
    pub(super) cases: PathBuf,
}

impl Suite {
    /// Installs the package if it is not there yet; the cases are its own, or those of `other`:
    /// a checkout of the suite, or any folder with `tests/index.mjs`.
    pub(super) fn install(other: Option<&Path>) -> Result<Self> {
        let folder = workspace::target_dir(&workspace::metadata()?)?.join("conformance");
        let from = workspace::root().join("xtask").join("conformance");
        install(&from, &folder)?;
        let installed = folder.join("node_modules").join(PACKAGE);
        let Some(other) = other else {
            return Ok(Self { name: name(&installed)?, cases: installed.clone(), installed });
        };
        let cases = other.canonicalize().with_context(|| format!("find {}", other.display()))?;
        let index = cases.join("tests").join("index.mjs");
        ensure!(index.is_file(), "{} has no tests/index.mjs", other.display());
        Ok(Self { name: other.display().to_string(), installed, cases })
    }

    /// The program of the suite's origin: that of the folder of the cases, if it has one.
    pub(super) fn origin(&self) -> PathBuf {
        let own = [self.cases.join("test-engine"), self.cases.clone()];
        let program = |folder: &Path| folder.join("server").join("server.mjs");
        let found = own.iter().map(|folder| program(folder)).find(|file| file.is_file());
        found.unwrap_or_else(|| program(&self.installed))
    }
}

fn install(from: &Path, folder: &Path) -> Result<()> {
    let lock = std::fs::read_to_string(from.join(LOCK)).context("read the suite's lock file")?;
    // Written when npm is through, so that an installation broken off is done again.
    let done = folder.join("installed");
    if std::fs::read_to_string(&done).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    for file in [MANIFEST, LOCK] {
        std::fs::copy(from.join(file), folder.join(file))
            .with_context(|| format!("copy {file}"))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    println!("installing {PACKAGE}");
    let npm = process::capture(npm.current_dir(folder), INSTALL_MAX)?;
    let is_installed = npm.status.is_some_and(|status| status.success());
    ensure!(is_installed, "npm could not install the suite:\n{}", npm.text);
    std::fs::write(&done, lock).with_context(|| format!("write {}", done.display()))
}

fn name(package: &Path) -> Result<String> {
    let text = std::fs::read_to_string(package.join(MANIFEST)).context("read the suite's own")?;
    let manifest: Value = serde_json::from_str(&text).context("understand the suite's own")?;
    let version = manifest["version"].as_str().context("the suite has no version")?;
    Ok(format!("{PACKAGE} {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn every_package_has_a_hash_and_no_host() {
        let folder = workspace::root().join("xtask").join("conformance");
        let text = std::fs::read_to_string(folder.join(LOCK)).unwrap();
        let lock: Value = serde_json::from_str(&text).unwrap();
        let packages = lock["packages"].as_object().unwrap();
        for (path, package) in packages.iter().filter(|(path, _)| !path.is_empty()) {
            assert!(package["integrity"].as_str().unwrap().starts_with("sha512-"), "{path}");
        }
        assert!(packages.len() > 1);
        assert!(!text.contains("://"));
    }

    #[test]
    fn what_is_installed_is_not_installed_again() {
        let scratch = Scratch::new("suite").unwrap();
        let (from, folder) = (scratch.path().join("from"), scratch.path().join("to"));
        std::fs::create_dir_all(&from).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(from.join(LOCK), "a lock").unwrap();
        std::fs::write(folder.join("installed"), "a lock").unwrap();
        install(&from, &folder).unwrap();
        assert!(!folder.join(LOCK).exists());
        // Another lock file means another installation, for which the manifest is missing here.
        std::fs::write(from.join(LOCK), "another lock").unwrap();
        assert!(install(&from, &folder).is_err());
    }

    #[test]
    fn a_folder_without_an_origin_borrows_the_packages() {
        let scratch = Scratch::new("suite").unwrap();
        let (installed, cases) = (scratch.path().join("package"), scratch.path().join("head"));
        let suite = Suite { name: "head".to_owned(), installed: installed.clone(), cases };
        assert_eq!(suite.origin(), installed.join("server").join("server.mjs"));
        let own = suite.cases.join("test-engine").join("server");
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join("server.mjs"), "").unwrap();
        assert_eq!(suite.origin(), own.join("server.mjs"));
    }
}
