//! Benchmarks of rules: matching and merging for one request.

use std::hint::black_box;

use crate::rule_mix::{Asked, rules};
use crate::{Run, measured};
use anyhow::Result;

/// Case: a site without rules.
pub(crate) fn none(times: usize) -> Result<Run> {
    matched(times, 0, 0)
}

/// Case: 4 rules.
pub(crate) fn four(times: usize) -> Result<Run> {
    matched(times, 4, 0)
}

/// Case: 100 rules, 40 of them with regular expressions.
pub(crate) fn hundred(times: usize) -> Result<Run> {
    matched(times, 100, 40)
}

/// Case: 250 rules, 40 of them with regular expressions.
pub(crate) fn many(times: usize) -> Result<Run> {
    matched(times, 250, 40)
}

fn matched(times: usize, count: usize, regexes: usize) -> Result<Run> {
    let set = rules(count, regexes)?;
    let asked = Asked::new();
    let wanted = count.min(3);
    Ok(Box::new(move || {
        measured(|| (0..times).filter(|_| black_box(&asked).matches(&set) == wanted).count())
    }))
}
