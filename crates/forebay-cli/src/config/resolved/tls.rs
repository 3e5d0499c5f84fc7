//! Resolved `[tls]`: certificates, loaded and checked, and the options of all TLS servers.

use super::{ResolvedSite, acme};
use crate::config::file::{File, Section, TlsFile};
use crate::config::options;
use crate::config::provenance::Provenance;
use forebay_tls::acme::AcmeSettings;
use forebay_tls::certificate::{Certificate, CertificateFiles, FileRole};
use forebay_tls::server::{ClientAuthority, MinVersion};
use forebay_tls::store::CertificateSources;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Maximum number of certificates.
const CERTIFICATES_MAX: usize = 4_096;

/// Options of `[tls]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedTls {
    /// Certificates. Those in files could be loaded.
    pub(crate) certificates: CertificateSources,
    /// Automatic certificates; their files are in `certificates`.
    pub(crate) acme: Option<AcmeSettings>,
    /// Lowest protocol version.
    pub(crate) min_version: MinVersion,
    /// Authority of client certificates.
    pub(crate) authority: Option<ClientAuthority>,
    /// Interval of the checks for changed files; zero means none.
    pub(crate) watch: Duration,
    /// Maximum time of a handshake.
    pub(crate) handshake_timeout: Duration,
}

/// Result of reading `[tls]`.
pub(super) struct TlsTable {
    /// Addresses of the short form.
    pub(super) listen: Vec<SocketAddr>,
    pub(super) tls: ResolvedTls,
    /// Names of all certificates.
    loaded: Vec<Certificate>,
}

impl TlsTable {
    /// Returns `true` if a certificate has this name.
    pub(super) fn covers(&self, name: &str) -> bool {
        let is_ordered = |acme: &AcmeSettings| acme.names.iter().any(|ordered| ordered == name);
        self.loaded.iter().any(|certificate| certificate.covers(name))
            || self.tls.acme.as_ref().is_some_and(is_ordered)
    }
}

/// Reads `[tls]`. The outer `None` means an error, the inner one that there is no such table.
#[expect(clippy::option_option, reason = "an error differs from an absent table")]
pub(super) fn tls(
    file: &File,
    sites: Option<&[ResolvedSite]>,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<Option<TlsTable>> {
    match &file.tls {
        None => Some(None),
        Some(typed) => table(typed, sites, folder, provenance).map(Some),
    }
}

fn table(
    typed: &TlsFile,
    sites: Option<&[ResolvedSite]>,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<TlsTable> {
    let section = &typed.tls;
    let listen = provenance.read(section, &options::TLS_LISTEN);
    let min_version = provenance.read(section, &options::TLS_MIN_VERSION);
    let unknown_name = provenance.read(section, &options::TLS_UNKNOWN_NAME);
    let watch = provenance.read(section, &options::TLS_WATCH);
    let handshake_timeout = provenance.read(section, &options::TLS_HANDSHAKE_TIMEOUT);
    let ca = provenance.read(section, &options::TLS_CLIENT_CA);
    let crl = provenance.read(section, &options::TLS_CLIENT_CRL);
    let pairs = pairs(typed, folder, provenance);
    let authority =
        ca.map(|ca| ClientAuthority { ca: folder.join(ca), crl: crl.map(|crl| folder.join(crl)) });
    let (mut certificates, mut loaded, mut has_failed) = (Vec::new(), Vec::new(), false);
    for (section, files) in pairs? {
        match Certificate::load(&files, SystemTime::now()) {
            Ok(certificate) => loaded.push(certificate),
            Err(error) => {
                let name = match error.role {
                    FileRole::Certificate => options::TLS_CERTIFICATE.spec.name,
                    FileRole::Key => options::TLS_KEY.spec.name,
                };
                provenance.refuse(section, name, error.to_string());
                has_failed = true;
            }
        }
        certificates.push(files);
    }
    let acme = match &typed.acme {
        Some(typed) => acme::acme(typed, sites, folder, provenance).map(Some),
        None => Some(None),
    };
    if has_failed {
        return None;
    }
    let (acme, unknown_name) = (acme?, unknown_name?);
    let managed = acme.as_ref().map(AcmeSettings::files).unwrap_or_default();
    Some(TlsTable {
        listen: listen?,
        tls: ResolvedTls {
            certificates: CertificateSources { files: certificates, managed, unknown_name },
            acme,
            min_version: min_version?,
            authority,
            watch: watch?,
            handshake_timeout: handshake_timeout?,
        },
        loaded,
    })
}

/// Files of all certificates, each with the table that names it.
fn pairs<'f>(
    typed: &'f TlsFile,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<Vec<(&'f Section, CertificateFiles)>> {
    let section = &typed.tls;
    let certificate = provenance.read(section, &options::TLS_CERTIFICATE);
    let key = provenance.read(section, &options::TLS_KEY);
    let files = |certificate, key| CertificateFiles {
        certificate: folder.join::<std::path::PathBuf>(certificate),
        key: folder.join::<std::path::PathBuf>(key),
    };
    let mut all = Vec::new();
    match (certificate, key) {
        (Some(certificate), Some(key)) => all.push((section, files(certificate, key))),
        (Some(_), None) if section.value(options::TLS_KEY.spec.name).is_none() => {
            let message = "needs `key`: the file with the private key of this certificate";
            provenance.refuse(section, options::TLS_CERTIFICATE.spec.name, message);
            return None;
        }
        (None, Some(_)) if section.value(options::TLS_CERTIFICATE.spec.name).is_none() => {
            let message = "needs `certificate`: the file with the certificate of this key";
            provenance.refuse(section, options::TLS_KEY.spec.name, message);
            return None;
        }
        (None, None) => {}
        _ => return None,
    }
    let further = typed.certificates.iter().map(|section| {
        let certificate = provenance.read(section, &options::TLS_CERTIFICATES_CERTIFICATE);
        let key = provenance.read(section, &options::TLS_CERTIFICATES_KEY);
        Some((section, files(certificate?, key?)))
    });
    let further: Vec<_> = further.collect();
    all.extend(further.into_iter().collect::<Option<Vec<_>>>()?);
    if all.is_empty() && typed.acme.is_none() {
        let message = "needs a certificate: `certificate` and `key`, `certificates`, or [tls.acme]";
        provenance.absent(section, "tls", message);
        return None;
    }
    if all.len() > CERTIFICATES_MAX {
        provenance.absent(
            section,
            "tls.certificates",
            "has more than 4096 certificates, the maximum",
        );
        return None;
    }
    Some(all)
}
