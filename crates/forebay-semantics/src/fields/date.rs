//! Parser for `HTTP-date` in its three forms.

use forebay_core::WallTime;

use crate::fields::digits;

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// First year that a [`WallTime`] can represent.
const FIRST_YEAR: u64 = 1970;

/// Earliest current year assumed for two-digit years: it maps them to 1970 to 2069, all of which are
/// representable. A clock with an earlier date was never set.
const PRESENT_YEAR: u64 = FIRST_YEAR + 49;

/// Maximum distance in years into the future of a two-digit year (RFC 9110 section 5.6.7): a year
/// further ahead means the past.
const YEARS_AHEAD_MAX: u64 = 50;

/// Mean length of a Gregorian year in seconds.
const YEAR_SECONDS: u64 = 31_556_952;

const MONTHS: [&[u8]; 12] = [
    b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec",
];

const WEEKDAYS: [&[u8]; 7] =
    [b"monday", b"tuesday", b"wednesday", b"thursday", b"friday", b"saturday", b"sunday"];

/// Number of letters of an abbreviated weekday.
const WEEKDAY_SHORT: usize = 3;

/// Parses a date in one of the forms of RFC 9110 section 5.6.7: `Sun, 06 Nov 1994 08:49:37 GMT`,
/// `Sunday, 06-Nov-94 08:49:37 GMT` or `Sun Nov  6 08:49:37 1994`.
///
/// Letter case is ignored (RFC 9111 section 4.2), and a wrong weekday is accepted; everything else
/// must match exactly, including the zone `GMT`. A two-digit year is one of 1970 to 2069. `None`
/// for other text and for dates before 1970.
#[must_use]
pub fn http_date(value: &[u8]) -> Option<WallTime> {
    read(value, PRESENT_YEAR)
}

/// Parses a date like [`http_date`], and interprets a two-digit year as the latest one that is at
/// most 50 years after `present` (RFC 9110 section 5.6.7).
#[must_use]
pub fn http_date_near(value: &[u8], present: WallTime) -> Option<WallTime> {
    let present_year = FIRST_YEAR.saturating_add(present.as_secs() / YEAR_SECONDS);
    read(value, present_year.max(PRESENT_YEAR))
}

fn read(value: &[u8], present_year: u64) -> Option<WallTime> {
    let value = value.trim_ascii();
    let comma = value.iter().position(|byte| *byte == b',');
    let seconds = match comma {
        Some(WEEKDAY_SHORT) => imf_fixdate(value)?,
        Some(_) => rfc850(value, present_year)?,
        None => asctime(value)?,
    };
    Some(WallTime::from_secs(seconds))
}

fn imf_fixdate(value: &[u8]) -> Option<u64> {
    let (weekday, rest) = value.split_first_chunk::<WEEKDAY_SHORT>()?;
    short_weekday(weekday)?;
    let [b',', b' ', d0, d1, b' ', m0, m1, m2, b' ', y0, y1, y2, y3, b' '] = rest.get(..14)? else {
        return None;
    };
    let year = digits(&[*y0, *y1, *y2, *y3])?;
    let days = days(year, month(&[*m0, *m1, *m2])?, digits(&[*d0, *d1])?)?;
    Some(days * DAY_SECONDS + time_and_zone(rest.get(14..)?)?)
}

fn rfc850(value: &[u8], present_year: u64) -> Option<u64> {
    let (weekday, rest) = value.split_at_checked(value.iter().position(|byte| *byte == b',')?)?;
    WEEKDAYS.iter().find(|name| name.eq_ignore_ascii_case(weekday))?;
    let [b',', b' ', d0, d1, b'-', m0, m1, m2, b'-', y0, y1, b' '] = rest.get(..12)? else {
        return None;
    };
    let year = full_year(digits(&[*y0, *y1])?, present_year);
    let days = days(year, month(&[*m0, *m1, *m2])?, digits(&[*d0, *d1])?)?;
    Some(days * DAY_SECONDS + time_and_zone(rest.get(12..)?)?)
}

/// Returns the latest year with these last two digits that is not too far in the future.
const fn full_year(short: u64, present_year: u64) -> u64 {
    let latest = present_year.saturating_add(YEARS_AHEAD_MAX);
    let year = latest / 100 * 100 + short;
    if year > latest { year - 100 } else { year }
}

fn asctime(value: &[u8]) -> Option<u64> {
    let (weekday, rest) = value.split_first_chunk::<WEEKDAY_SHORT>()?;
    short_weekday(weekday)?;
    let [b' ', m0, m1, m2, b' ', d0, d1, b' '] = rest.get(..8)? else { return None };
    let day = if *d0 == b' ' { digits(&[*d1])? } else { digits(&[*d0, *d1])? };
    let [b' ', year @ ..] = rest.get(16..)? else { return None };
    let year = if year.len() == 4 { digits(year)? } else { return None };
    let days = days(year, month(&[*m0, *m1, *m2])?, day)?;
    Some(days * DAY_SECONDS + time(rest.get(8..16)?)?)
}

fn time_and_zone(text: &[u8]) -> Option<u64> {
    let (clock, zone) = text.split_at_checked(8)?;
    zone.eq_ignore_ascii_case(b" GMT").then(|| time(clock))?
}

fn time(text: &[u8]) -> Option<u64> {
    let [h0, h1, b':', m0, m1, b':', s0, s1] = text else { return None };
    let (hour, minute) = (digits(&[*h0, *h1])?, digits(&[*m0, *m1])?);
    let second = digits(&[*s0, *s1])?;
    // RFC 9110 section 5.6.7: a leap second is written 60.
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
}

fn short_weekday(text: &[u8; WEEKDAY_SHORT]) -> Option<()> {
    let known =
        |name: &&[u8]| name.get(..WEEKDAY_SHORT).is_some_and(|s| s.eq_ignore_ascii_case(text));
    WEEKDAYS.iter().any(known).then_some(())
}

/// Parses a month; January is 0.
fn month(text: &[u8; 3]) -> Option<usize> {
    MONTHS.iter().position(|name| name.eq_ignore_ascii_case(text))
}

/// Returns the days from 1970-01-01 to a Gregorian date; `None` if the date does not exist.
fn days(year: u64, month: usize, day: u64) -> Option<u64> {
    const BEFORE_MONTH: [u64; 13] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365];
    let leap_day = u64::from(is_leap(year));
    let (start, end) = (BEFORE_MONTH.get(month)?, BEFORE_MONTH.get(month + 1)?);
    let in_month = end - start + if month == 1 { leap_day } else { 0 };
    if year < FIRST_YEAR || day == 0 || day > in_month {
        return None;
    }
    let in_year = start + if month > 1 { leap_day } else { 0 } + day - 1;
    let leap_days = leap_years_before(year) - leap_years_before(FIRST_YEAR);
    Some((year - FIRST_YEAR) * 365 + leap_days + in_year)
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Returns the number of leap years in `1..year`.
const fn leap_years_before(year: u64) -> u64 {
    let last = year - 1;
    last / 4 - last / 100 + last / 400
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(text: &str) -> Option<u64> {
        http_date(text.as_bytes()).map(WallTime::as_secs)
    }

    #[test]
    fn the_three_forms_give_the_same_date() {
        // RFC 9110 section 5.6.7 shows these three.
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(secs(text), Some(784_111_777), "{text}");
        }
    }

    #[test]
    fn letter_case_is_ignored_and_a_wrong_weekday_is_accepted() {
        // RFC 9111 section 4.2: a cache should match case-insensitively.
        for text in [
            "SUN, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 NOV 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 gMT",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            " Sun, 06 Nov 1994 08:49:37 GMT ",
        ] {
            assert_eq!(secs(text), Some(784_111_777), "{text}");
        }
    }

    #[test]
    fn other_text_is_none() {
        for text in [
            "",
            "0",
            "-1",
            "Thu",
            "Thu,",
            "Thu, 18 Aug 2050 02:01:18 UTC",
            "Thu, 18 Aug 2050 02:01:18 AEST",
            "Thu, 18 Aug 2050 02:01:18 +0000",
            "Thu, 18 Aug 2050 02:01:18",
            "Thu, 18 Aug 50 02:01:18 GMT",
            "Thu 18 Aug 2050 02:01:18 GMT",
            "Thu, 18  Aug  2050 02:01:18 GMT",
            "Thu, 18-Aug-2050 02:01:18 GMT",
            "Thu, 18 Aug 2050 02.01.18 GMT",
            "Thu, 18 Aug 2050 2:01:18 GMT",
            "Thu, 18 Aug 2050 24:01:18 GMT",
            "Thu, 31 Feb 2050 02:01:18 GMT",
            "Thu, 29 Feb 2051 02:01:18 GMT",
            "Thu, 00 Aug 2050 02:01:18 GMT",
            "Thu, 18 Foo 2050 02:01:18 GMT",
            "Xyz, 18 Aug 2050 02:01:18 GMT",
            "Thu, 18 Aug 1950 02:01:18 GMT",
            "Thu, 18 Aug 2050 02:01:18 GMT, Thu, 18 Aug 2050 02:01:18 GMT",
            "Sun Nov  6 08:49:37 19945",
            "Sonnabend, 06-Nov-94 08:49:37 GMT",
        ] {
            assert_eq!(secs(text), None, "{text}");
        }
    }

    #[test]
    fn two_digit_years_are_at_most_fifty_years_in_the_future() {
        // RFC 9110 section 5.6.7.
        let january = |year: u64| days(year, 0, 2).map(|days| WallTime::from_secs(days * 86_400));
        let rows = [
            (2026, "50", 2050),
            (2026, "76", 2076),
            (2026, "77", 1977),
            (2026, "99", 1999),
            (2026, "00", 2000),
            (1970, "69", 2069),
            (1970, "70", 1970),
            (2090, "40", 2140),
            (2090, "41", 2041),
        ];
        for (present, short, expected) in rows {
            let text = format!("Sunday, 02-Jan-{short} 00:00:00 GMT");
            let read = http_date_near(text.as_bytes(), january(present).unwrap());
            assert_eq!(read, january(expected), "{present} {short}");
        }
        let far = WallTime::from_secs(u64::MAX);
        assert!(http_date_near(b"Sunday, 02-Jan-94 00:00:00 GMT", far).is_some());
    }

    #[test]
    fn dates_at_the_limits_of_the_calendar() {
        let rows = [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Tue, 29 Feb 2000 00:00:00 GMT", 951_782_400),
            ("Tue, 19 Jan 2038 14:14:08 GMT", 2_147_523_248),
            ("Sun, 21 Nov 2286 04:46:39 GMT", 10_000_039_599),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
            ("Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),
        ];
        for (text, expected) in rows {
            assert_eq!(secs(text), Some(expected), "{text}");
        }
    }
}
