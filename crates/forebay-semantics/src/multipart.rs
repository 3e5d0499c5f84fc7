//! Several parts of a body in one answer: `multipart/byteranges` (RFC 9110 section 14.6).

use bytes::Bytes;
use http::header::{CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderValue};
use smallvec::SmallVec;

use crate::fields::single;
use crate::partial::{ContentRange, Span, text_value};

/// What every boundary begins with.
const BOUNDARY_PREFIX: &str = "forebay-";

/// An answer in several parts: what is sent, in order, and how long it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart {
    boundary: String,
    pieces: SmallVec<[Piece; 8]>,
}

/// One piece of what is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// These bytes: a boundary and the head of a part.
    Text(Bytes),
    /// These bytes of the stored body.
    Body(Span),
}

impl Multipart {
    /// The answer that holds these parts of a body of `length` bytes with these fields.
    ///
    /// `chance` makes the boundary, which may stand nowhere in the body: with 128 bits that
    /// nobody could know when the body was made, it does not. It must be another for each answer.
    #[must_use]
    pub fn new(spans: &[Span], length: u64, stored: &HeaderMap, chance: u128) -> Self {
        let boundary = format!("{BOUNDARY_PREFIX}{chance:032x}");
        let mut pieces = SmallVec::new();
        for (place, span) in spans.iter().enumerate() {
            // RFC 2046 section 5.1.1: the line break before a boundary belongs to the boundary.
            let before = if place == 0 { "" } else { "\r\n" };
            let mut head = format!("{before}--{boundary}\r\n").into_bytes();
            // RFC 9110 section 15.3.7.2: each part says what and where it is.
            if let Some(kind) = single(stored, &CONTENT_TYPE) {
                write_field(&mut head, (CONTENT_TYPE.as_str(), kind));
            }
            let range = ContentRange { span: *span, complete: Some(length) }.to_value();
            write_field(&mut head, (CONTENT_RANGE.as_str(), &range));
            head.extend_from_slice(b"\r\n");
            pieces.push(Piece::Text(head.into()));
            pieces.push(Piece::Body(*span));
        }
        pieces.push(Piece::Text(format!("\r\n--{boundary}--\r\n").into()));
        Self { boundary, pieces }
    }

    /// The `Content-Type` of the answer, in the place of the stored one. It has no
    /// `Content-Range` of its own (RFC 9110 section 15.3.7.2).
    #[must_use]
    pub fn content_type(&self) -> HeaderValue {
        text_value(&format!("multipart/byteranges; boundary={}", self.boundary))
    }

    /// How many bytes all pieces have together.
    #[must_use]
    pub fn content_length(&self) -> u64 {
        let length = |piece: &Piece| match piece {
            Piece::Text(text) => text.len() as u64,
            Piece::Body(span) => span.len(),
        };
        self.pieces.iter().map(length).fold(0, u64::saturating_add)
    }

    /// What is sent, in order.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

fn write_field(head: &mut Vec<u8>, (name, value): (&str, &HeaderValue)) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value.as_bytes());
    head.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"0123456789";

    fn written(multipart: &Multipart) -> String {
        let at = |place: u64| usize::try_from(place).unwrap();
        let bytes: Vec<u8> = multipart
            .pieces()
            .iter()
            .flat_map(|piece| match piece {
                Piece::Text(text) => text.to_vec(),
                Piece::Body(span) => BODY[at(span.first)..=at(span.last)].to_vec(),
            })
            .collect();
        assert_eq!(bytes.len() as u64, multipart.content_length());
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn parts_say_what_and_where_they_are() {
        // RFC 9110 sections 14.6 and 15.3.7.2.
        let spans = [Span { first: 7, last: 9 }, Span { first: 0, last: 0 }];
        let mut stored = HeaderMap::new();
        stored.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let multipart = Multipart::new(&spans, 10, &stored, 0xfe);
        let kind = "multipart/byteranges; boundary=forebay-000000000000000000000000000000fe";
        assert_eq!(multipart.content_type(), kind);
        let line = "--forebay-000000000000000000000000000000fe";
        let expected = format!(
            "{line}\r\ncontent-type: text/plain\r\ncontent-range: bytes 7-9/10\r\n\r\n789\r\n\
             {line}\r\ncontent-type: text/plain\r\ncontent-range: bytes 0-0/10\r\n\r\n0\r\n\
             {line}--\r\n"
        );
        assert_eq!(written(&multipart), expected);
    }

    #[test]
    fn without_a_type_the_parts_have_none() {
        let spans = [Span { first: 1, last: 2 }, Span { first: 4, last: 5 }];
        let multipart = Multipart::new(&spans, 10, &HeaderMap::new(), u128::MAX);
        let text = written(&multipart);
        assert!(!text.contains("content-type"));
        assert_eq!(text.matches("--forebay-ffffffffffffffffffffffffffffffff").count(), 3);
    }
}
