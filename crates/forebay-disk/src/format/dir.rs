//! Directory of a tier, and the names of its files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::io::FileSystem;
use crate::format::layout::RecordId;

/// A directory on a file system.
#[derive(Clone)]
pub(crate) struct Dir {
    pub(crate) io: Arc<dyn FileSystem>,
    pub(crate) path: PathBuf,
}

impl Dir {
    pub(crate) fn segment(&self, number: u32) -> PathBuf {
        self.path.join(format!("{number:08x}.segment"))
    }

    pub(crate) fn body(&self, record: RecordId) -> PathBuf {
        self.path.join(format!("{:08x}-{:08x}.body", record.segment, record.offset))
    }

    pub(crate) fn part(&self, part: u64) -> PathBuf {
        self.path.join(format!("{part:016x}.part"))
    }

    /// Deletes a file; a missing file is no error.
    pub(crate) fn unlink(&self, path: &Path) -> io::Result<()> {
        match self.io.unlink(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
