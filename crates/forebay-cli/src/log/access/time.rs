//! Dates of log lines, in UTC.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

/// Length of a date in RFC 3339, to the microsecond.
const RFC_3339: usize = 27;

/// Place of the microseconds in it.
const MICROS: usize = 20;

thread_local! {
    /// Last date of this thread, and its second. Most lines are of the same second.
    static LAST: Cell<(u64, [u8; RFC_3339])> = const { Cell::new((u64::MAX, [b'0'; RFC_3339])) };
}

/// Returns `1994-11-06T08:49:37.000000Z` (RFC 3339).
pub(crate) fn rfc_3339(now: SystemTime) -> String {
    String::from_utf8_lossy(&rfc_3339_bytes(now)).into_owned()
}

/// Returns a date as [`rfc_3339`]. Years have four digits.
pub(super) fn rfc_3339_bytes(now: SystemTime) -> [u8; RFC_3339] {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (last, mut bytes) = LAST.get();
    if last != since.as_secs() {
        let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let text =
            format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000000Z");
        // Dates after the year 9999 are longer, and no machine has one.
        bytes.iter_mut().zip(text.bytes()).for_each(|(byte, digit)| *byte = digit);
    }
    // With a leading 1, so that all digits are there.
    let mut micros = itoa::Buffer::new();
    let micros = &micros.format(1_000_000 + since.subsec_micros())[1..];
    bytes[MICROS..MICROS + micros.len()].copy_from_slice(micros.as_bytes());
    LAST.set((since.as_secs(), bytes));
    bytes
}

/// Returns `06/Nov/1994:08:49:37 +0000`.
pub(super) fn common(now: SystemTime) -> String {
    // `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 section 5.6.7) has the same parts.
    let date = httpdate::fmt_http_date(now);
    let mut words = date.split(' ').skip(1);
    let mut word = || words.next().unwrap_or_default();
    format!("{}/{}/{}:{} +0000", word(), word(), word(), word())
}

/// Returns year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    // Counted from 0000-03-01, so that the leap day ends a year, in eras of 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_have_the_forms_that_analysers_expect() {
        let now = UNIX_EPOCH + Duration::from_micros(784_111_777_000_012);
        assert_eq!(rfc_3339(now), "1994-11-06T08:49:37.000012Z");
        assert_eq!(common(now), "06/Nov/1994:08:49:37 +0000");
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(rfc_3339(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}
