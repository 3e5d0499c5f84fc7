//! Timeouts and the minimum transfer rate of client connections.
//!
//! One timer per connection, armed only while the connection waits. It is moved rarely: it fires at
//! an old deadline, and only then is the current deadline computed. A request that arrives whole
//! and is answered immediately costs one clock reading.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::exchanges::Exchanges;
use super::framing::{Phase, Scanner, cause_in_chain};

/// Timeouts of a client connection: for its first byte, a request head, the pause between requests,
/// falling behind [`RATE_MIN`] in the request body or in reading the response, and for discarding
/// bytes after an early close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// Maximum time from the first byte of a head to its last. Default 10 s: a head is a few
    /// packets, and a client that sends it byte by byte must not hold a connection for longer.
    pub head_timeout: Duration,
    /// Maximum time from the start of a connection, after its PROXY header and TLS handshake, to
    /// its first byte. Default 30 s: a client that connects sends a request at once.
    pub first_byte_timeout: Duration,
    /// Maximum time from the end of a response to the first byte of the next request of the
    /// connection. Default 60 s: longer than clients pause within one visit.
    pub idle_timeout: Duration,
    /// Time by which a request body may fall behind [`RATE_MIN`] (1 KiB/s on average) before the
    /// request fails with 408. Default 30 s: a short network failure is over by then.
    pub body_window: Duration,
    /// Time by which a client may fall behind [`RATE_MIN`] (1 KiB/s on average) in reading its
    /// response before the connection is closed. Default 240 s: the kernel buffers megabytes, and
    /// reports free space only when a third of them is gone. A client that reads 8 KiB/s therefore
    /// shows no progress for three minutes.
    pub write_window: Duration,
    /// Maximum time in which a connection that is closed early still discards received bytes.
    /// Default 1 s: without it, the reset caused by unread bytes could overtake the response (RFC
    /// 9112, 9.6).
    pub linger_timeout: Duration,
}

impl Default for ClientTimeouts {
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

/// Timeout of a client connection that expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiredTimeout {
    /// No first byte arrived on a new connection: it is closed.
    FirstByte,
    /// The request head was not complete in time: 408.
    Head,
    /// No further request arrived on the connection: it is closed.
    Idle,
    /// The request body arrived too slowly: 408 if the response has not started.
    Body,
    /// The client read the response too slowly: the connection is closed.
    Write,
}

impl ExpiredTimeout {
    /// All timeouts of a client connection, in the order of their counters.
    pub const ALL: [Self; 5] = [Self::FirstByte, Self::Head, Self::Idle, Self::Body, Self::Write];

    /// Returns the label of the timeout for metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::FirstByte => "first-byte",
            Self::Head => "slow-head",
            Self::Idle => "idle",
            Self::Body => "slow-body",
            Self::Write => "slow-reader",
        }
    }

    /// Returns the expired timeout in the source chain of an error reported by hyper, if there is
    /// one. The response is 408.
    pub(crate) fn in_chain(error: &(dyn Error + 'static)) -> Option<Self> {
        cause_in_chain(error)
    }
}

impl fmt::Display for ExpiredTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a timeout of the client connection expired: {}", self.label())
    }
}

impl Error for ExpiredTimeout {}

/// Minimum average rate, in bytes per second, at which a client must send its request body and read
/// its response while the connection waits for it. A slower client could hold a connection
/// indefinitely with a few bytes.
pub const RATE_MIN: u32 = 1024;

/// Interval at which a connection whose client does not read checks that the rest of the body is
/// still in memory. Bodies are dropped after two seconds without a read.
const BODY_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Substitute for a timeout that is too large to add to the clock: 30 years.
const NEVER: Duration = Duration::from_secs(86_400 * 365 * 30);

/// Timer of one client connection.
#[derive(Debug)]
pub(super) struct ConnectionTimer {
    pub(super) timeouts: ClientTimeouts,
    pub(super) exchanges: Exchanges,
    sleep: Option<Pin<Box<Sleep>>>,
    read_due: Option<Instant>,
    write_due: Option<Instant>,
    /// Time at which a byte was last written, or the connection was last known to be in use.
    active: Instant,
    /// Set if bytes were read since `active`; avoids a clock reading per read.
    read_since_active: bool,
    /// Set once the first byte has arrived.
    has_received: bool,
    head: Option<(u64, Instant)>,
    body: RateDelay,
    write: RateDelay,
}

/// Delay of a client relative to [`RATE_MIN`].
#[derive(Debug, Default)]
struct RateDelay {
    waiting_since: Option<Instant>,
    /// Total wait for the client, minus the time allowed for the bytes it transferred.
    behind: Duration,
}

/// Direction of a transfer; both directions share one timer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

impl ConnectionTimer {
    pub(super) fn new(timeouts: ClientTimeouts, exchanges: Exchanges) -> Self {
        Self {
            timeouts,
            exchanges,
            sleep: None,
            read_due: None,
            write_due: None,
            active: Instant::now(),
            read_since_active: false,
            has_received: false,
            head: None,
            body: RateDelay::default(),
            write: RateDelay::default(),
        }
    }

    /// Records that `received` bytes arrived and were scanned.
    pub(super) fn has_read(&mut self, received: usize, scanner: &Scanner) {
        self.read_due = None;
        self.read_since_active = true;
        self.has_received = true;
        match scanner.phase() {
            Phase::Head if self.head.is_none_or(|(serial, _)| serial != scanner.heads()) => {
                self.head = Some((scanner.heads(), Instant::now()));
            }
            // Only the time of the read is known, not the time of arrival. A service that is slow
            // to read must not use up the client's time, so a single wait counts for at most half
            // the window.
            Phase::Body => self.body.advance(received, self.timeouts.body_window / 2),
            _ => {}
        }
        if scanner.phase() != Phase::Body {
            self.body = RateDelay::default();
        }
    }

    /// Records that the client read `taken` bytes.
    pub(super) fn has_written(&mut self, taken: usize) {
        self.write_due = None;
        self.read_since_active = false;
        self.active = Instant::now();
        if !self.write.is_zero() {
            self.write.advance(taken, self.timeouts.write_window);
        }
    }

    /// Records that all bytes are flushed. Unlike a write, this does not show that the client is
    /// active.
    pub(super) fn has_flushed(&mut self) {
        self.write_due = None;
        self.write.waiting_since = None;
    }

    /// Waits for bytes from the client, and returns the timeout that expires first.
    pub(super) fn read_waits(
        &mut self,
        scanner: &Scanner,
        cx: &mut Context<'_>,
    ) -> Poll<ExpiredTimeout> {
        let (timeout, due) = match scanner.phase() {
            Phase::Idle if !self.has_received => {
                (ExpiredTimeout::FirstByte, after(self.active, self.timeouts.first_byte_timeout))
            }
            Phase::Idle => (ExpiredTimeout::Idle, after(self.active, self.timeouts.idle_timeout)),
            Phase::Head => {
                let begun = self.head.map_or(self.active, |(_, begun)| begun);
                (ExpiredTimeout::Head, after(begun, self.timeouts.head_timeout))
            }
            Phase::Body => (ExpiredTimeout::Body, self.body.due(self.timeouts.body_window)),
            Phase::Tunnel | Phase::Over => return Poll::Pending,
        };
        let Some(now) = self.sleep_until_due(Direction::Read, due, cx) else {
            return Poll::Pending;
        };
        // While a write is pending, the write timeout decides.
        let in_use = self.read_since_active || self.exchanges.any() || self.write_due.is_some();
        if timeout == ExpiredTimeout::Idle && in_use {
            self.read_since_active = false;
            self.active = now;
            return self.extend_sleep(Direction::Read, after(now, self.timeouts.idle_timeout), cx);
        }
        Poll::Ready(timeout)
    }

    /// Waits for the client to read, and returns the timeout once it expires, or once the rest of
    /// the body was dropped from memory, so that the client can no longer get it.
    pub(super) fn write_waits(&mut self, cx: &mut Context<'_>) -> Poll<ExpiredTimeout> {
        let limit = self.write.due(self.timeouts.write_window);
        loop {
            let due = match self.exchanges.body_is_lost() {
                None => limit,
                Some(false) => limit.min(Instant::now() + BODY_CHECK_INTERVAL),
                Some(true) => return Poll::Ready(ExpiredTimeout::Write),
            };
            match self.sleep_until_due(Direction::Write, due, cx) {
                None => return Poll::Pending,
                Some(now) if now >= limit => return Poll::Ready(ExpiredTimeout::Write),
                Some(_) => {}
            }
        }
    }

    /// Returns the time until which a connection that starts to close now may still read.
    pub(super) fn linger_end(&self) -> Instant {
        after(Instant::now(), self.timeouts.linger_timeout)
    }

    /// Waits until `end` for bytes that a closing connection discards.
    ///
    /// The caller keeps the deadline, because a flush in the meantime clears `write_due`.
    pub(super) fn linger_waits(&mut self, end: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.sleep_until_due(Direction::Write, end, cx).map_or(Poll::Pending, |_| Poll::Ready(()))
    }

    /// Sleeps until `due`, and returns the current time once `due` has passed.
    fn sleep_until_due(
        &mut self,
        direction: Direction,
        due: Instant,
        cx: &mut Context<'_>,
    ) -> Option<Instant> {
        match direction {
            Direction::Read => self.read_due = Some(due),
            Direction::Write => self.write_due = Some(due),
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
        let other = if direction == Direction::Read { self.write_due } else { self.read_due };
        if other.is_some_and(|other| other <= now) {
            // The timer fired for the other direction, which must be polled again. If it no longer
            // waits, its deadline is outdated and this is the only wake-up.
            cx.waker().wake_by_ref();
        }
        let next = other.filter(|&other| other > now).map_or(due, |other| other.min(due));
        sleep.as_mut().reset(next);
        if sleep.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        None
    }

    /// Sleeps until a deadline that was just extended, which cannot have passed.
    fn extend_sleep(
        &mut self,
        direction: Direction,
        due: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<ExpiredTimeout> {
        if self.sleep_until_due(direction, due, cx).is_some() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl RateDelay {
    fn is_zero(&self) -> bool {
        self.waiting_since.is_none() && self.behind.is_zero()
    }

    /// Returns the time at which the client is too slow if it transfers nothing from now on.
    fn due(&mut self, window: Duration) -> Instant {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        after(since, window.saturating_sub(self.behind))
    }

    /// Ends the current wait: adds it to the delay, up to `longest`, and subtracts the time allowed
    /// for `bytes`.
    ///
    /// A client that keeps the minimum rate is never delayed for long. The delay of a slower client
    /// grows until it reaches the window. Faster transfers are not credited for later.
    fn advance(&mut self, bytes: usize, longest: Duration) {
        let since = self.waiting_since.take();
        let waited = since.map_or(Duration::ZERO, |since| since.elapsed().min(longest));
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let allowed = Duration::from_secs(1) * bytes / RATE_MIN;
        self.behind = self.behind.saturating_add(waited).saturating_sub(allowed);
    }
}

fn after(start: Instant, span: Duration) -> Instant {
    start.checked_add(span).unwrap_or_else(|| start + NEVER)
}
