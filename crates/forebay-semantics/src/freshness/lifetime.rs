//! Freshness lifetime and initial age of a response (RFC 9111 section 4.2).

use std::time::Duration;

use forebay_core::{Lifetime, Stale, WallTime};
use http::StatusCode;
use http::header::{AGE, DATE, EXPIRES, HeaderName, LAST_MODIFIED};

use crate::directives::Directives;
use crate::directives::policy::Policy;
use crate::directives::withheld::Withheld;
use crate::fields::date::{http_date, http_date_near};
use crate::fields::{FieldLines, SECONDS_MAX, delta_seconds, single_line};
use crate::message::{ResponseRef, Rules};

/// Divisor of the time since the last change that yields the heuristic lifetime: RFC 9111 section
/// 4.2.2 calls a tenth typical.
const HEURISTIC_DIVISOR: u32 = 10;

/// Maximum heuristic lifetime. Without it, a page unchanged for years would be fresh for months.
const HEURISTIC_MAX: Duration = Duration::from_hours(24);

/// Returns the freshness lifetime and the stale windows of a response received at `received` (RFC
/// 9111 section 4.2).
///
/// `no-cache`, qualified or not, means zero freshness and no stale use: section 5.2.2.4 says that
/// caches often treat the qualified form so. `ttl` of [`Rules::forced`] replaces the zero.
#[must_use]
pub fn lifetime(
    answered: ResponseRef<'_, impl FieldLines>,
    rules: &Rules,
    received: WallTime,
) -> Lifetime {
    lifetime_of(&Policy::of(answered.headers), answered, rules, received).0
}

/// Returns the age of a response on receipt (RFC 9111 section 4.2.3, `corrected_initial_age`): the
/// larger of the age by `Date`, and `Age` plus the duration of the exchange.
#[must_use]
pub fn initial_age(
    headers: &impl FieldLines,
    received: WallTime,
    response_delay: Duration,
) -> Duration {
    let apparent = date(headers, received).map_or(Duration::ZERO, |date| received.since(date));
    let corrected = stated_age(headers).saturating_add(response_delay);
    apparent.max(corrected).min(Duration::from_secs(SECONDS_MAX))
}

/// Returns the value of `Age` for a response of this age: whole seconds, at most 2^31 (RFC 9111
/// section 1.2.2).
#[must_use]
pub fn age_seconds(age: Duration) -> u64 {
    age.as_secs().min(SECONDS_MAX)
}

/// Returns the lifetime, and the origin of its freshness.
pub(crate) fn lifetime_of(
    policy: &Policy,
    answered: ResponseRef<'_, impl FieldLines>,
    rules: &Rules,
    received: WallTime,
) -> (Lifetime, LifetimeOrigin) {
    let (said, forced) = (&policy.said, &rules.forced);
    let (fresh, lifetime_origin) = match forced.ttl {
        Some(ttl) => (ttl, LifetimeOrigin::Cache),
        None => {
            let (fresh, lifetime_origin) = fresh_for(policy, answered, rules, received);
            match forced.min_ttl {
                Some(least) if !fresh.is_zero() && fresh < least => (least, LifetimeOrigin::Cache),
                _ => (fresh, lifetime_origin),
            }
        }
    };
    let fresh = forced.max_ttl.map_or(fresh, |most| fresh.min(most));
    if is_stale_forbidden(said) {
        let lifetime = Lifetime { fresh, stale: Stale::Forbidden, ..Lifetime::default() };
        return (lifetime, lifetime_origin);
    }
    let lifetime = Lifetime {
        fresh,
        stale_while_revalidate: forced
            .stale_while_revalidate
            .or(said.stale_while_revalidate)
            .unwrap_or_default(),
        stale_if_error: forced.stale_if_error.or(said.stale_if_error).unwrap_or_default(),
        stale: Stale::Permitted,
    };
    (lifetime, lifetime_origin)
}

/// Source of a freshness lifetime: the origin server, or this cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimeOrigin {
    /// The origin server stated the lifetime; or there is none, because the status permits no
    /// heuristic.
    Origin,
    /// This cache chose the lifetime, because the origin server stated none, or a rule replaces it
    /// (`ttl`, `min_ttl`). It may be varied by a random amount.
    Cache,
}

/// Setter of a freshness lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SetBy {
    /// `ttl` of a rule of the site.
    Rule,
    /// `no-cache` of the response: the lifetime is zero.
    NoCache,
    /// A directive of a targeted field (RFC 9213).
    Targeted,
    /// `s-maxage`.
    SMaxage,
    /// `max-age`.
    MaxAge,
    /// `Expires`.
    Expires,
    /// `default_ttl` of the site or of a rule.
    DefaultTtl,
    /// `negative_ttl` of the site.
    NegativeTtl,
    /// A tenth of the time since `Last-Modified`.
    Heuristic,
    /// Nothing: the lifetime is zero.
    Nothing,
}

impl SetBy {
    /// Returns the stable code of the setter, such as `max-age`.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::NoCache => "no-cache",
            Self::Targeted => "targeted",
            Self::SMaxage => "s-maxage",
            Self::MaxAge => "max-age",
            Self::Expires => "expires",
            Self::DefaultTtl => "default-ttl",
            Self::NegativeTtl => "negative-ttl",
            Self::Heuristic => "heuristic",
            Self::Nothing => "nothing",
        }
    }
}

/// Returns the setter of the freshness lifetime that [`lifetime`] computes.
#[must_use]
pub fn set_by(answered: ResponseRef<'_, impl FieldLines>, rules: &Rules) -> SetBy {
    let mut policy = Policy::of(answered.headers);
    // Directives that name single fields do not apply to the rest of the response.
    Withheld::remove_qualified(&mut policy.said);
    set_by_policy(&policy, answered, rules)
}

/// Returns the setter of the freshness lifetime. The policy has no qualified directives.
pub(crate) fn set_by_policy(
    policy: &Policy,
    answered: ResponseRef<'_, impl FieldLines>,
    rules: &Rules,
) -> SetBy {
    let said = &policy.said;
    let has_stated = said.s_maxage.is_some() || said.max_age.is_some();
    if rules.forced.ttl.is_some() {
        SetBy::Rule
    } else if said.no_cache.is_some() {
        SetBy::NoCache
    } else if has_stated && !policy.heeds_expires() {
        SetBy::Targeted
    } else if said.s_maxage.is_some() {
        SetBy::SMaxage
    } else if said.max_age.is_some() {
        SetBy::MaxAge
    } else if policy.heeds_expires() && answered.headers.has(&EXPIRES) {
        SetBy::Expires
    } else if rules.forced.default_ttl.is_some() {
        SetBy::DefaultTtl
    } else if !heuristics_apply(answered.status, said) {
        SetBy::Nothing
    } else if is_negative(answered.status) && !rules.negative_ttl.is_zero() {
        SetBy::NegativeTtl
    } else if !rules.default_ttl.is_zero() {
        SetBy::DefaultTtl
    } else if date_in(answered.headers, &LAST_MODIFIED).is_some() {
        SetBy::Heuristic
    } else {
        SetBy::Nothing
    }
}

/// Returns true if the cache may choose a lifetime when the origin states none (RFC 9111 section
/// 4.2.2): for the heuristically cacheable statuses of RFC 9110 section 15.1, and with `public`.
/// 206 is among them; the caller decides about its storage.
pub(crate) const fn heuristics_apply(status: StatusCode, said: &Directives) -> bool {
    said.public
        || matches!(
            status.as_u16(),
            200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
        )
}

/// RFC 9111 section 4.2.4: these directives forbid every stale response; s-maxage by section
/// 5.2.2.10.
const fn is_stale_forbidden(said: &Directives) -> bool {
    said.must_revalidate
        || said.proxy_revalidate
        || said.s_maxage.is_some()
        || said.no_cache.is_some()
}

/// Returns the lifetime that the response itself states, without `no-cache`.
pub(crate) fn stated_lifetime(
    policy: &Policy,
    answered: ResponseRef<'_, impl FieldLines>,
    received: WallTime,
) -> Option<Duration> {
    let said = &policy.said;
    if said.no_cache.is_some() {
        return Some(Duration::ZERO);
    }
    let expires = || until_expires(answered.headers, received).filter(|_| policy.heeds_expires());
    said.s_maxage.or(said.max_age).or_else(expires)
}

/// RFC 9111 section 4.2.1: s-maxage, else max-age, else Expires; else the lifetime of the site,
/// else the heuristic of Last-Modified.
fn fresh_for(
    policy: &Policy,
    answered: ResponseRef<'_, impl FieldLines>,
    rules: &Rules,
    received: WallTime,
) -> (Duration, LifetimeOrigin) {
    if let Some(stated) = stated_lifetime(policy, answered, received) {
        return (stated, LifetimeOrigin::Origin);
    }
    if let Some(default) = rules.forced.default_ttl {
        return (default, LifetimeOrigin::Cache);
    }
    if !heuristics_apply(answered.status, &policy.said) {
        return (Duration::ZERO, LifetimeOrigin::Origin);
    }
    let chosen = if is_negative(answered.status) && !rules.negative_ttl.is_zero() {
        rules.negative_ttl
    } else if rules.default_ttl.is_zero() {
        heuristic(answered.headers, received)
    } else {
        rules.default_ttl
    };
    (chosen, LifetimeOrigin::Cache)
}

/// Statuses that report a missing resource and permit a heuristic lifetime (RFC 9110 section 15.1).
const fn is_negative(status: StatusCode) -> bool {
    matches!(status.as_u16(), 404 | 405 | 410 | 414 | 501)
}

/// Returns `Expires` minus `Date`, or minus the time of receipt without a valid `Date`.
///
/// RFC 9111 section 5.3: an invalid date, "0" included, is in the past. Section 4.2.1: of several
/// lines the earliest applies.
fn until_expires(headers: &impl FieldLines, received: WallTime) -> Option<Duration> {
    let ends = headers.lines(&EXPIRES).map(|line| http_date_near(line, received));
    // An invalid date comes before all others.
    let Some(earliest) = ends.min()? else { return Some(Duration::ZERO) };
    let start = date(headers, received).unwrap_or(received);
    Some(earliest.since(start).min(Duration::from_secs(SECONDS_MAX)))
}

fn heuristic(headers: &impl FieldLines, received: WallTime) -> Duration {
    let Some(modified) = date_in(headers, &LAST_MODIFIED) else { return Duration::ZERO };
    let unchanged = date(headers, received).unwrap_or(received).since(modified);
    (unchanged / HEURISTIC_DIVISOR).min(HEURISTIC_MAX)
}

/// RFC 9111 section 5.1: the first member of the list applies; the field is ignored if that is no
/// integer.
fn stated_age(headers: &impl FieldLines) -> Duration {
    let first = headers.lines(&AGE).next().and_then(|line| line.split(|b| *b == b',').next());
    first.map(<[u8]>::trim_ascii).and_then(delta_seconds).unwrap_or_default()
}

/// Returns the time of origination from `Date`, if valid.
fn date(headers: &impl FieldLines, received: WallTime) -> Option<WallTime> {
    single_line(headers, &DATE).and_then(|line| http_date_near(line, received))
}

pub(crate) fn date_in(headers: &impl FieldLines, name: &HeaderName) -> Option<WallTime> {
    single_line(headers, name).and_then(http_date)
}

#[cfg(test)]
mod tests;
