//! Conversion of the resolved configuration to settings of the HTTP and Redis crates.

use std::sync::Arc;

use anyhow::Context;
use forebay_core::{Allowance, Demand};
use forebay_engine::{Coalesce, OriginBudgets};
use forebay_http::transform::Transforms;
use forebay_http::{
    BudgetSettings, EndpointSettings, HostPattern, OptIns, OriginSettings, SharedBudget,
    SiteSettings,
};
use forebay_redis::{LeaseTerms, SealKey, SharingSettings};
use forebay_semantics::Rules;
use http::HeaderValue;

use crate::config::HostPattern as Planned;
use crate::config::resolved::{ResolvedEndpoint, ResolvedLease, ResolvedRedis, ResolvedSite};

/// Settings of one site for the HTTP front end. `budgets` returns the common place of its budget, if
/// instances share a tier for the site.
///
/// # Errors
/// If the origin's `Host` is not valid in HTTP; the configuration check rules that out.
pub(crate) fn of_site(
    config: &ResolvedSite,
    budgets: impl Fn(&str) -> Option<Arc<dyn OriginBudgets>>,
) -> anyhow::Result<SiteSettings> {
    warn_of_risks(config);
    let origin = &config.origin;
    let host = origin.host.as_deref().map(HeaderValue::from_str).transpose();
    Ok(SiteSettings {
        id: config.id.as_str().into(),
        hosts: config.hosts.iter().map(host_pattern).collect(),
        prefix: config.prefix.as_deref().map(Into::into),
        origin: OriginSettings {
            endpoints: origin.endpoints.iter().map(of_endpoint).collect(),
            balance: origin.balance,
            host: host.with_context(|| format!("origin host of site {}", config.id))?,
            connections_max: origin.connections_max,
            in_flight_max: origin.in_flight_max,
            adaptive: origin.adaptive,
            keep_alive: origin.keep_alive,
            fields_max: origin.fields_max,
            head_max: origin.head_max,
            protocols: origin.protocols,
            timeouts: origin.timeouts,
            resolve_every: origin.resolve_every,
            health: origin.health.clone(),
            eject: origin.eject,
            retry: Some(origin.retry.clone()).filter(|retry| retry.attempts > 0),
            budget: origin.budget.map(|total| of_budget(&config.id, total, budgets(&config.id))),
            breaker: origin.breaker.clone(),
        },
        fetch_timeout: config.fetch_timeout,
        rules: Rules {
            default_ttl: config.default_ttl,
            negative_ttl: config.negative_ttl,
            store_set_cookie: config.store_set_cookie,
            share_codings: config.share_codings,
            heuristics_with_cookie: config.heuristics_with_cookie,
            ..Rules::default()
        },
        variants_max: config.variants_max,
        demand: Demand {
            beta: config.early_refresh_beta,
            soft_timeout: Some(config.soft_timeout),
            stale_if_unreachable: config.stale_on_disconnect_max,
            ..Demand::default()
        },
        ignore_query: config.ignore_query.iter().map(|name| name.as_str().into()).collect(),
        sort_query: config.sort_query,
        coalesce: match (config.coalesce, config.coalesce_cluster) {
            (false, _) => Coalesce::Never,
            (true, false) => Coalesce::Instance,
            (true, true) => Coalesce::Cluster,
        },
        direct_hits: config.direct_hits,
        client_reloads_max: config.client_reloads_max,
        lease_wait_max: config.lease.wait_max,
        ignore_scheme: config.ignore_scheme,
        access: config.access.clone(),
        rate_limit: config.rate_limit,
        compress: origin.compress.clone(),
        hsts: config.hsts.clone(),
        is_forwarded_added: config.forwarded,
        early_hints: config.early_hints,
        no_vary_search: config.no_vary_search,
        transforms: Transforms::default(),
        server_timing: config.server_timing,
        expose_errors: config.expose_errors,
        opt_ins: of_opt_ins(config),
        fallback: origin.fallback.clone(),
        tier_errors: config.tier_errors,
        rule_set: config.rules.set.clone(),
    })
}

fn of_opt_ins(config: &ResolvedSite) -> OptIns {
    OptIns {
        groups: config.cache_groups,
        methods: config.cache_methods.clone(),
        body_max: config.cache_body_max,
    }
}

fn of_budget(
    site: &str,
    total: Allowance,
    budgets: Option<Arc<dyn OriginBudgets>>,
) -> BudgetSettings {
    let shared = budgets.map(|budgets| SharedBudget { name: site.into(), budgets });
    BudgetSettings { total, shared }
}

fn of_endpoint(endpoint: &ResolvedEndpoint) -> EndpointSettings {
    EndpointSettings {
        address: endpoint.url.address(),
        tls: endpoint.tls.clone(),
        weight: endpoint.weight,
    }
}

/// Logs options that give up a protection.
fn warn_of_risks(config: &ResolvedSite) {
    for unsafe_rule in config.rules.unsafe_words() {
        tracing::warn!(
            site = config.id,
            rule = unsafe_rule.rule,
            ignored = unsafe_rule.words,
            "unsafe_ignore of a rule: responses that the origin forbids to store or share are \
             stored and served to all clients"
        );
    }
    let is_unverified = |endpoint: &&ResolvedEndpoint| {
        endpoint.tls.as_ref().is_some_and(|tls| !tls.client.verifies())
    };
    for endpoint in config.origin.endpoints.iter().filter(is_unverified) {
        tracing::warn!(
            site = config.id,
            origin = %endpoint.url,
            "certificate of the origin is not verified (verify = false): anyone on the network \
             path can answer for the origin"
        );
    }
}

/// Settings of a shared tier that holds entries of `sites`.
pub(crate) fn of_redis(config: &ResolvedRedis, sites: &[ResolvedSite]) -> forebay_redis::Settings {
    let mut settings = forebay_redis::Settings::new(config.nearest.clone());
    settings.fallback.clone_from(&config.fallback);
    settings.namespace.clone_from(&config.namespace);
    settings.sealing.object_max = config.object_max;
    settings.sealing.packing = config.packing;
    settings.sealing.key = config.hmac_key.as_ref().map(|secret| SealKey::new(&secret.0));
    let lease_overrides =
        sites.iter().map(|site| (site.id.as_bytes().into(), terms(site))).collect();
    let tracking = config.tracking;
    settings.sharing =
        Some(SharingSettings { lease_overrides, tracking, ..SharingSettings::default() });
    settings
}

/// Lease durations of a site. The hard limit allows `fetch_timeout` for the head and once more for
/// the body, whose pieces have the same timeout each; shared bodies are small.
fn terms(site: &ResolvedSite) -> LeaseTerms {
    let ResolvedLease { duration, heartbeat, .. } = site.lease;
    let hard_limit = duration.max(site.fetch_timeout.saturating_mul(2));
    LeaseTerms { duration, heartbeat, hard_limit }
}

fn host_pattern(planned: &Planned) -> HostPattern {
    match planned {
        Planned::Exact(host) => HostPattern::Exact(host.as_str().into()),
        Planned::Below(domain) => HostPattern::Below(domain.as_str().into()),
    }
}
