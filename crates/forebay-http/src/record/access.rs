//! Entry of the access log: a record, and what else is known of its request.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_semantics::{FieldLines, PeerAddress, Scheme};
use http::header::{AGE, CACHE_STATUS, HeaderMap, REFERER, USER_AGENT};
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
    /// Value of `Host`, or the authority of the target; empty if there is none.
    pub host: Box<str>,
    /// Request method; `-` if the message is not a valid request.
    pub method: Cow<'static, str>,
    /// Request target; `-` if the message is not a valid request.
    pub target: Box<str>,
    /// Protocol version, such as `HTTP/1.1`; empty if the message is not a valid request.
    pub protocol: &'static str,
    /// Scheme, as far as trusted proxies tell.
    pub scheme: Scheme,
    /// Client, as far as trusted proxies tell.
    pub client: PeerAddress,
    /// Other end of the connection.
    pub peer: PeerAddress,
    /// Value of `User-Agent`.
    pub user_agent: Option<Box<str>>,
    /// Value of `Referer`.
    pub referer: Option<Box<str>>,
    /// Hash of the key; `None` if no entry was looked up. See [`key_hash`](super::key_hash).
    pub key: Option<u64>,
    /// Parameters of the member of this cache in `Cache-Status`, and the age of the response.
    pub outcome: Outcome,
    /// Trace, if requests are traced.
    pub(crate) trace: Option<Arc<RequestTrace>>,
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
        let age = headers.get(AGE).and_then(|age| age.to_str().ok()?.parse().ok());
        let status = headers.get_all(CACHE_STATUS).iter().next_back();
        let status = status.and_then(|status| status.to_str().ok()).unwrap_or_default();
        Self { age, ..Self::of_status(status) }
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
    /// Collects the facts about a request.
    pub(crate) fn of(id: RequestId, peer: &Peer, headers: &impl FieldLines) -> Self {
        let value = |name| headers.lines(name).next().map(text);
        Self {
            id,
            host: Box::default(),
            method: "-".into(),
            target: "-".into(),
            protocol: "",
            scheme: peer.scheme,
            client: peer.client,
            peer: peer.socket,
            user_agent: value(&USER_AGENT),
            referer: value(&REFERER),
            key: None,
            outcome: Outcome::default(),
            trace: None,
        }
    }

    /// Returns the id of the trace, if it is recorded.
    #[must_use]
    pub fn trace_id(&self) -> Option<u128> {
        self.trace.as_ref()?.recorded_id()
    }

    /// Adds the request line and the host, without user information, which may be a password.
    pub(crate) fn with_line(
        self,
        method: &Method,
        target: &str,
        version: Version,
        host: &[u8],
    ) -> Self {
        let protocol = match version {
            Version::HTTP_2 => "HTTP/2",
            Version::HTTP_10 => "HTTP/1.0",
            _ => "HTTP/1.1",
        };
        let host = host.rsplit(|byte| *byte == b'@').next().unwrap_or_default();
        let method = match method {
            // The two most frequent methods need no memory.
            method if *method == Method::GET => Cow::Borrowed("GET"),
            method if *method == Method::HEAD => Cow::Borrowed("HEAD"),
            method => Cow::Owned(text(method.as_str().as_bytes()).into()),
        };
        Self { method, target: text(target.as_bytes()), protocol, host: text(host), ..self }
    }
}

/// Returns a value of at most [`VALUE_MAX`] bytes.
fn text(value: &[u8]) -> Box<str> {
    String::from_utf8_lossy(&value[..value.len().min(VALUE_MAX)]).into()
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
