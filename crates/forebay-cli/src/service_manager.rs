//! Notifications to the service manager (sd_notify(3)), and its watchdog. Without one, nothing is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sd_notify::NotifyState;

/// Number of notifications within the interval after which the watchdog restarts the process.
const PINGS: u32 = 2;

/// Number that a thread raises as long as it runs.
pub(crate) type Pulse = Arc<AtomicU64>;

/// Reports that requests are answered.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// Reports that the configuration is being reloaded; [`ready`] ends it.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "reload not reported to the service manager"),
    }
}

/// Reports that the process stops.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Interval in which every thread must raise its pulse, if the service manager has a watchdog.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    Some(sd_notify::watchdog_enabled()? / PINGS).filter(|interval| !interval.is_zero())
}

/// Notifies the watchdog at each interval in which every thread has raised its pulse.
pub(crate) async fn watchdog(interval: Duration, pulses: Vec<Pulse>) {
    let mut before: Vec<Option<u64>> = vec![None; pulses.len()];
    loop {
        tokio::time::sleep(interval).await;
        let mut stuck = 0_usize;
        for (pulse, before) in pulses.iter().zip(&mut before) {
            let now = Some(pulse.load(Ordering::Relaxed));
            stuck += usize::from(*before == now);
            *before = now;
        }
        if stuck == 0 {
            notify(&[NotifyState::Watchdog]);
        } else {
            tracing::error!(
                threads = stuck,
                "watchdog of the service manager not notified, because threads do not respond: the \
                 service manager may restart forebay"
            );
        }
    }
}

/// Raises the pulse of a thread, more often than the watchdog looks at it.
pub(crate) async fn beat(interval: Duration, pulse: Pulse) {
    loop {
        pulse.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(interval / PINGS).await;
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(
            %error,
            "service manager not notified of the state of forebay: it may act on an old one"
        );
    }
}
