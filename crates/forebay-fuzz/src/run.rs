//! Run of one target.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher as _, DefaultHasher, Hash, Hasher as _, RandomState};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::caught::caught;
use crate::mutate::{mutate, stretch};
use crate::sample::escape;

#[cfg(test)]
mod tests;

/// Default duration of each target: enough for the samples and thousands of mutations, and short
/// enough for every `cargo test`.
const BUDGET: Duration = Duration::from_secs(2);

/// Environment variable with the duration of each target in whole seconds. Default: 2.
pub const SECONDS: &str = "FOREBAY_FUZZ_SECONDS";

/// Environment variable with the seed of an earlier run, to repeat it. Default: a random seed.
pub const SEED: &str = "FOREBAY_FUZZ_SEED";

/// Number of ordinary rounds per stretched one, which costs as much as a hundred others.
const STRETCH_EVERY: u64 = 250;

/// Maximum duration of a check of a stretched input. Linear checks take about 20 ms without
/// optimization, quadratic ones minutes.
const STRETCHED_TIME: Duration = Duration::from_secs(4);

/// Maximum number of inputs in the pool. A target with so many outcomes classifies too finely.
const POOL_MAX: usize = 4096;

/// Maximum number of attempts to shrink a failing input.
const SHRINK_TRIES_MAX: usize = 400;

/// Code under test, and the properties that it must have.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Check of one input; panics if a property does not hold.
    pub check: fn(&[u8]) -> Outcome,
    /// Minimum number of different outcomes of the samples, with which the test of the target
    /// compares its [`Report`]. A check that examines nothing would have one outcome.
    pub outcomes_min: usize,
}

/// Class of results. Inputs with equal outcomes took roughly equal paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outcome(u64);

impl Outcome {
    /// Outcome identified by a mark. Marks should be coarse: small counts are limited, spans are
    /// reduced to their order of magnitude.
    pub fn of(mark: impl Hash) -> Self {
        let mut digest = DefaultHasher::new();
        mark.hash(&mut digest);
        Self(digest.finish())
    }
}

/// Duration and seed of the run of one target, and the time limit of a stretched input.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Time after which no further round begins; samples are always replayed.
    pub budget: Duration,
    /// Seed of all mutations.
    pub seed: u64,
    /// Maximum duration of a check of a stretched input; one that is exceeded twice is a failure.
    pub patience: Duration,
}

impl Plan {
    /// Reads [`SECONDS`] and [`SEED`] from the environment.
    ///
    /// # Errors
    ///
    /// If one of them is not a whole number.
    pub fn from_environment() -> Result<Self, String> {
        let budget = number(SECONDS)?.map_or(BUDGET, Duration::from_secs);
        let seed = number(SEED)?.unwrap_or_else(|| RandomState::new().hash_one(SEED));
        Ok(Self { budget, seed, patience: STRETCHED_TIME })
    }
}

fn number(variable: &str) -> Result<Option<u64>, String> {
    let Some(text) = std::env::var_os(variable) else { return Ok(None) };
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| format!("{variable} must be a whole number, not {text:?}"))
}

/// Result of a run without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Number of samples replayed.
    pub samples: usize,
    /// Number of different outcomes of the samples.
    pub outcomes_of_samples: usize,
    /// Number of mutations that were checked, stretched inputs included.
    pub rounds: u64,
    /// Number of different outcomes of samples and mutations.
    pub outcomes: usize,
}

/// Input that violates a property, or whose check takes too long.
#[derive(Clone, Debug)]
pub struct Found {
    /// Input, with pieces removed while it still fails; unchanged if its check takes too long.
    pub input: Vec<u8>,
    /// Position and message of the panic of the check, or the durations of a check that takes too
    /// long.
    pub says: String,
    /// Seed of the run's mutations. The run is repeated with this value in [`SEED`].
    pub seed: u64,
    /// Number of the mutation, from 0; `None` for a sample.
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

/// Replays the samples, then checks mutations of them until the time is over.
///
/// # Errors
///
/// The first input that violates a property, or whose check takes too long twice.
pub fn run(target: &Target, samples: &[Vec<u8>], plan: Plan) -> Result<Report, Found> {
    let started = Instant::now();
    let mut hunt = Hunt { target, plan, seen: HashSet::new(), pool: samples.to_vec() };
    for sample in samples {
        hunt.feed(sample.clone(), None)?;
    }
    let outcomes_of_samples = hunt.seen.len();
    let mut random = Rng::with_seed(plan.seed);
    let mut rounds = 0;
    while started.elapsed() < plan.budget {
        hunt.round(&mut random, rounds)?;
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
    fn round(&mut self, random: &mut Rng, round: u64) -> Result<(), Found> {
        if round % STRETCH_EVERY == STRETCH_EVERY - 1 {
            return self.time(stretch(&self.pool, random), round);
        }
        self.feed(mutate(&self.pool, random), Some(round))
    }

    fn feed(&mut self, input: Vec<u8>, round: Option<u64>) -> Result<(), Found> {
        let outcome = self.check(&input).map_err(|says| self.found(&input, says, round))?;
        if self.seen.insert(outcome) && round.is_some() && self.pool.len() < POOL_MAX {
            self.pool.push(input);
        }
        Ok(())
    }

    /// Checks a stretched input and its duration. It counts as slow only if it is slow twice,
    /// because another process may have used the processor.
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
        let says = format!(
            "two checks of {} bytes took {spans:?}, expected {:?} at most",
            input.len(),
            self.plan.patience
        );
        Err(Found { input, says, seed: self.plan.seed, round: Some(round) })
    }

    fn check(&self, input: &[u8]) -> Result<Outcome, String> {
        caught(|| (self.target.check)(input))
    }

    fn found(&self, input: &[u8], says: String, round: Option<u64>) -> Found {
        let (input, smaller) = self.shrink(input.to_vec());
        Found { input, says: smaller.unwrap_or(says), seed: self.plan.seed, round }
    }

    /// Removes pieces while the input still fails, halves first.
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
