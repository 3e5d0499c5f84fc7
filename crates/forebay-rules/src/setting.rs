//! Settings of a rule, by name and phase.

use std::time::Duration;

use forebay_semantics::ProductField;
use http::{HeaderName, HeaderValue, Method, StatusCode};

use crate::edit::Edits;
use crate::glob::NamePattern;
use crate::json::JsonCut;
use crate::key::KeyParts;
use crate::pattern::Pattern;
use crate::purge::PurgeRule;
use crate::template::Template;

/// Effect of a setting on caching. If a path has two readings, a rule must match both for the
/// setting to apply, unless its class is [`Class::Narrows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Narrows caching.
    Narrows,
    /// Shapes the fetch or the stored response, so that it may not use values of one client.
    Stored,
    /// Affects the response to this request only.
    Response,
}

/// Step of a request at which a setting applies, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Every request, on arrival.
    ClientRequest,
    /// Lookup of a request.
    CacheRequest,
    /// Each request to the origin.
    OriginRequest,
    /// Response of the origin, before storability is judged.
    OriginResponse,
    /// Response from storage, before it is sent to a client.
    CacheResponse,
    /// Every response, before it is sent to a client.
    ClientResponse,
}

/// Status codes of a condition or setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusTest {
    /// One status.
    Exact(u16),
    /// All statuses with this first digit: `5xx`.
    Class(u16),
}

impl StatusTest {
    /// Parses a status from 200 to 599, such as `404`, or a class from `1xx` to `5xx`. `None` for
    /// other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix("xx") {
            Some(digit) => digit.parse().ok().filter(|d| (1..=5).contains(d)).map(Self::Class),
            None => Self::of(text.parse().ok()?),
        }
    }

    /// Returns the test for one status; `None` if it is not from 200 to 599.
    #[must_use]
    pub fn of(status: u16) -> Option<Self> {
        (200..600).contains(&status).then_some(Self::Exact(status))
    }

    /// Returns true if the test includes the status.
    #[must_use]
    pub fn includes(self, status: StatusCode) -> bool {
        match self {
            Self::Exact(exact) => exact == status.as_u16(),
            Self::Class(digit) => digit == status.as_u16() / 100,
        }
    }
}

/// Duration that may depend on the status of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByStatus {
    /// One duration, for the statuses that the setting applies to by default.
    Plain(Duration),
    /// Durations of named statuses, and of all others.
    Table {
        /// Statuses with their durations; the first exact one applies, then the first class.
        statuses: Vec<(StatusTest, Duration)>,
        /// Duration of any other status; `None` if the setting does not apply to it.
        any: Option<Duration>,
    },
}

impl ByStatus {
    /// Returns the duration for a status, or `None` if there is none. `plain` returns true for the
    /// statuses to which [`ByStatus::Plain`] applies.
    #[must_use]
    pub fn of(&self, status: StatusCode, plain: impl Fn(StatusCode) -> bool) -> Option<Duration> {
        match self {
            Self::Plain(duration) => plain(status).then_some(*duration),
            Self::Table { statuses, any } => {
                let find = |is_exact: bool| {
                    let found = statuses.iter().find(|(test, _)| {
                        matches!(test, StatusTest::Exact(_)) == is_exact && test.includes(status)
                    });
                    found.map(|(_, duration)| *duration)
                };
                find(true).or_else(|| find(false)).or(*any)
            }
        }
    }

    /// Returns true if a `ttl` that is one duration, and no table by status, applies to this
    /// status: 200, 301, 302 or 308.
    #[must_use]
    pub fn is_ttl_status(status: StatusCode) -> bool {
        matches!(status.as_u16(), 200 | 301 | 302 | 308)
    }
}

/// Directive or field whose effect `unsafe_ignore` removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnsafeWord {
    /// `private` of the response.
    Private,
    /// `no-store` of the response.
    NoStore,
    /// `Set-Cookie` of the response.
    SetCookie,
    /// `Authorization` of the request.
    Authorization,
    /// `Cookie` of the request.
    Cookie,
}

impl UnsafeWord {
    /// All words that `unsafe_ignore` accepts.
    pub const ALL: [Self; 5] =
        [Self::Private, Self::NoStore, Self::SetCookie, Self::Authorization, Self::Cookie];

    /// Returns the word as it is typed.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::NoStore => "no-store",
            Self::SetCookie => "set-cookie",
            Self::Authorization => "authorization",
            Self::Cookie => "cookie",
        }
    }
}

/// Credential that identifies a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserCredential {
    /// Value of `Authorization`.
    Authorization,
    /// Values of this cookie.
    Cookie(Box<str>),
}

/// Treatment of `Set-Cookie` in responses of the origin, which is never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripSetCookie {
    /// No client gets it.
    Always,
    /// The client that caused the fetch gets it, if none of its own cookies were dropped.
    Stored,
}

/// Lifetime in browsers, written to `Cache-Control`. Server errors and responses with `no-store`
/// are not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrowserTtl {
    /// Time for which the browser may use the response after it was sent; `private` is kept.
    Fresh(Duration),
    /// The browser does not store the response.
    NoStore,
}

/// New path of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// Expression that must be found in the path; absent means every path.
    pub from: Option<Pattern>,
    /// New path in place of the whole old one, with `$1` for the groups of `from`.
    pub to: Box<str>,
}

/// Redirect in place of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Expression that must be found in the path; absent means every path.
    pub from: Option<Pattern>,
    /// Value of `Location`, with `$1` for the groups of `from`, and placeholders.
    pub to: Template,
    /// Status code of the redirect.
    pub status: StatusCode,
}

/// Response that the cache makes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Respond {
    /// Status code of the response.
    pub status: StatusCode,
    /// Body of the response, which is omitted for HEAD.
    pub body: Box<[u8]>,
    /// Value of `Content-Type`; absent if the response has none.
    pub content_type: Option<HeaderValue>,
}

/// Query parameter that only the origin gets.
#[derive(Clone, PartialEq, Eq)]
pub struct OriginParameter {
    /// Name of the parameter.
    pub name: Box<str>,
    /// Value, encoded for a query.
    pub value: Box<str>,
    /// True if the value is a secret of the operator that was read from a file.
    pub is_secret: bool,
}

impl std::fmt::Debug for OriginParameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = if self.is_secret { "(secret)" } else { &*self.value };
        write!(f, "{}={value}", self.name)
    }
}

/// Declares the settings with their phase and class.
macro_rules! settings {
    ($($(#[$doc:meta])* $kind:ident($type:ty) = $name:literal, $phase:ident, $class:ident;)*) => {
        /// One setting of a rule.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Setting {
            $($(#[$doc])* $kind($type),)*
        }

        /// Name of a setting.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// Every kind, in the order of the phases.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Returns the name in the configuration.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),* }
            }

            /// Returns the phase at which the setting applies.
            #[must_use]
            pub const fn phase(self) -> Phase {
                match self { $(Self::$kind => Phase::$phase),* }
            }

            /// Returns the effect on caching.
            #[must_use]
            pub const fn class(self) -> Class {
                match self { $(Self::$kind => Class::$class),* }
            }
        }

        impl Setting {
            /// Returns the name of the setting.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind),* }
            }
        }
    };
}

settings! {
    /// Query parameters that are removed for key and origin.
    IgnoreQuery(Vec<NamePattern>) = "ignore_query", ClientRequest, Stored;
    /// Query parameters that are kept for key and origin; all others are removed.
    KeepQuery(Vec<NamePattern>) = "keep_query", ClientRequest, Stored;
    /// Sorts the query parameters for key and origin if `true`.
    SortQuery(bool) = "sort_query", ClientRequest, Stored;
    /// New path for key and origin.
    Rewrite(Rewrite) = "rewrite", ClientRequest, Stored;
    /// Host in the key and for the origin.
    Host(Box<str>) = "host", ClientRequest, Stored;
    /// Edits of the request for key and origin.
    ClientRequest(Edits) = "client_request", ClientRequest, Stored;
    /// Ends the request with a redirect.
    Redirect(Redirect) = "redirect", ClientRequest, Response;
    /// Ends the request with a fixed response.
    Respond(Respond) = "respond", ClientRequest, Response;
    /// Ends the request with a purge of its URL, or of the tags that it names.
    Purge(PurgeRule) = "purge", ClientRequest, Response;
    /// Forwards the request without lookup, storing or coalescing; `false` undoes `true` of an
    /// earlier rule.
    Bypass(bool) = "bypass", CacheRequest, Narrows;
    /// Cookies that a request keeps before lookup and fetch; all others are removed.
    KeepCookies(Vec<NamePattern>) = "keep_cookies", CacheRequest, Stored;
    /// Cookies that are removed from a request before lookup and fetch.
    DropCookies(Vec<NamePattern>) = "drop_cookies", CacheRequest, Stored;
    /// Header fields and cookies in the key.
    Key(KeyParts) = "key", CacheRequest, Stored;
    /// Credential in the key: each user has stored responses of their own.
    PerUser(UserCredential) = "per_user", CacheRequest, Stored;
    /// Largest freshness lifetime of a response that is stored for one user.
    PerUserTtlMax(Duration) = "per_user_ttl_max", OriginResponse, Stored;
    /// Obeys cache directives of the client; `false` ignores all but `no-store`, `only-if-cached`
    /// and `max-stale`.
    ClientCacheControl(bool) = "client_cache_control", CacheRequest, Response;
    /// Coalescing of requests in this instance; `false` ends that among instances, too.
    Coalesce(bool) = "coalesce", CacheRequest, Response;
    /// Coalescing of requests among instances.
    CoalesceCluster(bool) = "coalesce_cluster", CacheRequest, Response;
    /// Time of a fetch after which a stale response is served while the fetch continues.
    SoftTimeout(Duration) = "soft_timeout", CacheRequest, Response;
    /// Eagerness of early refresh; zero means none.
    EarlyRefreshBeta(f64) = "early_refresh_beta", CacheRequest, Response;
    /// Methods other than GET and HEAD that are looked up by the request body, in place of those of
    /// the site.
    CacheMethods(Vec<Method>) = "cache_methods", CacheRequest, Response;
    /// Edits of `Cache-Control` and `Pragma` of the request that only the lookup sees.
    CacheRequest(Edits) = "cache_request", CacheRequest, Response;
    /// Time limit of a fetch, if it is shorter than that of the site.
    FetchTimeout(Duration) = "fetch_timeout", OriginRequest, Response;
    /// Edits of each request to the origin.
    OriginRequest(Edits) = "origin_request", OriginRequest, Stored;
    /// Query parameters that only the origin gets.
    OriginQuery(Vec<OriginParameter>) = "origin_request.query", OriginRequest, Stored;
    /// Freshness lifetime, whatever the response states. One duration applies to the statuses 200,
    /// 301, 302 and 308.
    Ttl(ByStatus) = "ttl", OriginResponse, Stored;
    /// Freshness lifetime of a response that states none. One duration applies to the statuses that
    /// allow a heuristic lifetime.
    DefaultTtl(ByStatus) = "default_ttl", OriginResponse, Stored;
    /// Freshness lifetime of a response that states none, before `default_ttl`. One duration
    /// applies to the statuses 404, 405, 410, 414 and 501.
    NegativeTtl(ByStatus) = "negative_ttl", OriginResponse, Stored;
    /// Smallest freshness lifetime, except of a response without one and of one that `ttl` sets.
    MinTtl(Duration) = "min_ttl", OriginResponse, Stored;
    /// Largest freshness lifetime.
    MaxTtl(Duration) = "max_ttl", OriginResponse, Narrows;
    /// Time after expiry in which a stale response is served while it is validated, unless the
    /// response forbids stale use.
    StaleWhileRevalidate(Duration) = "stale_while_revalidate", OriginResponse, Stored;
    /// Time after expiry in which a stale response is served in place of an error, unless the
    /// response forbids stale use.
    StaleIfError(Duration) = "stale_if_error", OriginResponse, Stored;
    /// Time after expiry in which a stale response is served while the origin is unreachable,
    /// unless the response forbids stale use.
    StaleOnDisconnectMax(Duration) = "stale_on_disconnect_max", CacheRequest, Stored;
    /// Statuses that count as failures of the origin, in place of 500, 502, 503 and 504.
    FailureStatus(Vec<StatusTest>) = "failure_status", OriginResponse, Stored;
    /// Keeps responses out of storage; only `false` is valid.
    Store(bool) = "store", OriginResponse, Narrows;
    /// Fields that must have equal values in request and response; other responses are not stored.
    RequireEcho(Vec<HeaderName>) = "require_echo", OriginResponse, Narrows;
    /// Treatment of `Set-Cookie` in responses of the origin.
    StripSetCookie(StripSetCookie) = "strip_set_cookie", OriginResponse, Stored;
    /// Response fields with tags, in place of `Surrogate-Key` and `Cache-Tag`.
    TagFields(Vec<HeaderName>) = "tag_fields", OriginResponse, Stored;
    /// Fields of other products' caches that apply, and that clients do not get.
    TargetedFields(Vec<ProductField>) = "targeted_fields", OriginResponse, Stored;
    /// Tags that every stored response has.
    Tags(Vec<Box<str>>) = "tags", OriginResponse, Stored;
    /// Prohibitions against storing that are ignored.
    UnsafeIgnore(Vec<UnsafeWord>) = "unsafe_ignore", OriginResponse, Stored;
    /// Parts of JSON bodies that are removed before storing. It applies if the rule matches one reading
    /// of the path: a second spelling must not reveal what the rule removes.
    Json(JsonCut) = "json", OriginResponse, Stored;
    /// Edits of the response of the origin before it is stored.
    OriginResponse(Edits) = "origin_response", OriginResponse, Stored;
    /// Edits of a response from storage.
    CacheResponse(Edits) = "cache_response", CacheResponse, Response;
    /// Lifetime of the response in browsers.
    BrowserTtl(BrowserTtl) = "browser_ttl", ClientResponse, Response;
    /// Edits of every response.
    ClientResponse(Edits) = "client_response", ClientResponse, Response;
}

/// Set of kinds of settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindSet(u64);

const _: () = assert!(Kind::ALL.len() <= u64::BITS as usize);

impl KindSet {
    /// Kinds of which one reading of the path is enough to apply. A fixed response is among them
    /// because client errors are.
    pub(crate) const WIDE: Self = {
        let (mut set, mut n) = (Self::of(&[Kind::Json, Kind::Respond]), 0);
        while n < Kind::ALL.len() {
            if matches!(Kind::ALL[n].class(), Class::Narrows) {
                set = set.union(Self::of(&[Kind::ALL[n]]));
            }
            n += 1;
        }
        set
    };

    /// Returns the set of these kinds.
    #[inline]
    #[must_use]
    pub const fn of(kinds: &[Kind]) -> Self {
        let (mut bits, mut n) = (0, 0);
        while n < kinds.len() {
            bits |= 1 << kinds[n] as u32;
            n += 1;
        }
        Self(bits)
    }

    /// Returns the kinds of both sets.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the kinds that are in both sets.
    #[inline]
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns true if the set has no kind.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns true if the set has the kind.
    #[inline]
    #[must_use]
    pub const fn has(self, kind: Kind) -> bool {
        !self.common(Self::of(&[kind])).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_kinds_have_their_members() {
        let set = KindSet::of(&[Kind::IgnoreQuery, Kind::ClientResponse]);
        let members: Vec<Kind> = Kind::ALL.iter().copied().filter(|kind| set.has(*kind)).collect();
        assert_eq!(members, [Kind::IgnoreQuery, Kind::ClientResponse]);
        assert!(set.common(KindSet::of(&[Kind::Ttl])).is_empty());
        for kind in Kind::ALL {
            let is_wide =
                kind.class() == Class::Narrows || matches!(kind, Kind::Json | Kind::Respond);
            assert_eq!(KindSet::WIDE.has(*kind), is_wide, "{kind:?}");
        }
    }

    #[test]
    fn durations_by_status_prefer_the_exact_status() {
        let secs = Duration::from_secs;
        let table = ByStatus::Table {
            statuses: vec![
                (StatusTest::Class(4), secs(4)),
                (StatusTest::Exact(404), secs(1)),
                (StatusTest::Exact(200), secs(2)),
            ],
            any: Some(secs(9)),
        };
        let of = |table: &ByStatus, status| {
            table.of(StatusCode::from_u16(status).unwrap(), ByStatus::is_ttl_status)
        };
        assert_eq!(
            [200, 404, 403, 500].map(|s| of(&table, s)),
            [2, 1, 4, 9].map(|s| Some(secs(s)))
        );
        let plain = ByStatus::Plain(secs(5));
        assert_eq!([200, 302, 404].map(|s| of(&plain, s)), [Some(secs(5)), Some(secs(5)), None]);
    }

    #[test]
    fn status_tests_are_codes_or_classes() {
        assert_eq!(StatusTest::parse("404"), Some(StatusTest::Exact(404)));
        assert_eq!(StatusTest::parse("5xx"), Some(StatusTest::Class(5)));
        for text in ["", "xx", "6xx", "0xx", "99", "600", "4x4"] {
            assert_eq!(StatusTest::parse(text), None, "{text}");
        }
    }
}
