//! Events of the engine: its only telemetry.

use std::time::Duration;

use forebay_core::KeyRef;

/// Event that no caller learns from its answer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// End of a load: the head of its answer, or an error.
    Loaded {
        /// Key of the load.
        key: KeyRef<'a>,
        /// Result: `stored`, `unchanged`, `pass`, `failed`, or the code of a load error.
        result: &'static str,
        /// Duration.
        cost: Duration,
    },
    /// Body that broke off before its end. The entry stored before stays.
    BodyBroken(KeyRef<'a>),
    /// Body larger than memory can keep: it is streamed, and stored only where a lower tier accepts
    /// it.
    BodyOutgrown(KeyRef<'a>),
    /// Load that waits for memory of bodies in flight.
    LoadWaits(KeyRef<'a>),
    /// Load that was refused, because no memory became free in time.
    LoadRefused(KeyRef<'a>),
    /// Body without memory to grow in time: it is streamed to its readers, and not stored in
    /// memory.
    BodyNotAdmitted(KeyRef<'a>),
    /// Number of bodies dropped, which had left memory and whose readers had stopped while others
    /// waited for memory.
    BodiesDropped(usize),
    /// Background refresh that was skipped, because too many are in progress.
    RefreshSkipped(KeyRef<'a>),
    /// Request during the back-off of its key, for which no load was started.
    BackingOff(KeyRef<'a>),
    /// Stale answer because a load is slow. The load continues.
    SoftTimeout(KeyRef<'a>),
    /// End of an operation of a lower tier, or of its time limit.
    TierCalled {
        /// Name of the tier.
        tier: &'static str,
        /// Operation: `open`, `lease`, `read`, `begin`, `write`, `commit` or `remove`.
        op: &'static str,
        /// Duration.
        took: Duration,
    },
    /// Failure of a lower tier. It counts as a miss.
    TierFailed {
        /// Name of the tier.
        tier: &'static str,
        /// Operation: `open`, `lease`, `read`, `begin`, `write`, `commit` or `remove`.
        op: &'static str,
    },
    /// Lower tier whose circuit breaker has opened: it is bypassed.
    TierBypassed(&'static str),
    /// Lower tier whose circuit breaker has closed.
    TierRestored(&'static str),
    /// Entry not written to a lower tier, because too many writes are in progress, or its head
    /// could not be encoded.
    TierSkipped(&'static str),
    /// Tier that could not record a purge of a tag, a site or everything: the purge holds as long
    /// as this process lives.
    PurgeNotRecorded(&'static str),
    /// Purge of this kind by this instance.
    Purged(&'static str),
    /// Lease request of a flight, or its result.
    Lease {
        /// Key of the flight.
        key: KeyRef<'a>,
        /// Result.
        event: LeaseEvent,
    },
    /// Purge of this kind by another instance.
    PurgeReceived(&'static str),
    /// Purge of this kind that could not be published yet.
    PublishFailed(&'static str),
    /// Gap in the bus: messages may have been missed.
    BusGap,
    /// Bus disconnected.
    BusDisconnected,
    /// Bus connected.
    BusConnected,
    /// Unverified entry that was checked in the lower tiers. `true` if a tier has a valid one.
    UnverifiedChecked(KeyRef<'a>, bool),
}

/// Result of a lease request or of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseEvent {
    /// This instance has the lease, and loads.
    Granted,
    /// The shared tier is filled.
    Filled,
    /// Another instance loads. This one waits.
    Elsewhere,
    /// The other instance has filled the shared tier.
    Woken,
    /// The other instance has released the lease with a reason.
    Released,
    /// The key was purged, or the lease has expired.
    Freed,
    /// The other instance took too long.
    Overdue,
    /// The lease was withdrawn: the answer may not be stored.
    Withdrawn,
    /// The request failed.
    Failed,
}

impl LeaseEvent {
    /// All values in the order of declaration, for tables and metrics.
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

    /// Returns the name in metrics and logs.
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

/// Receiver of events.
pub trait Observer: Send + Sync + 'static {
    /// Receives an event, on the thread where it happens: it must not block.
    fn observe(&self, event: Event<'_>);
}

/// Observer that ignores all events.
impl Observer for () {
    fn observe(&self, _event: Event<'_>) {}
}
