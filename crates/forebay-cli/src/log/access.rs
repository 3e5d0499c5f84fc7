//! Access log: one line per response, written when the response ends.

mod combined;
mod fields;
mod redact;
mod time;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::time::SystemTime;

use forebay_http::{AccessEntry, AccessLog, CacheResult, End, RequestId};

use super::queue::LogQueue;

pub(crate) use fields::{Field, FieldValue};
pub(super) use fields::{FieldOutput, JsonObject, LogfmtPairs};
pub(crate) use redact::Redaction;
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

/// Response of which a line tells.
pub(crate) struct Line<'a> {
    pub(crate) entry: &'a AccessEntry<'a>,
    /// Time of its end.
    pub(crate) at: SystemTime,
    pub(crate) redaction: &'a Redaction,
    /// Share of responses like this one that have a line, if not all have.
    pub(crate) sample: Option<f64>,
}

/// Access log that adds its lines to a queue.
pub(super) struct AccessLines {
    pub(super) queue: LogQueue,
    /// Format for sites that are not in `sites`; `None` means no log.
    pub(super) format: Option<Format>,
    /// Formats of the sites that have one of their own, by id.
    pub(super) sites: HashMap<String, Option<Format>>,
    pub(super) sample_hits: f64,
    pub(super) redaction: Arc<Redaction>,
}

thread_local! {
    /// Line that is being written.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl AccessLines {
    /// Returns the share of responses like this one that are logged.
    fn share(&self, entry: &AccessEntry<'_>) -> f64 {
        let is_plain = entry.cache == CacheResult::Hit && entry.why.is_none();
        if is_plain && entry.end == End::Complete { self.sample_hits } else { 1.0 }
    }
}

impl AccessLog for AccessLines {
    fn write(&self, entry: &AccessEntry<'_>) {
        let Some(format) = self.sites.get(entry.site).copied().unwrap_or(self.format) else {
            return;
        };
        let share = self.share(entry);
        if !is_sampled(entry.request.id, share) {
            return;
        }
        LINE.with_borrow_mut(|line| {
            line.clear();
            let sample = (share < 1.0).then_some(share);
            let redaction = &self.redaction;
            Line { entry, at: SystemTime::now(), redaction, sample }.write(format, line);
            line.push(b'\n');
            // The queue counts a line that it has no space for.
            let _ = (&self.queue).write_all(line);
        });
    }
}

/// Returns `true` for a share of all requests, which their ids select.
fn is_sampled(id: RequestId, share: f64) -> bool {
    // 53 bits, which a float has; the multiplication mixes ids that count.
    let mixed = id.number().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
    share >= 1.0 || (mixed as f64) < share * (1_u64 << 53) as f64
}

impl Line<'_> {
    /// Appends the line, without the line ending.
    pub(crate) fn write(&self, format: Format, line: &mut Vec<u8>) {
        match format {
            Format::Common => combined::write(self, false, line),
            Format::Combined => combined::write(self, true, line),
            Format::Logfmt => self.each_field(&mut LogfmtPairs::begin(line)),
            Format::Json => {
                let mut object = JsonObject::begin(line);
                self.each_field(&mut object);
                object.end();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_ids_is_sampled() {
        let sampled =
            |share| (0..100_000).filter(|id| is_sampled(RequestId::new(*id), share)).count();
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 100_000));
        let tenth = sampled(0.1);
        assert!((9_700..10_300).contains(&tenth), "{tenth}");
    }
}
