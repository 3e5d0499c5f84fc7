//! How long a response is fresh, and how old it is when it comes in.

use std::time::Duration;

use forebay_core::{Lifetime, Stale, WallTime};
use http::StatusCode;
use http::header::{AGE, DATE, EXPIRES, HeaderMap, HeaderName, LAST_MODIFIED};

use crate::date::{http_date, http_date_near};
use crate::directives::Directives;
use crate::fields::{SECONDS_MAX, delta_seconds, single};
use crate::policy::Policy;
use crate::storable::{Answered, Rules};

/// A heuristic lifetime is this part of the time since the last change, which RFC 9111 section
/// 4.2.2 calls a typical fraction.
const HEURISTIC_DIVISOR: u32 = 10;

/// A guess is worth no more than a day: section 4.2.2 asked for a warning beyond that, and what
/// has not changed for years would otherwise be kept for months.
const HEURISTIC_MAX: Duration = Duration::from_hours(24);

/// How long a stored response may be used (RFC 9111 section 4.2), received at `received`.
///
/// `no-cache`, qualified or not, is zero freshness and never stale: section 5.2.2.4 says that
/// caches often treat the qualified form so.
#[must_use]
pub fn lifetime(answered: Answered<'_>, rules: &Rules, received: WallTime) -> Lifetime {
    lifetime_of(&Policy::of(answered.headers), answered, rules, received).0
}

/// The age of a response when it was received (RFC 9111 section 4.2.3, `corrected_initial_age`):
/// what `Date` shows, or what `Age` says plus the time the exchange took, whichever is more.
#[must_use]
pub fn initial_age(headers: &HeaderMap, received: WallTime, response_delay: Duration) -> Duration {
    let apparent = date(headers, received).map_or(Duration::ZERO, |date| received.since(date));
    let corrected = stated_age(headers).saturating_add(response_delay);
    apparent.max(corrected).min(Duration::from_secs(SECONDS_MAX))
}

/// What `Age` says of a response of this age: whole seconds, no more than RFC 9111 section 1.2.2
/// wants to be sent.
#[must_use]
pub fn age_seconds(age: Duration) -> u64 {
    age.as_secs().min(SECONDS_MAX)
}

/// The lifetime, and who has set its freshness.
pub(crate) fn lifetime_of(
    policy: &Policy,
    answered: Answered<'_>,
    rules: &Rules,
    received: WallTime,
) -> (Lifetime, SetBy) {
    let said = &policy.said;
    let (fresh, set_by) = fresh_for(policy, answered, rules, received);
    if is_stale_forbidden(said) {
        let lifetime = Lifetime { fresh, stale: Stale::Forbidden, ..Lifetime::default() };
        return (lifetime, set_by);
    }
    let lifetime = Lifetime {
        fresh,
        stale_while_revalidate: said.stale_while_revalidate.unwrap_or_default(),
        stale_if_error: said.stale_if_error.unwrap_or_default(),
        stale: Stale::Permitted,
    };
    (lifetime, set_by)
}

/// Who has set for how long an answer is fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetBy {
    /// The origin, in so many words.
    Origin,
    /// This cache, where the origin said nothing. It may set it a little otherwise each time.
    Cache,
}

/// Whether the cache may choose a lifetime where the origin gave none (RFC 9111 section 4.2.2):
/// for the heuristically cacheable statuses of RFC 9110 section 15.1, and with `public`. A 206
/// belongs to them too, but is not stored.
pub(crate) const fn heuristics_apply(status: StatusCode, said: &Directives) -> bool {
    said.public
        || matches!(
            status.as_u16(),
            200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
        )
}

/// RFC 9111 section 4.2.4: these directives forbid every stale answer; s-maxage does by section
/// 5.2.2.10.
const fn is_stale_forbidden(said: &Directives) -> bool {
    said.must_revalidate
        || said.proxy_revalidate
        || said.s_maxage.is_some()
        || said.no_cache.is_some()
}

/// RFC 9111 section 4.2.1: the first of s-maxage, max-age and Expires that is there; else the
/// site's choice; else a heuristic.
fn fresh_for(
    policy: &Policy,
    answered: Answered<'_>,
    rules: &Rules,
    received: WallTime,
) -> (Duration, SetBy) {
    let said = &policy.said;
    if said.no_cache.is_some() {
        return (Duration::ZERO, SetBy::Origin);
    }
    let expires = || until_expires(answered.headers, received).filter(|_| policy.heeds_expires());
    if let Some(stated) = said.s_maxage.or(said.max_age).or_else(expires) {
        return (stated, SetBy::Origin);
    }
    if !heuristics_apply(answered.status, said) {
        return (Duration::ZERO, SetBy::Origin);
    }
    let chosen = if is_negative(answered.status) && !rules.negative_ttl.is_zero() {
        rules.negative_ttl
    } else if rules.default_ttl.is_zero() {
        heuristic(answered.headers, received)
    } else {
        rules.default_ttl
    };
    (chosen, SetBy::Cache)
}

/// Answers that say "there is nothing like that here", and may be given a heuristic lifetime (RFC
/// 9110 section 15.1).
const fn is_negative(status: StatusCode) -> bool {
    matches!(status.as_u16(), 404 | 405 | 410 | 414 | 501)
}

/// `Expires` minus `Date`; without a valid `Date` the time of receipt takes its place.
///
/// RFC 9111 section 5.3: what is no date, "0" above all, has expired already. Section 4.2.1: of
/// several lines that contradict each other, the earliest holds.
fn until_expires(headers: &HeaderMap, received: WallTime) -> Option<Duration> {
    let start = date(headers, received).unwrap_or(received);
    let until = |line: &http::HeaderValue| {
        let end = http_date_near(line.as_bytes(), received);
        end.map_or(Duration::ZERO, |end| end.since(start))
    };
    let shortest = headers.get_all(EXPIRES).into_iter().map(until).min()?;
    Some(shortest.min(Duration::from_secs(SECONDS_MAX)))
}

fn heuristic(headers: &HeaderMap, received: WallTime) -> Duration {
    let Some(modified) = date_in(headers, &LAST_MODIFIED) else { return Duration::ZERO };
    let unchanged = date(headers, received).unwrap_or(received).since(modified);
    (unchanged / HEURISTIC_DIVISOR).min(HEURISTIC_MAX)
}

/// RFC 9111 section 5.1: the first member of the list counts, and if it is no number the field is
/// passed over. A fraction is no number.
fn stated_age(headers: &HeaderMap) -> Duration {
    let first = headers.get(AGE).and_then(|line| line.as_bytes().split(|b| *b == b',').next());
    first.map(<[u8]>::trim_ascii).and_then(delta_seconds).unwrap_or_default()
}

/// When the origin made the response, if it says so.
fn date(headers: &HeaderMap, received: WallTime) -> Option<WallTime> {
    single(headers, &DATE).and_then(|line| http_date_near(line.as_bytes(), received))
}

pub(crate) fn date_in(headers: &HeaderMap, name: &HeaderName) -> Option<WallTime> {
    single(headers, name).and_then(|line| http_date(line.as_bytes()))
}

#[cfg(test)]
mod tests;
