//! Detection of loads that would wait for each other in a cycle.
//!
//! A loader may call a cache. Without this check, two loaders could wait for each other for ever:
//!
//! 1. Task A loads `a` and requests `b`. Task B loads `b` and requests `a`.
//! 2. A waits for the flight of `b`. B would wait for the flight of `a`.
//!
//! The process keeps a graph of the loads that wait for other loads, and rejects a wait that would
//! close a cycle. Calls outside of loaders are not recorded.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, LazyLock};

use forebay_core::Key;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

/// Identity of one load: the number of its cache in this process, and the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LoadId {
    pub(crate) cache: u64,
    pub(crate) key: Key,
}

/// The loads that a task runs.
#[derive(Clone, Debug)]
pub(crate) struct CurrentLoad {
    /// One load, or all loads of a batch.
    pub(crate) loads: Arc<[LoadId]>,
    /// Permits of the limits on concurrent loads. A load that waits for another load gives them up
    /// for good, because the other load may need them.
    pub(crate) permits: Arc<Mutex<Vec<OwnedSemaphorePermit>>>,
}

tokio::task_local! {
    static CURRENT_LOAD: CurrentLoad;
}

/// Each load with the loads that it waits for. Its size is bounded by the nested calls in progress.
static WAITS: LazyLock<Mutex<HashMap<LoadId, Vec<LoadId>>>> = LazyLock::new(Mutex::default);

/// Runs a load so that calls within it are recognised as nested.
pub(crate) async fn scope_load<T>(current: CurrentLoad, load: impl Future<Output = T>) -> T {
    CURRENT_LOAD.scope(current, load).await
}

/// The error of a wait that would close a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadCycle;

/// A recorded wait; dropping it removes the record.
#[derive(Debug)]
pub(crate) struct Wait {
    waiting: Arc<[LoadId]>,
    target: LoadId,
}

impl Wait {
    /// Records that the current load waits for another one. Outside of loads it records nothing.
    ///
    /// # Errors
    /// The target is the current load, or waits for it.
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
            if let Some(index) = targets.iter().position(|target| *target == self.target) {
                targets.swap_remove(index);
            }
            if targets.is_empty() {
                waits.remove(load);
            }
        }
    }
}

/// Returns `true` if `from` is one of `ends`, or waits for one of them. It visits each load once.
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

    /// Begins a wait for `inner` within the load `outer`.
    fn wait_within(outer: &LoadId, inner: &LoadId) -> Result<Option<Wait>, LoadCycle> {
        let begin = async { Wait::begin(|| inner.clone()) };
        let current = CurrentLoad { loads: [outer.clone()].into(), permits: Arc::default() };
        let begun = scope_load(current, begin).now_or_never();
        begun.expect("the future does not wait")
    }

    #[test]
    fn only_a_wait_that_closes_a_cycle_is_rejected() {
        let [a, b, c] = ["a", "b", "c"].map(|name| load(u64::MAX, name));
        assert_eq!(wait_within(&a, &a).unwrap_err(), LoadCycle);
        let first = wait_within(&a, &b).expect("no cycle yet");
        let second = wait_within(&b, &c).expect("no cycle yet");
        let other = wait_within(&a, &c).expect("two paths to one load are no cycle");
        assert_eq!(wait_within(&c, &a).unwrap_err(), LoadCycle);
        assert_eq!(wait_within(&c, &b).unwrap_err(), LoadCycle);
        drop((first, other));
        assert!(wait_within(&c, &a).expect("a waits for nothing now").is_some());
        drop(second);
        assert!(wait_within(&c, &b).expect("b waits for nothing now").is_some());
        assert!(!WAITS.lock().keys().any(|id| id.cache == u64::MAX), "all records are removed");
    }

    #[test]
    fn a_wait_outside_of_loads_is_not_recorded() {
        let wait = Wait::begin(|| unreachable!("the target is not computed"));
        assert!(wait.expect("no cycle").is_none());
    }

    #[test]
    fn one_key_in_two_caches_is_two_loads() {
        let wait = wait_within(&load(u64::MAX - 1, "a"), &load(u64::MAX - 2, "a"));
        assert!(wait.expect("no cycle").is_some());
    }
}
