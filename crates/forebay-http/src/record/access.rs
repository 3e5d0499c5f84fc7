//! Entry of the access log: a record, and what else is known of its request.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_semantics::{PeerAddress, Scheme};
use http::header::{AGE, CACHE_STATUS, HeaderMap, HeaderValue};
use http::{Method, Version};

use super::{CacheResult, End, Record, RequestId, RequestTrace};
use crate::client::peer::Peer;

/// Maximum length of a value in the access log, in bytes.
const VALUE_MAX: usize = 2 << 10;

/// Consumer of the access log.
pub trait AccessLog: Send + Sync {
    /// Writes a response that has just ended. It must not wait.
    fn write(&self, entry: &AccessEntry<'_>);
}

/// Response that has ended.
#[derive(Clone, Copy)]
pub struct AccessEntry<'a> {
    /// Id of the site; `-` for a request without one.
    pub site: &'a str,
    /// Status code.
    pub status: u16,
    /// Source of the response.
    pub cache: CacheResult,
    /// Code of the reason why the response is not a fresh hit.
    pub why: Option<&'static str>,
    /// End of the response.
    pub end: End,
    /// Bytes of the body that the connection took.
    pub bytes: u64,
    /// Time from the whole request head to the head of the response.
    pub head: Duration,
    /// Time from the whole request head to the end of the response.
    pub total: Duration,
    /// Fields of the request.
    pub request: &'a RequestFields,
}

impl fmt::Debug for AccessEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessEntry").field("site", &self.site).finish_non_exhaustive()
    }
}

impl<'a> AccessEntry<'a> {
    /// Returns the lower tier that had the response.
    #[must_use]
    pub fn tier(&self) -> Option<&'a str> {
        let is_stored = self.cache == CacheResult::Hit && self.why.is_some();
        self.request.outcome.detail.as_deref().filter(|_| is_stored)
    }

    pub(crate) fn of(
        record: &'a Record,
        request: &'a RequestFields,
        site: &'a str,
        total: Duration,
        end: End,
    ) -> Self {
        Self {
            site,
            status: record.status,
            cache: record.labels.cache,
            why: record.labels.why.map(forebay_core::Why::code),
            end,
            bytes: record.bytes,
            head: record.head.unwrap_or(total),
            total,
            request,
        }
    }
}

/// Facts about a request and its response for the access log alone. They are collected while it is
/// enabled.
#[derive(Clone, Debug)]
pub struct RequestFields {
    /// Id of the request, also on error pages and in warnings.
    pub id: RequestId,
    /// Request method; `-` if the message is not a valid request.
    pub method: Cow<'static, str>,
    /// Protocol version, such as `HTTP/1.1`; empty if the message is not a valid request.
    pub protocol: &'static str,
    /// Scheme, as far as trusted proxies tell.
    pub scheme: Scheme,
    /// Client, as far as trusted proxies tell.
    pub client: PeerAddress,
    /// Other end of the connection.
    pub peer: PeerAddress,
    /// Hash of the key; `None` if no entry was looked up. See [`key_hash`](super::key_hash).
    pub key: Option<u64>,
    /// Parameters of the member of this cache in `Cache-Status`, and the age of the response.
    pub outcome: Outcome,
    /// Trace, if requests are traced.
    pub(crate) trace: Option<Arc<RequestTrace>>,
    /// Values one after another, in one piece of memory.
    values: String,
    host: Span,
    target: Span,
    user_agent: Option<Span>,
    referer: Option<Span>,
}

/// Place of a value in [`RequestFields::values`]: start and end in bytes. Four values of
/// [`VALUE_MAX`] bytes fit.
type Span = (u16, u16);

/// Parts of the head of a valid request that the log shows.
pub(crate) struct LoggedHead<'a> {
    pub(crate) method: &'a Method,
    pub(crate) target: &'a str,
    pub(crate) version: Version,
    /// Value of `Host`, or the authority of the target; empty if there is none.
    pub(crate) host: &'a str,
    pub(crate) user_agent: Option<&'a [u8]>,
    pub(crate) referer: Option<&'a [u8]>,
}

/// Facts about a response from its own fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Remaining freshness lifetime in seconds.
    pub ttl: Option<i64>,
    /// Age in seconds.
    pub age: Option<u64>,
    /// Status code of the response of the origin.
    pub origin_status: Option<u16>,
    /// Time from the request to the origin to the head of its response, if this request caused it.
    pub origin_time: Option<Duration>,
    /// True if the fetch of another request answered this one.
    pub is_shared: bool,
    /// Detail of `Cache-Status`: the name of a lower tier, or a code.
    pub detail: Option<Box<str>>,
}

impl Outcome {
    /// Reads the fields of a response.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let age = headers.get(AGE).map(HeaderValue::as_bytes);
        let status = headers.get_all(CACHE_STATUS).iter().next_back();
        Self::of_lines(age, status.map(HeaderValue::as_bytes))
    }

    /// Reads `Age`, and the member of `Cache-Status` that this cache wrote.
    pub(crate) fn of_lines(age: Option<&[u8]>, status: Option<&[u8]>) -> Self {
        let text = |line| str::from_utf8(line).ok();
        let age = age.and_then(text).and_then(|age| age.parse().ok());
        Self { age, ..Self::of_status(status.and_then(text).unwrap_or_default()) }
    }

    /// Reads a member of `Cache-Status` that this cache wrote.
    pub(crate) fn of_status(status: &str) -> Self {
        let mut outcome = Self::default();
        for parameter in status.split("; ") {
            match parameter.split_once('=') {
                Some(("ttl", ttl)) => outcome.ttl = ttl.parse().ok(),
                Some(("fwd-status", status)) => outcome.origin_status = status.parse().ok(),
                Some(("detail", detail)) => outcome.detail = Some(detail.into()),
                None if parameter == "collapsed" => outcome.is_shared = true,
                _ => {}
            }
        }
        outcome
    }
}

impl RequestFields {
    /// Collects the facts about a request; `head` is `None` if the message is not a valid request.
    pub(crate) fn of(id: RequestId, peer: &Peer, head: Option<LoggedHead<'_>>) -> Box<Self> {
        let (mut method, mut protocol) = (Cow::Borrowed("-"), "");
        let (mut target, mut host) = ("-", "");
        let (mut user_agent, mut referer) = (None, None);
        if let Some(head) = head {
            (method, protocol) = (method_text(head.method), protocol_text(head.version));
            // User information may be a password.
            let at = head.host.bytes().rposition(|byte| byte == b'@');
            host = &head.host[at.map_or(0, |at| at + 1)..];
            target = head.target;
            (user_agent, referer) = (head.user_agent, head.referer);
        }
        let optional = |value: Option<&[u8]>| value.map_or(0, <[u8]>::len);
        let length = host.len() + target.len() + optional(user_agent) + optional(referer);
        let mut values = String::with_capacity(length.min(4 * VALUE_MAX));
        Box::new(Self {
            host: add_text(&mut values, host),
            target: add_text(&mut values, target),
            user_agent: user_agent.map(|value| add_value(&mut values, value)),
            referer: referer.map(|value| add_value(&mut values, value)),
            values,
            id,
            method,
            protocol,
            scheme: peer.scheme,
            client: peer.client,
            peer: peer.socket,
            key: None,
            outcome: Outcome::default(),
            trace: None,
        })
    }

    /// Returns the id of the trace, if it is recorded.
    #[must_use]
    pub fn trace_id(&self) -> Option<u128> {
        self.trace.as_ref()?.recorded_id()
    }

    /// Returns the value of `Host`, or the authority of the target, without user information; empty
    /// if there is none.
    #[must_use]
    pub fn host(&self) -> &str {
        self.value(self.host)
    }

    /// Returns the request target; `-` if the message is not a valid request.
    #[must_use]
    pub fn target(&self) -> &str {
        self.value(self.target)
    }

    /// Returns the value of `User-Agent`.
    #[must_use]
    pub fn user_agent(&self) -> Option<&str> {
        Some(self.value(self.user_agent?))
    }

    /// Returns the value of `Referer`.
    #[must_use]
    pub fn referer(&self) -> Option<&str> {
        Some(self.value(self.referer?))
    }

    /// Returns the memory of the facts in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.values.capacity() + self.method.len()
    }

    fn value(&self, (start, end): Span) -> &str {
        &self.values[usize::from(start)..usize::from(end)]
    }
}

/// Adds a text of at most [`VALUE_MAX`] bytes, and returns its place.
fn add_text(values: &mut String, text: &str) -> Span {
    let place = |values: &String| u16::try_from(values.len()).unwrap_or(u16::MAX);
    let start = place(values);
    values.push_str(&text[..text.floor_char_boundary(VALUE_MAX)]);
    (start, place(values))
}

fn add_value(values: &mut String, value: &[u8]) -> Span {
    match str::from_utf8(value) {
        Ok(text) => add_text(values, text),
        Err(_) => add_text(values, &String::from_utf8_lossy(value)),
    }
}

fn method_text(method: &Method) -> Cow<'static, str> {
    match method {
        // The two most frequent methods need no memory.
        method if *method == Method::GET => Cow::Borrowed("GET"),
        method if *method == Method::HEAD => Cow::Borrowed("HEAD"),
        method => {
            let name = method.as_str();
            Cow::Owned(name[..name.len().min(VALUE_MAX)].to_owned())
        }
    }
}

const fn protocol_text(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_has_the_parameters_of_cache_status() {
        let outcome = |status| Outcome::of_status(status);
        let hit = Outcome { ttl: Some(-4), detail: Some("disk".into()), ..Outcome::default() };
        assert_eq!(outcome("forebay; hit; ttl=-4; detail=disk"), hit);
        let fetched = Outcome { ttl: Some(60), origin_status: Some(200), ..Outcome::default() };
        assert_eq!(outcome("forebay; fwd=uri-miss; fwd-status=200; stored; ttl=60"), fetched);
        let shared = Outcome { is_shared: true, ..Outcome::default() };
        assert_eq!(outcome("forebay; fwd=uri-miss; collapsed"), shared);
        assert_eq!(outcome(""), Outcome::default());
    }
}
