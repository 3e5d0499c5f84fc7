//! Output of a process, line by line.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::sync::watch;

/// Maximum number of lines kept; further lines are dropped.
const LINES_KEPT: usize = 10_000;

/// Maximum length of a line in bytes; a longer line is split.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Maximum wait for the end of the output after the process has exited: a child process that
/// inherited the pipe may keep it open.
const END_WAIT: Duration = Duration::from_secs(2);

/// Captured lines; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Lines(Arc<watch::Sender<Written>>);

#[derive(Debug, Default)]
struct Written {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    /// Reads the stream to its end in a separate task, so that the writer never blocks.
    pub(crate) fn of(stream: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let written = Arc::new(watch::Sender::default());
        tokio::spawn(follow(stream, written.clone()));
        Self(written)
    }

    pub(crate) fn so_far(&self) -> Vec<String> {
        self.0.borrow().lines.clone()
    }

    /// All lines, after the stream has ended.
    pub(crate) async fn all(&self) -> Vec<String> {
        self.ended(END_WAIT).await;
        self.so_far()
    }

    /// Waits for the end of the stream; `false` if it does not end within `bound`.
    pub(crate) async fn ended(&self, bound: Duration) -> bool {
        let mut written = self.0.subscribe();
        let end = tokio::time::timeout(bound, written.wait_for(|written| written.ended)).await;
        end.is_ok_and(|end| end.is_ok())
    }

    /// First line that satisfies `wanted`; `None` if the stream or the time ends before.
    pub(crate) async fn find(
        &self,
        bound: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let found = |written: &Written| written.lines.iter().find(|line| wanted(line)).cloned();
        let mut written = self.0.subscribe();
        let there = written.wait_for(|written| written.ended || found(written).is_some());
        let written = tokio::time::timeout(bound, there).await.ok()?.ok()?;
        found(&written)
    }
}

async fn follow(stream: impl AsyncRead + Unpin, written: Arc<watch::Sender<Written>>) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    while matches!(next_line(&mut stream, &mut line).await, Ok(1..)) {
        let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
        written.send_modify(|written| {
            if written.lines.len() < LINES_KEPT {
                written.lines.push(text);
            }
        });
        line.clear();
    }
    written.send_modify(|written| written.ended = true);
}

async fn next_line(
    stream: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> io::Result<usize> {
    stream.take(LINE_BYTES_MAX).read_until(b'\n', line).await
}
