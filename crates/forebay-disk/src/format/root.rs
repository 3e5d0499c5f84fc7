//! Root file `forebay.disk`: lock, format version, seed, and the number of removals.
//!
//! Two copies of 32 bytes (magic, 8; version, 4, and 4 bytes 0; seed, 8; checksum, 8), then two
//! slots of 16 (removals, 8; checksum, 8) written in turn. A flipped bit costs one of two. Without
//! a valid copy the segments cannot be read, and all lookups miss.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::error::OpenError;
use crate::files::io::{FileSystem, OpenFile, read_all, write_all};
use crate::format::layout::{Fields, Seed, VERSION, seal, sealed};

pub(crate) const NAME: &str = "forebay.disk";
const MAGIC: [u8; 8] = *b"FBDISK\xf7\x00";
const COPY: usize = 32;
const SLOTS_AT: usize = 2 * COPY;
const SLOT: usize = 16;
const LEN: usize = SLOTS_AT + 2 * SLOT;

/// Seed of the copies' checksum, since the directory's seed is within them.
const PUBLIC: Seed = Seed(0);

/// Locked root of a directory; dropping it releases the lock.
pub(crate) struct Root {
    file: Arc<dyn OpenFile>,
    pub(crate) seed: Seed,
    /// Minimum number of removals in the segments.
    pub(crate) removals: u64,
}

impl Root {
    /// Locks a directory, and initializes it if it is new.
    ///
    /// # Errors
    /// [`OpenError`] if the directory is in use, has a newer format version, or cannot be used.
    pub(crate) fn lock(io: &dyn FileSystem, path: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Unusable { path: path.to_owned(), source };
        io.make_dir(path).map_err(failed)?;
        let file = io.lock_file(&path.join(NAME)).map_err(failed)?;
        let file = file.ok_or_else(|| OpenError::InUse { path: path.to_owned() })?;
        let mut bytes = [0; LEN];
        let len = file.len().map_err(failed)?;
        if len >= LEN as u64 {
            read_all(&*file, &mut bytes, 0).map_err(failed)?;
        }
        match Static::read(&bytes) {
            Some(found) if found.version > u32::from(VERSION) => {
                Err(OpenError::Newer { path: path.to_owned(), version: found.version })
            }
            Some(found) if found.version == u32::from(VERSION) => {
                let removals = removals(&bytes, found.seed);
                Ok(Self { file, seed: found.seed, removals })
            }
            _ => Self::begin(file).map_err(failed),
        }
    }

    fn begin(file: Arc<dyn OpenFile>) -> io::Result<Self> {
        let seed = Seed(random());
        let mut bytes = [0; LEN];
        for copy in bytes[..SLOTS_AT].chunks_exact_mut(COPY) {
            copy[..8].copy_from_slice(&MAGIC);
            copy[8..12].copy_from_slice(&u32::from(VERSION).to_le_bytes());
            copy[16..24].copy_from_slice(&seed.0.to_le_bytes());
            seal(copy, PUBLIC, 0);
        }
        for number in 0..2 {
            bytes[slot(number)].copy_from_slice(&encode_slot(0, seed));
        }
        write_all(&*file, &bytes, 0)?;
        Ok(Self { file, seed, removals: 0 })
    }

    /// Writes the number of removals.
    pub(crate) fn note(&mut self, removals: u64) -> io::Result<()> {
        self.removals = removals;
        write_all(&*self.file, &encode_slot(removals, self.seed), slot(removals).start as u64)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.file.unlock();
    }
}

/// Returns a random number that clients do not know.
pub(crate) fn random() -> u64 {
    // Both hashers are seeded by the operating system, the first anew for each call.
    RandomState::new().hash_one("forebay") ^ ahash::RandomState::new().hash_one("disk")
}

struct Static {
    version: u32,
    seed: Seed,
}

impl Static {
    fn read(bytes: &[u8; LEN]) -> Option<Self> {
        bytes[..SLOTS_AT].chunks_exact(COPY).find_map(|copy| {
            let copy = sealed(copy, PUBLIC, 0)?.strip_prefix(&MAGIC)?;
            let mut fields = Fields(copy);
            let (version, _) = (fields.u32(), fields.u32());
            Some(Self { version, seed: Seed(fields.u64()) })
        })
    }
}

/// Returns the higher valid slot. A damaged slot hides at most one removal. Without a valid slot
/// the number is unknown, and higher than any segment's.
fn removals(bytes: &[u8; LEN], seed: Seed) -> u64 {
    let read = |number| {
        let count = sealed(&bytes[slot(number)], seed, SLOTS_AT as u64)?;
        Some(Fields(count).u64())
    };
    // Far from the maximum, so that counting can continue.
    const UNKNOWN: u64 = u64::MAX / 2;
    (0..2).filter_map(read).max().unwrap_or(UNKNOWN)
}

fn slot(removals: u64) -> std::ops::Range<usize> {
    let at = if removals.is_multiple_of(2) { SLOTS_AT } else { SLOTS_AT + SLOT };
    at..at + SLOT
}

fn encode_slot(removals: u64, seed: Seed) -> [u8; SLOT] {
    let mut out = [0; SLOT];
    out[..8].copy_from_slice(&removals.to_le_bytes());
    seal(&mut out, seed, SLOTS_AT as u64);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::io::OsFileSystem;

    #[test]
    fn every_flipped_bit_keeps_the_seed_and_costs_one_removal_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let mut root = Root::lock(&OsFileSystem, folder.path()).unwrap();
        let seed = root.seed;
        for count in 1..=3 {
            root.note(count).unwrap();
        }
        drop(root);
        let path = folder.path().join(NAME);
        let right = std::fs::read(&path).unwrap();
        for bit in 0..LEN * 8 {
            let mut bytes = right.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, bytes).unwrap();
            let root = Root::lock(&OsFileSystem, folder.path()).unwrap();
            assert_eq!(root.seed, seed, "bit {bit}");
            assert!((2..=3).contains(&root.removals), "bit {bit}: {}", root.removals);
        }
    }

    #[test]
    fn a_held_directory_is_in_use_and_a_newer_one_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::lock(&OsFileSystem, folder.path()).unwrap();
        let second = Root::lock(&OsFileSystem, folder.path());
        assert!(matches!(second, Err(OpenError::InUse { .. })));
        drop(root);
        let path = folder.path().join(NAME);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8] = 3;
        seal(&mut bytes[..COPY], PUBLIC, 0);
        std::fs::write(&path, &bytes).unwrap();
        let newer = Root::lock(&OsFileSystem, folder.path());
        assert!(matches!(newer, Err(OpenError::Newer { version: 3, .. })));
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
