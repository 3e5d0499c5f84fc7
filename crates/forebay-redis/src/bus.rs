//! The bus: purges, outcome to all instances in one order, and whether anything may have been missed.
//!
//! It is a stream in Redis whose entries name the one before them. Each instance reads it from
//! where it stands, on a connection of its own, and is woken as soon as there is something. Four
//! times a second it also asks where the stream ends, over the connection that everything else
//! uses: that proves that nothing was missed, without an entry that says so. The proof is as old
//! as the question; when it is older than silence is trusted, the bus is lost.
//!
//! A gap is seen by an entry that does not follow the last, by an end before where this instance
//! stands, and by a server with another replication id: of entries that were lost in a failover
//! before they were read, nothing else tells.

mod bookmark;
pub(crate) mod entry;
pub(crate) mod progress;
mod publish;
mod receive;
pub(crate) mod version;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_core::{Key, Purge, Reach};
use forebay_engine::bus::{Bookmark, Listener, Notice, Published};
use forebay_engine::{Bus, Newer, TierError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::counts::count;
use crate::endpoint::{Endpoint, RemovalGuard};
use crate::error::Error;
use crate::generation::BusId;
use crate::names::shared_name;
use crate::pending_removals::Reason;
use crate::sharing::Sharing;
use crate::tier::{Inner, Redis, failed};

use bookmark::SavedPosition;
use progress::BusProgress;
use publish::{Publication, Publisher};
pub(crate) use receive::BusReceiver;

/// How many prefixes may be purged and not forgotten yet. One more purges its whole site.
pub(crate) const RULES_MAX: u64 = 64;

/// No entry is kept for longer where purges are shared, and no rule has to be.
pub(crate) const KEPT_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How long after its last pulse an instance counts as alive.
pub(crate) const ALIVE: Duration = Duration::from_secs(3);

/// What one instance has of the bus.
#[derive(Default)]
pub(crate) struct BusClient {
    listener: OnceLock<Arc<dyn Listener>>,
    pub(crate) progress: BusProgress,
    /// Whether it was said last that it is heard, to whoever listened then.
    announced_connected: AtomicBool,
    /// Whether the bus itself was heard last.
    is_connected: AtomicBool,
    /// What other programs write should be heard, and is not: then nothing counts as heard.
    tracking_lost: AtomicBool,
    /// The reader is to begin anew, or may begin.
    pub(crate) reader_wakeup: Notify,
    /// Another endpoint may be the one that is used.
    pub(crate) endpoint_changed: Arc<Notify>,
}

impl BusClient {
    /// Nothing counts as heard at first.
    pub(crate) fn new(has_tracking: bool) -> Self {
        Self { tracking_lost: AtomicBool::new(has_tracking), ..Self::default() }
    }

    pub(crate) fn has_listener(&self) -> bool {
        self.listener.get().is_some()
    }

    fn notify(&self, notices: impl IntoIterator<Item = Notice>) {
        for notice in notices {
            match notice {
                Notice::Heard => {
                    self.is_connected.store(true, Ordering::Release);
                    if self.is_tracking_lost() {
                        continue;
                    }
                    self.announced_connected.store(true, Ordering::Release);
                }
                Notice::Lost => {
                    self.is_connected.store(false, Ordering::Release);
                    if !self.announced_connected.swap(false, Ordering::AcqRel) {
                        continue;
                    }
                }
                Notice::Gap
                | Notice::Purged { .. }
                | Notice::Outdated { .. }
                | Notice::Reached(_) => {}
            }
            self.deliver(notice);
        }
    }

    fn deliver(&self, notice: Notice) {
        if let Some(listener) = self.listener.get() {
            listener.hear(notice);
        }
    }

    pub(crate) fn is_tracking_lost(&self) -> bool {
        self.tracking_lost.load(Ordering::Acquire)
    }

    /// What other programs write is heard from now on; what they wrote before, was not.
    fn tracking_started(&self) {
        self.tracking_lost.store(false, Ordering::Release);
        self.deliver(Notice::Gap);
        if self.is_connected.load(Ordering::Acquire) {
            self.notify([Notice::Heard]);
        }
    }

    /// It is not heard any more. `true` if something was, until now.
    fn tracking_stopped(&self) -> bool {
        self.tracking_lost.store(true, Ordering::Release);
        let was_connected = self.announced_connected.swap(false, Ordering::AcqRel);
        if was_connected {
            self.deliver(Notice::Lost);
        }
        was_connected
    }
}

/// Names that belong to no single key.
pub(crate) struct SharedNames {
    pub(crate) bus: String,
    pub(crate) instances: String,
    pub(crate) rules: String,
    /// Up to where it has been done what other programs wish for.
    pub(crate) applied: String,
}

impl SharedNames {
    pub(crate) fn of(namespace: &str) -> Self {
        let name = |kind| shared_name(namespace, kind, b"");
        Self { bus: name(""), instances: name("n"), rules: name("p"), applied: name("f") }
    }
}

impl Bus for Redis {
    fn publish<'a>(
        &'a self,
        what: &'a Purge,
        reach: Reach,
    ) -> BoxFuture<'a, Result<Published, TierError>> {
        async move {
            let sharing = self.0.sharing.as_ref().ok_or_else(|| failed(Error::Unavailable))?;
            self.0.publish(sharing, what, reach).await
        }
        .boxed()
    }

    fn publish_version<'a>(
        &'a self,
        key: &'a Key,
        newer: Newer,
    ) -> BoxFuture<'a, Result<Option<Published>, TierError>> {
        async move {
            let sharing = self.0.sharing.as_ref().ok_or_else(|| failed(Error::Unavailable))?;
            self.0.publish_version(sharing, key, newer).await
        }
        .boxed()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        let Some(sharing) = &self.0.sharing else { return };
        let sharing = sharing.clone();
        let read = |bookmark: Bookmark| SavedPosition::read(&bookmark, &self.0.namespace);
        let saved = listener.bookmark().and_then(read);
        // From the one thread that everything is outcome from.
        sharing.runtime.clone().spawn(async move {
            let bus = &sharing.bus;
            // There is one engine above a tier; the first stays.
            if bus.listener.set(listener).is_err() {
                return;
            }
            if let Some(saved) = saved {
                bus.progress.resume_from(saved);
                bus.endpoint_changed.notify_one();
            } else if bus.announced_connected.load(Ordering::Acquire) {
                bus.notify([Notice::Gap, Notice::Heard]);
            }
        });
    }
}

impl Inner {
    /// Tells the endpoint that is used, and waits for it; the others have to be outcome later.
    async fn publish(
        self: &Arc<Self>,
        sharing: &Arc<Sharing>,
        what: &Purge,
        reach: Reach,
    ) -> Result<Published, TierError> {
        // Noted first: whoever drops this half-way has purged all the same.
        let names = match what {
            Purge::Key(key) => Some(self.names(key.borrowed())),
            _ => None,
        };
        let guards = |endpoint: &Arc<Endpoint>| PurgeGuard {
            endpoint: endpoint.clone(),
            number: endpoint.pending_purges.add(what, reach),
            entry: names.as_ref().map(|names| endpoint.begin_removal(names, Reason::Removed)),
        };
        let mut guards: Vec<_> = self.endpoints.iter().map(guards).collect();
        let (at, used) = self.used()?;
        let own = guards.swap_remove(at);
        drop(guards);
        let outcome = self.publish_to(sharing, used, what, reach).await.map_err(failed)?;
        own.complete();
        if let Some(id) = BusId::read(outcome.id.as_bytes()) {
            sharing.bus.progress.reached(used, id);
        }
        count(&self.counters.published);
        Ok(outcome)
    }

    /// Carries out a purge on one endpoint, and tells all instances there.
    pub(crate) async fn publish_to(
        &self,
        sharing: &Arc<Sharing>,
        endpoint: &Arc<Endpoint>,
        what: &Purge,
        reach: Reach,
    ) -> Result<Published, Error> {
        let publisher = Publisher { namespace: &self.namespace, sharing, endpoint };
        let publication = Publication { what, reach, before: None, newer: None };
        let outcome = endpoint.run(endpoint.write_timeout, |link| async move {
            publisher.publish(&link, publication).await
        });
        outcome.await
    }
}

/// Something else stands where the bus should.
pub(crate) fn foreign() -> redis::RedisError {
    redis::make_extension_error("WRONGTYPE".to_owned(), Some("another program".to_owned()))
}

/// A purge that an endpoint has to carry out. Dropping it makes it due.
struct PurgeGuard {
    endpoint: Arc<Endpoint>,
    number: u64,
    entry: Option<RemovalGuard>,
}

impl PurgeGuard {
    fn complete(mut self) {
        self.endpoint.pending_purges.complete(self.number);
        if let Some(entry) = self.entry.take() {
            entry.complete();
        }
    }
}

impl Drop for PurgeGuard {
    fn drop(&mut self) {
        self.endpoint.pending_purges.schedule(self.number);
    }
}
