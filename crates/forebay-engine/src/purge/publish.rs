//! Telling other instances of a purge, now or, if they cannot be told, later.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use forebay_core::{Dice, Purge, Reach, pace};
use tokio::time::sleep;

use crate::Engine;
use crate::runtime::clock::ThreadDice;
use crate::runtime::event::Event;
use crate::runtime::sync::{Mutex, spawn};
use crate::tiers::bus::Published;
use crate::tiers::catch_panic::caught;
use crate::tiers::tier::TierError;

/// How many purges may wait until others can be told. Beyond it they become one of everything.
const UNPUBLISHED_MAX: usize = 1_000;

/// What a purge has come to.
#[derive(Clone, Debug)]
pub struct Purged {
    /// Whether anything was stored that it has reached. Of what names no single key nobody knows,
    /// and it counts as found.
    pub found: bool,
    /// What became of the other instances.
    pub told: Told,
}

/// Whether other instances know of a purge.
#[derive(Clone, Debug)]
pub enum Told {
    /// There are none.
    Nobody,
    /// They know, or will within the time that a message takes.
    Everybody(Published),
    /// They could not be told, for this reason. It is tried again, in the same order.
    Later(TierError),
}

impl Purged {
    /// What two purges have come to together: the others know of both or do not know.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let found = self.found || other.found;
        let told = match (self.told, other.told) {
            (later @ Told::Later(_), _) | (_, later @ Told::Later(_)) => later,
            (Told::Nobody, told) | (told, Told::Nobody) => told,
            (Told::Everybody(one), Told::Everybody(other)) => {
                // The later one of a bus stands for both; instances come and go meanwhile.
                let instances = one.instances.min(other.instances);
                Told::Everybody(Published { instances, ..other })
            }
        };
        Self { found, told }
    }

    pub(crate) fn new(found: bool, told: Told) -> Self {
        let elsewhere = matches!(&told, Told::Everybody(published) if published.found);
        Self { found: found || elsewhere, told }
    }
}

/// Purges that the others could not be told of yet.
#[derive(Default)]
pub(crate) struct Unpublished(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    /// In their order, with their numbers.
    purges: VecDeque<(u64, Purge, Reach)>,
    numbered: u64,
    /// Whether somebody is at it.
    is_tended: bool,
}

impl Unpublished {
    pub(crate) fn count(&self) -> usize {
        self.0.lock().purges.len()
    }

    /// Whether one of them names no single key: then a shared tier gives out what it should not.
    pub(crate) fn any_of_many(&self) -> bool {
        self.0.lock().purges.iter().any(|(_, what, _)| !matches!(what, Purge::Key(_)))
    }

    /// `true` if somebody has to begin to tend it.
    fn add(&self, what: &Purge, reach: Reach) -> bool {
        let mut queue = self.0.lock();
        queue.numbered += 1;
        let number = queue.numbered;
        if queue.purges.len() < UNPUBLISHED_MAX {
            queue.purges.push_back((number, what.clone(), reach));
        } else {
            queue.purges.clear();
            queue.purges.push_back((number, Purge::All, Reach::Hard));
        }
        !std::mem::replace(&mut queue.is_tended, true)
    }

    /// The next one; nothing if there is none, and then nobody tends it any more.
    fn next(&self) -> Option<(u64, Purge, Reach)> {
        let mut queue = self.0.lock();
        let next = queue.purges.front().cloned();
        queue.is_tended = next.is_some();
        next
    }

    fn done(&self, number: u64) {
        let mut queue = self.0.lock();
        // It may have become a part of one of everything.
        if queue.purges.front().is_some_and(|(first, ..)| *first == number) {
            queue.purges.pop_front();
        }
    }
}

impl Engine {
    /// Purges what is shared, and tells the others.
    pub(crate) async fn tell(self: &Arc<Self>, what: &Purge, reach: Reach) -> Told {
        match self.publish(what, reach).await {
            None => Told::Nobody,
            Some(Ok(published)) => Told::Everybody(published),
            Some(Err(error)) => {
                self.observer.observe(Event::PublishFailed(what.kind()));
                self.tell_later(what, reach);
                Told::Later(error)
            }
        }
    }

    async fn publish(&self, what: &Purge, reach: Reach) -> Option<Result<Published, TierError>> {
        let joined = self.joined.as_ref()?;
        Some(caught(|| joined.bus.publish(what, reach)).await)
    }

    pub(crate) fn tell_later(self: &Arc<Self>, what: &Purge, reach: Reach) {
        let Some(joined) = &self.joined else { return };
        if let Purge::Key(key) = what {
            self.lower.owe_shared(key.borrowed());
        }
        if joined.unpublished.add(what, reach) {
            spawn(tend(Arc::downgrade(self)));
        }
    }
}

/// Tells what could not be told, until all is told or the engine is gone.
async fn tend(engine: Weak<Engine>) {
    let mut failed = 1_u32;
    loop {
        failed = failed.saturating_add(1);
        sleep(pace::back_off(failed, ThreadDice.unit())).await;
        let Some(engine) = engine.upgrade() else { return };
        if engine.tell_what_waits().await {
            return;
        }
    }
}

impl Engine {
    /// `true` if nothing waits any more.
    async fn tell_what_waits(&self) -> bool {
        let Some(joined) = &self.joined else { return true };
        while let Some((number, what, reach)) = joined.unpublished.next() {
            let Some(Ok(_)) = self.publish(&what, reach).await else { return false };
            self.note_again(&what, reach).await;
            joined.unpublished.done(number);
        }
        true
    }
}
