//! How long a peer may take.
//!
//! One timer per connection, set only when something waits, and moved as seldom as possible: it is
//! left to fire at an old deadline, and only then is the true one worked out.
//! A request that arrives whole and is answered at once costs one look at the clock.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::exchanges::Exchanges;
use super::framing::{Phase, Scanner, cause_in_chain};

/// How long a peer may take, in whole and in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A head must be complete this long after its first byte. Default 10 s: a head is a few
    /// packets, and a peer that drips it must not hold a connection for longer.
    pub head_timeout: Duration,
    /// A connection on which no byte has ever come is closed after this. Default 30 s: a client
    /// that connects means to ask, and one that only holds connections is not given a minute.
    pub first_byte_timeout: Duration,
    /// A connection between two requests is closed after this. Default 60 s: longer than clients
    /// pause within one visit.
    pub idle_timeout: Duration,
    /// Over so much waiting for a request body, [`RATE_MIN`] must be kept on average. Default 30 s:
    /// a network that fails for a moment is back by then.
    pub body_window: Duration,
    /// Over so much waiting for a peer to take its answer, [`RATE_MIN`] must be kept on average.
    /// Default 240 s: the system takes megabytes that it cannot send yet, and tells of room only
    /// when a third of them is gone: an honest 8 KiB/s looks like nothing for three minutes.
    pub write_window: Duration,
    /// How long a connection that is closed early still reads and discards what is under way.
    /// Default 1 s: without it the reset that follows unread bytes could overtake the answer
    /// (RFC 9112, 9.6).
    pub linger_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            body_window: Duration::from_secs(30),
            write_window: Duration::from_secs(240),
            linger_timeout: Duration::from_secs(1),
        }
    }
}

/// The time that a peer let pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lapse {
    /// No byte came at all: the connection ends.
    FirstByte,
    /// The head was not complete in time: 408.
    Head,
    /// No request came: the connection ends.
    Idle,
    /// The body came too slowly: 408, if the answer has not begun.
    Body,
    /// The response was taken too slowly: the connection breaks off.
    Write,
}

impl Lapse {
    /// Every lapse, in the order of their counters.
    pub const ALL: [Self; 5] = [Self::FirstByte, Self::Head, Self::Idle, Self::Body, Self::Write];

    /// A short name for metric labels and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::FirstByte => "first-byte",
            Self::Head => "slow-head",
            Self::Idle => "idle",
            Self::Body => "slow-body",
            Self::Write => "slow-reader",
        }
    }

    /// The lapse behind an error that hyper reports, if there is one: an answer would be 408.
    pub fn in_chain(error: &(dyn Error + 'static)) -> Option<Self> {
        cause_in_chain(error)
    }
}

impl fmt::Display for Lapse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the client was too slow: {}", self.label())
    }
}

impl Error for Lapse {}

/// Bytes per second that a peer must send of its body, and take of its answer, on average while we
/// wait for it: a modem was faster, and with less a few bytes would hold a connection for ever.
pub const RATE_MIN: u32 = 1024;

/// Stands for "never" where a limit is too large to add to the clock: thirty years.
const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);

/// The clock of one connection.
#[derive(Debug)]
pub(super) struct Patience {
    pub(super) limits: Limits,
    pub(super) exchanges: Exchanges,
    sleep: Option<Pin<Box<Sleep>>>,
    read_due: Option<Instant>,
    write_due: Option<Instant>,
    /// When a byte was last written, or the connection last known to be in use.
    active: Instant,
    /// Whether bytes were read since: noted without a look at the clock.
    touched: bool,
    /// Set once any byte has come.
    heard: bool,
    head: Option<(u64, Instant)>,
    body: Pace,
    write: Pace,
}

/// How far a peer is behind the least rate.
#[derive(Debug, Default)]
struct Pace {
    waiting_since: Option<Instant>,
    /// Time waited for it, less the time that its bytes may take.
    behind: Duration,
}

/// The two directions wait on one timer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Read,
    Write,
}

impl Patience {
    pub(super) fn new(limits: Limits, exchanges: Exchanges) -> Self {
        Self {
            limits,
            exchanges,
            sleep: None,
            read_due: None,
            write_due: None,
            active: Instant::now(),
            touched: false,
            heard: false,
            head: None,
            body: Pace::default(),
            write: Pace::default(),
        }
    }

    /// Bytes came and the scanner has seen them.
    pub(super) fn has_read(&mut self, received: usize, scanner: &Scanner) {
        self.read_due = None;
        self.touched = true;
        self.heard = true;
        match scanner.phase() {
            Phase::Head if self.head.is_none_or(|(serial, _)| serial != scanner.heads()) => {
                self.head = Some((scanner.heads(), Instant::now()));
            }
            // When a piece came is not known, only when it was read, and a service that is slow to
            // read must not use up the time of the peer; so no single wait counts for more than
            // half.
            Phase::Body => self.body.advance(received, self.limits.body_window / 2),
            _ => {}
        }
        if scanner.phase() != Phase::Body {
            self.body = Pace::default();
        }
    }

    /// So many bytes were taken by the peer.
    pub(super) fn has_written(&mut self, taken: usize) {
        self.write_due = None;
        self.touched = false;
        self.active = Instant::now();
        if !self.write.is_at_rest() {
            self.write.advance(taken, self.limits.write_window);
        }
    }

    /// Nothing is left to be taken; unlike a write, this is no sign that the peer is there.
    pub(super) fn has_flushed(&mut self) {
        self.write_due = None;
        self.write.waiting_since = None;
    }

    /// No byte has come: is the peer too slow?
    pub(super) fn read_waits(&mut self, scanner: &Scanner, cx: &mut Context<'_>) -> Poll<Lapse> {
        let (lapse, due) = match scanner.phase() {
            Phase::Idle if !self.heard => {
                (Lapse::FirstByte, after(self.active, self.limits.first_byte_timeout))
            }
            Phase::Idle => (Lapse::Idle, after(self.active, self.limits.idle_timeout)),
            Phase::Head => {
                let begun = self.head.map_or(self.active, |(_, begun)| begun);
                (Lapse::Head, after(begun, self.limits.head_timeout))
            }
            Phase::Body => (Lapse::Body, self.body.due(self.limits.body_window)),
            Phase::Tunnel | Phase::Over => return Poll::Pending,
        };
        let Some(now) = self.rest(Side::Read, due, cx) else { return Poll::Pending };
        // While a write waits, its own deadline decides.
        let in_use = self.touched || self.exchanges.any() || self.write_due.is_some();
        if lapse == Lapse::Idle && in_use {
            self.touched = false;
            self.active = now;
            return self.rest_again(Side::Read, after(now, self.limits.idle_timeout), cx);
        }
        Poll::Ready(lapse)
    }

    /// No byte was taken: is the peer too slow?
    pub(super) fn write_waits(&mut self, cx: &mut Context<'_>) -> Poll<Lapse> {
        let due = match self.write_due {
            Some(due) => due,
            None => self.write.due(self.limits.write_window),
        };
        self.rest(Side::Write, due, cx).map_or(Poll::Pending, |_| Poll::Ready(Lapse::Write))
    }

    /// How long a connection that begins to close now may still read.
    pub(super) fn linger_end(&self) -> Instant {
        after(Instant::now(), self.limits.linger_timeout)
    }

    /// A closing connection has unread bytes under way: has it waited enough for them?
    ///
    /// The caller keeps the deadline, since flushes go on meanwhile and would put off one of ours.
    pub(super) fn linger_waits(&mut self, end: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.rest(Side::Write, end, cx).map_or(Poll::Pending, |_| Poll::Ready(()))
    }

    /// Sleeps until `due`; tells the time once that has passed.
    fn rest(&mut self, side: Side, due: Instant, cx: &mut Context<'_>) -> Option<Instant> {
        match side {
            Side::Read => self.read_due = Some(due),
            Side::Write => self.write_due = Some(due),
        }
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if sleep.deadline() > due {
            sleep.as_mut().reset(due);
        }
        if sleep.as_mut().poll(cx).is_pending() {
            return None;
        }
        let now = Instant::now();
        if due <= now {
            return Some(now);
        }
        let other = if side == Side::Read { self.write_due } else { self.read_due };
        if other.is_some_and(|other| other <= now) {
            // The timer fired for the other direction, which must be asked once more. If nobody
            // waits there any longer, its deadline is stale and this wake-up is the only one.
            cx.waker().wake_by_ref();
        }
        let next = other.filter(|&other| other > now).map_or(due, |other| other.min(due));
        sleep.as_mut().reset(next);
        if sleep.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        None
    }

    /// The same for a deadline that was just put off, and so has not passed.
    fn rest_again(&mut self, side: Side, due: Instant, cx: &mut Context<'_>) -> Poll<Lapse> {
        if self.rest(side, due, cx).is_some() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Pace {
    fn is_at_rest(&self) -> bool {
        self.waiting_since.is_none() && self.behind.is_zero()
    }

    /// When the peer is too slow, if it stays silent from now on.
    fn due(&mut self, window: Duration) -> Instant {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        after(since, window.saturating_sub(self.behind))
    }

    /// Counts the wait that is over, up to `longest`, and against it the bytes that it brought.
    ///
    /// A peer that keeps the rate is never behind for long. One that does not falls behind more
    /// and more, until that is the whole window; and being fast for a while buys nobody more.
    fn advance(&mut self, bytes: usize, longest: Duration) {
        let since = self.waiting_since.take();
        let waited = since.map_or(Duration::ZERO, |since| since.elapsed().min(longest));
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let allowed = Duration::from_secs(1) * bytes / RATE_MIN;
        self.behind = self.behind.saturating_add(waited).saturating_sub(allowed);
    }
}

fn after(start: Instant, span: Duration) -> Instant {
    start.checked_add(span).unwrap_or_else(|| start + FAR)
}
