//! Request and response of an exchange, borrowed, and the options of a site for storing responses.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};

/// Options of a site for storing responses, where the RFCs leave a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Freshness lifetime of a response without an explicit one, if its status or `public` allows a
    /// heuristic lifetime. Zero selects the heuristic of `Last-Modified`.
    pub default_ttl: Duration,
    /// Freshness lifetime of a response with status 404, 405, 410, 414 or 501 without an explicit
    /// one. Zero selects `default_ttl`.
    pub negative_ttl: Duration,
    /// Stores responses with `Set-Cookie`, including the cookie.
    pub store_set_cookie: bool,
    /// Selects a response with `Content-Encoding` for requests with any `Accept-Encoding`, unless
    /// its `Vary` names that field.
    pub share_codings: bool,
    /// Gives a response to a request with `Cookie` a heuristic lifetime if it has neither explicit
    /// freshness nor `public`. If `false`, that response is not stored.
    pub heuristics_with_cookie: bool,
    /// Values that the rules of the site set for one response.
    pub forced: Forced,
}

/// Values that the rules of a site set for one response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forced {
    /// Freshness lifetime, whatever the response states, `no-cache` included.
    pub ttl: Option<Duration>,
    /// Freshness lifetime of a response without an explicit one, also if its status does not allow
    /// a heuristic lifetime. It replaces `default_ttl` and `negative_ttl` of [`Rules`].
    pub default_ttl: Option<Duration>,
    /// Smallest lifetime. It applies neither to a lifetime of zero nor to one that `ttl` sets.
    pub min_ttl: Option<Duration>,
    /// Largest lifetime, also of one that `ttl` or `min_ttl` sets.
    pub max_ttl: Option<Duration>,
    /// Window of stale-while-revalidate in place of the stated one, unless the response forbids
    /// stale responses.
    pub stale_while_revalidate: Option<Duration>,
    /// Window of stale-if-error in place of the stated one, unless the response forbids stale
    /// responses.
    pub stale_if_error: Option<Duration>,
    /// Removal of `Set-Cookie` by a rule. After it, a response to a request with credentials is
    /// stored only if the origin states a positive lifetime.
    pub set_cookie: SetCookieRemoval,
    /// Prohibitions that do not apply, because the operator ignores them (`unsafe_ignore`).
    pub ignored: Ignored,
}

/// Removal of `Set-Cookie` by a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookieRemoval {
    /// No rule removed the field.
    #[default]
    None,
    /// A rule removed the field.
    Removed,
}

/// Set of prohibitions that do not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored(u8);

impl Ignored {
    /// `private` of the response.
    pub const PRIVATE: Self = Self(1);
    /// `no-store` of the response.
    pub const NO_STORE: Self = Self(1 << 1);
    /// `Set-Cookie` of the response.
    pub const SET_COOKIE: Self = Self(1 << 2);
    /// `Authorization` of the request.
    pub const AUTHORIZATION: Self = Self(1 << 3);
    /// `Cookie` of the request.
    pub const COOKIE: Self = Self(1 << 4);

    /// Returns the set with another prohibition.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the set without a prohibition.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns true if the set has the prohibition.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Request of an exchange, borrowed.
#[derive(Debug)]
pub struct RequestRef<'a, F = HeaderMap> {
    /// Method of the request.
    pub method: &'a Method,
    /// Header fields of the request.
    pub headers: &'a F,
}

/// Final response of an exchange, borrowed.
#[derive(Debug)]
pub struct ResponseRef<'a, F = HeaderMap> {
    /// Status code of the response.
    pub status: StatusCode,
    /// Header fields of the response.
    pub headers: &'a F,
}

// Derived, they would require that the fields can be copied.
impl<F> Clone for RequestRef<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for RequestRef<'_, F> {}

impl<F> Clone for ResponseRef<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for ResponseRef<'_, F> {}
