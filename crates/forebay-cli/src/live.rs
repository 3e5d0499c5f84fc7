//! Live views of the responses: `tail` and `top`.
//!
//! Responses come over the feed, which is open while a client listens. One task empties its rings,
//! evaluates expressions and counts; no worker thread does.

mod expression;
mod space_saving;
mod tail;
mod top;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use clap::ValueEnum;
use forebay_http::Service;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::log::Log;
use crate::log::access::{Format, Line};
use expression::Expression;
use tail::Tail;
use top::Top;
pub(crate) use top::{LISTS, TopReport};

/// Interval at which the rings are emptied: 4,096 responses in each allow 80,000 a second.
const DRAIN_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of tails at the same time.
const TAILS_MAX: usize = 16;

/// Time for which `top` counts after it was asked last.
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
}

#[derive(Default)]
struct State {
    tails: Vec<Tail>,
    top: Option<Top>,
    /// Time at which `top` was asked last.
    top_asked: Option<Instant>,
    /// True while a task empties the rings.
    is_running: bool,
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
        Arc::new(Self { service, log, state: Mutex::default() })
    }

    /// Starts a tail of the responses that an expression selects, as server-sent events.
    ///
    /// # Errors
    /// If the expression is malformed, or there are too many tails.
    pub(crate) fn tail(
        self: &Arc<Self>,
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
        self.run(&mut state);
        Ok(receiver)
    }

    /// Returns the lists of the last one to two minutes, and keeps them for another minute.
    pub(crate) fn top(self: &Arc<Self>, rows_max: usize) -> TopReport {
        let mut state = self.state.lock();
        state.top_asked = Some(Instant::now());
        let report = state.top.get_or_insert_with(Top::new).report(rows_max);
        self.run(&mut state);
        TopReport { dropped: self.service.feed().dropped(), ..report }
    }

    /// Opens the feed, and starts the task that empties it, unless it runs.
    fn run(self: &Arc<Self>, state: &mut State) {
        if state.is_running {
            return;
        }
        state.is_running = true;
        self.service.open_feed(true);
        let live = self.clone();
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(DRAIN_INTERVAL);
            loop {
                ticks.tick().await;
                if !live.drain() {
                    break;
                }
            }
        });
    }

    /// Empties the rings once. Returns false if no client listens any more.
    fn drain(&self) -> bool {
        let entries = self.service.feed().drain();
        let mut state = self.state.lock();
        state.tails.retain(Tail::is_open);
        if state.top_asked.is_none_or(|asked| asked.elapsed() > TOP_KEPT) {
            (state.top, state.top_asked) = (None, None);
        }
        let (now, redaction) = (Instant::now(), self.log.redaction());
        for entry in &entries {
            let access = entry.access();
            let (at, redaction) = (entry.at, &*redaction);
            let line = Line { entry: &access, at, redaction, sample: None };
            let fields = line.fields();
            state.tails.iter_mut().for_each(|tail| tail.add(&line, &fields, now));
            if let Some(top) = &mut state.top {
                top.add(&access, redaction, now);
            }
        }
        state.tails.iter_mut().for_each(Tail::flush);
        let is_used = !state.tails.is_empty() || state.top.is_some();
        if !is_used {
            state.is_running = false;
            self.service.open_feed(false);
            drop(self.service.feed().drain());
        }
        is_used
    }
}

/// Returns the time of a line in a text for people: the time of day.
fn time_of_day(at: SystemTime) -> String {
    let stamp = crate::log::rfc_3339(at);
    stamp.get(11..23).unwrap_or_default().to_owned()
}
