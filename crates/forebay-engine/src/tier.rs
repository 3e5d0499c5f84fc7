//! Levels of storage: memory, and what can stand below it.
//!
//! Memory is concrete and synchronous, since every request looks there. A lower tier is reached
//! by a hop of input and output, so it is boxed and asynchronous. It outlives the process or is
//! shared by several, and it is never trusted to be there: all it can do by failing is to make a
//! hit a miss.

pub(crate) mod caught;
pub(crate) mod guard;
pub(crate) mod lower;
pub mod memory;
pub(crate) mod outlook;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Meta, Purge, Standing};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, try_join_all};

use crate::body::{Parts, PieceStream};
use crate::bus::{Bookmark, Chain};
use crate::lease::LeaseToken;

/// A tier below memory.
///
/// The engine gives every operation a time; an operation that takes longer is dropped. Whatever
/// is dropped half-way must have happened wholly or never happen: nothing may become visible in a
/// tier after the future of its `commit` is gone, or a purge could not be relied on.
pub trait Tier: Send + Sync + 'static {
    /// What it is called in metrics, logs and answers: one lower-case word.
    fn name(&self) -> &'static str;

    /// How long its operations may take. An operation that takes longer has failed, and after a
    /// few such the tier is left alone for a while.
    fn budget(&self) -> Budget {
        Budget::default()
    }

    /// Whether it is for what stands under a key: where it is not, it is asked nothing, and its
    /// failures are nobody's concern. Asked for each key that memory does not have: it must be
    /// cheap, and always say the same of a key.
    fn takes(&self, _primary: KeyRef<'_>) -> bool {
        true
    }

    /// What stands under exactly this key. A record that is damaged, of a foreign format or of
    /// another key is no record.
    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>>;

    /// The same for several keys, in their order. A tier that can asks for all of them at once.
    /// It fails as one.
    fn open_many<'a>(
        &'a self,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Vec<Option<Stored>>, TierError>> {
        try_join_all(keys.iter().map(|key| self.open(key.borrowed()))).boxed()
    }

    /// Begins to write an entry in the place of what stands there, which stays until the commit.
    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>>;

    /// The same under a [lease](crate::lease): it becomes visible only if the lease still stands
    /// at the commit, which gives it back. Tiers that are not shared need none.
    fn begin_leased<'a>(
        &'a self,
        key: KeyRef<'a>,
        (meta, head): (&'a Meta, &'a Bytes),
        _lease: LeasedWrite<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        self.begin(key, meta, head)
    }

    /// The same for what was put, and not loaded: its caller has made it now, so that no purge that
    /// came before can be about it. Tiers that are not shared need not tell the two apart.
    fn begin_put<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        self.begin(key, meta, head)
    }

    /// Whether other instances read and write the same entries. They are told of purges over the
    /// [bus](crate::bus), which removes what is shared.
    fn is_shared(&self) -> bool {
        false
    }

    /// Removes what stands under exactly this key. `false` if nothing did.
    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>>;

    /// Remembers a purge that names no single key, of this instance or another. The engine has it
    /// carried out for this process before it asks; a tier that outlives the process sees to it
    /// that what was begun before does not come back in the next one. A tier that is shared is
    /// purged over the [bus](crate::bus), and is not asked. Others need do nothing.
    fn purge<'a>(&'a self, _what: &'a Purge) -> BoxFuture<'a, Result<(), TierError>> {
        async { Ok(()) }.boxed()
    }

    /// Whether it never gives out again what was begun before a purge that it has
    /// [remembered](Self::purge), not even in this process. Of any other tier nobody knows when an
    /// entry came there: whatever a purge on record could have reached counts as reached.
    fn carries_out_purges(&self) -> bool {
        false
    }

    /// The last bookmark that was kept, in this process or an earlier one. Of a tier that is shared
    /// it is not asked.
    fn bookmark(&self) -> Option<Bookmark> {
        None
    }

    /// Keeps a bookmark: whatever the [bus](crate::bus) has told before it has been carried out
    /// here. After a chain that is broken, what the tier holds by now has to be given out as
    /// [suspect](Stored::suspect) by the next process. A tier that does not outlive the process
    /// need do nothing.
    fn keep_bookmark<'a>(
        &'a self,
        _bookmark: &'a Bookmark,
        _chain: Chain,
    ) -> BoxFuture<'a, Result<(), TierError>> {
        async { Ok(()) }.boxed()
    }

    /// Whether its writers give back what has been written of a body before all of it is: see
    /// [`Writer::draft`].
    fn has_drafts(&self) -> bool {
        false
    }
}

/// How long a tier may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// To find an entry and begin to give its body. Somebody waits for it.
    pub read: Duration,
    /// For each step of a write or a removal. Nobody waits for a write.
    pub write: Duration,
}

impl Default for Budget {
    /// 50 ms to read: below what a person notices, above what a healthy tier needs. 100 ms to
    /// write.
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
    /// See [`Claim::boarded`](crate::lease::Claim::boarded).
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
    pub vetted: Option<Standing>,
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

/// Why a tier did not do what it was asked to. It reaches callers whose door is strict about
/// that ([`TierErrors`]), and no others.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// It failed.
    #[error("the tier failed: {0}")]
    Failed(Arc<dyn std::error::Error + Send + Sync>),
    /// It took longer than it may.
    #[error("the tier took longer than it may")]
    TimedOut,
    /// It has failed so often that it is not asked.
    #[error("the tier is being left alone after failures")]
    LeftAlone,
    /// It does not take entries of this size; no failure.
    #[error("too large for the tier")]
    TooLarge,
    /// It is known there that a version stands in its place, or was removed, that is newer; no
    /// failure.
    #[error("a newer version is known there")]
    Outdated,
    /// The lease that it was written under stands no more; no failure.
    #[error("the lease was withdrawn")]
    Withdrawn,
}

/// What a lower tier that cannot be read means for a caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TierErrors {
    /// A miss: the origin is asked.
    #[default]
    Graceful,
    /// An error, where no other tier has an answer: the origin is not asked in the tier's stead.
    Strict,
}

impl TierError {
    /// A failure with this cause.
    #[must_use]
    pub fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(cause.into().into())
    }
}
