//! Header fields of a client's request.

use std::sync::OnceLock;

use either::Either;
use forebay_semantics::{CopyFields, FieldLines, FieldSink, RawFields};
use http::HeaderMap;
use http::header::HeaderName;

/// Header fields of a client's request, as a map or as bytes. Reading them through [`FieldLines`] does
/// not parse them.
pub(crate) enum ClientFields {
    /// Parsed by hyper.
    Parsed(HeaderMap),
    /// Fields of a direct pass, which are parsed when a function needs the parsed form.
    Raw(Box<RawForm>),
}

/// Fields as bytes, and their parsed form once it was needed.
pub(crate) struct RawForm {
    raw: RawFields,
    parsed: OnceLock<HeaderMap>,
}

impl ClientFields {
    /// Returns the parsed form.
    pub(crate) fn parsed(&self) -> &HeaderMap {
        match self {
            Self::Parsed(headers) => headers,
            Self::Raw(form) => form.parsed.get_or_init(|| form.raw.to_map()),
        }
    }
}

impl From<HeaderMap> for ClientFields {
    fn from(headers: HeaderMap) -> Self {
        Self::Parsed(headers)
    }
}

impl From<RawFields> for ClientFields {
    fn from(raw: RawFields) -> Self {
        Self::Raw(Box::new(RawForm { raw, parsed: OnceLock::new() }))
    }
}

impl FieldLines for ClientFields {
    fn lines<'a>(&'a self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
        match self {
            Self::Parsed(headers) => Either::Left(headers.lines(name)),
            Self::Raw(form) => Either::Right(form.raw.lines(name)),
        }
    }

    fn lines_named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        match self {
            Self::Parsed(headers) => Either::Left(headers.lines_named(name)),
            Self::Raw(form) => Either::Right(form.raw.lines_named(name)),
        }
    }

    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        match self {
            Self::Parsed(headers) => Either::Left(headers.all()),
            Self::Raw(form) => Either::Right(form.raw.all()),
        }
    }

    fn has(&self, name: &HeaderName) -> bool {
        match self {
            Self::Parsed(headers) => headers.has(name),
            Self::Raw(form) => form.raw.has(name),
        }
    }
}

impl CopyFields for ClientFields {
    fn copy_to(&self, is_kept: impl Fn(&[u8]) -> bool, sink: &mut impl FieldSink) {
        match self {
            Self::Parsed(headers) => headers.copy_to(is_kept, sink),
            Self::Raw(form) => form.raw.copy_to(is_kept, sink),
        }
    }
}
