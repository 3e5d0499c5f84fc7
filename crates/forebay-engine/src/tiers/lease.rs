//! Leases: the right to load a key, held by one of several instances at a time.
//!
//! A lease protects the origin from duplicate loads, and stored entries from being replaced by
//! older ones: only its holder may fill the shared tier, and a purge withdraws it. A lost lease is
//! safe: a lease that has expired, was evicted or lost in a failover refuses the fill and costs one
//! more load, but never stores an old answer.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{KeyRef, Vary};
use futures_util::future::BoxFuture;

use super::error::TierError;
pub use super::lease_token::LeaseToken;
use super::tier::Stored;
use crate::entry::select::Credentials;

/// Mark of a load: text of its front end, which instances get that wait for its lease. It has printable
/// ASCII characters, no spaces, and at most 64 of them.
pub type LoadMark = Box<str>;

/// Request for a lease: the right of one instance at a time to load a key.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Primary key of the entry, which all its variants share. A purge of it withdraws the leases
    /// of all variants.
    pub primary: KeyRef<'a>,
    /// Key that callers join the flight by: the primary key, the key of one variant, or that of a
    /// question about an entry.
    pub flight_key: KeyRef<'a>,
    /// Key of the record that is read together with the request: it was missing or unusable before,
    /// or was not read yet (`is_look`).
    pub entry: KeyRef<'a>,
    /// [Stamp](Stored::stamp) of the unusable record that was found. `None` if there was none.
    pub seen: Option<u64>,
    /// `true` if this request is the first read of the record by the flight, and counts as one.
    pub is_look: bool,
    /// Mark of the load, for instances that wait for it. It is dropped if it is malformed.
    pub mark: Option<&'a str>,
}

/// Source of leases that all instances share. A lease is the right of one instance at a time to
/// load a key.
///
/// The implementation limits the time of each operation. After an error, the instance loads without
/// a lease.
pub trait Leases: Send + Sync + 'static {
    /// Requests the lease of a key.
    fn acquire<'a>(&'a self, claim: Claim<'a>) -> BoxFuture<'a, Result<Lease, TierError>>;
}

/// Answer to a request for a lease.
pub enum Lease {
    /// No lease is needed: the tier has a record that the instance had not [seen](Claim::seen)
    /// before.
    Filled(Box<Stored>),
    /// The instance has the lease, and loads the key.
    Granted(Arc<dyn Permit>),
    /// Another instance holds the lease, for a load with this mark. The future ends when that
    /// instance has finished, or when the lease may be free; dropping the future ends the wait.
    Held(BoxFuture<'static, Woken>, Option<LoadMark>),
}

/// Lease as the instance sees it that holds it. The implementation renews it up to a hard limit.
/// Dropping a permit without a release counts as [`Release::Abandoned`].
pub trait Permit: Send + Sync {
    /// Returns the token of the lease, for [`Tier::begin`](crate::Tier::begin).
    fn token(&self) -> LeaseToken;

    /// Returns `true` while the lease is presumably valid. The answer of a load under a withdrawn
    /// lease is for the callers that wait already, and is stored nowhere.
    fn is_held(&self) -> bool;

    /// Moves the lease to the variant `flight_key`, in one step, because the answer has variants.
    /// Instances that wait for the previous key are woken with [`Release::Vary`]. Returns `false`
    /// if the lease is no longer valid, or if another instance loads that variant: then nothing may
    /// be filled under it, but the instances are woken all the same.
    fn narrow<'a>(&'a self, flight_key: KeyRef<'a>, vary: &'a Vary) -> BoxFuture<'a, bool>;

    /// Releases the lease without storing an entry, and tells waiting instances the reason. It has
    /// no effect after the entry was stored.
    fn release(&self, outcome: Release) -> BoxFuture<'_, ()>;
}

/// Reason why an instance released a lease without storing an entry in the shared tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// The answer may not be shared, and answers to the next requests for the key probably neither.
    Pass {
        /// Duration of the pass marker.
        remember: Duration,
        /// Credentials of the requests that it applies to.
        credentials: Credentials,
    },
    /// The load failed, or its answer is not stored in the shared tier: each waiting instance loads
    /// the key itself.
    Failed,
    /// The answer has variants, selected by these fields, and the holder now loads only its own
    /// variant. Sent only by [`Permit::narrow`].
    Vary(Vary),
    /// The holder gave another reason or none: for example a purge, or a load that did not start or
    /// panicked. Waiting instances request the lease again.
    Abandoned,
}

/// End of a wait for another instance that held the lease of a key.
pub enum Woken {
    /// The other instance has stored the entry in the shared tier. A small record is delivered with
    /// the message, so that it need not be read.
    Filled(Option<Box<Stored>>),
    /// The other instance has released the lease without storing an entry, for this reason.
    Released(Release),
    /// The key was purged, the lease has expired, or the reason is unknown: the lease must be
    /// requested again.
    Again,
}
