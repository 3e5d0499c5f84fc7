//! Events of the engine: its only telemetry.

use std::time::Duration;

use forebay_core::KeyRef;

/// Event in an engine that no caller learns of by its answer; for metrics and logs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A load got the head of its answer, or failed.
    Loaded {
        /// Key of the load.
        key: KeyRef<'a>,
        /// Result: `stored`, `unchanged`, `pass`, `failed`, or the code of a load error.
        result: &'static str,
        /// Duration.
        cost: Duration,
    },
    /// The body of an answer for this key ended early. The entry stored before stays.
    BodyBroken(KeyRef<'a>),
    /// The body of an answer for this key is larger than memory can keep. It is streamed to its
    /// readers, and stored only in lower tiers that accept it.
    BodyOutgrown(KeyRef<'a>),
    /// A load of this key waits, because the memory for bodies in flight is used up.
    LoadWaits(KeyRef<'a>),
    /// A load of this key was refused, because no memory for its body became free in time.
    LoadRefused(KeyRef<'a>),
    /// The body of an answer for this key found no memory to grow. It is streamed to its readers,
    /// and not stored in memory.
    BodyNotAdmitted(KeyRef<'a>),
    /// This number of bodies was dropped to free memory that others waited for: they were evicted
    /// already, and their readers had stopped reading.
    BodiesDropped(usize),
    /// A background refresh of this key was not started, because too many are in progress.
    RefreshSkipped(KeyRef<'a>),
    /// A request for this key started no load, because the last loads of the key failed.
    BackingOff(KeyRef<'a>),
    /// A caller got a stale entry of this key, because its load is slow. The load continues.
    SoftTimeout(KeyRef<'a>),
    /// An operation of a lower tier ended, or reached its time limit.
    TierCalled {
        /// Name of the tier.
        tier: &'static str,
        /// Operation: `open`, `lease`, `read`, `begin`, `write`, `commit` or `remove`.
        op: &'static str,
        /// Duration.
        took: Duration,
    },
    /// An operation of a lower tier failed or timed out. For the request it counts as a miss.
    TierFailed {
        /// Name of the tier.
        tier: &'static str,
        /// Operation: `open`, `lease`, `read`, `begin`, `write`, `commit` or `remove`.
        op: &'static str,
    },
    /// The circuit breaker of the lower tier of this name opened: the tier is bypassed from now on.
    TierBypassed(&'static str),
    /// The circuit breaker of the lower tier of this name closed: the tier is used again.
    TierRestored(&'static str),
    /// An entry was not written to the lower tier of this name, because too many writes are in
    /// progress, or its head could not be encoded.
    TierSkipped(&'static str),
    /// The lower tier of this name could not record a purge of a tag, prefix, site or everything.
    /// This process applies the purge; a restarted process may return entries that it invalidated.
    PurgeNotRecorded(&'static str),
    /// This instance carried out a purge of this kind: `key`, `tag`, `prefix`, `site` or `all`.
    Purged(&'static str),
    /// A lease was requested, or a wait for another instance ended.
    Lease {
        /// Key of the flight.
        key: KeyRef<'a>,
        /// Result.
        event: LeaseEvent,
    },
    /// This instance received a purge of this kind (`key`, `tag`, `prefix`, `site` or `all`) from
    /// another instance.
    PurgeReceived(&'static str),
    /// A purge of this kind (`key`, `tag`, `prefix`, `site` or `all`) could not be published to
    /// other instances. It is retried.
    PublishFailed(&'static str),
    /// Messages of the bus may have been missed, so purges by other instances may be missing.
    BusGap,
    /// The bus is disconnected: purges by other instances are not received.
    BusDisconnected,
    /// The bus is connected: purges by other instances are received again.
    BusConnected,
    /// The lower tiers were asked about an entry of this key that a missed purge may have
    /// invalidated. `true` if one of them has a valid entry.
    UnverifiedChecked(KeyRef<'a>, bool),
}

/// Result of a request for a lease (the right of one instance to load a key), or of a wait for the
/// instance that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseEvent {
    /// This instance got the lease, and loads the key.
    Granted,
    /// No lease was needed: the shared tier has an entry that another instance stored meanwhile.
    Filled,
    /// Another instance holds the lease and loads the key. This instance waits for it.
    Elsewhere,
    /// The wait ended: the other instance has stored the entry in the shared tier.
    Woken,
    /// The wait ended: the other instance has released the lease without storing an entry, and gave
    /// a reason.
    Released,
    /// The wait ended: the key was purged, or the lease has expired.
    Freed,
    /// The wait ended by its time limit.
    Overdue,
    /// This instance lost its lease, because of a purge or because it expired: the answer is not
    /// stored.
    Withdrawn,
    /// The request for the lease failed, so that this instance loads without a lease.
    Failed,
}

impl LeaseEvent {
    /// All lease events in the order of their declaration, for tables and metrics.
    pub const ALL: [Self; 9] = [
        Self::Granted,
        Self::Filled,
        Self::Elsewhere,
        Self::Woken,
        Self::Released,
        Self::Freed,
        Self::Overdue,
        Self::Withdrawn,
        Self::Failed,
    ];

    /// Returns the name of the lease event in metrics and logs.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Filled => "filled",
            Self::Elsewhere => "elsewhere",
            Self::Woken => "woken",
            Self::Released => "released",
            Self::Freed => "freed",
            Self::Overdue => "overdue",
            Self::Withdrawn => "withdrawn",
            Self::Failed => "failed",
        }
    }
}

/// Receiver of the events of an engine, for metrics and logs.
pub trait Observer: Send + Sync + 'static {
    /// Receives an event, on the thread where it happens: it must not block.
    fn observe(&self, event: Event<'_>);
}

/// Observer that ignores all events.
impl Observer for () {
    fn observe(&self, _event: Event<'_>) {}
}
