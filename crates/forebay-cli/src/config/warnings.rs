//! Valid values that rarely are what the operator wants.

use super::resolved::{ResolvedConfig, ResolvedSite};
use super::units::ShortDuration;

/// Returns warnings about a configuration, one sentence each.
pub(crate) fn of(config: &ResolvedConfig) -> Vec<String> {
    let late = config.sites.iter().filter(|site| site.soft_timeout > site.fetch_timeout);
    let warning = late.map(|site| {
        format!(
            "site {}: soft_timeout ({}) is above fetch_timeout ({}), so that a slow fetch fails \
             before a stale entry is served: lower soft_timeout",
            site.id,
            ShortDuration(site.soft_timeout),
            ShortDuration(site.fetch_timeout)
        )
    });
    let has_no_tier = |site: &&ResolvedSite| config.redis.is_none() && site.redis.is_none();
    let alone = config.sites.iter().filter(|site| site.origin.budget.is_some());
    let alone = alone.filter(has_no_tier).map(|site| {
        format!(
            "site {}: the budget of the origin holds for each process on its own, because no tier is \
             shared: add [redis] if there are several instances",
            site.id
        )
    });
    let mut listeners = config.listeners.iter().chain(&config.admins);
    let is_unused = config.tls.is_some() && !listeners.any(|listener| listener.tls);
    let unused = is_unused.then(|| {
        "[tls]: no listener has TLS, so that clients are served without it: add `listen` to [tls], or \
         `tls = true` to a [[listener]]"
            .to_owned()
    });
    warning.chain(alone).chain(unused).collect()
}
