//! Endpoints of one origin.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::HealthChange;
use http::header::HOST;
use tokio::time::Instant;

use super::balance::{self, EndpointSet, Load};
use super::endpoint::{ConnectOptions, Endpoint, InFlight};
use super::health::Health;
use super::outgoing::Outgoing;
use crate::endpoint_status::EndpointStatus;
use crate::settings::{Balance, SiteSettings};

/// Endpoints of one origin, their health, and the choice among them.
#[derive(Debug)]
pub(super) struct Group {
    /// Id of the site, for logs.
    site: Box<str>,
    members: Box<[Member]>,
    balance: Balance,
    /// Absent for a single endpoint without checks.
    health: Option<Health>,
}

#[derive(Debug)]
struct Member {
    endpoint: Arc<Endpoint>,
    weight: f64,
    /// Hash of the endpoint's name.
    seed: u64,
}

/// Endpoint that was chosen for a request.
pub(super) struct Chosen<'g> {
    pub(super) endpoint: &'g Arc<Endpoint>,
    pub(super) index: usize,
    /// Count of the request; absent if there is no other endpoint.
    pub(super) in_flight: Option<InFlight>,
}

/// Result of a request for the health of its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestResult {
    /// The endpoint answered.
    Worked,
    /// There was no connection, no valid response head in time, or a status from 502 to 504.
    Failed,
    /// The request tells nothing about the endpoint.
    Unknown,
}

/// Hash of the host and target of a request, if the balance of its origin needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Affinity(u64);

impl Group {
    /// Creates the endpoints of a site's origin. Endpoints that `before` has with equal settings are
    /// kept, with their connections and their health.
    pub(super) fn new(settings: &SiteSettings, before: Option<&Self>) -> Arc<Self> {
        let origin = &settings.origin;
        let options = ConnectOptions::of(origin);
        let members: Box<[Member]> = origin
            .endpoints
            .iter()
            .take(EndpointSet::MAX)
            .map(|one| {
                let known = before.and_then(|before| before.find(|known| known.has(one, options)));
                let endpoint = match known {
                    Some((_, member)) => member.endpoint.clone(),
                    None => Arc::new(Endpoint::new(one, options)),
                };
                let seed = balance::endpoint_hash(&endpoint.label);
                Member { endpoint, weight: f64::from(one.weight), seed }
            })
            .collect();
        let has_health = members.len() > 1 || origin.health.is_some();
        let health = has_health.then(|| {
            let known = before.and_then(|before| Some((before, before.health.as_ref()?)));
            let begun = known.map_or_else(Instant::now, |(_, health)| health.begun());
            let state_of = |index: usize| {
                let (before, health) = known?;
                let (known, _) = before.find(|one| std::ptr::eq(one, &*members[index].endpoint))?;
                Some(health.endpoint(known))
            };
            Health::new(origin, members.len(), begun, state_of)
        });
        let (site, balance) = (settings.id.clone(), origin.balance);
        Arc::new(Self { site, members, balance, health })
    }

    fn find(&self, is_it: impl Fn(&Endpoint) -> bool) -> Option<(usize, &Member)> {
        self.members.iter().enumerate().find(|(_, member)| is_it(&member.endpoint))
    }

    /// Chooses the endpoint for a request, one that is not in `tried` if possible; `None` if there is
    /// no endpoint.
    pub(super) fn choose(&self, affinity: Affinity, tried: EndpointSet) -> Option<Chosen<'_>> {
        if let [only] = &*self.members {
            return Some(Chosen { endpoint: &only.endpoint, index: 0, in_flight: None });
        }
        let index = self.index(self.candidates(tried), affinity)?;
        let endpoint = &self.members[index].endpoint;
        Some(Chosen { endpoint, index, in_flight: Some(InFlight::count(endpoint)) })
    }

    /// Returns the endpoints that may get a request. If fewer than half of them are usable, the rest
    /// would be overloaded, so all get requests. `first` needs one usable endpoint only.
    fn candidates(&self, tried: EndpointSet) -> EndpointSet {
        let all = EndpointSet::first(self.members.len());
        let usable = self.health.as_ref().map_or(all, Health::usable);
        let is_enough = match self.balance {
            Balance::First => !usable.is_empty(),
            Balance::Least | Balance::Hash => usable.count() * 2 >= all.count(),
        };
        let preferred = if is_enough { usable } else { all };
        let sets = [preferred.minus(tried), all.minus(tried), preferred];
        sets.into_iter().find(|set| !set.is_empty()).unwrap_or_default()
    }

    fn index(&self, among: EndpointSet, Affinity(key): Affinity) -> Option<usize> {
        let load = |index: usize| {
            let Member { endpoint, weight, .. } = &self.members[index];
            let share = self.health.as_ref().map_or(1.0, |health| health.share(index));
            Load { in_flight: endpoint.in_flight(), weight: *weight * share }
        };
        match self.balance {
            Balance::Least => balance::least(among, load, fastrand::f64),
            Balance::Hash => balance::hash(among, load, |index| self.members[index].seed, key),
            Balance::First => balance::first(among),
        }
    }

    /// Returns the property of a request by which an endpoint is chosen, and the request, which is
    /// built if its fields are needed.
    pub(super) fn affinity<'a>(&self, request: Outgoing<'a>) -> (Affinity, Outgoing<'a>) {
        if self.balance != Balance::Hash || self.members.len() < 2 {
            return (Affinity(0), request);
        }
        let (again, request) = (request.again(), request.into_built());
        let host = request.headers.get(HOST).map_or(&[][..], |host| host.as_bytes());
        let affinity = Affinity(balance::key_hash(host, request.target.as_str().as_bytes()));
        (affinity, Outgoing::Built(request, again))
    }

    /// Returns the number of all requests to the endpoints.
    pub(super) fn requests(&self) -> u64 {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let requests = |member: &Member| {
            load(&member.endpoint.counts.worked) + load(&member.endpoint.counts.failed)
        };
        self.members.iter().map(requests).sum()
    }

    pub(super) fn count(&self) -> usize {
        self.members.len()
    }

    pub(super) fn endpoint(&self, index: usize) -> Option<Arc<Endpoint>> {
        self.members.get(index).map(|member| member.endpoint.clone())
    }

    /// Records the result of a request to an endpoint.
    pub(super) fn record(&self, index: usize, result: RequestResult) {
        let Some(Member { endpoint, .. }) = self.members.get(index) else { return };
        match result {
            RequestResult::Unknown => return,
            RequestResult::Worked => count(&endpoint.counts.worked),
            RequestResult::Failed => count(&endpoint.counts.failed),
        }
        // The circuit breaker of the site protects a single endpoint.
        let Some(health) = self.health.as_ref().filter(|_| self.members.len() > 1) else { return };
        if result == RequestResult::Worked {
            health.request_worked(index);
        } else if let Some(HealthChange::Ejected(length)) = health.request_failed(index) {
            count(&endpoint.counts.ejected);
            tracing::warn!(
                site = &*self.site,
                endpoint = &*endpoint.label,
                seconds = length.as_secs_f64(),
                "origin server ejected because requests failed in a row: it gets no requests for \
                 `seconds`"
            );
        }
    }

    /// Records the result of a check of an endpoint.
    pub(super) fn checked(&self, index: usize, result: Result<(), String>) {
        let (Some(Member { endpoint, .. }), Some(health)) = (self.members.get(index), &self.health)
        else {
            return;
        };
        let (site, endpoint_name) = (&*self.site, &*endpoint.label);
        count(if result.is_ok() {
            &endpoint.counts.checks_passed
        } else {
            &endpoint.counts.checks_failed
        });
        let change = health.checked(index, result.is_ok());
        match (change, result) {
            (Some(HealthChange::Unhealthy), Err(cause)) => {
                count(&endpoint.counts.unhealthy);
                tracing::warn!(
                    site,
                    endpoint = endpoint_name,
                    cause,
                    "origin server is unhealthy: health checks failed; it gets no requests while \
                     enough others are usable"
                );
            }
            (Some(HealthChange::Healthy), _) => tracing::info!(
                site,
                endpoint = endpoint_name,
                "origin server is healthy again: it gets requests"
            ),
            _ => {}
        }
    }

    /// Returns the status of each endpoint.
    pub(super) fn statuses(&self) -> impl Iterator<Item = EndpointStatus> {
        let state = |index: usize| Some(self.health.as_ref()?.state(index));
        let status = move |(index, member): (usize, &Member)| member.endpoint.status(state(index));
        self.members.iter().enumerate().map(status)
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
