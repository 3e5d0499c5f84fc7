//! Entries that a missed purge may have invalidated.
//!
//! Instances publish purges on the bus. An instance that missed messages, or whose bus is
//! disconnected, does not know which of its entries are still valid. It does not drop them all, which
//! would send every request to the origin at once. It marks them *unverified*, and revalidates each
//! unverified entry before serving it again: at once (`strict`) or after a grace period
//! (`available`).
//!
//! The record consists of positions: an entry whose load was sent before a position is unverified
//! from a certain time on. While the bus is disconnected, a new position is taken at intervals, so
//! that entries loaded meanwhile are trusted for a limited time, too.

use std::collections::VecDeque;
use std::time::Duration;

use crate::tags::Position;
use crate::time::Timestamp;

/// Time for which an entry loaded during a disconnection is trusted in `strict` mode.
const TRUST_STRICT: Duration = Duration::from_secs(1);

/// Time for which an entry is trusted during a disconnection in `available` mode.
const TRUST_AVAILABLE: Duration = Duration::from_secs(30);

/// Number of steps into which the trust time is divided; an entry is trusted for the whole time or
/// one step less.
const STEPS: u32 = 8;

/// Maximum number of steps that are kept: a few trust times, because a waiting caller is judged by the
/// state at its arrival.
const STEPS_MAX: usize = 32;

/// Maximum number of gaps that are kept apart. Beyond it, the newest gap takes effect as early as the
/// gap that it replaces.
const GAPS_MAX: usize = 8;

/// Handling of unverified entries: a purge by another instance that this instance may have missed
/// may have invalidated them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WhenBlind {
    /// An unverified entry is revalidated before it is served. An entry that was loaded while the
    /// bus is disconnected becomes unverified after one second.
    Strict,
    /// An unverified entry is served for 30 seconds after the purges may have been missed, and then
    /// revalidated before it is served. An entry that was loaded while the bus is disconnected is
    /// served for 30 seconds after its load.
    #[default]
    Available,
}

impl WhenBlind {
    /// Returns the time for which an unverified entry is served.
    const fn patience(self) -> Duration {
        match self {
            Self::Strict => Duration::ZERO,
            Self::Available => TRUST_AVAILABLE,
        }
    }

    /// Returns the time for which an entry loaded during a disconnection is trusted.
    const fn trust(self) -> Duration {
        match self {
            Self::Strict => TRUST_STRICT,
            Self::Available => TRUST_AVAILABLE,
        }
    }
}

/// Record of the entries that are unverified: a purge by another instance may have invalidated
/// them, and this instance may have missed it.
#[derive(Clone, Debug)]
pub struct BusTrust {
    when_blind: WhenBlind,
    /// Positions before which messages were missed; they stay until each entry is revalidated.
    gaps: VecDeque<Mark>,
    blind: Option<Blind>,
}

/// State of a disconnection.
#[derive(Clone, Debug)]
struct Blind {
    since: Timestamp,
    /// Time of the newest step.
    stepped: Timestamp,
    steps: VecDeque<Mark>,
}

/// Position before which entries are unverified.
#[derive(Clone, Copy, Debug)]
struct Mark {
    position: Position,
    at: Timestamp,
    /// Time from which the mark takes effect.
    due: Timestamp,
}

impl BusTrust {
    /// Creates a record in which every entry is trusted. `when_blind` says how unverified entries
    /// are handled.
    #[must_use]
    pub const fn new(when_blind: WhenBlind) -> Self {
        Self { when_blind, gaps: VecDeque::new(), blind: None }
    }

    /// Returns true while the bus is disconnected, so that purges by other instances are not
    /// received.
    #[must_use]
    pub const fn is_blind(&self) -> bool {
        self.blind.is_some()
    }

    /// Records that messages of the bus may have been missed: entries whose load was sent before
    /// `position` of the purge log are unverified until they are revalidated. Their grace period
    /// began with the current disconnection, if there is one, and begins now otherwise.
    pub fn gap(&mut self, position: Position, now: Timestamp) {
        let began = self.blind.as_ref().map_or(now, |blind| blind.since);
        let mut due = began.plus(self.when_blind.patience());
        // A newer gap covers every entry that an older one covers.
        while let Some(last) = self.gaps.back() {
            if last.due < due && self.gaps.len() < GAPS_MAX {
                break;
            }
            due = due.min(last.due);
            self.gaps.pop_back();
        }
        self.gaps.push_back(Mark { position, at: now, due });
    }

    /// Records that the bus is disconnected from now on. `position` is the purge log's position
    /// now: entries whose load was sent before it are unverified. They are not served without
    /// revalidation: at once with [`Strict`](WhenBlind::Strict), after 30 seconds with
    /// [`Available`](WhenBlind::Available).
    pub fn lost(&mut self, position: Position, now: Timestamp) {
        if self.blind.is_none() {
            let due = now.plus(self.when_blind.patience());
            let steps = VecDeque::from([Mark { position, at: now, due }]);
            self.blind = Some(Blind { since: now, stepped: now, steps });
        }
    }

    /// Records that the bus is connected again, and that no messages were missed except in gaps
    /// that were recorded.
    pub fn heard(&mut self) {
        self.blind = None;
    }

    /// Returns true if [`step`](Self::step) must be called now: the bus is disconnected, and the
    /// last step was an eighth of the trust time ago. For that time, 1 s (`Strict`) or 30 s
    /// (`Available`), entries loaded during a disconnection are trusted.
    #[must_use]
    pub fn wants_step(&self, now: Timestamp) -> bool {
        let step = self.when_blind.trust() / STEPS;
        self.blind.as_ref().is_some_and(|blind| now.since(blind.stepped) >= step)
    }

    /// Records a newer position of the purge log while the bus is disconnected, so that entries
    /// loaded since the disconnection become unverified, too.
    pub fn step(&mut self, position: Position, now: Timestamp) {
        let trust = self.when_blind.trust();
        let Some(blind) = &mut self.blind else { return };
        if blind.steps.len() >= STEPS_MAX {
            blind.steps.pop_front();
        }
        let due = blind.stepped.plus(trust);
        blind.steps.push_back(Mark { position, at: now, due });
        blind.stepped = now;
    }

    /// Returns true if an entry whose load was sent at `position` of the purge log is unverified
    /// and must not be served at `now` without revalidation.
    #[must_use]
    pub fn reaches(&self, position: Position, now: Timestamp) -> bool {
        self.due(now).any(|mark| position < mark.position)
    }

    /// Returns true if an entry whose load was sent at `position` of the purge log is unverified.
    /// It may still be served during its grace period of 30 seconds.
    #[must_use]
    pub fn doubts(&self, position: Position) -> bool {
        self.marks().any(|mark| position < mark.position)
    }

    /// Returns true if an entry whose load was sent at the time `load_started_at` is unverified. It
    /// may still be served during its grace period of 30 seconds. For entries of lower tiers, which
    /// may be those of an earlier process: they have no position in the purge log of this one.
    #[must_use]
    pub fn doubts_time(&self, load_started_at: Timestamp) -> bool {
        self.marks().any(|mark| load_started_at < mark.at)
    }

    /// Returns true if an entry whose load was sent at the time `load_started_at` is unverified and
    /// must not be served at `now` without revalidation. For entries of lower tiers, which may be
    /// those of an earlier process: they have no position in the purge log of this one.
    #[must_use]
    pub fn reaches_time(&self, load_started_at: Timestamp, now: Timestamp) -> bool {
        self.due(now).any(|mark| load_started_at < mark.at)
    }

    fn due(&self, now: Timestamp) -> impl Iterator<Item = &Mark> {
        self.marks().filter(move |mark| mark.due <= now)
    }

    fn marks(&self) -> impl Iterator<Item = &Mark> {
        let steps = self.blind.iter().flat_map(|blind| &blind.steps);
        self.gaps.iter().chain(steps)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis.cast_signed())
    }

    fn bus_trust(when_blind: WhenBlind) -> BusTrust {
        BusTrust::new(when_blind)
    }

    /// Returns whether entries loaded at these positions must not be served.
    fn reached(bus_trust: &BusTrust, positions: [u64; 3], now: u64) -> [bool; 3] {
        positions.map(|position| bus_trust.reaches(Position::new(position), at(now)))
    }

    #[test]
    fn a_gap_affects_earlier_entries_at_once_or_after_the_grace_period() {
        for (when_blind, due) in [(WhenBlind::Strict, 5), (WhenBlind::Available, 30_005)] {
            let mut bus_trust = bus_trust(when_blind);
            bus_trust.gap(Position::new(7), at(5));
            assert!(bus_trust.doubts(Position::new(6)) && !bus_trust.doubts(Position::new(7)));
            if when_blind == WhenBlind::Available {
                assert_eq!(reached(&bus_trust, [0, 6, 7], due - 1), [false; 3]);
            }
            assert_eq!(reached(&bus_trust, [0, 6, 7], due), [true, true, false]);
            assert!(bus_trust.reaches_time(at(4), at(due)));
            assert!(!bus_trust.reaches_time(at(5), at(due)));
            bus_trust.heard();
            assert_eq!(reached(&bus_trust, [0, 6, 7], due), [true, true, false]);
        }
    }

    #[test]
    fn a_disconnection_without_missed_messages_leaves_entries_trusted() {
        let mut bus_trust = bus_trust(WhenBlind::Strict);
        bus_trust.lost(Position::new(3), at(0));
        assert_eq!(reached(&bus_trust, [2, 3, 4], 0), [true, false, false]);
        bus_trust.heard();
        assert_eq!(reached(&bus_trust, [2, 3, 4], 0), [false; 3]);
    }

    #[test]
    fn a_gap_after_a_disconnection_takes_effect_from_its_beginning() {
        let mut bus_trust = bus_trust(WhenBlind::Available);
        bus_trust.lost(Position::new(3), at(0));
        bus_trust.gap(Position::new(5), at(20_000));
        bus_trust.heard();
        assert_eq!(reached(&bus_trust, [2, 4, 5], 29_999), [false; 3]);
        assert_eq!(reached(&bus_trust, [2, 4, 5], 30_000), [true, true, false]);
    }

    proptest! {
        /// During a disconnection no entry is served that was loaded longer ago than the trust time,
        /// and no entry is unverified that was loaded within seven eighths of that time.
        #[test]
        fn entries_loaded_during_a_disconnection_are_trusted_for_a_limited_time(
            steps in prop::collection::vec(1_u64..2_000, 1..200),
            is_strict in any::<bool>(),
        ) {
            let when_blind = if is_strict { WhenBlind::Strict } else { WhenBlind::Available };
            let trust = when_blind.trust().as_secs() * 1_000;
            let mut bus_trust = bus_trust(when_blind);
            let (mut now, mut position) = (1_u64, Position::new(1));
            bus_trust.lost(position, at(now));
            let mut loads = vec![(position, now)];
            for step in steps {
                now += step;
                if bus_trust.wants_step(at(now)) {
                    position = position.next();
                    bus_trust.step(position, at(now));
                }
                loads.push((position, now));
                for (position, started) in &loads {
                    let is_suspect = bus_trust.reaches(*position, at(now));
                    prop_assert!(is_suspect || now - started < trust + trust / 8);
                    prop_assert!(!is_suspect || now - started + trust / 8 >= trust);
                }
            }
        }

        #[test]
        fn merged_gaps_cover_every_single_gap(
            gaps in prop::collection::vec(0_u64..60_000, 1..50),
        ) {
            let mut bus_trust = bus_trust(WhenBlind::Available);
            let mut noted = Vec::new();
            let mut now = 0;
            for (gap, step) in gaps.into_iter().enumerate() {
                now += step / 10;
                let position = Position::new(gap as u64 + 1);
                bus_trust.gap(position, at(now));
                noted.push((position, now + 30_000));
                prop_assert!(bus_trust.gaps.len() <= GAPS_MAX);
                for (position, due) in &noted {
                    let before = Position::new(position.number() - 1);
                    prop_assert!(bus_trust.reaches(before, at(*due)));
                }
            }
        }
    }
}
