//! Counter of the commands that clients send to a Redis.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Counts the commands whose arguments contain one of some words. Commands that scripts call
/// within the server cost no round trip and are not counted.
pub(crate) struct Tap {
    seen: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Tap {
    pub(crate) async fn open(
        redis: SocketAddr,
        words: &'static [&'static str],
    ) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect(redis).await?;
        stream.write_all(b"MONITOR\r\n").await?;
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        // The server repeats everything behind its first answer.
        stream.read_until(b'\n', &mut line).await?;
        let seen = Arc::new(AtomicU64::new(0));
        let counted = seen.clone();
        let task = tokio::spawn(async move {
            line.clear();
            while stream.read_until(b'\n', &mut line).await.is_ok_and(|length| length > 0) {
                let text = String::from_utf8_lossy(&line);
                let is_sent = !text.contains(" lua]");
                let is_counted = is_sent && words.iter().any(|word| text.contains(word));
                counted.fetch_add(u64::from(is_counted), Ordering::Relaxed);
                line.clear();
            }
        });
        Ok(Self { seen, task })
    }

    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.task.abort();
    }
}
