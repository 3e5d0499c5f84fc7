//! HTTP/1.1 framing (RFC 9112) as both ends of a test need it: lenient, bounded, and honest about
//! what did not arrive.

mod body;

pub(crate) use body::{BodyReader, Framing};

use std::io;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fields::Fields;

/// Longest head or line that is read; far above every limit under test.
const LINE_MAX: usize = 1 << 20;

/// How much is read ahead while watching for the peer to hang up.
const READ_AHEAD_MAX: usize = 64 << 10;

/// Room for one read from the socket.
const READ_ROOM: usize = 16 << 10;

/// A TCP stream with the bytes that were read but not yet used.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    buffer: BytesMut,
    /// When bytes last arrived.
    pub(crate) filled_at: Option<Instant>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        // Without this, a small write after another waits for the peer's delayed acknowledgement.
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: BytesMut::new(), filled_at: None })
    }

    /// The bytes up to and including the empty line; `None` when the peer closed before any byte.
    pub(crate) async fn head(&mut self) -> io::Result<Option<Bytes>> {
        let head = self.until(b"\r\n\r\n").await?;
        if head.is_empty() { Ok(None) } else { Ok(Some(head)) }
    }

    /// One line without its end. An end of stream before the line's end is an error.
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

    /// Waits for the peer to hang up, keeping what it still sends. Safe to cancel.
    pub(crate) async fn gone(&mut self) {
        while self.buffer.len() < READ_AHEAD_MAX {
            if matches!(self.fill().await, Ok(0) | Err(_)) {
                return;
            }
        }
        // A peer that sends this much is there; whoever waits here has something else to wait for.
        std::future::pending::<()>().await;
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Ends our side of the stream in order.
    pub(crate) async fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    /// Ends the stream with a reset.
    pub(crate) fn reset(self) -> io::Result<()> {
        self.stream.set_zero_linger()
    }

    /// Up to and including the first `end`; empty when the stream ended before any byte.
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
        // Without room to spare, each read would be of 64 bytes.
        self.buffer.reserve(READ_ROOM);
        let read = self.stream.read_buf(&mut self.buffer).await?;
        self.filled_at = Some(Instant::now());
        Ok(read)
    }

    /// Whether bytes wait that nobody has used.
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
