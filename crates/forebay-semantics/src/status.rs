//! `Cache-Status` field (RFC 9211).

use forebay_core::Why;
use http::header::{CACHE_STATUS, HeaderMap, HeaderValue};
use smallvec::SmallVec;

use crate::forwarding::hop::PSEUDONYM;

/// Inline capacity in bytes of a rendered `Cache-Status` value, enough for the longest one that
/// forebay makes.
pub const VALUE_USUAL: usize = 128;

/// Parameters of this cache's member of a `Cache-Status` field (RFC 9211).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus {
    /// Result of the request; `hit` and `fwd` exclude each other (RFC 9211 sections 2.1 and 2.2),
    /// hence one field.
    pub handling: Handling,
    /// Remaining freshness lifetime of the response in seconds, negative for a stale response (RFC
    /// 9211 section 2.4); `None` omits it.
    pub ttl: Option<i64>,
    /// Additional token that explains the handling (RFC 9211 section 2.8); `None` omits it.
    pub detail: Option<&'static str>,
}

/// Result of a request: its response came from the store (`hit`), or did not (`fwd`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// The response comes from the store, memory or a lower tier.
    Hit,
    /// The response does not come from the store: it is that of the origin, or was made by this
    /// cache.
    Forward(Forward),
}

/// Parameters of a request that was not answered from the store (RFC 9211 sections 2.2 to 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Reason why the request was not answered from the store (RFC 9211 section 2.2).
    pub why: Why,
    /// Status code of the origin's response (RFC 9211 section 2.3); `None` omits it.
    pub status: Option<u16>,
    /// True if the response was stored (RFC 9211 section 2.5).
    pub stored: bool,
    /// True if the request shared the load of another request or instance (RFC 9211 section 2.6).
    /// It is false for the request that started the load.
    pub collapsed: bool,
}

impl CacheStatus {
    /// Creates the status of a response from the store.
    #[must_use]
    pub const fn hit(ttl: i64) -> Self {
        Self { handling: Handling::Hit, ttl: Some(ttl), detail: None }
    }

    /// Creates the status of a response from the store despite a reason against it, such as a
    /// failed load; the code of the reason becomes the detail.
    #[must_use]
    pub const fn hit_despite(why: Why, ttl: i64) -> Self {
        Self { handling: Handling::Hit, ttl: Some(ttl), detail: Some(why.code()) }
    }

    /// Creates the status of a forwarded request. The code of `why` becomes the detail if it
    /// differs from the registered `fwd` value.
    #[must_use]
    pub fn forward(why: Why) -> Self {
        let forward = Forward { why, status: None, stored: false, collapsed: false };
        let code = why.code();
        let detail = (code != forward_reason(why)).then_some(code);
        Self { handling: Handling::Forward(forward), ttl: None, detail }
    }

    /// Returns this cache's member as a `Cache-Status` field value, such as `forebay; hit; ttl=5`.
    #[must_use]
    pub fn to_value(&self) -> HeaderValue {
        // The fallback applies only to a detail that is not a token.
        HeaderValue::from_bytes(&self.to_bytes()).unwrap_or(HeaderValue::from_static(PSEUDONYM))
    }

    /// Returns the bytes of this cache's member of `Cache-Status`.
    #[must_use]
    pub fn to_bytes(&self) -> SmallVec<[u8; VALUE_USUAL]> {
        let mut text: SmallVec<[u8; VALUE_USUAL]> = SmallVec::new();
        text.extend_from_slice(PSEUDONYM.as_bytes());
        match self.handling {
            Handling::Hit => text.extend_from_slice(b"; hit"),
            Handling::Forward(forward) => forward.write(&mut text),
        }
        if let Some(ttl) = self.ttl {
            text.extend_from_slice(b"; ttl=");
            text.extend_from_slice(itoa::Buffer::new().format(ttl).as_bytes());
        }
        if let Some(detail) = self.detail {
            text.extend_from_slice(b"; detail=");
            text.extend_from_slice(detail.as_bytes());
        }
        text
    }

    /// Appends the member of this cache to `Cache-Status`, after those of caches nearer to the
    /// origin (RFC 9211 section 2).
    pub fn append_to(&self, headers: &mut HeaderMap) {
        headers.append(CACHE_STATUS, self.to_value());
    }
}

impl Forward {
    fn write(&self, text: &mut SmallVec<[u8; VALUE_USUAL]>) {
        text.extend_from_slice(b"; fwd=");
        text.extend_from_slice(forward_reason(self.why).as_bytes());
        if let Some(status) = self.status {
            text.extend_from_slice(b"; fwd-status=");
            text.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
        }
        if self.stored {
            text.extend_from_slice(b"; stored");
        }
        if self.collapsed {
            text.extend_from_slice(b"; collapsed");
        }
    }
}

/// Returns the registered `fwd` value for a reason (RFC 9211 section 2.2).
#[must_use]
pub const fn forward_reason(why: Why) -> &'static str {
    match why {
        Why::UriMiss => "uri-miss",
        Why::VaryMiss => "vary-miss",
        Why::Stale
        | Why::EarlyRefresh
        | Why::SoftPurged
        | Why::LoadFailed
        | Why::SoftTimeout
        | Why::BackOff => "stale",
        Why::RequestRevalidate
        | Why::RequestMaxAge
        | Why::RequestMinFresh
        | Why::RequestNoStore => "request",
        Why::PassMarked | Why::Bypass | Why::Rule => "bypass",
        Why::Method => "method",
        Why::Partial => "partial",
        // A purged entry and one of another client match no request. The distinction between
        // `uri-miss` and `vary-miss` is unknown for them.
        _ => "miss",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(status: CacheStatus) -> String {
        status.to_value().to_str().unwrap().to_owned()
    }

    #[test]
    fn hits_have_the_remaining_freshness_as_ttl() {
        assert_eq!(text(CacheStatus::hit(42)), "forebay; hit; ttl=42");
        assert_eq!(text(CacheStatus::hit(0)), "forebay; hit; ttl=0");
        assert_eq!(text(CacheStatus::hit(i64::MAX)), "forebay; hit; ttl=9223372036854775807");
        assert_eq!(text(CacheStatus::hit(i64::MIN)), "forebay; hit; ttl=-9223372036854775808");
        let stale = CacheStatus::hit_despite(Why::LoadFailed, -7);
        assert_eq!(text(stale), "forebay; hit; ttl=-7; detail=load-failed");
        let early = CacheStatus::hit_despite(Why::EarlyRefresh, 1);
        assert_eq!(text(early), "forebay; hit; ttl=1; detail=early-refresh");
    }

    #[test]
    fn forwarded_requests_have_reason_status_and_storage() {
        let forward = |why, status, stored, collapsed| {
            Handling::Forward(Forward { why, status, stored, collapsed })
        };
        let miss = CacheStatus {
            handling: forward(Why::UriMiss, Some(200), true, false),
            ttl: Some(60),
            detail: None,
        };
        assert_eq!(text(miss), "forebay; fwd=uri-miss; fwd-status=200; stored; ttl=60");
        let early = CacheStatus {
            handling: forward(Why::EarlyRefresh, None, false, true),
            ..CacheStatus::forward(Why::EarlyRefresh)
        };
        assert_eq!(text(early), "forebay; fwd=stale; collapsed; detail=early-refresh");
        let refused =
            CacheStatus { detail: Some("set-cookie"), ..CacheStatus::forward(Why::Stale) };
        assert_eq!(text(refused), "forebay; fwd=stale; detail=set-cookie");
        let broken = CacheStatus { detail: Some("a\nb"), ..CacheStatus::hit(1) };
        assert_eq!(text(broken), "forebay");
    }

    #[test]
    fn every_reason_has_a_registered_value_and_a_detail_where_it_is_finer() {
        // RFC 9211 section 2.2.
        let registered =
            ["bypass", "method", "uri-miss", "vary-miss", "miss", "request", "stale", "partial"];
        for why in Why::ALL {
            let reason = forward_reason(why);
            assert!(registered.contains(&reason), "{why:?}");
            let detail = CacheStatus::forward(why).detail;
            assert_eq!(detail, (reason != why.code()).then_some(why.code()));
            assert!(text(CacheStatus::forward(why)).len() <= VALUE_USUAL);
        }
        let rows = [
            (Why::Stale, "forebay; fwd=stale"),
            (Why::Method, "forebay; fwd=method"),
            (Why::Purged, "forebay; fwd=miss; detail=purged"),
            (Why::NotShareable, "forebay; fwd=miss; detail=not-shareable"),
            (Why::PassMarked, "forebay; fwd=bypass; detail=pass-marked"),
            (Why::RequestMaxAge, "forebay; fwd=request; detail=request-max-age"),
        ];
        for (why, expected) in rows {
            assert_eq!(text(CacheStatus::forward(why)), expected);
        }
    }

    #[test]
    fn the_member_follows_those_of_caches_nearer_to_the_origin() {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_STATUS, HeaderValue::from_static("other; hit"));
        CacheStatus::hit(1).append_to(&mut headers);
        let lines: Vec<_> = headers.get_all(CACHE_STATUS).into_iter().collect();
        assert_eq!(lines, ["other; hit", "forebay; hit; ttl=1"]);
    }
}
