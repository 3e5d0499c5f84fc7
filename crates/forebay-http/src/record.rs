//! Record of a response, made when the response ends.
//!
//! A response ends when the client connection has taken its last byte, or when either side gave up.
//! The counters, the histograms and the access log are all fed from the record, so their numbers
//! agree. This folder has the data alone; [`Recorder`] is implemented by the service.

mod access;
pub(crate) mod decisions;
mod feed;
mod labels;
pub(crate) mod loads;
mod open;
mod samples;
pub(crate) mod thread_number;
mod trace;

use std::fmt;
use std::time::Duration;

use forebay_core::{KeyRef, Why};
use http::{Method, StatusCode};

pub(crate) use access::LoggedHead;
pub use access::{AccessEntry, AccessLog, Outcome, RequestFields};
pub use feed::{Feed, FeedEntry};
pub use labels::{CacheResult, End, MethodLabel};
pub(crate) use loads::EndedLoad;
pub use loads::{LoadEntry, LoadFeed};
pub(crate) use open::{ConnectionEnd, OpenRecord, Recorder};
pub use samples::{KeySample, KeySamples};
pub use trace::{
    LoadExchange, LoadSpan, RequestSpan, SpanExporter, TierEvent, TraceSettings, Tracer,
};
pub(crate) use trace::{LoadTrace, RequestTrace};

/// False in builds that measure what records cost: responses are neither timed, counted nor sampled.
pub const IS_RECORDED: bool = !cfg!(feature = "unrecorded");

/// Returns the hash of a key by which logs name it.
#[must_use]
pub fn key_hash(key: KeyRef<'_>) -> u64 {
    decisions::hash(key)
}

/// Extension of the response of a hit, if the access log may need it: the hash of the key.
#[derive(Clone, Copy)]
pub(crate) struct KeyHash(pub(crate) u64);

/// Field with the ids of a trace and of a span (W3C Trace Context).
pub(crate) const TRACEPARENT: &str = "traceparent";

/// Number of a site in the metrics. The same id has the same number for the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteSlot(pub(crate) u16);

impl SiteSlot {
    /// Requests that match no site; their label is `-`.
    pub(crate) const NONE: Self = Self(0);
    /// Sites above the maximum number of labels; their label is `other`.
    pub(crate) const OTHER: Self = Self(1);
}

/// Id of a request, shown as 16 hexadecimal digits: in the logs, on error pages and to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(pub(crate) u64);

impl RequestId {
    /// Creates an id from its number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the id as text.
    #[must_use]
    pub fn digits(self) -> [u8; 16] {
        hexadecimal(self.0)
    }
}

/// Both hexadecimal digits of each byte.
const DIGITS: [[u8; 2]; 256] = {
    let (digits, mut pairs, mut byte) = (b"0123456789abcdef", [[0; 2]; 256], 0);
    while byte < pairs.len() {
        pairs[byte] = [digits[byte >> 4], digits[byte & 0xf]];
        byte += 1;
    }
    pairs
};

/// Returns the 16 hexadecimal digits of a number.
#[must_use]
pub fn hexadecimal(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    for (pair, byte) in digits.as_chunks_mut().0.iter_mut().zip(number.to_be_bytes()) {
        *pair = DIGITS[usize::from(byte)];
    }
    digits
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

/// Labels of a response that are known when its head is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labels {
    /// Site of the request.
    pub(crate) site: SiteSlot,
    /// Source of the response.
    pub(crate) cache: CacheResult,
    /// Reason why the response is not a fresh hit, if it is not and the request was cacheable.
    pub(crate) why: Option<Why>,
}

impl Labels {
    /// Labels of a response to a request that was rejected before it had a site.
    pub(crate) const REFUSED: Self = Self::of(SiteSlot::NONE, CacheResult::Refused);

    pub(crate) const fn of(site: SiteSlot, cache: CacheResult) -> Self {
        Self { site, cache, why: None }
    }
}

/// Durations of a response besides its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Time from the request to the origin to the head of its response, if this request caused it.
    pub(crate) origin: Option<Duration>,
    /// True if the client gets durations in `Server-Timing`.
    pub(crate) is_sent: bool,
}

/// Record of one response.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) labels: Labels,
    pub(crate) method: MethodLabel,
    pub(crate) status: u16,
    /// Time at which the whole request head was there, on the clock of the engine.
    pub(crate) begun: Duration,
    /// Time from `begun` to the head of the response; `None` until the record ends, if the head is
    /// written together with the last byte.
    pub(crate) head: Option<Duration>,
    /// Bytes of the body that the connection took.
    pub(crate) bytes: u64,
    /// Further facts, if the access log is enabled.
    pub(crate) access: Option<Box<RequestFields>>,
}

impl Record {
    /// Starts the record of a response to the request that was there at `begun`.
    pub(crate) fn new(
        labels: Labels,
        method: &Method,
        status: StatusCode,
        begun: Duration,
    ) -> Self {
        let method = MethodLabel::of(method);
        Self { labels, method, status: status.as_u16(), begun, head: None, bytes: 0, access: None }
    }

    /// Starts the record of a response to bytes that are not a valid request.
    pub(crate) fn rejected(status: StatusCode, begun: Duration) -> Self {
        let (labels, method) = (Labels::REFUSED, MethodLabel::UNKNOWN);
        let head = Some(Duration::ZERO);
        Self { labels, method, status: status.as_u16(), begun, head, bytes: 0, access: None }
    }

    /// Returns `true` if the response has no body, whatever its fields say (RFC 9110 section 6.4.1).
    pub(crate) fn is_without_body(&self) -> bool {
        self.method == MethodLabel::HEAD || matches!(self.status, 100..200 | 204 | 304)
    }
}
