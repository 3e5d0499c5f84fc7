//! Edits of responses to clients.

use forebay_rules::setting::BrowserTtl;
use forebay_rules::{Kind, Setting};
use forebay_semantics::Directives;
use http::header::{AGE, CACHE_CONTROL, EXPIRES};
use http::{HeaderValue, Response, StatusCode};

use super::{RequestRules, Values};
use crate::site::Site;

/// Source of a response, which decides the edits that apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// From storage.
    Stored,
    /// From the origin, or made by the cache.
    Other,
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Applies the edits of a response to a client.
pub(crate) fn finish<B>(
    rules: &RequestRules,
    site: &Site,
    response: &mut Response<B>,
    values: &Values<'_>,
    served: Served,
) {
    let set = &site.settings.rule_set;
    if set.is_empty() {
        return;
    }
    let status = response.status();
    let outcome = rules.response_outcome(site, status, response.headers());
    let kinds = [Kind::CacheResponse, Kind::BrowserTtl, Kind::ClientResponse];
    if !outcome.has_any(&kinds) {
        return;
    }
    let before = response.headers().clone();
    let values = Values { response: Some((status, &before)), ..*values };
    let headers = response.headers_mut();
    if served == Served::Stored {
        for edits in outcome.edits(Kind::CacheResponse) {
            // An edit that cannot be made is left out; it affects this response only.
            let _ = edits.apply(headers, &values);
        }
    }
    if let Some(Setting::BrowserTtl(ttl)) = outcome.last(Kind::BrowserTtl) {
        limit_browser(*ttl, status, headers);
    }
    for edits in outcome.edits(Kind::ClientResponse) {
        let _ = edits.apply(headers, &values);
    }
}

/// Sets the lifetime in the browser. It never weakens `private` or `no-store`, and errors keep what
/// they say.
fn limit_browser(ttl: BrowserTtl, status: StatusCode, headers: &mut http::HeaderMap) {
    let said = Directives::of_response(headers);
    if said.no_store || status.is_server_error() {
        return;
    }
    let value = match ttl {
        BrowserTtl::NoStore => NO_STORE,
        BrowserTtl::Fresh(ttl) => {
            let age = headers.get(AGE).and_then(|age| age.to_str().ok()?.parse::<u64>().ok());
            let seconds = ttl.as_secs().saturating_add(age.unwrap_or_default());
            let private = if said.private.is_some() { "private, " } else { "" };
            let Ok(value) = HeaderValue::try_from(format!("{private}max-age={seconds}")) else {
                return;
            };
            value
        }
    };
    headers.remove(EXPIRES);
    headers.insert(CACHE_CONTROL, value);
}
