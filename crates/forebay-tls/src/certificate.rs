//! Certificate with its key, read from PEM files and checked.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, RootCertStore};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Maximum size of a PEM file in bytes; a chain has a few certificates of 2 KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Files of one certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificateFiles {
    /// PEM file with the certificate and the intermediate certificates after it.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
}

/// Certificate that may be served.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Chain and private key, which match.
    pub(crate) key: Arc<CertifiedKey>,
    /// DNS names of the certificate in lower case; a wildcard begins with `*.`.
    names: Vec<Box<str>>,
    validity: Validity,
}

/// Period of validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    /// First moment.
    pub(crate) begin: SystemTime,
    /// Last moment.
    pub(crate) end: SystemTime,
}

impl Validity {
    /// Returns the duration of the period.
    pub(crate) fn lifetime(self) -> Duration {
        self.end.duration_since(self.begin).unwrap_or_default()
    }

    /// Returns `true` if less than a tenth of the lifetime is left: renewals have failed for long.
    pub(crate) fn is_ending(self, now: SystemTime) -> bool {
        self.end.duration_since(now).unwrap_or_default() < self.lifetime() / 10
    }
}

/// File that a [`CertificateError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRole {
    /// File of the certificate.
    Certificate,
    /// File of the private key.
    Key,
}

/// Reason for which a certificate cannot be served; one sentence that names the file.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub struct CertificateError {
    /// File to correct.
    pub role: FileRole,
    sentence: String,
}

impl CertificateError {
    fn of_certificate(path: &Path, reason: impl std::fmt::Display) -> Self {
        let sentence = format!("{} {reason}", path.display());
        Self { role: FileRole::Certificate, sentence }
    }

    fn of_key(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self { role: FileRole::Key, sentence: format!("{} {reason}", path.display()) }
    }
}

impl Certificate {
    /// Reads a certificate and its key, and checks that they match, that the certificate has a DNS
    /// name, and that it has not expired at `now`. The begin of its validity is not checked.
    ///
    /// # Errors
    /// If a file cannot be read, or one of the checks fails.
    pub fn load(files: &CertificateFiles, now: SystemTime) -> Result<Self, CertificateError> {
        let paired = load_pair(files, now)?;
        let (names, validity) = names_and_validity(&paired.cert)
            .map_err(|reason| CertificateError::of_certificate(&files.certificate, reason))?;
        if names.is_empty() {
            let reason = "has no DNS name (subjectAltName), so that no client accepts it";
            return Err(CertificateError::of_certificate(&files.certificate, reason));
        }
        Ok(Self { key: Arc::new(paired), names, validity })
    }

    /// Returns the DNS names in lower case; a wildcard begins with `*.`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// Returns the time after which clients do not accept the certificate.
    #[must_use]
    pub const fn not_after(&self) -> SystemTime {
        self.validity.end
    }

    /// Returns `true` if less than a tenth of the certificate's lifetime is left at `now`.
    #[must_use]
    pub fn is_ending(&self, now: SystemTime) -> bool {
        self.validity.is_ending(now)
    }

    /// Returns the period of validity.
    pub(crate) const fn validity(&self) -> Validity {
        self.validity
    }

    /// Returns the certificate itself, without its chain.
    pub(crate) fn leaf(&self) -> &CertificateDer<'static> {
        // A chain without certificates has not been loaded.
        &self.key.cert[0]
    }

    /// Returns `true` if one of the certificate's names is this one, given in lower case, or a
    /// wildcard for it. A wildcard covers exactly one label (RFC 9525 section 6.3).
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        let parent = name.split_once('.').map(|(_, parent)| parent);
        self.names().any(|own| {
            own == name || own.strip_prefix("*.").is_some_and(|domain| parent == Some(domain))
        })
    }
}

/// Reads a certificate and its key, and checks that they match and that it has not expired at `now`.
pub(crate) fn load_pair(
    files: &CertificateFiles,
    now: SystemTime,
) -> Result<CertifiedKey, CertificateError> {
    let CertificateFiles { certificate, key } = files;
    let of_certificate = |reason: String| CertificateError::of_certificate(certificate, reason);
    let chain = read_certificates(certificate).map_err(of_certificate)?;
    let private = read(key).map_err(|reason| CertificateError::of_key(key, reason))?;
    let private = PrivateKeyDer::from_pem_slice(&private).map_err(|_| {
        CertificateError::of_key(key, "contains no private key in PEM form without a password")
    })?;
    let (_, validity) = names_and_validity(&chain).map_err(of_certificate)?;
    let paired = CertifiedKey::from_der(chain, private, &crate::provider());
    let paired = paired.map_err(|error| match error {
        TlsError::InconsistentKeys(_) => CertificateError::of_key(
            key,
            format!("does not belong to the certificate {}", certificate.display()),
        ),
        other => CertificateError::of_key(key, format!("cannot be used: {other}")),
    })?;
    if validity.end <= now {
        let ago = Days(now.duration_since(validity.end).unwrap_or_default());
        return Err(of_certificate(format!("expired {ago} ago")));
    }
    Ok(paired)
}

/// Duration in whole days or hours.
struct Days(Duration);

impl std::fmt::Display for Days {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hours = self.0.as_secs() / 3_600;
        match hours / 24 {
            0 => write!(f, "{hours} hours"),
            days => write!(f, "{days} days"),
        }
    }
}

/// Reads all certificates of a PEM file.
///
/// # Errors
/// The rest of a sentence that begins with the path.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.map_err(|error| format!("is not a PEM file: {error}"))?;
    if chain.is_empty() {
        return Err("contains no certificate in PEM form".to_owned());
    }
    Ok(chain)
}

/// Reads the authorities in a PEM file.
///
/// # Errors
/// One sentence that begins with the path.
pub(crate) fn roots(path: &Path) -> Result<RootCertStore, String> {
    let named = |reason: String| format!("{} {reason}", path.display());
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path).map_err(named)? {
        roots.add(certificate).map_err(|error| named(format!("cannot be used: {error}")))?;
    }
    Ok(roots)
}

/// Reads a file of at most [`FILE_BYTES_MAX`] bytes.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(format!("cannot be read: {error}")),
        Ok(length) if length as u64 > FILE_BYTES_MAX => {
            Err(format!("is larger than {FILE_BYTES_MAX} bytes"))
        }
        Ok(_) => Ok(bytes),
    }
}

type NamesAndValidity = (Vec<Box<str>>, Validity);

fn names_and_validity(chain: &[CertificateDer<'_>]) -> Result<NamesAndValidity, String> {
    let malformed = |reason: &dyn std::fmt::Display| format!("is not a certificate: {reason}");
    let first = chain.first().ok_or("contains no certificate in PEM form")?;
    let (_, parsed) = X509Certificate::from_der(first).map_err(|error| malformed(&error))?;
    let alternative = parsed.subject_alternative_name().map_err(|error| malformed(&error))?;
    let names = alternative.iter().flat_map(|extension| &extension.value.general_names);
    let names: Vec<Box<str>> = names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase().into()),
            _ => None,
        })
        .collect();
    let at = |seconds: i64| UNIX_EPOCH + Duration::from_secs(seconds.try_into().unwrap_or(0));
    let validity = parsed.validity();
    let (begin, end) = (at(validity.not_before.timestamp()), at(validity.not_after.timestamp()));
    Ok((names, Validity { begin, end }))
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// Writes a certificate for these names that expires in this year; returns its files.
    pub(crate) fn write(folder: &Path, stem: &str, names: &[&str], end: i32) -> CertificateFiles {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(end, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let files = CertificateFiles {
            certificate: folder.join(format!("{stem}.pem")),
            key: folder.join(format!("{stem}.key")),
        };
        std::fs::write(&files.certificate, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    fn error(files: &CertificateFiles) -> String {
        Certificate::load(files, SystemTime::now()).unwrap_err().to_string()
    }

    #[test]
    fn a_certificate_has_names_and_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let files = write(folder.path(), "a", &["Shop.example", "*.eu.example"], 2040);
        let loaded = Certificate::load(&files, SystemTime::now()).unwrap();
        assert_eq!(loaded.names().collect::<Vec<_>>(), ["shop.example", "*.eu.example"]);
        let end = loaded.not_after().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(end, 2_208_988_800);
        let rows = [
            ("shop.example", true),
            ("www.shop.example", false),
            ("a.eu.example", true),
            ("a.b.eu.example", false),
            ("eu.example", false),
            ("example", false),
        ];
        for (name, expected) in rows {
            assert_eq!(loaded.covers(name), expected, "{name}");
        }
    }

    #[test]
    fn each_mistake_is_one_sentence_with_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let good = write(folder.path(), "good", &["a.example"], 2040);
        let other = write(folder.path(), "other", &["a.example"], 2040);
        let old = write(folder.path(), "old", &["a.example"], 2021);
        let nameless = write(folder.path(), "nameless", &[], 2040);
        std::fs::write(path("empty"), "").unwrap();
        std::fs::write(path("huge"), vec![b'x'; 2 << 20]).unwrap();
        let with = |certificate: &PathBuf, key: &PathBuf| CertificateFiles {
            certificate: certificate.clone(),
            key: key.clone(),
        };
        let rows = [
            (with(&path("none"), &good.key), "none cannot be read: No such file"),
            (with(&good.certificate, &path("none")), "none cannot be read: No such file"),
            (with(&path("empty"), &good.key), "empty contains no certificate in PEM form"),
            (with(&good.certificate, &path("empty")), "empty contains no private key in PEM form"),
            (with(&good.key, &good.key), "good.key contains no certificate in PEM form"),
            (with(&good.certificate, &good.certificate), "good.pem contains no private key"),
            (with(&path("huge"), &good.key), "huge is larger than 1048576 bytes"),
            (with(&good.certificate, &other.key), "other.key does not belong to the certificate"),
            (nameless, "nameless.pem has no DNS name"),
            (old, "old.pem expired "),
        ];
        for (files, expected) in rows {
            let found = error(&files);
            assert!(found.contains(expected), "{found}: {expected}");
            assert_eq!(found.lines().count(), 1, "{found}");
        }
    }
}
