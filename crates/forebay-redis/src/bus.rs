//! The bus: purges, told to all instances in one order, and whether anything may have been missed.
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
mod listen;
pub(crate) mod place;
mod tell;
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
use crate::debts::Reason;
use crate::endpoint::{Endpoint, Owing};
use crate::era::BusId;
use crate::names::shared_name;
use crate::sharing::Sharing;
use crate::tier::{Inner, Redis, failed};
use crate::trouble::Trouble;

use bookmark::Left;
pub(crate) use listen::{Listening, listen};
use place::Standpoint;
use tell::{Teller, Telling};

/// How many prefixes may be purged and not forgotten yet. One more purges its whole site.
pub(crate) const RULES_MAX: u64 = 64;

/// No entry is kept for longer where purges are shared, and no rule has to be.
pub(crate) const KEPT_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How long after its last pulse an instance counts as alive.
pub(crate) const ALIVE: Duration = Duration::from_secs(3);

/// What one instance has of the bus.
#[derive(Default)]
pub(crate) struct BusEnd {
    listener: OnceLock<Arc<dyn Listener>>,
    pub(crate) standpoint: Standpoint,
    /// Whether it was said last that it is heard, to whoever listened then.
    said_heard: AtomicBool,
    /// Whether the bus itself was heard last.
    hears: AtomicBool,
    /// What other programs write should be heard, and is not: then nothing counts as heard.
    is_blind: AtomicBool,
    /// The reader is to begin anew, or may begin.
    pub(crate) turned: Notify,
    /// Another endpoint may be the one that is used.
    pub(crate) changed: Arc<Notify>,
}

impl BusEnd {
    /// Nothing counts as heard at first.
    pub(crate) fn new(has_tracking: bool) -> Self {
        Self { is_blind: AtomicBool::new(has_tracking), ..Self::default() }
    }

    pub(crate) fn has_listener(&self) -> bool {
        self.listener.get().is_some()
    }

    fn tell(&self, notices: impl IntoIterator<Item = Notice>) {
        for notice in notices {
            match notice {
                Notice::Heard => {
                    self.hears.store(true, Ordering::Release);
                    if self.lacks_tracking_now() {
                        continue;
                    }
                    self.said_heard.store(true, Ordering::Release);
                }
                Notice::Lost => {
                    self.hears.store(false, Ordering::Release);
                    if !self.said_heard.swap(false, Ordering::AcqRel) {
                        continue;
                    }
                }
                Notice::Gap
                | Notice::Purged { .. }
                | Notice::Outdated { .. }
                | Notice::Reached(_) => {}
            }
            self.pass_on(notice);
        }
    }

    fn pass_on(&self, notice: Notice) {
        if let Some(listener) = self.listener.get() {
            listener.hear(notice);
        }
    }

    pub(crate) fn lacks_tracking_now(&self) -> bool {
        self.is_blind.load(Ordering::Acquire)
    }

    /// What other programs write is heard from now on; what they wrote before, was not.
    fn tracks(&self) {
        self.is_blind.store(false, Ordering::Release);
        self.pass_on(Notice::Gap);
        if self.hears.load(Ordering::Acquire) {
            self.tell([Notice::Heard]);
        }
    }

    /// It is not heard any more. `true` if something was, until now.
    fn lacks_tracking(&self) -> bool {
        self.is_blind.store(true, Ordering::Release);
        let did_hear = self.said_heard.swap(false, Ordering::AcqRel);
        if did_hear {
            self.pass_on(Notice::Lost);
        }
        did_hear
    }
}

/// Names that belong to no single key.
pub(crate) struct SharedNames {
    pub(crate) bus: String,
    pub(crate) instances: String,
    pub(crate) rules: String,
    /// Up to where it has been done what other programs wish for.
    pub(crate) granted: String,
}

impl SharedNames {
    pub(crate) fn of(namespace: &str) -> Self {
        let name = |kind| shared_name(namespace, kind, b"");
        Self { bus: name(""), instances: name("n"), rules: name("p"), granted: name("f") }
    }
}

impl Bus for Redis {
    fn publish<'a>(
        &'a self,
        what: &'a Purge,
        reach: Reach,
    ) -> BoxFuture<'a, Result<Published, TierError>> {
        async move {
            let sharing = self.0.sharing.as_ref().ok_or_else(|| failed(Trouble::Absent))?;
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
            let sharing = self.0.sharing.as_ref().ok_or_else(|| failed(Trouble::Absent))?;
            self.0.publish_version(sharing, key, newer).await
        }
        .boxed()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        let Some(sharing) = &self.0.sharing else { return };
        let sharing = sharing.clone();
        let read = |bookmark: Bookmark| Left::read(&bookmark, &self.0.namespace);
        let left = listener.bookmark().and_then(read);
        // From the one thread that everything is told from.
        sharing.runtime.clone().spawn(async move {
            let bus = &sharing.bus;
            // There is one engine above a tier; the first stays.
            if bus.listener.set(listener).is_err() {
                return;
            }
            if let Some(left) = left {
                bus.standpoint.go_on_from(left);
                bus.changed.notify_one();
            } else if bus.said_heard.load(Ordering::Acquire) {
                bus.tell([Notice::Gap, Notice::Heard]);
            }
        });
    }
}

impl Inner {
    /// Tells the endpoint that is used, and waits for it; the others have to be told later.
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
        let owing = |endpoint: &Arc<Endpoint>| OwingPurge {
            endpoint: endpoint.clone(),
            number: endpoint.purges.note(what, reach),
            entry: names.as_ref().map(|names| endpoint.owing(names, Reason::Removed)),
        };
        let mut owing: Vec<_> = self.endpoints.iter().map(owing).collect();
        let (at, used) = self.used()?;
        let own = owing.swap_remove(at);
        drop(owing);
        let told = self.tell(sharing, used, (what, reach)).await.map_err(failed)?;
        own.forgive();
        if let Some(id) = BusId::read(told.id.as_bytes()) {
            sharing.bus.standpoint.reached(used, id);
        }
        count(&self.counters.published);
        Ok(told)
    }

    /// Carries out a purge on one endpoint, and tells all instances there.
    pub(crate) async fn tell(
        &self,
        sharing: &Arc<Sharing>,
        endpoint: &Arc<Endpoint>,
        (what, reach): (&Purge, Reach),
    ) -> Result<Published, Trouble> {
        let teller = Teller { namespace: &self.namespace, sharing, endpoint };
        let telling = Telling { what, reach, before: None, newer: None };
        let told = endpoint
            .run(endpoint.write_timeout, |link| async move { teller.tell(&link, telling).await });
        told.await
    }
}

/// Something else stands where the bus should.
pub(crate) fn foreign() -> redis::RedisError {
    redis::make_extension_error("WRONGTYPE".to_owned(), Some("another program".to_owned()))
}

/// A purge that an endpoint has to carry out. Dropping it makes it due.
struct OwingPurge {
    endpoint: Arc<Endpoint>,
    number: u64,
    entry: Option<Owing>,
}

impl OwingPurge {
    fn forgive(mut self) {
        self.endpoint.purges.forgive(self.number);
        if let Some(entry) = self.entry.take() {
            entry.forgive();
        }
    }
}

impl Drop for OwingPurge {
    fn drop(&mut self) {
        self.endpoint.purges.fall_due(self.number);
    }
}
