//! What a hit costs, beside the stores that other caches are made of.
//!
//! Without arguments, a table of wall times, the subjects taking turns. With a subject and a
//! number, so many hits and nothing else: run it with two numbers under a profiler that counts,
//! and the difference is what the hits between them cost.
//!
//! 10,000 keys, asked for by a Zipf distribution of exponent 1; values of 1 KiB behind an `Arc`.
//! Each subject hands out an `Arc` of its own, and lives with a lifetime of a minute where it
//! knows of lifetimes.
#![expect(clippy::print_stdout, reason = "a command-line program")]

mod subjects;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use subjects::{ALL, Hit};

const KEYS: usize = 10_000;

/// As many as one round asks for; long enough that a round is milliseconds.
const QUESTIONS: usize = 1 << 16;

/// How often the subjects take turns.
const ROUNDS: usize = 15;

fn main() -> Result<()> {
    let keys: Vec<String> = (0..KEYS).map(|number| format!("user:{number}")).collect();
    let questions = zipf();
    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        table(&keys, &questions);
        return Ok(());
    };
    let hits: usize = arguments.next().context("a number of hits")?.parse()?;
    let Some(subject) = ALL.iter().find(|subject| subject.name == name) else {
        bail!("there is no subject of this name");
    };
    let mut hit = subject.filled(&keys);
    for question in questions.iter().cycle().take(hits) {
        hit(&keys[*question]);
    }
    Ok(())
}

fn table(keys: &[String], questions: &[usize]) {
    let mut hits: Vec<Hit> = ALL.iter().map(|subject| subject.filled(keys)).collect();
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); hits.len()];
    for _ in 0..ROUNDS {
        for (hit, times) in hits.iter_mut().zip(&mut times) {
            times.push(round(hit, keys, questions));
        }
    }
    let medians: Vec<f64> = times.iter_mut().map(|times| median(times)).collect();
    let base = medians[1];
    println!("{:<34} {:>9} {:>8}", "subject", "ns a hit", "ratio");
    for (subject, nanos) in ALL.iter().zip(&medians) {
        println!("{:<34} {nanos:>9.1} {:>8.2}", subject.name, nanos / base);
    }
    println!("ratio: to {}; medians of {ROUNDS} rounds, taken in turns", ALL[1].name);
}

fn round(hit: &mut Hit, keys: &[String], questions: &[usize]) -> Duration {
    let begun = Instant::now();
    for question in questions {
        hit(&keys[*question]);
    }
    begun.elapsed()
}

#[expect(clippy::cast_precision_loss, reason = "a count of questions is small")]
fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e9 / QUESTIONS as f64
}

/// Ranks by Zipf's law, the same ones each time.
#[expect(clippy::cast_precision_loss, reason = "ranks and 53 bits fit a double exactly")]
fn zipf() -> Vec<usize> {
    let mut sum = 0.0;
    let below: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64 * sum
    };
    (0..QUESTIONS)
        .map(|_| {
            let drawn = draw();
            below.partition_point(|edge| *edge < drawn).min(KEYS - 1)
        })
        .collect()
}
