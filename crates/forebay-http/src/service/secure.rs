//! Redirect to https, and `Strict-Transport-Security`.

use bytes::Bytes;
use forebay_semantics::Scheme;
use http::header::{CACHE_STATUS, CONTENT_LENGTH, LOCATION, STRICT_TRANSPORT_SECURITY};
use http::{HeaderValue, Response, StatusCode};

use crate::authority::without_port;
use crate::response::body::ResponseBody;
use crate::site::Site;

/// Default port of https.
const HTTPS_PORT: u16 = 443;

/// Adds the field to a response over https, unless the origin sent one. RFC 6797 section 7.2: never
/// over http.
pub(crate) fn add_hsts(response: &mut Response<ResponseBody>, site: &Site, scheme: Scheme) {
    let Some(value) = hsts(site, scheme) else { return };
    let headers = response.headers_mut();
    if !headers.contains_key(STRICT_TRANSPORT_SECURITY) {
        headers.insert(STRICT_TRANSPORT_SECURITY, value.clone());
    }
}

/// Returns the value that [`add_hsts`] adds to responses without the field.
pub(crate) fn hsts(site: &Site, scheme: Scheme) -> Option<&HeaderValue> {
    site.settings.hsts.as_ref().filter(|_| scheme == Scheme::Https)
}

/// Builds the redirect of a request to https. 308 keeps the method and the body (RFC 9110 section
/// 15.4.9). `None` if the target is not a valid field value.
pub(crate) fn redirect(authority: &str, path: &str, port: u16) -> Option<Response<ResponseBody>> {
    let host = without_port(authority);
    let location = match port {
        HTTPS_PORT => format!("https://{host}{path}"),
        port => format!("https://{host}:{port}{path}"),
    };
    let mut response = Response::new(ResponseBody::whole(Bytes::new()));
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::try_from(location).ok()?);
    headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    headers.insert(CACHE_STATUS, HeaderValue::from_static("forebay; detail=redirect"));
    Some(response)
}
