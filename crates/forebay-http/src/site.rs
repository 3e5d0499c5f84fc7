//! Sites: the settings of one origin, and the selection of the site for a request.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use forebay_core::Demand;
use forebay_engine::{Coalesce, TierErrors};
use forebay_semantics::cdn_loop::LoopMarker;
use forebay_semantics::groups::GroupLimits;
use forebay_semantics::storable::Rules;
use forebay_semantics::{Networks, PeerAddress};
use http::uri::Authority;
use http::{HeaderValue, Method};

use crate::failure::Fallback;
use crate::origin::Origin;
use crate::origin::settings::OriginSettings;
use crate::warnings::Warnings;

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
    /// Value of `Strict-Transport-Security` on https, unless the origin sent one.
    pub hsts: Option<HeaderValue>,
    /// Adds `Forwarded` (RFC 7239) to requests to the origin if `true`.
    pub is_forwarded_added: bool,
    /// Response for requests that would get an error because the origin is unavailable.
    pub fallback: Option<Fallback>,
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
            hsts: None,
            is_forwarded_added: false,
            fallback: None,
            opt_ins: OptIns::default(),
        }
    }
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

/// Pattern of the hosts that a site answers for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// One host, in lower case, with any port.
    Exact(Box<str>),
    /// Every subdomain of this domain, in lower case; `*.shop.example` is stored as `shop.example`.
    Below(Box<str>),
}

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
    pub(crate) warnings: Warnings,
}

/// Returns the marker of this process and a site.
fn loop_marker(site: &str) -> LoopMarker {
    static PROCESS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    LoopMarker::new(PROCESS.hash_one(site))
}

impl Site {
    /// Creates a site, without connecting to its origin.
    #[must_use]
    pub fn new(settings: SiteSettings) -> Arc<Self> {
        let origin = Arc::new(Origin::new(&settings));
        let loop_marker = loop_marker(&settings.id);
        Arc::new(Self { settings, origin, loop_marker, warnings: Warnings::default() })
    }

    /// Returns the site with new settings: this site if they are equal, otherwise a new one, which
    /// reuses the origin connections if the origin settings are equal.
    pub(crate) fn reconfigured(self: &Arc<Self>, settings: &SiteSettings) -> Arc<Self> {
        if self.settings == *settings {
            return self.clone();
        }
        let settings = settings.clone();
        if !Origin::shares_pool(&self.settings, &settings) {
            return Self::new(settings);
        }
        let loop_marker = self.loop_marker.clone();
        let (origin, warnings) = (self.origin.clone(), Warnings::default());
        Arc::new(Self { settings, origin, loop_marker, warnings })
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

    /// Returns the path without the site's prefix, or `None` if the path is not below the prefix.
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

    /// Returns the site for a host and path. `authority` must be in lower case; its port is
    /// ignored.
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

    /// Returns the site for a request without a host: one that accepts every host.
    #[must_use]
    pub fn find_without_host(&self, path: &str) -> Option<&Arc<Site>> {
        self.every.iter().find(|site| site.takes(path))
    }

    /// Returns all sites, in the order of the configuration.
    #[must_use]
    pub fn all(&self) -> &[Arc<Site>] {
        &self.all
    }
}

fn is_below(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.') && rest.len() > 1)
}

/// Removes the port. An IPv6 address is in brackets, so a colon after the last bracket starts a
/// port.
pub(crate) fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    }
}

#[cfg(test)]
pub(crate) mod tests {
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
