//! What a server's clock shows, without asking it each time.
//!
//! How long a value has been in Redis is a difference on the server's clock. Whoever writes puts
//! the time of that clock into the value, and never a later one than it was; whoever reads takes
//! the latest that it can be by now. Both know it from the heartbeat, and count on from there by
//! their own monotonic clocks. So an entry may seem older than it is, by what an answer was under
//! way, and never younger; and a hit is one command.

use std::time::Duration;

/// How old a reading of the clock may be. Longer than a heartbeat with all its patience: then the
/// server is asked what is left of the value's time.
const READING_MAX: Duration = Duration::from_secs(2);

/// By how much two clocks may drift apart: one part in a thousand, ten times what quartz does, and
/// what is lost in rounding.
const DRIFT_PART: u32 = 1_000;
const ROUNDING: Duration = Duration::from_millis(1);

/// What the server's clock showed when it answered, and when that was by our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Since the epoch, by the server's clock.
    pub(crate) server: Duration,
    /// When it was asked, and when the answer had come, by this process's clock.
    pub(crate) asked: Duration,
    pub(crate) answered: Duration,
}

impl Reading {
    /// The earliest that the server's clock can show now; nothing if that is not known any more.
    pub(crate) fn earliest(&self, now: Duration) -> Option<Duration> {
        let since = self.since(now)?;
        self.server.saturating_add(since).checked_sub(drift(since))
    }

    /// The latest that it can show now.
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
        // The server looked at its clock at any moment between the question and the answer.
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
    fn an_old_reading_is_none() {
        assert!(READING.latest(ms(2_540)).is_some());
        assert_eq!(READING.latest(ms(2_541)), None);
        assert_eq!(READING.earliest(ms(2_541)), None);
    }
}
