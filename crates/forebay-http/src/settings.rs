//! Settings of a site and of its origin; immutable once built.

use std::borrow::Cow;
use std::time::Duration;

use forebay_core::Demand;
use forebay_core::rate::RateLimit;
use forebay_engine::{Coalesce, TierErrors};
use forebay_semantics::groups::GroupLimits;
use forebay_semantics::{Networks, PeerAddress, Rules, Scheme};
use http::uri::Authority;
use http::{HeaderValue, Method};

use crate::authority::normalise_authority;

/// Settings of a site; immutable once built.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteSettings {
    /// Name of the site in keys, metrics, logs and purges.
    pub id: Box<str>,
    /// Hosts that the site answers for; empty means every host.
    pub hosts: Vec<HostPattern>,
    /// Path prefix that the site answers for, without a slash at its end; it is removed before a
    /// request is forwarded.
    pub prefix: Option<Box<str>>,
    /// Origin server of the site.
    pub origin: OriginSettings,
    /// Maximum time for the origin's response head, and for each further piece of its body.
    pub fetch_timeout: Duration,
    /// Rules for storing the responses of the site.
    pub rules: Rules,
    /// Maximum number of stored variants of one URL.
    pub variants_max: usize,
    /// Requirements of a request that states none: early refresh, soft timeout, staleness while the
    /// origin is unreachable.
    pub demand: Demand,
    /// Query parameters removed from the key and from the forwarded request; a `*` at the end
    /// matches any suffix.
    pub ignore_query: Vec<Box<str>>,
    /// Sorts query parameters in the key and in the forwarded request if `true`.
    pub sort_query: bool,
    /// Request coalescing: which requests for one key share a load.
    pub coalesce: Coalesce,
    /// Answers plain hits from memory without parsing the request for other purposes. Responses are
    /// the same; `false` helps to find out whether a defect is in this path.
    pub direct_hits: bool,
    /// Maximum time to wait for a fetch of another instance.
    pub lease_wait_max: Duration,
    /// Includes the cause of a failure in error responses if `true`.
    pub expose_errors: bool,
    /// Treatment of a lower tier that cannot be read: skipped, or the request fails.
    pub tier_errors: TierErrors,
    /// Gives http and https one key if `true`.
    pub ignore_scheme: bool,
    /// Clients that may use the site.
    pub access: ClientAccess,
    /// Maximum rate of requests per client; `None` means no limit.
    pub rate_limit: Option<RateLimitSettings>,
    /// Value of `Strict-Transport-Security` on https, unless the origin sent one.
    pub hsts: Option<HeaderValue>,
    /// Adds `Forwarded` (RFC 7239) to requests to the origin if `true`.
    pub is_forwarded_added: bool,
    /// Features of the site that are off by default.
    pub opt_ins: OptIns,
}

impl SiteSettings {
    /// Returns default settings for a site that accepts every request and whose origin is at
    /// `authority`.
    #[must_use]
    pub fn new(id: impl Into<Box<str>>, authority: Authority) -> Self {
        Self {
            id: id.into(),
            hosts: Vec::new(),
            prefix: None,
            origin: OriginSettings::new(authority),
            fetch_timeout: Duration::from_secs(30),
            rules: Rules::default(),
            variants_max: 64,
            demand: Demand::default(),
            ignore_query: Vec::new(),
            sort_query: false,
            coalesce: Coalesce::default(),
            direct_hits: true,
            lease_wait_max: Duration::from_secs(10),
            expose_errors: false,
            tier_errors: TierErrors::default(),
            ignore_scheme: false,
            access: ClientAccess::default(),
            rate_limit: None,
            hsts: None,
            is_forwarded_added: false,
            opt_ins: OptIns::default(),
        }
    }
}

/// Rate limit of the clients of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitSettings {
    /// Rate and burst of each client.
    pub limit: RateLimit,
    /// Responses from the cache without a fetch do not count if `true`.
    pub exempts_hits: bool,
}

/// Networks of the clients that may use a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientAccess {
    /// Networks that may use the site; empty means all.
    pub allow: Networks,
    /// Networks that may not, also if `allow` contains them.
    pub deny: Networks,
}

impl ClientAccess {
    /// Returns `true` if the client may use the site.
    #[must_use]
    pub fn admits(&self, client: PeerAddress) -> bool {
        !self.deny.contains(client) && (self.allow.is_empty() || self.allow.contains(client))
    }
}

/// Features of a site that not every origin supports. All are off by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptIns {
    /// Limits of cache groups (RFC 9875); `None` if groups are ignored.
    pub groups: Option<GroupLimits>,
    /// Methods other than GET and HEAD whose responses are stored, keyed by the request body.
    pub methods: Vec<Method>,
    /// Maximum length in bytes of a request body that is used as part of the key; a longer request
    /// is not cached.
    pub body_max: usize,
}

/// Settings of an origin server.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginSettings {
    /// Host and port to connect to. A request cannot change it.
    pub authority: Authority,
    /// Value of `Host` in requests to the origin; `None` forwards the client's.
    pub host: Option<HeaderValue>,
    /// Maximum number of concurrent requests to the origin.
    pub connections_max: usize,
    /// Maximum time for which an idle connection to the origin is kept.
    pub keep_alive: Duration,
    /// Maximum number of fields in one response head of the origin.
    pub fields_max: usize,
    /// Maximum size of one response head of the origin in bytes; at least 8 KiB.
    pub head_max: usize,
}

/// Default maximum number of fields of a response head: applications set a few dozen.
const FIELDS_MAX: usize = 256;

/// Default maximum length of a response head in bytes: [`FIELDS_MAX`] fields of 1 KiB.
const HEAD_MAX: usize = 256 << 10;

impl OriginSettings {
    /// Returns default settings for an origin at `authority`.
    #[must_use]
    pub const fn new(authority: Authority) -> Self {
        let keep_alive = Duration::from_secs(60);
        Self {
            authority,
            host: None,
            connections_max: 1_024,
            keep_alive,
            fields_max: FIELDS_MAX,
            head_max: HEAD_MAX,
        }
    }

    /// Returns the authority in the key of a request without a host: the configured `Host` of the
    /// origin, or its address. `None` if the configured value is not a valid authority.
    pub(crate) fn own_authority(&self, scheme: Scheme) -> Option<Cow<'_, str>> {
        let text = match &self.host {
            Some(host) => host.to_str().ok()?,
            None => self.authority.as_str(),
        };
        normalise_authority(scheme, text)
    }
}

/// Pattern of the hosts that a site answers for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// One host, in lower case, with any port.
    Exact(Box<str>),
    /// Every subdomain of this domain, in lower case; `*.shop.example` is stored as `shop.example`.
    Below(Box<str>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_networks_win_over_allowed_ones() {
        let networks = |texts: &[&str]| {
            let mut networks = Networks::default();
            texts.iter().for_each(|text| networks.add(text).unwrap());
            networks
        };
        let rows: [(&[&str], &[&str], &str, bool); 7] = [
            (&[], &[], "192.0.2.1", true),
            (&["10.0.0.0/8"], &[], "10.1.1.1", true),
            (&["10.0.0.0/8"], &[], "192.0.2.1", false),
            (&[], &["10.0.0.0/8"], "10.1.1.1", false),
            (&[], &["10.0.0.0/8"], "192.0.2.1", true),
            (&["10.0.0.0/8"], &["10.1.0.0/16"], "10.1.1.1", false),
            (&["10.0.0.0/8"], &["10.1.0.0/16"], "::ffff:10.2.1.1", true),
        ];
        for (allow, deny, client, expected) in rows {
            let access = ClientAccess { allow: networks(allow), deny: networks(deny) };
            let client: std::net::IpAddr = client.parse().unwrap();
            assert_eq!(access.admits(client.into()), expected, "{allow:?} {deny:?} {client}");
        }
    }

    #[test]
    fn a_request_without_a_host_gets_the_origins_authority() {
        let own = |authority, host: Option<&'static str>| {
            let authority = Authority::from_static(authority);
            let host = host.map(HeaderValue::from_static);
            let origin = OriginSettings { host, ..OriginSettings::new(authority) };
            origin.own_authority(Scheme::Http).map(Cow::into_owned)
        };
        assert_eq!(own("Origin.internal:80", None).as_deref(), Some("origin.internal"));
        assert_eq!(own("127.0.0.1:3000", None).as_deref(), Some("127.0.0.1:3000"));
        assert_eq!(own("127.0.0.1:3000", Some("Shop:81")).as_deref(), Some("shop:81"));
        assert_eq!(own("127.0.0.1:3000", Some("a b")), None);
    }
}
