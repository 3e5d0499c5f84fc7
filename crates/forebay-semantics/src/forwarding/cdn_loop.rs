//! Detection of request loops (`CDN-Loop`, RFC 8586).

use http::header::{HeaderName, HeaderValue};

use crate::fields::{FieldLines, FieldSink, tokens};
use crate::forwarding::hop::PSEUDONYM;

const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");

/// Marker of the requests of one process for one site. A site may forward to another site of the
/// same process, but a request that comes back to its own site would never be answered: it would
/// wait for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopMarker(HeaderValue);

impl LoopMarker {
    /// Returns the marker with this number, which differs between processes and sites.
    #[must_use]
    pub fn new(id: u64) -> Self {
        let text = format!("{PSEUDONYM}; id={id:016x}");
        // Only letters, digits and punctuation, hence valid.
        Self(HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(PSEUDONYM)))
    }
}

/// Adds the marker to a request to an origin. Markers of other caches are kept (RFC 8586 section 2).
pub fn add(fields: &mut impl FieldSink, marker: &LoopMarker) {
    fields.add(&CDN_LOOP, &marker.0);
}

/// Returns `true` if the request carries the marker, so that this process has sent it for this site
/// before.
#[must_use]
pub fn has_passed(headers: &impl FieldLines, marker: &LoopMarker) -> bool {
    tokens(headers, &CDN_LOOP).any(|member| member == marker.0.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::headers;

    #[test]
    fn a_request_that_comes_back_to_its_site_is_recognised() {
        let own = LoopMarker::new(7);
        let mut request = headers(&["cdn-loop: cdn.example; abc=\"123\"", "cdn-loop: forebay"]);
        assert!(!has_passed(&request, &own));
        for other in [LoopMarker::new(8), LoopMarker::new(u64::MAX)] {
            assert_ne!(own, other);
            add(&mut request, &other);
        }
        assert!(!has_passed(&request, &own));
        add(&mut request, &own);
        assert!(has_passed(&request, &own));
        // Another cache may have joined the lines.
        let lines: Vec<_> = request.get_all(CDN_LOOP).iter().map(|v| v.to_str().unwrap()).collect();
        let joined = headers(&[&format!("cdn-loop: {}", lines.join(",  "))]);
        assert!(has_passed(&joined, &own));
    }
}
