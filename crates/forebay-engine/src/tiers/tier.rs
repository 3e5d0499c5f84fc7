//! The tier trait: storage below memory.
//!
//! A lower tier is boxed and asynchronous, because each call is an input or output operation. It
//! outlives the process or is shared by several. It may fail at any time: a failure turns a hit
//! into a miss, and nothing more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Meta, Purge, PurgeState};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, try_join_all};

use super::bookmark::{Bookmark, Chain};
use super::error::TierError;
use super::lease_token::LeaseToken;
use crate::entry::body::{Parts, PieceStream};

/// A storage tier below memory, such as a disk or a Redis.
///
/// The engine drops the future of an operation that exceeds the tier's [`Budget`]. A dropped
/// operation must be complete or have no effect: if an entry became visible after the future of its
/// `commit` was dropped, a purge could miss it.
pub trait Tier: Send + Sync + 'static {
    /// Name of the tier in metrics, logs and responses: one lower-case word.
    fn name(&self) -> &'static str;

    /// Time limits of the operations. An operation that exceeds its limit has failed; after several
    /// failures the circuit breaker bypasses the tier for a while.
    fn budget(&self) -> Budget {
        Budget::default()
    }

    /// Returns `true` if the tier stores entries of this key. Otherwise the engine skips the tier
    /// and ignores its failures for the key. Called for each miss in memory: it must be cheap, and
    /// constant for a key.
    fn takes(&self, _primary: KeyRef<'_>) -> bool {
        true
    }

    /// Reads the entry of exactly this key. A record that is corrupt, in an unknown format, or of
    /// another key counts as missing.
    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>>;

    /// Reads the entries of several keys, in the order of the keys, if possible in one exchange. One
    /// failure fails all of them.
    fn open_many<'a>(
        &'a self,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Vec<Option<Stored>>, TierError>> {
        try_join_all(keys.iter().map(|key| self.open(key.borrowed()))).boxed()
    }

    /// Starts to write an entry. The previous entry of the key stays visible until the commit.
    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>>;

    /// Starts to write an entry, given by its metadata and its head, under a [lease](crate::tiers::lease).
    /// The commit makes it visible only if the lease is still valid, and releases the lease. Tiers
    /// that are not shared ignore it.
    fn begin_leased<'a>(
        &'a self,
        key: KeyRef<'a>,
        (meta, head): (&'a Meta, &'a Bytes),
        _lease: LeasedWrite<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        self.begin(key, meta, head)
    }

    /// Starts to write an entry that was put and not loaded. It was created now, so earlier purges
    /// do not apply to it. Tiers that are not shared need no distinction.
    fn begin_put<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        self.begin(key, meta, head)
    }

    /// Returns `true` if other instances use the same entries. The [bus](crate::tiers::bus) purges shared
    /// entries.
    fn is_shared(&self) -> bool {
        false
    }

    /// Removes the entry of exactly this key. Returns `false` if there was none.
    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>>;

    /// Records a purge of more than one key, by this instance or another. The engine has applied it
    /// in this process already. A tier that survives the process must not return older entries in
    /// the next process. Not called for shared tiers, which the [bus](crate::tiers::bus) purges; other tiers
    /// need no implementation.
    fn purge<'a>(&'a self, _what: &'a Purge) -> BoxFuture<'a, Result<(), TierError>> {
        async { Ok(()) }.boxed()
    }

    /// Returns `true` if the tier never returns an entry that is older than a [recorded
    /// purge](Self::purge) of it, also in this process. Entries of other tiers count as purged if a
    /// recorded purge could have affected them.
    fn carries_out_purges(&self) -> bool {
        false
    }

    /// Returns the last stored bookmark, of this process or an earlier one. Not called for shared
    /// tiers.
    fn bookmark(&self) -> Option<Bookmark> {
        None
    }

    /// Stores a bookmark: all purges of the [bus](crate::tiers::bus) before it are applied here. If the
    /// chain is broken, the next process must return the entries that the tier holds now as
    /// [suspect](Stored::suspect). A tier that does not survive the process needs no implementation.
    fn keep_bookmark<'a>(
        &'a self,
        _bookmark: &'a Bookmark,
        _chain: Chain,
    ) -> BoxFuture<'a, Result<(), TierError>> {
        async { Ok(()) }.boxed()
    }

    /// Returns `true` if readers can read a body while it is being written: see
    /// [`Writer::draft`].
    fn has_drafts(&self) -> bool {
        false
    }
}

/// Time limits of a tier's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Limit for finding an entry and starting to return its body. A call waits for it.
    pub read: Duration,
    /// Limit for each step of a write or a removal. No call waits for a write.
    pub write: Duration,
}

impl Default for Budget {
    /// 50 ms for reads: less than a person notices, more than a healthy tier needs. 100 ms for
    /// writes.
    fn default() -> Self {
        Self { read: Duration::from_millis(50), write: Duration::from_millis(100) }
    }
}

/// Write of an entry. Dropping it without a commit has no effect.
pub trait Writer: Send {
    /// Appends a piece of the body.
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), TierError>>;

    /// Returns the part written so far, for readers that have fallen behind, or `None` if nothing
    /// can be read. It stays readable to its end, whatever becomes of the entry.
    fn draft(&self) -> Option<Arc<dyn Parts>> {
        None
    }

    /// Makes the complete entry visible.
    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), TierError>>;
}

/// Lease of a write.
#[derive(Clone, Copy, Debug)]
pub struct LeasedWrite<'a> {
    /// Primary key of the lease.
    pub primary: KeyRef<'a>,
    /// Key of the flight: see [`Claim::boarded`](crate::lease::Claim::boarded).
    pub boarded: KeyRef<'a>,
    /// Identity of the lease.
    pub token: LeaseToken,
    /// `true` if the commit releases the lease. `false` for a record that only leads to the entry.
    pub is_last: bool,
}

/// Entry as a tier returns it.
pub struct Stored {
    /// Metadata, in terms of the clock of this process. Its position is not used.
    pub meta: Meta,
    /// Bytes of the front end.
    pub head: Bytes,
    /// Body. Each piece is verified before it is returned.
    pub body: PieceStream,
    /// Effect of the purges of all instances, by tag, site, prefix and all, if the tier knows it.
    /// An entry of another tier counts as older than every purge.
    pub vetted: Option<PurgeState>,
    /// Identity of this record among those of its key. Only shared tiers need it.
    pub stamp: u64,
    /// Random access to the body, if the tier supports it.
    pub parts: Option<Arc<dyn Parts>>,
    /// `true` if the entry may have missed a purge in an earlier process. Ignored by an engine
    /// without other instances.
    pub suspect: bool,
}

impl Stored {
    /// Creates an entry of a tier that is not shared.
    #[must_use]
    pub const fn new(meta: Meta, head: Bytes, body: PieceStream) -> Self {
        Self { meta, head, body, vetted: None, stamp: 0, parts: None, suspect: false }
    }

    /// Adds random access to the body.
    #[must_use]
    pub fn with_parts(mut self, parts: Arc<dyn Parts>) -> Self {
        self.parts = Some(parts);
        self
    }
}

/// Treatment of a failed read of a lower tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TierErrors {
    /// The failure counts as a miss, and the call loads.
    #[default]
    Graceful,
    /// The call fails if no other tier has the entry. It does not load.
    Strict,
}
