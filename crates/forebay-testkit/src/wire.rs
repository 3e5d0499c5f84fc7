//! HTTP/1.1 framing (RFC 9112) for both ends of a test: lenient, bounded, and exact about missing
//! bytes.

mod body;

pub(crate) use body::{BodyReader, Framing};

use std::io;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fields::Fields;

/// Maximum length of a head or line in bytes, far above every limit under test.
const LINE_MAX: usize = 1 << 20;

/// Maximum number of bytes read ahead while waiting for the other end to close.
const READ_AHEAD_MAX: usize = 64 << 10;

/// Buffer space for one read in bytes.
const READ_ROOM: usize = 16 << 10;

/// TCP stream with a buffer of unused bytes.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    buffer: BytesMut,
    /// Time of the last received bytes.
    pub(crate) filled_at: Option<Instant>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        // Without this, a small write waits for the delayed acknowledgement of the one before.
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: BytesMut::new(), filled_at: None })
    }

    /// Bytes up to and including the empty line; `None` if the other end closed before any byte.
    pub(crate) async fn head(&mut self) -> io::Result<Option<Bytes>> {
        let head = self.until(b"\r\n\r\n").await?;
        if head.is_empty() { Ok(None) } else { Ok(Some(head)) }
    }

    /// One line without its end; the end of the stream within a line is an error.
    pub(crate) async fn line(&mut self) -> io::Result<Bytes> {
        let mut line = self.until(b"\n").await?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_ascii_end().len());
        Ok(line)
    }

    /// At most `max` bytes; empty at the end of the stream.
    pub(crate) async fn some(&mut self, max: u64) -> io::Result<Bytes> {
        if self.buffer.is_empty() {
            self.fill().await?;
        }
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        Ok(self.buffer.split_to(self.buffer.len().min(max)).freeze())
    }

    /// Waits until the other end closes, and keeps bytes that arrive meanwhile. Cancel safe.
    pub(crate) async fn gone(&mut self) {
        while self.buffer.len() < READ_AHEAD_MAX {
            if matches!(self.fill().await, Ok(0) | Err(_)) {
                return;
            }
        }
        // After this many bytes the other end is still open, so the caller's other future decides.
        std::future::pending::<()>().await;
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Closes the sending side.
    pub(crate) async fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    /// Resets the connection.
    pub(crate) fn reset(self) -> io::Result<()> {
        self.stream.set_zero_linger()
    }

    /// Bytes up to and including the first `end`; empty if the stream ended before any byte.
    async fn until(&mut self, end: &[u8]) -> io::Result<Bytes> {
        let mut searched = 0;
        loop {
            let unseen = &self.buffer[searched..];
            if let Some(at) = unseen.windows(end.len()).position(|window| window == end) {
                return Ok(self.buffer.split_to(searched + at + end.len()).freeze());
            }
            searched = self.buffer.len().saturating_sub(end.len() - 1);
            if self.buffer.len() > LINE_MAX {
                return Err(io::Error::other(format!("no end within {LINE_MAX} bytes")));
            }
            if self.fill().await? == 0 {
                return if self.buffer.is_empty() {
                    Ok(Bytes::new())
                } else {
                    let seen = self.buffer.escape_ascii();
                    let text = format!("the stream ended within \"{seen}\"");
                    Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))
                };
            }
        }
    }

    async fn fill(&mut self) -> io::Result<usize> {
        // Without reserved space, each read would be limited to 64 bytes.
        self.buffer.reserve(READ_ROOM);
        let read = self.stream.read_buf(&mut self.buffer).await?;
        self.filled_at = Some(Instant::now());
        Ok(read)
    }

    /// Returns whether unused bytes are buffered.
    pub(crate) fn has_more(&self) -> bool {
        !self.buffer.is_empty()
    }
}

/// Splits a head into its first line and its fields.
pub(crate) fn split_head(head: &[u8]) -> (String, Fields) {
    let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
    let first = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let mut fields = Fields::default();
    lines.filter(|line| !line.is_empty()).for_each(|line| fields.push_line(line));
    (first, fields)
}
