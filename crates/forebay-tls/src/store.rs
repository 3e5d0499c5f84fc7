//! All certificates of a process: selection by server name, and reload of changed files.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
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
    /// The first certificate, of which those in files of the operator precede the automatic ones.
    /// None, if the requested name is that of an automatic certificate that is not loaded yet.
    #[default]
    First,
    /// None: the handshake fails.
    Refuse,
}

/// Certificates that a store serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateSources {
    /// Files of the operator, which must be valid.
    pub files: Vec<CertificateFiles>,
    /// Files of automatic certificates, which may be absent or not valid.
    pub managed: Vec<ManagedFile>,
    /// Certificate for unknown names.
    pub unknown_name: UnknownName,
}

/// File of an automatic certificate, with its key in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedFile {
    /// DNS name that the certificate is for, in lower case.
    pub name: Box<str>,
    /// PEM file with key and chain.
    pub path: PathBuf,
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
    managed: Vec<Managed>,
    /// Names whose certificates are ordered. Without one, a client gets none of another name.
    managed_names: HashSet<Box<str>>,
}

/// Automatic certificate, if there is one yet.
#[derive(Clone, Debug)]
struct Managed {
    file: ManagedFile,
    seen: Option<Seen>,
    certificate: Option<Certificate>,
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
    fn of_file(path: &Path) -> Option<Self> {
        let path = path.to_owned();
        Self::of(&CertificateFiles { certificate: path.clone(), key: path })
    }

    fn of(files: &CertificateFiles) -> Option<Self> {
        let state = |path: &Path| {
            let data = std::fs::metadata(path).ok()?;
            Some((data.modified().ok(), data.len()))
        };
        Some(Self([state(&files.certificate)?, state(&files.key)?]))
    }
}

impl Managed {
    /// Loads the file. One that is absent, or not valid any more, is replaced by the next order.
    fn load(file: &ManagedFile) -> Self {
        let path = file.path.clone();
        let seen = Seen::of_file(&path);
        let files = CertificateFiles { certificate: path.clone(), key: path };
        let certificate = Certificate::load(&files, SystemTime::now()).ok();
        Self { file: file.clone(), seen, certificate }
    }
}

impl Index {
    fn new(pairs: Vec<Pair>, managed: Vec<Managed>, unknown: UnknownName) -> Self {
        let managed_names = managed.iter().map(|managed| managed.file.name.clone()).collect();
        let mut index = Self { pairs, managed, managed_names, unknown, ..Self::default() };
        let (mut exact, mut wildcards) = (HashMap::new(), HashMap::new());
        for certificate in index.certificates() {
            for name in certificate.names() {
                let key = certificate.key.clone();
                // The first certificate for a name wins, as in the order of the configuration.
                match name.strip_prefix("*.") {
                    Some(domain) => wildcards.entry(domain.into()).or_insert(key),
                    None => exact.entry(name.into()).or_insert(key),
                };
            }
        }
        (index.exact, index.wildcards) = (exact, wildcards);
        index
    }

    /// Returns the certificate for a name in lower case: an exact name, then a wildcard.
    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        self.exact.get(name).or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.wildcards.get(parent)
        })
    }

    /// Returns all certificates, those of the operator first.
    fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        let own = self.pairs.iter().map(|pair| &pair.certificate);
        own.chain(self.managed.iter().filter_map(|managed| managed.certificate.as_ref()))
    }

    fn len(&self) -> usize {
        self.certificates().count()
    }

    fn select(&self, name: Option<&str>) -> Option<&Arc<CertifiedKey>> {
        let lower;
        let name = match name {
            Some(name) if name.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                lower = name.to_ascii_lowercase();
                Some(&*lower)
            }
            name => name,
        };
        let found = name.and_then(|name| self.find(name));
        let is_ordered = || name.is_some_and(|name| self.managed_names.contains(name));
        found.or_else(|| match self.unknown {
            UnknownName::First if !is_ordered() => self.first(),
            _ => None,
        })
    }

    fn first(&self) -> Option<&Arc<CertifiedKey>> {
        self.certificates().next().map(|certificate| &certificate.key)
    }
}

impl CertificateStore {
    /// Loads all certificates. The first one is for unknown names, if these are not refused. An
    /// automatic certificate whose file is absent or not valid is left out.
    ///
    /// # Errors
    /// The first certificate of the operator that cannot be loaded.
    pub fn load(sources: &CertificateSources) -> Result<Arc<Self>, CertificateError> {
        let index = load_all(sources)?;
        let loads = Loads::default();
        loads.loaded.store(index.len() as u64, Ordering::Relaxed);
        Ok(Arc::new(Self { index: ArcSwap::from_pointee(index), loads }))
    }

    /// Replaces all certificates by those of `sources`.
    ///
    /// # Errors
    /// The first certificate of the operator that cannot be loaded. Nothing has changed then.
    pub fn replace(&self, sources: &CertificateSources) -> Result<(), CertificateError> {
        match load_all(sources) {
            Ok(index) => {
                self.loads.loaded.fetch_add(index.len() as u64, Ordering::Relaxed);
                self.index.store(Arc::new(index));
                Ok(())
            }
            Err(error) => {
                self.loads.failed.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Loads the certificates whose files have a new modification time or length. Where that fails,
    /// the previous certificate stays. Returns the number of replaced certificates, and the errors
    /// for files of the operator, which the next call tries again. An automatic certificate that
    /// cannot be loaded is no error, and is tried again when its file changes.
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
        let mut managed = index.managed.clone();
        for known in &mut managed {
            let seen = Seen::of_file(&known.file.path);
            if seen.is_none() || seen == known.seen {
                continue;
            }
            let loaded = Managed::load(&known.file);
            known.seen = loaded.seen;
            if loaded.certificate.is_some() {
                known.certificate = loaded.certificate;
                replaced += 1;
            }
        }
        self.loads.loaded.fetch_add(replaced as u64, Ordering::Relaxed);
        self.loads.failed.fetch_add(errors.len() as u64, Ordering::Relaxed);
        if replaced > 0 {
            let refreshed = Arc::new(Index::new(pairs, managed, index.unknown));
            // A reload in between has newer files.
            self.index.compare_and_swap(&index, refreshed);
        }
        (replaced, errors)
    }

    /// Returns `true` if a client that requests this name, or none, gets a certificate, also one
    /// for unknown names.
    #[must_use]
    pub fn serves(&self, name: Option<&str>) -> bool {
        self.index.load().select(name).is_some()
    }

    /// Returns `true` if a loaded certificate has this name, given in lower case, or a wildcard for
    /// it.
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        self.index.load().find(name).is_some()
    }

    /// Returns the first name of each loaded certificate with the end of its validity.
    #[must_use]
    pub fn ends(&self) -> Vec<(String, SystemTime)> {
        let index = self.index.load();
        let end = |certificate: &Certificate| {
            let name = certificate.names().next().unwrap_or_default();
            (name.to_owned(), certificate.not_after())
        };
        index.certificates().map(end).collect()
    }

    /// Returns the names whose automatic certificate is absent, or has less than a tenth of its
    /// lifetime left.
    #[must_use]
    pub fn overdue(&self) -> Vec<Box<str>> {
        let (index, now) = (self.index.load(), SystemTime::now());
        let is_overdue = |managed: &&Managed| {
            managed.certificate.as_ref().is_none_or(|certificate| certificate.is_ending(now))
        };
        index.managed.iter().filter(is_overdue).map(|managed| managed.file.name.clone()).collect()
    }

    /// Returns the number of certificate loads since the store was created, and of failed attempts.
    /// An attempt to load all stops at its first failure. Files of automatic certificates never
    /// count as failed.
    #[must_use]
    pub fn loads(&self) -> (u64, u64) {
        let Loads { loaded, failed } = &self.loads;
        (loaded.load(Ordering::Relaxed), failed.load(Ordering::Relaxed))
    }
}

fn load_all(sources: &CertificateSources) -> Result<Index, CertificateError> {
    let now = SystemTime::now();
    let pair = |files: &CertificateFiles| {
        // Looked at before the load, so that a change during the load is seen by the next refresh.
        let seen = Seen::of(files);
        let certificate = Certificate::load(files, now)?;
        Ok(Pair { files: files.clone(), seen, certificate })
    };
    let pairs = sources.files.iter().map(pair).collect::<Result<_, _>>()?;
    let managed = sources.managed.iter().map(Managed::load).collect();
    Ok(Index::new(pairs, managed, sources.unknown_name))
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

    fn load(
        files: &[CertificateFiles],
        unknown_name: UnknownName,
    ) -> Result<Arc<CertificateStore>, CertificateError> {
        let sources =
            CertificateSources { files: files.to_vec(), managed: Vec::new(), unknown_name };
        CertificateStore::load(&sources)
    }

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
        let store = load(&files, UnknownName::First).unwrap();
        for (name, expected) in rows {
            assert_eq!(first_name(&store, name).as_deref(), Some(expected), "{name:?}");
        }
        let refusing = load(&files, UnknownName::Refuse).unwrap();
        assert!(refusing.serves(Some("a.shop.example")));
        assert!(!refusing.serves(Some("shop.example")) && !refusing.serves(None));
    }

    #[test]
    fn a_changed_file_is_loaded_and_a_broken_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let files = [write(folder.path(), "a", &["a.example"], 2040)];
        let store = load(&files, UnknownName::First).unwrap();
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
