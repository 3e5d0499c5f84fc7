//! Files of automatic certificates.
//!
//! ```text
//! STORAGE/                      0700, all files 0600
//!   DIRECTORY/                  host and path of the directory's URL: accounts do not mix
//!     account.json              key and URL of the account
//!     lock                      held during an order
//!     certificates/NAME.pem     key and chain in one file, so that a rename replaces both
//!     challenges/NAME.pem       certificate for tls-alpn-01
//!     challenges/TOKEN          answer to http-01
//! ```
//!
//! A file is written under a temporary name, synchronised, and renamed, so that a reader never sees
//! a part of it, also after a crash.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::AcmeSettings;
use crate::certificate::read;

/// Mode of folders: only the user of the process may enter.
const FOLDER_MODE: u32 = 0o700;

/// Mode of files.
const FILE_MODE: u32 = 0o600;

/// Maximum length of the name of a challenge file; tokens of authorities have 43 bytes.
const CHALLENGE_NAME_MAX: usize = 253;

/// Folder of one directory.
#[derive(Clone, Debug)]
pub(super) struct AcmeStorage {
    folder: PathBuf,
}

/// Lock on a folder; released when this is dropped, and by the system when the process ends.
#[derive(Debug)]
pub(super) struct StorageLock {
    _file: File,
}

impl AcmeStorage {
    pub(super) fn new(settings: &AcmeSettings) -> Self {
        Self { folder: settings.storage.join(folder_name(&settings.directory)) }
    }

    pub(super) fn certificate_path(&self, name: &str) -> PathBuf {
        self.folder.join("certificates").join(format!("{name}.pem"))
    }

    fn account_path(&self) -> PathBuf {
        self.folder.join("account.json")
    }

    /// Returns `None` for a name that is not one of a challenge file: it comes from a client.
    fn challenge_path(&self, name: &str) -> Option<PathBuf> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_valid = (1..=CHALLENGE_NAME_MAX).contains(&name.len())
            && name.bytes().all(is_plain)
            && !name.starts_with('.');
        is_valid.then(|| self.folder.join("challenges").join(name))
    }

    /// Creates the folders.
    pub(super) fn prepare(&self) -> Result<(), String> {
        for folder in ["certificates", "challenges"] {
            let folder = self.folder.join(folder);
            let created = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&folder);
            created.map_err(|error| sentence(&folder, "cannot be created", &error))?;
        }
        Ok(())
    }

    /// Locks the folder against other processes. `None` if another one holds the lock.
    pub(super) fn lock(&self) -> Result<Option<StorageLock>, String> {
        let path = self.folder.join("lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(FILE_MODE);
        let file = options.open(&path);
        let file = file.map_err(|error| sentence(&path, "cannot be opened", &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(StorageLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(sentence(&path, "cannot be locked", &error)),
        }
    }

    /// Returns the account, if there is one.
    pub(super) fn account(&self) -> Result<Option<Vec<u8>>, String> {
        let path = self.account_path();
        if !path.exists() {
            return Ok(None);
        }
        read(&path).map(Some).map_err(|reason| format!("{} {reason}", path.display()))
    }

    pub(super) fn write_account(&self, account: &[u8]) -> Result<(), String> {
        replace(&self.account_path(), account, |_| Ok(()))
    }

    pub(super) fn remove_account(&self) {
        let _ = std::fs::remove_file(self.account_path());
    }

    /// Replaces a certificate. The new file is checked by `check` before it takes effect.
    pub(super) fn write_certificate(
        &self,
        name: &str,
        pem: &[u8],
        check: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<(), String> {
        replace(&self.certificate_path(name), pem, check)
    }

    pub(super) fn write_challenge(&self, name: &str, answer: &[u8]) -> Result<(), String> {
        match self.challenge_path(name) {
            Some(path) => replace(&path, answer, |_| Ok(())),
            None => Err(format!("the authority sent the invalid token {name:?}")),
        }
    }

    pub(super) fn remove_challenge(&self, name: &str) {
        if let Some(path) = self.challenge_path(name) {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Removes the challenge answers of processes that were killed. The caller holds the lock.
    pub(super) fn clear_challenges(&self) {
        let files = std::fs::read_dir(self.folder.join("challenges"));
        files.into_iter().flatten().flatten().for_each(|file| {
            let _ = std::fs::remove_file(file.path());
        });
    }

    /// Returns a challenge answer, if there is one with this name.
    pub(super) fn challenge(&self, name: &str) -> Option<Vec<u8>> {
        read(&self.challenge_path(name)?).ok()
    }
}

/// Name of the folder of a directory: its URL without the scheme, in letters, digits, `.` and `-`.
fn folder_name(directory: &str) -> String {
    let rest = directory.split_once("://").map_or(directory, |(_, rest)| rest);
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '.';
    let name: String = rest.chars().map(|c| if plain(c) { c } else { '-' }).collect();
    name.trim_matches(['-', '.']).to_owned()
}

/// Writes a file under a temporary name, checks it, and renames it.
fn replace(
    path: &Path,
    content: &[u8],
    check: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<(), String> {
    // Only the holder of the lock writes, so that one temporary name is enough.
    let temporary = path.with_added_extension("new");
    let written = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(FILE_MODE).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()
    };
    written().map_err(|error| sentence(&temporary, "cannot be written", &error))?;
    check(&temporary)?;
    let renamed = || -> io::Result<()> {
        std::fs::rename(&temporary, path)?;
        // The rename itself survives a crash only with its folder.
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    renamed().map_err(|error| sentence(path, "cannot be replaced", &error))
}

fn sentence(path: &Path, failed: &str, error: &io::Error) -> String {
    format!("{} {failed}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn storage(folder: &Path) -> AcmeStorage {
        let storage = AcmeStorage { folder: folder.join("a") };
        storage.prepare().unwrap();
        storage
    }

    #[test]
    fn folders_and_files_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let storage = storage(folder.path());
        storage.write_account(b"{}").unwrap();
        storage.write_challenge("token", b"answer").unwrap();
        let _lock = storage.lock().unwrap().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        for path in ["a", "a/certificates", "a/challenges"] {
            assert_eq!(mode(&folder.path().join(path)), 0o700, "{path}");
        }
        for path in ["a/account.json", "a/challenges/token", "a/lock"] {
            assert_eq!(mode(&folder.path().join(path)), 0o600, "{path}");
        }
    }

    #[test]
    fn one_process_at_a_time_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let storage = storage(folder.path());
        let lock = storage.lock().unwrap();
        assert!(lock.is_some() && storage.lock().unwrap().is_none());
        drop(lock);
        assert!(storage.lock().unwrap().is_some());
    }

    #[test]
    fn a_file_that_fails_its_check_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let storage = storage(folder.path());
        let path = storage.certificate_path("a.example");
        storage.write_certificate("a.example", b"old", |_| Ok(())).unwrap();
        let refused = storage.write_certificate("a.example", b"new", |file| {
            assert_eq!(std::fs::read(file).unwrap(), b"new");
            Err("is wrong".to_owned())
        });
        assert_eq!(refused.unwrap_err(), "is wrong");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        // The rest of a process that was killed is no obstacle.
        storage.write_certificate("a.example", b"newer", |_| Ok(())).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"newer");
    }

    #[test]
    fn clients_reach_challenge_files_only() {
        let folder = tempfile::tempdir().unwrap();
        let storage = storage(folder.path());
        storage.write_account(b"{}").unwrap();
        storage.write_challenge("t-_1", b"answer").unwrap();
        assert_eq!(storage.challenge("t-_1").as_deref(), Some(&b"answer"[..]));
        let long = "a".repeat(254);
        for name in ["", ".", "..", "../account.json", "a/b", "a\0b", ".hidden", "t%2d", &long] {
            assert_eq!(storage.challenge(name), None, "{name}");
            assert!(storage.write_challenge(name, b"x").is_err(), "{name}");
        }
        storage.remove_challenge("t-_1");
        assert_eq!(storage.challenge("t-_1"), None);
    }

    #[test]
    fn each_directory_has_a_folder() {
        let rows = [
            (super::super::LETS_ENCRYPT, "acme-v02.api.letsencrypt.org-directory"),
            ("https://127.0.0.1:14000/dir", "127.0.0.1-14000-dir"),
            ("https://../..", "..-..".trim_matches(['-', '.'])),
        ];
        for (directory, expected) in rows {
            assert_eq!(folder_name(directory), expected);
        }
    }
}
