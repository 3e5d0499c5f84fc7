//! A lower tier in memory that fails on request. It keeps frames, as a disk tier does.

use std::collections::HashMap;
use std::future::pending;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::frame::{self, Arrival, Frame};
use forebay_core::{Key, KeyRef, Meta, Position, Purge, Timestamp};
use forebay_engine::bus::{Bookmark, Chain};
use forebay_engine::{
    BrokenBody, Clock, Parts, PieceStream, Stored, Tier, TierError, WriteMode, Writer,
};
use forebay_testkit::gate::Gate;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;

/// Size in bytes of the pieces in which a body is read back.
const PIECE: usize = 64 << 10;

/// A lower tier that fails on request. Clones share their entries and faults.
#[derive(Clone)]
pub(crate) struct FaultyTier(Arc<Inner>);

/// Number of operations, by kind.
#[derive(Default)]
pub(crate) struct Operations {
    pub(crate) opens: AtomicUsize,
    pub(crate) begins: AtomicUsize,
    pub(crate) writes: AtomicUsize,
    pub(crate) commits: AtomicUsize,
    pub(crate) removes: AtomicUsize,
    pub(crate) purges: AtomicUsize,
    /// Pieces read from drafts and parts of bodies.
    pub(crate) parts: AtomicUsize,
    /// All operations above, and the pieces that were read.
    all: AtomicUsize,
}

/// Way in which an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Fails,
    Freezes,
    Panics,
}

struct Inner {
    name: &'static str,
    clock: Arc<dyn Clock>,
    records: Mutex<HashMap<Key, Record>>,
    operations: Operations,
    /// Number of the failing operation, from 1 (0: all), and how it fails.
    fault: Mutex<Option<(usize, Fault)>>,
    refuses_removals: AtomicBool,
    /// Makes writes fail while reads succeed, as on a replica.
    refuses_writes: AtomicBool,
    /// Makes parts of bodies, and the written part of a draft, readable.
    gives_parts: AtomicBool,
    /// Gate before every commit.
    commits: Mutex<Gate>,
    /// Recorded purges, which the next process carries out.
    purges: Mutex<Vec<(Purge, Timestamp)>>,
    refuses_purges: AtomicBool,
    kept: Mutex<Kept>,
    /// Entries stored before this time are unverified: an earlier process may have missed a purge.
    doubted: Timestamp,
}

/// Saved bus position, and the end of the time in which a purge may have been missed.
#[derive(Clone, Default)]
struct Kept {
    bookmark: Option<Bookmark>,
    doubted: Timestamp,
}

#[derive(Clone)]
struct Record {
    frame: Bytes,
    since: Timestamp,
}

impl FaultyTier {
    pub(crate) fn new(name: &'static str, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner {
            name,
            clock,
            records: Mutex::default(),
            operations: Operations::default(),
            fault: Mutex::default(),
            refuses_removals: AtomicBool::new(false),
            refuses_writes: AtomicBool::new(false),
            gives_parts: AtomicBool::new(false),
            commits: Mutex::new(Gate::of(0)),
            purges: Mutex::default(),
            refuses_purges: AtomicBool::new(false),
            kept: Mutex::default(),
            doubted: Timestamp::default(),
        }))
    }

    /// Returns the tier as the next process finds it: with the recorded entries and purges, without
    /// the state in memory.
    pub(crate) fn restarted(&self) -> Self {
        let Inner { name, clock, records, purges, kept, .. } = &*self.0;
        let (purges, kept) = (purges.lock(), kept.lock().clone());
        let next = Self::new(name, clock.clone());
        let left = records.lock().clone().into_iter().filter(|(key, record)| {
            let position = Position::default();
            let at = Arrival { now: clock.now(), resided: Duration::ZERO, position };
            let read = frame::decode(&record.frame, key.borrowed(), at).expect("a record");
            !purges.iter().any(|(what, at)| {
                let is_tagged = |tag| read.meta.tags().iter().any(|its| its == tag);
                let names = match what {
                    Purge::Tag(tag) => is_tagged(&**tag),
                    other => other.is_about(key.borrowed()),
                };
                record.since <= *at && names
            })
        });
        let mut inner = Arc::into_inner(next.0).expect("a new tier has one owner");
        inner.records = Mutex::new(left.collect());
        inner.doubted = kept.doubted;
        inner.kept = Mutex::new(kept);
        Self(Arc::new(inner))
    }

    pub(crate) fn refuse_purges(&self, refuses: bool) {
        self.0.refuses_purges.store(refuses, Ordering::SeqCst);
    }

    pub(crate) fn operations(&self) -> &Operations {
        &self.0.operations
    }

    /// Returns the number of committed records.
    pub(crate) fn records(&self) -> usize {
        self.0.records.lock().len()
    }

    /// Makes the `number`-th operation from now on fail; with 0, all of them.
    pub(crate) fn inject_fault(&self, number: usize, fault: Fault) {
        let done = self.0.operations.all.load(Ordering::SeqCst);
        let number = if number == 0 { 0 } else { done + number };
        *self.0.fault.lock() = Some((number, fault));
    }

    /// Ends the fault. Returns whether an operation has failed.
    pub(crate) fn recover(&self) -> bool {
        let fault = self.0.fault.lock().take();
        fault.is_some_and(|(number, _)| self.0.operations.all.load(Ordering::SeqCst) >= number)
    }

    pub(crate) fn refuse_removals(&self, refuses: bool) {
        self.0.refuses_removals.store(refuses, Ordering::SeqCst);
    }

    pub(crate) fn refuse_writes(&self, refuses: bool) {
        self.0.refuses_writes.store(refuses, Ordering::SeqCst);
    }

    /// Makes parts of bodies, and the written part of a draft, readable.
    pub(crate) fn with_drafts(self) -> Self {
        self.0.gives_parts.store(true, Ordering::SeqCst);
        self
    }

    pub(crate) fn hold_commits(&self, gate: &Gate) {
        *self.0.commits.lock() = gate.clone();
    }

    /// Changes the bytes of every record.
    pub(crate) fn rewrite(&self, change: impl Fn(&mut Vec<u8>)) {
        for record in self.0.records.lock().values_mut() {
            let mut frame = record.frame.to_vec();
            change(&mut frame);
            record.frame = frame.into();
        }
    }

    /// Moves every record to `key`.
    pub(crate) fn misplace(&self, key: &Key) {
        let mut records = self.0.records.lock();
        let all: Vec<_> = records.drain().map(|(_, record)| record).collect();
        records.extend(all.into_iter().map(|record| (key.clone(), record)));
    }
}

impl Inner {
    /// Counts an operation, and fails it if the fault applies.
    async fn operate(&self, counter: &AtomicUsize) -> Result<(), TierError> {
        counter.fetch_add(1, Ordering::SeqCst);
        self.step().await
    }

    async fn step(&self) -> Result<(), TierError> {
        let number = self.operations.all.fetch_add(1, Ordering::SeqCst) + 1;
        let fault = *self.fault.lock();
        match fault.filter(|(wrong, _)| *wrong == 0 || *wrong == number) {
            None => Ok(()),
            Some((_, Fault::Fails)) => Err(TierError::failed("a fault")),
            Some((_, Fault::Freezes)) => pending().await,
            Some((_, Fault::Panics)) => panic!("a tier that panics"),
        }
    }

    /// Returns whether an earlier process may have missed a purge of the entry.
    fn is_suspect(&self, key: KeyRef<'_>) -> bool {
        self.records.lock().get(key.bytes()).is_some_and(|record| record.since < self.doubted)
    }

    fn read(&self, key: KeyRef<'_>) -> Option<frame::Decoded> {
        let records = self.records.lock();
        let record = records.get(key.bytes())?;
        let now = self.clock.now();
        let resided = now.since(record.since);
        let arrival = Arrival { now, resided, position: Position::default() };
        frame::decode(&record.frame, key, arrival).ok()
    }
}

fn in_pieces(inner: Arc<Inner>, body: Bytes) -> PieceStream {
    stream::unfold((inner, body), |(inner, mut body)| async {
        if body.is_empty() {
            return None;
        }
        let piece = match inner.step().await {
            Ok(()) => Ok(body.split_to(PIECE.min(body.len()))),
            Err(_) => Err(BrokenBody::Source("a fault".into())),
        };
        Some((piece, (inner, body)))
    })
    .boxed()
}

impl Tier for FaultyTier {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        async move {
            self.0.operate(&self.0.operations.opens).await?;
            let gives_parts = self.0.gives_parts.load(Ordering::SeqCst);
            Ok(self.0.read(key).map(|read| {
                let pieces = in_pieces(self.0.clone(), read.body.clone());
                let suspect = self.0.is_suspect(key);
                let stored = Stored { suspect, ..Stored::new(read.meta, read.head, pieces) };
                let parts = Shown { tier: self.0.clone(), bytes: Mutex::new(read.body.into()) };
                if gives_parts { stored.with_parts(Arc::new(parts)) } else { stored }
            }))
        }
        .boxed()
    }

    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
        _mode: WriteMode<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        async move {
            self.0.operate(&self.0.operations.begins).await?;
            if self.0.refuses_writes.load(Ordering::SeqCst) {
                return Err(TierError::failed("no writes"));
            }
            let (key, meta, head) = (key.to_key(), meta.clone(), head.clone());
            let tier = self.0.clone();
            let shown = Shown { tier: tier.clone(), bytes: Mutex::default() };
            let (pieces, shown) = (Vec::new(), Arc::new(shown));
            let writer: Box<dyn Writer> =
                Box::new(EntryWriter { tier, key, meta, head, pieces, shown });
            Ok(writer)
        }
        .boxed()
    }

    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        async move {
            self.0.operate(&self.0.operations.removes).await?;
            if self.0.refuses_removals.load(Ordering::SeqCst) {
                return Err(TierError::failed("no removals"));
            }
            Ok(self.0.records.lock().remove(key.bytes()).is_some())
        }
        .boxed()
    }

    fn purge<'a>(&'a self, what: &'a Purge) -> BoxFuture<'a, Result<(), TierError>> {
        async move {
            self.0.operate(&self.0.operations.purges).await?;
            if self.0.refuses_purges.load(Ordering::SeqCst) {
                return Err(TierError::failed("no purges"));
            }
            self.0.purges.lock().push((what.clone(), self.0.clock.now()));
            Ok(())
        }
        .boxed()
    }

    fn bookmark(&self) -> Option<Bookmark> {
        self.0.kept.lock().bookmark.clone()
    }

    fn keep_bookmark<'a>(
        &'a self,
        bookmark: &'a Bookmark,
        chain: Chain,
    ) -> BoxFuture<'a, Result<(), TierError>> {
        async move {
            let mut kept = self.0.kept.lock();
            kept.bookmark = Some(bookmark.clone());
            if chain == Chain::Broken {
                kept.doubted = self.0.clock.now();
            }
            Ok(())
        }
        .boxed()
    }

    fn has_drafts(&self) -> bool {
        self.0.gives_parts.load(Ordering::SeqCst)
    }
}

/// A body, or what has been written of one, that can be read anywhere.
struct Shown {
    tier: Arc<Inner>,
    bytes: Mutex<Vec<u8>>,
}

impl Parts for Shown {
    fn length(&self) -> u64 {
        self.bytes.lock().len() as u64
    }

    fn part(self: Arc<Self>, range: Range<u64>) -> PieceStream {
        let index = |at: u64| usize::try_from(at).expect("a place in memory");
        let bytes = self.bytes.lock()[index(range.start)..index(range.end)].to_vec();
        let inner = self.tier.clone();
        in_pieces(self.tier.clone(), bytes.into())
            .inspect(move |_| {
                inner.operations.parts.fetch_add(1, Ordering::SeqCst);
            })
            .boxed()
    }
}

/// Writer of one entry.
struct EntryWriter {
    tier: Arc<Inner>,
    key: Key,
    meta: Meta,
    head: Bytes,
    pieces: Vec<Bytes>,
    shown: Arc<Shown>,
}

impl EntryWriter {
    /// Makes complete pieces readable, as the disk tier does.
    fn show(&self, is_whole: bool) {
        let all = self.pieces.concat();
        let len = if is_whole { all.len() } else { all.len() / PIECE * PIECE };
        *self.shown.bytes.lock() = all[..len].to_vec();
    }
}

impl Writer for EntryWriter {
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        async move {
            self.tier.operate(&self.tier.operations.writes).await?;
            self.pieces.push(piece);
            self.show(false);
            Ok(())
        }
        .boxed()
    }

    fn draft(&self) -> Option<Arc<dyn Parts>> {
        let is_shown = self.tier.gives_parts.load(Ordering::SeqCst) && self.shown.length() > 0;
        is_shown.then(|| self.shown.clone() as Arc<dyn Parts>)
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), TierError>> {
        async move {
            self.tier.operate(&self.tier.operations.commits).await?;
            let gate = self.tier.commits.lock().clone();
            gate.wait().await;
            self.show(true);
            let now = self.tier.clock.now();
            let (key, meta) = (self.key.borrowed(), &self.meta);
            let frame = Frame { key, meta, head: &self.head, body: &self.pieces };
            let frame = frame::encode(&frame, now).map_err(TierError::failed)?;
            let record = Record { frame, since: now };
            self.tier.records.lock().insert(self.key.clone(), record);
            Ok(())
        }
        .boxed()
    }
}
