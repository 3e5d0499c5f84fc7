//! Responses that rules make in place of the cache.

use bytes::Bytes;
use forebay_rules::apply::{InvalidTarget, redirect_target};
use forebay_rules::{Ended, Target};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Response};

use crate::response::body::ResponseBody;
use crate::rules::Values;

/// Returns the response of a rule.
pub(crate) fn respond(
    ended: Ended<'_>,
    values: &Values<'_>,
) -> Result<Response<ResponseBody>, InvalidTarget> {
    let (status, body) = match ended {
        Ended::Redirect(redirect) => (redirect.status, Bytes::new()),
        Ended::Respond(respond) => (respond.status, Bytes::copy_from_slice(&respond.body)),
    };
    let mut response = Response::new(ResponseBody::whole(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    match ended {
        Ended::Redirect(redirect) => {
            let path = Target::new(values.target).path;
            headers.insert(LOCATION, redirect_target(redirect, path, values)?);
        }
        Ended::Respond(respond) => {
            headers.extend(respond.content_type.clone().map(|value| (CONTENT_TYPE, value)));
        }
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
