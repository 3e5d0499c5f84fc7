//! Responses of an origin, once their heads have arrived.

use bytes::Bytes;
use forebay_semantics::{FieldLines as _, RawFields};
use http::header::HeaderName;
use http::{Response, StatusCode};

use super::OriginBody;

/// Response of an origin. `B` is the body of a response that hyper reads.
#[derive(Debug)]
pub(crate) enum OriginResponse<B = OriginBody> {
    /// Complete response, read without hyper. Its connection is idle again.
    Plain(Box<PlainResponse>),
    /// Response whose body hyper reads.
    Hyper(Response<B>),
}

/// Small response that has arrived whole. Its fields have no parsed form.
#[derive(Debug)]
pub(crate) struct PlainResponse {
    pub(crate) status: StatusCode,
    /// Fields without `Transfer-Encoding`; the only `Connection` is `keep-alive`.
    pub(crate) fields: RawFields,
    pub(crate) body: Bytes,
}

impl<B> OriginResponse<B> {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Plain(plain) => plain.status,
            Self::Hyper(response) => response.status(),
        }
    }

    /// Returns the first line of a field.
    pub(super) fn field(&self, name: &HeaderName) -> Option<&[u8]> {
        match self {
            Self::Plain(plain) => plain.fields.lines(name).next(),
            Self::Hyper(response) => response.headers().lines(name).next(),
        }
    }

    /// Converts the body that hyper reads.
    pub(super) fn map<C>(self, convert: impl FnOnce(B) -> C) -> OriginResponse<C> {
        match self {
            Self::Plain(plain) => OriginResponse::Plain(plain),
            Self::Hyper(response) => OriginResponse::Hyper(response.map(convert)),
        }
    }
}

impl OriginResponse {
    /// Returns the response with parsed fields.
    pub(crate) fn into_http(self) -> Response<OriginBody> {
        match self {
            Self::Plain(plain) => plain.into_http(),
            Self::Hyper(response) => response,
        }
    }
}

impl PlainResponse {
    /// Returns the response with parsed fields.
    pub(crate) fn into_http(self) -> Response<OriginBody> {
        let Self { status, fields, body } = self;
        let mut response = Response::new(OriginBody::whole(body));
        *response.status_mut() = status;
        *response.headers_mut() = fields.to_map();
        response
    }
}
