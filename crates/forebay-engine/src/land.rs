//! What comes back from a load: announced to those who wait, passed to the one it is for, pumped
//! to its end, and stored.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Demand, Meta, Standing, Timestamp};
use futures_util::{FutureExt, StreamExt};
use tokio::sync::oneshot;

use crate::Engine;
use crate::body::{Body, BrokenBody, Flow, FlowWriter, PieceStream, Pushed};
use crate::entry::{Entry, Head};
use crate::event::Event;
use crate::flight::{Landed, Seat};
use crate::load::{Load, LoadError, Loaded, Passed, Source};
use crate::obtain::{Ask, Credentials, Via, selection, suits};
use crate::tier::memory::Found;

/// A body up to this size that is there with its head is announced whole: its followers wake
/// once, not twice.
const READY_MAX: usize = 64 << 10;

/// In how many pieces it may come: a source of empty pieces must not keep anybody waiting.
const READY_PIECES_MAX: usize = 64;

/// How long one reader may hold up a body that is not kept, before it is left behind.
/// A reader that takes anything at all in this time is slow, and not stalled.
const READER_STALL_MAX: Duration = Duration::from_secs(30);

/// For how long requests go alone for a key whose answers are storable but never fresh: each of
/// them has to be validated anyway, so nobody should wait for another's validation.
const UNFRESH_REMEMBER: Duration = Duration::from_secs(10);

/// What the leader's caller is told.
pub(crate) enum Told {
    Shared {
        entry: Arc<Entry>,
        via: Via,
    },
    Alone(Arc<Entry>),
    /// An error in the origin's own words.
    Broken(Arc<Entry>),
    Failed(LoadError),
}

/// What may be kept of what a load brings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    store: bool,
    credentials: Credentials,
}

impl Keep {
    pub(crate) const fn of(ask: &Ask<'_>) -> Self {
        Self { store: !ask.demand.no_store, credentials: ask.credentials }
    }
}

/// A background refresh under way; dropping it makes room for another.
pub(crate) struct Refreshing(Arc<Engine>);

impl Refreshing {
    pub(crate) fn begin(engine: &Arc<Engine>, refreshes_max: usize) -> Option<Self> {
        let room = |count: usize| (count < refreshes_max).then_some(count + 1);
        let counter = &engine.refreshes;
        counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(Self(engine.clone()))
    }
}

impl Drop for Refreshing {
    fn drop(&mut self) {
        self.0.refreshes.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The way of one answer from its load to all who wait for it.
struct Landing<L> {
    engine: Arc<Engine>,
    seat: Seat,
    keep: Keep,
    tell: Option<oneshot::Sender<Told>>,
    load: L,
    cost: Duration,
}

impl Engine {
    /// One flight, from departure to the end of its body. It runs in a task of its own: whoever
    /// waits for it may go away, and a panic in the load frees the seat.
    pub(crate) async fn fly<L: Load>(
        self: Arc<Self>,
        (seat, keep, tell): (Seat, Keep, Option<oneshot::Sender<Told>>),
        prior: Option<Arc<Entry>>,
        load: L,
    ) {
        let departed = self.clock.now();
        let started = self.clock.exact();
        // A loader may panic before it has made its future, too.
        let loading = async { load.load(prior.clone()).await };
        let loaded = AssertUnwindSafe(loading).catch_unwind().await;
        let loaded = loaded.unwrap_or_else(|panic| Err(LoadError::panicked(&*panic)));
        let cost = self.clock.exact().saturating_sub(started);
        let landing = Landing { engine: self, seat, keep, tell, load, cost };
        landing.land(prior, loaded, departed).await;
    }
}

impl<L: Load> Landing<L> {
    async fn land(
        mut self,
        prior: Option<Arc<Entry>>,
        loaded: Result<Loaded, LoadError>,
        departed: Timestamp,
    ) {
        match loaded {
            Ok(Loaded::Entry { meta, head, source }) => {
                self.observe("stored");
                let meta = self.complete(meta, departed);
                self.land_entry(meta, head, source).await;
            }
            Ok(Loaded::Unchanged { meta, head }) => match prior {
                Some(prior) => {
                    self.observe("unchanged");
                    let meta = self.complete(meta, departed);
                    self.land_unchanged(meta, head, &prior);
                }
                None => self.land_error(LoadError::origin("unchanged, but nothing is stored")),
            },
            Ok(Loaded::Pass(passed)) => {
                self.observe("pass");
                self.land_passed(passed, Landed::Private, Told::Alone);
            }
            Ok(Loaded::Failed(passed)) => {
                self.observe("failed");
                self.land_passed(passed, Landed::Broken, Told::Broken);
            }
            Err(error) => self.land_error(error),
        }
    }

    fn observe(&self, result: &'static str) {
        let key = self.seat.flight().key().borrowed();
        self.engine.observer.observe(Event::Loaded { key, result, cost: self.cost });
    }

    /// What the door cannot know: where the log of purges stood, and what the load cost.
    fn complete(&self, mut meta: Meta, departed: Timestamp) -> Meta {
        meta.departed = departed;
        meta.position = self.seat.flight().position;
        meta.load_cost = self.cost;
        meta
    }

    fn entry(&self, meta: Meta, head: Head, body: Body) -> Entry {
        Entry { flight: self.seat.flight().number, ..Entry::new(meta, head, body) }
    }

    fn tell(&mut self, told: Told) {
        if let Some(tell) = self.tell.take() {
            // A caller that has gone away needs no answer.
            let _ = tell.send(told);
        }
    }

    fn land_error(&mut self, error: LoadError) {
        self.observe(error.code());
        self.seat.land(Landed::Failed(error.clone()));
        self.tell(Told::Failed(error));
    }

    /// The marker stands before anybody is woken: those who followed go alone, and at once.
    fn land_passed(
        &mut self,
        passed: Passed,
        landed: Landed,
        told: impl FnOnce(Arc<Entry>) -> Told,
    ) {
        let now = self.engine.clock.now();
        self.mark(now, passed.remember);
        self.seat.land(landed);
        let meta = Meta::new(now, forebay_core::Lifetime::default());
        self.tell(told(Arc::new(alone(meta, passed.head, passed.source))));
    }

    fn mark(&self, now: Timestamp, remember: Duration) {
        let markers = &self.engine.passes[self.keep.credentials as usize];
        markers.mark(self.seat.flight().primary().borrowed(), now, remember);
    }

    fn land_unchanged(&mut self, meta: Meta, head: Option<Head>, prior: &Entry) {
        let head = head.unwrap_or_else(|| prior.head.clone());
        let entry = Arc::new(self.entry(meta, head, prior.body.clone()));
        if self.keep.store {
            self.settle_marker(&entry.meta);
        }
        let stored = self.keep.store && self.store(&entry);
        self.announce(&entry, Via::Led { stored, unchanged: true });
    }

    async fn land_entry(&mut self, meta: Meta, head: Head, source: Source) {
        if !self.keep.store {
            self.seat.land(Landed::Private);
            self.tell(Told::Alone(Arc::new(alone(meta, head, source))));
            return;
        }
        self.settle_marker(&meta);
        match gather_ready(source).await {
            Gathered::Whole(bytes) => self.land_whole(meta, head, bytes),
            Gathered::Broken(first, broken) => self.land_broken(meta, head, (first, broken)),
            Gathered::Flowing(first, rest) => self.land_flowing(meta, head, (first, rest)).await,
        }
    }

    fn land_whole(&mut self, meta: Meta, head: Head, bytes: Bytes) {
        let entry = Arc::new(self.entry(meta, head, Body::whole(bytes)));
        let stored = self.store(&entry);
        self.announce(&entry, Via::Led { stored, unchanged: false });
    }

    fn land_broken(&mut self, meta: Meta, head: Head, (first, broken): (Bytes, BrokenBody)) {
        let (writer, flow) = Flow::new(self.engine.in_flight.clone(), u64::MAX);
        let entry = Arc::new(self.entry(meta, head, Body::flowing(flow)));
        writer.push(first);
        writer.fail(broken);
        self.engine.observer.observe(Event::BodyBroken(self.seat.flight().key().borrowed()));
        self.announce(&entry, Via::Led { stored: false, unchanged: false });
    }

    async fn land_flowing(&mut self, meta: Meta, head: Head, (first, rest): (Bytes, PieceStream)) {
        let engine = self.engine.clone();
        if let Some(vary) = &meta.vary {
            let primary = self.seat.flight().primary().borrowed();
            self.seat.unless_cut(|| engine.memory.announce(primary, vary));
        }
        let (writer, flow) = Flow::new(engine.in_flight.clone(), engine.memory.object_max());
        let entry = Arc::new(self.entry(meta, head, Body::flowing(flow)));
        writer.push(first);
        self.announce(&entry, Via::Led { stored: true, unchanged: false });
        if let Some(whole) = self.pump(writer, rest).await {
            let (meta, head) = (entry.meta.clone(), entry.head.clone());
            self.store(&Arc::new(self.entry(meta, head, Body::whole(whole))));
        }
    }

    /// Answers that are storable but never fresh cannot be shared; an answer that can be lifts
    /// the marker.
    fn settle_marker(&self, meta: &Meta) {
        let now = self.engine.clock.now();
        let primary = self.seat.flight().primary().borrowed();
        if suits((meta, Standing::Good), &Demand::default(), now) {
            self.engine.passes[self.keep.credentials as usize].clear(primary);
        } else {
            self.mark(now, UNFRESH_REMEMBER);
        }
    }

    fn announce(&mut self, entry: &Arc<Entry>, via: Via) {
        let primary = self.seat.flight().primary().borrowed();
        let selection = selection(primary, &self.load, entry);
        // The leader's place first: nothing may flow past it.
        let leaders = entry.boarded(false).unwrap_or_else(|| entry.clone());
        self.seat.land(Landed::Shared(entry.clone(), selection));
        self.tell(Told::Shared { entry: leaders, via });
    }

    /// Stores a whole entry, unless a purge came since the flight departed, or a flight that
    /// departed later has landed before it: a body that flows slowly must not undo a refresh.
    fn store(&self, entry: &Arc<Entry>) -> bool {
        let engine = &self.engine;
        let primary = self.seat.flight().primary().borrowed();
        let stored = self.seat.unless_cut(|| {
            let purged = engine.purges.read().standing(primary, &entry.meta) == Standing::Gone;
            let found = engine.memory.find(primary, &self.load);
            let outrun = matches!(found, Found::Entry(stored) if stored.flight > entry.flight);
            !purged && !outrun && engine.memory.store(primary, &self.load, entry.clone())
        });
        stored == Some(true)
    }

    /// Moves the body from its source to its readers. Gives back all of it, if it came whole and
    /// was kept.
    async fn pump(&self, writer: FlowWriter, mut source: PieceStream) -> Option<Bytes> {
        let key = self.seat.flight().key().borrowed();
        let mut kept = true;
        loop {
            if !wait_for_room(&writer).await {
                return None;
            }
            match source.next().await {
                None => return writer.finish(),
                Some(Err(broken)) => {
                    self.engine.observer.observe(Event::BodyBroken(key));
                    writer.fail(broken);
                    return None;
                }
                Some(Ok(piece)) => {
                    if writer.push(piece) == Pushed::Windowed && kept {
                        kept = false;
                        self.seat.close_boarding();
                        self.engine.observer.observe(Event::BodyOutgrown(key));
                    }
                }
            }
        }
    }
}

/// `false` if nobody reads a body that nobody keeps. Every turn of the loop takes a reader that
/// has moved, or leaves one behind.
async fn wait_for_room(writer: &FlowWriter) -> bool {
    if let Some(wanted) = poll_fn(|cx| writer.poll_room(cx)).now_or_never() {
        return wanted;
    }
    loop {
        let before = writer.standings();
        let room = poll_fn(|cx| writer.poll_room(cx));
        match tokio::time::timeout(READER_STALL_MAX, room).await {
            Ok(wanted) => return wanted,
            Err(_) => writer.leave_behind(&before),
        }
    }
}

enum Gathered {
    Whole(Bytes),
    Broken(Bytes, BrokenBody),
    Flowing(Bytes, PieceStream),
}

/// Takes what of a body is there already, without waiting for more.
async fn gather_ready(source: Source) -> Gathered {
    let mut stream = match source {
        Source::Whole(bytes) => return Gathered::Whole(bytes),
        Source::Stream(stream) => stream,
    };
    let mut ready = Vec::new();
    for _ in 0..READY_PIECES_MAX {
        if ready.len() >= READY_MAX {
            break;
        }
        match stream.next().now_or_never() {
            None => break,
            Some(None) => return Gathered::Whole(exact(ready)),
            Some(Some(Ok(piece))) => ready.extend_from_slice(&piece),
            Some(Some(Err(broken))) => return Gathered::Broken(ready.into(), broken),
        }
    }
    Gathered::Flowing(ready.into(), stream)
}

/// Without the slack that a growing buffer leaves, which nobody would be charged for.
fn exact(bytes: Vec<u8>) -> Bytes {
    Bytes::from(bytes.into_boxed_slice())
}

fn alone(meta: Meta, head: Head, source: Source) -> Entry {
    let body = match source {
        Source::Whole(bytes) => Body::whole(bytes),
        Source::Stream(stream) => Body::once(stream),
    };
    Entry::new(meta, head, body)
}
