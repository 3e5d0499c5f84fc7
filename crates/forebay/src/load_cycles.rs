//! Loads that wait for loads.
//!
//! A loader may ask a cache. If what it asks for is being loaded by somebody who waits, directly
//! or through others, for this very loader, all of them would wait for ever:
//!
//! 1. A loads `a`, and asks for `b`.   B loads `b`, and asks for `a`.
//! 2. A waits for the flight of `b`.   B would wait for the flight of `a`.
//!
//! So who waits for what is written down, and the wait that would close a circle is refused.
//! Nothing is written for calls outside of loaders.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, LazyLock};

use forebay_core::Key;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

/// One load: the cache it is for, by its number in this process, and the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LoadId {
    pub(crate) cache: u64,
    pub(crate) key: Key,
}

/// What a task is at.
#[derive(Clone, Debug)]
pub(crate) struct CurrentLoad {
    /// The loads that it carries out: one, or all of a batch.
    pub(crate) loads: Arc<[LoadId]>,
    /// Its places among the loads that may be under way, where those are limited. A load that
    /// waits for another gives them up for good: the other may be waiting for them.
    pub(crate) permits: Arc<Mutex<Vec<OwnedSemaphorePermit>>>,
}

tokio::task_local! {
    static CURRENT_LOAD: CurrentLoad;
}

/// Each load with those it waits for. Bounded by the nested calls in progress.
static WAITS: LazyLock<Mutex<HashMap<LoadId, Vec<LoadId>>>> = LazyLock::new(Mutex::default);

/// Carries out a load, so that calls within it are known to be nested.
pub(crate) async fn scope_load<T>(current: CurrentLoad, load: impl Future<Output = T>) -> T {
    CURRENT_LOAD.scope(current, load).await
}

/// A wait that closes a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadCycle;

/// A wait that is written down; dropping it takes it off again.
#[derive(Debug)]
pub(crate) struct Wait {
    waiting: Arc<[LoadId]>,
    target: LoadId,
}

impl Wait {
    /// Writes down that the load carried out here waits for another; nothing outside of loads.
    ///
    /// # Errors
    /// If that one waits for this one already, or is this one.
    pub(crate) fn begin(target: impl FnOnce() -> LoadId) -> Result<Option<Self>, LoadCycle> {
        let Ok(current) = CURRENT_LOAD.try_with(Clone::clone) else { return Ok(None) };
        let waiting = current.loads;
        let target = target();
        let mut waits = WAITS.lock();
        if leads_to(&waits, &target, &waiting) {
            return Err(LoadCycle);
        }
        for load in &*waiting {
            waits.entry(load.clone()).or_default().push(target.clone());
        }
        drop(waits);
        current.permits.lock().clear();
        Ok(Some(Self { waiting, target }))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut waits = WAITS.lock();
        for load in &*self.waiting {
            let Some(targets) = waits.get_mut(load) else { continue };
            if let Some(place) = targets.iter().position(|target| *target == self.target) {
                targets.swap_remove(place);
            }
            if targets.is_empty() {
                waits.remove(load);
            }
        }
    }
}

/// Whether one of `ends` is `from`, or is waited for by it. Each load is looked at once.
fn leads_to(waits: &HashMap<LoadId, Vec<LoadId>>, from: &LoadId, ends: &[LoadId]) -> bool {
    let mut seen = vec![from];
    let mut next = 0;
    while let Some(load) = seen.get(next).copied() {
        if ends.contains(load) {
            return true;
        }
        for target in waits.get(load).into_iter().flatten() {
            if !seen.contains(&target) {
                seen.push(target);
            }
        }
        next += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;
    use futures_util::FutureExt;

    use super::*;

    fn load(cache: u64, name: &str) -> LoadId {
        LoadId { cache, key: KeyBuf::new(name).borrowed().to_key() }
    }

    /// Begins a wait inside of a load.
    fn within(outer: &LoadId, inner: &LoadId) -> Result<Option<Wait>, LoadCycle> {
        let begin = async { Wait::begin(|| inner.clone()) };
        let current = CurrentLoad { loads: [outer.clone()].into(), permits: Arc::default() };
        let begun = scope_load(current, begin).now_or_never();
        begun.expect("nothing to wait for")
    }

    #[test]
    fn only_the_wait_that_closes_a_circle_is_refused() {
        let [a, b, c] = ["a", "b", "c"].map(|name| load(u64::MAX, name));
        assert_eq!(within(&a, &a).unwrap_err(), LoadCycle);
        let first = within(&a, &b).expect("no circle yet");
        let second = within(&b, &c).expect("no circle yet");
        let other = within(&a, &c).expect("two ways to one load are no circle");
        assert_eq!(within(&c, &a).unwrap_err(), LoadCycle);
        assert_eq!(within(&c, &b).unwrap_err(), LoadCycle);
        drop((first, other));
        assert!(within(&c, &a).expect("the circle is open").is_some());
        drop(second);
        assert!(within(&c, &b).expect("nobody waits any more").is_some());
        assert!(!WAITS.lock().keys().any(|id| id.cache == u64::MAX), "nothing is left behind");
    }

    #[test]
    fn nothing_is_written_outside_of_loads() {
        assert!(Wait::begin(|| unreachable!("nobody asks")).expect("no circle").is_none());
    }

    #[test]
    fn the_same_key_of_two_caches_is_two_loads() {
        let wait = within(&load(u64::MAX - 1, "a"), &load(u64::MAX - 2, "a"));
        assert!(wait.expect("no circle").is_some());
    }
}
