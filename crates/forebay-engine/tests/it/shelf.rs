//! A lower tier in memory, with faults: it keeps frames, as one on a disk would.

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

/// A body is read back in pieces of this size.
const PIECE: usize = 64 << 10;

/// A shelf. Clones are the same shelf.
#[derive(Clone)]
pub(crate) struct Shelf(Arc<Inner>);

/// What a shelf was asked to do, and did.
#[derive(Default)]
pub(crate) struct Operations {
    pub(crate) opens: AtomicUsize,
    pub(crate) begins: AtomicUsize,
    pub(crate) writes: AtomicUsize,
    pub(crate) commits: AtomicUsize,
    pub(crate) removes: AtomicUsize,
    pub(crate) purges: AtomicUsize,
    /// Pieces that were read of parts.
    pub(crate) parts: AtomicUsize,
    /// All of these, and the pieces that were read.
    all: AtomicUsize,
}

/// What is wrong with a shelf.
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
    /// Which operation goes wrong, from 1, and how. 0: all of them.
    fault: Mutex<Option<(usize, Fault)>>,
    refuses_removals: AtomicBool,
    /// As a replica does.
    refuses_writes: AtomicBool,
    /// Whether parts of bodies are to be had, and what has been written of one.
    gives_parts: AtomicBool,
    /// What every commit waits for.
    commits: Mutex<Gate>,
    /// What the next life is to be without.
    purges: Mutex<Vec<(Purge, Timestamp)>>,
    refuses_purges: AtomicBool,
    kept: Mutex<Kept>,
    /// Of what was stored before this, an earlier life may have missed a purge.
    doubted: Timestamp,
}

/// A bookmark, and until when something may have been missed.
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

impl Shelf {
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

    /// What the next process finds: what was written down, and nothing that this one knew.
    pub(crate) fn reborn(&self) -> Self {
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
        let mut inner = Arc::into_inner(next.0).expect("nobody else has it");
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

    /// How many records are exposed.
    pub(crate) fn records(&self) -> usize {
        self.0.records.lock().len()
    }

    /// From now on, the `number`-th operation goes wrong; all of them if it is 0.
    pub(crate) fn go_wrong(&self, number: usize, fault: Fault) {
        let done = self.0.operations.all.load(Ordering::SeqCst);
        let number = if number == 0 { 0 } else { done + number };
        *self.0.fault.lock() = Some((number, fault));
    }

    /// Nothing goes wrong any more. `false` if nothing has.
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

    /// The same shelf, which gives parts of bodies, and what has been written of one.
    pub(crate) fn giving_parts(self) -> Self {
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

    /// Puts every record where `key` says.
    pub(crate) fn misplace(&self, key: &Key) {
        let mut records = self.0.records.lock();
        let all: Vec<_> = records.drain().map(|(_, record)| record).collect();
        records.extend(all.into_iter().map(|record| (key.clone(), record)));
    }
}

impl Inner {
    /// Counts an operation, and lets it go wrong if it has to.
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

    /// Whether an earlier life may have missed that this was purged.
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

impl Tier for Shelf {
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
                let parts = Shown { shelf: self.0.clone(), bytes: Mutex::new(read.body.into()) };
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
            let shelf = self.0.clone();
            let shown = Shown { shelf: shelf.clone(), bytes: Mutex::default() };
            let (pieces, shown) = (Vec::new(), Arc::new(shown));
            let writer: Box<dyn Writer> =
                Box::new(Shelving { shelf, key, meta, head, pieces, shown });
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
    shelf: Arc<Inner>,
    bytes: Mutex<Vec<u8>>,
}

impl Parts for Shown {
    fn length(&self) -> u64 {
        self.bytes.lock().len() as u64
    }

    fn part(self: Arc<Self>, range: Range<u64>) -> PieceStream {
        let index = |at: u64| usize::try_from(at).expect("a place in memory");
        let bytes = self.bytes.lock()[index(range.start)..index(range.end)].to_vec();
        let inner = self.shelf.clone();
        in_pieces(self.shelf.clone(), bytes.into())
            .inspect(move |_| {
                inner.operations.parts.fetch_add(1, Ordering::SeqCst);
            })
            .boxed()
    }
}

/// An entry on its way to a shelf.
struct Shelving {
    shelf: Arc<Inner>,
    key: Key,
    meta: Meta,
    head: Bytes,
    pieces: Vec<Bytes>,
    shown: Arc<Shown>,
}

impl Shelving {
    /// Only what fills pieces is shown, as it is on a disk.
    fn show(&self, is_whole: bool) {
        let all = self.pieces.concat();
        let len = if is_whole { all.len() } else { all.len() / PIECE * PIECE };
        *self.shown.bytes.lock() = all[..len].to_vec();
    }
}

impl Writer for Shelving {
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        async move {
            self.shelf.operate(&self.shelf.operations.writes).await?;
            self.pieces.push(piece);
            self.show(false);
            Ok(())
        }
        .boxed()
    }

    fn draft(&self) -> Option<Arc<dyn Parts>> {
        let is_shown = self.shelf.gives_parts.load(Ordering::SeqCst) && self.shown.length() > 0;
        is_shown.then(|| self.shown.clone() as Arc<dyn Parts>)
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), TierError>> {
        async move {
            self.shelf.operate(&self.shelf.operations.commits).await?;
            let gate = self.shelf.commits.lock().clone();
            gate.wait().await;
            self.show(true);
            let now = self.shelf.clock.now();
            let (key, meta) = (self.key.borrowed(), &self.meta);
            let frame = Frame { key, meta, head: &self.head, body: &self.pieces };
            let frame = frame::encode(&frame, now).map_err(TierError::failed)?;
            let record = Record { frame, since: now };
            self.shelf.records.lock().insert(self.key.clone(), record);
            Ok(())
        }
        .boxed()
    }
}
