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
    /// Returns the name of the tier in metrics, logs and responses: one lower-case word, such as
    /// `disk`.
    fn name(&self) -> &'static str;

    /// Returns the time limits of the tier's operations. An operation that exceeds its limit has
    /// failed; after several failures the circuit breaker bypasses the tier for a while.
    fn budget(&self) -> Budget {
        Budget::default()
    }

    /// Reads the entry that is stored under exactly this key; `None` if there is none. A record
    /// that is corrupt, in an unknown format, or of another key counts as none.
    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>>;

    /// Reads an entry as [`open`](Self::open) does, for a report. A tier that counts reads, or keeps
    /// entries longer that are read, does neither here.
    fn peek<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        self.open(key)
    }

    /// Reads the entries of several keys, in the order of the keys, if possible in one exchange. If
    /// one read fails, the result is an error for all keys.
    fn open_many<'a>(
        &'a self,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Vec<Option<Stored>>, TierError>> {
        try_join_all(keys.iter().map(|key| self.open(key.borrowed()))).boxed()
    }

    /// Starts to write an entry, given by its metadata and its head. The previous entry of the key
    /// stays visible until the commit. A tier that is not shared may ignore the mode.
    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
        mode: WriteMode<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>>;

    /// Returns `true` if other instances use the same entries. The [bus](crate::tiers::bus) purges
    /// shared entries.
    fn is_shared(&self) -> bool {
        false
    }

    /// Removes the entry that is stored under exactly this key. Returns `false` if there was none.
    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>>;

    /// Records a purge of more than one key, by this instance or another, soft or hard. The engine
    /// has applied it in this process already. A tier that survives the process must not return
    /// older entries that the purge affects in the next process; other tiers need no
    /// implementation. Not called for a shared tier if a [bus](crate::tiers::bus) purges it.
    fn purge<'a>(&'a self, _what: &'a Purge) -> BoxFuture<'a, Result<(), TierError>> {
        async { Ok(()) }.boxed()
    }

    /// Records a soft purge of more than one key, as [`purge`](Self::purge) does. A tier that cannot
    /// return an entry as [softened](Stored::softened) carries it out as a hard one.
    fn soft_purge<'a>(&'a self, what: &'a Purge) -> BoxFuture<'a, Result<(), TierError>> {
        self.purge(what)
    }

    /// Makes the entry of a primary key and its variants stale, so that they are returned as
    /// [softened](Stored::softened), also in later processes. Returns `false` if there was no entry
    /// under exactly this key. Called only if the tier [carries out soft
    /// purges](Self::carries_out_soft_purges).
    fn soften<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        self.remove(key)
    }

    /// Returns `true` if the tier returns entries that are older than a recorded soft purge as
    /// [softened](Stored::softened). A shared tier returns `true` if its [bus](crate::tiers::bus)
    /// makes entries stale.
    fn carries_out_soft_purges(&self) -> bool {
        false
    }

    /// Returns `true` if the tier never returns an entry that is older than a [recorded
    /// purge](Self::purge) of it, also in this process. Entries of other tiers count as purged if a
    /// recorded purge could have affected them.
    fn carries_out_purges(&self) -> bool {
        false
    }

    /// Returns the last bus position that this process or an earlier one stored in the tier. Not
    /// called for shared tiers.
    fn bookmark(&self) -> Option<Bookmark> {
        None
    }

    /// Stores a bus position: the tier has applied all purges of the [bus](crate::tiers::bus)
    /// before it. If `chain` is broken, the next process must return the entries that the tier
    /// holds now as [suspect](Stored::suspect). A tier that does not survive the process needs no
    /// implementation.
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

/// Time limits of the operations of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Time limit for finding an entry and for starting to return its body. A request waits for it.
    /// One search of all tiers shares the longest limit among them.
    pub read: Duration,
    /// Time limit for each step of a write, and for a removal. No request waits for a write.
    pub write: Duration,
}

impl Default for Budget {
    /// 50 ms for reads: less than a person notices, more than a healthy tier needs. 100 ms for
    /// writes.
    fn default() -> Self {
        Self { read: Duration::from_millis(50), write: Duration::from_millis(100) }
    }
}

/// Write of one entry to a tier that has begun. Dropping the writer without a commit leaves the
/// tier unchanged.
pub trait Writer: Send {
    /// Appends the next piece of the body.
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), TierError>>;

    /// Returns the part written so far, for readers that have fallen behind, or `None` if nothing
    /// can be read. It stays readable to its end, whatever becomes of the entry.
    fn draft(&self) -> Option<Arc<dyn Parts>> {
        None
    }

    /// Makes the complete entry visible to readers of the tier. It fails with
    /// [`TierError::Withdrawn`] if the [lease](WriteMode::Leased) of the write is no longer valid,
    /// and with [`TierError::Outdated`] if the tier knows a newer version.
    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), TierError>>;
}

/// Says whether an entry that is written to a tier was loaded or put, and under which lease.
#[derive(Clone, Copy, Debug)]
pub enum WriteMode<'a> {
    /// The entry was loaded, and no lease has to be checked: the tier is not shared, or the load
    /// had no lease.
    Loaded,
    /// The entry was loaded under a [lease](crate::tiers::lease). The commit makes it visible only
    /// if the lease is still valid, and releases the lease.
    Leased(LeasedWrite<'a>),
    /// The entry was put and not loaded. It was created now, so earlier purges do not apply to it.
    Put,
}

/// Lease under which an entry is written to a shared tier.
#[derive(Clone, Copy, Debug)]
pub struct LeasedWrite<'a> {
    /// Primary key of the entry, for which the lease was requested.
    pub primary: KeyRef<'a>,
    /// Key that callers join the flight by: see
    /// [`Claim::flight_key`](crate::lease::Claim::flight_key).
    pub flight_key: KeyRef<'a>,
    /// Token of the lease.
    pub token: LeaseToken,
    /// `true` if the commit of this write releases the lease. `false` for a record that lists the
    /// variants of a key, which is written before the entry itself.
    pub is_last: bool,
}

/// Entry as a lower tier returns it.
pub struct Stored {
    /// Metadata of the entry, in terms of the clock of this process. The engine ignores its purge
    /// position.
    pub meta: Meta,
    /// Encoded head of the entry: bytes that only the front end interprets.
    pub head: Bytes,
    /// Body of the entry. Each piece is verified before it is returned.
    pub body: PieceStream,
    /// Effect of the purges by all instances on the entry, if the tier knows it. `None` for other
    /// tiers: the engine then compares the entry with all purges that it knows.
    pub vetted: Option<PurgeState>,
    /// Number that distinguishes this record from others that were stored under its key. Only
    /// shared tiers need it; otherwise 0.
    pub stamp: u64,
    /// Access to the body at any offset; `None` if the tier does not support it.
    pub parts: Option<Arc<dyn Parts>>,
    /// `true` if the entry may have missed a purge while an earlier process was running. An engine
    /// without other instances ignores it.
    pub suspect: bool,
    /// `true` if a soft purge that the tier has recorded made the entry stale.
    pub softened: bool,
    /// Number that a soft purge of the primary key replaces in the record that lists the variants.
    /// A variant with another number is stale. 0 for tiers that mark the variants themselves.
    pub family_token: u64,
}

impl Stored {
    /// Creates the entry of a tier that is not shared, which knows of no purges.
    #[must_use]
    pub const fn new(meta: Meta, head: Bytes, body: PieceStream) -> Self {
        Self {
            meta,
            head,
            body,
            vetted: None,
            stamp: 0,
            parts: None,
            suspect: false,
            softened: false,
            family_token: 0,
        }
    }

    /// Marks a variant as stale if its primary key was softly purged after it was stored.
    pub(crate) fn in_family(mut self, family_token: u64) -> Self {
        self.softened |= self.family_token != family_token;
        self
    }

    /// Adds access to the body at any offset.
    #[must_use]
    pub fn with_parts(mut self, parts: Arc<dyn Parts>) -> Self {
        self.parts = Some(parts);
        self
    }
}

/// Effect of a failed read of a lower tier on a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TierErrors {
    /// The failure counts as a miss, and the request loads from the origin.
    #[default]
    Graceful,
    /// The request fails unless another tier has the entry, or a stale entry may be served; the
    /// origin is not asked. Background refreshes ignore the failure.
    Strict,
}
