//! Resolved health checks, ejection and retries of the servers of an origin, and its budget.

use super::origin::{derive, nested};
use crate::config::file::{Section, SiteFile};
use crate::config::options;
use crate::config::provenance::Provenance;
use crate::config::table::Table;
use forebay_core::Allowance;
use forebay_core::origin_budget::{RATE_UNIT, UNBOUNDED};
use forebay_http::{EjectionSettings, HealthCheckSettings, RetrySettings};

/// Health checks. The outer `None` means an error.
#[expect(clippy::option_option, reason = "an error differs from an absent table")]
pub(super) fn checks(
    typed: &SiteFile,
    provenance: &mut Provenance<'_>,
) -> Option<Option<HealthCheckSettings>> {
    let Some(section) = &typed.health else { return Some(None) };
    let path = provenance.read(section, &options::HEALTH_PATH);
    let every = provenance.read(section, &options::HEALTH_EVERY);
    let timeout = provenance.read(section, &options::HEALTH_TIMEOUT);
    let healthy_after = provenance.read(section, &options::HEALTH_HEALTHY_AFTER);
    let unhealthy_after = provenance.read(section, &options::HEALTH_UNHEALTHY_AFTER);
    let statuses = provenance.read(section, &options::HEALTH_STATUSES);
    Some(Some(HealthCheckSettings {
        path: path?,
        every: every?,
        timeout: timeout?,
        healthy_after: u32::try_from(healthy_after?).ok()?,
        unhealthy_after: u32::try_from(unhealthy_after?).ok()?,
        statuses: statuses?,
    }))
}

/// Ejection of servers whose requests fail.
pub(super) fn ejection(
    typed: &SiteFile,
    origin: &Section,
    provenance: &mut Provenance<'_>,
) -> Option<EjectionSettings> {
    let section = &*nested(origin, Table::OriginEject, typed.eject.as_ref());
    let failures = provenance.read(section, &options::EJECT_FAILURES);
    let duration = provenance.read(section, &options::EJECT_FOR);
    let percent_max = provenance.read(section, &options::EJECT_MAX_PERCENT);
    let slow_start = provenance.read(section, &options::EJECT_SLOW_START);
    Some(EjectionSettings {
        failures: u32::try_from(failures?).ok()?,
        duration: duration?,
        percent_max: u32::try_from(percent_max?).ok()?,
        slow_start: slow_start?,
    })
}

/// Retries of failed requests.
pub(super) fn retries(
    typed: &SiteFile,
    origin: &Section,
    provenance: &mut Provenance<'_>,
) -> Option<RetrySettings> {
    let section = &*nested(origin, Table::OriginRetry, typed.retry.as_ref());
    let attempts = provenance.read(section, &options::RETRY_ATTEMPTS);
    let on = provenance.read(section, &options::RETRY_ON);
    let budget_percent = provenance.read(section, &options::RETRY_BUDGET_PERCENT);
    Some(RetrySettings {
        attempts: u32::try_from(attempts?).ok()?,
        on: on?,
        budget_percent: u32::try_from(budget_percent?).ok()?,
    })
}

/// Budget of the origin. The outer `None` means an error.
#[expect(clippy::option_option, reason = "an error differs from an absent table")]
pub(super) fn budget(
    typed: &SiteFile,
    provenance: &mut Provenance<'_>,
) -> Option<Option<Allowance>> {
    let Some(section) = &typed.budget else { return Some(None) };
    let (in_flight, rate) = (&options::BUDGET_IN_FLIGHT, &options::BUDGET_RATE);
    let slots = provenance.read(section, in_flight);
    let per_period = provenance.read(section, rate);
    let names = [in_flight.spec.name, rate.spec.name];
    let [slots_typed, rate_typed] = names.map(|name| section.value(name).is_some());
    for name in names {
        derive(section, name, "no bound", provenance);
    }
    if !slots_typed && !rate_typed {
        let message = "needs `in_flight` or `rate`, or both";
        provenance.problems.report(section.place, &section.path, message);
        return None;
    }
    if slots_typed != slots.is_some() || rate_typed != per_period.is_some() {
        return None;
    }
    let rate = per_period.map_or(UNBOUNDED, |rate| {
        (u64::from(rate.requests) * RATE_UNIT / rate.period().as_secs()).max(1)
    });
    Some(Some(Allowance { slots: slots.unwrap_or(UNBOUNDED), rate }))
}
