//! The body of a landing: from its source to its readers, and whole into memory.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};

use crate::body::{Body, FlowWriter, PieceStream, Pushed};
use crate::entry::Entry;
use crate::event::Event;
use crate::land::Landing;
use crate::load::Load;
use crate::store::Storing;

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
            let entry = Arc::new(self.entry(meta, head, Body::whole(whole)));
            let storing = self.store(&entry);
            (entry, storing)
        });
        self.seat.close_boarding();
        stored
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
