//! Sites: the settings of one origin, and the selection of the site for a request.
//!
//! This folder also has the table of all sites, keys, tags and purges by prefix. It uses `settings`,
//! `origin` (connections of a site) and `metrics`; it never sees the engine's lookups or responses.

pub(crate) mod equal_queries;
pub mod key;
pub(crate) mod prefix_purge;
pub(crate) mod rate_limits;
pub(crate) mod reloads;
pub(crate) mod table;
pub(crate) mod tags;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use forebay_core::CallState;
use forebay_rules::SiteFacts;
use forebay_semantics::cdn_loop::LoopMarker;
use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue};

use crate::authority::without_port;
use crate::endpoint_status::{EndpointStatus, OriginUsage};
use crate::metrics::rules::RuleCounters;
use crate::origin::Origin;
use crate::origin_status::BudgetStatus;
use crate::settings::{HostPattern, SiteSettings};
use crate::site::equal_queries::EqualQueries;
use crate::site::rate_limits::RateLimiter;
use crate::site::reloads::ReloadCounter;
use crate::warnings::WarningLimits;

/// Value of `Accept-Encoding` in requests whose response may be stored, if the site compresses: one
/// response serves the clients of all codings.
pub(crate) const UNCODED: &str = "identity";

/// Active site: its settings and its connections to the origin.
#[derive(Debug)]
pub struct Site {
    /// Settings of the site, which never change.
    pub settings: SiteSettings,
    /// Origin connections. A changed site may reuse those of its predecessor.
    pub(crate) origin: Arc<Origin>,
    /// Marker of the requests that this process sent for this site.
    pub(crate) loop_marker: LoopMarker,
    /// Limiter of the warnings about failed requests of the site.
    pub(crate) warnings: WarningLimits,
    /// Options that the rules of the site depend on.
    pub(crate) facts: SiteFacts,
    /// Counters of the rules. A changed site continues those of its predecessor.
    pub(crate) rule_counters: RuleCounters,
    /// Counter of forced fetches.
    pub(crate) reloads: ReloadCounter,
    /// Requests of clients. A changed site may continue those of its predecessor.
    pub(crate) rate_limiter: Option<Arc<RateLimiter>>,
    /// Targets of responses with `No-Vary-Search`, if the site honours it.
    pub(crate) equal_queries: Option<EqualQueries>,
    /// `true` if the settings permit direct passes.
    pub(crate) allows_direct_passes: bool,
}

/// Returns the marker of this process and a site.
fn loop_marker(site: &str) -> LoopMarker {
    static PROCESS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    LoopMarker::new(PROCESS.hash_one(site))
}

impl Site {
    /// Creates a site, without connecting to its origin, and starts the health checks of its endpoints.
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime if the settings have health checks or a budget.
    #[must_use]
    pub fn new(settings: SiteSettings) -> Arc<Self> {
        let origin = Arc::new(Origin::new(&settings));
        let rate_limiter = settings.rate_limit.map(|limit| Arc::new(RateLimiter::new(limit)));
        Self::with(settings, origin, rate_limiter, &RuleCounters::default())
    }

    fn with(
        settings: SiteSettings,
        origin: Arc<Origin>,
        rate_limiter: Option<Arc<RateLimiter>>,
        counted: &RuleCounters,
    ) -> Arc<Self> {
        let rule_counters = RuleCounters::new(&settings.rule_set, counted);
        let (facts, loop_marker) = (settings.facts(), loop_marker(&settings.id));
        let (warnings, reloads) = (WarningLimits::default(), ReloadCounter::default());
        let equal_queries = settings.no_vary_search.then(EqualQueries::default);
        let allows_direct_passes = settings.allows_direct_passes();
        Arc::new(Self {
            settings,
            origin,
            loop_marker,
            warnings,
            facts,
            rule_counters,
            reloads,
            rate_limiter,
            equal_queries,
            allows_direct_passes,
        })
    }

    /// Returns the site with new settings: this site if they are equal, otherwise a new one, which
    /// reuses the origin connections if the origin settings are equal.
    pub(crate) fn reconfigured(self: &Arc<Self>, settings: &SiteSettings) -> Arc<Self> {
        if self.settings == *settings {
            return self.clone();
        }
        let settings = settings.clone();
        let origin = match Origin::shares_pool(&self.settings, &settings) {
            true => self.origin.clone(),
            false => Arc::new(self.origin.replaced(&settings)),
        };
        let kept = self.rate_limiter.clone();
        let kept = kept.filter(|kept| Some(kept.settings()) == settings.rate_limit);
        let new = || settings.rate_limit.map(|limit| Arc::new(RateLimiter::new(limit)));
        let rate_limiter = kept.or_else(new);
        Self::with(settings, origin, rate_limiter, &self.rule_counters)
    }

    /// Asks the origin for an unencoded response, if the site compresses responses itself.
    pub(crate) fn ask_without_coding(&self, headers: &mut HeaderMap) {
        if self.settings.compress.is_some() {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(UNCODED));
        }
    }

    /// Returns the status of each endpoint of the origin.
    #[must_use]
    pub fn endpoints(&self) -> Vec<EndpointStatus> {
        self.origin.endpoints().collect()
    }

    /// Returns the state of the circuit breaker of the origin; `None` if there is none.
    #[must_use]
    pub fn breaker_state(&self) -> Option<CallState> {
        self.origin.breaker_state()
    }

    /// Returns the use of the connections to the origin.
    #[must_use]
    pub fn origin_usage(&self) -> OriginUsage {
        self.origin.usage()
    }

    /// Returns the status of the budget of the origin, if there is one.
    #[must_use]
    pub fn budget(&self) -> Option<BudgetStatus> {
        self.origin.budget_status()
    }

    /// Returns `true` if the site accepts requests for this host, given in lower case.
    pub(crate) fn has_host(&self, authority: &str) -> bool {
        let host = without_port(authority);
        let is = |pattern: &HostPattern| match pattern {
            HostPattern::Exact(exact) => host == &**exact,
            HostPattern::Below(domain) => is_below(host, domain),
        };
        self.settings.hosts.is_empty() || self.settings.hosts.iter().any(is)
    }

    fn takes(&self, path: &str) -> bool {
        self.strip_prefix(path).is_some()
    }

    /// Returns the path without the site's prefix, or the whole path if the site has none. `None`
    /// if the path does not begin with the prefix, followed by `/`, `?` or its end.
    #[must_use]
    pub fn strip_prefix<'p>(&self, path: &'p str) -> Option<&'p str> {
        let Some(prefix) = &self.settings.prefix else { return Some(path) };
        let rest = path.strip_prefix(&**prefix)?;
        // `/shop` matches `/shop`, `/shop/…` and `/shop?…`, not `/shopping`.
        (rest.is_empty() || rest.starts_with(['/', '?'])).then_some(rest)
    }
}

/// All sites, indexed by host and prefix.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    exact: HashMap<Box<str>, Vec<Arc<Site>>>,
    below: Vec<(Box<str>, Arc<Site>)>,
    every: Vec<Arc<Site>>,
    all: Vec<Arc<Site>>,
}

impl Sites {
    /// Creates the index from sites in any order.
    #[must_use]
    pub fn new(all: Vec<Arc<Site>>) -> Self {
        let mut sites = Self::default();
        for site in &all {
            if site.settings.hosts.is_empty() {
                sites.every.push(site.clone());
            }
            for host in &site.settings.hosts {
                match host {
                    HostPattern::Exact(host) => {
                        sites.exact.entry(host.clone()).or_default().push(site.clone());
                    }
                    HostPattern::Below(domain) => sites.below.push((domain.clone(), site.clone())),
                }
            }
        }
        // The longest prefix has priority; among domains, the longest domain.
        let longest = |site: &Arc<Site>| {
            std::cmp::Reverse(site.settings.prefix.as_ref().map_or(0, |prefix| prefix.len()))
        };
        sites.exact.values_mut().for_each(|sites| sites.sort_by_key(longest));
        sites.below.sort_by_key(|(domain, site)| (std::cmp::Reverse(domain.len()), longest(site)));
        sites.every.sort_by_key(longest);
        sites.all = all;
        sites
    }

    /// Returns the site for a host and path: among those that accept the path, one that names the
    /// host, then one of the longest parent domain, then one for every host. The longest prefix
    /// has priority within each group. `authority` must be in lower case; its port is ignored.
    #[must_use]
    pub fn find(&self, authority: &str, path: &str) -> Option<&Arc<Site>> {
        if let ([only], []) = (&*self.every, &*self.below)
            && self.exact.is_empty()
        {
            return only.takes(path).then_some(only);
        }
        let host = without_port(authority);
        let exact = self.exact.get(host).into_iter().flatten();
        let below = self.below.iter().filter(|(domain, _)| is_below(host, domain));
        let below = below.map(|(_, site)| site);
        exact.chain(below).chain(&self.every).find(|site| site.takes(path))
    }

    /// Returns the site for a request without a host: among those for every host that accept the
    /// path, the one with the longest prefix.
    #[must_use]
    pub(crate) fn find_without_host(&self, path: &str) -> Option<&Arc<Site>> {
        self.every.iter().find(|site| site.takes(path))
    }

    /// Returns all sites, in the order in which they were passed to [`new`](Self::new).
    #[must_use]
    pub fn all(&self) -> &[Arc<Site>] {
        &self.all
    }
}

fn is_below(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.') && rest.len() > 1)
}

#[cfg(test)]
pub(crate) mod tests {
    use http::uri::Authority;
    use std::time::Duration;

    use super::*;

    pub(crate) fn site(id: &str, hosts: &[HostPattern], prefix: Option<&str>) -> Arc<Site> {
        Site::new(SiteSettings {
            hosts: hosts.to_vec(),
            prefix: prefix.map(Into::into),
            fetch_timeout: Duration::from_secs(1),
            ..SiteSettings::new(id, Authority::from_static("127.0.0.1:1"))
        })
    }

    #[tokio::test]
    async fn the_most_specific_host_and_the_longest_prefix_win() {
        let exact = |host: &str| HostPattern::Exact(host.into());
        let below = |domain: &str| HostPattern::Below(domain.into());
        let sites = Sites::new(vec![
            site("every", &[], None),
            site("api", &[], Some("/api")),
            site("shop", &[exact("shop.example")], None),
            site("cart", &[exact("shop.example")], Some("/cart")),
            site("v6", &[exact("[::1]")], None),
            site("subs", &[below("shop.example")], None),
            site("deep", &[below("eu.shop.example")], None),
        ]);
        let rows = [
            ("shop.example", "/", "shop"),
            ("shop.example", "/cart/1", "cart"),
            ("shop.example", "/cart?x", "cart"),
            ("shop.example", "/carts", "shop"),
            ("www.shop.example", "/", "subs"),
            ("www.shop.example:8080", "/", "subs"),
            ("shop.example:8080", "/", "shop"),
            ("[::1]", "/", "v6"),
            ("[::1]:8080", "/", "v6"),
            ("a.eu.shop.example", "/", "deep"),
            ("notshop.example", "/", "every"),
            ("other.example", "/api/v1", "api"),
        ];
        for (host, path, expected) in rows {
            let found = sites.find(host, path).map(|site| &*site.settings.id);
            assert_eq!(found, Some(expected), "{host}{path}");
        }
        assert!(Sites::new(vec![site("api", &[], Some("/api"))]).find("x", "/").is_none());
        let without_host = |sites: &Sites, path| {
            sites.find_without_host(path).map(|site| site.settings.id.clone())
        };
        assert_eq!(without_host(&sites, "/"), Some("every".into()));
        assert_eq!(without_host(&sites, "/api/v1"), Some("api".into()));
        let named = vec![site("a", &[exact("a.example")], None), site("b", &[below("b")], None)];
        assert_eq!(without_host(&Sites::new(named), "/"), None);
    }
}
