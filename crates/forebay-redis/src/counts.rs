//! Counters of a Redis tier, and the state of its endpoints.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::entry::envelope::Undecodable;
use crate::error::Error;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a Redis tier since it was created.
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
    /// Reads that found an entry.
    hits,
    /// Reads that found no valid entry.
    misses,
    /// Entries stored.
    stored,
    /// Removals completed.
    removed,
    /// Bytes of values read.
    bytes_in,
    /// Bytes of values sent to Redis.
    bytes_out,
    /// Bodies larger than the limit, which were not sent.
    too_large,
    /// Values not stored because they came too late, or their entry was removed or claimed
    /// meanwhile.
    fills_refused,
    /// Writes and removals refused because the server accepts no writes.
    writes_refused,
    /// Values written by another program, or of a type other than string.
    foreign,
    /// Values of another format version.
    other_version,
    /// Values without a valid signature.
    unauthentic,
    /// Values whose claimed size exceeds a limit.
    unbelievable,
    /// Values that were truncated or damaged.
    damaged,
    /// Values whose age is unknown.
    ageless,
    /// Values of another key.
    other_key,
    /// Operations attempted while no endpoint answered.
    absent,
    /// Operations that timed out.
    timed_out,
    /// Operations whose connection broke.
    broken,
    /// Operations denied by the server's access rules.
    denied,
    /// Operations that the server was unable to complete.
    unable,
    /// Connections opened.
    connected,
    /// Read-only connections opened.
    read_connections,
    /// Leases granted to this instance.
    leases_granted,
    /// Lease requests that found another instance holding the lease.
    leases_elsewhere,
    /// Lease requests that found an entry.
    leases_filled,
    /// Leases withdrawn or expired while held by this instance.
    leases_lost,
    /// Lease requests that failed, or found data of another program.
    leases_failed,
    /// Waits for another instance that ended by timeout, without a message.
    leases_outwaited,
    /// Callers woken by a message.
    woken,
    /// Purges published to all instances.
    published,
    /// Purges published later, because the first attempt failed or its effect may be lost.
    republished,
    /// Purges received from other instances and other programs.
    purges_received,
    /// Purges requested by another program.
    purge_requests,
    /// Entries changed in Redis by another program, or replaced by another instance; counted with
    /// `tracking` only.
    changed_elsewhere,
    /// Times that purges may have been missed.
    bus_gaps,
    /// Times that the bus was silent for longer than `bus_silence_max`.
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

/// State of the bus that carries purges between the instances that share a Redis; from
/// [`Redis::sharing`](crate::Redis::sharing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharingState {
    /// True if purges of other instances are received. If not, cached entries may be outdated.
    pub bus_connected: bool,
    /// Number of instances that were alive within the last 3 seconds, including this one.
    pub instances: usize,
    /// Time since this instance last confirmed that it had missed no purge; `None` if never.
    pub lag: Option<Duration>,
}

/// State of one Redis endpoint: a server, a Cluster, or the master that Sentinels name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointState {
    /// Address of the endpoint, without user and password.
    pub address: String,
    /// True if the endpoint answers within its read timeout.
    pub is_up: bool,
    /// True if reads and writes go to this endpoint.
    pub is_used: bool,
    /// True if the endpoint refuses writes.
    pub is_read_only: bool,
    /// Number of removals and purges that the endpoint has not received yet. Entries that they
    /// affect are not read from it.
    pub pending: usize,
    /// Last failure of the endpoint since it last came up; `None` if there was none.
    pub error: Option<String>,
    /// True if wake-up messages of other instances arrive over this endpoint.
    pub receives_wakeups: bool,
    /// Cause why purges of other instances are not received over this endpoint; `None` if they are.
    pub bus_error: Option<String>,
    /// Cause why changes by other programs are not received over this endpoint; `None` if they are,
    /// or tracking is disabled.
    pub tracking_error: Option<String>,
    /// Cause why leases are suspended, so that each instance loads for itself; `None` if leases are
    /// granted.
    pub lease_error: Option<String>,
}

/// Event of a Redis tier that the operator should know. Each is sent once per change of state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The endpoint answers, for the first time or again.
    Up {
        /// Address of the endpoint.
        address: String,
    },
    /// The endpoint failed. Sent again only when the cause changes.
    Failure {
        /// Address of the endpoint.
        address: String,
        /// Cause of the failure.
        why: String,
    },
    /// Leases are suspended: each instance loads for itself. Sent once until they resume.
    LeasesUnavailable {
        /// Address of the endpoint.
        address: String,
        /// Cause of the failure.
        why: String,
    },
    /// Purges of other instances are not received over the endpoint. Sent again only when the cause
    /// changes.
    BusUnavailable {
        /// Address of the endpoint.
        address: String,
        /// Cause of the failure.
        why: String,
    },
    /// Changes by other programs are not received although tracking is enabled. Sent again only
    /// when the cause changes.
    TrackingUnavailable {
        /// Address of the endpoint.
        address: String,
        /// Cause of the failure.
        why: String,
    },
    /// Leases are granted again over the endpoint.
    LeasesAvailable {
        /// Address of the endpoint.
        address: String,
    },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Up { address } => write!(f, "server {address} answers"),
            Self::Failure { address, why } => write!(f, "server {address}: {why}"),
            Self::LeasesUnavailable { address, why } => {
                write!(
                    f,
                    "server {address}: leases are suspended, so each instance loads for itself: \
                     {why}"
                )
            }
            Self::BusUnavailable { address, why } => {
                write!(f, "server {address}: purges of other instances are not received: {why}")
            }
            Self::TrackingUnavailable { address, why } => {
                write!(f, "server {address}: changes by other programs are not received: {why}")
            }
            Self::LeasesAvailable { address } => {
                write!(f, "server {address}: leases are granted again")
            }
        }
    }
}

/// Receiver of the events of a Redis tier that the operator should know.
pub trait NoticeListener: Send + Sync + 'static {
    /// Handles one event. It is called on the connection thread or a caller's thread and must not
    /// block.
    fn notice(&self, notice: &Notice);
}

/// Ignores all events.
impl NoticeListener for () {
    fn notice(&self, _notice: &Notice) {}
}
