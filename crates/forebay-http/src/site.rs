//! One origin's settings, and which request belongs to it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::Demand;
use forebay_engine::{Coalesce, TierErrors};
use forebay_semantics::groups::GroupLimits;
use forebay_semantics::storable::Rules;
use http::uri::Authority;
use http::{HeaderValue, Method};

use crate::key::normalise_authority;
use crate::origin::Origin;
use crate::warnings::Warnings;

/// What a site is told to do; immutable once built.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteSettings {
    /// Its name in keys, metrics and purges.
    pub id: Box<str>,
    /// The hosts it answers for; empty: every host.
    pub hosts: Vec<HostPattern>,
    /// The path prefix it answers for, without a slash at its end; removed before forwarding.
    pub prefix: Option<Box<str>>,
    /// Where its answers come from.
    pub origin: OriginSettings,
    /// How long the origin may take: for its head in all, and for each further piece of a body.
    pub fetch_timeout: Duration,
    /// What the origin's answers may be stored for.
    pub rules: Rules,
    /// How many variants of one URL are kept.
    pub variants_max: usize,
    /// What a request demands that does not say otherwise.
    pub demand: Demand,
    /// Query parameters that neither the key nor the origin sees; `*` at the end matches any rest.
    pub ignore_query: Vec<Box<str>>,
    /// Whether parameters are put in order, for the key and for the origin.
    pub sort_query: bool,
    /// With whom requests for one key share a load.
    pub coalesce: Coalesce,
    /// How long they wait for a load of another instance.
    pub lease_wait_max: Duration,
    /// Whether an error page tells its cause.
    pub expose_errors: bool,
    /// What a tier below memory means that cannot be read.
    pub tier_errors: TierErrors,
    /// What it asks for beyond that.
    pub opt_ins: OptIns,
}

impl SiteSettings {
    /// A site for every request, whose origin is there. Nothing is opted into, and its times and
    /// bounds suit most origins.
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
            lease_wait_max: Duration::from_secs(10),
            expose_errors: false,
            tier_errors: TierErrors::default(),
            opt_ins: OptIns::default(),
        }
    }
}

/// What a site may ask for that not every origin is made for. Nothing of it is on by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptIns {
    /// What is heeded of groups of answers (RFC 9875); nothing where they are not.
    pub groups: Option<GroupLimits>,
    /// The methods beside GET and HEAD whose answers are stored, each for its request's body.
    pub methods: Vec<Method>,
    /// The largest body of such a request, in bytes; a request with more goes past the cache.
    pub body_max: usize,
}

/// Where a site's answers come from.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginSettings {
    /// Host and port to connect to. Nothing in a request can change it.
    pub authority: Authority,
    /// What the origin is told as `Host`; nothing: what the client said.
    pub host: Option<HeaderValue>,
    /// How many requests may be under way at the origin at once.
    pub connections_max: usize,
    /// How long an idle connection is kept.
    pub keep_alive: Duration,
    /// Maximum number of fields in the head of one response.
    pub fields_max: usize,
    /// Maximum number of bytes of the head of one response; at least 8 KiB.
    pub head_max: usize,
}

/// More fields than any application sets by itself: policies and cookies make up some dozens.
const FIELDS_MAX: usize = 256;

/// As many fields as that with 1 KiB each.
const HEAD_MAX: usize = 256 << 10;

impl OriginSettings {
    /// An origin at this address, with as many connections as suit most.
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

    /// The host that a request without one is about, as keys have it: the one that the origin is
    /// sent, or its own. Nothing if the configured one is no host.
    pub(crate) fn own_authority(&self) -> Option<Cow<'_, str>> {
        let text = match &self.host {
            Some(host) => host.to_str().ok()?,
            None => self.authority.as_str(),
        };
        normalise_authority(text)
    }
}

/// Which hosts a site answers for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// One host, in lower case, whatever its port.
    Exact(Box<str>),
    /// Every host below this domain, in lower case; `*.shop.example` is `shop.example`.
    Below(Box<str>),
}

/// A site, ready to serve.
#[derive(Debug)]
pub struct Site {
    /// What it was told.
    pub settings: SiteSettings,
    /// Its connections; a site that takes the place of another may go on with them.
    pub origin: Arc<Origin>,
    /// Limiter of the warnings about its failed requests.
    pub(crate) warnings: Warnings,
}

impl Site {
    /// Makes a site ready. Nothing is connected yet.
    #[must_use]
    pub fn new(settings: SiteSettings) -> Arc<Self> {
        let origin = Arc::new(Origin::new(&settings));
        Arc::new(Self { settings, origin, warnings: Warnings::default() })
    }

    /// The same site, told something that may be new.
    pub(crate) fn succeeded_by(self: &Arc<Self>, settings: &SiteSettings) -> Arc<Self> {
        if self.settings == *settings {
            return self.clone();
        }
        let settings = settings.clone();
        if !Origin::is_for_both(&self.settings, &settings) {
            return Self::new(settings);
        }
        Arc::new(Self { settings, origin: self.origin.clone(), warnings: Warnings::default() })
    }

    /// Whether requests for this host, in lower case, can belong to it.
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

    /// The path as the origin knows it; nothing if the path is not this site's.
    #[must_use]
    pub fn strip_prefix<'p>(&self, path: &'p str) -> Option<&'p str> {
        let Some(prefix) = &self.settings.prefix else { return Some(path) };
        let rest = path.strip_prefix(&**prefix)?;
        // `/shop` takes `/shop`, `/shop/…` and `/shop?…`, not `/shopping`.
        (rest.is_empty() || rest.starts_with(['/', '?'])).then_some(rest)
    }
}

/// All sites, by host and prefix.
#[derive(Debug, Default)]
pub struct Sites {
    exact: HashMap<Box<str>, Vec<Arc<Site>>>,
    below: Vec<(Box<str>, Arc<Site>)>,
    every: Vec<Arc<Site>>,
    all: Vec<Arc<Site>>,
}

impl Sites {
    /// From sites in any order.
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
        // The longest prefix wins; among domains, the longest domain first.
        let longest = |site: &Arc<Site>| {
            std::cmp::Reverse(site.settings.prefix.as_ref().map_or(0, |prefix| prefix.len()))
        };
        sites.exact.values_mut().for_each(|sites| sites.sort_by_key(longest));
        sites.below.sort_by_key(|(domain, site)| (std::cmp::Reverse(domain.len()), longest(site)));
        sites.every.sort_by_key(longest);
        sites.all = all;
        sites
    }

    /// The site that a request belongs to. `authority` is in lower case; its port does not matter.
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

    /// The site for every host that a request belongs to which names none.
    #[must_use]
    pub fn find_without_host(&self, path: &str) -> Option<&Arc<Site>> {
        self.every.iter().find(|site| site.takes(path))
    }

    /// Every site, in the order of the configuration.
    #[must_use]
    pub fn all(&self) -> &[Arc<Site>] {
        &self.all
    }
}

fn is_below(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.') && rest.len() > 1)
}

/// An IPv6 address is in brackets, so a colon behind the last bracket begins a port.
fn without_port(authority: &str) -> &str {
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
    async fn the_nearest_host_and_the_longest_prefix_win() {
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
    fn a_request_without_a_host_is_about_the_origins_own() {
        let own = |authority, host: Option<&'static str>| {
            let authority = Authority::from_static(authority);
            let host = host.map(HeaderValue::from_static);
            let origin = OriginSettings { host, ..OriginSettings::new(authority) };
            origin.own_authority().map(Cow::into_owned)
        };
        assert_eq!(own("Origin.internal:80", None).as_deref(), Some("origin.internal"));
        assert_eq!(own("127.0.0.1:3000", None).as_deref(), Some("127.0.0.1:3000"));
        assert_eq!(own("127.0.0.1:3000", Some("Shop:81")).as_deref(), Some("shop:81"));
        assert_eq!(own("127.0.0.1:3000", Some("a b")), None);
    }
}
