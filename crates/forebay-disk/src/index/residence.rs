//! Residence time of entries, across sessions. A session lasts from opening a directory to closing
//! it.
//!
//! Within one session the monotonic clock counts. It does not survive a reboot, so for entries of
//! earlier sessions the wall clock counts. If the wall clock has gone back, such an entry counts as
//! older than any lifetime; it can still be validated.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::Timestamp;
use forebay_engine::Clock;

use crate::format::layout::Moment;
use crate::format::root::random;

/// Residence of unknown length: longer than any lifetime.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Resolution of the wall clock; a difference may be too small by this much.
const WALL_STEP: Duration = Duration::from_secs(1);

/// Clock of one session.
#[derive(Debug)]
pub(crate) struct ResidenceClock {
    session: u64,
    /// Monotonic and wall clock at the start. Later steps of the wall clock have no effect.
    began: (Timestamp, u64),
    /// Highest wall clock value written by earlier sessions.
    newest: AtomicU64,
}

impl ResidenceClock {
    pub(crate) fn begin(clock: &dyn Clock) -> Self {
        let began = (clock.now(), clock.wall().as_secs());
        Self { session: random(), began, newest: AtomicU64::new(0) }
    }

    pub(crate) const fn session(&self) -> u64 {
        self.session
    }

    pub(crate) fn moment(&self, now: Timestamp) -> Moment {
        Moment { session: self.session, monotonic: now.as_millis(), wall: self.wall(now) }
    }

    /// Records a wall clock value of an earlier session.
    pub(crate) fn learn(&self, wall: u64) {
        self.newest.fetch_max(wall, Ordering::Relaxed);
    }

    /// Returns the residence time of an entry, or more; never less.
    pub(crate) fn resided(&self, stored: Moment, now: Timestamp) -> Duration {
        if stored.session == self.session {
            return now.since(Timestamp::from_millis(stored.monotonic));
        }
        let highest = self.newest.load(Ordering::Relaxed).max(stored.wall);
        if self.began.1 < highest {
            return FOREVER;
        }
        Duration::from_secs(self.wall(now).saturating_sub(stored.wall)) + WALL_STEP
    }

    fn wall(&self, now: Timestamp) -> u64 {
        self.began.1.saturating_add(now.since(self.began.0).as_secs())
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::WallTime;

    use super::*;

    struct At(i64, u64);

    impl Clock for At {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0)
        }

        fn wall(&self) -> WallTime {
            WallTime::from_secs(self.1)
        }

        fn exact(&self) -> Duration {
            Duration::ZERO
        }
    }

    #[test]
    fn within_a_life_the_monotonic_clock_counts() {
        let clock = ResidenceClock::begin(&At(-500, 1_000));
        let stored = clock.moment(Timestamp::from_millis(2_000));
        assert_eq!(stored.wall, 1_002);
        let resided = clock.resided(stored, Timestamp::from_millis(9_250));
        assert_eq!(resided, Duration::from_millis(7_250));
    }

    #[test]
    fn across_lives_the_wall_clock_counts_and_never_makes_younger() {
        let stored =
            ResidenceClock::begin(&At(50_000, 1_000)).moment(Timestamp::from_millis(50_000));
        let later = ResidenceClock::begin(&At(3, 1_060));
        later.learn(1_050);
        let resided = later.resided(stored, Timestamp::from_millis(10_003));
        assert_eq!(resided, Duration::from_secs(71));
    }

    #[test]
    fn a_wall_clock_that_went_backwards_makes_older_than_any_lifetime() {
        let early = ResidenceClock::begin(&At(0, 1_000)).moment(Timestamp::default());
        // Neither starts before the entry was stored, but a later write precedes the second.
        for (wall, newest) in [(999, 0), (1_500, 1_501)] {
            let clock = ResidenceClock::begin(&At(0, wall));
            clock.learn(newest);
            assert_eq!(clock.resided(early, Timestamp::default()), FOREVER, "{wall} {newest}");
        }
    }
}
