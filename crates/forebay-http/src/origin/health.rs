//! Health of the endpoints of an origin: which of them get requests.
//!
//! The state machine is in `forebay-core`. Requests read sets that are published after each change,
//! so that they take its lock only after a failure, or while an endpoint recovers.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use forebay_core::{
    EndpointHealth, EndpointState, HealthChange, HealthRules, OriginHealth, Timestamp,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::balance::EndpointSet;
use crate::settings::OriginSettings;

/// Value of the thresholds of checks if there are no checks.
const NO_CHECKS: u32 = 1;

/// Health of the endpoints of one origin.
#[derive(Debug)]
pub(super) struct Health {
    begun: Instant,
    state: Mutex<OriginHealth>,
    count: usize,
    published: Published,
}

/// Result of the state machine as of the last change.
#[derive(Debug)]
struct Published {
    /// Endpoints that get requests.
    usable: AtomicU64,
    /// Endpoints in their slow start.
    starting: AtomicU64,
    /// Endpoints for which the success of a request must be recorded.
    watched: AtomicU64,
    /// Time of the next change without an event, in milliseconds since `begun`; `i64::MAX` if none.
    due: AtomicI64,
}

impl Health {
    /// Creates the state of `count` endpoints. `known` returns the state of an endpoint before a
    /// reload, of a `Health` that began at `begun`.
    pub(super) fn new(
        settings: &OriginSettings,
        count: usize,
        begun: Instant,
        known: impl Fn(usize) -> Option<EndpointHealth>,
    ) -> Self {
        let endpoints = (0..count).map(|index| known(index).unwrap_or_default()).collect();
        let published = Published {
            usable: AtomicU64::new(EndpointSet::first(count).bits()),
            starting: AtomicU64::new(0),
            watched: AtomicU64::new(0),
            due: AtomicI64::new(0),
        };
        let state = Mutex::new(OriginHealth::new(rules(settings), endpoints));
        Self { begun, state, count, published }
    }

    /// Returns the time from which the timestamps of the states count.
    pub(super) const fn begun(&self) -> Instant {
        self.begun
    }

    pub(super) fn endpoint(&self, index: usize) -> EndpointHealth {
        self.state.lock().endpoint(index)
    }

    /// Returns the endpoints that get requests by their state.
    pub(super) fn usable(&self) -> EndpointSet {
        let due = self.published.due.load(Ordering::Relaxed);
        if due != i64::MAX {
            let now = self.now();
            if now.as_millis() >= due {
                self.publish(&self.state.lock(), now);
            }
        }
        EndpointSet::from_bits(self.published.usable.load(Ordering::Relaxed))
    }

    /// Returns the part of its share of requests that an endpoint gets, from 0.1 to 1.
    pub(super) fn share(&self, index: usize) -> f64 {
        let starting = EndpointSet::from_bits(self.published.starting.load(Ordering::Relaxed));
        if starting.has(index) { self.state.lock().share(index, self.now()) } else { 1.0 }
    }

    /// Records a request that worked.
    pub(super) fn request_worked(&self, index: usize) {
        let watched = EndpointSet::from_bits(self.published.watched.load(Ordering::Relaxed));
        if watched.has(index) {
            self.change(|state, now| state.request_worked(index, now));
        }
    }

    /// Records a failed request.
    pub(super) fn request_failed(&self, index: usize) -> Option<HealthChange> {
        self.change(|state, now| state.request_failed(index, now))
    }

    /// Records the result of a check.
    pub(super) fn checked(&self, index: usize, has_passed: bool) -> Option<HealthChange> {
        self.change(|state, now| state.checked(index, has_passed, now))
    }

    pub(super) fn state(&self, index: usize) -> EndpointState {
        self.state.lock().state(index, self.now())
    }

    fn change<T>(&self, change: impl FnOnce(&mut OriginHealth, Timestamp) -> T) -> T {
        let mut state = self.state.lock();
        let now = self.now();
        let changed = change(&mut state, now);
        self.publish(&state, now);
        changed
    }

    /// Publishes the sets. The caller holds the lock, so that an older result does not overwrite a
    /// newer one.
    fn publish(&self, state: &OriginHealth, now: Timestamp) {
        let set = |is_in: &dyn Fn(usize) -> bool| {
            let members = (0..self.count).filter(|index| is_in(*index));
            members.fold(EndpointSet::default(), EndpointSet::with).bits()
        };
        let Published { usable, starting, watched, due } = &self.published;
        let is_usable = |index| state.state(index, now).is_usable();
        let is_starting = |index| state.state(index, now) == EndpointState::SlowStart;
        usable.store(set(&is_usable), Ordering::Relaxed);
        starting.store(set(&is_starting), Ordering::Relaxed);
        watched.store(set(&|index| state.is_watched(index)), Ordering::Relaxed);
        let next = state.next_change(now).map_or(i64::MAX, Timestamp::as_millis);
        due.store(next, Ordering::Relaxed);
    }

    fn now(&self) -> Timestamp {
        Timestamp::default().plus(self.begun.elapsed())
    }
}

fn rules(settings: &OriginSettings) -> HealthRules {
    let (eject, check) = (settings.eject, settings.health.as_ref());
    HealthRules {
        eject_after: eject.failures,
        eject_for: eject.duration,
        ejected_percent_max: eject.percent_max,
        slow_start: eject.slow_start,
        healthy_after: check.map_or(NO_CHECKS, |check| check.healthy_after),
        unhealthy_after: check.map_or(NO_CHECKS, |check| check.unhealthy_after),
    }
}
