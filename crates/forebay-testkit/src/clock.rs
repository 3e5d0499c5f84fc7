//! Clock that moves only when it is stepped.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// Start of the monotonic clock in milliseconds; not zero, so that a default instant is detectable.
const MONOTONIC_START_MS: i64 = 1_000_000;

/// Default start of the wall clock in Unix seconds: 1 January 2026, 00:00:00 UTC.
const WALL_START_SECONDS: i64 = 1_767_225_600;

/// Monotonic clock in milliseconds and wall clock in Unix seconds, both stepped by hand.
///
/// A step moves both. [`jump_wall`](Self::jump_wall) moves the wall clock alone, like an
/// administrator or a time daemon. Arithmetic saturates.
#[derive(Debug)]
pub struct SteppedClock {
    monotonic_ms: AtomicI64,
    wall_ms: AtomicI64,
}

impl SteppedClock {
    /// Clock whose wall time is 1 January 2026, 00:00:00 UTC.
    pub fn new() -> Self {
        Self::starting_at(WALL_START_SECONDS)
    }

    /// Clock whose wall time is `unix_seconds`.
    pub fn starting_at(unix_seconds: i64) -> Self {
        Self {
            monotonic_ms: AtomicI64::new(MONOTONIC_START_MS),
            wall_ms: AtomicI64::new(unix_seconds.saturating_mul(1_000)),
        }
    }

    /// Monotonic time in milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.monotonic_ms.load(Ordering::SeqCst)
    }

    /// Wall time in seconds since the Unix epoch.
    pub fn unix_seconds(&self) -> i64 {
        self.unix_ms().div_euclid(1_000)
    }

    /// Wall time in milliseconds since the Unix epoch.
    pub fn unix_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    /// Moves both clocks forward; fractions of a millisecond are dropped.
    pub fn step(&self, by: Duration) {
        let by_ms = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        add(&self.monotonic_ms, by_ms);
        add(&self.wall_ms, by_ms);
    }

    /// Moves the wall clock alone; a negative number moves it backwards.
    pub fn jump_wall(&self, by_seconds: i64) {
        add(&self.wall_ms, by_seconds.saturating_mul(1_000));
    }
}

impl Default for SteppedClock {
    fn default() -> Self {
        Self::new()
    }
}

fn add(to: &AtomicI64, by_ms: i64) {
    to.update(Ordering::SeqCst, Ordering::SeqCst, |now| now.saturating_add(by_ms));
}
