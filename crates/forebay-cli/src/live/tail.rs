//! One tail: an expression, a format, and a client that may read slowly.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use super::expression::Expression;
use super::{LineFormat, time_of_day};
use crate::log::access::Line;

/// Maximum number of lines per second.
const LINES_MAX: u32 = 1_000;

/// Size in bytes at which lines are sent as one piece.
const PIECE_MAX: usize = 4 << 10;

/// Tail of one client.
pub(super) struct Tail {
    expression: Expression,
    format: LineFormat,
    sender: Sender<Bytes>,
    pending: Vec<u8>,
    /// Lines that were not sent since the last note.
    skipped: u64,
    second: Instant,
    lines: u32,
}

impl Tail {
    pub(super) fn new(expression: Expression, format: LineFormat, sender: Sender<Bytes>) -> Self {
        // A comment, so that the client knows at once that the tail has begun.
        let pending = b": tail\n\n".to_vec();
        let (skipped, second, lines) = (0, Instant::now(), 0);
        Self { expression, format, sender, pending, skipped, second, lines }
    }

    /// Returns true until the client disconnects.
    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Adds the line of a response if the expression selects it.
    pub(super) fn add(&mut self, line: &Line<'_>, now: Instant) {
        if !self.expression.selects(&|field| line.value(field)) {
            return;
        }
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            (self.second, self.lines) = (now, 0);
        }
        self.lines += 1;
        if self.lines > LINES_MAX {
            self.skipped += 1;
            return;
        }
        if self.pending.len() >= PIECE_MAX {
            self.flush();
        }
        if self.pending.len() >= PIECE_MAX {
            self.skipped += 1;
            return;
        }
        self.note_skipped();
        self.pending.extend_from_slice(b"data: ");
        match self.format.of_log() {
            Some(format) => line.write(format, &mut self.pending),
            None => self.pending.extend_from_slice(text(line).as_bytes()),
        }
        self.pending.extend_from_slice(b"\n\n");
    }

    fn note_skipped(&mut self) {
        if self.skipped > 0 {
            let note = format!("event: skipped\ndata: {}\n\n", self.skipped);
            self.pending.extend_from_slice(note.as_bytes());
            self.skipped = 0;
        }
    }

    /// Sends the lines that wait, if the client has space for them.
    pub(super) fn flush(&mut self) {
        if self.lines <= LINES_MAX {
            self.note_skipped();
        }
        if self.pending.is_empty() {
            return;
        }
        let piece = Bytes::from(std::mem::take(&mut self.pending));
        if let Err(TrySendError::Full(piece)) = self.sender.try_send(piece) {
            self.pending = piece.into();
        }
    }
}

/// Returns the line of a response for people.
fn text(line: &Line<'_>) -> String {
    let Line { entry: access, at, redaction, sample: _ } = *line;
    let request = access.request;
    let why = access.why.map_or_else(String::new, |why| format!(" ({why})"));
    let end = access.end.label().map_or_else(String::new, |end| format!(", {end}"));
    let target = redaction.target(request.target());
    let target: String = target.chars().filter(|letter| !letter.is_control()).collect();
    let host: String = request.host().chars().filter(|letter| !letter.is_control()).collect();
    format!(
        "{} {} {} {}{} {}{why} head {:.3} ms, {} bytes{end}",
        time_of_day(at),
        access.status,
        request.method,
        host,
        target,
        access.cache.label(),
        access.head.as_secs_f64() * 1e3,
        access.bytes,
    )
}
