//! State of the bus on this instance.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use forebay_engine::bus::{Listener, Notice};
use tokio::sync::Notify;

use crate::state::progress::BusProgress;

/// State of the bus on this instance, and its listener.
#[derive(Default)]
pub(crate) struct BusClient {
    pub(crate) listener: OnceLock<Arc<dyn Listener>>,
    pub(crate) progress: BusProgress,
    /// True if the last state announced to the listener was connected.
    pub(crate) announced_connected: AtomicBool,
    /// True if the bus itself was connected at the last check.
    is_connected: AtomicBool,
    /// True if tracking is enabled but not working. The bus then counts as lost.
    tracking_lost: AtomicBool,
    /// Wakes the reader: it must restart, or may start.
    pub(crate) reader_wakeup: Notify,
    /// Signals that another endpoint may be in use now.
    pub(crate) endpoint_changed: Arc<Notify>,
}

impl BusClient {
    /// Creates a disconnected client.
    pub(crate) fn new(has_tracking: bool) -> Self {
        Self { tracking_lost: AtomicBool::new(has_tracking), ..Self::default() }
    }

    pub(crate) fn has_listener(&self) -> bool {
        self.listener.get().is_some()
    }

    pub(crate) fn notify(&self, notices: impl IntoIterator<Item = Notice>) {
        for notice in notices {
            match notice {
                Notice::Connected => {
                    self.is_connected.store(true, Ordering::Release);
                    if self.is_tracking_lost() {
                        continue;
                    }
                    self.announced_connected.store(true, Ordering::Release);
                }
                Notice::Disconnected => {
                    self.is_connected.store(false, Ordering::Release);
                    if !self.announced_connected.swap(false, Ordering::AcqRel) {
                        continue;
                    }
                }
                Notice::Gap
                | Notice::Purged { .. }
                | Notice::Outdated { .. }
                | Notice::Reached(_) => {}
            }
            self.deliver(notice);
        }
    }

    pub(crate) fn deliver(&self, notice: Notice) {
        if let Some(listener) = self.listener.get() {
            listener.hear(notice);
        }
    }

    pub(crate) fn is_tracking_lost(&self) -> bool {
        self.tracking_lost.load(Ordering::Acquire)
    }

    /// Reports a gap, since changes before this moment were not received, and the connection if the
    /// bus is connected.
    pub(crate) fn tracking_started(&self) {
        self.tracking_lost.store(false, Ordering::Release);
        self.deliver(Notice::Gap);
        if self.is_connected.load(Ordering::Acquire) {
            self.notify([Notice::Connected]);
        }
    }

    /// Marks tracking as lost. Returns whether the bus was connected until now.
    pub(crate) fn tracking_stopped(&self) -> bool {
        self.tracking_lost.store(true, Ordering::Release);
        let was_connected = self.announced_connected.swap(false, Ordering::AcqRel);
        if was_connected {
            self.deliver(Notice::Disconnected);
        }
        was_connected
    }
}
