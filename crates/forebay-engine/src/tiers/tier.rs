//! Levels of storage: memory, and what can stand below it.
//!
//! Memory is concrete and synchronous, since every request looks there. A lower tier is reached
//! by a hop of input and output, so it is boxed and asynchronous. It outlives the process or is
//! shared by several, and it is never trusted to be there: all it can do by failing is to make a
//! hit a miss.

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

/// An entry on its way into a tier. Dropping it without a commit leaves no trace.
pub trait Writer: Send {
    /// Adds a piece of the body.
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), TierError>>;

    /// What has been written so far, to be read by those who are behind; nothing as long as
    /// nothing of it can be. It can be read to the end, whatever becomes of the entry.
    fn draft(&self) -> Option<Arc<dyn Parts>> {
        None
    }

    /// Makes the entry visible: the body is whole.
    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), TierError>>;
}

/// Under which lease an entry is written.
#[derive(Clone, Copy, Debug)]
pub struct LeasedWrite<'a> {
    /// What the lease was asked for: its primary key, and what its flight is boarded by.
    pub primary: KeyRef<'a>,
    /// See [`Claim::boarded`](crate::tiers::lease::Claim::boarded).
    pub boarded: KeyRef<'a>,
    /// What names it.
    pub token: LeaseToken,
    /// Whether the lease is given back by the commit. Not by that of a record which only leads
    /// to the entry.
    pub is_last: bool,
}

/// An entry as a tier gives it back.
pub struct Stored {
    /// What the cache knows of it, in terms of this process's clock. Its position is not used.
    pub meta: Meta,
    /// The door's own bytes.
    pub head: Bytes,
    /// The body. Each piece is verified before it is given out.
    pub body: PieceStream,
    /// What the purges of all instances have made of it, by tag, site, prefix and all, if the tier
    /// knows.
    /// Of a tier that does not, the engine takes everything for older than any purge.
    pub vetted: Option<PurgeState>,
    /// Tells this record from what may stand in its place later. Only shared tiers need it.
    pub stamp: u64,
    /// The same body, to be read from wherever it is wanted, if the tier can do that.
    pub parts: Option<Arc<dyn Parts>>,
    /// Whether it may have been purged unheard in an earlier life of the tier. That says nothing
    /// to an engine that is joined with none.
    pub suspect: bool,
}

impl Stored {
    /// An entry of a tier that is not shared.
    #[must_use]
    pub const fn new(meta: Meta, head: Bytes, body: PieceStream) -> Self {
        Self { meta, head, body, vetted: None, stamp: 0, parts: None, suspect: false }
    }

    /// The same, whose body can be read from wherever it is wanted.
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
