//! A folder of its own for one run, removed when it goes out of scope.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};

/// A fresh folder below the system's folder for such things.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates it; fails when a folder of that name is there already, rather than share it.
    pub(crate) fn new(purpose: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-{purpose}-{}-{turn}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left behind in a temporary folder harms nobody; a panic here would hide
        // the failure that is being reported.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_scratch_folders_differ_and_go_away() {
        let (one, two) = (Scratch::new("unit").unwrap(), Scratch::new("unit").unwrap());
        assert_ne!(one.path(), two.path());
        std::fs::write(one.path().join("file"), "text").unwrap();
        let gone = one.path().to_owned();
        drop(one);
        assert!(!gone.exists());
        assert!(two.path().is_dir());
    }
}
