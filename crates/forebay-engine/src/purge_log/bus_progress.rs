//! Bus progress of the tiers that belong to this instance alone, recorded in them as bookmarks.
//!
//! A bookmark is recorded once all purges received before it are applied to those tiers. The next
//! process then receives only later purges. So each purge in progress has a number, and a bookmark
//! waits for those that began before it. A bookmark that is older than necessary does no harm:
//! applying a purge twice has the effect of applying it once.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_core::Position;
use tokio::sync::Notify;

use crate::runtime::sync::Mutex;
use crate::tiers::bus::{Bookmark, Chain};

/// Purges being applied to tiers, and the bookmark to record next.
#[derive(Default)]
pub(crate) struct BusProgress {
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Default)]
struct State {
    /// Number of purges begun.
    begun: u64,
    /// Purges in progress by number, with the log position before each recorded one. There are as
    /// many as tasks that apply them.
    in_progress: BTreeMap<u64, Option<Position>>,
    /// Log position of the latest purge begun.
    position: Position,
    /// Log position before the first purge that failed.
    failed: Option<Position>,
    /// Newest bookmark that is not recorded yet.
    newest: Option<PendingBookmark>,
    /// `true` if a purge was missed or failed since the last recorded bookmark.
    is_broken: bool,
    /// `true` while a task records bookmarks.
    has_task: bool,
}

/// Bookmark to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingBookmark {
    pub(crate) bookmark: Bookmark,
    /// Number of purges begun before it.
    pub(crate) behind: u64,
}

/// Purge being applied to tiers. Dropped before [`end`](Self::end), it counts as failed.
#[must_use = "a purge that is dropped counts as failed"]
pub(crate) struct PurgeInProgress {
    progress: Arc<BusProgress>,
    number: u64,
    is_kept: bool,
}

impl BusProgress {
    /// Begins a purge of a single key, which is not recorded in the log.
    pub(crate) fn begin(self: &Arc<Self>) -> PurgeInProgress {
        self.begin_purge(&mut self.state.lock(), None)
    }

    /// Begins a purge that moves the log from one position to another. Called with the log locked:
    /// otherwise a later purge could end before this one has begun.
    pub(crate) fn begin_noted(self: &Arc<Self>, before: Position, at: Position) -> PurgeInProgress {
        let mut state = self.state.lock();
        state.position = at;
        self.begin_purge(&mut state, Some(before))
    }

    fn begin_purge(
        self: &Arc<Self>,
        state: &mut State,
        before: Option<Position>,
    ) -> PurgeInProgress {
        state.begun += 1;
        let number = state.begun;
        state.in_progress.insert(number, before);
        PurgeInProgress { progress: self.clone(), number, is_kept: false }
    }

    /// Returns the log position up to which the tiers have applied all purges. An entry that they
    /// return from now on counts as loaded at that position.
    pub(crate) fn carried_out_up_to(&self) -> Position {
        let state = self.state.lock();
        let pending = state.in_progress.values().flatten().copied().chain(state.failed);
        pending.fold(state.position, Position::min)
    }

    /// Notes that entries in the tiers may have missed a purge.
    pub(crate) fn note_gap(&self) {
        self.state.lock().is_broken = true;
    }

    /// Notes the newest bookmark. Returns `true` if the caller has to start a task that records it.
    pub(crate) fn reached(&self, bookmark: Bookmark) -> bool {
        let mut state = self.state.lock();
        state.newest = Some(PendingBookmark { bookmark, behind: state.begun });
        !std::mem::replace(&mut state.has_task, true)
    }

    /// Takes the bookmark to record next. `None` if there is none; then its task has ended.
    pub(crate) fn next(&self) -> Option<PendingBookmark> {
        let mut state = self.state.lock();
        let next = state.newest.take();
        state.has_task &= next.is_some();
        next
    }

    /// Waits for all purges that began before a bookmark.
    pub(crate) async fn carried_out(&self, behind: u64) {
        loop {
            let ended = self.ended.notified();
            let first = self.state.lock().in_progress.keys().next().copied();
            if first.is_none_or(|number| number > behind) {
                return;
            }
            ended.await;
        }
    }

    /// Returns whether purges were missed or failed, and resets it. Called when all purges before a
    /// bookmark have ended: later findings concern the next bookmark.
    pub(crate) fn take_chain(&self) -> Chain {
        match std::mem::take(&mut self.state.lock().is_broken) {
            true => Chain::Broken,
            false => Chain::Whole,
        }
    }

    /// Returns a bookmark that could not be recorded to the queue, unless there is a newer one.
    pub(crate) fn put_back(&self, pending: PendingBookmark, chain: Chain) {
        let mut state = self.state.lock();
        state.is_broken |= chain == Chain::Broken;
        state.newest.get_or_insert(pending);
    }
}

impl PurgeInProgress {
    /// Ends the purge. `is_kept`: the tiers have applied it, also for the next process.
    pub(crate) fn end(mut self, is_kept: bool) {
        self.is_kept = is_kept;
    }
}

impl Drop for PurgeInProgress {
    fn drop(&mut self) {
        let mut state = self.progress.state.lock();
        let before = state.in_progress.remove(&self.number).flatten();
        if !self.is_kept {
            state.is_broken = true;
            state.failed = before.into_iter().chain(state.failed).min();
        }
        drop(state);
        self.progress.ended.notify_waiters();
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
    fn a_bookmark_waits_for_the_purges_begun_before_it_only() {
        let progress = Arc::new(BusProgress::default());
        let before = progress.begin();
        assert!(progress.reached(bookmark("a")));
        let after = progress.begin();
        let PendingBookmark { bookmark: next, behind } = progress.next().expect("the one");
        assert_eq!(next, bookmark("a"));
        assert!(progress.carried_out(behind).now_or_never().is_none());
        before.end(true);
        assert!(progress.carried_out(behind).now_or_never().is_some());
        assert_eq!(progress.take_chain(), Chain::Whole);
        drop(after);
        assert_eq!(progress.take_chain(), Chain::Broken, "it failed");
        assert_eq!(progress.take_chain(), Chain::Whole);
    }

    #[test]
    fn a_bookmark_that_failed_is_recorded_later_unless_there_is_a_newer_one() {
        let progress = BusProgress::default();
        progress.note_gap();
        assert!(progress.reached(bookmark("a")) && !progress.reached(bookmark("b")));
        let first = progress.next().expect("b");
        let chain = progress.take_chain();
        progress.put_back(first, chain);
        assert_eq!(progress.take_chain(), Chain::Broken);
        let again = progress.next().expect("b, again");
        assert_eq!(again.bookmark, bookmark("b"));
        progress.reached(bookmark("c"));
        progress.put_back(again, Chain::Whole);
        assert_eq!(progress.next().map(|next| next.bookmark), Some(bookmark("c")));
        assert_eq!(progress.next(), None);
        assert!(progress.reached(bookmark("d")), "its task has ended");
    }

    #[test]
    fn progress_ends_before_the_first_purge_that_is_not_applied() {
        let progress = Arc::new(BusProgress::default());
        let at = |number: u64| (0..number).fold(Position::default(), |at, _| at.next());
        let up_to = || progress.carried_out_up_to();
        let first = progress.begin_noted(at(4), at(5));
        let second = progress.begin_noted(at(5), at(6));
        assert_eq!(up_to(), at(4), "neither");
        second.end(true);
        assert_eq!(up_to(), at(4), "a later purge does not count before it");
        drop(progress.begin());
        first.end(true);
        assert_eq!(up_to(), at(6), "a purge of one key does not count");
        progress.begin_noted(at(6), at(7)).end(false);
        progress.begin_noted(at(7), at(8)).end(true);
        assert_eq!(up_to(), at(6), "a failed purge stays failed");
    }

    #[test]
    fn a_bookmark_has_a_bound() {
        assert!(Bookmark::new(vec![0; 4 << 10].into()).is_some());
        assert!(Bookmark::new(vec![0; (4 << 10) + 1].into()).is_none());
    }
}
