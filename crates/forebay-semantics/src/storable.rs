//! May this response be stored in a shared cache, and if not, why?

use std::time::Duration;

use forebay_core::WallTime;
use http::header::{AUTHORIZATION, EXPIRES, HeaderMap, HeaderName, SET_COOKIE};
use http::{Method, StatusCode};

use crate::directives::Directives;
use crate::lifetime::{heuristics_apply, lifetime_of};
use crate::validate::validator;
use crate::vary::{Selects, selects};

/// The obsolete relative of `Set-Cookie` (RFC 2965); origins that still send it mean the same.
pub(crate) const SET_COOKIE2: HeaderName = HeaderName::from_static("set-cookie2");

/// What a site chooses where the RFCs leave a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// How long an answer is fresh when the origin does not say, if its status is one that may be
    /// given a heuristic lifetime. Zero leaves it to `Last-Modified`.
    pub default_ttl: Duration,
    /// Whether answers with `Set-Cookie` are stored without `public`.
    pub store_set_cookie: bool,
}

/// The request of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its fields.
    pub headers: &'a HeaderMap,
}

/// The final response of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// Its status.
    pub status: StatusCode,
    /// Its fields.
    pub headers: &'a HeaderMap,
}

/// Why a response may not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unstorable {
    /// Only answers to GET are stored.
    Method,
    /// The request says `no-store`.
    RequestNoStore,
    /// The response says `no-store`.
    NoStore,
    /// The response says `private`.
    Private,
    /// The request has credentials, and the response does not say that it may be shared.
    Authorization,
    /// The response sets a cookie: it was made for one client.
    SetCookie,
    /// `Vary: *`, or a `Vary` that cannot be read.
    VaryAny,
    /// The status is interim, a 304, or not understood where understanding is demanded.
    Status,
    /// The response is a part (206).
    Partial,
    /// It has neither freshness nor a validator, or its status needs explicit freshness.
    NoFreshness,
}

impl Unstorable {
    /// The stable code that users and logs see.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::RequestNoStore => "request-no-store",
            Self::NoStore => "no-store",
            Self::Private => "private",
            Self::Authorization => "authorization",
            Self::SetCookie => "set-cookie",
            Self::VaryAny => "vary-any",
            Self::Status => "status",
            Self::Partial => "partial",
            Self::NoFreshness => "no-freshness",
        }
    }
}

/// Whether a shared cache may store this response (RFC 9111 section 3).
///
/// A qualified `private="field"` forbids it like a plain one, as section 5.2.2.7 says caches
/// often do: one stored head serves the client who asked and everybody else, and the field was
/// meant for the first of them.
///
/// # Errors
///
/// The first reason found against it.
pub fn storable(asked: Asked<'_>, answered: Answered<'_>, rules: &Rules) -> Result<(), Unstorable> {
    let said = Directives::of_response(answered.headers);
    let reasons = [
        (asked.method != Method::GET, Unstorable::Method),
        (Directives::of_request(asked.headers).no_store, Unstorable::RequestNoStore),
        (answered.status == StatusCode::PARTIAL_CONTENT, Unstorable::Partial),
        (!is_understood(answered.status, &said), Unstorable::Status),
        // RFC 9111 section 5.2.2.3: who understands the status passes over no-store.
        (said.no_store && !said.must_understand, Unstorable::NoStore),
        (said.private.is_some(), Unstorable::Private),
        (is_for_one_user(asked, &said), Unstorable::Authorization),
        (sets_cookie(answered.headers, &said, rules), Unstorable::SetCookie),
        (selects(answered.headers) == Selects::Everything, Unstorable::VaryAny),
        (!is_of_use(answered, &said, rules), Unstorable::NoFreshness),
    ];
    reasons.into_iter().find(|(holds, _)| *holds).map_or(Ok(()), |(_, reason)| Err(reason))
}

/// RFC 9111 section 3: the status is final, and, with must-understand, one that is understood.
/// A 304 is no representation of anything by itself.
fn is_understood(status: StatusCode, said: &Directives) -> bool {
    let is_whole = !status.is_informational() && status != StatusCode::NOT_MODIFIED;
    is_whole && (!said.must_understand || is_known(status))
}

/// The final statuses whose caching rules are known here: those of RFC 9110 section 15.
const fn is_known(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200..=205 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 500..=505
    )
}

/// RFC 9111 section 3.5: an answer to a request with credentials is stored only if the origin
/// says that it may be shared.
fn is_for_one_user(asked: Asked<'_>, said: &Directives) -> bool {
    let shared = said.public || said.must_revalidate || said.s_maxage.is_some();
    asked.headers.contains_key(AUTHORIZATION) && !shared
}

/// RFC 9111 section 7.3 lets caches store such answers and warns of it; the default here is not
/// to, unless the origin says `public`.
fn sets_cookie(headers: &HeaderMap, said: &Directives, rules: &Rules) -> bool {
    let has_cookie = headers.contains_key(SET_COOKIE) || headers.contains_key(SET_COOKIE2);
    has_cookie && !said.public && !rules.store_set_cookie
}

/// RFC 9111 section 3: the response says how long it is fresh, or its status (or `public`) lets
/// the cache choose. What can then neither be served nor validated is not worth its place.
fn is_of_use(answered: Answered<'_>, said: &Directives, rules: &Rules) -> bool {
    let explicit =
        said.s_maxage.is_some() || said.max_age.is_some() || answered.headers.contains_key(EXPIRES);
    if !explicit && !heuristics_apply(answered.status, said) {
        return false;
    }
    // The date of receipt matters only where there is no Date, and then any Expires counts.
    let lifetime = lifetime_of(said, answered, rules, WallTime::default());
    !lifetime.fresh.is_zero()
        || !lifetime.stale_while_revalidate.is_zero()
        || !lifetime.stale_if_error.is_zero()
        || validator(answered.headers).is_some()
}

#[cfg(test)]
mod tests;
