//! Counters of rejected and timed out client connections, by limit.

use std::sync::atomic::{AtomicU64, Ordering};

use super::client_timeouts::ExpiredTimeout;
use super::framing::FramingError;

/// Counters of rejections and timeouts of client connections (HTTP/1 and HTTP/2), shared by any
/// number of listeners behind an `Arc` and read by the metrics.
#[derive(Debug, Default)]
pub struct GuardCounters {
    framing_errors: [AtomicU64; FramingError::ALL.len()],
    timed_out: [AtomicU64; ExpiredTimeout::ALL.len()],
    connections_rejected: AtomicU64,
    addresses_rejected: AtomicU64,
    proxy_headers_rejected: AtomicU64,
    h2_resets: AtomicU64,
    h2_control: AtomicU64,
    idle_tunnels: AtomicU64,
    dropped_interims: AtomicU64,
    answers: AtomicU64,
}

impl GuardCounters {
    /// Returns the number of requests rejected for this framing error. In HTTP/1 each rejection
    /// closes its connection.
    pub fn framing_errors(&self, why: FramingError) -> u64 {
        self.framing_errors[why as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of connections that ended because of this timeout. A slow request body
    /// counts in HTTP/1 only.
    pub fn timed_out(&self, timeout: ExpiredTimeout) -> u64 {
        self.timed_out[timeout as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of connections answered with 503 because the maximum number of open client
    /// connections was reached.
    pub(crate) fn connections_rejected(&self) -> u64 {
        self.connections_rejected.load(Ordering::Relaxed)
    }

    /// Returns the number of tunnels closed because no byte moved for
    /// [`IDLE_MAX`](crate::tunnel::IDLE_MAX).
    pub(crate) fn idle_tunnels(&self) -> u64 {
        self.idle_tunnels.load(Ordering::Relaxed)
    }

    /// Returns the number of interim responses discarded because those to one request exceeded 16
    /// or 64 KiB in total.
    pub fn dropped_interims(&self) -> u64 {
        self.dropped_interims.load(Ordering::Relaxed)
    }

    /// Returns each limit's label with its count. The list is always complete, in a fixed order.
    pub fn limits(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let refused =
            FramingError::ALL.into_iter().map(|why| (why.label(), self.framing_errors(why)));
        let timed_out = ExpiredTimeout::ALL
            .into_iter()
            .map(|timeout| (timeout.label(), self.timed_out(timeout)));
        let others = [
            ("connections", self.connections_rejected()),
            ("address-connections", self.addresses_rejected.load(Ordering::Relaxed)),
            ("h2-resets", self.h2_resets.load(Ordering::Relaxed)),
            ("h2-control", self.h2_control.load(Ordering::Relaxed)),
            ("proxy-header", self.proxy_headers_rejected.load(Ordering::Relaxed)),
            ("idle-tunnel", self.idle_tunnels()),
            ("interims", self.dropped_interims()),
        ];
        refused.chain(timed_out).chain(others)
    }

    /// Returns a unique number for the next response to a rejected request.
    pub(crate) fn next_rejection(&self) -> u64 {
        self.answers.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn count_framing_error(&self, why: FramingError) {
        self.framing_errors[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_timeout(&self, timeout: ExpiredTimeout) {
        self.timed_out[timeout as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_connection_rejected(&self) {
        self.connections_rejected.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_address_rejected(&self) {
        self.addresses_rejected.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_proxy_header_rejected(&self) {
        self.proxy_headers_rejected.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_h2_resets(&self) {
        self.h2_resets.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_h2_control(&self) {
        self.h2_control.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_dropped_interim(&self) {
        self.dropped_interims.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_idle_tunnel(&self) {
        self.idle_tunnels.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_counter_and_a_label_of_its_own() {
        let counters = GuardCounters::default();
        assert!(counters.limits().all(|(_, count)| count == 0));
        let mut labels: Vec<_> = counters.limits().map(|(label, _)| label).collect();
        let known = labels.len();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), known);

        for why in FramingError::ALL {
            counters.count_framing_error(why);
            assert_eq!(counters.framing_errors(why), 1, "{why:?}");
        }
        for timeout in ExpiredTimeout::ALL {
            counters.count_timeout(timeout);
            assert_eq!(counters.timed_out(timeout), 1, "{timeout:?}");
        }
        counters.count_connection_rejected();
        counters.count_address_rejected();
        counters.count_proxy_header_rejected();
        counters.count_h2_resets();
        counters.count_h2_control();
        counters.count_idle_tunnel();
        counters.count_dropped_interim();
        assert!(counters.limits().all(|(_, count)| count == 1));
        assert_ne!(counters.next_rejection(), counters.next_rejection());
    }
}
