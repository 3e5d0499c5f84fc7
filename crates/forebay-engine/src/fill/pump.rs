//! Body of a fill: from its source to its readers, and into memory once it is complete.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::Meta;
use futures_util::future::join;
use futures_util::{FutureExt, StreamExt};

use super::Fill;
use super::store::StoreResult;
use crate::entry::body::{Body, BrokenBody, Flow, FlowWriter, PieceStream, Pushed};
use crate::entry::select::selection;
use crate::entry::{Entry, Head};
use crate::flight::load::Load;
use crate::flight::source::Source;
use crate::runtime::event::Event;
use crate::runtime::sync::timeout;

/// Maximum time for which one reader may stop a body that is not kept, while memory for bodies in
/// transfer is used up: the window takes memory from others.
const READER_STALL_CROWDED_MAX: Duration = Duration::from_secs(2);

/// Maximum time for which one reader may stop a body that is not kept. A reader that takes a byte
/// in this time is slow, and not stalled.
const READER_STALL_MAX: Duration = Duration::from_secs(30);

/// Body of which the beginning has arrived.
pub(super) struct StreamingBody {
    pub(super) first: Bytes,
    pub(super) rest: PieceStream,
    /// Announced length of the whole body.
    pub(super) announced: Option<u64>,
}

impl<L: Load> Fill<L> {
    /// Announces a body that broke off after its first bytes.
    pub(super) fn fill_broken(&mut self, meta: Meta, head: Head, first: Bytes, broken: BrokenBody) {
        let engine = self.leading.engine.clone();
        let (writer, flow) = Flow::new(engine.memory.in_flight(), u64::MAX);
        let entry = Arc::new(self.entry(meta, head, Body::flowing(flow)));
        writer.push(first);
        writer.fail(broken);
        let key = self.leading.flight().key().borrowed();
        engine.observer.observe(Event::BodyBroken(key));
        self.announce(&entry, self.source(false));
    }

    /// Announces a body that is still streaming, moves it to its readers and to the lower tiers, and
    /// stores it in memory once it is complete.
    pub(super) async fn fill_stream(&mut self, meta: Meta, head: Head, body: StreamingBody) {
        if let Some(newer) = self.outrun_by(&meta) {
            return self.announce(&newer, Source::Followed);
        }
        let StreamingBody { first, rest, announced } = body;
        let engine = self.leading.engine.clone();
        let kept_max = engine.memory.object_max(meta.presence);
        let too_large = announced.is_some_and(|announced| announced > kept_max);
        let (mut writer, flow) = Flow::new(engine.memory.in_flight(), kept_max);
        writer.expect(announced);
        let entry = Arc::new(self.entry(meta, head, Body::flowing(flow.clone())));
        self.announce_variants(&entry);
        let record = if self.has_targets() { self.record_of(&entry.meta) } else { None };
        let is_written_now = record.is_some();
        // Tiers read from the first byte, so their readers start before it can leave the window.
        let readers = if is_written_now { self.tier_readers(&entry, &flow) } else { Vec::new() };
        drop(flow);
        writer.push(first);
        self.announce(&entry, self.source(!too_large || self.has_targets()));
        let writing = async {
            if let Some(record) = record {
                self.write_to_tiers(record, &entry, readers).await;
            }
        };
        let (complete, ()) = join(self.stream_and_store(&entry, writer, rest), writing).await;
        if let (false, Some((complete, stored))) = (is_written_now, complete) {
            self.write_whole(&complete, stored).await;
        }
    }

    /// Lets later requests find the family of variants while its first variant is streaming.
    fn announce_variants(&self, entry: &Entry) {
        let Some(vary) = entry.meta.vary() else { return };
        let (leading, primary) = (&self.leading, self.leading.primary());
        if let Some(selection) = selection(primary, &leading.load, entry) {
            leading.leader.set_selection(selection);
        }
        leading.leader.unless_purged(|| {
            self.adopt_family(&entry.meta);
            leading.engine.memory.announce(primary, vary, entry.meta.presence);
        });
    }

    /// Moves a body to its readers and stores it if it arrived completely and was kept.
    async fn stream_and_store(
        &self,
        entry: &Entry,
        writer: FlowWriter,
        rest: PieceStream,
    ) -> Option<(Arc<Entry>, StoreResult)> {
        let complete = self.pump(writer, rest).await;
        let stored = complete.map(|body| {
            let (meta, head) = (entry.meta.clone(), entry.head.clone());
            let entry = Arc::new(self.entry(meta, head, body));
            let stored = self.store(&entry);
            (entry, stored)
        });
        self.leading.leader.close();
        stored
    }

    /// Closes the flight of a body that has lost its first byte, unless a tier can return it.
    fn close_unless_drafted(&self, writer: &FlowWriter) {
        if !writer.is_drafted() {
            self.leading.leader.close();
        }
    }

    /// Charges memory for the growth of a body that is kept. `false` if there is none in time.
    async fn admit_growth(&self, writer: &FlowWriter) -> bool {
        let Some(want) = writer.wants() else { return true };
        let engine = &self.leading.engine;
        let admitted = engine.memory.in_flight().admit_body(want, &*engine.observer).await;
        admitted.map(|admitted| writer.grow(admitted)).is_some()
    }

    /// Moves the body from its source to its readers. Returns all of it if it arrived completely
    /// and was kept.
    async fn pump(&self, writer: FlowWriter, mut source: PieceStream) -> Option<Body> {
        let observer = &self.leading.engine.observer;
        let key = self.leading.flight().key().borrowed();
        let mut kept = true;
        loop {
            if kept && !self.admit_growth(&writer).await {
                kept = false;
                writer.pass_on();
                self.close_unless_drafted(&writer);
                observer.observe(Event::BodyNotAdmitted(key));
            }
            if !wait_for_window(&writer).await {
                return None;
            }
            match source.next().await {
                None => {
                    let complete = writer.finish();
                    if complete.is_none() {
                        wait_for_window(&writer).await;
                    }
                    return complete.map(Body::from);
                }
                Some(Err(broken)) => {
                    observer.observe(Event::BodyBroken(key));
                    self.leading.leader.close();
                    writer.fail(broken);
                    drop(source);
                    wait_for_window(&writer).await;
                    return None;
                }
                Some(Ok(piece)) => {
                    if writer.push(piece) == Pushed::Windowed && kept {
                        kept = false;
                        self.close_unless_drafted(&writer);
                        observer.observe(Event::BodyOutgrown(key));
                    }
                }
            }
        }
    }
}

/// Waits until the readers leave space in the window, or, at the end of the body, until they have
/// read it: the window is charged until then. `false` if a body that is not kept has no reader.
/// Each turn of the loop follows a reader that has moved, or leaves one behind.
async fn wait_for_window(writer: &FlowWriter) -> bool {
    if let Some(wanted) = poll_fn(|cx| writer.poll_room(cx)).now_or_never() {
        return wanted;
    }
    loop {
        let before = writer.standings();
        let steps = READER_STALL_MAX.as_secs() / READER_STALL_CROWDED_MAX.as_secs();
        for step in 1..=steps {
            let room = poll_fn(|cx| writer.poll_room(cx));
            match timeout(READER_STALL_CROWDED_MAX, room).await {
                Ok(wanted) => return wanted,
                Err(_) if step < steps && !writer.is_crowded() => {}
                Err(_) => {
                    writer.leave_behind(&before);
                    break;
                }
            }
        }
    }
}
