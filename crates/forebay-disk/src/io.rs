//! Files, as the tier reaches them: every call that can fail goes through here, so that tests can
//! make each of them fail in turn.

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
    /// Opens a file that one process at a time may hold; made if it is missing. Nothing if
    /// somebody else holds it. It is let go of when it is dropped.
    fn lock_file(&self, path: &Path) -> io::Result<Option<Arc<dyn OpenFile>>>;
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    /// To read and to write what is there.
    Write,
    /// A file that was not there.
    New,
}

/// A file in a directory.
#[derive(Clone, Debug)]
pub(crate) struct DirectoryFile {
    pub(crate) name: String,
    pub(crate) len: u64,
}

/// An open file.
pub(crate) trait OpenFile: Send + Sync {
    fn len(&self) -> io::Result<u64>;

    /// Reads as much as one call gives; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// The same to the end of a buffer, as far as its capacity reaches: a large one need not be
    /// filled with zeros first.
    fn append_at(&self, buffer: &mut Vec<u8>, at: u64) -> io::Result<usize>;

    /// Reads what is in memory already. Fails where it would have to wait, or cannot tell.
    fn read_if_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes as much as one call takes.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;

    /// The same of parts that will stand one behind the other, the first of them not empty.
    fn write_parts_at(&self, parts: &[&[u8]; 3], at: u64) -> io::Result<usize> {
        self.write_at(parts[0], at)
    }

    /// Removes what stands behind so many bytes.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Lets go of a held file. A child that is just being started would hold it a little longer.
    fn unlock(&self);
}

/// Reads all of `buffer`, or fails.
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

/// Reads so many bytes, or fails.
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
    // The allocator may have given more than it was asked for.
    buffer.truncate(len);
    Ok(buffer)
}

/// Writes all of `bytes`, or fails with some of them written.
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

/// Writes all of these one behind the other, or fails with some of them written. What is large is
/// not copied for it.
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

/// The machine's own file system.
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
            // What is removed between the two calls is not there.
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
        // What fails here is let go of when it is closed.
        let _ = self.unlock();
    }
}
