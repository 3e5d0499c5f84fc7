//! Valid values that rarely are what the operator wants.

use super::resolved::ResolvedConfig;
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
    warning.collect()
}
