//! Scanner of the framing of a client's bytes: finds the first byte that violates HTTP/1.
//!
//! The scanner keeps a few dozen bytes of state and no line buffer, so a message may arrive in any
//! pieces. Its result does not depend on how the bytes are split. It reports every error in a head
//! at or before the last byte of the head. It rejects everything that hyper would reject, so that
//! the service writes and counts the response.

mod chunked;
mod fields;
mod framing_error;
mod head;
mod plain;
mod request_line;
#[cfg(test)]
pub(super) mod tests;
mod token;

use chunked::Chunked;
use head::{Framing, Head};

pub use chunked::BODY_OVERHEAD_MAX;
pub(super) use framing_error::cause_in_chain;
pub use framing_error::{FramingError, ScanError};
pub use head::HEAD_MAX;
pub(crate) use plain::{PlainHead, RawValue};

/// Scanner that checks the framing and size limits of the messages of one client connection.
#[derive(Debug)]
pub struct Scanner {
    state: State,
    heads: u64,
    /// Set if the last complete head has the version HTTP/1.0.
    is_http_1_0: bool,
    /// Set if an HTTP/1.0 head completed since the last call of
    /// [`take_http_1_0`](Self::take_http_1_0).
    saw_http_1_0: bool,
    /// Number of bytes at the end of the last piece that start an incomplete head.
    unfinished: usize,
}

#[derive(Debug)]
enum State {
    Head(Head),
    Sized(u64),
    Chunked(Chunked),
    Switch { beyond: usize },
    Tunnel,
    Refused(FramingError),
}

/// Part of a client's byte stream that the scanner expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The start of a new request head.
    Idle,
    /// The rest of a request head.
    Head,
    /// The rest of a request body.
    Body,
    /// Bytes of another protocol, which are not checked.
    Tunnel,
    /// No more bytes: the connection is rejected.
    Over,
}

/// End of a head in a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadEnd {
    /// Offset of the first byte after the head.
    At(usize),
    /// The head continues after the piece.
    Incomplete,
}

/// Framing error at an offset of the current piece.
#[derive(Debug)]
struct Fault {
    at: usize,
    why: FramingError,
}

impl Fault {
    /// Returns the fault with its offset increased by `start` bytes.
    fn beyond(self, start: usize) -> Self {
        Self { at: start + self.at, ..self }
    }
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            state: State::Head(Head::new()),
            heads: 0,
            is_http_1_0: false,
            saw_http_1_0: false,
            unfinished: 0,
        }
    }
}

impl Scanner {
    /// Checks the next bytes from the client, in time linear in their number.
    ///
    /// # Errors
    ///
    /// Returns [`ScanError`] if the bytes violate a framing rule or a limit. The error is final:
    /// every later call returns it for its first byte.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), ScanError> {
        let mut at = 0;
        let mut start = matches!(self.state, State::Head(_)).then_some(0);
        while at < piece.len() {
            match self.step(&piece[at..]) {
                Ok(used) => at += used,
                Err(fault) => {
                    let Fault { at, why } = fault.beyond(at);
                    let in_head = matches!(self.state, State::Head(_));
                    let before = self.heads.saturating_sub(u64::from(!in_head));
                    self.state = State::Refused(why);
                    return Err(ScanError { at, why, before, start });
                }
            }
            if matches!(&self.state, State::Head(head) if head.is_new()) {
                start = Some(at);
            }
        }
        self.unfinished = start.map_or(0, |start| piece.len() - start);
        Ok(())
    }

    /// Checks the head at the start of `piece`, while the start of a message is expected.
    ///
    /// # Errors
    ///
    /// As for [`feed`](Self::feed).
    pub(super) fn feed_head(&mut self, piece: &[u8]) -> Result<HeadEnd, ScanError> {
        let before = self.heads;
        match self.step(piece) {
            Ok(_) if self.heads == before => {
                self.unfinished = piece.len();
                Ok(HeadEnd::Incomplete)
            }
            Ok(used) => Ok(HeadEnd::At(used)),
            Err(Fault { at, why }) => {
                self.state = State::Refused(why);
                Err(ScanError { at, why, before, start: Some(0) })
            }
        }
    }

    /// Expects the head that just ended once more, from its first byte.
    pub(super) fn restart_head(&mut self) {
        self.heads -= 1;
        self.state = State::Head(Head::new());
    }

    /// Returns the part of the client's byte stream that the scanner expects next.
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Head(head) if head.is_new() => Phase::Idle,
            State::Switch { .. } => Phase::Idle,
            State::Head(_) => Phase::Head,
            State::Sized(_) | State::Chunked(_) => Phase::Body,
            State::Tunnel => Phase::Tunnel,
            State::Refused(_) => Phase::Over,
        }
    }

    /// Returns the number of complete, valid request heads so far.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Returns `true` while the following bytes are not checked because the last request is not
    /// answered yet. That request asked for another protocol, so the response decides how the bytes
    /// are read; or it has the version HTTP/1.0, whose clients do not pipeline.
    pub fn is_switching(&self) -> bool {
        matches!(self.state, State::Switch { .. })
    }

    /// Returns `true` if an HTTP/1.0 head completed since the last call.
    pub(super) fn take_http_1_0(&mut self) -> bool {
        std::mem::take(&mut self.saw_http_1_0)
    }

    /// Returns the state after the end of a message.
    fn next(&self) -> State {
        if self.is_http_1_0 { State::Switch { beyond: 0 } } else { State::Head(Head::new()) }
    }

    /// Takes the number of bytes at the end of the last piece that must be withheld from hyper:
    /// they start an incomplete head, or follow a request for another protocol.
    pub(super) fn take_withheld(&mut self) -> usize {
        match &mut self.state {
            State::Switch { beyond } => std::mem::take(beyond),
            State::Head(_) => std::mem::take(&mut self.unfinished),
            _ => 0,
        }
    }

    /// Resumes HTTP framing after the requested protocol was not accepted.
    pub(super) fn resume_http(&mut self) {
        if self.is_switching() {
            self.state = State::Head(Head::new());
        }
    }

    /// Stops checking, because the connection now carries another protocol (RFC 9110, 7.8 and
    /// 9.3.6).
    ///
    /// Must be called only after the switch was answered. A rejected connection stays rejected.
    pub fn set_tunnel(&mut self) {
        if self.phase() != Phase::Over {
            self.state = State::Tunnel;
        }
    }

    /// Consumes bytes of one message part and returns their number.
    fn step(&mut self, rest: &[u8]) -> Result<usize, Fault> {
        match &mut self.state {
            State::Head(head) => {
                let Some((used, framing)) = head.feed(rest)? else { return Ok(rest.len()) };
                self.is_http_1_0 = head.is_http_1_0();
                self.saw_http_1_0 |= self.is_http_1_0;
                self.heads += 1;
                self.state = match framing {
                    Framing::None => self.next(),
                    Framing::Switch => State::Switch { beyond: 0 },
                    Framing::Sized(length) => State::Sized(length),
                    Framing::Chunked => State::Chunked(Chunked::new()),
                };
                Ok(used)
            }
            State::Sized(left) => {
                let used = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= used as u64;
                if *left == 0 {
                    self.state = self.next();
                }
                Ok(used)
            }
            State::Chunked(chunked) => {
                let Some(used) = chunked.feed(rest)? else { return Ok(rest.len()) };
                self.state = State::Head(Head::new());
                Ok(used)
            }
            State::Switch { beyond } => {
                *beyond = beyond.saturating_add(rest.len());
                Ok(rest.len())
            }
            State::Tunnel => Ok(rest.len()),
            State::Refused(why) => Err(Fault { at: 0, why: *why }),
        }
    }
}
