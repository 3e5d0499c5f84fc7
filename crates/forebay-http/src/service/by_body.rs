//! Keys of responses that are stored by request body, for the methods that a site enables.
//!
//! The key has the SHA-256 of the body and of the fields that describe it. A collision-resistant
//! digest is required: otherwise one client could send a body that yields the response to another.

use bytes::{Bytes, BytesMut};
use forebay_core::KeyBuf;
use forebay_semantics::validate::is_conditional;
use futures_util::{StreamExt, stream};
use http::header::{CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use ring::digest;

use crate::origin::RequestBody;
use crate::service::Routed;

/// Fields that define the interpretation of a body; RFC 10008 section 2.7 makes them part of the
/// key.
const DESCRIBING: [HeaderName; 3] = [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LANGUAGE];

/// Returns true if a request is looked up by its body. Conditional requests and bodies announced as
/// larger than `body_max` bypass the cache.
pub(crate) fn is_looked_up<B: Body>(routed: &Routed<'_>, parts: &Parts, body: &B) -> bool {
    let Routed { site, rules, .. } = routed;
    rules.cache_methods(site).contains(&parts.method)
        && body.size_hint().lower() <= site.settings.opt_ins.body_max as u64
        && !is_conditional(&parts.headers)
}

/// Returns the key of a response to a request with this body. It has six parts, more than that of a
/// target or a variant; the key of stored parts differs in its fifth.
pub(crate) fn key(mut target: KeyBuf, method: &Method, headers: &HeaderMap, body: &[u8]) -> KeyBuf {
    let digest = digest_of(headers, body);
    target.part(method.as_str().as_bytes()).part(digest.as_ref());
    target
}

/// Hashes the fields and the body. Each value is preceded by its length, each field by its number
/// of values.
fn digest_of(headers: &HeaderMap, body: &[u8]) -> digest::Digest {
    let mut digest = digest::Context::new(&digest::SHA256);
    for name in &DESCRIBING {
        let values = headers.get_all(name);
        digest.update(&(values.iter().count() as u64).to_le_bytes());
        for value in values {
            digest.update(&(value.len() as u64).to_le_bytes());
            digest.update(value.as_bytes());
        }
    }
    digest.update(body);
    digest.finish()
}

/// Result of reading a request body.
pub(crate) enum Collected {
    /// The whole body.
    Whole(Bytes),
    /// A body over the limit, readable from its first byte.
    Larger(RequestBody),
}

/// Reads a body of at most `most` bytes. The client timeouts apply.
pub(crate) async fn collect(
    mut body: RequestBody,
    most: usize,
) -> Result<Collected, Box<dyn std::error::Error + Send + Sync>> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // Request trailers are discarded.
        let Ok(piece) = frame?.into_data() else { continue };
        bytes.extend_from_slice(&piece);
        if bytes.len() > most {
            return Ok(Collected::Larger(resumed(bytes.freeze(), body)));
        }
    }
    Ok(Collected::Whole(bytes.freeze()))
}

fn resumed(begun: Bytes, rest: RequestBody) -> RequestBody {
    let begun = stream::iter([Ok(Frame::data(begun))]);
    StreamBody::new(begun.chain(BodyStream::new(rest))).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http_body_util::Full;

    use super::*;

    fn key_of(method: &Method, lines: &[(&'static str, &'static str)], body: &str) -> KeyBuf {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let headers: HeaderMap = lines.iter().map(line).collect();
        let mut target = KeyBuf::new("site");
        target.part(b"http").part(b"shop.example").part(b"/search");
        key(target, method, &headers, body.as_bytes())
    }

    #[test]
    fn different_bodies_and_descriptions_have_different_keys() {
        let query = Method::from_bytes(b"QUERY").unwrap();
        let json = ("content-type", "application/json");
        let keys = [
            key_of(&query, &[json], "a"),
            key_of(&Method::POST, &[json], "a"),
            key_of(&query, &[json], "b"),
            key_of(&query, &[json], ""),
            key_of(&query, &[], "a"),
            key_of(&query, &[("content-type", "text/plain")], "a"),
            key_of(&query, &[json, ("content-encoding", "gzip")], "a"),
            key_of(&query, &[json, ("content-language", "gzip")], "a"),
            key_of(&query, &[json, json], "a"),
        ];
        for (place, one) in keys.iter().enumerate() {
            let same = keys.iter().filter(|other| one.borrowed() == other.borrowed()).count();
            assert_eq!(same, 1, "{place}");
            assert_eq!(one.borrowed().parts().count(), 6);
        }
        let again = key_of(&query, &[json, ("cookie", "a=1")], "a");
        assert_eq!(again.borrowed(), keys[0].borrowed(), "what does not describe the body");
    }

    fn body_of(pieces: &'static [&'static str]) -> RequestBody {
        let pieces = stream::iter(pieces.iter().map(|piece| {
            Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(piece.as_bytes())))
        }));
        StreamBody::new(pieces).map_err(Into::into).boxed_unsync()
    }

    #[tokio::test]
    async fn collect_returns_a_larger_body_from_its_first_byte() {
        for (pieces, most, expected) in [
            (&["ab", "cd"][..], 4, Some("abcd")),
            (&["ab", "cd"][..], 3, None),
            (&["ab", "cd", "ef"][..], 0, None),
            (&[][..], 0, Some("")),
        ] {
            match (collect(body_of(pieces), most).await.unwrap(), expected) {
                (Collected::Whole(bytes), Some(expected)) => assert_eq!(bytes, expected),
                (Collected::Larger(body), None) => {
                    let all = body.collect().await.unwrap().to_bytes();
                    assert_eq!(all, pieces.concat());
                }
                _ => panic!("{pieces:?} within {most}"),
            }
        }
        let broken = StreamBody::new(stream::iter([Err(std::io::Error::other("gone"))]));
        let broken: RequestBody = broken.map_err(Into::into).boxed_unsync();
        assert!(collect(broken, 9).await.is_err());
        let sized: RequestBody =
            Full::new(Bytes::from_static(b"x")).map_err(|never| match never {}).boxed_unsync();
        assert!(matches!(collect(sized, 1).await, Ok(Collected::Whole(_))));
    }
}
