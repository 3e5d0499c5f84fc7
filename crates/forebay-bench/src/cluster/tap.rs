//! Recorder of the commands sent to a Redis.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Counts the commands that name an entry, its leases, or who waits for it. What scripts do inside
/// costs no round trip and is left out; so is the bus, which is the same whatever is asked for.
pub(crate) struct Tap {
    seen: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Tap {
    pub(crate) async fn open(redis: SocketAddr) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect(redis).await?;
        stream.write_all(b"MONITOR\r\n").await?;
        let mut lines = BufReader::new(stream).lines();
        // From here on it is told of everything.
        lines.next_line().await?;
        let seen = Arc::new(AtomicU64::new(0));
        let counted = seen.clone();
        let task = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if is_of_an_entry(&line) {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Ok(Self { seen, task })
    }

    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }
}

fn is_of_an_entry(line: &str) -> bool {
    !line.contains(" lua]") && ["forebay:d:{", "forebay:l:{"].iter().any(|name| line.contains(name))
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.task.abort();
    }
}
