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
        /// What it was asked to do: `open`, `read`, `begin`, `write`, `commit` or `remove`.
        op: &'static str,
        /// How long it took.
        took: Duration,
    },
    /// A lower tier failed or took too long: it counts as one that has nothing.
    TierFailed {
        /// The tier.
        tier: &'static str,
        /// What it was asked to do: `open`, `read`, `begin`, `write`, `commit` or `remove`.
        op: &'static str,
    },
    /// A lower tier has failed so often that it is left alone.
    TierOpened(&'static str),
    /// A lower tier works again.
    TierClosed(&'static str),
    /// An entry was not written to a lower tier, since as many as allowed are under way.
    TierSkipped(&'static str),
    /// A tier that outlives the process could not write down a purge of a tag, a site or
    /// everything: it holds as long as this process lives.
    PurgeNotKept(&'static str),
    /// A purge was carried out; what kind of purge.
    Purged(&'static str),
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
