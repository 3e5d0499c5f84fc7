//! What came out, held against what must hold: a table for people, the same as JSON.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::crowd::{CROWD, Case, DELAY, Outcome};

/// How long a crowd may wait for one answer that its members share.
const SHARED_MAX: Duration = Duration::from_millis(600);

/// The same where nobody knows yet that the answer varies: the second fetch begins when the first
/// has said so.
const SHARED_TWICE_MAX: Duration = Duration::from_millis(1_150);

/// How long a crowd may wait for what is there, though stale.
const AT_HAND_MAX: Duration = Duration::from_millis(60);

/// What uncacheable answers may cost beyond the origin's own time.
const OVERHEAD_MAX: Duration = Duration::from_millis(150);

/// How long a follower may wait for the first byte of a body that flows already.
const FIRST_BYTE_MAX: Duration = Duration::from_millis(5);

/// How much later than the leader's a follower's body may end.
const BEHIND_MAX: Duration = Duration::from_millis(50);

/// What a case is called.
pub(crate) const fn name(case: Case) -> &'static str {
    match case {
        Case::Cold => "cold",
        Case::Expired => "expired",
        Case::ExpiredWithEtag => "expired, with an ETag",
        Case::StaleWhileRevalidate => "stale, SWR",
        Case::VariantsCold => "10 variants, cold",
        Case::VariantsKnown => "10 variants, Vary known",
        Case::NoStoreFirst => "no-store, first contact",
        Case::NoStoreMarked => "no-store, known",
        Case::Private => "private, a cookie each",
        Case::SetCookie => "Set-Cookie, a cookie each",
        Case::SlowBody => "slow body, 5 join late",
        Case::LeaderLeaves => "the first client leaves",
        Case::Truncated => "truncated body",
    }
}

/// What a round's times must not exceed.
#[derive(Clone, Copy)]
enum Bound {
    P99(Duration),
    Wall(Duration),
    Joined,
    /// None: how fast an error spreads is nobody's concern.
    Counts,
}

impl Bound {
    fn of(case: Case) -> Self {
        match case {
            Case::StaleWhileRevalidate => Self::P99(AT_HAND_MAX),
            Case::VariantsCold => Self::P99(SHARED_TWICE_MAX),
            Case::NoStoreMarked => Self::Wall(DELAY + OVERHEAD_MAX),
            Case::NoStoreFirst | Case::Private | Case::SetCookie => {
                Self::Wall(2 * DELAY + OVERHEAD_MAX)
            }
            Case::SlowBody => Self::Joined,
            Case::Truncated => Self::Counts,
            _ => Self::P99(SHARED_MAX),
        }
    }

    fn holds(self, outcome: &Outcome) -> bool {
        match self {
            Self::P99(max) => outcome.times.p99() <= max,
            Self::Wall(max) => outcome.times.max() <= max,
            Self::Joined => outcome.joined.is_some_and(|joined| {
                joined.first_byte <= FIRST_BYTE_MAX && joined.behind <= BEHIND_MAX
            }),
            Self::Counts => true,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::P99(max) => write!(f, "p99 <= {}", seconds(*max)),
            Self::Wall(max) => write!(f, "wall <= {}", seconds(*max)),
            Self::Joined => write!(
                f,
                "first byte <= {} ms, end <= {} ms after",
                FIRST_BYTE_MAX.as_millis(),
                BEHIND_MAX.as_millis()
            ),
            Self::Counts => f.write_str("none ends whole, none is stored"),
        }
    }
}

/// One round of one case.
pub(crate) struct Round {
    fetches: u64,
    conditional: u64,
    distinct: usize,
    wrong: usize,
    p50: Duration,
    p99: Duration,
    wall: Duration,
    joined: Option<(Duration, Duration)>,
    holds: bool,
}

impl Round {
    pub(crate) fn of(case: Case, outcome: &Outcome) -> Self {
        let counted = (outcome.fetches, outcome.distinct) == case.fetches_and_bodies()
            && outcome.conditional == case.conditional()
            && outcome.wrong == 0;
        Self {
            fetches: outcome.fetches,
            conditional: outcome.conditional,
            distinct: outcome.distinct,
            wrong: outcome.wrong,
            p50: outcome.times.p50(),
            p99: outcome.times.p99(),
            wall: outcome.times.max(),
            joined: outcome.joined.map(|joined| (joined.first_byte, joined.behind)),
            holds: counted && Bound::of(case).holds(outcome),
        }
    }

    /// What makes one round worse than another.
    fn badness(&self) -> (bool, Option<(Duration, Duration)>, Duration) {
        (!self.holds, self.joined, self.wall)
    }

    fn json(&self) -> Value {
        let joined = self.joined.map(|(first_byte, behind)| {
            json!({ "first_byte_s": first_byte.as_secs_f64(), "behind_s": behind.as_secs_f64() })
        });
        json!({
            "fetches": self.fetches, "conditional": self.conditional,
            "distinct_bodies": self.distinct, "wrong_bodies": self.wrong,
            "p50_s": self.p50.as_secs_f64(), "p99_s": self.p99.as_secs_f64(),
            "wall_s": self.wall.as_secs_f64(), "joined": joined, "holds": self.holds,
        })
    }
}

/// All rounds of all cases.
pub(crate) struct Report {
    rounds: usize,
    rows: Vec<(Case, Vec<Round>)>,
}

impl Report {
    pub(crate) fn new(rounds: usize) -> Self {
        Self { rounds, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, case: Case, round: Round) {
        match self.rows.last_mut() {
            Some((last, rounds)) if *last == case => rounds.push(round),
            _ => self.rows.push((case, vec![round])),
        }
    }

    /// Whether everything holds in every round.
    pub(crate) fn holds(&self) -> bool {
        self.rows.iter().flat_map(|(_, rounds)| rounds).all(|round| round.holds)
    }

    pub(crate) fn json(&self) -> Value {
        let row = |(case, rounds): &(Case, Vec<Round>)| {
            let (fetches, bodies) = case.fetches_and_bodies();
            json!({
                "case": name(*case),
                "expected": {
                    "fetches": fetches, "conditional": case.conditional(),
                    "distinct_bodies": bodies, "times": Bound::of(*case).to_string(),
                },
                "holds": rounds.iter().all(|round| round.holds),
                "rounds": rounds.iter().map(Round::json).collect::<Vec<_>>(),
            })
        };
        json!({
            "crowd": CROWD, "origin_delay_s": DELAY.as_secs_f64(), "cores": cores(),
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{CROWD} clients at once, an origin that takes {}, clients, origin and cache on {} \
             cores; the worst of {} rounds\n",
            seconds(DELAY),
            cores(),
            self.rounds
        )?;
        writeln!(
            f,
            "{:<26} {:>12} {:>8} {:>6} {:>8} {:>8} {:>8}  {:<40} holds",
            "case", "fetches", "bodies", "wrong", "p50", "p99", "wall", "bound"
        )?;
        for (case, rounds) in &self.rows {
            if let Some(worst) = rounds.iter().max_by_key(|round| round.badness()) {
                line(f, *case, worst)?;
            }
        }
        writeln!(f, "\ntimes go from a client's request to the end of its body; wall: the longest")
    }
}

fn line(f: &mut fmt::Formatter<'_>, case: Case, round: &Round) -> fmt::Result {
    let (fetches, bodies) = case.fetches_and_bodies();
    let conditional = if round.conditional > 0 { " (304)" } else { "" };
    let joined = round.joined.map_or_else(String::new, |(first_byte, behind)| {
        format!("{:.1} ms, {:.1} ms; ", 1e3 * first_byte.as_secs_f64(), 1e3 * behind.as_secs_f64())
    });
    writeln!(
        f,
        "{:<26} {:>12} {:>8} {:>6} {:>8} {:>8} {:>8}  {:<40} {}",
        name(case),
        format!("{}/{fetches}{conditional}", round.fetches),
        format!("{}/{bodies}", round.distinct),
        round.wrong,
        seconds(round.p50),
        seconds(round.p99),
        seconds(round.wall),
        format!("{joined}{}", Bound::of(case)),
        if round.holds { "yes" } else { "NO" }
    )
}

fn seconds(span: Duration) -> String {
    format!("{:.3} s", span.as_secs_f64())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
