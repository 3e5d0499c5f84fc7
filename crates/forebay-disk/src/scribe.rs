//! The one thread that writes.

use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::counts::count;
use crate::log::Log;
use crate::queue::{Op, Reply};
use crate::shared::{Shared, Stage};

/// Carries out what is in the queue until it is closed and empty.
pub(crate) fn run(mut log: Log) {
    let shared = log.shared.clone();
    let work = || {
        // It may have been opened with a smaller size than before.
        if let Err(error) = log.make_room(0) {
            shared.note(&error);
        }
        while let Some(op) = shared.queue.next() {
            carry_out(&mut log, op);
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
    // Only now may somebody else open the directory.
    drop(log);
    shared.advance(Stage::Closed);
}

fn carry_out(log: &mut Log, op: Op) {
    let shared = log.shared.clone();
    match op {
        // Whoever went away has withdrawn it.
        Op::Store(store) if store.reply.is_closed() => {
            store.part.into_iter().for_each(|part| log.abandon(part));
        }
        Op::Store(store) => {
            let stored = log.store(&store);
            if stored.is_err() {
                count(&shared.tallies.failed);
                store.part.into_iter().for_each(|part| log.abandon(part));
            }
            shared.answer(store.reply, stored);
        }
        Op::Remove { digest, reply } => {
            let removed = log.remove(digest);
            shared.answer(reply, removed);
        }
        Op::Purge { digest, reply } => {
            let purged = log.purge(digest).or_else(|error| {
                shared.note(&error);
                log.distrust()
            });
            // What the root alone tells of says nothing about room for entries.
            let _ = reply.send(purged);
        }
        Op::Grow { part, piece, reply } => {
            let grown = log.grow(part, &piece);
            shared.answer(reply, grown);
        }
        Op::Abandon { part } => log.abandon(part),
        Op::Surveyed(found) => log.take_in((&found.0, found.1)),
        Op::Suspect { last } => log.suspect(last),
        Op::Loaded => {
            log.all_taken_in();
            shared.advance(Stage::Loaded);
        }
    }
}

impl Shared {
    fn answer<T>(&self, reply: Reply<T>, result: io::Result<T>) {
        match &result {
            Ok(_) => self.health.wrote(),
            Err(error) => self.note(error),
        }
        // Whoever asked may be gone.
        let _ = reply.send(result);
    }

    fn note(&self, error: &io::Error) {
        // What does not fit says nothing about the disk.
        if error.kind() != ErrorKind::FileTooLarge {
            self.failed();
            self.health.failed_to_write(error, self.clock.now());
        }
    }
}
