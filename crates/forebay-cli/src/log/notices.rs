//! The last warnings, errors and purges, for the dashboard.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::Context;

/// Maximum number of notices that are kept.
const NOTICES_MAX: usize = 50;

/// Maximum length of a text, in bytes.
const TEXT_MAX: usize = 500;

/// End of the module path of messages about purges.
const PURGES: &str = "::admin::purge";

/// Message that an operator may need.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) at: SystemTime,
    pub(crate) level: &'static str,
    /// Message, and its fields as `name=value`.
    pub(crate) text: String,
}

/// The last notices.
#[derive(Debug, Default)]
pub(crate) struct Notices(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    notices: VecDeque<Notice>,
    /// Number of all notices since the start.
    total: u64,
}

impl Notices {
    fn add(&self, notice: Notice) {
        let mut kept = self.0.lock();
        if kept.notices.len() == NOTICES_MAX {
            kept.notices.pop_front();
        }
        kept.notices.push_back(notice);
        kept.total += 1;
    }

    /// Returns the number of all notices since the start.
    pub(crate) fn total(&self) -> u64 {
        self.0.lock().total
    }

    /// Returns the last notices, the newest first.
    pub(crate) fn last(&self) -> Vec<Notice> {
        self.0.lock().notices.iter().rev().cloned().collect()
    }
}

/// Keeps notices of the events it is given.
pub(super) struct Layer(Arc<Notices>);

impl Layer {
    pub(super) const fn new(notices: Arc<Notices>) -> Self {
        Self(notices)
    }
}

impl<S: Subscriber> tracing_subscriber::Layer<S> for Layer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let level = match *metadata.level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO if metadata.target().ends_with(PURGES) => "purge",
            _ => return,
        };
        let mut text = Text::default();
        event.record(&mut text);
        self.0.add(Notice { at: SystemTime::now(), level, text: text.whole() });
    }
}

/// Text of an event.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn whole(mut self) -> String {
        self.message.push_str(&self.fields);
        if self.message.len() > TEXT_MAX {
            let end = (0..=TEXT_MAX).rev().find(|at| self.message.is_char_boundary(*at));
            self.message.truncate(end.unwrap_or(0));
            self.message.push('…');
        }
        self.message
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let is_plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
        if is_plain {
            let _ = write!(self.fields, " {}={value}", field.name());
        } else {
            self.record_debug(field, &value);
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn the_last_warnings_and_purges_are_kept() {
        let notices = Arc::new(Notices::default());
        let subscriber = tracing_subscriber::registry().with(Layer::new(notices.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!("started");
            tracing::info!(target: "forebay::admin::purge", kind = "tag", "purge carried out");
            tracing::error!(error = "disk full", "write failed");
            for number in 0..NOTICES_MAX - 1 {
                tracing::warn!(number, "{}", "x".repeat(TEXT_MAX * 2));
            }
        });
        let last = notices.last();
        assert_eq!((notices.total(), last.len()), (NOTICES_MAX as u64 + 1, NOTICES_MAX));
        assert_eq!((last[0].level, last[0].text.len()), ("warning", TEXT_MAX + '…'.len_utf8()));
        let oldest = &last[NOTICES_MAX - 1];
        assert_eq!((oldest.level, &*oldest.text), ("error", "write failed error=\"disk full\""));
    }

    #[test]
    fn fields_follow_the_message() {
        let notices = Arc::new(Notices::default());
        let subscriber = tracing_subscriber::registry().with(Layer::new(notices.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target: "forebay::admin::purge", kind = "tag", id = 3, "purge carried out");
        });
        let last = notices.last();
        assert_eq!((last[0].level, &*last[0].text), ("purge", "purge carried out kind=tag id=3"));
    }
}
