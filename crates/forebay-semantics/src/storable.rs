//! May this response be stored in a shared cache, and if not, why?

use std::time::Duration;

use forebay_core::{Lifetime, WallTime};
use http::header::{AUTHORIZATION, COOKIE, EXPIRES, HeaderMap, SET_COOKIE};
use http::{Method, StatusCode};

use crate::directives::Directives;
use crate::lifetime::{SetBy, heuristics_apply, lifetime_of};
use crate::partial::{ContentRange, part_of};
use crate::policy::Policy;
use crate::validate::validator;
use crate::vary::{Selects, selects};
use crate::withheld::Withheld;

/// What a site chooses where the RFCs leave a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// How long an answer is fresh when the origin does not say, if its status is one that may be
    /// given a heuristic lifetime. Zero leaves it to `Last-Modified`.
    pub default_ttl: Duration,
    /// The same for answers that say that there is nothing: 404, 405, 410, 414 and 501. Zero
    /// leaves them to `default_ttl`.
    pub negative_ttl: Duration,
    /// Whether answers with `Set-Cookie` are stored, with the cookie in them.
    pub store_set_cookie: bool,
    /// Selects a response with `Content-Encoding` for requests with any `Accept-Encoding`, unless
    /// its `Vary` names that field.
    pub share_codings: bool,
    /// Whether an answer to a request with `Cookie` is given a lifetime where its origin states
    /// none, though it does not say `public` either.
    pub heuristics_with_cookie: bool,
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
    /// The request has a cookie, and the response states neither a lifetime nor `public`: it may
    /// have been made for one client.
    Cookie,
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
            Self::Cookie => "cookie",
            Self::VaryAny => "vary-any",
            Self::Status => "status",
            Self::Partial => "partial",
            Self::NoFreshness => "no-freshness",
        }
    }
}

/// What of a response is stored, and for how long it may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// How long it may be used.
    pub lifetime: Lifetime,
    /// Who has set for how long it is fresh.
    pub set_by: SetBy,
    /// The fields that must not be stored: they are for the one who asked.
    pub withheld: Withheld,
}

/// Whether and how a shared cache may store this response, received at `received` (RFC 9111
/// section 3).
///
/// Of a response whose `private` or `no-cache` names fields, all but these may be stored: see
/// [`Withheld`].
///
/// # Errors
///
/// The first reason found against it.
pub fn keep(
    asked: Asked<'_>,
    answered: Answered<'_>,
    rules: &Rules,
    received: WallTime,
) -> Result<Kept, Unstorable> {
    let case = Case::qualified(Exchange { asked, answered }, rules, received);
    let is_part = answered.status == StatusCode::PARTIAL_CONTENT;
    case.refusal(is_part.then_some(Unstorable::Partial)).map_or_else(|| Ok(case.kept()), Err)
}

/// Whether and how a 206 may be stored (RFC 9111 section 3.3), and which part it is: see
/// [`part_of`]. It answers requests for what it holds; [`joins`](crate::partial::joins) says
/// whether it can be joined with other parts.
///
/// # Errors
///
/// The first reason found against it; [`Unstorable::Partial`] if it does not say which part of
/// what it is.
pub fn keep_part(
    asked: Asked<'_>,
    answered: Answered<'_>,
    rules: &Rules,
    received: WallTime,
) -> Result<(Kept, ContentRange), Unstorable> {
    let range = part_of(answered).ok_or(Unstorable::Partial)?;
    let case = Case::qualified(Exchange { asked, answered }, rules, received);
    case.refusal(None).map_or_else(|| Ok((case.kept(), range)), Err)
}

/// Whether a shared cache may store all of this response (RFC 9111 section 3).
///
/// A qualified `private="field"` forbids it like a plain one, as section 5.2.2.7 says caches
/// often do: for who stores what came, and everything of it. See [`keep`] for who can do better.
///
/// # Errors
///
/// The first reason found against it.
pub fn storable(asked: Asked<'_>, answered: Answered<'_>, rules: &Rules) -> Result<(), Unstorable> {
    let exchange = Exchange { asked, answered };
    let policy = Policy::of(answered.headers);
    // The date of receipt matters only where there is no Date, and then any Expires counts.
    let received = WallTime::default();
    let case = Case { exchange, rules, received, policy, withheld: Withheld::default() };
    let is_part = answered.status == StatusCode::PARTIAL_CONTENT;
    case.refusal(is_part.then_some(Unstorable::Partial)).map_or(Ok(()), Err)
}

#[derive(Clone, Copy)]
struct Exchange<'a> {
    asked: Asked<'a>,
    answered: Answered<'a>,
}

/// A response that is looked at, with all that matters for it.
struct Case<'a> {
    exchange: Exchange<'a>,
    rules: &'a Rules,
    received: WallTime,
    policy: Policy,
    withheld: Withheld,
}

impl<'a> Case<'a> {
    /// What is withheld is out of the policy: for the rest of the response nothing was said.
    fn qualified(exchange: Exchange<'a>, rules: &'a Rules, received: WallTime) -> Self {
        let mut policy = Policy::of(exchange.answered.headers);
        let withheld = Withheld::take_from(&mut policy.said);
        Self { exchange, rules, received, policy, withheld }
    }

    fn kept(self) -> Kept {
        let (lifetime, set_by) = self.lifetime();
        Kept { lifetime, set_by, withheld: self.withheld }
    }

    fn lifetime(&self) -> (Lifetime, SetBy) {
        lifetime_of(&self.policy, self.exchange.answered, self.rules, self.received)
    }

    /// The first reason not to store it; `of_part` is the one that a part gives.
    fn refusal(&self, of_part: Option<Unstorable>) -> Option<Unstorable> {
        let Exchange { asked, answered } = self.exchange;
        let said = &self.policy.said;
        let reasons = [
            (asked.method != Method::GET, Unstorable::Method),
            (Directives::of_request(asked.headers).no_store, Unstorable::RequestNoStore),
            (of_part.is_some(), Unstorable::Partial),
            (!is_understood(answered.status, said), Unstorable::Status),
            // RFC 9111 section 5.2.2.3: who understands the status passes over no-store.
            (said.no_store && !said.must_understand, Unstorable::NoStore),
            (said.private.is_some(), Unstorable::Private),
            (is_for_one_user(asked, said), Unstorable::Authorization),
            (self.sets_cookie(), Unstorable::SetCookie),
            (selects(answered.headers) == Selects::Everything, Unstorable::VaryAny),
            (!self.is_of_use(), Unstorable::NoFreshness),
            (self.is_guessed_with_cookie(), Unstorable::Cookie),
        ];
        reasons.into_iter().find(|(holds, _)| *holds).map(|(_, reason)| reason)
    }

    /// RFC 9111 section 7.3 lets caches store such answers and warns of it; the default here is
    /// not to, unless the origin has the cookie withheld. `public` is no leave: frameworks send it
    /// with pages that also refresh a session. What RFC 2965 called `Set-Cookie2` no client reads
    /// any more: it is a field like others (RFC 6265 section 1).
    fn sets_cookie(&self) -> bool {
        let is_there = self.exchange.answered.headers.contains_key(SET_COOKIE);
        is_there && !self.rules.store_set_cookie && !self.withheld.holds(&SET_COOKIE)
    }

    /// RFC 9111 section 4.2.2 lets caches choose a lifetime for any answer that states none. An
    /// answer to a request with a cookie may be about its sender, and then its origin forgot to
    /// say `private`: nothing is chosen for it, and nothing of it is kept, since what is stored
    /// is served stale while the origin cannot be reached.
    fn is_guessed_with_cookie(&self) -> bool {
        let has_cookie = self.exchange.asked.headers.contains_key(COOKIE);
        let is_allowed = self.policy.said.public || self.rules.heuristics_with_cookie;
        has_cookie && !is_allowed && self.lifetime().1 == SetBy::Cache
    }

    /// RFC 9111 section 3: the response says how long it is fresh, or its status (or `public`)
    /// lets the cache choose. What can then neither be served nor validated is not worth its
    /// place.
    fn is_of_use(&self) -> bool {
        let (said, answered) = (&self.policy.said, self.exchange.answered);
        let expires = self.policy.heeds_expires() && answered.headers.contains_key(EXPIRES);
        let explicit = said.s_maxage.is_some() || said.max_age.is_some() || expires;
        if !explicit && !heuristics_apply(answered.status, said) {
            return false;
        }
        let (lifetime, _) = self.lifetime();
        !lifetime.fresh.is_zero()
            || !lifetime.stale_while_revalidate.is_zero()
            || !lifetime.stale_if_error.is_zero()
            || validator(answered.headers).is_some()
    }
}

/// RFC 9111 section 3: the status is final, and, with must-understand, one that is understood.
/// A 304 is no representation of anything by itself.
fn is_understood(status: StatusCode, said: &Directives) -> bool {
    let is_whole = !status.is_informational() && status != StatusCode::NOT_MODIFIED;
    is_whole && (!said.must_understand || is_known(status))
}

/// The final statuses whose caching rules are known here: those of RFC 9110 section 15. Of a 206
/// it is decided elsewhere whether it may be stored.
const fn is_known(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200..=206 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 500..=505
    )
}

/// RFC 9111 section 3.5: an answer to a request with credentials is stored only if the origin
/// says that it may be shared.
fn is_for_one_user(asked: Asked<'_>, said: &Directives) -> bool {
    let shared = said.public || said.must_revalidate || said.s_maxage.is_some();
    asked.headers.contains_key(AUTHORIZATION) && !shared
}

#[cfg(test)]
mod tests;
