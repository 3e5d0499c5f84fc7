//! From the plan to the settings of the HTTP door.

use anyhow::Context;
use forebay_core::Demand;
use forebay_engine::Coalesce;
use forebay_http::{HostPattern, OptIns, OriginSettings, SiteSettings};
use forebay_redis::{LeaseTerms, SealKey, SharingSettings};
use forebay_semantics::storable::Rules;
use http::HeaderValue;

use crate::config::HostPattern as Planned;
use crate::config::plan::{LeasePlan, RedisPlan, SitePlan};

/// What one site is told.
pub(crate) fn of_site(plan: &SitePlan) -> anyhow::Result<SiteSettings> {
    let origin = &plan.origin;
    let host = origin.host.as_deref().map(HeaderValue::from_str).transpose();
    let authority = origin.address.parse();
    Ok(SiteSettings {
        id: plan.id.as_str().into(),
        hosts: plan.hosts.iter().map(host_pattern).collect(),
        prefix: plan.prefix.as_deref().map(Into::into),
        origin: OriginSettings {
            authority: authority.with_context(|| format!("origin of site {}", plan.id))?,
            host: host.with_context(|| format!("origin host of site {}", plan.id))?,
            connections_max: origin.connections_max,
            keep_alive: origin.keep_alive,
        },
        fetch_timeout: plan.fetch_timeout,
        rules: Rules {
            default_ttl: plan.default_ttl,
            negative_ttl: plan.negative_ttl,
            store_set_cookie: plan.store_set_cookie,
            heuristics_with_cookie: plan.heuristics_with_cookie,
        },
        variants_max: plan.variants_max,
        demand: Demand {
            beta: plan.early_refresh_beta,
            soft_timeout: Some(plan.soft_timeout),
            stale_if_unreachable: plan.stale_on_disconnect_max,
            ..Demand::default()
        },
        ignore_query: plan.ignore_query.iter().map(|name| name.as_str().into()).collect(),
        sort_query: plan.sort_query,
        coalesce: match (plan.coalesce, plan.coalesce_cluster) {
            (false, _) => Coalesce::Nowhere,
            (true, false) => Coalesce::Here,
            (true, true) => Coalesce::Everywhere,
        },
        lease_wait_max: plan.lease.wait_max,
        expose_errors: plan.expose_errors,
        opt_ins: OptIns {
            groups: plan.cache_groups,
            methods: plan.cache_methods.clone(),
            body_max: plan.cache_body_max,
        },
        tier_errors: plan.tier_errors,
    })
}

/// What a shared tier is told, for these sites.
pub(crate) fn of_redis(plan: &RedisPlan, sites: &[SitePlan]) -> forebay_redis::Settings {
    let mut settings = forebay_redis::Settings::new(plan.nearest.clone());
    settings.fallback.clone_from(&plan.fallback);
    settings.namespace.clone_from(&plan.namespace);
    settings.sealing.object_max = plan.object_max;
    settings.sealing.packing = plan.packing;
    settings.sealing.key = plan.hmac_key.as_ref().map(|secret| SealKey::new(&secret.0));
    let special = sites.iter().map(|site| (site.id.as_bytes().into(), terms(site))).collect();
    let tracking = plan.tracking;
    settings.sharing = Some(SharingSettings { special, tracking, ..SharingSettings::default() });
    settings
}

/// How long a site's leases stand. A load has its time for the head, and again for each piece of
/// the body: those of what is shared are few.
fn terms(site: &SitePlan) -> LeaseTerms {
    let LeasePlan { duration, heartbeat, .. } = site.lease;
    let hard_limit = duration.max(site.fetch_timeout.saturating_mul(2));
    LeaseTerms { duration, heartbeat, hard_limit }
}

fn host_pattern(planned: &Planned) -> HostPattern {
    match planned {
        Planned::Exact(host) => HostPattern::Exact(host.as_str().into()),
        Planned::Below(domain) => HostPattern::Below(domain.as_str().into()),
    }
}
