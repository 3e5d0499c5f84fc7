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
    /// Reads that found a valid entry, fresh or stale. Each key of a batch counts.
    hits,
    /// Reads that found no valid entry: none, a purged one, or a value that is not an entry of the
    /// key. Failed reads do not count.
    misses,
    /// Entries stored.
    stored,
    /// Removals of single keys that the endpoint in use completed, also if nothing was stored.
    /// Purges that are published to other instances, and later removals on other endpoints, do not
    /// count.
    removed,
    /// Bytes of values received from Redis, as they are stored there.
    bytes_in,
    /// Bytes of values sent to Redis, also of values that it did not store.
    bytes_out,
    /// Entries not sent because the body is larger than `object_max`, or head and key together are
    /// larger than both 512 KiB and `object_max`. The head of a library entry is its value.
    too_large,
    /// Values not stored because of an event since their load began: a purge of the entry, another
    /// writer, the end of the lease, or a newer version. Also values whose name has data of another
    /// program.
    fills_refused,
    /// Writes, removals and lease requests refused because the server accepts no writes; also those
    /// not tried in the second after a refusal.
    writes_refused,
    /// Values that another program wrote or that are no strings, and invalid messages on the bus or
    /// the wake-up channel.
    foreign,
    /// Values of another format version.
    other_version,
    /// Values whose signature is missing or invalid, or present although this tier has no key.
    unauthentic,
    /// Values whose claimed uncompressed size exceeds the size limit, or 256 times the stored size.
    unbelievable,
    /// Values that were truncated or damaged.
    damaged,
    /// Values whose age is unknown, because another program changed their TTL or the server's clock
    /// went back.
    ageless,
    /// Values of another key.
    other_key,
    /// Operations attempted while no endpoint answered.
    absent,
    /// Operations that timed out, or that their caller gave up.
    timed_out,
    /// Operations whose connection broke.
    broken,
    /// Operations denied by the server's access rules.
    denied,
    /// Operations to which the server replied with another error, for example while it loads its
    /// data.
    unable,
    /// Main connections opened, one for each endpoint and reconnect. Read-only connections, and
    /// those of the bus reader and of tracking, do not count.
    connected,
    /// Read-only connections opened.
    read_connections,
    /// Leases granted to this instance.
    leases_granted,
    /// Lease requests that found another instance holding the lease.
    leases_elsewhere,
    /// Lease requests that found a valid entry. A request that is also the first lookup of the key
    /// counts as a hit instead.
    leases_filled,
    /// Leases that this instance could not renew, because they were withdrawn or had expired.
    leases_lost,
    /// Lease requests that failed, reached a limit, or found data of another program; and detected
    /// evictions of leases. Requests that are skipped while leases are suspended do not count.
    leases_failed,
    /// Waits for another instance that ended by timeout, without a message.
    leases_outwaited,
    /// Callers woken by a message.
    woken,
    /// Purges and versions that this instance published to all instances at the first attempt.
    published,
    /// Purges published later, because the first attempt failed or its effect may be lost.
    republished,
    /// Purges received from other instances and other programs.
    purges_received,
    /// Attempts of this instance to carry out a purge that another program requested. Each instance
    /// carries out each request.
    purge_requests,
    /// Entries changed in Redis by another program, or replaced by another instance; counted with
    /// `tracking` only.
    changed_elsewhere,
    /// Times that purges, or changes by other programs, may have been missed. The first connection
    /// counts, unless a saved position proves that nothing was missed.
    bus_gaps,
    /// Times that the bus was silent for longer than `bus_silence_max`, or that tracking stopped.
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
    /// True if purges of other instances are received and, with `tracking`, changes by other
    /// programs too. If not, cached entries may be outdated.
    pub bus_connected: bool,
    /// Number of instances, including this one, that were alive in the 3 seconds before the last
    /// check of the bus; 0 before the first check.
    pub instances: usize,
    /// Time since this instance last confirmed that it had missed no purge; `None` if never.
    pub lag: Option<Duration>,
}

/// State of one Redis endpoint: a server, a Cluster, or the master that Sentinels name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointState {
    /// Address of the endpoint, without user and password.
    pub address: String,
    /// True if the endpoint answers within its read timeout. False for the rest of the process once
    /// more than 10,000 removals were pending: it could return entries that were removed.
    pub is_up: bool,
    /// True if reads and writes go to this endpoint: it is the first one that is up.
    pub is_used: bool,
    /// True if the endpoint refused the last write, and none has succeeded since.
    pub is_read_only: bool,
    /// Number of removals and purges that the endpoint has not received yet. Entries that they
    /// affect are not read from it.
    pub pending: usize,
    /// Last failure of the endpoint since it last came up; `None` if there was none.
    pub error: Option<String>,
    /// True if wake-up messages of other instances arrive over this endpoint.
    pub receives_wakeups: bool,
    /// Cause why purges of other instances are not received over this endpoint. `None` if they are,
    /// or if they were never requested: the endpoint was never in use, or purges are not shared.
    pub bus_error: Option<String>,
    /// Cause why changes by other programs are not received over this endpoint. `None` if they are,
    /// or if they are not requested: the endpoint is not in use, or tracking is disabled.
    pub tracking_error: Option<String>,
    /// Cause why leases are suspended, so that each instance loads for itself. `None` if leases are
    /// not suspended, or if no lease was ever requested from this endpoint.
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
    /// The endpoint failed, or refused an operation. Sent again only when the cause changes, or
    /// after the endpoint came up again.
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
    /// The endpoint answers, but purges of other instances are not received over it. Sent again
    /// only when the cause changes. For a timeout or a lost connection, `Failure` is sent instead.
    BusUnavailable {
        /// Address of the endpoint.
        address: String,
        /// Cause of the failure.
        why: String,
    },
    /// Changes by other programs are not received although tracking is enabled, so the bus counts
    /// as disconnected. Sent again only when the cause changes.
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
                write!(
                    f,
                    "server {address}: purges of other instances are not received: {why}; until \
                     they are, stored entries count as unverified"
                )
            }
            Self::TrackingUnavailable { address, why } => {
                write!(
                    f,
                    "server {address}: changes by other programs are not received: {why}; until \
                     they are, stored entries count as unverified"
                )
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
