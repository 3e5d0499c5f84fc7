//! Cuts of JSON bodies by rules, before they are stored or passed on.

use forebay_engine::LoadError;
use forebay_rules::Kind;
use forebay_rules::json::{JsonCut, OnError, cut};
use forebay_semantics::storable::Unstorable;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName,
};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::Body as _;

use super::ClientRequest;
use crate::metrics::rules::RuleError;
use crate::origin::OriginBody;

/// Fields with a digest of the body.
const DIGESTS: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];

/// Error for a body that cannot be cut.
const NOT_CUT: &str = "the JSON body of the response cannot be cut as a rule requires: it is longer \
                       than json.max, coded, a part, or no JSON";

impl ClientRequest {
    /// Cuts the body of a response of the origin, if rules require it, and adapts its fields.
    ///
    /// # Errors
    /// If the body cannot be cut, and the rule does not permit to pass it on.
    pub(crate) async fn cut_json(
        &self,
        parts: &mut Parts,
        mut body: OriginBody,
    ) -> Result<OriginBody, LoadError> {
        if !self.rules.may_cut_json(&self.site) {
            return Ok(body);
        }
        let outcome = self.rules.response_outcome(&self.site, parts.status, &parts.headers);
        let cuts: Vec<&JsonCut> = outcome.json_cuts().collect();
        let is_json_or_update = parts.status == StatusCode::NOT_MODIFIED || is_json(&parts.headers);
        if cuts.is_empty() || !is_json_or_update {
            return Ok(body);
        }
        if body.is_end_stream() {
            describe(&mut parts.headers, None);
            return Ok(body);
        }
        let most = cuts.iter().map(|cut| cut.max).min().unwrap_or_default();
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        let is_whole = parts.status != StatusCode::PARTIAL_CONTENT && !is_coded(&parts.headers);
        let read = if is_whole && announced <= most {
            body.read_whole(most).await.map_err(LoadError::origin)?
        } else {
            None
        };
        if let Some(left) = read.as_ref().and_then(|bytes| cut(bytes, &cuts).ok()) {
            describe(&mut parts.headers, Some(left.len()));
            body.put_before(left.into());
            return Ok(body);
        }
        if let Some(bytes) = read {
            body.put_before(bytes);
        }
        self.changes.refuse(Unstorable::EditFailed);
        for rule in outcome.numbers(Kind::Json) {
            self.rules.count_error(&self.site, rule, RuleError::Json);
        }
        if cuts.iter().any(|cut| cut.on_error == OnError::Fail) {
            return Err(LoadError::origin(NOT_CUT));
        }
        Ok(body)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let kind = kind.to_ascii_lowercase();
    kind == b"application/json" || kind == b"text/json" || kind.ends_with(b"+json")
}

fn is_coded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|value| value.as_bytes() != b"identity")
}

/// Lets the fields describe the new body. The bytes differ from those of the origin, so that its
/// validator is weak (RFC 9110 section 8.8.1), and its digests and ranges do not apply.
fn describe(headers: &mut HeaderMap, length: Option<usize>) {
    for name in DIGESTS {
        headers.remove(HeaderName::from_static(name));
    }
    headers.remove(ACCEPT_RANGES);
    match length {
        Some(length) => {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        // The length of the origin's body in a response without one (HEAD, 304).
        None => {
            headers.remove(CONTENT_LENGTH);
        }
    }
    if let Some(tag) = headers.get(ETAG)
        && tag.as_bytes().starts_with(b"\"")
        && let Ok(weak) = HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat())
    {
        headers.insert(ETAG, weak);
    }
}
