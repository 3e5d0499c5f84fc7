//! One order: account, challenge, certificate.

use std::path::Path;
use std::time::{Duration, SystemTime};

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error,
    ExternalAccountKey, Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rustls::pki_types::CertificateDer;

use super::directory::DirectoryClient;
use super::storage::AcmeStorage;
use super::{AcmeSettings, ChallengeKind, answers};
use crate::certificate::{Certificate, CertificateFiles};

/// Intervals at which the state of an order is asked for, if the authority names none, and the
/// time after which it has failed.
const POLLING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

/// Maximum number of attempts in a row that fail because of a rejected nonce. Each request of an
/// attempt has had three nonces then.
const NONCE_ATTEMPTS_MAX: u32 = 5;

const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Reason for which an order failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum OrderError {
    /// The authority, or the way to it.
    #[error("{}", with_causes(.0))]
    Acme(#[from] Error),
    /// The authority did not accept the answer to a challenge.
    #[error("challenge {challenge} failed: {reason}")]
    Challenge { challenge: &'static str, reason: String },
    /// A file, or a response that cannot be used.
    #[error("{0}")]
    Sentence(String),
}

/// Text of an error with its causes: that of a failed connection says nothing alone.
fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

impl OrderError {
    /// Type of the problem that the authority stated.
    fn problem(&self) -> Option<&str> {
        match self {
            Self::Acme(Error::Api(problem)) => problem.r#type.as_deref(),
            _ => None,
        }
    }
}

impl From<String> for OrderError {
    fn from(sentence: String) -> Self {
        Self::Sentence(sentence)
    }
}

impl ChallengeKind {
    const fn label(self) -> &'static str {
        match self {
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Http01 => "http-01",
        }
    }

    const fn kind(self) -> ChallengeType {
        match self {
            Self::TlsAlpn01 => ChallengeType::TlsAlpn01,
            Self::Http01 => ChallengeType::Http01,
        }
    }
}

/// Everything that orders of one configuration share.
pub(super) struct Orders<'a> {
    pub(super) settings: &'a AcmeSettings,
    pub(super) storage: &'a AcmeStorage,
    pub(super) client: &'a DirectoryClient,
}

impl Orders<'_> {
    /// Orders a certificate and stores it. The caller holds the lock of the storage. `replaced` is
    /// the certificate that the new one replaces (RFC 9773 section 5).
    pub(super) async fn issue(
        &self,
        name: &str,
        replaced: Option<&CertificateDer<'_>>,
    ) -> Result<(), OrderError> {
        let mut failed = OrderError::Sentence("no challenge is configured".to_owned());
        for challenge in &self.settings.challenges {
            match self.issue_by(name, replaced, *challenge).await {
                Err(error @ OrderError::Challenge { .. }) => {
                    tracing::warn!(
                        %name,
                        "automatic certificate: {error}; the next challenge of `challenges` is \
                         tried, if there is one"
                    );
                    failed = error;
                }
                result => return result,
            }
        }
        Err(failed)
    }

    async fn issue_by(
        &self,
        name: &str,
        replaced: Option<&CertificateDer<'_>>,
        challenge: ChallengeKind,
    ) -> Result<(), OrderError> {
        let mut attempts = 1;
        loop {
            let result = self.attempt(name, replaced, challenge).await;
            match result.as_ref().err().and_then(OrderError::problem) {
                Some(BAD_NONCE) if attempts < NONCE_ATTEMPTS_MAX => attempts += 1,
                // The authority has forgotten the account; the next attempt creates another one.
                Some(NO_ACCOUNT) if attempts == 1 => {
                    self.storage.remove_account();
                    attempts += 1;
                }
                _ => return result,
            }
        }
    }

    async fn attempt(
        &self,
        name: &str,
        replaced: Option<&CertificateDer<'_>>,
        challenge: ChallengeKind,
    ) -> Result<(), OrderError> {
        let account = self.account().await?;
        let mut order = self.new_order(&account, name, replaced).await?;
        let file = self.answer(&mut order, name, challenge).await?;
        let polled = order.poll_ready(&POLLING).await.map_err(OrderError::from);
        file.iter().for_each(|file| self.storage.remove_challenge(file));
        match polled {
            Ok(OrderStatus::Ready) => {}
            Err(error) if !matches!(error.problem(), Some(problem) if problem != BAD_NONCE) => {
                return Err(error);
            }
            // The order is invalid, and the reason is in its authorization.
            Ok(_) | Err(_) => {
                let reason = why_invalid(&mut order).await;
                return Err(OrderError::Challenge { challenge: challenge.label(), reason });
            }
        }
        let key = order.finalize().await?;
        let chain = order.poll_certificate(&POLLING).await?;
        let pem = key + &chain;
        let usable = |file: &Path| check(file, name);
        Ok(self.storage.write_certificate(name, pem.as_bytes(), usable)?)
    }

    /// Returns the stored account, or a new one.
    pub(super) async fn account(&self) -> Result<Account, OrderError> {
        let builder = Account::builder_with_http(Box::new(self.client.clone()));
        if let Some(stored) = self.storage.account()? {
            let parsed: Result<AccountCredentials, _> = serde_json::from_slice(&stored);
            match parsed {
                Ok(credentials) => return Ok(builder.from_credentials(credentials).await?),
                Err(error) => {
                    tracing::warn!(
                        "account.json in the storage of automatic certificates is not valid, a new \
                         account is created: {error}"
                    );
                }
            }
        }
        let AcmeSettings { directory, contact, external_account, .. } = self.settings;
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let external = external_account.as_ref();
        let external =
            external.map(|ours| ExternalAccountKey::new(ours.id.clone(), &ours.hmac_key));
        let created = builder.create(&new, directory.clone(), external.as_ref()).await?;
        let (account, credentials) = created;
        let credentials = serde_json::to_vec(&credentials).map_err(|error| error.to_string())?;
        self.storage.write_account(&credentials)?;
        tracing::info!(
            directory,
            account = account.id(),
            "account for automatic certificates created"
        );
        Ok(account)
    }

    async fn new_order(
        &self,
        account: &Account,
        name: &str,
        replaced: Option<&CertificateDer<'_>>,
    ) -> Result<Order, OrderError> {
        let identifiers = [Identifier::Dns(name.to_owned())];
        let new = || {
            let order = NewOrder::new(&identifiers);
            match &self.settings.profile {
                Some(profile) => order.profile(profile),
                None => order,
            }
        };
        // `replaces` lifts rate limits and has no other use: without it the order is as good.
        if let Some(id) = replaced.and_then(|der| CertificateIdentifier::try_from(der).ok()) {
            match account.new_order(&new().replaces(id)).await {
                Ok(order) => return Ok(order),
                Err(error) => {
                    tracing::debug!(
                        %name,
                        "the authority refused an order that names the certificate to replace, so \
                         the order is sent without it: {error}"
                    );
                }
            }
        }
        Ok(account.new_order(&new()).await?)
    }

    /// Answers the challenge of the order's name. Returns the name of the file with the answer;
    /// `None` if the authority has verified the name already.
    async fn answer(
        &self,
        order: &mut Order,
        name: &str,
        challenge: ChallengeKind,
    ) -> Result<Option<String>, OrderError> {
        let mut authorizations = order.authorizations();
        let mut written = None;
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let offered = authorization.challenge(challenge.kind());
            let Some(mut offered) = offered else {
                let reason = "the authority does not offer it".to_owned();
                return Err(OrderError::Challenge { challenge: challenge.label(), reason });
            };
            let proof = offered.key_authorization();
            let (file, answer) = match challenge {
                ChallengeKind::Http01 => (offered.token.clone(), proof.as_str().to_owned()),
                ChallengeKind::TlsAlpn01 => {
                    let digest = proof.digest();
                    let digest = digest.as_ref().try_into();
                    let digest =
                        digest.map_err(|_| "the digest of the answer is no SHA-256".to_owned())?;
                    let pem = answers::certificate(name, digest);
                    (answers::file(name), pem.map_err(|error| error.to_string())?)
                }
            };
            self.storage.write_challenge(&file, answer.as_bytes())?;
            written = Some(file.clone());
            if let Err(error) = offered.set_ready().await {
                self.storage.remove_challenge(&file);
                let error = OrderError::from(error);
                return Err(match error.problem() {
                    // The authority has looked at once, and did not find the answer.
                    Some(problem) if problem != BAD_NONCE => {
                        let reason = error.to_string();
                        OrderError::Challenge { challenge: challenge.label(), reason }
                    }
                    _ => error,
                });
            }
        }
        Ok(written)
    }
}

/// Asks the authority why it did not accept the answer.
async fn why_invalid(order: &mut Order) -> String {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            break;
        }
        let failed = authorization.challenges.iter().find_map(|challenge| challenge.error.as_ref());
        if let Some(problem) = failed {
            return problem.to_string();
        }
    }
    "the authority gives no reason".to_owned()
}

/// Checks that a new file can be served for a name.
fn check(file: &Path, name: &str) -> Result<(), String> {
    let files = CertificateFiles { certificate: file.to_owned(), key: file.to_owned() };
    let certificate = Certificate::load(&files, SystemTime::now());
    let certificate = certificate.map_err(|error| error.to_string())?;
    match certificate.covers(name) {
        true => Ok(()),
        false => Err(format!("the authority sent a certificate that is not valid for {name}")),
    }
}
