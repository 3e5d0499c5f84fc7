//! Target: the three forms of `HTTP-date`, compared with a second parser.

use std::time::{Duration, UNIX_EPOCH};

use forebay_core::WallTime;
use forebay_semantics::date::http_date;

use crate::run::{Outcome, Target};

/// End of the date format in Unix seconds. The last leap second of the last day can be read but not
/// written.
const YEAR_10000: u64 = 253_402_300_800;

/// Fuzz target for `HTTP-date` in its three forms.
pub const TARGET: Target = Target { check, outcomes_min: 5 };

fn check(input: &[u8]) -> Outcome {
    let read = http_date(input);
    for same in [input.to_ascii_lowercase(), input.to_ascii_uppercase(), padded(input)] {
        assert_eq!(http_date(&same), read, "in another case, or padded");
    }
    let theirs = std::str::from_utf8(input).ok().and_then(theirs);
    // Each parser accepts some texts that the other refuses; where both accept, they agree.
    if let (Some(read), Some(theirs)) = (read, theirs) {
        assert_eq!(read.as_secs(), theirs, "two parsers, two dates");
    }
    if let Some(read) = read.filter(|read| read.as_secs() < YEAR_10000) {
        let written = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(read.as_secs()));
        assert_eq!(http_date(written.as_bytes()), Some(read), "written and read again");
        assert!(read > WallTime::default() || written.contains("1970"), "{written}");
    }
    let form = input.iter().position(|byte| *byte == b',').map(|comma| comma == 3);
    Outcome::of((read.is_some(), theirs.is_some(), form))
}

fn padded(input: &[u8]) -> Vec<u8> {
    [b" \t", input, b" "].concat()
}

fn theirs(text: &str) -> Option<u64> {
    let date = httpdate::parse_http_date(text).ok()?;
    date.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}
