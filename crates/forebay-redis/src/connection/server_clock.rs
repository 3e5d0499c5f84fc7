//! Estimate of a server's clock between heartbeats.
//!
//! The residence of a value is a difference on the server's clock. A writer stores the earliest
//! possible time in the value; a reader subtracts it from the latest possible time. Both derive
//! these from the last heartbeat and their own monotonic clocks. An entry may therefore appear
//! older than it is, by the travel time of a reply, and never younger. A hit needs one command.

use std::time::Duration;

/// Maximum age of a clock reading: longer than a heartbeat with its timeouts. Without a reading the
/// remaining TTL is read with each value.
const READING_MAX: Duration = Duration::from_secs(2);

/// Maximum drift between two clocks: one part in a thousand, ten times that of quartz, plus a
/// rounding error.
const DRIFT_PART: u32 = 1_000;
const ROUNDING: Duration = Duration::from_millis(1);

/// Reading of the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Time on the server's clock, since the epoch.
    pub(crate) server: Duration,
    /// Times of the request and of the reply, on this process's clock.
    pub(crate) asked: Duration,
    pub(crate) answered: Duration,
}

impl Reading {
    /// Returns the earliest possible time on the server's clock; `None` if the reading is too old.
    pub(crate) fn earliest(&self, now: Duration) -> Option<Duration> {
        let since = self.since(now)?;
        self.server.saturating_add(since).checked_sub(drift(since))
    }

    /// Returns the latest possible time on the server's clock; `None` if the reading is too old.
    pub(crate) fn latest(&self, now: Duration) -> Option<Duration> {
        let since = self.since(now)?;
        let under_way = self.answered.saturating_sub(self.asked);
        Some(self.server.saturating_add(since + under_way + drift(since)))
    }

    fn since(&self, now: Duration) -> Option<Duration> {
        let since = now.saturating_sub(self.answered);
        (since <= READING_MAX).then_some(since)
    }
}

fn drift(since: Duration) -> Duration {
    since / DRIFT_PART + ROUNDING
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    const READING: Reading = Reading { server: ms(1_000_000), asked: ms(500), answered: ms(540) };

    #[test]
    fn the_truth_is_between_the_earliest_and_the_latest() {
        // The server read its clock at some time between request and reply.
        for looked in [500, 520, 540] {
            for now in [540, 700, 1_540, 2_540] {
                let truth = READING.server + ms(now) - ms(looked);
                assert!(READING.earliest(ms(now)).unwrap() < truth, "{looked} {now}");
                assert!(READING.latest(ms(now)).unwrap() > truth, "{looked} {now}");
            }
        }
        let width = READING.latest(ms(1_540)).unwrap() - READING.earliest(ms(1_540)).unwrap();
        assert_eq!(width, ms(40) + ms(2) + ms(2));
    }

    #[test]
    fn old_clock_reading_is_not_used() {
        assert!(READING.latest(ms(2_540)).is_some());
        assert_eq!(READING.latest(ms(2_541)), None);
        assert_eq!(READING.earliest(ms(2_541)), None);
    }
}
