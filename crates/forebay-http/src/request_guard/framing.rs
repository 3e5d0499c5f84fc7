//! The scanner: follows the framing of a client's bytes and says where they stop making sense.
//!
//! It keeps a few dozen bytes of state and no line buffer, so a message may arrive in any pieces;
//! the verdict and its place in the stream do not depend on them.
//! Every fault of a head is reported at or before its last byte. What hyper would refuse is refused
//! here first, so that a refusal is answered and counted by us.

mod chunked;
mod fields;
mod head;
mod refusal;
mod request_line;
#[cfg(test)]
pub(super) mod tests;
mod token;

use chunked::Chunked;
use head::{Framing, Head};

pub use chunked::BODY_OVERHEAD_MAX;
pub use head::HEAD_MAX;
pub(super) use refusal::cause_in_chain;
pub use refusal::{Refusal, Refused};

/// Follows the messages of one client connection.
#[derive(Debug)]
pub struct Scanner {
    state: State,
    heads: u64,
    /// Set if the last complete head is one of HTTP/1.0.
    is_old: bool,
    /// Set if a head of HTTP/1.0 was complete since [`take_old`](Self::take_old) was called last.
    came_old: bool,
    /// How many of the last bytes of the piece before begin a head that is not complete.
    unfinished: usize,
}

#[derive(Debug)]
enum State {
    Head(Head),
    Sized(u64),
    Chunked(Chunked),
    Switch { beyond: usize },
    Tunnel,
    Refused(Refusal),
}

/// What the scanner expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A new head of which no byte has come.
    Idle,
    /// More of a head that has begun.
    Head,
    /// More of a request body.
    Body,
    /// Bytes of another protocol, which are not looked at.
    Tunnel,
    /// Nothing: the connection was refused.
    Over,
}

/// A fault in the piece at hand, found by one of the machines below.
#[derive(Debug)]
struct Fault {
    at: usize,
    why: Refusal,
}

impl Fault {
    /// The same fault, seen from `start` bytes earlier.
    fn beyond(self, start: usize) -> Self {
        Self { at: start + self.at, ..self }
    }
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            state: State::Head(Head::new()),
            heads: 0,
            is_old: false,
            came_old: false,
            unfinished: 0,
        }
    }
}

impl Scanner {
    /// Looks at the next bytes of the client; the cost is linear in their number.
    ///
    /// # Errors
    ///
    /// [`Refused`] when the bytes cannot be the next part of a well-framed stream.
    /// The refusal is final: every later call repeats it at its first byte.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), Refused> {
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
                    return Err(Refused { at, why, before, start });
                }
            }
            if matches!(&self.state, State::Head(head) if head.is_new()) {
                start = Some(at);
            }
        }
        self.unfinished = start.map_or(0, |start| piece.len() - start);
        Ok(())
    }

    /// What is expected next.
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

    /// How many heads have been complete and acceptable so far.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Returns `true` while the bytes that follow are not checked, because the last request is not
    /// answered: it asked for another protocol, and the answer says which one follows; or it is one
    /// of HTTP/1.0, in which clients wait for the answer before they send another request.
    pub fn is_switching(&self) -> bool {
        matches!(self.state, State::Switch { .. })
    }

    /// Returns `true` if a head of HTTP/1.0 was complete since the last call.
    pub(super) fn take_old(&mut self) -> bool {
        std::mem::take(&mut self.came_old)
    }

    /// The state behind the end of a message.
    fn next(&self) -> State {
        if self.is_old { State::Switch { beyond: 0 } } else { State::Head(Head::new()) }
    }

    /// How many of the last bytes of the piece before nobody may see yet: they begin a head that
    /// is not complete, or stand behind one that asked for another protocol.
    pub(super) fn take_withheld(&mut self) -> usize {
        match &mut self.state {
            State::Switch { beyond } => std::mem::take(beyond),
            State::Head(_) => std::mem::take(&mut self.unfinished),
            _ => 0,
        }
    }

    /// The other protocol was not agreed to: the next head follows.
    pub(super) fn stay(&mut self) {
        if self.is_switching() {
            self.state = State::Head(Head::new());
        }
    }

    /// Stops looking: the connection now carries another protocol (RFC 9110, 7.8 and 9.3.6).
    ///
    /// To be called only once the switch has been answered; a refusal stays.
    pub fn set_tunnel(&mut self) {
        if self.phase() != Phase::Over {
            self.state = State::Tunnel;
        }
    }

    /// Moves on within one message part and tells how many bytes it took.
    fn step(&mut self, rest: &[u8]) -> Result<usize, Fault> {
        match &mut self.state {
            State::Head(head) => {
                let Some((used, framing)) = head.feed(rest)? else { return Ok(rest.len()) };
                self.is_old = head.is_old();
                self.came_old |= self.is_old;
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
