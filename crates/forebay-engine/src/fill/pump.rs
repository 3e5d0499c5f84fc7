//! The body of a landing: from its source to its readers, and whole into memory.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};

use crate::entry::Entry;
use crate::entry::body::{Body, FlowWriter, PieceStream, Pushed};
use crate::fill::Landing;
use crate::fill::store::Storing;
use crate::flight::load::Load;
use crate::runtime::event::Event;
use crate::runtime::sync::timeout;

/// The same while there is no room among the bodies in flight, which its window takes from others.
const READER_STALL_CROWDED_MAX: Duration = Duration::from_secs(2);

/// How long one reader may hold up a body that is not kept, before it is left behind.
/// A reader that takes anything at all in this time is slow, and not stalled.
const READER_STALL_MAX: Duration = Duration::from_secs(30);

impl<L: Load> Landing<L> {
    /// Pumps a body to its end and stores what has come whole.
    pub(crate) async fn fill(
        &self,
        entry: &Entry,
        (writer, rest): (FlowWriter, PieceStream),
    ) -> Option<(Arc<Entry>, Storing)> {
        let whole = self.pump(writer, rest).await;
        let stored = whole.map(|whole| {
            let (meta, head) = (entry.meta.clone(), entry.head.clone());
            let entry = Arc::new(self.entry(meta, head, whole));
            let storing = self.store(&entry);
            (entry, storing)
        });
        self.seat.close_boarding();
        stored
    }

    /// Nobody may board what has lost its first byte. Where a tier has it, somebody may.
    fn close_unless_drafted(&self, writer: &FlowWriter) {
        if !writer.is_drafted() {
            self.seat.close_boarding();
        }
    }

    /// `false` if a body that is kept finds no room to grow.
    async fn find_room(&self, writer: &FlowWriter) -> bool {
        let Some(want) = writer.wants() else { return true };
        let room = self.engine.memory.in_flight().admit_body(want, &*self.engine.observer).await;
        room.map(|room| writer.grow(room)).is_some()
    }

    /// Moves the body from its source to its readers. Gives back all of it, if it came whole and
    /// was kept.
    async fn pump(&self, writer: FlowWriter, mut source: PieceStream) -> Option<Body> {
        let key = self.seat.flight().key().borrowed();
        let mut kept = true;
        loop {
            if kept && !self.find_room(&writer).await {
                kept = false;
                writer.pass_on();
                self.close_unless_drafted(&writer);
                self.engine.observer.observe(Event::BodyCrowdedOut(key));
            }
            if !wait_for_window(&writer).await {
                return None;
            }
            match source.next().await {
                None => {
                    let whole = writer.finish();
                    if whole.is_none() {
                        wait_for_window(&writer).await;
                    }
                    return whole.map(Body::from);
                }
                Some(Err(broken)) => {
                    self.engine.observer.observe(Event::BodyBroken(key));
                    self.seat.close_boarding();
                    writer.fail(broken);
                    drop(source);
                    wait_for_window(&writer).await;
                    return None;
                }
                Some(Ok(piece)) => {
                    if writer.push(piece) == Pushed::Windowed && kept {
                        kept = false;
                        self.close_unless_drafted(&writer);
                        self.engine.observer.observe(Event::BodyOutgrown(key));
                    }
                }
            }
        }
    }
}

/// Waits for readers: for those who are behind what is still to come, or at its end for all of
/// them, since what is left in the window is charged until then. `false` if nobody reads a body
/// that nobody keeps. Every turn of the loop takes a reader that has moved, or leaves one behind.
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
