//! Live views of the responses: `tail` and `top`.
//!
//! Responses come over the feed, which is open while a client listens, and loads over a feed of their
//! own. One task empties both, evaluates expressions and counts; no worker thread does.

mod expression;
mod space_saving;
mod tail;
mod top;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use clap::ValueEnum;
use forebay_http::{LoadFeed, Service};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use crate::log::Log;
use crate::log::access::{Format, Line};
use expression::Expression;
use tail::Tail;
use top::Top;
pub(crate) use top::{LISTS, TopReport};

/// Interval at which the rings are emptied while a client listens. It is short, because responses that
/// are still in the cache of the processor cost half as much; 4,096 in each ring allow 400,000 a second.
const DRAIN_INTERVAL: Duration = Duration::from_millis(10);

/// Interval at which loads are counted while no client listens.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of tails at the same time.
const TAILS_MAX: usize = 16;

/// Time for which `top` counts requests after it was asked last.
const TOP_KEPT: Duration = Duration::from_secs(60);

/// Number of pieces that wait for a tail whose client does not read.
const PIECES_MAX: usize = 64;

/// Format of the lines of a tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LineFormat {
    /// Text for people.
    Text,
    /// `name=value` pairs.
    Logfmt,
    /// JSON object.
    Json,
}

impl LineFormat {
    /// Every format.
    pub(crate) const ALL: [Self; 3] = [Self::Text, Self::Logfmt, Self::Json];

    /// Returns the name in queries.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Logfmt => "logfmt",
            Self::Json => "json",
        }
    }

    /// Returns the format of the access log; `None` for the text for people.
    const fn of_log(self) -> Option<Format> {
        match self {
            Self::Text => None,
            Self::Logfmt => Some(Format::Logfmt),
            Self::Json => Some(Format::Json),
        }
    }
}

/// Live views of one service.
pub(crate) struct Live {
    service: Arc<Service>,
    log: Arc<Log>,
    state: Mutex<State>,
    /// Notified when a client begins to listen.
    listened: Notify,
}

struct State {
    tails: Vec<Tail>,
    top: Top,
    /// Time at which `top` was asked last.
    top_asked: Option<Instant>,
}

/// Reason why a tail cannot begin.
#[derive(Debug)]
pub(crate) enum TailRefused {
    /// The expression is malformed; the text has the column.
    Expression(String),
    /// There are too many tails.
    TooMany,
}

impl Live {
    pub(crate) fn new(service: Arc<Service>, log: Arc<Log>) -> Arc<Self> {
        let state = State { tails: Vec::new(), top: Top::new(Instant::now()), top_asked: None };
        Arc::new(Self { service, log, state: Mutex::new(state), listened: Notify::new() })
    }

    /// Starts the task that empties the feeds, until the process exits.
    pub(crate) fn start(self: &Arc<Self>) {
        let live = self.clone();
        tokio::spawn(async move {
            loop {
                let pause = if live.drain() { DRAIN_INTERVAL } else { IDLE_INTERVAL };
                let _ = tokio::time::timeout(pause, live.listened.notified()).await;
            }
        });
    }

    /// Starts a tail of the responses that an expression selects, as server-sent events.
    ///
    /// # Errors
    /// If the expression is malformed, or there are too many tails.
    pub(crate) fn tail(
        &self,
        expression: &str,
        format: LineFormat,
    ) -> Result<mpsc::Receiver<Bytes>, TailRefused> {
        let parsed = Expression::parse(expression);
        let expression = parsed.map_err(|error| TailRefused::Expression(error.to_string()))?;
        let (sender, receiver) = mpsc::channel(PIECES_MAX);
        let mut state = self.state.lock();
        state.tails.retain(Tail::is_open);
        if state.tails.len() >= TAILS_MAX {
            return Err(TailRefused::TooMany);
        }
        state.tails.push(Tail::new(expression, format, sender));
        self.listen();
        Ok(receiver)
    }

    /// Returns the lists of the last one to two minutes. Requests are counted for another minute.
    pub(crate) fn top(&self, rows_max: usize) -> TopReport {
        self.count_loads();
        let (mut state, now) = (self.state.lock(), Instant::now());
        state.top_asked = Some(now);
        state.top.set_listened(true, now);
        let report = state.top.report(rows_max);
        self.listen();
        let dropped = self.service.feed().dropped() + self.loads().dropped();
        TopReport { dropped, ..report }
    }

    fn loads(&self) -> &LoadFeed {
        self.service.metrics().ended_loads()
    }

    /// Opens the feed of responses, and wakes the task.
    fn listen(&self) {
        self.service.open_feed(true);
        self.listened.notify_one();
    }

    /// Counts the loads since the last call.
    fn count_loads(&self) {
        let (loads, redaction) = (self.loads().drain(), self.log.redaction());
        let mut state = self.state.lock();
        state.top.advance(Instant::now());
        loads.for_each(|load| state.top.add_load(&load, &redaction));
    }

    /// Empties the feeds once. Returns false if no client listens.
    fn drain(&self) -> bool {
        self.count_loads();
        let mut state = self.state.lock();
        state.tails.retain(Tail::is_open);
        let (now, redaction) = (Instant::now(), self.log.redaction());
        if state.top_asked.is_none_or(|asked| asked.elapsed() > TOP_KEPT) {
            state.top_asked = None;
            state.top.set_listened(false, now);
        }
        let is_counted = state.top_asked.is_some();
        let State { tails, top, .. } = &mut *state;
        self.service.feed().drain(|entry| {
            let access = entry.access();
            let (at, redaction) = (entry.at, &*redaction);
            let line = Line { entry: &access, at, redaction, sample: None };
            tails.iter_mut().for_each(|tail| tail.add(&line, now));
            if is_counted {
                top.add(&access, redaction);
            }
        });
        state.tails.iter_mut().for_each(Tail::flush);
        let is_used = !state.tails.is_empty() || is_counted;
        if !is_used && self.service.feed().is_open() {
            self.service.open_feed(false);
            self.service.feed().clear();
        }
        is_used
    }
}

/// Returns the time of a line in a text for people: the time of day.
fn time_of_day(at: SystemTime) -> String {
    let stamp = crate::log::rfc_3339(at);
    stamp.get(11..23).unwrap_or_default().to_owned()
}
