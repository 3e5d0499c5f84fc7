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

/// Request for a lease.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Key that all variants share. A purge of it withdraws the leases of all of them.
    pub primary: KeyRef<'a>,
    /// Key of the flight: the primary key, or the key of a variant or a question.
    pub boarded: KeyRef<'a>,
    /// Key of the record that the tier lacked. It is read again under the lease.
    pub entry: KeyRef<'a>,
    /// [Stamp](Stored::stamp) of the unusable record that was found. `None` if there was none.
    pub seen: Option<u64>,
    /// `true` if this request is the first read of the record by the flight, and counts as one.
    pub is_look: bool,
}

/// Source of leases, shared by all instances.
///
/// Each operation has a time limit of the implementation. After an error the instance loads without
/// a lease.
pub trait Leases: Send + Sync + 'static {
    /// Requests a lease.
    fn acquire<'a>(&'a self, claim: Claim<'a>) -> BoxFuture<'a, Result<Lease, TierError>>;
}

/// Answer to a request for a lease.
pub enum Lease {
    /// The tier has a record that was not [seen](Claim::seen) before.
    Filled(Box<Stored>),
    /// The caller has the lease, and loads.
    Granted(Arc<dyn Permit>),
    /// Another instance holds the lease. The future ends when that instance has finished, or when
    /// the lease may be free. Dropping it ends the wait.
    Held(BoxFuture<'static, Woken>),
}

/// Lease as its holder sees it. The implementation renews it up to a hard limit. Dropping it
/// without a release releases it as [`Release::Abandoned`].
pub trait Permit: Send + Sync {
    /// Returns the token for [`Tier::begin_leased`](crate::Tier::begin_leased).
    fn token(&self) -> LeaseToken;

    /// Returns `true` while the lease is presumably valid. The answer of a load under a withdrawn
    /// lease is for the callers that wait already, and is stored nowhere.
    fn is_held(&self) -> bool;

    /// Moves the lease to the variant `boarded`, in one step, because the answer has variants.
    /// Instances that wait for the previous key are woken with [`Release::Vary`]. Returns `false`
    /// if the lease is no longer valid, or if another instance loads that variant: then nothing may
    /// be filled under it, but the instances are woken all the same.
    fn narrow<'a>(&'a self, boarded: KeyRef<'a>, vary: &'a Vary) -> BoxFuture<'a, bool>;

    /// Releases the lease, and tells waiting instances the reason. After a fill it has no effect.
    fn release(&self, outcome: Release) -> BoxFuture<'_, ()>;
}

/// Reason of a release without a fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// The answer may not be shared, and neither may those of the next requests like it.
    Pass {
        /// Duration of the pass marker.
        remember: Duration,
        /// Credentials of the requests that it applies to.
        credentials: Credentials,
    },
    /// The load failed, or its answer is not stored in the shared tier: each waiting instance loads
    /// for itself.
    Failed,
    /// The answer has variants. The variant of the holder is on its way. Sent only by
    /// [narrowing](Permit::narrow).
    Vary(Vary),
    /// No reason is known.
    Abandoned,
}

/// End of a wait for another instance.
pub enum Woken {
    /// The tier is filled. A small record comes along, so that it need not be read.
    Filled(Option<Box<Stored>>),
    /// The holder has released the lease for this reason.
    Released(Release),
    /// The key was purged, the lease has expired, or the reason is unknown: request the lease
    /// again.
    Again,
}
