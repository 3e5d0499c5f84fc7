//! The bus: a Redis stream that delivers purges to all instances in one order and detects missed
//! ones.
//!
//! Each entry of the stream names its predecessor. Each instance reads the stream from its own
//! position over a blocking connection. Four times a second it also queries the end of the stream
//! over the main connection. That query proves, without an extra entry, that nothing was missed up
//! to the time of the query. When the proof is older than `bus_silence_max`, the bus is lost.
//!
//! Three things indicate a gap: an entry that does not follow the last one, an end before the
//! position of this instance, and another replication id of the server. Only the replication id
//! reveals entries that were lost in a failover before they were read.
//!
//! This folder also checks entries against purges when they are read and stored, and receives changes
//! by other programs. It uses `state`, `connection`, `purges` and `entry`; it never sees leases or the
//! tier trait.

pub(crate) mod entry;
mod publish;
pub(crate) mod purge_check;
mod receive;
mod tracking;
pub(crate) mod version;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::{Key, Purge, Reach};
use forebay_engine::bus::{Bookmark, Listener, Notice, Published};
use forebay_engine::{Bus, Newer, TierError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::connection::endpoint::{Endpoint, RemovalGuard};
use crate::counts::count;
use crate::entry::names::shared_name;
use crate::error::Error;
use crate::purges::generation::BusId;
use crate::purges::pending_removals::Reason;
use crate::state::bookmark::SavedPosition;
use crate::state::sharing::Sharing;
use crate::state::{Inner, Redis, failed};

use publish::{Publication, Publisher};
pub(crate) use receive::BusReceiver;

/// Maximum number of active prefix rules. A further prefix purge becomes a purge of its whole site.
pub(crate) const RULES_MAX: u64 = 64;

/// Maximum TTL of entries and prefix rules where purges are shared.
pub(crate) const KEPT_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Time after its last bus check for which an instance counts as alive.
pub(crate) const ALIVE: Duration = Duration::from_secs(3);

/// Names in Redis that belong to no single key.
pub(crate) struct SharedNames {
    pub(crate) bus: String,
    pub(crate) instances: String,
    pub(crate) rules: String,
    /// Position up to which purge requests of other programs were carried out.
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
        // Runs on the connection thread, which delivers all notices.
        sharing.runtime.clone().spawn(async move {
            let bus = &sharing.bus;
            // A tier has one engine; the first listener stays.
            if bus.listener.set(listener).is_err() {
                return;
            }
            if let Some(saved) = saved {
                bus.progress.resume_from(saved);
                bus.endpoint_changed.notify_one();
            } else if bus.announced_connected.load(Ordering::Acquire) {
                bus.notify([Notice::Gap, Notice::Connected]);
            }
        });
    }
}

impl Inner {
    /// Publishes on the endpoint in use and waits for it. The other endpoints receive the purge
    /// later.
    async fn publish(
        self: &Arc<Self>,
        sharing: &Arc<Sharing>,
        what: &Purge,
        reach: Reach,
    ) -> Result<Published, TierError> {
        // Recorded first, so that dropping this future does not cancel the purge.
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

    /// Carries out a purge on one endpoint and publishes it there.
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

/// Returns the error for data of another program under the name of the bus.
pub(crate) fn foreign() -> redis::RedisError {
    redis::make_extension_error(
        "WRONGTYPE".to_owned(),
        Some(
            "data of another program under the \
                                 name of the bus"
                .to_owned(),
        ),
    )
}

/// A purge that an endpoint must receive. Dropping it schedules a later attempt.
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
