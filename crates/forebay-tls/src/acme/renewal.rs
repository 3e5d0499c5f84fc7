//! The loop that orders and renews the certificates of all names, one at a time.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use instant_acme::CertificateIdentifier;
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::directory::DirectoryClient;
use super::order::{OrderError, Orders};
use super::schedule::{Window, back_off};
use super::storage::AcmeStorage;
use super::{AcmeSettings, OrderCounters};
use crate::certificate::{Certificate, CertificateFiles};
use crate::store::CertificateStore;

/// Interval at which the authority is asked for the time of a renewal, if it names none.
const SUGGESTION_INTERVAL: Duration = Duration::from_secs(6 * 3_600);

/// Bounds of the interval that the authority names (RFC 9773 section 4.3.2).
const SUGGESTION_INTERVAL_MIN: Duration = Duration::from_secs(60);
const SUGGESTION_INTERVAL_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Time after which another instance's order is looked at again.
const LOCKED_RETRY: Duration = Duration::from_secs(5);

/// Longest sleep: the wall clock may jump.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Maximum time of one order, with all its challenges.
const ORDER_MAX: Duration = Duration::from_secs(600);

/// Orders and renews certificates until the sender of the settings is dropped.
pub(super) async fn run(
    mut settings: watch::Receiver<AcmeSettings>,
    store: Arc<CertificateStore>,
    counters: Arc<OrderCounters>,
) {
    loop {
        let current = settings.borrow_and_update().clone();
        let renewals = Renewals {
            storage: AcmeStorage::new(&current),
            settings: &current,
            store: &store,
            counters: &counters,
        };
        tokio::select! {
            () = renewals.run() => {}
            changed = settings.changed() => if changed.is_err() { return },
        }
    }
}

/// Orders of one configuration.
struct Renewals<'a> {
    settings: &'a AcmeSettings,
    storage: AcmeStorage,
    store: &'a CertificateStore,
    counters: &'a OrderCounters,
}

/// State of one name.
struct NameState {
    name: String,
    /// Time of the next look.
    due: SystemTime,
    failures: u32,
    /// End of the certificate that was last seen.
    known_end: Option<SystemTime>,
    /// Time at which this process obtained the certificate.
    obtained: Option<SystemTime>,
    suggestion: Option<Suggestion>,
    /// Time at which the authority is asked for a suggestion again.
    ask_again: SystemTime,
}

/// Renewal time that was chosen in a window.
struct Suggestion {
    window: Window,
    renewal: SystemTime,
}

impl Renewals<'_> {
    async fn run(&self) {
        let now = SystemTime::now();
        let state = |name: &String| NameState {
            name: name.clone(),
            due: now,
            failures: 0,
            known_end: None,
            obtained: None,
            suggestion: None,
            ask_again: now,
        };
        let mut states: Vec<NameState> = self.settings.names.iter().map(state).collect();
        // The folder and the roots may become usable later, like the authority.
        loop {
            let Some(next) = states.iter_mut().min_by_key(|state| state.due) else {
                return std::future::pending().await;
            };
            match next.due.duration_since(SystemTime::now()) {
                Ok(wait) if !wait.is_zero() => sleep(wait.min(SLEEP_MAX)).await,
                _ => self.attend(next).await,
            }
        }
    }

    /// Orders or renews a certificate if it is due, and sets the time of the next look.
    async fn attend(&self, state: &mut NameState) {
        let client = match self.storage.prepare().and_then(|()| DirectoryClient::new(self.settings))
        {
            Ok(client) => client,
            Err(reason) => return self.failed(state, &OrderError::Sentence(reason), None),
        };
        let orders = Orders { settings: self.settings, storage: &self.storage, client: &client };
        if let Some(renewal) = self.renewal(state, &orders).await
            && renewal > SystemTime::now()
        {
            state.due = renewal.min(state.ask_again);
            return;
        }
        let lock = match self.storage.lock() {
            Ok(Some(lock)) => lock,
            Ok(None) => {
                state.due = SystemTime::now() + LOCKED_RETRY;
                return;
            }
            Err(reason) => return self.failed(state, &OrderError::Sentence(reason), None),
        };
        // Another instance may have renewed it in between.
        let current = self.load(&state.name);
        if current.as_ref().map(Certificate::not_after) != state.known_end {
            return;
        }
        self.storage.clear_challenges();
        let replaced = current.as_ref().map(Certificate::leaf);
        let issued = timeout(ORDER_MAX, orders.issue(&state.name, replaced)).await;
        drop(lock);
        let late =
            || Err(OrderError::Sentence(format!("the order was not complete in {ORDER_MAX:?}")));
        match issued.unwrap_or_else(|_| late()) {
            Ok(()) => self.issued(state),
            Err(error) => self.failed(state, &error, client.take_retry_after()),
        }
    }

    /// Returns the time at which the certificate is renewed. `None` if there is none.
    async fn renewal(&self, state: &mut NameState, orders: &Orders<'_>) -> Option<SystemTime> {
        let certificate = self.load(&state.name);
        let end = certificate.as_ref().map(Certificate::not_after);
        let now = SystemTime::now();
        if state.known_end != end {
            (state.known_end, state.suggestion, state.ask_again) = (end, None, now);
            // Another instance, or an earlier process, may have obtained it.
            self.refresh();
        }
        let certificate = certificate?;
        let validity = certificate.validity();
        if now >= state.ask_again {
            let (window, interval) = suggested(orders, certificate.leaf()).await;
            state.ask_again = now + interval;
            if let Some(window) = window
                && state.suggestion.as_ref().is_none_or(|known| known.window != window)
            {
                let renewal = validity.renewal_within(window, fastrand::f64());
                state.suggestion = Some(Suggestion { window, renewal });
            }
        }
        let suggested = state.suggestion.as_ref().map(|known| known.renewal);
        let renewal = suggested.unwrap_or_else(|| validity.renewal());
        let earliest = state.obtained.map(|obtained| validity.earliest_renewal(obtained));
        // A failed renewal is repeated after its back-off.
        let earliest = earliest.unwrap_or(renewal);
        Some(renewal.max(earliest))
    }

    fn load(&self, name: &str) -> Option<Certificate> {
        let path = self.storage.certificate_path(name);
        let files = CertificateFiles { certificate: path.clone(), key: path };
        Certificate::load(&files, SystemTime::now()).ok()
    }

    fn refresh(&self) {
        let (_, errors) = self.store.refresh();
        for error in errors {
            tracing::error!("certificate not loaded, the previous one stays in use: {error}");
        }
    }

    fn issued(&self, state: &mut NameState) {
        self.counters.count(true);
        let now = SystemTime::now();
        // The next look loads the certificate, and plans its renewal.
        (state.failures, state.due, state.obtained) = (0, now, Some(now));
        tracing::info!(name = state.name, "certificate obtained");
    }

    fn failed(&self, state: &mut NameState, error: &OrderError, retry_after: Option<Duration>) {
        self.counters.count(false);
        state.failures = state.failures.saturating_add(1);
        let wait = back_off(state.failures, retry_after, fastrand::f64());
        state.due = SystemTime::now() + wait;
        let (name, directory) = (&state.name, &self.settings.directory);
        tracing::error!(
            name,
            directory,
            failures = state.failures,
            "certificate not obtained, the next attempt follows in {} s: {error}",
            wait.as_secs()
        );
    }
}

/// Asks the authority for the renewal window of a certificate. Returns the time after which it is
/// asked again, too.
async fn suggested(orders: &Orders<'_>, leaf: &CertificateDer<'_>) -> (Option<Window>, Duration) {
    let Ok(id) = CertificateIdentifier::try_from(leaf) else {
        return (None, SUGGESTION_INTERVAL);
    };
    let asked = async { orders.account().await?.renewal_info(&id).await.map_err(OrderError::from) };
    match asked.await {
        Ok((info, interval)) => {
            let window = info.suggested_window;
            let at =
                |seconds: i64| UNIX_EPOCH + Duration::from_secs(seconds.try_into().unwrap_or(0));
            let begin = at(window.start.unix_timestamp());
            let window = Window { begin, end: at(window.end.unix_timestamp()) };
            let bounds = (SUGGESTION_INTERVAL_MIN, SUGGESTION_INTERVAL_MAX);
            (Some(window), interval.clamp(bounds.0, bounds.1))
        }
        Err(error) => {
            tracing::debug!(
                "the authority gave no renewal time, it is asked again in {} s: {error}",
                SUGGESTION_INTERVAL.as_secs()
            );
            (None, SUGGESTION_INTERVAL)
        }
    }
}
