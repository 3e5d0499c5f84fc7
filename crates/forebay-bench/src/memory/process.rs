//! Memory use of a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_testkit::launch::memory;

/// Interval between samples. Shorter peaks are in the kernel's own maximum.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

/// Watches a process from a thread of its own, so that nothing else keeps it from looking.
pub(crate) struct Watch {
    pid: u32,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<u64>>,
}

/// Observed memory, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    /// The most of all samples of one phase.
    pub(crate) most: u64,
    /// At its end.
    pub(crate) last: u64,
    /// Peak since the start of the process.
    pub(crate) peak: u64,
}

impl Watch {
    pub(crate) fn start(pid: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut most = 0;
            while !stopped.load(Ordering::Relaxed) {
                most = most.max(memory(pid, "VmRSS")?);
                std::thread::sleep(SAMPLE_EVERY);
            }
            Ok(most)
        });
        Self { pid, stop, thread }
    }

    pub(crate) async fn stop(self) -> anyhow::Result<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        let most = tokio::task::spawn_blocking(|| self.thread.join()).await?;
        let most = most.map_err(|_| anyhow::anyhow!("the watch panicked"))??;
        let (last, peak) = (memory(self.pid, "VmRSS")?, memory(self.pid, "VmHWM")?);
        Ok(Seen { most: most.max(last), last, peak })
    }
}
