//! Health of the endpoints of one origin: failed requests, failed checks, and slow start.

use std::time::Duration;

use crate::time::Timestamp;

/// Maximum duration of one ejection.
const EJECTION_MAX: Duration = Duration::from_secs(300);

/// Minimum share of its requests that an endpoint gets during its slow start.
const SHARE_MIN: f64 = 0.1;

/// Rules by which endpoints are used or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthRules {
    /// Number of failed requests in a row that ejects an endpoint; zero means never.
    pub eject_after: u32,
    /// Duration of the first ejection. The n-th in a row takes n times as long, at most 5 minutes.
    pub eject_for: Duration,
    /// Maximum percentage of the endpoints that may be ejected. One may always be, unless it is the
    /// last usable one.
    pub ejected_percent_max: u32,
    /// Time in which the share of an endpoint grows after it is used again; zero means none.
    pub slow_start: Duration,
    /// Number of passed checks in a row after which an unhealthy endpoint is used again.
    pub healthy_after: u32,
    /// Number of failed checks in a row after which an endpoint is unhealthy.
    pub unhealthy_after: u32,
}

/// State of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointState {
    /// It gets its share of the requests.
    Usable,
    /// It gets a part of its share, because it was not used before.
    SlowStart,
    /// It gets no requests, because requests failed.
    Ejected,
    /// It gets no requests, because checks failed.
    Unhealthy,
}

/// Change of the state of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// It is ejected for this time.
    Ejected(Duration),
    /// Checks failed.
    Unhealthy,
    /// Checks passed again.
    Healthy,
}

/// Health of one endpoint.
#[derive(Clone, Debug, Default)]
pub struct EndpointHealth {
    /// Failed requests in a row.
    failed_requests: u32,
    /// Ejections in a row.
    ejections: u32,
    /// End of the last ejection, or of the time in which the endpoint was unhealthy.
    back_at: Option<Timestamp>,
    is_unhealthy: bool,
    /// Checks in a row with another result than `is_unhealthy`.
    contrary_checks: u32,
}

/// Health of all endpoints of one origin.
#[derive(Clone, Debug)]
pub struct OriginHealth {
    rules: HealthRules,
    endpoints: Vec<EndpointHealth>,
}

impl EndpointState {
    /// Returns `true` if the endpoint gets requests.
    #[must_use]
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Usable | Self::SlowStart)
    }
}

impl EndpointHealth {
    fn state(&self, rules: &HealthRules, now: Timestamp) -> EndpointState {
        match self.back_at {
            _ if self.is_unhealthy => EndpointState::Unhealthy,
            Some(back_at) if now < back_at => EndpointState::Ejected,
            Some(back_at) if now < back_at.plus(rules.slow_start) => EndpointState::SlowStart,
            _ => EndpointState::Usable,
        }
    }

    /// Returns the time of the next change of the state without an event.
    fn next_change(&self, rules: &HealthRules, now: Timestamp) -> Option<Timestamp> {
        let back_at = self.back_at?;
        [back_at, back_at.plus(rules.slow_start)].into_iter().find(|at| *at > now)
    }
}

impl OriginHealth {
    /// Returns the health of these endpoints. `EndpointHealth::default()` is that of a usable one.
    #[must_use]
    pub const fn new(rules: HealthRules, endpoints: Vec<EndpointHealth>) -> Self {
        Self { rules, endpoints }
    }

    /// Returns the health of one endpoint; that of a usable one if there is no such endpoint.
    #[must_use]
    pub fn endpoint(&self, index: usize) -> EndpointHealth {
        self.endpoints.get(index).cloned().unwrap_or_default()
    }

    /// Returns the state of one endpoint.
    #[must_use]
    pub fn state(&self, index: usize, now: Timestamp) -> EndpointState {
        let state = |endpoint: &EndpointHealth| endpoint.state(&self.rules, now);
        self.endpoints.get(index).map_or(EndpointState::Usable, state)
    }

    /// Returns `true` if the success of a request to this endpoint must be recorded.
    #[must_use]
    pub fn is_watched(&self, index: usize) -> bool {
        let is_watched =
            |endpoint: &EndpointHealth| endpoint.failed_requests > 0 || endpoint.ejections > 0;
        self.endpoints.get(index).is_some_and(is_watched)
    }

    /// Returns the part of its share of requests that an endpoint gets, from 0.1 to 1.
    #[must_use]
    pub fn share(&self, index: usize, now: Timestamp) -> f64 {
        let back_at = self.endpoints.get(index).and_then(|endpoint| endpoint.back_at);
        let Some(back_at) = back_at.filter(|_| self.state(index, now) == EndpointState::SlowStart)
        else {
            return 1.0;
        };
        let part = now.since(back_at).as_secs_f64() / self.rules.slow_start.as_secs_f64();
        part.clamp(SHARE_MIN, 1.0)
    }

    /// Returns the earliest time after `now` at which the state of an endpoint changes by itself, such
    /// as at the end of an ejection. `None` if no such change is due.
    #[must_use]
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        self.endpoints.iter().filter_map(|endpoint| endpoint.next_change(&self.rules, now)).min()
    }

    /// Records a failed request.
    pub fn request_failed(&mut self, index: usize, now: Timestamp) -> Option<HealthChange> {
        // Requests from before the change are no news.
        if !self.state(index, now).is_usable() {
            return None;
        }
        let may_eject = self.may_eject(index, now);
        let rules = self.rules;
        let endpoint = self.endpoints.get_mut(index)?;
        endpoint.failed_requests = endpoint.failed_requests.saturating_add(1);
        // One failure shows that an endpoint which has just been used again does not work yet.
        let enough = if endpoint.ejections > 0 { 1 } else { rules.eject_after };
        if rules.eject_after == 0 || endpoint.failed_requests < enough || !may_eject {
            return None;
        }
        endpoint.ejections = endpoint.ejections.saturating_add(1);
        endpoint.failed_requests = 0;
        let length = rules.eject_for.saturating_mul(endpoint.ejections).min(EJECTION_MAX);
        endpoint.back_at = Some(now.plus(length));
        Some(HealthChange::Ejected(length))
    }

    /// Records a request that worked.
    pub fn request_worked(&mut self, index: usize, now: Timestamp) {
        let rules = self.rules;
        let Some(endpoint) = self.endpoints.get_mut(index) else { return };
        endpoint.failed_requests = 0;
        let proven = rules.slow_start.max(rules.eject_for);
        if endpoint.back_at.is_none_or(|back_at| now >= back_at.plus(proven)) {
            endpoint.ejections = 0;
        }
    }

    /// Records the result of a check.
    pub fn checked(
        &mut self,
        index: usize,
        has_passed: bool,
        now: Timestamp,
    ) -> Option<HealthChange> {
        let rules = self.rules;
        let endpoint = self.endpoints.get_mut(index)?;
        if has_passed != endpoint.is_unhealthy {
            endpoint.contrary_checks = 0;
            return None;
        }
        endpoint.contrary_checks = endpoint.contrary_checks.saturating_add(1);
        let enough = if has_passed { rules.healthy_after } else { rules.unhealthy_after };
        if endpoint.contrary_checks < enough {
            return None;
        }
        endpoint.contrary_checks = 0;
        endpoint.is_unhealthy = !has_passed;
        if !has_passed {
            return Some(HealthChange::Unhealthy);
        }
        endpoint.failed_requests = 0;
        endpoint.back_at = Some(endpoint.back_at.map_or(now, |back_at| back_at.max(now)));
        Some(HealthChange::Healthy)
    }

    /// Returns `true` if one more endpoint may be ejected.
    fn may_eject(&self, index: usize, now: Timestamp) -> bool {
        let states = || self.endpoints.iter().map(|endpoint| endpoint.state(&self.rules, now));
        let has_other =
            states().enumerate().any(|(other, state)| other != index && state.is_usable());
        let ejected = states().filter(|state| *state == EndpointState::Ejected).count();
        let percent_max = usize::try_from(self.rules.ejected_percent_max).unwrap_or(usize::MAX);
        let most = self.endpoints.len().saturating_mul(percent_max) / 100;
        has_other && (ejected == 0 || ejected < most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: HealthRules = HealthRules {
        eject_after: 5,
        eject_for: Duration::from_secs(10),
        ejected_percent_max: 50,
        slow_start: Duration::from_secs(10),
        healthy_after: 2,
        unhealthy_after: 3,
    };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn of(count: usize) -> OriginHealth {
        OriginHealth::new(RULES, vec![EndpointHealth::default(); count])
    }

    /// Fails requests until the endpoint is ejected; returns their number.
    fn eject(health: &mut OriginHealth, index: usize, now: Timestamp) -> u32 {
        let mut failed = 0;
        while health.state(index, now) != EndpointState::Ejected {
            health.request_failed(index, now);
            failed += 1;
            assert!(failed < 100, "{health:?}");
        }
        failed
    }

    #[test]
    fn five_failures_in_a_row_eject_and_a_success_begins_anew() {
        let mut health = of(3);
        for _ in 0..4 {
            assert_eq!(health.request_failed(0, at(0)), None);
        }
        assert!(health.is_watched(0) && !health.is_watched(1));
        health.request_worked(0, at(0));
        assert!(!health.is_watched(0));
        assert_eq!(eject(&mut health, 0, at(0)), 5);
        assert_eq!(health.next_change(at(0)), Some(at(10)));
        assert_eq!(health.request_failed(0, at(1)), None);
        let states = |now| [0, 1, 2].map(|index| health.state(index, at(now)).is_usable());
        assert_eq!((states(9), states(10)), ([false, true, true], [true; 3]));
    }

    #[test]
    fn an_ejection_is_repeated_after_one_failure_and_lasts_longer_each_time() {
        let mut health = of(3);
        assert_eq!(eject(&mut health, 0, at(0)), 5);
        let mut now = 10;
        for times in 2..40 {
            let length = Duration::from_secs((times * 10).min(300));
            let change = health.request_failed(0, at(now));
            assert_eq!(change, Some(HealthChange::Ejected(length)), "{times}");
            now += i64::try_from(length.as_secs()).unwrap();
        }
        // A success during the slow start proves little.
        health.request_worked(0, at(now));
        assert!(health.is_watched(0));
        health.request_worked(0, at(now + 10));
        assert!(!health.is_watched(0));
        assert_eq!(eject(&mut health, 0, at(now + 11)), 5);
        assert_eq!(health.next_change(at(now + 11)), Some(at(now + 21)));
    }

    #[test]
    fn the_share_grows_during_the_slow_start() {
        let mut health = of(2);
        eject(&mut health, 0, at(0));
        assert_eq!(health.state(0, at(10)), EndpointState::SlowStart);
        let shares = [10, 12, 15, 20].map(|now| health.share(0, at(now)));
        assert_eq!(shares, [0.1, 0.2, 0.5, 1.0]);
        assert_eq!(health.next_change(at(10)), Some(at(20)));
        assert_eq!(
            (health.state(0, at(20)), health.next_change(at(20))),
            (EndpointState::Usable, None)
        );
        assert_eq!(health.share(1, at(15)), 1.0);
    }

    #[test]
    fn at_most_half_are_ejected_and_never_the_last_usable_one() {
        let mut health = of(5);
        for index in [0, 1] {
            eject(&mut health, index, at(0));
        }
        (0..20).for_each(|_| assert_eq!(health.request_failed(2, at(0)), None));
        let mut alone = of(1);
        (0..20).for_each(|_| assert_eq!(alone.request_failed(0, at(0)), None));
        let mut pair = of(2);
        for _ in 0..3 {
            let _ = pair.checked(1, false, at(0));
        }
        (0..20).for_each(|_| assert_eq!(pair.request_failed(0, at(0)), None));
        // One of two may be ejected even with a low percentage.
        let rules = HealthRules { ejected_percent_max: 10, ..RULES };
        let mut few = OriginHealth::new(rules, vec![EndpointHealth::default(); 2]);
        assert_eq!(eject(&mut few, 0, at(0)), 5);
    }

    #[test]
    fn checks_change_the_state_after_some_in_a_row() {
        let mut health = of(2);
        let mut check = |has_passed, now| health.checked(0, has_passed, at(now));
        assert_eq!([check(false, 0), check(false, 1), check(true, 2)], [None; 3]);
        assert_eq!([check(false, 3), check(false, 4)], [None; 2]);
        assert_eq!(check(false, 5), Some(HealthChange::Unhealthy));
        assert_eq!([check(true, 6), check(false, 7), check(true, 8)], [None; 3]);
        assert_eq!(check(true, 9), Some(HealthChange::Healthy));
        assert_eq!(health.state(0, at(9)), EndpointState::SlowStart);
        assert_eq!(health.state(0, at(19)), EndpointState::Usable);
    }

    #[test]
    fn zero_failures_mean_no_ejection() {
        let rules = HealthRules { eject_after: 0, ..RULES };
        let mut health = OriginHealth::new(rules, vec![EndpointHealth::default(); 2]);
        (0..100).for_each(|_| assert_eq!(health.request_failed(0, at(0)), None));
    }
}
