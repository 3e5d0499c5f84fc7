//! Reasons why the cache is degraded, and the time since when each holds.

use std::time::SystemTime;

use forebay_core::{Condition, EndpointState};
use forebay_disk::Condition as DiskCondition;
use parking_lot::Mutex;

use super::AdminState;
use crate::tiers::because::Because;
use crate::tiers::{disk, shared};

/// Maximum number of reasons that are listed; further ones are not.
const REASONS_MAX: usize = 64;

/// Reason why the cache is degraded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) because: Because,
    /// Tier, server or certificate.
    pub(super) name: Box<str>,
}

/// Times since when reasons hold, to the second.
#[derive(Debug, Default)]
pub(super) struct Since(Mutex<Vec<(Reason, SystemTime)>>);

impl Since {
    /// Notes the reasons that hold now, and returns each with the time at which it was first noted.
    pub(super) fn note(&self, reasons: Vec<Reason>) -> Vec<(Reason, SystemTime)> {
        let (now, mut known) = (SystemTime::now(), self.0.lock());
        let since = |reason: &Reason| {
            known.iter().find(|(known, _)| known == reason).map_or(now, |(_, since)| *since)
        };
        let noted = reasons.into_iter().map(|reason| (since(&reason), reason));
        let noted: Vec<_> = noted.map(|(since, reason)| (reason, since)).collect();
        known.clone_from(&noted);
        noted
    }
}

/// Returns the reasons that hold now.
pub(super) fn current(state: &AdminState) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let mut add = |because, name: &str| {
        let reason = Reason { because, name: name.into() };
        if reasons.len() < REASONS_MAX && !reasons.contains(&reason) {
            reasons.push(reason);
        }
    };
    let engine = state.service.engine();
    for (name, condition) in engine.lower_tiers() {
        if condition != Condition::Closed {
            add(Because::TierBypassed, name);
        }
    }
    match state.disk.as_ref().map(|disk| disk.condition()) {
        None | Some(DiskCondition::Healthy) => {}
        Some(DiskCondition::ReadOnly) => add(Because::TierReadOnly, disk::NAME),
        Some(DiskCondition::Full | DiskCondition::Failing | DiskCondition::Stopped) => {
            add(Because::DiskFailing, disk::NAME);
        }
    }
    for tier in &state.shared {
        shared::reasons(tier).into_iter().for_each(|because| add(because, tier.name));
    }
    if engine.bus_status().is_some_and(|bus| bus.unpublished > 0) {
        add(Because::PurgesWaiting, "bus");
    }
    for site in state.service.sites() {
        for endpoint in site.endpoints() {
            if !endpoint.state.is_none_or(EndpointState::is_usable) {
                add(
                    Because::OriginUnusable,
                    &format!("{} {}", site.settings.id, endpoint.endpoint),
                );
            }
        }
    }
    let overdue = state.certificates.as_ref().map(|store| store.overdue()).unwrap_or_default();
    overdue.iter().for_each(|name| add(Because::CertificateOverdue, name));
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_keeps_its_time_until_it_ends() {
        let since = Since::default();
        let reason = |name: &str| Reason { because: Because::TierBypassed, name: name.into() };
        let first = since.note(vec![reason("redis")]);
        let both = since.note(vec![reason("disk"), reason("redis")]);
        assert_eq!((both[0].0.clone(), both[1].clone()), (reason("disk"), first[0].clone()));
        assert!(since.note(Vec::new()).is_empty());
        assert!(since.note(vec![reason("redis")])[0].1 >= both[0].1);
    }
}
