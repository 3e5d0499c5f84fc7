//! Streams of an HTTP/2 connection: early resets, slow readers, idle time.
//!
//! The h2 crate counts only resets of streams that it has not accepted. A load belongs to no client,
//! so that a client which resets accepted streams could start any number of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use crate::request_guard::RATE_MIN;

/// Maximum number of requests that a client may reset before their response, in [`RESET_WINDOW`].
const RESETS_MAX: u32 = 100;

/// Window of [`RESETS_MAX`].
const RESET_WINDOW: Duration = Duration::from_secs(60);

/// Number of streams from which on a share of resets is judged: half of them is too many.
const STREAMS_JUDGED: u64 = 500;

/// State that an HTTP/2 connection shares with its streams.
#[derive(Debug)]
pub(super) struct Streams {
    /// Set when the connection must end with GOAWAY (ENHANCE_YOUR_CALM).
    pub(super) calm: AtomicBool,
    state: Mutex<State>,
    /// Open streams of all connections.
    open_streams: Gauge,
}

#[derive(Debug)]
struct State {
    opened: u64,
    resets: u64,
    window_resets: u32,
    window_begun: Instant,
    /// Number of requests without a complete response.
    open: usize,
    /// Time at which the last stream ended, or the connection began.
    idle_since: Instant,
    readers: Vec<Option<Reader>>,
}

/// Progress of a client in reading one response.
#[derive(Clone, Copy, Debug)]
struct Reader {
    /// Time since which the response waits for the client.
    waiting_since: Option<Instant>,
    /// Total wait, minus the time allowed for the bytes that were read.
    behind: Duration,
}

/// Request that has not been answered; dropped before the response, it counts as reset.
pub(super) struct OpenRequest {
    streams: Arc<Streams>,
    is_answered: bool,
}

/// Response that is being sent. Its clock runs while the response waits for the client.
pub(super) struct OpenResponse {
    streams: Arc<Streams>,
    slot: usize,
}

impl Streams {
    /// Creates the state of a connection. `open_streams` counts the streams of all connections.
    pub(super) fn new(open_streams: Gauge) -> Arc<Self> {
        let now = Instant::now();
        let state = State {
            opened: 0,
            resets: 0,
            window_resets: 0,
            window_begun: now,
            open: 0,
            idle_since: now,
            readers: Vec::new(),
        };
        Arc::new(Self { calm: AtomicBool::new(false), state: Mutex::new(state), open_streams })
    }

    pub(super) fn open(self: &Arc<Self>) -> OpenRequest {
        let mut state = self.state.lock();
        state.opened += 1;
        state.open += 1;
        self.open_streams.inc();
        OpenRequest { streams: self.clone(), is_answered: false }
    }

    /// Returns the time for which the connection has had no stream, and `true` if it ever had one.
    pub(super) fn idle(&self, now: Instant) -> Option<(Duration, bool)> {
        let state = self.state.lock();
        (state.open == 0)
            .then(|| (now.saturating_duration_since(state.idle_since), state.opened > 0))
    }

    /// Returns `true` if a client is behind the minimum rate by more than `window` in reading one of
    /// its responses.
    pub(super) fn has_slow_reader(&self, now: Instant, window: Duration) -> bool {
        let state = self.state.lock();
        state.readers.iter().flatten().any(|reader| {
            let waited = reader.waiting_since.map(|since| now.saturating_duration_since(since));
            waited.is_some_and(|waited| waited + reader.behind >= window)
        })
    }

    fn reset(&self) {
        let now = Instant::now();
        let mut state = self.state.lock();
        if now.saturating_duration_since(state.window_begun) > RESET_WINDOW {
            state.window_begun = now;
            state.window_resets = 0;
        }
        state.window_resets += 1;
        state.resets += 1;
        let is_half = state.opened >= STREAMS_JUDGED && state.resets * 2 >= state.opened;
        if state.window_resets >= RESETS_MAX || is_half {
            self.calm.store(true, Ordering::Relaxed);
        }
    }

    /// Notes the end of a stream, and frees the slot of its response.
    fn end(&self, slot: Option<usize>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        if let Some(slot) = slot {
            state.readers[slot] = None;
        }
        state.open -= 1;
        state.idle_since = now;
        self.open_streams.dec();
    }
}

impl OpenRequest {
    /// Turns the request into a response whose head is sent.
    pub(super) fn answered(mut self) -> OpenResponse {
        self.is_answered = true;
        let streams = self.streams.clone();
        let reader = Reader { waiting_since: Some(Instant::now()), behind: Duration::ZERO };
        let mut state = streams.state.lock();
        let free = state.readers.iter().position(Option::is_none);
        let slot = free.unwrap_or(state.readers.len());
        match state.readers.get_mut(slot) {
            Some(place) => *place = Some(reader),
            None => state.readers.push(Some(reader)),
        }
        drop(state);
        OpenResponse { streams, slot }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if !self.is_answered {
            self.streams.reset();
            self.streams.end(None);
        }
    }
}

impl OpenResponse {
    /// Starts the clock: the client must read what was sent.
    pub(super) fn waits(&self, now: Instant) {
        self.with(|reader| reader.waiting_since = Some(now));
    }

    /// Stops the clock: the client has taken `bytes`, and the connection asks for more.
    pub(super) fn is_asked(&self, bytes: usize, now: Instant) {
        self.with(|reader| {
            let since = reader.waiting_since.take().unwrap_or(now);
            let waited = now.saturating_duration_since(since);
            let allowed =
                Duration::from_secs(1) * u32::try_from(bytes).unwrap_or(u32::MAX) / RATE_MIN;
            reader.behind = (reader.behind + waited).saturating_sub(allowed);
        });
    }

    fn with(&self, change: impl FnOnce(&mut Reader)) {
        let mut state = self.streams.state.lock();
        if let Some(reader) = state.readers.get_mut(self.slot).and_then(Option::as_mut) {
            change(reader);
        }
    }
}

impl Drop for OpenResponse {
    fn drop(&mut self) {
        self.streams.end(Some(self.slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_calm(streams: &Streams) -> bool {
        streams.calm.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_early_resets_in_a_minute_call_for_calm() {
        let streams = Streams::new(Gauge::default());
        for _ in 0..99 {
            drop(streams.open());
        }
        assert!(!is_calm(&streams));
        tokio::time::advance(Duration::from_secs(61)).await;
        for _ in 0..99 {
            drop(streams.open());
        }
        assert!(!is_calm(&streams));
        drop(streams.open());
        assert!(is_calm(&streams));
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_five_hundred_streams_reset_early_are_too_many() {
        let streams = Streams::new(Gauge::default());
        for number in 0..499 {
            let open = streams.open();
            if number % 2 == 0 {
                drop(open.answered());
            }
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        assert!(!is_calm(&streams));
        drop(streams.open());
        assert!(is_calm(&streams));
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_the_client_does_not_read_is_slow() {
        let window = Duration::from_secs(240);
        let streams = Streams::new(Gauge::default());
        let response = streams.open().answered();
        tokio::time::advance(Duration::from_secs(239)).await;
        assert!(!streams.has_slow_reader(Instant::now(), window));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(streams.has_slow_reader(Instant::now(), window));
        // 64 KiB earn 64 s; while the origin is waited for, the clock stands still.
        response.is_asked(64 << 10, Instant::now());
        tokio::time::advance(Duration::from_secs(1_000)).await;
        assert!(!streams.has_slow_reader(Instant::now(), window));
        response.waits(Instant::now());
        tokio::time::advance(Duration::from_secs(64)).await;
        assert!(streams.has_slow_reader(Instant::now(), window));
        assert_eq!(streams.idle(Instant::now()), None);
        drop(response);
        assert_eq!(streams.idle(Instant::now()), Some((Duration::ZERO, true)));
    }
}
