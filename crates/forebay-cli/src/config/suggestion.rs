//! Suggestions for misspelled names.

/// Maximum number of typing errors for a suggestion; a name that differs more is another word.
const SLIP_MAX: usize = 3;

/// Valid name with the fewest typing errors, if they are few enough.
pub(crate) fn nearest<'a>(valid: impl Iterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    let slips = |valid: &str| strsim::damerau_levenshtein(valid, name);
    let nearest = valid.min_by_key(|valid| slips(valid))?;
    let slips_max = nearest.len().max(name.len()).div_ceil(3).min(SLIP_MAX);
    (slips(nearest) <= slips_max).then_some(nearest)
}
