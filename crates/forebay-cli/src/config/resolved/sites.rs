//! Resolved configuration of the sites, and the checks between them.

use super::{ResolvedLease, ResolvedSite, origin, redis};
use crate::config::file::{File, Section, SiteFile};
use crate::config::host::HostPattern;
use crate::config::options;
use crate::config::problem::Problems;
use crate::config::provenance::Provenance;
use crate::config::reader::AccessLog;
use crate::config::rules;
use crate::config::table::Table;
use crate::config::typed::{Raw, Typed};
use crate::config::units::ShortDuration;
use forebay_core::rate::RateLimit;
use forebay_http::ClientAccess;
use forebay_http::RateLimitSettings;
use forebay_semantics::groups::GroupLimits;
use http::{HeaderValue, Method};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// Maximum number of sites; each has its own metrics and connection pool.
const SITES_MAX: usize = 1000;
/// Id of the site that `--origin` makes without a file.
const LONE_SITE: &str = "default";

/// Replaces the origin of the only site by the flag's, or makes a site for it.
pub(super) fn override_origin(file: &mut File, origin: Typed, problems: &mut Problems) {
    match file.sites.as_mut_slice() {
        [] => {
            let mut site = Section::empty(Table::Site, "site[0]", origin.place);
            site.put(
                options::SITE_ID.spec.name,
                Typed { raw: Raw::Text(LONE_SITE.into()), ..origin.clone() },
            );
            site.put(options::SITE_ORIGIN.spec.name, origin);
            file.sites.push(SiteFile {
                site,
                origin: None,
                health: None,
                eject: None,
                retry: None,
                budget: None,
                redis: None,
                lease: None,
                rules: None,
                transforms: None,
                breaker: None,
                fallback: None,
                rate_limit: None,
                compress: None,
            });
        }
        [only] => only.site.put(options::SITE_ORIGIN.spec.name, origin),
        several => {
            let message = format!(
                "the flag sets the origin of a single site, but the file has {} sites; set `origin` \
                 in each [[site]] instead",
                several.len()
            );
            problems.report(origin.place, &origin.path, message);
        }
    }
}

/// All sites; every error in every site is reported.
pub(super) fn sites(
    file: &File,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<Vec<ResolvedSite>> {
    let message = match file.sites.len() {
        0 if provenance.problems.names("site") => return None,
        0 => Some("at least one [[site]] with its `origin` is required (or the flag --origin)"),
        1..=SITES_MAX => None,
        _ => Some("there are more than 1000 sites, the maximum"),
    };
    if let Some(message) = message {
        provenance.absent(&file.top, "site", message);
        return None;
    }
    let sites: Vec<_> =
        file.sites.iter().map(|typed| site(typed, file, folder, provenance)).collect();
    unique_ids(&file.sites, &sites, provenance);
    unique_claims(&file.sites, &sites, provenance);
    sites.into_iter().collect()
}

/// Lifetimes of responses without an explicit one: of all, and of negative ones.
fn lifetimes(
    section: &Section,
    provenance: &mut Provenance<'_>,
) -> (Option<Duration>, Option<Duration>) {
    let default_ttl = provenance.read(section, &options::SITE_DEFAULT_TTL);
    (default_ttl, provenance.read(section, &options::SITE_NEGATIVE_TTL))
}

/// `Forwarded`, early hints, and `No-Vary-Search`.
fn extensions(section: &Section, provenance: &mut Provenance<'_>) -> [Option<bool>; 4] {
    let options = [
        &options::SITE_FORWARDED,
        &options::SITE_EARLY_HINTS,
        &options::SITE_NO_VARY_SEARCH,
        &options::SITE_SERVER_TIMING,
    ];
    options.map(|option| provenance.read(section, option))
}

/// Permissions to store and to share responses that other caches would not.
fn sharing(section: &Section, provenance: &mut Provenance<'_>) -> [Option<bool>; 3] {
    let options = [
        &options::SITE_STORE_SET_COOKIE,
        &options::SITE_HEURISTICS_WITH_COOKIE,
        &options::SITE_SHARE_CODINGS,
    ];
    options.map(|option| provenance.read(section, option))
}

/// Coalescing in one instance, and among instances.
fn coalescing(section: &Section, provenance: &mut Provenance<'_>) -> (Option<bool>, Option<bool>) {
    let coalesce = provenance.read(section, &options::SITE_COALESCE);
    (coalesce, provenance.read(section, &options::SITE_COALESCE_CLUSTER))
}

fn site(
    typed: &SiteFile,
    file: &File,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<ResolvedSite> {
    let section = &typed.site;
    let id = provenance.read(section, &options::SITE_ID);
    let hosts = hosts(section, provenance);
    let prefix = prefix(section, provenance);
    let origin = origin::origin(typed, folder, provenance);
    let fetch_timeout = provenance.read(section, &options::SITE_FETCH_TIMEOUT);
    let soft_timeout = provenance.read(section, &options::SITE_SOFT_TIMEOUT);
    let stale_on_disconnect_max = provenance.read(section, &options::SITE_STALE_ON_DISCONNECT_MAX);
    let early_refresh_beta = provenance.read(section, &options::SITE_EARLY_REFRESH_BETA);
    let (default_ttl, negative_ttl) = lifetimes(section, provenance);
    let variants_max = provenance.read(section, &options::SITE_VARIANTS_MAX);
    let ignore_query = provenance.read(section, &options::SITE_IGNORE_QUERY);
    let sort_query = provenance.read(section, &options::SITE_SORT_QUERY);
    let (coalesce, coalesce_cluster) = coalescing(section, provenance);
    let direct_hits = provenance.read(section, &options::SITE_DIRECT_HITS);
    let client_reloads_max = client_reloads_max(section, provenance);
    let [store_set_cookie, heuristics_with_cookie, share_codings] = sharing(section, provenance);
    let cache_methods = provenance.read(section, &options::SITE_CACHE_METHODS);
    let cache_body_max = provenance.read(section, &options::SITE_CACHE_BODY_MAX);
    let cache_groups = groups(section, provenance);
    let ignore_scheme = provenance.read(section, &options::SITE_IGNORE_SCHEME);
    let access = access(section, provenance);
    let rate_limit = rate_limit(typed.rate_limit.as_ref(), provenance);
    let [forwarded, early_hints, no_vary_search, server_timing] = extensions(section, provenance);
    let expose_errors = provenance.read(section, &options::SITE_EXPOSE_ERRORS);
    let tier_errors = provenance.read(section, &options::SITE_TIER_ERRORS);
    let lease = lease(typed, provenance);
    let redis = redis::of_site(typed.redis.as_ref(), file.redis.as_ref(), folder, provenance);
    let facts = rules::facts(ignore_query.as_deref(), sort_query, ignore_scheme);
    let rules = rules::of_site(typed, file, facts, folder, provenance.problems);
    Some(ResolvedSite {
        access_log: access_log(section, provenance),
        hsts: hsts(section, provenance),
        id: id?,
        hosts: hosts?,
        prefix,
        origin: origin?,
        fetch_timeout: fetch_timeout?,
        soft_timeout: soft_timeout?,
        stale_on_disconnect_max: stale_on_disconnect_max?,
        early_refresh_beta: early_refresh_beta?,
        default_ttl: default_ttl?,
        negative_ttl: negative_ttl?,
        variants_max: usize::try_from(variants_max?).ok()?,
        ignore_query: ignore_query?,
        sort_query: sort_query?,
        coalesce: coalesce?,
        coalesce_cluster: coalesce_cluster?,
        direct_hits: direct_hits?,
        client_reloads_max,
        lease: lease?,
        store_set_cookie: store_set_cookie?,
        share_codings: share_codings?,
        heuristics_with_cookie: heuristics_with_cookie?,
        cache_methods: distinct(cache_methods?),
        cache_body_max: usize::try_from(cache_body_max?).ok()?,
        cache_groups: cache_groups?,
        ignore_scheme: ignore_scheme?,
        access: access?,
        rate_limit: rate_limit?,
        forwarded: forwarded?,
        early_hints: early_hints?,
        no_vary_search: no_vary_search?,
        server_timing: server_timing?,
        expose_errors: expose_errors?,
        tier_errors: tier_errors?,
        rules: rules?,
        redis,
    })
}

fn hosts(section: &Section, provenance: &mut Provenance<'_>) -> Option<Vec<HostPattern>> {
    let hosts = provenance.read(section, &options::SITE_HOSTS);
    if hosts.as_ref().is_some_and(Vec::is_empty) {
        provenance.amend("every host");
    }
    hosts
}

fn prefix(section: &Section, provenance: &mut Provenance<'_>) -> Option<String> {
    let prefix = provenance.read(section, &options::SITE_PREFIX);
    let name = options::SITE_PREFIX.spec.name;
    if section.value(name).is_none() {
        provenance.derived(section.path_of(name), "none (every path)");
    }
    prefix
}

fn client_reloads_max(section: &Section, provenance: &mut Provenance<'_>) -> Option<u32> {
    let most = provenance.read(section, &options::SITE_CLIENT_RELOADS_MAX);
    let name = options::SITE_CLIENT_RELOADS_MAX.spec.name;
    if section.value(name).is_none() {
        provenance.derived(section.path_of(name), "none (no limit)");
    }
    most
}

fn access_log(section: &Section, provenance: &mut Provenance<'_>) -> Option<AccessLog> {
    let format = provenance.read(section, &options::SITE_ACCESS_LOG);
    let name = options::SITE_ACCESS_LOG.spec.name;
    if section.value(name).is_none() {
        provenance.derived(section.path_of(name), "that of `access_log`");
    }
    format
}

fn access(section: &Section, provenance: &mut Provenance<'_>) -> Option<ClientAccess> {
    let allow = provenance.read(section, &options::SITE_ALLOW);
    let deny = provenance.read(section, &options::SITE_DENY);
    Some(ClientAccess { allow: allow?, deny: deny? })
}

/// Rate limit. The outer `None` means an error, the inner one that there is none.
#[expect(clippy::option_option, reason = "an error differs from an absent table")]
fn rate_limit(
    section: Option<&Section>,
    provenance: &mut Provenance<'_>,
) -> Option<Option<RateLimitSettings>> {
    let Some(section) = section else { return Some(None) };
    let rate = provenance.read(section, &options::RATE_REQUESTS);
    let burst_name = options::RATE_BURST.spec.name;
    let burst = match (section.value(burst_name), rate) {
        (None, Some(rate)) => {
            provenance.derived(section.path_of(burst_name), rate.requests.to_string());
            Some(u64::from(rate.requests))
        }
        (None, None) => None,
        (Some(_), _) => provenance.read(section, &options::RATE_BURST),
    };
    provenance.read(section, &options::RATE_BY)?;
    let exempts_hits = provenance.read(section, &options::RATE_EXEMPT_HITS);
    let (rate, burst) = (rate?, u32::try_from(burst?).ok()?);
    let limit = RateLimit::new(rate.requests, rate.period(), burst);
    Some(Some(RateLimitSettings { limit, exempts_hits: exempts_hits? }))
}

fn hsts(section: &Section, provenance: &mut Provenance<'_>) -> Option<HeaderValue> {
    let value = provenance.read(section, &options::SITE_HSTS);
    let name = options::SITE_HSTS.spec.name;
    if section.value(name).is_none() {
        provenance.derived(section.path_of(name), "none");
    }
    value
}

/// Limits of cache groups. The outer `None` means an error, the inner one that groups are ignored.
#[expect(clippy::option_option, reason = "an error differs from a disabled option")]
fn groups(section: &Section, provenance: &mut Provenance<'_>) -> Option<Option<GroupLimits>> {
    let wanted = provenance.read(section, &options::SITE_CACHE_GROUPS);
    let count = provenance.read(section, &options::SITE_CACHE_GROUPS_MAX);
    let length = provenance.read(section, &options::SITE_CACHE_GROUP_LENGTH_MAX);
    let (count, length) = (usize::try_from(count?).ok()?, usize::try_from(length?).ok()?);
    Some(wanted?.then_some(GroupLimits { count, length }))
}

fn distinct(mut methods: Vec<Method>) -> Vec<Method> {
    methods.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    methods.dedup();
    methods
}

fn lease(typed: &SiteFile, provenance: &mut Provenance<'_>) -> Option<ResolvedLease> {
    let unsaid;
    let section = match &typed.lease {
        Some(section) => section,
        None => {
            let path = typed.site.path_of("lease");
            unsaid = Section::empty(Table::SiteLease, &path, typed.site.place);
            &unsaid
        }
    };
    let duration = provenance.read(section, &options::LEASE_DURATION);
    let heartbeat = provenance.read(section, &options::LEASE_HEARTBEAT);
    let wait_max = provenance.read(section, &options::LEASE_WAIT_MAX)?;
    let duration = duration?;
    let name = options::LEASE_HEARTBEAT.spec.name;
    let heartbeat = match heartbeat {
        Some(heartbeat) if heartbeat > duration / 2 => {
            let message = format!(
                "{} is more than half of `duration`; losing one heartbeat would end the lease",
                ShortDuration(heartbeat)
            );
            provenance.refuse(section, name, message);
            return None;
        }
        Some(heartbeat) => heartbeat,
        // It was typed and is invalid, which has been reported.
        None if section.value(name).is_some() => return None,
        None => {
            let third = duration / 3;
            provenance.derived(section.path_of(name), ShortDuration(third).to_string());
            third
        }
    };
    Some(ResolvedLease { duration, heartbeat, wait_max })
}

fn unique_ids(typed: &[SiteFile], sites: &[Option<ResolvedSite>], provenance: &mut Provenance<'_>) {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for (file, site) in typed.iter().zip(sites) {
        let Some(site) = site else { continue };
        if let Some(first) = seen.get(site.id.as_str()) {
            let message = format!("\"{}\" is already the id of {first}", site.id);
            provenance.refuse(&file.site, options::SITE_ID.spec.name, message);
        } else {
            seen.insert(&site.id, &file.site.path);
        }
    }
}

/// Requests that a site answers: those to a host, or any, below a prefix, or any.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Claim<'a> {
    host: Option<&'a HostPattern>,
    prefix: Option<&'a str>,
}

fn unique_claims(
    typed: &[SiteFile],
    sites: &[Option<ResolvedSite>],
    provenance: &mut Provenance<'_>,
) {
    let mut seen: HashMap<Claim<'_>, &str> = HashMap::new();
    for (file, site) in typed.iter().zip(sites) {
        let Some(site) = site else { continue };
        let prefix = site.prefix.as_deref();
        let every_host = [None];
        let hosts: Vec<Option<&HostPattern>> = site.hosts.iter().map(Some).collect();
        let hosts = if hosts.is_empty() { &every_host[..] } else { &hosts };
        for (n, host) in hosts.iter().enumerate() {
            let claim = Claim { host: *host, prefix };
            if let Some(first) = seen.get(&claim) {
                report_claim(&file.site, n, claim, first, provenance);
            } else {
                seen.insert(claim, &file.site.path);
            }
        }
    }
}

fn report_claim(
    section: &Section,
    n: usize,
    claim: Claim<'_>,
    first: &str,
    provenance: &mut Provenance<'_>,
) {
    let Claim { host, prefix } = claim;
    let with_prefix = prefix.map(|prefix| format!(" with prefix \"{prefix}\"")).unwrap_or_default();
    let host = host.map_or_else(|| "every host".to_owned(), |host| format!("\"{host}\""));
    let message = format!("{host}{with_prefix} already belongs to {first}");
    let item = match section.value(options::SITE_HOSTS.spec.name).map(|typed| &typed.raw) {
        Some(Raw::List(items)) => items.get(n),
        _ => None,
    };
    match item {
        Some(item) => provenance.problems.report(item.place, &item.path, message),
        None => provenance.problems.report(section.place, &section.path, message),
    }
}
