//! Status and header fields of a stored response.
//!
//! An entry keeps them as bytes for the tiers, and decoded for hits. The bytes are the status (2
//! bytes), then for each field the name (length in 2 bytes) and the value (length in 4 bytes), all
//! little-endian.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use forebay_engine::{Entry, Head};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// Estimated size in bytes of one field in a header map, beside name and value.
const FIELD_OVERHEAD: usize = 104;

/// Number of fields added to each response: `Age` and `Cache-Status`. A clone of the map has
/// capacity for them and is not rehashed.
const ADDED_FIELDS: usize = 2;

/// Status and header fields of a stored response, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Status code of the stored response.
    pub status: StatusCode,
    /// End-to-end header fields of the stored response.
    pub headers: HeaderMap,
}

impl Answer {
    /// Encodes the head of an entry, with the decoded form attached. Its values are slices of the
    /// encoded bytes: those of `self` are slices of a connection's read buffer, which the entry
    /// would keep alive without accounting for it.
    #[must_use]
    pub fn into_head(self) -> Head {
        let bytes = self.encode();
        let own = Self::decode(bytes.clone()).unwrap_or(self);
        let size = bytes.len() + own.headers.len() * FIELD_OVERHEAD;
        Head::new(bytes).with_view(Arc::new(own), size)
    }

    fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(256);
        bytes.put_u16_le(self.status.as_u16());
        for (name, value) in &self.headers {
            // The limits of a parsed head are far below these lengths.
            let name = name.as_str().as_bytes();
            bytes.put_u16_le(u16::try_from(name.len()).unwrap_or(0));
            bytes.put_slice(name);
            bytes.put_u32_le(u32::try_from(value.len()).unwrap_or(0));
            bytes.put_slice(value.as_bytes());
        }
        // An exact allocation, because spare capacity would not be accounted for.
        Bytes::from(Vec::from(bytes).into_boxed_slice())
    }

    /// Decodes a head; `None` if it is invalid, which other writers of a shared tier may cause.
    #[must_use]
    pub fn decode(mut bytes: Bytes) -> Option<Self> {
        let status = StatusCode::from_u16(bytes.try_get_u16_le().ok()?).ok()?;
        let mut headers = HeaderMap::new();
        while bytes.has_remaining() {
            let length = usize::from(bytes.try_get_u16_le().ok()?);
            let name = take(&mut bytes, length)?;
            let length = usize::try_from(bytes.try_get_u32_le().ok()?).ok()?;
            let value = take(&mut bytes, length)?;
            let name = HeaderName::from_bytes(&name).ok()?;
            headers.try_append(name, HeaderValue::from_maybe_shared(value).ok()?).ok()?;
        }
        headers.try_reserve(ADDED_FIELDS).ok()?;
        Some(Self { status, headers })
    }

    /// Returns the decoded head of an entry, or decodes it; `None` if it is invalid.
    #[must_use]
    pub fn of(entry: &Entry) -> Option<std::borrow::Cow<'_, Self>> {
        if let Some(ready) = entry.head.view::<Self>() {
            return Some(std::borrow::Cow::Borrowed(ready));
        }
        Self::decode(entry.head.bytes()?.clone()).map(std::borrow::Cow::Owned)
    }
}

fn take(bytes: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= bytes.remaining()).then(|| bytes.split_to(length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Answer {
        let mut headers = HeaderMap::new();
        headers.append("etag", HeaderValue::from_static("\"1\""));
        headers.append("link", HeaderValue::from_static("</a>"));
        headers.append("link", HeaderValue::from_static("</b>"));
        headers.append("x-empty", HeaderValue::from_static(""));
        Answer { status: StatusCode::NOT_FOUND, headers }
    }

    #[test]
    fn an_encoded_head_decodes_to_itself() {
        let head = sample().into_head();
        assert_eq!(head.bytes().cloned().and_then(Answer::decode), Some(sample()));
        assert_eq!(head.view::<Answer>(), Some(&sample()));
    }

    #[test]
    fn a_stored_head_does_not_keep_the_read_buffer() {
        let read_buffer = Bytes::from(vec![b'x'; 8_192]);
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_maybe_shared(read_buffer.slice(..10)).expect("plain bytes");
        headers.append("etag", value);
        let head = Answer { status: StatusCode::OK, headers }.into_head();
        assert!(read_buffer.is_unique(), "the read buffer is free again");
        let view = head.view::<Answer>().expect("a ready-made form");
        let held = head.bytes().expect("it keeps them").as_ptr_range();
        assert!(held.contains(&view.headers["etag"].as_bytes().as_ptr()));
    }

    #[test]
    fn a_truncated_head_does_not_decode() {
        let bytes = sample().into_head().bytes().cloned().expect("it keeps them");
        let whole = (0..bytes.len()).filter(|at| Answer::decode(bytes.slice(..*at)).is_some());
        // A head truncated between two fields decodes; the digest of the frame detects it.
        assert_eq!(whole.count(), 4);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let _ = Answer::decode(bytes.into());
        }
    }
}
