//! Message body, read in steps.

use std::io;
use std::time::Instant;

use bytes::{Bytes, BytesMut};

use super::Wire;
use crate::fields::Fields;

/// Framing of a body (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

impl Framing {
    /// Framing that the fields define, or `otherwise`. `Transfer-Encoding` overrides a length.
    pub(crate) fn of(fields: &Fields, otherwise: Self) -> Self {
        let encoding = fields.joined("transfer-encoding").unwrap_or_default();
        if encoding.to_ascii_lowercase().ends_with("chunked") {
            return Self::Chunked;
        }
        let length = fields.first("content-length").and_then(|value| value.parse().ok());
        length.map_or(otherwise, Self::Length)
    }
}

/// Reader of one body.
#[derive(Debug)]
pub(crate) struct BodyReader {
    part: Part,
    keep_max: usize,
    kept: BytesMut,
    pub(crate) length: u64,
    pub(crate) trailers: Fields,
    pub(crate) first_at: Option<Instant>,
    pub(crate) end_at: Option<Instant>,
}

#[derive(Debug)]
enum Part {
    Plain(u64),
    ChunkHead,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    UntilClose,
    Complete,
    Broken(String),
}

impl BodyReader {
    /// Keeps the first `keep_max` bytes and counts the others.
    pub(crate) fn new(framing: Framing, keep_max: usize) -> Self {
        let part = match framing {
            Framing::Length(length) => Part::Plain(length),
            Framing::Chunked => Part::ChunkHead,
            Framing::UntilClose => Part::UntilClose,
        };
        let (kept, trailers) = (BytesMut::new(), Fields::default());
        Self { part, keep_max, kept, length: 0, trailers, first_at: None, end_at: None }
    }

    pub(crate) fn kept(&self) -> &[u8] {
        &self.kept
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended_cleanly() || self.broke().is_some()
    }

    pub(crate) fn ended_cleanly(&self) -> bool {
        matches!(self.part, Part::Complete)
    }

    pub(crate) fn broke(&self) -> Option<&str> {
        match &self.part {
            Part::Broken(why) => Some(why),
            _ => None,
        }
    }

    /// Reads to the end, or until `enough` bytes have arrived.
    pub(crate) async fn read(&mut self, wire: &mut Wire, enough: u64) {
        while !self.ended() && (self.length < enough || matches!(self.part, Part::Plain(0))) {
            if let Err(error) = self.step(wire).await {
                self.part = Part::Broken(format!("{error} after {} bytes", self.length));
            }
        }
        if self.ended() && self.end_at.is_none() {
            self.end_at = Some(wire.filled_at.unwrap_or_else(Instant::now));
        }
    }

    async fn step(&mut self, wire: &mut Wire) -> io::Result<()> {
        self.part = match self.part {
            Part::Plain(0) => Part::Complete,
            Part::Plain(left) => Part::Plain(left - self.take(wire, left).await?),
            Part::ChunkHead => chunk_size(&wire.line().await?)?,
            Part::Chunk(0) => Part::ChunkEnd,
            Part::Chunk(left) => Part::Chunk(left - self.take(wire, left).await?),
            Part::ChunkEnd if wire.line().await?.is_empty() => Part::ChunkHead,
            Part::ChunkEnd => return Err(io::Error::other("no line end after a chunk")),
            Part::Trailers => self.trailer(&wire.line().await?),
            Part::UntilClose => return self.take_until_close(wire).await,
            Part::Complete | Part::Broken(_) => return Ok(()),
        };
        Ok(())
    }

    async fn take(&mut self, wire: &mut Wire, max: u64) -> io::Result<u64> {
        let bytes = wire.some(max).await?;
        if bytes.is_empty() {
            let text = format!("the stream ended with {max} bytes to come");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        Ok(self.keep(&bytes, wire.filled_at))
    }

    async fn take_until_close(&mut self, wire: &mut Wire) -> io::Result<()> {
        let bytes = wire.some(u64::MAX).await?;
        if bytes.is_empty() {
            self.part = Part::Complete;
        }
        self.keep(&bytes, wire.filled_at);
        Ok(())
    }

    fn keep(&mut self, bytes: &Bytes, at: Option<Instant>) -> u64 {
        if self.first_at.is_none() && !bytes.is_empty() {
            self.first_at = at;
        }
        let room = self.keep_max - self.kept.len();
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.length += bytes.len() as u64;
        bytes.len() as u64
    }

    fn trailer(&mut self, line: &[u8]) -> Part {
        if line.is_empty() {
            return Part::Complete;
        }
        self.trailers.push_line(line);
        Part::Trailers
    }
}

/// Reads the first line of a chunk; extensions are ignored (RFC 9112, section 7.1.1).
fn chunk_size(line: &[u8]) -> io::Result<Part> {
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
    let digits = std::str::from_utf8(digits.trim_ascii()).unwrap_or_default();
    match u64::from_str_radix(digits, 16) {
        Ok(0) => Ok(Part::Trailers),
        Ok(size) => Ok(Part::Chunk(size)),
        Err(_) => Err(io::Error::other(format!("\"{}\" is not a chunk size", line.escape_ascii()))),
    }
}
