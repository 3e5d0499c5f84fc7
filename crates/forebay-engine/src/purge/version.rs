//! Versions: a value replaces older ones only, and a removed value does not return below the version
//! at which it was removed.
//!
//! A front end that knows the order of its values, by row versions or positions in a log, gives each
//! entry its [version](forebay_core::version). Then the order in which writers and loads arrive does
//! not matter: an older value is not stored in place of a newer one. The newest known version of a
//! key is also remembered as a [floor](crate::purge_log::floors).

use std::sync::Arc;

use forebay_core::{KeyRef, Meta, Purge, PurgeState, Reach};
use futures_util::future::join;

use crate::engine::Engine;
use crate::runtime::event::Event;
use crate::runtime::sync::spawn;
use crate::tiers::bus::Newer;
use crate::tiers::catch_panic::caught;
use crate::tiers::lease_strategy::OPEN;
use crate::tiers::lower::Deadline;

impl Engine {
    /// Removes the entry of a primary key from all tiers and instances, and refuses older versions
    /// from then on for `newer.keep`. Returns `false` if a version that is as new or newer is known
    /// already: then nothing is removed. If only the shared tier knows that version, the entry is
    /// still removed from the tiers of this instance.
    pub async fn remove_version(self: &Arc<Self>, key: KeyRef<'_>, newer: Newer) -> bool {
        let below = self.version_below(key).await;
        let removed =
            self.flights.begin_purge_if(key, || self.purge_memory_below(key, below, newer));
        let Some(purging) = removed else { return false };
        let engine = self.clone();
        // Once begun it is completed, even if the caller drops the future.
        let removing = spawn(async move {
            purging.committed().await;
            let key = purging.primary();
            join(engine.lower.purge_its_own(key, Reach::Hard), engine.publish_version(key, newer))
                .await
                .1
        });
        // It can only end early with the runtime itself.
        removing.await.unwrap_or(false)
    }

    /// Applies a version that another instance stores or removes: older entries and flights of this
    /// instance are removed, newer ones stay.
    pub(super) fn receive_version(self: &Arc<Self>, purge: &Purge, newer: Newer) {
        let Purge::Key(key) = purge else { return };
        self.log.note_for_watches(purge);
        self.observer.observe(Event::PurgeReceived(purge.kind()));
        let key = key.borrowed();
        let purging =
            self.flights.begin_purge_if(key, || self.purge_memory_below(key, None, newer));
        if let Some(purging) = purging.filter(|_| self.lower.any_of_its_own()) {
            let engine = self.clone();
            spawn(async move {
                purging.committed().await;
                engine.lower.purge_its_own(purging.primary(), Reach::Hard).await;
            });
        }
    }

    /// Removes the entry of a key from memory if a version is newer than all known ones. Called
    /// with the key locked in the flight table.
    fn purge_memory_below(&self, key: KeyRef<'_>, below: Option<u64>, newer: Newer) -> bool {
        let is_newer = self.raise_floor(key, below, newer);
        if is_newer {
            self.purge_memory(key, Reach::Hard);
        }
        is_newer
    }

    /// Raises the floor of a key to a version that is newer than all known ones, in this process
    /// and in lower tiers (`below`). Returns `false` if it is not newer. Called with the key locked
    /// in the flight table.
    pub(crate) fn raise_floor(&self, key: KeyRef<'_>, below: Option<u64>, newer: Newer) -> bool {
        let now = self.clock.now();
        let known = below.max(self.version_in_memory(key)).max(self.log.floors.of(key, now));
        let is_newer = known.is_none_or(|known| known < newer.version);
        if is_newer {
            self.log.floors.raise(key, newer, now);
        }
        is_newer
    }

    fn version_in_memory(&self, key: KeyRef<'_>) -> Option<u64> {
        let stored = self.memory.peek_at(key)?;
        let stored = Some(stored).filter(|it| self.log.state_of(key, it) < PurgeState::Removed)?;
        stored.meta.version()
    }

    /// Returns the newest version in the tiers of this instance. The shared tier compares versions
    /// itself.
    pub(crate) async fn version_below(&self, key: KeyRef<'_>) -> Option<u64> {
        let mut newest = None;
        for lower in self.lower.taking(key).filter(|lower| !lower.is_shared()) {
            let mut deadline = Deadline::within(lower.budget().read);
            let stored = lower.run(OPEN, &mut deadline, || lower.tier().open(key)).await;
            newest = newest.max(stored.flatten().and_then(|stored| stored.meta.version()));
        }
        newest
    }

    /// Publishes a version, which removes older shared entries. Returns `false` if a version that
    /// is as new is known there. If publishing fails, a purge is published later.
    pub(crate) async fn publish_version(self: &Arc<Self>, key: KeyRef<'_>, newer: Newer) -> bool {
        let Some(joined) = &self.joined else { return true };
        let owned = key.to_key();
        match caught(|| joined.bus.publish_version(&owned, newer)).await {
            Ok(published) => published.is_some(),
            Err(_) => {
                self.publish_later(&Purge::Key(owned), Reach::Hard);
                true
            }
        }
    }

    /// Returns `true` if a newer version of an entry is known in this process. Called with the key
    /// locked in the flight table.
    pub(crate) fn is_outdated(&self, primary: KeyRef<'_>, meta: &Meta) -> bool {
        let Some(version) = meta.version() else { return false };
        let floor = self.log.floors.of(primary, self.clock.now());
        floor.max(self.version_in_memory(primary)).is_some_and(|known| known > version)
    }

    /// Removes an entry from memory whose version the shared tier has refused. Called with the key
    /// locked in the flight table.
    pub(crate) fn forget_outdated(&self, primary: KeyRef<'_>, meta: &Meta) {
        let is_it = |version| self.version_in_memory(primary) == Some(version);
        if meta.version().is_some_and(is_it) {
            self.memory.remove(primary);
        }
    }
}
