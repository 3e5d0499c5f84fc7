//! The writing thread.

use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::counts::count;
use crate::shared::queue::{Op, Reply, Store};
use crate::shared::{Shared, Stage};
use crate::write::log::Log;

/// Executes queued operations until the queue is closed and empty.
pub(crate) fn run(mut log: Log) {
    let shared = log.shared.clone();
    let work = || {
        // The directory may have been opened with a larger size before.
        if let Err(error) = log.evict_for(0) {
            shared.note(&error);
        }
        let mut taken = Vec::new();
        while shared.queue.take(&mut taken) {
            taken.drain(..).for_each(|op| execute(&mut log, op));
            log.flush();
        }
        log.seal();
    };
    let ended = catch_unwind(AssertUnwindSafe(work));
    shared.health.stop();
    if ended.is_err() {
        shared.failed();
        shared.queue.close();
        shared.queue.clear();
    }
    shared.pool.close();
    // Only now may another process open the directory.
    drop(log);
    shared.advance(Stage::Closed);
}

/// Executes one operation. Entries with inline bodies are written with the next flush.
fn execute(log: &mut Log, op: Op) {
    let is_staged = matches!(&op, Op::Store(store) if store.part.is_none());
    if !is_staged {
        // Operations on one key are executed in queue order.
        log.flush();
    }
    let shared = log.shared.clone();
    match op {
        // The caller gave up, which withdraws the entry.
        Op::Store(store) if store.reply.is_closed() => {
            store.part.into_iter().for_each(|part| log.abandon(part));
        }
        Op::Store(store) => match store.part {
            None => log.stage(store),
            Some(part) => store_separate(log, store, part),
        },
        Op::Remove { digest, reply } => {
            let removed = log.remove(digest);
            shared.answer(reply, removed);
        }
        Op::Purge { digest, prefix_purge, reply } => {
            let purged = log.purge(digest, prefix_purge).or_else(|error| {
                shared.note(&error);
                log.distrust_older_segments()
            });
            // A purge recorded in the root alone indicates no free space for entries.
            let _ = reply.send(purged);
        }
        Op::Soften { digest, reply } => {
            let purged = log.soften(digest).or_else(|error| {
                shared.note(&error);
                log.distrust_older_segments()
            });
            let _ = reply.send(purged);
        }
        Op::Keep { bookmark, chain, reply } => {
            // Writing the bookmark indicates no free space for entries either.
            let _ = reply.send(log.keep_bookmark(bookmark, chain));
        }
        Op::AppendPiece { part, piece, reply } => {
            let grown = log.append_piece(part, &piece);
            shared.answer(reply, grown);
        }
        Op::Abandon { part } => log.abandon(part),
        Op::SegmentScanned(found) => log.apply_scan(&found.0, found.1),
        Op::DiscardSegments { last } => log.discard_segments(last),
        Op::Loaded => {
            log.finish_loading();
            shared.advance(Stage::Loaded);
        }
    }
}

fn store_separate(log: &mut Log, store: Store, part: u64) {
    let stored = log.store(&store, part);
    if stored.is_err() {
        count(&log.shared.counters.failed);
        log.abandon(part);
    }
    log.shared.answer(store.reply, stored);
}

impl Shared {
    fn answer<T>(&self, reply: Reply<T>, result: io::Result<T>) {
        match &result {
            Ok(_) => self.health.wrote(),
            Err(error) => self.note(error),
        }
        // The caller may be gone.
        let _ = reply.send(result);
    }

    pub(crate) fn note(&self, error: &io::Error) {
        // An entry that does not fit indicates no disk failure.
        if error.kind() != ErrorKind::FileTooLarge {
            self.failed();
            self.health.failed_to_write(error, self.clock.now());
        }
    }
}
