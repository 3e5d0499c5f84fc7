//! What a tier has done, and how its endpoints are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::envelope::Undecodable;
use crate::error::Error;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a tier has done since it was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        #[derive(Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64,)* }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counts! {
    /// Readings that found an entry.
    hits,
    /// Readings that found nothing, or nothing that is an entry.
    misses,
    /// Entries stored.
    stored,
    /// Removals carried out.
    removed,
    /// Bytes of values read.
    bytes_in,
    /// Bytes of values sent to be stored.
    bytes_out,
    /// Bodies too large to be sent.
    too_large,
    /// Values that came too late to be stored, or whose entry was removed or claimed meanwhile.
    fills_refused,
    /// Values not stored, and entries not removed, since the server takes no writes.
    writes_refused,
    /// Values of another program, or of no string type.
    foreign,
    /// Values of another version.
    other_version,
    /// Values without the right signature.
    unauthentic,
    /// Values that claimed to be larger than they may be.
    unbelievable,
    /// Values that were cut or damaged.
    damaged,
    /// Values whose age cannot be known.
    ageless,
    /// Values of another key.
    other_key,
    /// Operations while no endpoint answered.
    absent,
    /// Operations without an answer in time.
    timed_out,
    /// Operations whose connection broke.
    broken,
    /// Operations that we have no right to.
    denied,
    /// Operations that the server could not carry out.
    unable,
    /// Connections made.
    connected,
    /// Connections made that are only read over.
    read_connections,
    /// Leases granted to this instance.
    leases_granted,
    /// Leases that another instance had.
    leases_elsewhere,
    /// Askings for a lease that found an entry.
    leases_filled,
    /// Leases that were withdrawn or have expired while they were held here.
    leases_lost,
    /// Askings for a lease that failed, or found what is not ours.
    leases_failed,
    /// Waits for another instance that ended with its time, and no message.
    leases_outwaited,
    /// Callers woken by a message.
    woken,
    /// Purges told to all instances.
    published,
    /// Purges told later, since they could not be at once.
    republished,
    /// Purges of other instances, and of other programs.
    purges_received,
    /// Purges that another program has asked for.
    purge_requests,
    /// Entries that another program has removed or written over, or that another instance has
    /// stored anew, where that is asked for.
    changed_elsewhere,
    /// Times at which purges may have been missed.
    bus_gaps,
    /// Times at which nothing was heard for longer than is trusted.
    bus_lost,
}

pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

pub(crate) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn undecodable(&self, why: Undecodable) {
        use forebay_core::frame::FrameError;
        count(&self.misses);
        count(match why {
            Undecodable::Foreign => &self.foreign,
            Undecodable::OtherVersion(_) => &self.other_version,
            Undecodable::Frame(FrameError::OtherVersion(_)) => &self.other_version,
            Undecodable::Unauthentic => &self.unauthentic,
            Undecodable::Unbelievable(_) => &self.unbelievable,
            Undecodable::Ageless | Undecodable::Unstamped => &self.ageless,
            Undecodable::Frame(FrameError::OtherKey) => &self.other_key,
            Undecodable::Damaged | Undecodable::Frame(_) => &self.damaged,
        });
    }

    pub(crate) fn failure(&self, error: &Error) {
        count(match error {
            Error::Unavailable => &self.absent,
            Error::TimedOut => &self.timed_out,
            Error::ConnectionLost(_) => &self.broken,
            Error::WritesRefused(_) => &self.writes_refused,
            Error::Denied(_) => &self.denied,
            Error::Unable(_) => &self.unable,
            Error::ForeignData => &self.foreign,
            Error::Busy | Error::EvictsLeases => &self.leases_failed,
        });
    }
}

/// How sharing goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharingState {
    /// Whether purges of other instances are heard. If not, what is held here may be older.
    pub bus_connected: bool,
    /// How many instances were alive a moment ago, this one included.
    pub instances: usize,
    /// How long ago it was last certain that no purge was missed; nothing if it never was.
    pub lag: Option<Duration>,
}

/// How an endpoint is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointState {
    /// What it is called, without secrets.
    pub address: String,
    /// Whether it answers.
    pub is_up: bool,
    /// Whether it is the one that is used now.
    pub is_used: bool,
    /// Whether it takes no writes.
    pub is_read_only: bool,
    /// How many entries it still has that it must not have, and purges it was not told of. What
    /// they reach is not read.
    pub pending: usize,
    /// What is wrong with it, in one sentence; nothing since it last came up.
    pub error: Option<String>,
    /// Whether messages of other instances arrive over it.
    pub receives_wakeups: bool,
    /// Why purges of other instances are not heard over it, in one sentence.
    pub bus_error: Option<String>,
    /// Why it is not heard what other programs write there, in one sentence; nothing if it is, or
    /// was not asked for.
    pub tracking_error: Option<String>,
    /// Why loads are not shared through it, in one sentence: each instance loads for itself.
    pub lease_error: Option<String>,
}

/// Something that an operator wants to know, once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// An endpoint answers: for the first time, or again.
    Up {
        /// What it is called.
        address: String,
    },
    /// Something is wrong with an endpoint. Said once, until it is something else.
    Failure {
        /// What it is called.
        address: String,
        /// What is wrong, in one sentence.
        why: String,
    },
    /// Loads are not shared through an endpoint, and each instance loads for itself. Said once,
    /// until they are again.
    LeasesUnavailable {
        /// What it is called.
        address: String,
        /// Why, in one sentence.
        why: String,
    },
    /// Purges of other instances are not heard. Said once, until it is for another reason.
    BusUnavailable {
        /// What it is called.
        address: String,
        /// Why, in one sentence.
        why: String,
    },
    /// What other programs write is not heard, and should be. Said once, until it is for another
    /// reason.
    TrackingUnavailable {
        /// What it is called.
        address: String,
        /// Why, in one sentence.
        why: String,
    },
    /// Loads are shared through it again.
    LeasesAvailable {
        /// What it is called.
        address: String,
    },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Up { address } => write!(f, "{address} answers"),
            Self::Failure { address, why } => write!(f, "{address}: {why}"),
            Self::LeasesUnavailable { address, why } => {
                write!(f, "{address}: each instance loads for itself: {why}")
            }
            Self::BusUnavailable { address, why } => {
                write!(f, "{address}: purges of others are not heard: {why}")
            }
            Self::TrackingUnavailable { address, why } => {
                write!(f, "{address}: what other programs write is not heard: {why}")
            }
            Self::LeasesAvailable { address } => write!(f, "{address}: loads are shared again"),
        }
    }
}

/// Who tells the operator.
pub trait NoticeListener: Send + Sync + 'static {
    /// Called where it happens: it must not block.
    fn notice(&self, notice: &Notice);
}

/// Nobody is told.
impl NoticeListener for () {
    fn notice(&self, _notice: &Notice) {}
}
