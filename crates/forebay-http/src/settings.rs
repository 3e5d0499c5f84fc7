//! Settings of a site and of its origin; immutable once built.

mod budget;
mod compress;
mod health;
mod origin;
mod retry;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::Demand;
use forebay_core::rate::RateLimit;
use forebay_engine::{Coalesce, TierErrors};
use forebay_rules::{NamePattern, RuleSet, SiteFacts};
use forebay_semantics::groups::GroupLimits;
use forebay_semantics::{Networks, PeerAddress, Rules};
use http::uri::Authority;
use http::{HeaderValue, Method, StatusCode};

use crate::transform::{Transform, Transforms, TransformsError};

pub use budget::{BudgetSettings, SharedBudget};
pub use compress::CompressSettings;
pub use health::{EjectionSettings, HealthCheckSettings};
pub use origin::{
    Balance, BreakerSettings, EndpointAddress, EndpointSettings, EndpointTls, OriginProtocols,
    OriginSettings, PhaseTimeouts,
};
pub use retry::{RetryOn, RetrySettings};

/// Settings of a site; immutable once built.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteSettings {
    /// Name of the site in keys, metrics, logs and purges; unique among the sites of a service.
    pub id: Box<str>,
    /// Hosts that the site answers for. Empty means every host, where no other site that names the
    /// host accepts the path.
    pub hosts: Vec<HostPattern>,
    /// Path prefix that the site answers for, without a slash at its end; `None` means every path.
    /// The prefix is removed from the key and from the forwarded request.
    pub prefix: Option<Box<str>>,
    /// Origin server of the site.
    pub origin: OriginSettings,
    /// Maximum time from the start of a fetch to the origin's response head, with the waits for a
    /// connection. Also the maximum time for each piece of the body, unless
    /// [`PhaseTimeouts::body`] is set.
    pub fetch_timeout: Duration,
    /// Rules for storing the responses of the site.
    pub rules: Rules,
    /// Maximum number of variants of one URL in memory; beyond it the least recently used are
    /// removed.
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
    /// Answers plain HTTP/1 hits from memory, and passes small unshared responses, without hyper and the
    /// full request parser if `true`.
    /// Responses are the same; `false` helps to find out whether a defect is in this path.
    pub direct_hits: bool,
    /// Maximum number of requests per second, of all clients of the site in this process, that
    /// force a fetch of a fresh entry (`no-cache`, `max-age`, `min-fresh`). Further ones get the
    /// fresh entry. `None` is no limit.
    pub client_reloads_max: Option<u32>,
    /// Maximum time that a fetch waits for the fetch of the same key by another instance, before
    /// this instance fetches too.
    pub lease_wait_max: Duration,
    /// Sends the `Link` fields of a stored response as 103 Early Hints while the origin is asked, if
    /// `true`.
    pub early_hints: bool,
    /// Lets a stored response with `No-Vary-Search` answer the queries that it names, if `true`.
    pub no_vary_search: bool,
    /// Includes the cause of a failure in error responses if `true`.
    pub expose_errors: bool,
    /// Adds `Server-Timing` with durations to responses if `true`. Then no hit is direct.
    pub server_timing: bool,
    /// Treatment of a lower tier that cannot be read: skipped, or the request fails.
    pub tier_errors: TierErrors,
    /// Gives http and https one key if `true`.
    pub ignore_scheme: bool,
    /// Clients that may use the site.
    pub access: ClientAccess,
    /// Maximum rate of requests per client; `None` means no limit.
    pub rate_limit: Option<RateLimitSettings>,
    /// Value of `Strict-Transport-Security` in responses to https requests, unless the origin sent
    /// the field; `None` adds no field.
    pub hsts: Option<HeaderValue>,
    /// Adds `Forwarded` (RFC 7239) to requests to the origin if `true`.
    pub is_forwarded_added: bool,
    /// Response instead of an error if the origin is unreachable, invalid, too slow or not asked;
    /// `None` sends the error.
    pub fallback: Option<Fallback>,
    /// Compression of responses; `None` sends them as the origin does.
    pub compress: Option<CompressSettings>,
    /// Features of the site that are off by default.
    pub opt_ins: OptIns,
    /// Rules of the site, and one rule for each transform.
    pub rule_set: Arc<RuleSet>,
    /// Transforms of the site; set by [`with_transforms`](Self::with_transforms).
    pub transforms: Transforms,
}

impl SiteSettings {
    /// Returns default settings for a site that accepts every host, path and client, and whose
    /// origin is at `authority`.
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
            client_reloads_max: None,
            lease_wait_max: Duration::from_secs(10),
            early_hints: false,
            no_vary_search: false,
            expose_errors: false,
            server_timing: false,
            tier_errors: TierErrors::default(),
            ignore_scheme: false,
            access: ClientAccess::default(),
            rate_limit: None,
            hsts: None,
            is_forwarded_added: false,
            fallback: None,
            compress: None,
            opt_ins: OptIns::default(),
            rule_set: Arc::default(),
            transforms: Transforms::default(),
        }
    }

    /// Adds transforms, which run after the rules of each phase in this order. Set the rules before.
    ///
    /// # Errors
    /// If there are too many, a name is not unique, an input cannot be a part of the key, or the rules
    /// do not compile with them.
    pub fn with_transforms(
        mut self,
        transforms: Vec<Arc<dyn Transform>>,
    ) -> Result<Self, TransformsError> {
        let (transforms, rules) = Transforms::new(transforms, &self.rule_set)?;
        (self.transforms, self.rule_set) = (transforms, Arc::new(rules));
        Ok(self)
    }

    /// Returns `true` if the settings permit direct passes: none edits or encodes unshared responses,
    /// limits their requests, or looks for another response first.
    pub(crate) fn allows_direct_passes(&self) -> bool {
        self.direct_hits
            && self.rule_set.is_empty()
            && self.transforms.is_empty()
            && self.compress.is_none()
            && self.rate_limit.is_none()
            && !self.no_vary_search
            && !self.server_timing
            && self.coalesce != Coalesce::Never
    }

    /// Returns the options that the rules of the site depend on.
    #[must_use]
    pub fn facts(&self) -> SiteFacts {
        let names = self.ignore_query.iter();
        SiteFacts {
            ignore_query: names.filter_map(|name| NamePattern::parse(name).ok()).collect(),
            sort_query: self.sort_query,
            ignore_scheme: self.ignore_scheme,
        }
    }
}

/// Rate limit of the clients of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitSettings {
    /// Rate and burst of each client address (IPv6: each /64) at one site of this process.
    pub limit: RateLimit,
    /// If `true`, responses from memory without a fetch or refresh do not count, and neither do
    /// responses that a rule makes.
    pub exempts_hits: bool,
}

/// Networks of the clients that may use a site; the requests of others get 403.
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
    pub(crate) fn admits(&self, client: PeerAddress) -> bool {
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

/// Prepared response of a site instead of an error: if neither a response of the origin nor a
/// stored one can be sent, because the origin failed, was too slow, or is not asked (circuit
/// breaker, limits on fetches). Error responses of the origin are not replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Status code of the fallback response.
    pub status: StatusCode,
    /// Body of the fallback response.
    pub body: Bytes,
    /// Value of the `Content-Type` field of the fallback response.
    pub content_type: HeaderValue,
    /// Time after which clients may try again, sent as `Retry-After`; rounded up to whole seconds.
    pub retry_after: Duration,
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
}
