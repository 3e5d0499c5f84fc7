//! Stored parts of a body (RFC 9111 section 3.3).
//!
//! Parts have their own key, derived from that of the target: one entry for each variant, whose
//! body is the parts in ascending order and whose head lists their ranges. They never change the
//! whole entry, and answer only requests for ranges inside them.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use forebay_core::{Key, KeyRef, key};
use forebay_engine::{Entry, Head};
use forebay_semantics::partial::{ContentRange, Parts, SPANS_MAX, Span};
use http::{HeaderMap, StatusCode};

use crate::stored::head::Answer;

/// Last part of the key of stored parts. The other parts are those of the target's key, so no
/// target has this key.
const PARTS: &[u8] = b"parts";

/// Returns the key of the stored parts of a target.
pub(crate) fn key_of(target: KeyRef<'_>) -> Key {
    key::question(target, PARTS).borrowed().to_key()
}

/// Head of an entry with stored parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Partial {
    /// Header fields, without `Content-Range` and `Content-Length`.
    pub(crate) headers: HeaderMap,
    /// Stored ranges; none if the origin refuses range requests for this target.
    pub(crate) parts: Parts,
}

impl Partial {
    /// Encodes the head: length of the whole, ranges, fields.
    pub(crate) fn into_head(self) -> Head {
        let fields = Answer { status: StatusCode::PARTIAL_CONTENT, headers: self.headers };
        let fields = fields.to_head();
        let written = fields.slice().expect("a head of HTTP keeps its bytes");
        let mut bytes = BytesMut::with_capacity(64 + written.len());
        bytes.put_u64_le(self.parts.complete().unwrap_or(u64::MAX));
        bytes.put_u16_le(u16::try_from(self.parts.spans().len()).unwrap_or(0));
        for span in self.parts.spans() {
            bytes.put_u64_le(span.first);
            bytes.put_u64_le(span.last);
        }
        bytes.put_slice(written);
        let bytes = Bytes::from(Vec::from(bytes).into_boxed_slice());
        let size = fields.size() + size_of::<Self>();
        match Self::decode(bytes.clone()) {
            Some(own) => Head::new(bytes).with_view(Arc::new(own), size),
            None => Head::new(bytes),
        }
    }

    /// Decodes a head; `None` if it is invalid.
    pub(crate) fn decode(mut bytes: Bytes) -> Option<Self> {
        let complete = Some(bytes.try_get_u64_le().ok()?).filter(|length| *length != u64::MAX);
        let count = usize::from(bytes.try_get_u16_le().ok()?);
        let mut parts = Parts::default();
        for _ in 0..count.min(SPANS_MAX + 1) {
            let (first, last) = (bytes.try_get_u64_le().ok()?, bytes.try_get_u64_le().ok()?);
            let is_sound = first <= last && complete.is_none_or(|length| last < length);
            let range = ContentRange { span: Span { first, last }, complete };
            if !is_sound || !parts.insert(range) {
                return None;
            }
        }
        let headers = Answer::decode(bytes)?.headers;
        Some(Self { headers, parts })
    }

    /// Returns the decoded head of an entry, or decodes it; `None` if it is invalid.
    pub(crate) fn of(entry: &Entry) -> Option<Cow<'_, Self>> {
        if let Some(ready) = entry.head.view::<Self>() {
            return Some(Cow::Borrowed(ready));
        }
        Self::decode(entry.head.bytes()?).map(Cow::Owned)
    }

    /// Returns the size of all parts in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.parts.spans().iter().map(|span| span.len()).fold(0, u64::saturating_add)
    }

    /// Returns the offsets of a range in the entry's body, or `None` if a byte is missing.
    pub(crate) fn place(&self, wanted: Span) -> Option<Range<u64>> {
        let mut before = 0;
        for span in self.parts.spans() {
            if span.first <= wanted.first && wanted.last <= span.last {
                let start = before + (wanted.first - span.first);
                return Some(start..start + wanted.len());
            }
            before += span.len();
        }
        None
    }
}

/// Combines the bodies of several parts into the body of `joined`; later ones overwrite earlier
/// ones. `None` if a part is outside `joined` or too short.
pub(crate) fn join(joined: &Partial, bodies: &[(&Partial, &[u8])]) -> Option<Bytes> {
    let mut all = vec![0; usize::try_from(joined.size()).ok()?];
    for (partial, bytes) in bodies {
        let mut body = *bytes;
        for span in partial.parts.spans() {
            let place = joined.place(*span)?;
            let place = usize::try_from(place.start).ok()?..usize::try_from(place.end).ok()?;
            let (piece, rest) = body.split_at_checked(place.len())?;
            all.get_mut(place)?.copy_from_slice(piece);
            body = rest;
        }
    }
    Some(all.into())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn partial(spans: &[(u64, u64)], complete: Option<u64>) -> Partial {
        let mut parts = Parts::default();
        for (first, last) in spans {
            let span = Span { first: *first, last: *last };
            assert!(parts.insert(ContentRange { span, complete }));
        }
        let mut headers = HeaderMap::new();
        headers.insert("etag", HeaderValue::from_static("\"1\""));
        Partial { headers, parts }
    }

    #[test]
    fn an_encoded_partial_head_decodes_to_itself() {
        for complete in [None, Some(20)] {
            let partial = partial(&[(0, 2), (5, 9)], complete);
            let head = partial.clone().into_head();
            assert_eq!(head.bytes().and_then(Partial::decode), Some(partial.clone()));
            assert_eq!(head.view::<Partial>(), Some(&partial));
        }
        let none = Partial { headers: HeaderMap::new(), parts: Parts::default() };
        let head = none.clone().into_head();
        assert_eq!(head.bytes().and_then(Partial::decode), Some(none));
    }

    #[test]
    fn ranges_map_to_offsets_in_the_stored_body() {
        let partial = partial(&[(0, 2), (5, 9)], Some(20));
        let place = |first, last| partial.place(Span { first, last });
        assert_eq!(partial.size(), 8);
        assert_eq!(place(0, 2), Some(0..3));
        assert_eq!(place(1, 1), Some(1..2));
        assert_eq!(place(6, 9), Some(4..8));
        for (first, last) in [(2, 3), (3, 4), (4, 5), (9, 10), (15, 16)] {
            assert_eq!(place(first, last), None, "{first}-{last}");
        }
    }

    #[test]
    fn joined_bodies_keep_the_later_bytes() {
        let old = partial(&[(0, 2), (8, 9)], Some(10));
        let new = partial(&[(2, 4)], Some(10));
        let joined = partial(&[(0, 4), (8, 9)], Some(10));
        let bytes = join(&joined, &[(&old, b"abcij"), (&new, b"CDE")]);
        assert_eq!(bytes.as_deref(), Some(&b"abCDEij"[..]));
        assert_eq!(join(&new, &[(&old, b"abcij")]), None);
        assert_eq!(join(&joined, &[(&old, b"abci")]), None, "a body that is too short");
    }

    #[test]
    fn the_key_of_parts_has_five_parts() {
        let target = forebay_core::KeyBuf::new("site").part(b"http").part(b"a").part(b"/").clone();
        let key = key_of(target.borrowed());
        assert_eq!(key.borrowed().namespace(), b"site");
        assert_eq!(key.borrowed().parts().count(), 5);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let _ = Partial::decode(bytes.into());
        }
    }
}
