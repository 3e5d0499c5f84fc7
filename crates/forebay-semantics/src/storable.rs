//! Storability of a response in a shared cache, with the reason against it (RFC 9111 section 3).

use forebay_core::{Lifetime, WallTime};
use http::header::{AUTHORIZATION, COOKIE, EXPIRES, SET_COOKIE};
use http::{Method, StatusCode};
use smallvec::SmallVec;

use crate::directives::Directives;
use crate::directives::policy::Policy;
use crate::directives::withheld::Withheld;
use crate::fields::FieldLines;
use crate::freshness::lifetime::{
    LifetimeOrigin, SetBy, heuristics_apply, lifetime_of, set_by_policy, stated_lifetime,
};
use crate::message::{Forced, Ignored, RequestRef, ResponseRef, Rules, SetCookieRemoval};
use crate::ranges::partial::{ContentRange, received_range};
use crate::validation::validate::has_validator;
use crate::variants::vary::{Selects, selects};

/// Reason against storing a response in a shared cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unstorable {
    /// The request method is not GET.
    Method,
    /// The request has `no-store`.
    RequestNoStore,
    /// The response has `no-store`, which neither `must-understand` nor `unsafe_ignore` overrides.
    NoStore,
    /// The response has `private` without field names, or with one that identifies the response,
    /// such as `vary`; and `unsafe_ignore` does not override it.
    Private,
    /// The request has `Authorization`, and the response has none of `public`, `must-revalidate`
    /// and `s-maxage`; and `unsafe_ignore` does not override it.
    Authorization,
    /// The response has `Set-Cookie`, neither `private` nor `no-cache` names that field, and no
    /// option of the site or of a rule permits storing it.
    SetCookie,
    /// The request has a cookie, the response has neither an explicit lifetime nor `public`, and no
    /// option permits storing it: it may have been made for one client.
    Cookie,
    /// The response has `Vary: *`, a malformed `Vary`, or one with more than 32 names.
    VaryAny,
    /// The status is interim or 304, or it is unknown and the response has `must-understand`.
    Status,
    /// The response is partial (206), and is not to be stored as a part, or states no range.
    Partial,
    /// The response has no lifetime, no stale window and no validator; or it has no explicit
    /// lifetime, and its status does not permit another one.
    NoFreshness,
    /// A rule of the site has `store = false`.
    Rule,
    /// A rule would share the response, the origin states no positive lifetime, and the request had
    /// `Cookie` or `Authorization`.
    UnkeyedCredentials,
    /// The response sets a cookie that is a part of the key.
    KeyedCookie,
    /// A field that a rule names in `require_echo` differs from that of the request.
    NoEcho,
    /// The value of an edit by a rule was invalid or longer than 8 KiB.
    EditFailed,
    /// The media type contradicts the extension of the path, and the response has neither `public`
    /// nor `s-maxage`.
    TypeMismatch,
}

impl Unstorable {
    /// Every reason, in the order of declaration; for tables and metrics.
    pub const ALL: [Self; 17] = [
        Self::Method,
        Self::RequestNoStore,
        Self::NoStore,
        Self::Private,
        Self::Authorization,
        Self::SetCookie,
        Self::Cookie,
        Self::VaryAny,
        Self::Status,
        Self::Partial,
        Self::NoFreshness,
        Self::Rule,
        Self::UnkeyedCredentials,
        Self::KeyedCookie,
        Self::NoEcho,
        Self::EditFailed,
        Self::TypeMismatch,
    ];

    /// Returns the stable code of the reason, for `Cache-Status` and logs.
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
            Self::Rule => "rule",
            Self::UnkeyedCredentials => "unkeyed-credentials",
            Self::KeyedCookie => "keyed-cookie",
            Self::NoEcho => "no-echo",
            Self::EditFailed => "edit-failed",
            Self::TypeMismatch => "type-mismatch",
        }
    }
}

/// Storable part of a response, with its lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storable {
    /// Freshness lifetime and stale windows of the stored response.
    pub lifetime: Lifetime,
    /// Source of the freshness lifetime: the origin server, or this cache.
    pub lifetime_origin: LifetimeOrigin,
    /// Setter of the freshness lifetime.
    pub set_by: SetBy,
    /// Fields of the response that must not be stored, because `private` or `no-cache` names them;
    /// only the requesting client gets them.
    pub withheld: Withheld,
}

/// Reasons against storing a response in a shared cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// First reason: it decides.
    pub first: Unstorable,
    /// Further reasons, in the order of their precedence.
    pub others: SmallVec<[Unstorable; 4]>,
}

impl Refusal {
    /// Collects reasons, the first one first; `None` if there are none.
    pub fn of(reasons: impl IntoIterator<Item = Unstorable>) -> Option<Self> {
        let mut reasons = reasons.into_iter();
        Some(Self { first: reasons.next()?, others: reasons.collect() })
    }

    /// Returns all reasons, the first one first.
    pub fn reasons(&self) -> impl Iterator<Item = Unstorable> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }
}

/// Decides whether a shared cache may store this response, received at `received` (RFC 9111 section
/// 3). A 206 is refused; see [`check_storable_part`].
///
/// If `private` or `no-cache` names fields, all other fields may be stored: see [`Withheld`].
///
/// # Errors
///
/// The first reason against storing it.
pub fn check_storable(
    asked: RequestRef<'_, impl FieldLines>,
    answered: ResponseRef<'_, impl FieldLines>,
    rules: &Rules,
    received: WallTime,
) -> Result<Storable, Unstorable> {
    let case = Case::qualified(Exchange { asked, answered }, rules, received);
    let is_part = answered.status == StatusCode::PARTIAL_CONTENT;
    case.refusal(is_part.then_some(Unstorable::Partial)).map_or_else(|| Ok(case.kept()), Err)
}

/// Decides whether a 206 may be stored (RFC 9111 section 3.3), and returns its range: see
/// [`received_range`]. A stored part answers requests for the bytes in it;
/// [`can_combine`](crate::ranges::partial::can_combine) tells whether other parts can be combined with it.
///
/// # Errors
///
/// The first reason against storing it; [`Unstorable::Partial`] if the 206 does not state its
/// range.
pub fn check_storable_part(
    asked: RequestRef<'_>,
    answered: ResponseRef<'_>,
    rules: &Rules,
    received: WallTime,
) -> Result<(Storable, ContentRange), Unstorable> {
    let range = received_range(answered).ok_or(Unstorable::Partial)?;
    let case = Case::qualified(Exchange { asked, answered }, rules, received);
    case.refusal(None).map_or_else(|| Ok((case.kept(), range)), Err)
}

/// Decides whether a shared cache may store this response with all its fields (RFC 9111 section 3).
/// A 206 is refused.
///
/// A qualified `private="field"` forbids it like an unqualified one, which section 5.2.2.7 permits.
/// [`check_storable`] stores the other fields instead.
///
/// # Errors
///
/// The first reason against storing it.
pub fn storable(
    asked: RequestRef<'_, impl FieldLines>,
    answered: ResponseRef<'_, impl FieldLines>,
    rules: &Rules,
) -> Result<(), Unstorable> {
    let exchange = Exchange { asked, answered };
    let policy = Policy::of(answered.headers);
    // The date of receipt matters only if Date is absent, and then any Expires is explicit.
    let received = WallTime::default();
    let case = Case { exchange, rules, received, policy, withheld: Withheld::default() };
    let is_part = answered.status == StatusCode::PARTIAL_CONTENT;
    case.refusal(is_part.then_some(Unstorable::Partial)).map_or(Ok(()), Err)
}

/// Decides like [`check_storable`].
///
/// # Errors
///
/// Every reason against storing the response.
pub fn evaluate(
    asked: RequestRef<'_, impl FieldLines>,
    answered: ResponseRef<'_, impl FieldLines>,
    rules: &Rules,
    received: WallTime,
) -> Result<Storable, Refusal> {
    let case = Case::qualified(Exchange { asked, answered }, rules, received);
    let is_part = answered.status == StatusCode::PARTIAL_CONTENT;
    let refusal = Refusal::of(case.reasons(is_part.then_some(Unstorable::Partial)));
    refusal.map_or_else(|| Ok(case.kept()), Err)
}

/// Reasons that the fields of an exchange give, in the order of their precedence.
const PRECEDENCE: [Unstorable; 12] = [
    Unstorable::Method,
    Unstorable::RequestNoStore,
    Unstorable::Partial,
    Unstorable::Status,
    Unstorable::NoStore,
    Unstorable::Private,
    Unstorable::Authorization,
    Unstorable::SetCookie,
    Unstorable::VaryAny,
    Unstorable::NoFreshness,
    Unstorable::UnkeyedCredentials,
    Unstorable::Cookie,
];

struct Exchange<'a, Q, A> {
    asked: RequestRef<'a, Q>,
    answered: ResponseRef<'a, A>,
}

/// Response under evaluation, with its policy and the options of the site.
struct Case<'a, Q, A> {
    exchange: Exchange<'a, Q, A>,
    rules: &'a Rules,
    received: WallTime,
    policy: Policy,
    withheld: Withheld,
}

impl<'a, Q: FieldLines, A: FieldLines> Case<'a, Q, A> {
    /// Moves the withheld fields out of the policy: the qualified directives do not apply to the
    /// rest of the response.
    fn qualified(exchange: Exchange<'a, Q, A>, rules: &'a Rules, received: WallTime) -> Self {
        let mut policy = Policy::of(exchange.answered.headers);
        let withheld = Withheld::remove_qualified(&mut policy.said);
        Self { exchange, rules, received, policy, withheld }
    }

    fn kept(self) -> Storable {
        let (lifetime, lifetime_origin) = self.lifetime();
        let set_by = set_by_policy(&self.policy, self.exchange.answered, self.rules);
        Storable { lifetime, lifetime_origin, set_by, withheld: self.withheld }
    }

    fn lifetime(&self) -> (Lifetime, LifetimeOrigin) {
        lifetime_of(&self.policy, self.exchange.answered, self.rules, self.received)
    }

    /// Returns the first reason against storing it. `of_part` is the reason that applies to a 206.
    fn refusal(&self, of_part: Option<Unstorable>) -> Option<Unstorable> {
        self.reasons(of_part).next()
    }

    /// Returns all reasons that apply, in the order of their precedence. Each is examined when the
    /// iterator comes to it.
    fn reasons(&self, of_part: Option<Unstorable>) -> impl Iterator<Item = Unstorable> {
        let applies = move |reason: &Unstorable| of_part == Some(*reason) || self.applies(*reason);
        PRECEDENCE.iter().copied().filter(applies)
    }

    /// Returns `true` if a reason applies, apart from that of a 206.
    fn applies(&self, reason: Unstorable) -> bool {
        let Exchange { asked, answered } = &self.exchange;
        let said = &self.policy.said;
        let ignores = |prohibition| self.rules.forced.ignored.has(prohibition);
        match reason {
            Unstorable::Method => *asked.method != Method::GET,
            Unstorable::RequestNoStore => Directives::of_request(asked.headers).no_store,
            Unstorable::Status => !is_understood(answered.status, said),
            // RFC 9111 section 5.2.2.3: a cache that understands the status ignores no-store.
            Unstorable::NoStore => {
                said.no_store && !said.must_understand && !ignores(Ignored::NO_STORE)
            }
            Unstorable::Private => said.private.is_some() && !ignores(Ignored::PRIVATE),
            Unstorable::Authorization => {
                is_for_one_user(*asked, said) && !ignores(Ignored::AUTHORIZATION)
            }
            Unstorable::SetCookie => self.sets_cookie(),
            Unstorable::VaryAny => selects(answered.headers) == Selects::Everything,
            Unstorable::NoFreshness => !self.is_of_use(),
            Unstorable::UnkeyedCredentials => self.is_forced_with_credentials(),
            Unstorable::Cookie => self.is_guessed_with_cookie(),
            // Of a 206, and of the rules and options of a site.
            Unstorable::Partial
            | Unstorable::Rule
            | Unstorable::KeyedCookie
            | Unstorable::NoEcho
            | Unstorable::EditFailed
            | Unstorable::TypeMismatch => false,
        }
    }

    /// RFC 9111 section 7.3 permits storing such responses and warns of it. The default is not to
    /// store them unless the origin withholds the cookie. `public` is not sufficient: frameworks
    /// send it with pages that also refresh a session. `Set-Cookie2` of RFC 2965 is an ordinary
    /// field, because clients ignore it (RFC 6265 section 1).
    fn sets_cookie(&self) -> bool {
        let is_there = self.exchange.answered.headers.has(&SET_COOKIE);
        let is_allowed =
            self.rules.store_set_cookie || self.rules.forced.ignored.has(Ignored::SET_COOKIE);
        is_there && !is_allowed && !self.withheld.holds(&SET_COOKIE)
    }

    /// RFC 9111 section 4.2.2 permits a heuristic lifetime for every response without an explicit
    /// one. The response to a request with a cookie may be about its sender, from an origin that
    /// omits `private`. Such a response gets no heuristic lifetime and is not stored, because a
    /// stored entry could be served stale while the origin is unreachable.
    fn is_guessed_with_cookie(&self) -> bool {
        let has_cookie = self.exchange.asked.headers.has(&COOKIE);
        let is_allowed = self.policy.said.public
            || self.rules.heuristics_with_cookie
            || self.rules.forced.ignored.has(Ignored::COOKIE);
        let is_chosen = || self.lifetime().1 == LifetimeOrigin::Cache;
        has_cookie && !is_allowed && is_chosen() && !self.states_freshness()
    }

    /// Returns true if the origin states a positive lifetime.
    fn states_freshness(&self) -> bool {
        let stated = stated_lifetime(&self.policy, self.exchange.answered, self.received);
        stated.is_some_and(|stated| !stated.is_zero())
    }

    /// A rule may share a response that its origin did not declare fit for sharing only if the request
    /// was anonymous: the origin may have answered for one user.
    fn is_forced_with_credentials(&self) -> bool {
        let Forced { ttl, default_ttl, set_cookie, ignored, .. } = self.rules.forced;
        let is_forced = ttl.is_some()
            || default_ttl.is_some() && self.lifetime().1 == LifetimeOrigin::Cache
            || set_cookie == SetCookieRemoval::Removed;
        let fields = self.exchange.asked.headers;
        let has_credentials = || {
            fields.has(&COOKIE) && !ignored.has(Ignored::COOKIE)
                || fields.has(&AUTHORIZATION) && !ignored.has(Ignored::AUTHORIZATION)
        };
        is_forced && !self.states_freshness() && has_credentials()
    }

    /// RFC 9111 section 3: the response has explicit freshness, or its status or `public` permits a
    /// heuristic. A response that can be neither served nor validated is not stored.
    fn is_of_use(&self) -> bool {
        let (said, answered) = (&self.policy.said, self.exchange.answered);
        let expires = || self.policy.heeds_expires() && answered.headers.has(&EXPIRES);
        let explicit = said.s_maxage.is_some() || said.max_age.is_some() || expires();
        let Forced { ttl, default_ttl, .. } = self.rules.forced;
        let is_forced = ttl.is_some() || default_ttl.is_some();
        if !explicit && !is_forced && !heuristics_apply(answered.status, said) {
            return false;
        }
        let (lifetime, _) = self.lifetime();
        !lifetime.fresh.is_zero()
            || !lifetime.stale_while_revalidate.is_zero()
            || !lifetime.stale_if_error.is_zero()
            || has_validator(answered.headers)
    }
}

/// RFC 9111 section 3: the status is final and, with must-understand, one whose rules are known. A
/// 304 is no representation.
fn is_understood(status: StatusCode, said: &Directives) -> bool {
    let is_whole = !status.is_informational() && status != StatusCode::NOT_MODIFIED;
    is_whole && (!said.must_understand || is_known(status))
}

/// Returns true for the final statuses of RFC 9110 section 15, whose caching rules are known here.
/// The caller decides about 206.
const fn is_known(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200..=206 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 500..=505
    )
}

/// RFC 9111 section 3.5: a response to a request with credentials is stored only if the origin
/// permits sharing.
fn is_for_one_user(asked: RequestRef<'_, impl FieldLines>, said: &Directives) -> bool {
    let shared = said.public || said.must_revalidate || said.s_maxage.is_some();
    !shared && asked.headers.has(&AUTHORIZATION)
}

#[cfg(test)]
mod forced_tests;
#[cfg(test)]
mod tests;
