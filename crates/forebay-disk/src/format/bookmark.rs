//! Saved bus position of this directory: `forebay.bookmark`.
//!
//! Two slots are written in turn; the newer one counts. If it is damaged, the older one is used,
//! which only repeats some purges.
//!
//! | at | bytes | slot |
//! |---|---|---|
//! | 0 | 8 | magic `FBMARK\xf7`, and version |
//! | 8 | 8 | number: one more than that of the other slot |
//! | 16 | 8 | log position: entries of earlier generations are unverified |
//! | 24 | 8 | length of the bookmark |
//! | 32 | | the bookmark, then a checksum of 8 bytes |

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::bus::Bookmark;

use crate::files::io::{Mode, OpenFile, read_all, write_all};
use crate::format::dir::Dir;
use crate::format::layout::{Fields, Seed, seal, sealed};

pub(crate) const NAME: &str = "forebay.bookmark";
const MAGIC: [u8; 8] = *b"FBMARK\xf7\x01";
const HEADER: usize = 32;

/// Bytes of a slot: more than the longest bookmark with header and checksum.
const SLOT: usize = 8 << 10;

/// Checksum position of a slot, distinct from those of records.
const CHECKSUM_POSITION: u64 = u64::MAX - SLOT as u64;

/// Content of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SavedBookmark {
    pub(crate) bookmark: Bookmark,
    /// Log position before which entries are unverified: a purge of them may have been missed.
    pub(crate) trusted_from: u64,
}

/// The bookmark file.
pub(crate) struct BookmarkFile {
    dir: Dir,
    seed: Seed,
    file: Option<Arc<dyn OpenFile>>,
    number: u64,
}

impl BookmarkFile {
    /// Opens the file and reads the newest valid slot, if any.
    pub(crate) fn open(dir: Dir, seed: Seed) -> (Self, Option<SavedBookmark>) {
        let file = dir.io.open(&path(&dir), Mode::Write).ok();
        let mut this = Self { dir, seed, file, number: 0 };
        let newest = (0..2).filter_map(|slot| this.read(slot)).max_by_key(|(number, _)| *number);
        this.number = newest.as_ref().map_or(0, |(number, _)| *number);
        (this, newest.map(|(_, kept)| kept))
    }

    fn read(&self, slot: u64) -> Option<(u64, SavedBookmark)> {
        let file = self.file.as_ref()?;
        let at = slot * SLOT as u64;
        let mut header = [0; HEADER];
        read_all(&**file, &mut header, at).ok()?;
        let mut fields = Fields(header.strip_prefix(&MAGIC)?);
        let (number, trusted_from, len) = (fields.u64(), fields.u64(), fields.u64());
        let len = usize::try_from(len).ok().filter(|len| *len <= SLOT - HEADER - 8)?;
        let mut all = vec![0; HEADER + len + 8];
        read_all(&**file, &mut all, at).ok()?;
        let body = sealed(&all, self.seed, CHECKSUM_POSITION + slot)?;
        let bookmark = Bookmark::new(Bytes::copy_from_slice(&body[HEADER..]))?;
        Some((number, SavedBookmark { bookmark, trusted_from }))
    }

    pub(crate) fn write(&mut self, kept: &SavedBookmark) -> io::Result<()> {
        let (number, slot) = (self.number + 1, (self.number + 1) % 2);
        let bytes = kept.bookmark.bytes();
        let mut out = Vec::with_capacity(HEADER + bytes.len() + 8);
        out.extend_from_slice(&MAGIC);
        for field in [number, kept.trusted_from, bytes.len() as u64] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(bytes);
        out.extend_from_slice(&[0; 8]);
        seal(&mut out, self.seed, CHECKSUM_POSITION + slot);
        write_all(&*self.file()?, &out, slot * SLOT as u64)?;
        // A partially written slot is damaged and is overwritten next.
        self.number = number;
        Ok(())
    }

    fn file(&mut self) -> io::Result<Arc<dyn OpenFile>> {
        let file = match self.file.take() {
            Some(file) => file,
            None => match self.dir.io.open(&path(&self.dir), Mode::New) {
                // The file exists but could not be opened with the directory.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    self.dir.io.open(&path(&self.dir), Mode::Write)?
                }
                made => made?,
            },
        };
        Ok(self.file.insert(file).clone())
    }
}

fn path(dir: &Dir) -> PathBuf {
    dir.path.join(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::io::OsFileSystem;

    fn kept(text: &str, trusted_from: u64) -> SavedBookmark {
        let bookmark = Bookmark::new(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        SavedBookmark { bookmark, trusted_from }
    }

    #[test]
    fn the_newest_is_found_and_a_damaged_one_leaves_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let open = |seed| {
            let dir = Dir { io: Arc::new(OsFileSystem), path: folder.path().to_owned() };
            BookmarkFile::open(dir, Seed(seed))
        };
        let (mut file, none) = open(7);
        assert_eq!(none, None);
        for (text, trusted_from) in [("a", 1), ("bb", 2), ("", 3)] {
            file.write(&kept(text, trusted_from)).unwrap();
            assert_eq!(open(7).1, Some(kept(text, trusted_from)));
        }
        let (mut file, _) = open(7);
        file.write(&kept("dddd", 4)).unwrap();
        assert_eq!(open(7).1, Some(kept("dddd", 4)), "numbering goes on");
        assert_eq!(open(8).1, None, "it is of another directory");
        let path = folder.path().join(NAME);
        let right = std::fs::read(&path).unwrap();
        for bit in 0..(HEADER + 12) * 8 {
            let mut bytes = right.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(open(7).1, Some(kept("", 3)), "bit {bit}");
        }
        for len in 0..HEADER + 8 {
            std::fs::write(&path, &right[..len]).unwrap();
            assert_eq!(open(7).1, None, "{len}");
        }
    }
}
