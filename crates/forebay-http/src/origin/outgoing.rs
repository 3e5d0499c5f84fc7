//! Requests to an origin that are not sent yet.

use http::header::{TRANSFER_ENCODING, UPGRADE};
use http::uri::PathAndQuery;
use http::uri::Uri;
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body::Body;

use super::RequestBody;
use super::encoded::EncodedRequest;
use super::endpoint::RequestKind;
use super::progress::{Progress, TrackedBody};
use super::urgency::Urgency;
use crate::request_guard::Interims;

/// Request to an origin.
#[derive(Debug)]
pub(crate) struct FetchRequest {
    /// Request method.
    pub(crate) method: Method,
    /// Path and query, in the same form as in the key.
    pub(crate) target: PathAndQuery,
    /// Header fields, including `Host`.
    pub(crate) headers: HeaderMap,
    /// Request body.
    pub(crate) body: RequestBody,
    /// Sender of interim responses to the requesting client.
    pub(crate) interims: Interims,
    /// Urgency among the requests that wait for the origin.
    pub(crate) urgency: Urgency,
}

/// Function that builds a request. It is called again for a retry of a request that was sent.
pub(crate) type BuildRequest<'a> = dyn Fn() -> FetchRequest + Send + Sync + 'a;

/// Function that encodes a GET without a body.
pub(crate) type EncodeRequest<'a> = dyn Fn() -> EncodedRequest + Send + Sync + 'a;

/// Request to an origin, before an endpoint is chosen.
pub(crate) enum Outgoing<'a> {
    /// Built request, and the function that builds it for a retry. With `None`, the request is sent again
    /// only if nothing of it was sent.
    Built(Box<FetchRequest>, Option<&'a BuildRequest<'a>>),
    /// GET that is encoded or built when it is sent.
    Unbuilt(UnbuiltGet<'a>),
}

/// GET without a body and without conditions, in two forms. `encode` is used for the first attempt on
/// a socket that hyper does not own. `build` is used in all other cases: hyper, HTTP/2, retries,
/// balancing by hash, and trials of the circuit breaker in the background.
pub(crate) struct UnbuiltGet<'a> {
    /// Encodes the request.
    pub(crate) encode: &'a EncodeRequest<'a>,
    /// Sender of interim responses to the requesting client.
    pub(crate) interims: Interims,
    /// Urgency among the requests that wait for the origin.
    pub(crate) urgency: Urgency,
    /// Builds the same request.
    pub(crate) build: &'a BuildRequest<'a>,
}

impl<'a> Outgoing<'a> {
    /// Builds a request that may be sent again.
    pub(crate) fn built(build: &'a BuildRequest<'a>) -> Self {
        Self::Built(Box::new(build()), Some(build))
    }

    /// Returns the function that builds the request for a retry, if there is one.
    pub(super) fn again(&self) -> Option<&'a BuildRequest<'a>> {
        match self {
            Self::Built(_, again) => *again,
            Self::Unbuilt(get) => Some(get.build),
        }
    }

    /// Returns the built request. Builds it first if necessary.
    pub(super) fn into_built(self) -> Box<FetchRequest> {
        match self {
            Self::Built(request, _) => request,
            Self::Unbuilt(get) => Box::new((get.build)()),
        }
    }

    pub(super) fn has_no_body(&self) -> bool {
        match self {
            Self::Built(request, _) => request.body.is_end_stream(),
            Self::Unbuilt(_) => true,
        }
    }

    pub(super) fn is_safe(&self) -> bool {
        match self {
            Self::Built(request, _) => request.method.is_safe(),
            Self::Unbuilt(_) => true,
        }
    }

    pub(super) fn urgency(&self) -> &Urgency {
        match self {
            Self::Built(request, _) => &request.urgency,
            Self::Unbuilt(get) => &get.urgency,
        }
    }

    pub(super) fn interims(&self) -> &Interims {
        match self {
            Self::Built(request, _) => &request.interims,
            Self::Unbuilt(get) => &get.interims,
        }
    }
}

/// Request of one attempt, after the endpoint was chosen.
pub(super) enum Message<'a> {
    /// Request in the form of hyper.
    Built(Box<Request<TrackedBody>>),
    /// GET without a body: the functions that encode and build it, and the progress of its exchange.
    Unbuilt(&'a EncodeRequest<'a>, &'a BuildRequest<'a>, &'a Progress),
}

impl<'a> Message<'a> {
    pub(super) fn new(outgoing: Outgoing<'a>, progress: &'a Progress) -> Self {
        match outgoing {
            Outgoing::Built(request, _) => Self::of(*request, progress),
            Outgoing::Unbuilt(UnbuiltGet { encode, build, .. }) => {
                Self::Unbuilt(encode, build, progress)
            }
        }
    }

    /// Returns a request in the form of hyper.
    pub(super) fn of(request: FetchRequest, progress: &Progress) -> Self {
        Self::Built(http_request(request, progress))
    }

    /// Returns the kind of the request.
    pub(super) fn kind(&self) -> RequestKind {
        match self {
            Self::Built(request) if request.headers().contains_key(UPGRADE) => RequestKind::Switch,
            Self::Built(request) if !request.method().is_safe() => RequestKind::Unrepeatable,
            Self::Built(_) | Self::Unbuilt(..) => RequestKind::Repeatable,
        }
    }

    /// Returns the request as bytes, unless hyper must send it.
    pub(super) fn encoded(&self) -> Option<EncodedRequest> {
        match self {
            Self::Built(request) => EncodedRequest::of(request),
            Self::Unbuilt(encode, ..) => Some(encode()),
        }
    }

    /// Returns the built request. Builds it first if necessary.
    pub(super) fn into_request(self) -> Box<Request<TrackedBody>> {
        match self {
            Self::Built(request) => request,
            Self::Unbuilt(_, build, progress) => http_request(build(), progress),
        }
    }
}

fn http_request(request: FetchRequest, progress: &Progress) -> Box<Request<TrackedBody>> {
    let FetchRequest { method, target, headers, body, .. } = request;
    let is_sized = body.size_hint().exact().is_some();
    let mut request = Box::new(Request::new(progress.track(body)));
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from(target);
    *request.headers_mut() = headers;
    if !is_sized {
        // Without it, hyper sends no body with a GET.
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    request
}
