//! Servers of the origins, for the dashboard.

use forebay_core::{CallState, EndpointState};
use forebay_http::{EndpointStatus, Service, Site};
use serde_json::{Value, json};

use super::health::{OK, endpoint_word};

/// Maximum number of servers that are listed: those that get no requests come first.
const SERVERS_MAX: usize = 16;

/// Maximum length of the name of a server or site, in characters.
const NAME_MAX: usize = 64;

/// Returns the servers of one site, or of all sites.
pub(super) fn of(service: &Service, site: Option<&str>) -> Vec<Value> {
    let sites = service.sites();
    let wanted = sites.iter().filter(|known| site.is_none_or(|id| *known.settings.id == *id));
    let mut servers: Vec<(bool, Value)> = wanted.flat_map(|site| servers(site)).collect();
    servers.sort_by_key(|(is_usable, _)| *is_usable);
    servers.into_iter().take(SERVERS_MAX).map(|(_, server)| server).collect()
}

fn servers(site: &Site) -> Vec<(bool, Value)> {
    let (breaker, usage) = (site.breaker_state(), site.origin_usage());
    let breaker_word = breaker.map(|state| match state {
        CallState::Closed => "closed",
        CallState::HalfOpen => "half-open",
        CallState::Open => "open",
    });
    let shown = |status: EndpointStatus| {
        let is_usable = status.state.is_none_or(EndpointState::is_usable)
            && breaker.is_none_or(|state| state == CallState::Closed);
        let server = json!({
            "site": short(&site.settings.id),
            "endpoint": short(&status.endpoint),
            "state": status.state.map_or(OK, endpoint_word),
            "breaker": breaker_word,
            "connections": usage.connections,
            "connections_max": usage.connections_max,
            "waiting": usage.waiting,
        });
        (is_usable, server)
    };
    site.endpoints().into_iter().map(shown).collect()
}

fn short(name: &str) -> String {
    name.chars().take(NAME_MAX).collect()
}
