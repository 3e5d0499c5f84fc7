//! Access log: one line per response, written when the response ends.

mod combined;
mod fields;
mod redact;
mod time;

use std::cell::RefCell;
use std::io::Write;
use std::time::SystemTime;

use forebay_http::{AccessEntry, AccessLog};
use serde_json::Value;

use super::queue::LogQueue;
use fields::Fields;

pub(crate) use redact::target as redacted_target;
pub(crate) use time::rfc_3339;

/// Format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Common log format.
    Common,
    /// Common log format, with `Referer` and `User-Agent`.
    Combined,
    /// `name=value` pairs.
    Logfmt,
    /// JSON object.
    Json,
}

/// Access log that adds its lines to a queue.
pub(super) struct AccessLines {
    pub(super) queue: LogQueue,
    pub(super) format: Format,
}

thread_local! {
    /// Line that is being written.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl AccessLog for AccessLines {
    fn write(&self, entry: &AccessEntry<'_>) {
        LINE.with_borrow_mut(|line| {
            line.clear();
            self.format.write(entry, SystemTime::now(), line);
            line.push(b'\n');
            // The queue counts a line that it has no space for.
            let _ = (&self.queue).write_all(line);
        });
    }
}

/// Returns the fields of a response that ended at `now`, as the access log has them.
pub(crate) fn fields(entry: &AccessEntry<'_>, now: SystemTime) -> Vec<(&'static str, Value)> {
    let mut all = Vec::new();
    Fields { entry, now }.each(|name, value| all.push((name, value)));
    all
}

impl Format {
    /// Appends the line of a response that ended at `now`, without the line ending.
    pub(crate) fn write(self, entry: &AccessEntry<'_>, now: SystemTime, line: &mut Vec<u8>) {
        match self {
            Self::Common => combined::write(entry, now, false, line),
            Self::Combined => combined::write(entry, now, true, line),
            Self::Logfmt => fields::write_logfmt(&Fields { entry, now }, line),
            Self::Json => fields::write_json(&Fields { entry, now }, line),
        }
    }
}
