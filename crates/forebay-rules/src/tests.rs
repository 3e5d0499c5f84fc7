//! Tests of whole rule sets.

/// Number of cases of a property test: `FOREBAY_RULE_CASES`, or 1,000.
pub(crate) fn cases() -> u32 {
    std::env::var("FOREBAY_RULE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000)
}

mod guarantees;
mod naive;
mod sets;
mod warned;
