//! Watches an endpoint: connects, checks that it answers, and reconnects.
//!
//! Every endpoint is watched, also those that are not in use. A fallback is thus known to answer
//! before it is needed, and the nearest endpoint is used again as soon as it answers. All watchers
//! and most connections run on one thread.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::{sleep, timeout};

use crate::connection::endpoint::Endpoint;
use crate::connection::link::Link;
use crate::connection::{CONNECT_MAX, SILENCE_MAX};
use crate::error::Error;
use crate::purges::pending_removals::PendingRemoval;

/// Interval between pings of an idle endpoint.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// Minimum time between two pings, however many operations fail.
const PING_GAP: Duration = Duration::from_millis(20);

/// Minimum and maximum time between connection attempts. The random spread avoids simultaneous
/// attempts of all processes after a server restart.
pub(crate) const ATTEMPT_GAP: Duration = Duration::from_millis(50);
pub(crate) const ATTEMPT_GAP_MAX: Duration = Duration::from_millis(80);

/// Factor of the time between attempts after a refusal, which does not pass by itself and is logged
/// by the server.
pub(crate) const REFUSED_FACTOR: u32 = 20;

/// Number of late replies in a row after which an endpoint counts as down.
const LATE_MAX: u32 = 2;

/// Maximum number of pending removals per batch, and how many of them run concurrently.
const REMOVALS_MAX: usize = 256;
const REMOVALS_CONCURRENT: usize = 32;

/// Watches an endpoint for as long as the tier exists.
pub(crate) async fn watch(endpoint: Arc<Endpoint>) {
    loop {
        let link = connect(&endpoint).await;
        endpoint.set_link(&link);
        endpoint.subscribe(&link).await;
        keep_checking(&endpoint, &link).await;
        endpoint.clear_link();
        sleep(spread(ATTEMPT_GAP, ATTEMPT_GAP_MAX)).await;
    }
}

async fn connect(endpoint: &Endpoint) -> Link {
    loop {
        let attempt = timeout(CONNECT_MAX, endpoint.open()).await;
        let error = match attempt {
            Ok(Ok(link)) => return link,
            Ok(Err(error)) => Error::from(error),
            Err(_) => Error::TimedOut,
        };
        endpoint.report(&error);
        let factor = if error.is_refusal() { REFUSED_FACTOR } else { 1 };
        sleep(spread(ATTEMPT_GAP, ATTEMPT_GAP_MAX) * factor).await;
    }
}

/// Pings the endpoint until the connection fails.
async fn keep_checking(endpoint: &Endpoint, link: &Link) {
    let mut late = 0;
    while !endpoint.wants_reconnect() {
        match ping(endpoint, link).await {
            PingResult::InTime => {
                late = 0;
                endpoint.mark_up();
                remove_pending(endpoint, link).await;
                let _ = timeout(HEARTBEAT, endpoint.nudge.notified()).await;
            }
            PingResult::Late => {
                late += 1;
                if late >= LATE_MAX {
                    endpoint.report(&Error::TimedOut);
                    endpoint.mark_down();
                }
            }
            PingResult::None(error) => {
                endpoint.report(&error);
                return;
            }
        }
        sleep(PING_GAP).await;
    }
}

enum PingResult {
    InTime,
    /// The reply came after the read timeout.
    Late,
    None(Error),
}

async fn ping(endpoint: &Endpoint, link: &Link) -> PingResult {
    let mut pong = pin!(endpoint.ping(link));
    let in_time = endpoint.read_timeout;
    for attempt in 1..=LATE_MAX {
        if let Ok(answer) = timeout(in_time, &mut pong).await {
            return match answer.map_err(Error::from) {
                Err(error) if !error.is_refusal() => PingResult::None(error),
                _ if attempt == 1 => PingResult::InTime,
                _ => PingResult::Late,
            };
        }
    }
    endpoint.report(&Error::TimedOut);
    endpoint.mark_down();
    match timeout(SILENCE_MAX, pong).await {
        Ok(Err(error)) if !Error::from(error.clone()).is_refusal() => {
            PingResult::None(error.into())
        }
        Ok(_) => PingResult::Late,
        Err(_) => PingResult::None(Error::TimedOut),
    }
}

/// Carries out pending removals. A failed one stays pending, and its entry is not read.
async fn remove_pending(endpoint: &Endpoint, link: &Link) {
    loop {
        let due = endpoint.pending_removals.scheduled(REMOVALS_MAX);
        if due.is_empty() {
            return;
        }
        let removals = stream::iter(due).map(|removal| remove_one(endpoint, link, removal));
        let removed: Vec<bool> = removals.buffer_unordered(REMOVALS_CONCURRENT).collect().await;
        if !removed.into_iter().all(|is_removed| is_removed) {
            return;
        }
    }
}

async fn remove_one(endpoint: &Endpoint, link: &Link, removal: PendingRemoval) -> bool {
    let removed = timeout(endpoint.write_timeout, link.remove(&removal.names)).await;
    let is_removed = matches!(removed, Ok(Ok(_)));
    if is_removed {
        endpoint.pending_removals.complete(&removal);
    }
    is_removed
}

/// Returns a random duration between the two.
pub(crate) fn spread(least: Duration, most: Duration) -> Duration {
    let mut random = [0; 4];
    // Without random numbers there is no spread.
    let _ = SystemRandom::new().fill(&mut random);
    let share = f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX);
    least + (most - least).mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_spread_between_their_bounds() {
        let gaps: Vec<_> = (0..200).map(|_| spread(ATTEMPT_GAP, ATTEMPT_GAP_MAX)).collect();
        assert!(gaps.iter().all(|gap| (ATTEMPT_GAP..=ATTEMPT_GAP_MAX).contains(gap)));
        let early = gaps.iter().filter(|gap| **gap < (ATTEMPT_GAP + ATTEMPT_GAP_MAX) / 2).count();
        assert!((50..150).contains(&early), "{early}");
    }
}
