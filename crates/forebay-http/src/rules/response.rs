//! Edits of responses to clients.

use bytes::Bytes;
use forebay_rules::setting::BrowserTtl;
use forebay_rules::{Kind, Setting};
use forebay_semantics::{Directives, Selects, product_fields, selects};
use http::header::{AGE, CACHE_CONTROL, EXPIRES, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::{RequestRules, Values};
use crate::metrics::rules::RuleError;
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
pub(crate) fn finish<B: From<Bytes>>(
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
    if !rules.is_unsafe {
        name_keyed_fields(rules, site, response.headers_mut());
    }
    let outcome = rules.response_outcome(site, status, response.headers());
    if outcome.has_any(&[Kind::TargetedFields]) {
        // It is the form in which fields of other products are stored.
        response.headers_mut().remove(product_fields::CDN_CACHE_CONTROL);
    }
    let kinds = [Kind::CacheResponse, Kind::BrowserTtl, Kind::ClientResponse];
    if !outcome.has_any(&kinds) {
        return;
    }
    let before = response.headers().clone();
    let values = Values { response: Some((status, &before)), ..*values };
    let headers = response.headers_mut();
    if served == Served::Stored {
        for (rule, edits) in outcome.edits(Kind::CacheResponse) {
            // An edit that cannot be made is left out; it affects this response only.
            if edits.apply(headers, &values).is_err() {
                rules.count_error(site, rule, RuleError::Value);
            }
        }
    }
    if let Some(Setting::BrowserTtl(ttl)) = outcome.last(Kind::BrowserTtl) {
        limit_browser(*ttl, status, headers);
    }
    for (rule, edits) in outcome.edits(Kind::ClientResponse) {
        if edits.apply(headers, &values).is_err() {
            rules.count_error(site, rule, RuleError::Value);
        }
    }
    let (transforms, none) = (&site.settings.transforms, HeaderMap::new());
    if !transforms.is_empty() {
        let (asked, seen) = (values.asked(), values.headers.unwrap_or(&none));
        let is_stored = served == Served::Stored;
        if let Err(failed) = transforms.client_response(asked, seen, headers, is_stored) {
            rules.count_failed_transform(site, failed);
            // The fields or the body may be what the transform keeps from this client.
            *response = failed_response();
        }
    }
}

fn failed_response<B: From<Bytes>>() -> Response<B> {
    let mut response = Response::new(B::from(Bytes::new()));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

/// Adds the fields in the key to `Vary`, for the caches of clients.
fn name_keyed_fields(rules: &RequestRules, site: &Site, headers: &mut HeaderMap) {
    let Some(keyed) = rules.keyed_fields(site) else { return };
    let named = match selects(headers) {
        Selects::Everything => return,
        Selects::By(vary) => Some(vary),
        Selects::Nothing => None,
    };
    let is_new =
        |name: &&str| named.as_ref().is_none_or(|vary| vary.names().all(|its| its != *name));
    let names: Vec<&str> = keyed.vary().filter(is_new).collect();
    if let Ok(value) = HeaderValue::from_str(&names.join(", "))
        && !names.is_empty()
    {
        headers.append(VARY, value);
    }
}

/// Sets the lifetime in the browser. It never weakens `private` or `no-store`, and errors keep what
/// they say.
fn limit_browser(ttl: BrowserTtl, status: StatusCode, headers: &mut HeaderMap) {
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
