//! Compression of responses that are not stored, for their own client.

use forebay_semantics::ResponseRef;
use forebay_semantics::coding::Coding;
use forebay_semantics::coding::encoded::{encode_fields, may_encode};
use forebay_semantics::coding::negotiation::negotiate;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Response};

use super::body::ResponseBody;
use super::deliver::RequestHead;
use crate::compress::encoder::Encoder;
use crate::metrics::CompressionCounts;
use crate::settings::CompressSettings;

/// Compresses a response that is not stored, if the site does so and the client accepts a coding.
pub(crate) fn encode(
    settings: Option<&CompressSettings>,
    request: RequestHead<'_>,
    response: &mut Response<ResponseBody>,
    counts: impl FnOnce(Coding) -> CompressionCounts,
) {
    let Some(settings) = settings.filter(|settings| settings.pass) else { return };
    let answered = ResponseRef { status: response.status(), headers: response.headers() };
    let length = length(response.headers());
    if !may_encode(answered, &settings.types) || length.is_some_and(|it| !settings.takes(it)) {
        return;
    }
    let Some(coding) = negotiate(request.headers, settings.codings) else { return };
    if *request.method == Method::HEAD {
        return encode_fields(response.headers_mut(), coding, None);
    }
    let counts = counts(coding);
    match Encoder::new(coding, length) {
        Ok(encoder) => {
            encode_fields(response.headers_mut(), coding, None);
            response.body_mut().encode(encoder, counts);
        }
        Err(error) => {
            counts.failed();
            tracing::warn!(
                coding = coding.name(),
                cause = %error,
                "compression of a response failed: the client gets it without a coding"
            );
        }
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
