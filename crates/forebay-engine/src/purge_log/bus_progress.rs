//! How far the tiers of this instance alone have followed the bus, written down in them.
//!
//! A bookmark may be written down once all that was told before it has been carried out in those
//! tiers: the next process is told of what comes behind it, and of nothing else. So each purge on
//! its way there has a number, and a bookmark waits for those that were begun before it. One that
//! is older than it could be does no harm: to be told of a purge twice is to purge twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_core::Position;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::Engine;
use crate::runtime::sync::{Mutex, spawn};
use crate::tiers::bus::{Bookmark, Chain};

/// How far apart bookmarks are written at least. What is purged within that time is purged once
/// more after a restart.
const KEEP_GAP: Duration = Duration::from_millis(250);

/// What is on its way into tiers, and how far they are.
#[derive(Default)]
pub(crate) struct Following {
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Default)]
struct State {
    /// How many purges have been begun.
    begun: u64,
    /// Those that are not over, and where the log of purges stood before each that is noted there;
    /// as many as there are tasks that carry them out.
    under_way: BTreeMap<u64, Option<Position>>,
    /// Where the log of purges stood when one was begun last.
    position: Position,
    /// Where it stood before the first that could not be carried out.
    failed: Option<Position>,
    /// The newest bookmark that is not written yet, and how many purges were begun before it.
    newest: Option<(Bookmark, u64)>,
    /// Something was missed, or could not be carried out, since the last bookmark that was
    /// written.
    is_broken: bool,
    /// Whether somebody writes.
    is_tended: bool,
}

/// A purge on its way into tiers. Dropped before it is over, it counts as not carried out.
#[must_use = "a purge that is dropped was not carried out"]
pub(crate) struct CarryingOut {
    following: Arc<Following>,
    number: u64,
    is_kept: bool,
}

impl Following {
    /// Of a single key: it is removed, and not noted in the log of purges.
    pub(crate) fn begin(self: &Arc<Self>) -> CarryingOut {
        self.carrying_out(&mut self.state.lock(), None)
    }

    /// Of one that takes the log of purges from one position to another. Under the lock of that
    /// log: else what is begun later could be over while this one is not begun yet.
    pub(crate) fn begin_noted(self: &Arc<Self>, (before, at): (Position, Position)) -> CarryingOut {
        let mut state = self.state.lock();
        state.position = at;
        self.carrying_out(&mut state, Some(before))
    }

    fn carrying_out(self: &Arc<Self>, state: &mut State, before: Option<Position>) -> CarryingOut {
        state.begun += 1;
        let number = state.begun;
        state.under_way.insert(number, before);
        CarryingOut { following: self.clone(), number, is_kept: false }
    }

    /// Up to where the log of purges has been carried out in the tiers. What they give out from
    /// now on is as good as if it had departed there.
    pub(crate) fn carried_out_up_to(&self) -> Position {
        let state = self.state.lock();
        let pending = state.under_way.values().flatten().copied().chain(state.failed);
        pending.fold(state.position, Position::min)
    }

    /// What is held in tiers may have been purged unheard.
    pub(crate) fn broke(&self) {
        self.state.lock().is_broken = true;
    }

    /// The bus has told everything up to here. `true` if somebody has to begin to write.
    fn reached(&self, bookmark: Bookmark) -> bool {
        let mut state = self.state.lock();
        state.newest = Some((bookmark, state.begun));
        !std::mem::replace(&mut state.is_tended, true)
    }

    /// The one to be written next; nothing if there is none, and then nobody tends it any more.
    fn next(&self) -> Option<(Bookmark, u64)> {
        let mut state = self.state.lock();
        let next = state.newest.take();
        state.is_tended &= next.is_some();
        next
    }

    /// Waits for all that was begun before a bookmark.
    async fn carried_out(&self, behind: u64) {
        loop {
            let ended = self.ended.notified();
            let first = self.state.lock().under_way.keys().next().copied();
            if first.is_none_or(|number| number > behind) {
                return;
            }
            ended.await;
        }
    }

    /// Asked when everything before the bookmark is over: what comes to light later concerns the
    /// next one.
    fn take_chain(&self) -> Chain {
        match std::mem::take(&mut self.state.lock().is_broken) {
            true => Chain::Broken,
            false => Chain::Whole,
        }
    }

    /// It could not be written.
    fn put_back(&self, (bookmark, behind): (Bookmark, u64), chain: Chain) {
        let mut state = self.state.lock();
        state.is_broken |= chain == Chain::Broken;
        state.newest.get_or_insert((bookmark, behind));
    }
}

impl CarryingOut {
    /// It is over; `is_kept` if the tiers have it, for the next process, too.
    pub(crate) fn end(mut self, is_kept: bool) {
        self.is_kept = is_kept;
    }
}

impl Drop for CarryingOut {
    fn drop(&mut self) {
        let mut state = self.following.state.lock();
        let before = state.under_way.remove(&self.number).flatten();
        if !self.is_kept {
            state.is_broken = true;
            state.failed = before.into_iter().chain(state.failed).min();
        }
        drop(state);
        self.following.ended.notify_waiters();
    }
}

impl Engine {
    /// The bus has told everything up to here.
    pub(crate) fn reached(self: &Arc<Self>, bookmark: Bookmark) {
        if self.lower.any_of_its_own() && self.following.reached(bookmark) {
            spawn(tend(Arc::downgrade(self)));
        }
    }

    /// Waits until the tiers of this instance alone have carried out what was heard so far, and
    /// writes down there how far that is. Worth calling before they are closed: what is not
    /// written down is heard once more by the next process.
    pub async fn settle(&self) {
        self.keep_bookmark().await;
    }

    /// `false` if there is nothing to be written.
    async fn keep_bookmark(&self) -> bool {
        let Some((bookmark, behind)) = self.following.next() else { return false };
        self.following.carried_out(behind).await;
        let chain = self.following.take_chain();
        if !self.lower.keep_bookmark(&bookmark, chain).await {
            self.following.put_back((bookmark, behind), chain);
        }
        true
    }
}

/// Writes until there is nothing more to be written, or the engine is gone.
async fn tend(engine: Weak<Engine>) {
    loop {
        let Some(engine) = engine.upgrade() else { return };
        if !engine.keep_bookmark().await {
            return;
        }
        drop(engine);
        sleep(KEEP_GAP).await;
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt;

    use super::*;

    fn bookmark(text: &'static str) -> Bookmark {
        Bookmark::new(Bytes::from_static(text.as_bytes())).expect("short")
    }

    #[test]
    fn a_bookmark_waits_for_what_was_begun_before_it_and_for_nothing_else() {
        let following = Arc::new(Following::default());
        let before = following.begin();
        assert!(following.reached(bookmark("a")));
        let after = following.begin();
        let (next, behind) = following.next().expect("the one");
        assert_eq!(next, bookmark("a"));
        assert!(following.carried_out(behind).now_or_never().is_none());
        before.end(true);
        assert!(following.carried_out(behind).now_or_never().is_some());
        assert_eq!(following.take_chain(), Chain::Whole);
        drop(after);
        assert_eq!(following.take_chain(), Chain::Broken, "it was not carried out");
        assert_eq!(following.take_chain(), Chain::Whole);
    }

    #[test]
    fn what_could_not_be_written_is_written_later_unless_there_is_a_newer_one() {
        let following = Following::default();
        following.broke();
        assert!(following.reached(bookmark("a")) && !following.reached(bookmark("b")));
        let first = following.next().expect("b");
        let chain = following.take_chain();
        following.put_back(first, chain);
        assert_eq!(following.take_chain(), Chain::Broken);
        let again = following.next().expect("b, again");
        assert_eq!(again.0, bookmark("b"));
        following.reached(bookmark("c"));
        following.put_back(again, Chain::Whole);
        assert_eq!(following.next().map(|(next, _)| next), Some(bookmark("c")));
        assert_eq!(following.next(), None);
        assert!(following.reached(bookmark("d")), "nobody tends it any more");
    }

    #[test]
    fn what_is_carried_out_ends_before_the_first_purge_that_is_not() {
        let following = Arc::new(Following::default());
        let at = |number: u64| (0..number).fold(Position::default(), |at, _| at.next());
        let up_to = || following.carried_out_up_to();
        let first = following.begin_noted((at(4), at(5)));
        let second = following.begin_noted((at(5), at(6)));
        assert_eq!(up_to(), at(4), "neither");
        second.end(true);
        assert_eq!(up_to(), at(4), "what came later does not count before it");
        drop(following.begin());
        first.end(true);
        assert_eq!(up_to(), at(6), "one of a key is no part of it");
        following.begin_noted((at(6), at(7))).end(false);
        following.begin_noted((at(7), at(8))).end(true);
        assert_eq!(up_to(), at(6), "one has failed, and nothing makes up for that");
    }

    #[test]
    fn a_bookmark_has_a_bound() {
        assert!(Bookmark::new(vec![0; 4 << 10].into()).is_some());
        assert!(Bookmark::new(vec![0; (4 << 10) + 1].into()).is_none());
    }
}
