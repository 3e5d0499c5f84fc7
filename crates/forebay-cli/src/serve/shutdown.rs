//! Graceful shutdown.
//!
//! | step | until |
//! |---|---|
//! | `/readyz` answers 503 | the process exits |
//! | connections are still accepted, and each HTTP/1 response ends its connection | `shutdown_delay` |
//! | no connection is accepted; requests in progress are completed | `drain_max` |
//! | the disk tier writes what it has accepted | [`DISK_CLOSE_MAX`] |
//!
//! SIGINT omits the delay. A second signal omits the rest of both the delay and the drain. The admin
//! and the probe listener answer until the process exits.

use std::sync::Arc;
use std::time::Duration;

use forebay_disk::Disk;
use forebay_http::Phase;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Running;
use crate::service_manager;
use crate::stop::{Signals, StopSignal, StopTimes};

/// Maximum time for the disk tier to write accepted entries, after all connections have ended.
const DISK_CLOSE_MAX: Duration = Duration::from_secs(2);

impl Running {
    /// Serves until a stop signal and stops. `stop` ends the client connections.
    pub(super) async fn serve_until_stopped(
        mut self,
        mut signals: Signals,
        stop: watch::Sender<bool>,
    ) {
        let signal = self.listeners.accept_until(signals.next(), &mut self.workers).await;
        let StopTimes { delay, drain_max } = self.times.get();
        self.service.enter(Phase::Draining);
        service_manager::stopping();
        let mut is_hurried = false;
        if signal == StopSignal::Terminate && !delay.is_zero() {
            tracing::info!(
                ?delay,
                "stop signal received: /readyz answers 503, and connections are accepted until the \
                 end of the delay"
            );
            let waited = timeout(delay, signals.next());
            let waited = self.listeners.accept_until(waited, &mut self.workers).await;
            is_hurried = waited.is_ok();
        }
        // An open listener would accept connections that are never served; a closed one refuses them.
        self.reload.opener().close();
        self.listeners.close(&mut self.workers).await;
        stop.send_replace(true);
        tracing::info!(
            ?drain_max,
            "stopping on a signal: no new client connections are accepted, requests in progress are \
             completed"
        );
        let workers = self.workers;
        let drained = tokio::task::spawn_blocking(move || workers.join());
        let second = async {
            if !is_hurried {
                signals.next().await;
            }
        };
        tokio::select! {
            _ = drained => {}
            () = second => {
                tracing::warn!(
                    "second stop signal: exiting at once, requests in progress are aborted"
                );
            }
        }
        let Some(disk) = self.disk else { return };
        let closing = async |disk: Arc<Disk>| {
            self.service.engine().settle().await;
            disk.close().await;
        };
        if timeout(DISK_CLOSE_MAX, closing(disk)).await.is_err() {
            tracing::warn!(limit = ?DISK_CLOSE_MAX, "disk tier did not write all accepted entries \
                                                     before the exit: the others are lost");
        }
    }
}
