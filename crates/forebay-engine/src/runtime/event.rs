//! What happens inside the engine, for whoever counts it: the engine's only telemetry.

use std::time::Duration;

use forebay_core::KeyRef;

/// Something that happened and that no caller's answer tells.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A load came to its head, or failed.
    Loaded {
        /// The key it was for.
        key: KeyRef<'a>,
        /// What came: `stored`, `unchanged`, `pass`, `failed`, or the code of a load error.
        result: &'static str,
        /// How long it took.
        cost: Duration,
    },
    /// A body broke off before its end; what was stored before stays.
    BodyBroken(KeyRef<'a>),
    /// A body is larger than memory can keep: it is passed on, and stored only where a lower tier
    /// takes it.
    BodyOutgrown(KeyRef<'a>),
    /// A load has to wait until bodies in flight make room.
    LoadWaits(KeyRef<'a>),
    /// A load was refused, since no body in flight made room for it in time.
    LoadRefused(KeyRef<'a>),
    /// A body found no room to be kept in time: it is passed on to those aboard, and not stored in
    /// memory.
    BodyCrowdedOut(KeyRef<'a>),
    /// So many bodies that had left memory were let go of, since their readers stood still while
    /// others waited for room.
    BodiesLetGo(usize),
    /// A background refresh was left out, since as many as allowed are under way.
    RefreshSkipped(KeyRef<'a>),
    /// Nothing was loaded, since a load for this key failed a moment ago.
    HeldBack(KeyRef<'a>),
    /// A load takes long: a stale answer was given, and the load goes on.
    SoftTimeout(KeyRef<'a>),
    /// A lower tier has come to the end of an operation, or of the time for it.
    TierAsked {
        /// The tier.
        tier: &'static str,
        /// What it was asked to do: `open`, `lease`, `read`, `begin`, `write`,
        /// `commit` or `remove`.
        op: &'static str,
        /// How long it took.
        took: Duration,
    },
    /// A lower tier failed or took too long: it counts as one that has nothing.
    TierFailed {
        /// The tier.
        tier: &'static str,
        /// What it was asked to do: `open`, `lease`, `read`, `begin`, `write`,
        /// `commit` or `remove`.
        op: &'static str,
    },
    /// A lower tier has failed so often that it is left alone.
    TierOpened(&'static str),
    /// A lower tier works again.
    TierClosed(&'static str),
    /// An entry was not written to a lower tier, since as many as allowed are under way, or since
    /// its head could not be written anew.
    TierSkipped(&'static str),
    /// A tier that outlives the process could not write down a purge of a tag, a site or
    /// everything: it holds as long as this process lives.
    PurgeNotKept(&'static str),
    /// A purge was carried out; what kind of purge.
    Purged(&'static str),
    /// A flight has asked which instance loads, or is told.
    Lease {
        /// The key it is for.
        key: KeyRef<'a>,
        /// What came of it.
        came: LeaseCame,
    },
    /// Another instance has purged something; what kind of purge.
    Noticed(&'static str),
    /// Other instances could not be told of a purge yet; what kind of purge.
    PublishFailed(&'static str),
    /// Messages of other instances may have been missed.
    BusGap,
    /// Other instances are not heard any more.
    BusLost,
    /// Other instances are heard.
    BusHeard,
    /// A suspect entry was looked at anew, and stands in what is shared, or does not.
    SuspectChecked(KeyRef<'a>, bool),
}

/// What came of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseCame {
    /// This instance loads.
    Granted,
    /// The answer stands in what is shared by now.
    Filled,
    /// Another instance loads, and is waited for.
    Elsewhere,
    /// That one has filled it.
    Woken,
    /// That one has given it back, with a reason.
    Released,
    /// It was purged or has expired meanwhile.
    Freed,
    /// That one took too long.
    Overdue,
    /// What was loaded under it may not be stored.
    Withdrawn,
    /// Nobody could be asked.
    Failed,
}

impl LeaseCame {
    /// Each of them, in the order of declaration; for tables and metrics.
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

    /// What it is called in metrics and logs.
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

/// Who counts.
pub trait Observer: Send + Sync + 'static {
    /// Called where it happens: it must not block.
    fn observe(&self, event: Event<'_>);
}

/// Nobody counts.
impl Observer for () {
    fn observe(&self, _event: Event<'_>) {}
}
