//! Errors: a directory that cannot be opened, and refused operations.

use std::io;
use std::path::PathBuf;

use forebay_engine::TierError;
use thiserror::Error;

/// Minimum size in bytes: one segment would be most of a smaller directory.
pub(crate) const SIZE_MIN: u64 = 16 << 20;

/// Reason why the directory of a disk tier could not be opened. Stored entries are unchanged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory is open already, in this or another process.
    #[error("{}: the directory of the disk tier is in use by another process, or by another tier \
             of this one; stop it, or use another directory", path.display())]
    InUse {
        /// Path of the directory.
        path: PathBuf,
    },
    /// The directory has a newer format version.
    #[error("{}: the directory of the disk tier has format {version} of a newer forebay version; \
             use that version, or another directory", path.display())]
    Newer {
        /// Path of the directory.
        path: PathBuf,
        /// Format version of the directory.
        version: u32,
    },
    /// The directory cannot be created, read or written, or a thread of the tier cannot be started.
    #[error("{}: the directory of the disk tier cannot be used: {source}", path.display())]
    Unusable {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The size limit of the tier is below 16 MiB.
    #[error("the disk tier's size of {size} bytes is too small: at least {SIZE_MIN} are required")]
    TooSmall {
        /// Requested size in bytes.
        size: u64,
    },
}

/// Reason why an operation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error("the write queue of the disk tier is full (32 MiB), so the operation is refused")]
    QueueFull,
    #[error("the read queue of the disk tier is full (1,024 reads), so the lookup is refused")]
    TooManyReads,
    #[error("writes to the disk tier are paused for a second after a failed write")]
    WriteFailed,
    #[error("the disk tier is closed or has stopped, so the operation is refused")]
    Stopped,
}

impl From<Refusal> for TierError {
    fn from(refusal: Refusal) -> Self {
        Self::failed(refusal)
    }
}
