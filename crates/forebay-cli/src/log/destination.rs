//! Destination of a log: standard output, or a file that is renamed when it is large.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::config::resolved::Rotation;

/// Mode of a log file: its group may read it.
const MODE: u32 = 0o640;

/// Destination of a log.
pub(crate) enum Destination {
    /// Standard output.
    Stdout,
    /// File, to which lines are appended.
    File(LogFile),
}

/// Open log file.
pub(crate) struct LogFile {
    file: File,
    /// Name and bounds, if the file is renamed when it is large.
    rotating: Option<Rotating>,
}

struct Rotating {
    path: PathBuf,
    rotation: Rotation,
    /// Size in bytes from which the file is renamed.
    limit: u64,
    size: u64,
}

impl Destination {
    /// Opens a file to append to, or standard output if there is none.
    ///
    /// # Errors
    /// If the file cannot be created or opened.
    pub(crate) fn open(file: Option<&Path>, rotation: Rotation) -> anyhow::Result<Self> {
        let Some(path) = file else { return Ok(Self::Stdout) };
        let file = append_to(path)?;
        // Devices and pipes have no size, and keep their names.
        let size = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|meta| meta.len());
        let rotating = size.filter(|_| rotation.size > 0).map(|size| Rotating {
            path: path.to_owned(),
            rotation,
            limit: rotation.size,
            size,
        });
        Ok(Self::File(LogFile { file, rotating }))
    }

    #[cfg(test)]
    pub(super) const fn of_file(file: File) -> Self {
        Self::File(LogFile { file, rotating: None })
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes)?;
                stdout.flush()
            }
            Self::File(log) => {
                log.file.write_all(bytes)?;
                if let Some(rotating) = &mut log.rotating {
                    rotating.size += bytes.len() as u64;
                }
                Ok(())
            }
        }
    }

    /// Renames the file and opens a new one, if it has reached its bound.
    ///
    /// # Errors
    /// If a file cannot be renamed, removed or opened. The file stays in use then, and grows by its
    /// bound before the next attempt.
    pub(super) fn rotate_if_large(&mut self) -> anyhow::Result<()> {
        let Self::File(LogFile { file, rotating: Some(rotating) }) = self else { return Ok(()) };
        if rotating.size < rotating.limit {
            return Ok(());
        }
        rotating.limit = rotating.size + rotating.rotation.size;
        let opened = rotating.rotate(file)?;
        rotating.size = opened.metadata().map_or(0, |meta| meta.len());
        rotating.limit = rotating.rotation.size;
        *file = opened;
        Ok(())
    }
}

impl Rotating {
    /// Makes place for a new file at the path, and opens it.
    fn rotate(&self, file: &File) -> anyhow::Result<File> {
        let path = &self.path;
        // Another program may have renamed the file already; then the path is free, or has a new file.
        let is_in_place = match (std::fs::metadata(path), file.metadata()) {
            (Ok(named), Ok(open)) => (named.dev(), named.ino()) == (open.dev(), open.ino()),
            _ => false,
        };
        if is_in_place {
            for number in (1..self.rotation.keep).rev() {
                rename(&numbered(path, number), &numbered(path, number + 1))?;
            }
            rename(path, &numbered(path, 1))?;
        }
        append_to(path)
    }
}

fn append_to(path: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new().append(true).create(true).mode(MODE).open(path);
    file.with_context(|| format!("log file {} cannot be opened", path.display()))
}

/// Renames a file, unless it does not exist.
fn rename(from: &Path, to: &Path) -> anyhow::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).with_context(|| {
            format!("log file {} cannot be renamed to {}", from.display(), to.display())
        }),
        _ => Ok(()),
    }
}

/// Returns the path with a number at its end.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &Path) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }

    #[test]
    fn a_large_file_is_renamed_and_the_oldest_one_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let rotation = Rotation { size: 8, keep: 2 };
        let mut log = Destination::open(Some(&path), rotation).unwrap();
        for line in ["one....\n", "two\n", "2.5\n", "three..\n", "four\n"] {
            log.write_all(line.as_bytes()).unwrap();
            log.rotate_if_large().unwrap();
        }
        assert_eq!(text(&path).as_deref(), Some("four\n"));
        assert_eq!(text(&numbered(&path, 1)).as_deref(), Some("three..\n"));
        assert_eq!(text(&numbered(&path, 2)).as_deref(), Some("two\n2.5\n"));
        assert_eq!(text(&numbered(&path, 3)), None, "the oldest one is removed");
        // A reopened file counts what it has.
        let mut log = Destination::open(Some(&path), rotation).unwrap();
        log.write_all(b"5..\n").unwrap();
        log.rotate_if_large().unwrap();
        assert_eq!(text(&numbered(&path, 1)).as_deref(), Some("four\n5..\n"));
    }

    #[test]
    fn a_file_that_another_program_renamed_is_not_renamed_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let mut log = Destination::open(Some(&path), Rotation { size: 4, keep: 2 }).unwrap();
        std::fs::rename(&path, folder.path().join("away")).unwrap();
        std::fs::write(&path, "new\n").unwrap();
        log.write_all(b"old line\n").unwrap();
        log.rotate_if_large().unwrap();
        log.write_all(b"a\n").unwrap();
        assert_eq!(text(&path).as_deref(), Some("new\na\n"));
        assert_eq!(text(&numbered(&path, 1)), None);
    }

    #[test]
    fn a_failed_rotation_keeps_the_file_and_waits_for_the_next_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        // A folder that is not empty is in the way.
        std::fs::create_dir_all(numbered(&path, 1).join("x")).unwrap();
        let mut log = Destination::open(Some(&path), Rotation { size: 4, keep: 1 }).unwrap();
        log.write_all(b"1234\n").unwrap();
        let error = format!("{:#}", log.rotate_if_large().unwrap_err());
        assert!(error.contains("access.log cannot be renamed to"), "{error}");
        log.write_all(b"5\n").unwrap();
        log.rotate_if_large().expect("not yet again");
        assert_eq!(text(&path).as_deref(), Some("1234\n5\n"));
    }
}
