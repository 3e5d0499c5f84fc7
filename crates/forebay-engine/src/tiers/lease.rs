//! The right to load a key, held by one of several instances at a time.
//!
//! A lease protects an origin from needless loads, and what is stored from being outrun: who has
//! it may fill, and a purge withdraws it. It is safe by absence. One that has expired, was evicted
//! or lost in a failover refuses the fill, and costs one more load; it never lets an old answer in.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{KeyRef, Vary};
use futures_util::future::BoxFuture;

use super::error::TierError;
pub use super::lease_token::LeaseToken;
use super::tier::Stored;
use crate::entry::select::Credentials;

/// What is to be loaded.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// What all variants share. A purge of it withdraws the leases of all of them.
    pub primary: KeyRef<'a>,
    /// What the flight is boarded by: the primary key, or one of a variant or of a question.
    pub boarded: KeyRef<'a>,
    /// Under which key a tier was looked into, in vain: it is looked at again under the lease.
    pub entry: KeyRef<'a>,
    /// The [stamp](Stored::stamp) of what was found there and did not do; nothing if nothing was.
    pub seen: Option<u64>,
    /// Whether nobody has looked there before for this flight: this is its reading, and counts as
    /// one.
    pub is_look: bool,
}

/// Who may load, as all instances see it.
///
/// Every operation is bounded by the implementation's own time. An error means that the others
/// cannot be asked: then this instance loads for itself.
pub trait Leases: Send + Sync + 'static {
    /// Asks for the right to load.
    fn acquire<'a>(&'a self, claim: Claim<'a>) -> BoxFuture<'a, Result<Lease, TierError>>;
}

/// What came of asking for a lease.
pub enum Lease {
    /// Something stands there by now that was not [seen](Claim::seen) before.
    Filled(Box<Stored>),
    /// The caller loads.
    Granted(Arc<dyn Permit>),
    /// Another instance loads. The future ends when that one is through, or when the right to
    /// load may have become free. Dropping it ends the waiting.
    Elsewhere(BoxFuture<'static, Woken>),
}

/// The right to load, held. It is kept up behind its holder's back until its hard limit; dropping
/// it without a release gives it back as [`Outcome::Abandoned`].
pub trait Permit: Send + Sync {
    /// What [`Tier::begin_leased`](crate::Tier::begin_leased) is told.
    fn token(&self) -> LeaseToken;

    /// Whether it is still believed to stand. What is loaded under a lease that was withdrawn is
    /// for those who wait already, and is stored nowhere.
    fn is_held(&self) -> bool;

    /// The answer has variants: from here on the lease is for the one that is `boarded`, in one
    /// step, and those who wait elsewhere for what it was for until now are woken by
    /// [`Outcome::Vary`]. `false` if it stands no more, or another instance loads that variant:
    /// then nothing may be filled under it, but they are told all the same.
    fn narrow<'a>(&'a self, boarded: KeyRef<'a>, vary: &'a Vary) -> BoxFuture<'a, bool>;

    /// Gives it back, and tells those who wait elsewhere what came of it. After a fill there is
    /// nothing left to give back.
    fn release(&self, outcome: Outcome) -> BoxFuture<'_, ()>;
}

/// What came of a load that is not, or not yet, to be found in a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer may not be shared, and those of the next requests like it will not be.
    Pass {
        /// For how long that is remembered.
        remember: Duration,
        /// Of whose requests.
        credentials: Credentials,
    },
    /// The load failed, or what it brings does not go into what is shared: whoever waits loads for
    /// itself.
    Failed,
    /// The answer has variants. That of the lease's holder is on its way. Only
    /// [narrowing](Permit::narrow) says so.
    Vary(Vary),
    /// Nothing is known.
    Abandoned,
}

/// Why a wait for another instance has ended.
pub enum Woken {
    /// It is filled. Small values come along, so that nobody has to read them.
    Filled(Option<Box<Stored>>),
    /// Its holder has given it back, and said why.
    Released(Outcome),
    /// It was purged, it has expired, or nobody knows: ask again.
    Again,
}
