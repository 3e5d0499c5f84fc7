//! File system access. Every call that can fail goes through these traits, so that tests can fail
//! each one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// A file system.
pub(crate) trait FileSystem: Send + Sync + 'static {
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryFile>>;
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn OpenFile>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Opens or creates a file and locks it exclusively; `None` if another process holds the lock.
    /// Dropping the file releases it.
    fn lock_file(&self, path: &Path) -> io::Result<Option<Arc<dyn OpenFile>>>;
}

/// Access mode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    /// Reads and writes an existing file.
    Write,
    /// Creates a new file.
    New,
}

/// A file in a directory listing.
#[derive(Clone, Debug)]
pub(crate) struct DirectoryFile {
    pub(crate) name: String,
    pub(crate) len: u64,
}

/// An open file.
pub(crate) trait OpenFile: Send + Sync {
    fn len(&self) -> io::Result<u64>;

    /// Reads up to `buffer.len()` bytes with one call; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// Appends to the buffer up to its capacity with one call, without zeroing it first.
    fn append_at(&self, buffer: &mut Vec<u8>, at: u64) -> io::Result<usize>;

    /// Reads bytes that are in the page cache. Fails if the call would block, or the system cannot
    /// tell.
    fn read_if_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes up to `bytes.len()` bytes with one call.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;

    /// Writes consecutive parts with one call; the first is not empty.
    fn write_parts_at(&self, parts: &[&[u8]; 3], at: u64) -> io::Result<usize> {
        self.write_at(parts[0], at)
    }

    /// Truncates the file to `len` bytes.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Releases the lock explicitly, since a child process that is being started may still hold the
    /// file.
    fn unlock(&self);
}

/// Fills the buffer.
///
/// # Errors
/// `UnexpectedEof` at the end of the file, or the error of a call.
pub(crate) fn read_all(file: &dyn OpenFile, buffer: &mut [u8], at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], at + done as u64) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads `len` bytes.
///
/// # Errors
/// `UnexpectedEof` at the end of the file, or the error of a call.
pub(crate) fn read_new(file: &dyn OpenFile, len: usize, at: u64) -> io::Result<Vec<u8>> {
    let mut buffer = Vec::with_capacity(len);
    while buffer.len() < len {
        let next = at + buffer.len() as u64;
        match file.append_at(&mut buffer, next) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    // The capacity may exceed the requested length.
    buffer.truncate(len);
    Ok(buffer)
}

/// Writes all bytes; on an error some of them may be written.
pub(crate) fn write_all(file: &dyn OpenFile, bytes: &[u8], at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], at + done as u64) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all parts consecutively; on an error some bytes may be written. Large parts are not
/// copied.
pub(crate) fn write_all_parts(file: &dyn OpenFile, parts: &[&[u8]; 3], at: u64) -> io::Result<()> {
    let mut done = match file.write_parts_at(parts, at) {
        Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
        done => done.unwrap_or(0),
    };
    let mut at = at;
    for part in parts {
        let ahead = done.min(part.len());
        write_all(file, &part[ahead..], at + ahead as u64)?;
        done -= ahead;
        at += part.len() as u64;
    }
    Ok(())
}

/// The operating system's file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OsFileSystem;

impl FileSystem for OsFileSystem {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryFile>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            // The file was removed between the two calls.
            let Ok(meta) = entry.metadata() else { continue };
            if let (true, Ok(name)) = (meta.is_file(), entry.file_name().into_string()) {
                all.push(DirectoryFile { name, len: meta.len() });
            }
        }
        Ok(all)
    }

    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn OpenFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != Mode::Read).create_new(mode == Mode::New);
        Ok(Arc::new(options.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn lock_file(&self, path: &Path) -> io::Result<Option<Arc<dyn OpenFile>>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Arc::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl OpenFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, at)
    }

    fn append_at(&self, buffer: &mut Vec<u8>, at: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(self, rustix::buffer::spare_capacity(buffer), at)?)
    }

    #[cfg(target_os = "linux")]
    fn read_if_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut slices = [io::IoSliceMut::new(buffer)];
        Ok(rustix::io::preadv2(self, &mut slices, at, rustix::io::ReadWriteFlags::NOWAIT)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn read_if_cached(&self, _buffer: &mut [u8], _at: u64) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, at)
    }

    #[cfg(target_os = "linux")]
    fn write_parts_at(&self, parts: &[&[u8]; 3], at: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(self, &parts.map(io::IoSlice::new), at)?)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn unlock(&self) {
        // If this fails, closing the file releases the lock.
        let _ = self.unlock();
    }
}
