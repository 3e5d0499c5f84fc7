//! All certificates of a process: selection by server name, and reload of changed files.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::certificate::{Certificate, CertificateError, CertificateFiles};

/// Certificate for a client that asks for an unknown name, or for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum UnknownName {
    /// The first certificate.
    #[default]
    First,
    /// None: the handshake fails.
    Refuse,
}

/// Certificates of a process.
#[derive(Debug)]
pub struct CertificateStore {
    index: ArcSwap<Index>,
    loads: Loads,
}

/// Counters of certificate loads.
#[derive(Debug, Default)]
pub struct Loads {
    loaded: AtomicU64,
    failed: AtomicU64,
}

/// Immutable state of a store; replaced as a whole.
#[derive(Debug, Default)]
struct Index {
    pairs: Vec<Pair>,
    exact: HashMap<Box<str>, Arc<CertifiedKey>>,
    /// By the name without `*.`.
    wildcards: HashMap<Box<str>, Arc<CertifiedKey>>,
    unknown: UnknownName,
}

/// Certificate with the files that it came from.
#[derive(Clone, Debug)]
struct Pair {
    files: CertificateFiles,
    seen: Option<Seen>,
    certificate: Certificate,
}

/// State of two files, which differs after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen([(Option<SystemTime>, u64); 2]);

impl Seen {
    fn of(files: &CertificateFiles) -> Option<Self> {
        let state = |path: &Path| {
            let data = std::fs::metadata(path).ok()?;
            Some((data.modified().ok(), data.len()))
        };
        Some(Self([state(&files.certificate)?, state(&files.key)?]))
    }
}

impl Index {
    fn new(pairs: Vec<Pair>, unknown: UnknownName) -> Self {
        let mut index = Self { pairs, unknown, ..Self::default() };
        for pair in &index.pairs {
            for name in pair.certificate.names() {
                let key = pair.certificate.key.clone();
                // The first certificate for a name wins, as in the order of the configuration.
                match name.strip_prefix("*.") {
                    Some(domain) => index.wildcards.entry(domain.into()).or_insert(key),
                    None => index.exact.entry(name.into()).or_insert(key),
                };
            }
        }
        index
    }

    /// Returns the certificate for a name in lower case: an exact name, then a wildcard.
    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        self.exact.get(name).or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.wildcards.get(parent)
        })
    }

    fn select(&self, name: Option<&str>) -> Option<&Arc<CertifiedKey>> {
        let found =
            name.and_then(|name| match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
                true => self.find(&name.to_ascii_lowercase()),
                false => self.find(name),
            });
        let first = || self.pairs.first().map(|pair| &pair.certificate.key);
        found.or_else(|| if self.unknown == UnknownName::First { first() } else { None })
    }
}

impl CertificateStore {
    /// Loads all certificates. The first one is for unknown names, if these are not refused.
    ///
    /// # Errors
    /// The first certificate that cannot be loaded, and its index.
    pub fn load(
        files: &[CertificateFiles],
        unknown: UnknownName,
    ) -> Result<Arc<Self>, CertificateError> {
        let pairs = load_all(files)?;
        let loads = Loads::default();
        loads.loaded.store(pairs.len() as u64, Ordering::Relaxed);
        Ok(Arc::new(Self { index: ArcSwap::from_pointee(Index::new(pairs, unknown)), loads }))
    }

    /// Replaces all certificates.
    ///
    /// # Errors
    /// The first certificate that cannot be loaded. Nothing has changed then.
    pub fn replace(
        &self,
        files: &[CertificateFiles],
        unknown: UnknownName,
    ) -> Result<(), CertificateError> {
        match load_all(files) {
            Ok(pairs) => {
                self.loads.loaded.fetch_add(pairs.len() as u64, Ordering::Relaxed);
                self.index.store(Arc::new(Index::new(pairs, unknown)));
                Ok(())
            }
            Err(error) => {
                self.loads.failed.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Loads the certificates whose files have changed. One that cannot be loaded keeps its old
    /// certificate, and is tried again by the next call. Returns the number of replaced
    /// certificates, and the errors.
    pub fn refresh(&self) -> (usize, Vec<CertificateError>) {
        let index = self.index.load();
        let (mut pairs, mut replaced, mut errors) = (index.pairs.clone(), 0, Vec::new());
        for pair in &mut pairs {
            let seen = Seen::of(&pair.files);
            if seen.is_some() && seen == pair.seen {
                continue;
            }
            match Certificate::load(&pair.files, SystemTime::now()) {
                Ok(certificate) => {
                    *pair = Pair { files: pair.files.clone(), seen, certificate };
                    replaced += 1;
                }
                Err(error) => errors.push(error),
            }
        }
        self.loads.loaded.fetch_add(replaced as u64, Ordering::Relaxed);
        self.loads.failed.fetch_add(errors.len() as u64, Ordering::Relaxed);
        if replaced > 0 {
            let refreshed = Arc::new(Index::new(pairs, index.unknown));
            // A reload in between has newer files.
            self.index.compare_and_swap(&index, refreshed);
        }
        (replaced, errors)
    }

    /// Returns `true` if a client that asks for this name gets a certificate.
    #[must_use]
    pub fn serves(&self, name: Option<&str>) -> bool {
        self.index.load().select(name).is_some()
    }

    /// Returns `true` if a certificate has this name, given in lower case.
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        self.index.load().find(name).is_some()
    }

    /// Returns the first name of each certificate with the end of its validity.
    #[must_use]
    pub fn ends(&self) -> Vec<(String, SystemTime)> {
        let index = self.index.load();
        let end = |pair: &Pair| {
            let name = pair.certificate.names().next().unwrap_or_default();
            (name.to_owned(), pair.certificate.not_after())
        };
        index.pairs.iter().map(end).collect()
    }

    /// Returns the number of certificates that were loaded, and of failed attempts.
    #[must_use]
    pub fn loads(&self) -> (u64, u64) {
        let Loads { loaded, failed } = &self.loads;
        (loaded.load(Ordering::Relaxed), failed.load(Ordering::Relaxed))
    }
}

fn load_all(files: &[CertificateFiles]) -> Result<Vec<Pair>, CertificateError> {
    let now = SystemTime::now();
    let pair = |files: &CertificateFiles| {
        // Looked at before the load, so that a change during the load is seen by the next refresh.
        let seen = Seen::of(files);
        let certificate = Certificate::load(files, now)?;
        Ok(Pair { files: files.clone(), seen, certificate })
    };
    files.iter().map(pair).collect()
}

impl ResolvesServerCert for CertificateStore {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.index.load().select(hello.server_name()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;
    use crate::certificate::tests::write;

    fn first_name(store: &CertificateStore, name: Option<&str>) -> Option<String> {
        let index = store.index.load();
        let key = index.select(name)?;
        let pair = index.pairs.iter().find(|pair| Arc::ptr_eq(&pair.certificate.key, key))?;
        pair.certificate.names().next().map(str::to_owned)
    }

    #[test]
    fn an_exact_name_wins_over_a_wildcard_and_the_first_over_none() {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            write(folder.path(), "first", &["first.example"], 2040),
            write(folder.path(), "wild", &["*.shop.example"], 2040),
            write(folder.path(), "www", &["www.shop.example"], 2040),
        ];
        let rows = [
            (Some("www.shop.example"), "www.shop.example"),
            (Some("WWW.Shop.Example"), "www.shop.example"),
            (Some("a.shop.example"), "*.shop.example"),
            (Some("a.b.shop.example"), "first.example"),
            (Some("shop.example"), "first.example"),
            (None, "first.example"),
        ];
        let store = CertificateStore::load(&files, UnknownName::First).unwrap();
        for (name, expected) in rows {
            assert_eq!(first_name(&store, name).as_deref(), Some(expected), "{name:?}");
        }
        let refusing = CertificateStore::load(&files, UnknownName::Refuse).unwrap();
        assert!(refusing.serves(Some("a.shop.example")));
        assert!(!refusing.serves(Some("shop.example")) && !refusing.serves(None));
    }

    #[test]
    fn a_changed_file_is_loaded_and_a_broken_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let files = [write(folder.path(), "a", &["a.example"], 2040)];
        let store = CertificateStore::load(&files, UnknownName::First).unwrap();
        assert!(matches!(store.refresh(), (0, errors) if errors.is_empty()));
        write(folder.path(), "a", &["b.example", "c.example"], 2040);
        assert!(matches!(store.refresh(), (1, errors) if errors.is_empty()));
        assert!(store.covers("c.example") && !store.covers("a.example"));
        // A key that does not match: the old certificate stays, and each refresh tries again.
        let new_key = std::fs::read(write(folder.path(), "new", &["b.example"], 2040).key).unwrap();
        std::fs::write(&files[0].key, new_key).unwrap();
        touch(&files[0].key);
        for _ in 0..2 {
            let (replaced, errors) = store.refresh();
            assert_eq!((replaced, errors.len()), (0, 1));
            assert!(store.covers("b.example"));
        }
        write(folder.path(), "a", &["d.example"], 2040);
        touch(&files[0].certificate);
        assert_eq!(store.refresh().0, 1);
        assert!(store.covers("d.example"));
        assert_eq!(store.loads(), (3, 2));
        std::fs::remove_file(&files[0].certificate).unwrap();
        assert_eq!(store.refresh().0, 0);
        assert!(store.covers("d.example"));
    }

    /// Sets a modification time in the future, since two writes may get equal ones.
    fn touch(path: &Path) {
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
    }
}
