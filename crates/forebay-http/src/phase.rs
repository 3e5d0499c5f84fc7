//! Phase of the process, for readiness, metrics and the end of client connections.

use std::sync::atomic::{AtomicU8, Ordering};

/// Phase of the process. The numbers are the values of the metric `forebay_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Tiers are being opened.
    Starting = 0,
    /// Requests are answered.
    Ready = 1,
    /// A stop was requested: requests are still answered, and each HTTP/1 response ends its
    /// connection.
    Draining = 2,
}

/// Current phase. It is read by each request.
#[derive(Debug, Default)]
pub(crate) struct CurrentPhase(AtomicU8);

impl CurrentPhase {
    pub(crate) fn get(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Draining,
        }
    }

    pub(crate) fn set(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }
}
