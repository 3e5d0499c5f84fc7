//! Automatic certificates by ACME (RFC 8555): one certificate per name, ordered and renewed.
//!
//! | module | contents |
//! |---|---|
//! | `storage` | accounts, certificates and challenge answers as files; the lock of a fleet |
//! | `answers` | answers to the challenges `tls-alpn-01` and `http-01` |
//! | `directory` | HTTPS client for the server of the authority |
//! | `order` | one order, from the account to the chain |
//! | `schedule` | times of renewals and of attempts after a failure; pure |
//! | `renewal` | the loop that orders and renews the certificates of all names |
//!
//! The loop has a thread of its own, so that a slow disk delays no request. It changes the
//! certificates of the process only through files, which [`CertificateStore`] loads; instances that
//! share the folder therefore share certificates and challenge answers.
//!
//! [`CertificateStore`]: crate::store::CertificateStore

mod answers;
mod directory;
mod order;
mod renewal;
mod schedule;
mod storage;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

pub use answers::{CHALLENGE_PATH, ChallengeAnswers, acme_tls_alpn};
pub use directory::check_roots;

use crate::store::{CertificateStore, ManagedFile};
use storage::AcmeStorage;

/// URL of the ACME directory of Let's Encrypt, the default certificate authority.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Settings of automatic certificates. An account is created with agreement to the terms of the
/// authority, so the operator must have agreed to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeSettings {
    /// URL (`https`) of the ACME directory of the certificate authority. The directory contains the
    /// authority's other URLs.
    pub directory: String,
    /// PEM file with the authorities that may sign the certificate of the directory's server;
    /// `None` means those of Mozilla, which are part of the binary.
    pub ca: Option<PathBuf>,
    /// DNS names in lower case, each of which gets a certificate of its own.
    pub names: Vec<String>,
    /// URLs at which the authority may reach the operator, such as `mailto:ops@shop.example`. They
    /// are sent only when an account is created.
    pub contact: Vec<String>,
    /// Folder for account keys, certificates with their keys, and challenge answers. Instances with
    /// the same folder share all of these.
    pub storage: PathBuf,
    /// Challenges in the order in which they are tried; at least one. The next one is tried if the
    /// authority does not offer the previous one, or does not accept its answer.
    pub challenges: Vec<ChallengeKind>,
    /// Name of the certificate profile that each order requests; `None` means the authority's
    /// default. An authority that does not offer the profile refuses the order.
    pub profile: Option<String>,
    /// Account at the authority's operator, if it requires one. Used only when an ACME account is
    /// created.
    pub external_account: Option<ExternalAccount>,
}

/// Kind of challenge, by which the authority verifies the control over a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeKind {
    /// A certificate in a TLS handshake on port 443 (RFC 8737).
    TlsAlpn01,
    /// A response to an HTTP request on port 80 (RFC 8555 section 8.3).
    Http01,
}

/// Account at the authority's operator outside of ACME, to which a new ACME account is bound (RFC
/// 8555 section 7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Identifier of the HMAC key, given by the authority.
    pub id: String,
    /// HMAC key, decoded from the base64url text of the authority.
    pub hmac_key: Vec<u8>,
}

impl std::fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExternalAccount").field("id", &self.id).finish_non_exhaustive()
    }
}

impl AcmeSettings {
    /// Returns the certificate file of each name. It is absent until the first order succeeds.
    #[must_use]
    pub fn files(&self) -> Vec<ManagedFile> {
        let storage = AcmeStorage::new(self);
        let file = |name: &String| ManagedFile {
            name: name.as_str().into(),
            path: storage.certificate_path(name),
        };
        self.names.iter().map(file).collect()
    }
}

/// Automatic certificates of a process.
#[derive(Debug)]
pub struct Acme {
    settings: watch::Sender<AcmeSettings>,
    answers: Arc<ChallengeAnswers>,
    orders: Arc<OrderCounters>,
}

/// Counters of orders.
#[derive(Debug, Default)]
struct OrderCounters {
    issued: AtomicU64,
    failed: AtomicU64,
}

impl OrderCounters {
    fn count(&self, is_issued: bool) {
        let counter = if is_issued { &self.issued } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Acme {
    /// Prepares automatic certificates. Nothing is ordered before [`Self::start`].
    #[must_use]
    pub fn new(settings: AcmeSettings) -> Arc<Self> {
        let answers = Arc::new(ChallengeAnswers::new(&settings));
        let (settings, _) = watch::channel(settings);
        Arc::new(Self { settings, answers, orders: Arc::default() })
    }

    /// Starts to order and renew certificates, in a thread of its own that ends when this value is
    /// dropped or the process ends. The next process repeats an order that is interrupted. `store`
    /// loads the new certificates. Must be called only once.
    ///
    /// # Errors
    /// If the thread or its runtime cannot be started.
    pub fn start(&self, store: Arc<CertificateStore>) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (settings, orders) = (self.settings.subscribe(), self.orders.clone());
        let run = move || runtime.block_on(renewal::run(settings, store, orders));
        std::thread::Builder::new().name("forebay-acme".to_owned()).spawn(run)?;
        Ok(())
    }

    /// Replaces the settings. If they differ, the order in progress is abandoned, and all names are
    /// checked at once, also those that wait after a failure.
    pub fn replace(&self, settings: &AcmeSettings) {
        self.answers.replace(settings);
        self.settings.send_if_modified(|current| {
            let differs = current != settings;
            current.clone_from(settings);
            differs
        });
    }

    /// Returns the challenge answers, for the TLS servers and the HTTP service of the process.
    #[must_use]
    pub const fn answers(&self) -> &Arc<ChallengeAnswers> {
        &self.answers
    }

    /// Returns the number of certificates that this process has obtained, and the number of failed
    /// attempts. All challenges of an attempt count as one; an unusable storage is a failure, too.
    /// Abandoned orders are not counted.
    #[must_use]
    pub fn orders(&self) -> (u64, u64) {
        let OrderCounters { issued, failed } = &*self.orders;
        (issued.load(Ordering::Relaxed), failed.load(Ordering::Relaxed))
    }
}
