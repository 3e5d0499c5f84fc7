//! Events of the engine: its only telemetry.

use std::time::Duration;

use forebay_core::KeyRef;

/// Event in an engine, for metrics and logs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A load got the head of its answer, failed, or could not start. A load that its request
    /// forbids ([`NotCached`](crate::LoadError::NotCached)) is not reported.
    Loaded {
        /// Key of the load.
        key: KeyRef<'a>,
        /// Result: `stored` (an answer that may be shared), `unchanged`, `absent`, `pass`, `failed`
        /// (an error response), or the [code](crate::LoadError::code) of a load error.
        result: &'static str,
        /// Time from the start of the load to the head of its answer or to its failure; zero if it
        /// did not start.
        cost: Duration,
    },
    /// The body of an answer for this key ended early. The entry stored before stays.
    BodyBroken(KeyRef<'a>),
    /// The body of an answer for this key is larger than memory can keep. It is streamed to its
    /// readers, and stored only in lower tiers that accept it.
    BodyOutgrown(KeyRef<'a>),
    /// A load of this key waits, because the memory for bodies in flight is used up.
    LoadWaits(KeyRef<'a>),
    /// A load of this key was refused, because no memory for its body became free in time, or too
    /// many loads and bodies were waiting for memory.
    LoadRefused(KeyRef<'a>),
    /// The body of an answer for this key found no memory to grow. It is streamed to its readers,
    /// and not stored in memory.
    BodyNotAdmitted(KeyRef<'a>),
    /// This number of bodies was dropped to free memory that others waited for: memory did not
    /// store them any more, or not yet, and their readers had stopped or were slow.
    BodiesDropped(usize),
    /// A background refresh of this key was not started, because too many are in progress.
    RefreshSkipped(KeyRef<'a>),
    /// A request for this key started no load or refresh, because the last loads of the key failed.
    BackingOff(KeyRef<'a>),
    /// A caller got a stale entry of this key, because its load is slow, or waits too long for
    /// another instance. The load continues.
    SoftTimeout(KeyRef<'a>),
    /// An operation of a lower tier ended, or reached its time limit.
    TierCalled {
        /// Name of the tier.
        tier: &'static str,
        /// Operation: `open`, `lease`, `read`, `begin`, `write`, `commit` or `remove`.
        op: &'static str,
        /// Duration of the operation, or the time until its limit.
        took: Duration,
    },
    /// An operation of a lower tier failed or timed out. A failed read counts as a miss, unless the
    /// request demands [strict tier errors](crate::TierErrors::Strict). A failed request for a
    /// lease is reported only if it timed out.
    TierFailed {
        /// Name of the tier.
        tier: &'static str,
        /// Operation: `open`, `lease`, `read`, `begin`, `write`, `commit` or `remove`.
        op: &'static str,
    },
    /// The circuit breaker for reads of the lower tier of this name opened: the tier is bypassed
    /// from now on. The circuit breaker for writes is not reported.
    TierBypassed(&'static str),
    /// The circuit breaker for reads of the lower tier of this name closed: the tier is used again.
    TierRestored(&'static str),
    /// An entry was not written to the lower tier of this name, because too many writes are in
    /// progress, or its head could not be encoded.
    TierSkipped(&'static str),
    /// The lower tier of this name could not record a purge of a tag, prefix, site or everything.
    /// This process applies the purge; a restarted process may return entries that it invalidated.
    PurgeNotRecorded(&'static str),
    /// This instance carried out a purge of this kind (`key`, `tag`, `prefix`, `site` or `all`)
    /// that one of its callers requested.
    Purged(&'static str),
    /// A lease was requested or lost, or a wait for another instance ended.
    Lease {
        /// Key of the flight.
        key: KeyRef<'a>,
        /// Result of the request or of the wait, or the loss of the lease.
        event: LeaseEvent,
    },
    /// This instance received a purge of this kind (`key`, `tag`, `prefix`, `site` or `all`) over
    /// the bus: of another instance, or because another program changed a shared entry.
    PurgeReceived(&'static str),
    /// A purge of this kind (`key`, `tag`, `prefix`, `site` or `all`) could not be published to
    /// other instances. It is retried.
    PublishFailed(&'static str),
    /// The [self-check](crate::Engine::check_purges) found an entry of this key that a purge should
    /// have removed or made stale.
    PurgedEntryFound(KeyRef<'a>),
    /// Messages of the bus may have been missed, so purges by other instances may be missing.
    BusGap,
    /// The bus is disconnected: purges by other instances are not received.
    BusDisconnected,
    /// The bus is connected: purges by other instances are received from now on.
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
    /// Another instance holds the lease and loads the key. This instance waits for it, or, if its
    /// request does not allow that, loads without a lease.
    Elsewhere,
    /// The wait ended: the other instance has stored the entry in the shared tier.
    Woken,
    /// The wait ended: the other instance has released the lease without storing an entry, and gave
    /// a reason.
    Released,
    /// The wait ended: the key was purged, the lease has expired, or the reason is unknown. The
    /// lease is requested again.
    Freed,
    /// The wait ended by its time limit, or the lease was requested eight times in vain.
    Overdue,
    /// This instance lost its lease, because of a purge, because it expired, or because another
    /// instance loads the same variant: the answer is not stored.
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

    /// Returns the name of the lease event in metrics, such as `granted`.
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

/// Lookup of a load in a lower tier, or a read there of the entry that it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierCall {
    /// Name of the tier.
    pub tier: &'static str,
    /// Operation: `open` (lookup), `lease` (lookup that also requests the lease) or `read` (body).
    pub op: &'static str,
    /// Result: `hit`, `miss`, or the [code](crate::TierError::code) of a failure.
    pub result: &'static str,
    /// Duration of the operation, or the time until its limit.
    pub took: Duration,
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
