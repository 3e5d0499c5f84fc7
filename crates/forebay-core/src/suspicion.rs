//! What may have been purged without a word of it here.
//!
//! Instances tell each other of purges. One that has missed some of that, or hears nothing, cannot
//! know what of what it holds is still good. It does not throw it away: that would send everybody
//! to the origin at once. It *suspects* what it holds, and looks at each suspect entry anew before
//! it is served again; at once or after a while, as it was told to.
//!
//! All of it is arithmetic on positions: what departed before some position is suspect from some
//! time on. While nothing is heard, new positions are taken every now and then, so that what comes
//! meanwhile is trusted for a while, too, and not for ever.

use std::collections::VecDeque;
use std::time::Duration;

use crate::tags::Position;
use crate::time::Timestamp;

/// For how long an answer is trusted while nothing is heard, where nothing may be served on
/// suspicion.
const TRUST_STRICT: Duration = Duration::from_secs(1);

/// The same where it may.
const TRUST_AVAILABLE: Duration = Duration::from_secs(30);

/// Into how many steps that time is divided: an answer is trusted for it or for one step less.
const STEPS: u32 = 8;

/// How many steps are kept: those of a few such times, since who came a while ago is told what
/// held then.
const STEPS_MAX: usize = 32;

/// How many gaps are told apart. Of more, the newest reach what came before them as soon as those
/// before them do.
const GAPS_MAX: usize = 8;

/// What is done with a suspect entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WhenBlind {
    /// It is not served before it has been looked at anew.
    Strict,
    /// It is served for 30 seconds, and then as if strict.
    #[default]
    Available,
}

impl WhenBlind {
    /// For how long what is suspect is served all the same.
    const fn patience(self) -> Duration {
        match self {
            Self::Strict => Duration::ZERO,
            Self::Available => TRUST_AVAILABLE,
        }
    }

    /// For how long what comes while nothing is heard is served.
    const fn trust(self) -> Duration {
        match self {
            Self::Strict => TRUST_STRICT,
            Self::Available => TRUST_AVAILABLE,
        }
    }
}

/// The record of what is suspect.
#[derive(Clone, Debug)]
pub struct Suspicion {
    when_blind: WhenBlind,
    /// Of what was missed: holds until each entry has been looked at.
    gaps: VecDeque<Mark>,
    blind: Option<Blind>,
}

/// Nothing is heard.
#[derive(Clone, Debug)]
struct Blind {
    since: Timestamp,
    /// The time of the newest of them.
    stepped: Timestamp,
    steps: VecDeque<Mark>,
}

/// Whatever departed before it is suspect.
#[derive(Clone, Copy, Debug)]
struct Mark {
    position: Position,
    at: Timestamp,
    /// From when on that counts.
    due: Timestamp,
}

impl Suspicion {
    /// Nothing is suspect.
    #[must_use]
    pub const fn new(when_blind: WhenBlind) -> Self {
        Self { when_blind, gaps: VecDeque::new(), blind: None }
    }

    /// Whether nothing is heard.
    #[must_use]
    pub const fn is_blind(&self) -> bool {
        self.blind.is_some()
    }

    /// Something may have been missed: what departed before this position is suspect.
    pub fn gap(&mut self, position: Position, now: Timestamp) {
        let began = self.blind.as_ref().map_or(now, |blind| blind.since);
        let mut due = began.plus(self.when_blind.patience());
        // Newer gaps reach all that older ones do.
        while let Some(last) = self.gaps.back() {
            if last.due < due && self.gaps.len() < GAPS_MAX {
                break;
            }
            due = due.min(last.due);
            self.gaps.pop_back();
        }
        self.gaps.push_back(Mark { position, at: now, due });
    }

    /// Nothing is heard from now on.
    pub fn lost(&mut self, position: Position, now: Timestamp) {
        if self.blind.is_none() {
            let due = now.plus(self.when_blind.patience());
            let steps = VecDeque::from([Mark { position, at: now, due }]);
            self.blind = Some(Blind { since: now, stepped: now, steps });
        }
    }

    /// Everything is heard again, and nothing was missed but what a gap has told.
    pub fn heard(&mut self) {
        self.blind = None;
    }

    /// Whether a [step](Self::step) is due.
    #[must_use]
    pub fn wants_step(&self, now: Timestamp) -> bool {
        let step = self.when_blind.trust() / STEPS;
        self.blind.as_ref().is_some_and(|blind| now.since(blind.stepped) >= step)
    }

    /// Takes a new position while nothing is heard. What departed before it will not be trusted
    /// for ever.
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

    /// Whether what departed at this position is suspect at `now`, and not to be served any more.
    #[must_use]
    pub fn reaches(&self, departed: Position, now: Timestamp) -> bool {
        self.due(now).any(|mark| departed < mark.position)
    }

    /// Whether what departed at this position is suspect at all: it may be served for now.
    #[must_use]
    pub fn doubts(&self, departed: Position) -> bool {
        self.marks().any(|mark| departed < mark.position)
    }

    /// The same for what knows the time of its departure alone.
    #[must_use]
    pub fn doubts_time(&self, departed: Timestamp) -> bool {
        self.marks().any(|mark| departed < mark.at)
    }

    /// Like [`reaches`](Self::reaches), for what knows the time of its departure alone: no position
    /// outlives a process.
    #[must_use]
    pub fn reaches_time(&self, departed: Timestamp, now: Timestamp) -> bool {
        self.due(now).any(|mark| departed < mark.at)
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

    fn suspicion(when_blind: WhenBlind) -> Suspicion {
        Suspicion::new(when_blind)
    }

    /// What departed at each of these positions.
    fn reached(suspicion: &Suspicion, positions: [u64; 3], now: u64) -> [bool; 3] {
        positions.map(|position| suspicion.reaches(Position::new(position), at(now)))
    }

    #[test]
    fn a_gap_reaches_what_came_before_it_at_once_or_after_a_while() {
        for (when_blind, due) in [(WhenBlind::Strict, 5), (WhenBlind::Available, 30_005)] {
            let mut suspicion = suspicion(when_blind);
            suspicion.gap(Position::new(7), at(5));
            assert!(suspicion.doubts(Position::new(6)) && !suspicion.doubts(Position::new(7)));
            if when_blind == WhenBlind::Available {
                assert_eq!(reached(&suspicion, [0, 6, 7], due - 1), [false; 3]);
            }
            assert_eq!(reached(&suspicion, [0, 6, 7], due), [true, true, false]);
            assert!(suspicion.reaches_time(at(4), at(due)));
            assert!(!suspicion.reaches_time(at(5), at(due)));
            suspicion.heard();
            assert_eq!(reached(&suspicion, [0, 6, 7], due), [true, true, false]);
        }
    }

    #[test]
    fn silence_is_forgiven_if_nothing_was_missed() {
        let mut suspicion = suspicion(WhenBlind::Strict);
        suspicion.lost(Position::new(3), at(0));
        assert_eq!(reached(&suspicion, [2, 3, 4], 0), [true, false, false]);
        suspicion.heard();
        assert_eq!(reached(&suspicion, [2, 3, 4], 0), [false; 3]);
    }

    #[test]
    fn a_gap_that_ends_a_silence_reaches_back_to_its_beginning() {
        let mut suspicion = suspicion(WhenBlind::Available);
        suspicion.lost(Position::new(3), at(0));
        suspicion.gap(Position::new(5), at(20_000));
        suspicion.heard();
        assert_eq!(reached(&suspicion, [2, 4, 5], 29_999), [false; 3]);
        assert_eq!(reached(&suspicion, [2, 4, 5], 30_000), [true, true, false]);
    }

    proptest! {
        /// While nothing is heard, nothing is served that departed longer ago than the time of
        /// trust, nor before the silence after its patience; and nothing is suspect that departed
        /// within seven eighths of that time.
        #[test]
        fn what_comes_in_silence_is_trusted_for_a_while(
            steps in prop::collection::vec(1_u64..2_000, 1..200),
            is_strict in any::<bool>(),
        ) {
            let when_blind = if is_strict { WhenBlind::Strict } else { WhenBlind::Available };
            let trust = when_blind.trust().as_secs() * 1_000;
            let mut suspicion = suspicion(when_blind);
            let (mut now, mut position) = (1_u64, Position::new(1));
            suspicion.lost(position, at(now));
            let mut departed = vec![(position, now)];
            for step in steps {
                now += step;
                if suspicion.wants_step(at(now)) {
                    position = position.next();
                    suspicion.step(position, at(now));
                }
                departed.push((position, now));
                for (position, left) in &departed {
                    let is_suspect = suspicion.reaches(*position, at(now));
                    prop_assert!(is_suspect || now - left < trust + trust / 8);
                    prop_assert!(!is_suspect || now - left + trust / 8 >= trust);
                }
            }
        }

        #[test]
        fn many_gaps_reach_what_each_of_them_does(
            gaps in prop::collection::vec(0_u64..60_000, 1..50),
        ) {
            let mut suspicion = suspicion(WhenBlind::Available);
            let mut noted = Vec::new();
            let mut now = 0;
            for (gap, step) in gaps.into_iter().enumerate() {
                now += step / 10;
                let position = Position::new(gap as u64 + 1);
                suspicion.gap(position, at(now));
                noted.push((position, now + 30_000));
                prop_assert!(suspicion.gaps.len() <= GAPS_MAX);
                for (position, due) in &noted {
                    let before = Position::new(position.number() - 1);
                    prop_assert!(suspicion.reaches(before, at(*due)));
                }
            }
        }
    }
}
