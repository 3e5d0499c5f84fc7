//! Durations and sizes: a number with its unit.
//!
//! A number without a unit is refused: `30` could mean seconds or milliseconds.

use std::fmt;
use std::time::Duration;

/// Name of a unit, and its size in nanoseconds or bytes.
type Unit = (&'static str, u128);

/// Units of durations, largest first: the order in a compound such as `1h30m`.
const DURATION_UNITS: [Unit; 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Units of sizes; binary units come first, so that they are preferred in output of equal length.
const SIZE_UNITS: [Unit; 10] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
];

/// Reads a duration such as `250ms`, `1h` or `1h30m`; units `d` to `ns`, largest first.
///
/// # Errors
/// If the text is not a duration, or is too large.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let mut rest = text;
    let mut total: u128 = 0;
    let mut units = &DURATION_UNITS[..];
    loop {
        let (number, unit_name, after) = leading_amount(rest, Quantity::Duration)?;
        let Some(at) = units.iter().position(|(name, _)| *name == unit_name) else {
            let known = DURATION_UNITS.iter().any(|(name, _)| *name == unit_name);
            return Err(if known { UnitError::Order } else { unknown(unit_name, &DURATION_UNITS) });
        };
        let amount = number.checked_mul(units[at].1).ok_or(UnitError::TooLarge)?;
        total = total.checked_add(amount).ok_or(UnitError::TooLarge)?;
        units = &units[at + 1..];
        rest = after;
        if rest.is_empty() {
            return duration_from_nanos(total);
        }
    }
}

/// Reads a size in bytes such as `64MiB`, `512KiB` or `1MB`; binary and decimal units differ.
///
/// # Errors
/// If the text is not a size, or is too large.
pub(crate) fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (number, unit_name, after) = leading_amount(text, Quantity::Size)?;
    if !after.is_empty() {
        return Err(UnitError::Compound);
    }
    let Some((_, bytes)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit_name) else {
        return Err(unknown(unit_name, &SIZE_UNITS));
    };
    let total = number.checked_mul(*bytes).ok_or(UnitError::TooLarge)?;
    u64::try_from(total).map_err(|_| UnitError::TooLarge)
}

/// Duration in the shortest form that [`parse_duration`] reads back to an equal value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShortDuration(pub(crate) Duration);

impl fmt::Display for ShortDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        let compound = compound_duration(nanos);
        match shortest_exact(nanos, &DURATION_UNITS) {
            Some(single) if single.len() < compound.len() => f.write_str(&single),
            _ => f.write_str(&compound),
        }
    }
}

/// Size in the shortest form that [`parse_size`] reads back to an equal value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShortSize(pub(crate) u64);

impl fmt::Display for ShortSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0B");
        }
        let single = shortest_exact(u128::from(self.0), &SIZE_UNITS);
        f.write_str(&single.unwrap_or_default())
    }
}

/// Error in a duration or a size, printed as the rest of a sentence that begins with the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnitError {
    /// Number without a unit.
    NoUnit(Quantity),
    /// Text that does not begin with a number.
    NoNumber(Quantity),
    /// Number with a decimal point; a smaller unit needs none.
    Fraction(Quantity),
    /// Unknown unit; holds it and the known ones.
    Unknown { unit: String, known: String },
    /// Unit twice, or a smaller unit before a larger one.
    Order,
    /// Size with more than one unit.
    Compound,
    /// Number that does not fit.
    TooLarge,
}

/// Kind of quantity, which selects the example in an error message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    Duration,
    Size,
}

impl Quantity {
    /// Example that can be copied.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Self::Duration => "\"250ms\"",
            Self::Size => "\"64MiB\"",
        }
    }
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUnit(quantity) => write!(f, "needs a unit, such as {}", quantity.example()),
            Self::NoNumber(quantity) => {
                write!(f, "must be a whole number and a unit, such as {}", quantity.example())
            }
            Self::Fraction(Quantity::Duration) => {
                f.write_str("has a fraction; write it in a smaller unit, such as \"1500ms\"")
            }
            Self::Fraction(Quantity::Size) => {
                f.write_str("has a fraction; write it in a smaller unit, such as \"1536KiB\"")
            }
            Self::Unknown { unit, known } => {
                write!(f, "has the unknown unit \"{unit}\"; the units are {known}")
            }
            Self::Order => f.write_str("must name each unit once and the larger first (\"1h30m\")"),
            Self::Compound => f.write_str("must be one number and one unit, such as \"1536MiB\""),
            Self::TooLarge => f.write_str("is too large"),
        }
    }
}

impl std::error::Error for UnitError {}

/// Splits `30m15s` into 30, `m` and the rest, `15s`.
fn leading_amount(text: &str, quantity: Quantity) -> Result<(u128, &str, &str), UnitError> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(digits_end);
    if digits.is_empty() {
        return Err(UnitError::NoNumber(quantity));
    }
    if rest.is_empty() {
        return Err(UnitError::NoUnit(quantity));
    }
    if rest.starts_with(['.', ',']) {
        return Err(UnitError::Fraction(quantity));
    }
    let number = digits.parse().map_err(|_| UnitError::TooLarge)?;
    let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, after) = rest.split_at(unit_end);
    Ok((number, unit, after))
}

fn unknown(unit: &str, units: &[Unit]) -> UnitError {
    let known: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    UnitError::Unknown { unit: unit.to_owned(), known: known.join(", ") }
}

fn duration_from_nanos(nanos: u128) -> Result<Duration, UnitError> {
    let seconds = u64::try_from(nanos / 1_000_000_000).map_err(|_| UnitError::TooLarge)?;
    let below = u32::try_from(nanos % 1_000_000_000).map_err(|_| UnitError::TooLarge)?;
    Ok(Duration::new(seconds, below))
}

/// Shortest text that is exactly `amount` in one unit; the first of equal length.
fn shortest_exact(amount: u128, units: &[Unit]) -> Option<String> {
    units
        .iter()
        .filter(|(_, size)| amount.is_multiple_of(*size))
        .map(|(name, size)| format!("{}{name}", amount / size))
        .min_by_key(String::len)
}

fn compound_duration(mut nanos: u128) -> String {
    let mut text = String::new();
    for (name, size) in DURATION_UNITS {
        if nanos >= size {
            text.push_str(&format!("{}{name}", nanos / size));
            nanos %= size;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        for (text, millis) in [
            ("250ms", 250),
            ("0s", 0),
            ("0ms", 0),
            ("1s", 1_000),
            ("1h", 3_600_000),
            ("1h30m", 5_400_000),
            ("1d1ms", 86_400_001),
            ("007s", 7_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse_duration("1us5ns"), Ok(Duration::from_nanos(1_005)));
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("10GiB", 10 << 30),
            ("512KiB", 512 << 10),
            ("2TiB", 2 << 40),
            ("1MB", 1_000_000),
            ("3kB", 3_000),
            ("3KB", 3_000),
            ("17B", 17),
            ("0B", 0),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn an_invalid_text_is_refused_with_its_reason() {
        let duration = |text: &str| parse_duration(text).unwrap_err().to_string();
        let size = |text: &str| parse_size(text).unwrap_err().to_string();
        assert_eq!(duration("250"), "needs a unit, such as \"250ms\"");
        assert_eq!(size("64"), "needs a unit, such as \"64MiB\"");
        assert!(duration("1.5s").contains("\"1500ms\""));
        assert!(size("1.5GiB").contains("smaller unit"));
        assert!(duration("").contains("whole number"));
        assert!(duration("-1s").contains("whole number"));
        assert!(duration("30sec").contains("unknown unit \"sec\"; the units are d, h, m, s"));
        assert!(duration("30 s").contains("unknown unit \" s\""));
        assert!(size("64mib").contains("unknown unit \"mib\""));
        assert!(duration("30m1h").contains("larger first"));
        assert!(duration("1s1s").contains("each unit once"));
        assert!(duration("1h30").contains("needs a unit"));
        assert!(size("1GiB1MiB").contains("one number and one unit"));
    }

    #[test]
    fn overflow_is_an_error_and_never_a_wrong_value() {
        assert_eq!(parse_size("16777216TiB"), Err(UnitError::TooLarge));
        assert_eq!(parse_size("16777215TiB"), Ok(u64::MAX - ((1 << 40) - 1)));
        assert_eq!(parse_size(&format!("{}B", u64::MAX)), Ok(u64::MAX));
        assert_eq!(parse_size("18446744073709551616B"), Err(UnitError::TooLarge));
        assert_eq!(parse_size(&format!("{}B", "9".repeat(60))), Err(UnitError::TooLarge));
        assert_eq!(parse_duration(&format!("{}s", u64::MAX)), Ok(Duration::from_secs(u64::MAX)));
        assert_eq!(parse_duration("18446744073709551616s"), Err(UnitError::TooLarge));
        assert_eq!(parse_duration(&format!("{}d", u128::MAX)), Err(UnitError::TooLarge));
    }

    #[test]
    fn the_shortest_exact_form_is_shown_and_reads_back() {
        let day = Duration::from_secs(86_400);
        for (duration, text) in [
            (Duration::ZERO, "0s"),
            (Duration::from_millis(250), "250ms"),
            (Duration::from_millis(1_500), "1500ms"),
            (Duration::from_secs(90), "90s"),
            (Duration::from_secs(5_400), "90m"),
            (Duration::from_secs(3_600), "1h"),
            (day + Duration::from_nanos(1), "1d1ns"),
            (day * 365, "365d"),
        ] {
            assert_eq!(ShortDuration(duration).to_string(), text);
            assert_eq!(parse_duration(text), Ok(duration));
        }
        for (size, text) in [
            (0, "0B"),
            (17, "17B"),
            (1_024, "1KiB"),
            (1_000, "1kB"),
            (1_000_000, "1MB"),
            (256 << 20, "256MiB"),
            (1_536 << 20, "1536MiB"),
            (10 << 30, "10GiB"),
        ] {
            assert_eq!(ShortSize(size).to_string(), text);
            assert_eq!(parse_size(text), Ok(size));
        }
        for size in [1, 1_023, 1_025, 123_456_789, u64::MAX] {
            assert_eq!(parse_size(&ShortSize(size).to_string()), Ok(size));
        }
    }
}
