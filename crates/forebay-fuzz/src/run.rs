//! One run of one target.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher as _, DefaultHasher, Hash, Hasher as _, RandomState};
use std::time::{Duration, Instant};

use crate::caught::caught;
use crate::dice::Dice;
use crate::mutate::{Stock, mutate, stretch};
use crate::sample::escape;

#[cfg(test)]
mod tests;

/// How long each target runs unless [`SECONDS`] says otherwise: enough for the samples and for
/// thousands of mutations, and short enough for every `cargo test`.
const BUDGET: Duration = Duration::from_secs(2);

/// The variable that says how many seconds each target runs.
pub const SECONDS: &str = "FOREBAY_FUZZ_SECONDS";

/// The variable that makes a run the same as an earlier one.
pub const SEED: &str = "FOREBAY_FUZZ_SEED";

/// One round in so many is a long one: it costs as much as a hundred others.
const STRETCH_EVERY: u64 = 250;

/// How long a check of the longest input may take. Linear ones take some 20 ms without
/// optimisation, quadratic ones minutes; between them there is room for a busy machine.
const STRETCHED_TIME: Duration = Duration::from_secs(4);

/// Most inputs that are kept in the pool. A target whose outcomes are this many tells too much.
const POOL_MAX: usize = 4096;

/// Most tries to make an input smaller that was found.
const SHRINK_TRIES_MAX: usize = 400;

/// Something that is fed, and what must hold.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: that of its folder of samples, and of its test.
    pub name: &'static str,
    /// Feeds it; panics if something does not hold.
    pub check: fn(&[u8]) -> Outcome,
    /// Words that lead beyond the first branches.
    pub words: &'static [&'static str],
    /// How many different outcomes the samples alone have at least. A check that looks at nothing
    /// would have one.
    pub outcomes_min: usize,
}

/// What kind of result an input had. Two inputs with one outcome went roughly the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outcome(u64);

impl Outcome {
    /// The outcome that this is the mark of. Marks should be coarse: counts cut off at a few,
    /// spans by their order of magnitude.
    pub fn of(mark: impl Hash) -> Self {
        let mut digest = DefaultHasher::new();
        mark.hash(&mut digest);
        Self(digest.finish())
    }
}

/// How long to run, and which way.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// When the time is over no further round begins; samples are always replayed.
    pub budget: Duration,
    /// What decides all mutations.
    pub seed: u64,
    /// How long the check of a stretched input may take.
    pub patience: Duration,
}

impl Plan {
    /// As the environment says.
    ///
    /// # Errors
    ///
    /// When [`SECONDS`] or [`SEED`] is no number.
    pub fn from_environment() -> Result<Self, String> {
        let budget = number(SECONDS)?.map_or(BUDGET, Duration::from_secs);
        let seed = number(SEED)?.unwrap_or_else(|| RandomState::new().hash_one(SEED));
        Ok(Self { budget, seed, patience: STRETCHED_TIME })
    }
}

fn number(variable: &str) -> Result<Option<u64>, String> {
    let Some(text) = std::env::var_os(variable) else { return Ok(None) };
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| format!("{variable} is to be a number, not {text:?}"))
}

/// What a run came to that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// How many samples were replayed.
    pub samples: usize,
    /// How many different outcomes they had.
    pub outcomes_of_samples: usize,
    /// How many mutations came after them.
    pub rounds: u64,
    /// How many different outcomes there were in all.
    pub outcomes: usize,
}

/// An input for which something does not hold.
#[derive(Clone, Debug)]
pub struct Found {
    /// The input, as small as it could be made.
    pub input: Vec<u8>,
    /// What the check said.
    pub says: String,
    /// The seed of the run.
    pub seed: u64,
    /// The mutation that it was; nothing if it was a sample.
    pub round: Option<u64>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.round {
            Some(round) => writeln!(f, "round {round} of {SEED}={}: {}", self.seed, self.says)?,
            None => writeln!(f, "a sample: {}", self.says)?,
        }
        write!(f, "{}", escape(&self.input))
    }
}

/// Replays the samples, then feeds mutations of them until the time is over.
///
/// # Errors
///
/// The first input for which something does not hold.
pub fn run(target: &Target, samples: &[Vec<u8>], plan: Plan) -> Result<Report, Found> {
    let started = Instant::now();
    let mut hunt = Hunt { target, plan, seen: HashSet::new(), pool: samples.to_vec() };
    for sample in samples {
        hunt.feed(sample.clone(), None)?;
    }
    let outcomes_of_samples = hunt.seen.len();
    let mut dice = Dice::new(plan.seed);
    let mut rounds = 0;
    while started.elapsed() < plan.budget {
        hunt.round(&mut dice, rounds)?;
        rounds += 1;
    }
    let outcomes = hunt.seen.len();
    Ok(Report { samples: samples.len(), outcomes_of_samples, rounds, outcomes })
}

struct Hunt<'a> {
    target: &'a Target,
    plan: Plan,
    seen: HashSet<Outcome>,
    pool: Vec<Vec<u8>>,
}

impl Hunt<'_> {
    fn round(&mut self, dice: &mut Dice, round: u64) -> Result<(), Found> {
        let stock = Stock { pool: &self.pool, words: self.target.words };
        if round % STRETCH_EVERY == STRETCH_EVERY - 1 {
            let input = stretch(stock, dice);
            return self.time(input, round);
        }
        let input = mutate(stock, dice);
        self.feed(input, Some(round))
    }

    fn feed(&mut self, input: Vec<u8>, round: Option<u64>) -> Result<(), Found> {
        let outcome = self.check(&input).map_err(|says| self.found(&input, says, round))?;
        if self.seen.insert(outcome) && round.is_some() && self.pool.len() < POOL_MAX {
            self.pool.push(input);
        }
        Ok(())
    }

    /// A long input, which is too large for the pool. It is slow only if it is so twice: the
    /// first time something else may have had the processor.
    fn time(&self, input: Vec<u8>, round: u64) -> Result<(), Found> {
        let mut spans = [Duration::ZERO; 2];
        for span in &mut spans {
            let started = Instant::now();
            self.check(&input).map_err(|says| self.found(&input, says, Some(round)))?;
            *span = started.elapsed();
            if *span <= self.plan.patience {
                return Ok(());
            }
        }
        let says =
            format!("{} bytes took {spans:?}, {:?} at most", input.len(), self.plan.patience);
        Err(Found { input, says, seed: self.plan.seed, round: Some(round) })
    }

    fn check(&self, input: &[u8]) -> Result<Outcome, String> {
        caught(|| (self.target.check)(input))
    }

    fn found(&self, input: &[u8], says: String, round: Option<u64>) -> Found {
        let (input, smaller) = self.shrink(input.to_vec());
        Found { input, says: smaller.unwrap_or(says), seed: self.plan.seed, round }
    }

    /// Takes pieces out as long as the input still fails, halves first.
    fn shrink(&self, mut input: Vec<u8>) -> (Vec<u8>, Option<String>) {
        let (mut said, mut size, mut start) = (None, input.len() / 2, 0);
        for _ in 0..SHRINK_TRIES_MAX {
            if start >= input.len() {
                (size, start) = (size / 2, 0);
            }
            if size == 0 {
                break;
            }
            let end = (start + size).min(input.len());
            let smaller = [&input[..start], &input[end..]].concat();
            match self.check(&smaller) {
                Err(says) => (input, said) = (smaller, Some(says)),
                Ok(_) => start = end,
            }
        }
        (input, said)
    }
}
