//! Status and header fields of a stored response.
//!
//! An entry keeps them as the bytes of an HTTP/1.1 head, without the empty line at its end: the
//! status line, then one line for each field, names in lower case, the lines of a name one after
//! another. A hit is answered with these bytes; lower tiers store them. `Age`, `Content-Length`,
//! `Date` and `ETag` come first, so that a hit or a 304 finds them without reading all lines.

use std::sync::Arc;

use bytes::{BufMut, Bytes};
use forebay_engine::{Entry, Head};
use forebay_semantics::FieldLines;
use http::header::{AGE, CONTENT_LENGTH, DATE, ETAG};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use parking_lot::Mutex;

/// Number of fields added to each response: `Age` and `Cache-Status`. A decoded map has capacity for
/// them and is not rehashed.
const ADDED_FIELDS: usize = 2;

/// Fields that are written first, in this order. Direct hits depend on it: [`Front`] and [`Tagged`]
/// find them nowhere else. Heads of lower tiers are decoded and encoded again.
const FRONT: [HeaderName; 4] = [AGE, CONTENT_LENGTH, DATE, ETAG];

/// Start of each stored head. The status code follows.
const VERSION: &[u8] = b"HTTP/1.1 ";

/// Starts of lines at the front.
const AGE_START: &[u8] = b"age: ";
pub(crate) const LENGTH_START: &[u8] = b"content-length: ";
const DATE_START: &[u8] = b"date: ";
const TAG_START: &[u8] = b"etag: ";

/// Bytes between the name of a field and its value.
const SEPARATOR: &[u8] = b": ";

/// Size of most heads in bytes.
const ENCODED_TYPICAL: usize = 512;

/// Length of a status code in bytes.
const CODE: usize = 3;

/// Status and header fields of a stored response, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Status code of the stored response.
    pub status: StatusCode,
    /// End-to-end header fields of the stored response.
    pub headers: HeaderMap,
}

/// Decoded head of a response that one client gets. That client takes it.
struct PassedHead(Mutex<Option<Answer>>);

impl Answer {
    /// Encodes the head of an entry.
    #[must_use]
    pub fn to_head(&self) -> Head {
        Head::of_slice(&self.encode())
    }

    /// Creates the head of a response that is not stored: its decoded form alone.
    #[must_use]
    pub fn into_passed_head(self) -> Head {
        let size = size_of::<Self>();
        Head::of_form(Arc::new(PassedHead(Mutex::new(Some(self)))), size)
    }

    /// Takes the decoded form of a head for the one client that gets the response. A head that is
    /// stored is decoded.
    pub(crate) fn take(head: &Head) -> Option<Self> {
        match head.view::<PassedHead>() {
            Some(PassedHead(answer)) => answer.lock().take(),
            None => Self::decode(head.bytes()?),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ENCODED_TYPICAL);
        bytes.put_slice(VERSION);
        bytes.put_slice(self.status.as_str().as_bytes());
        bytes.put_u8(b' ');
        bytes.put_slice(self.status.canonical_reason().unwrap_or_default().as_bytes());
        bytes.put_slice(b"\r\n");
        let front = FRONT.iter().flat_map(|name| {
            self.headers.get_all(name).into_iter().map(move |value| (name, value))
        });
        let others = self.headers.iter().filter(|(name, _)| !FRONT.contains(name));
        for (name, value) in front.chain(others) {
            bytes.put_slice(name.as_str().as_bytes());
            bytes.put_slice(SEPARATOR);
            bytes.put_slice(value.as_bytes());
            bytes.put_slice(b"\r\n");
        }
        bytes
    }

    /// Decodes a head; `None` if it is invalid, which other writers of a shared tier may cause.
    #[must_use]
    pub fn decode(bytes: Bytes) -> Option<Self> {
        let StoredHead { status, status_line, fields } = StoredHead::parse(&bytes)?;
        let lines = memchr::memchr_iter(b'\n', fields).count();
        let mut headers = HeaderMap::try_with_capacity(lines + ADDED_FIELDS).ok()?;
        let mut at = status_line.len();
        while at < bytes.len() {
            let end = at + line_end(&bytes[at..])?;
            let (name, value) = split_line(&bytes[at..end])?;
            let value_at = at + name.len() + SEPARATOR.len();
            let value = bytes.slice(value_at..value_at + value.len());
            let value = HeaderValue::from_maybe_shared(value).ok()?;
            headers.try_append(HeaderName::from_bytes(name).ok()?, value).ok()?;
            at = end;
        }
        Some(Self { status, headers })
    }

    /// Decodes the head of an entry; `None` if it is invalid.
    #[must_use]
    pub fn of(entry: &Entry) -> Option<Self> {
        Self::of_head(&entry.head)
    }

    /// Decodes a head; `None` if it is invalid.
    #[must_use]
    pub fn of_head(head: &Head) -> Option<Self> {
        match head.view::<PassedHead>() {
            Some(PassedHead(answer)) => answer.lock().clone(),
            None => Self::decode(head.bytes()?),
        }
    }

    /// Returns the status of a head; `None` if it is invalid.
    pub(crate) fn status_of(head: &Head) -> Option<StatusCode> {
        match head.view::<PassedHead>() {
            Some(PassedHead(answer)) => answer.lock().as_ref().map(|answer| answer.status),
            None => StoredHead::parse(head.slice()?).map(|head| head.status),
        }
    }
}

/// Stored head as bytes. The fields are not checked until they are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredHead<'a> {
    /// Status code.
    pub(crate) status: StatusCode,
    /// Status line with its line ending.
    pub(crate) status_line: &'a [u8],
    /// Field lines with their line endings.
    pub(crate) fields: &'a [u8],
}

/// One field line of a stored head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredLine<'a> {
    /// Name, in lower case.
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
    /// The line with its line ending.
    pub(crate) whole: &'a [u8],
}

/// Fields of a stored head as a 200 needs them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Front<'a> {
    /// Field lines without `Age`.
    pub(crate) without_age: &'a [u8],
    content_lengths: &'a [u8],
    /// Lines after those of `Content-Length`.
    rest: &'a [u8],
}

/// Fields of a stored head as a 304 needs them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tagged<'a> {
    /// The whole head.
    head: StoredHead<'a>,
    /// Lines of `Date`.
    pub(crate) dates: &'a [u8],
    /// Lines of `ETag`.
    pub(crate) tags: &'a [u8],
    /// Lines after those of `ETag`.
    others: &'a [u8],
}

impl<'a> StoredHead<'a> {
    /// Reads the status line.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let code = bytes.strip_prefix(VERSION)?.get(..CODE)?;
        let status = StatusCode::from_bytes(code).ok()?;
        let (status_line, fields) = bytes.split_at(line_end(bytes)?);
        Some(Self { status, status_line, fields })
    }

    /// Returns all lines. Stops at the first one that is no field.
    pub(crate) fn lines(self) -> impl Iterator<Item = StoredLine<'a>> {
        lines_of(self.fields)
    }

    /// Locates the fields at the start.
    pub(crate) fn front(self) -> Front<'a> {
        let (_, without_age) = split_lines(self.fields, AGE_START);
        let (content_lengths, rest) = split_lines(without_age, LENGTH_START);
        Front { without_age, content_lengths, rest }
    }

    /// Locates the lines of `Date` and `ETag` in a head with this front.
    pub(crate) fn tagged(self, front: &Front<'a>) -> Tagged<'a> {
        let (dates, rest) = split_lines(front.rest, DATE_START);
        let (tags, others) = split_lines(rest, TAG_START);
        Tagged { head: self, dates, tags, others }
    }
}

impl<'a> Front<'a> {
    /// Returns the value of `Content-Length`; of several lines, a text that is no number.
    pub(crate) fn content_length(&self) -> Option<&'a [u8]> {
        self.content_lengths.strip_prefix(LENGTH_START)?.strip_suffix(b"\r\n")
    }

    /// Returns `true` if the head has a `Date`.
    pub(crate) fn has_date(&self) -> bool {
        self.rest.starts_with(DATE_START)
    }
}

impl<'a> Tagged<'a> {
    /// Returns the value of `ETag`, if it has one line.
    pub(crate) fn only_tag(&self) -> Option<&'a [u8]> {
        let mut lines = lines_of(self.tags);
        lines.next().filter(|_| lines.next().is_none()).map(|line| line.value)
    }

    /// Returns the lines after those of `ETag`.
    pub(crate) fn other_lines(&self) -> impl Iterator<Item = StoredLine<'a>> {
        lines_of(self.others)
    }
}

impl FieldLines for Tagged<'_> {
    // Inlined, the comparison with a constant name costs nothing.
    #[inline(always)]
    fn lines<'f>(&'f self, name: &HeaderName) -> impl Iterator<Item = &'f [u8]> {
        let fields = if *name == ETAG { self.tags } else { self.head.fields };
        values_in(fields, name.as_str())
    }

    fn lines_named<'f>(&'f self, name: &str) -> impl Iterator<Item = &'f [u8]> {
        values_in(self.head.fields, name)
    }

    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.head.lines().map(|line| (line.name, line.value))
    }
}

impl FieldLines for StoredHead<'_> {
    fn lines<'f>(&'f self, name: &HeaderName) -> impl Iterator<Item = &'f [u8]> {
        self.lines_named(name.as_str())
    }

    fn lines_named<'f>(&'f self, name: &str) -> impl Iterator<Item = &'f [u8]> {
        values_in(self.fields, name)
    }

    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        StoredHead::lines(*self).map(|line| (line.name, line.value))
    }
}

/// Returns all lines. Stops at the first one that is no field.
fn lines_of(fields: &[u8]) -> impl Iterator<Item = StoredLine<'_>> {
    let mut rest = fields;
    std::iter::from_fn(move || {
        let (whole, after) = rest.split_at(line_end(rest)?);
        rest = after;
        let (name, value) = split_line(whole)?;
        Some(StoredLine { name, value, whole })
    })
}

/// Returns the values of a name in these lines.
fn values_in<'f>(fields: &'f [u8], name: &str) -> impl Iterator<Item = &'f [u8]> {
    let (mut rest, mut was_found) = (fields, false);
    std::iter::from_fn(move || {
        while let Some(end) = line_end(rest) {
            let (line, after) = rest.split_at(end);
            rest = after;
            let value = line.strip_prefix(name.as_bytes());
            if let Some(value) = value.and_then(|value| value.strip_prefix(SEPARATOR)) {
                was_found = true;
                return value.strip_suffix(b"\r\n");
            }
            // The lines of a name follow one another.
            if was_found {
                rest = &[];
            }
        }
        None
    })
}

/// Splits the lines after those at their front that start with `start`.
#[inline]
fn split_lines<'a>(fields: &'a [u8], start: &[u8]) -> (&'a [u8], &'a [u8]) {
    let mut at = 0;
    while fields[at..].starts_with(start)
        && let Some(length) = line_end(&fields[at..])
        && fields[..at + length].ends_with(b"\r\n")
    {
        at += length;
    }
    fields.split_at(at)
}

/// Returns the length of the first line with its line ending.
fn line_end(bytes: &[u8]) -> Option<usize> {
    memchr::memchr(b'\n', bytes).map(|at| at + 1)
}

fn split_line(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.strip_suffix(b"\r\n")?;
    // Names are short: a vectorised search costs more.
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = line.split_at(colon);
    Some((name, value.strip_prefix(SEPARATOR)?))
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
        let head = sample().to_head();
        assert_eq!(head.bytes().and_then(Answer::decode), Some(sample()));
    }

    #[test]
    fn the_front_has_length_and_date_and_leaves_out_the_age() {
        let mut answer = sample();
        for (name, value) in [("date", "D"), ("content-length", "4"), ("age", "7")] {
            answer.headers.append(name, HeaderValue::from_static(value));
        }
        let bytes = answer.to_head().bytes().expect("it keeps them");
        let head = StoredHead::parse(&bytes).expect("a status line");
        assert_eq!(
            (head.status, head.status_line),
            (StatusCode::NOT_FOUND, &b"HTTP/1.1 404 Not Found\r\n"[..])
        );
        let front = head.front();
        assert_eq!((front.content_length(), front.has_date()), (Some(&b"4"[..]), true));
        let tagged = head.tagged(&front);
        assert_eq!((tagged.dates, tagged.tags), (&b"date: D\r\n"[..], &b"etag: \"1\"\r\n"[..]));
        let others = tagged.other_lines().map(|line| line.name).collect::<Vec<_>>();
        assert_eq!(others, [&b"link"[..], b"link", b"x-empty"]);
        assert!(front.without_age.starts_with(b"content-length: 4\r\ndate: D\r\netag: "));
        assert_eq!(head.lines_named("link").collect::<Vec<_>>(), [b"</a>", b"</b>"]);
    }

    #[test]
    fn a_stored_head_does_not_keep_the_read_buffer() {
        let read_buffer = Bytes::from(vec![b'x'; 8_192]);
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_maybe_shared(read_buffer.slice(..10)).expect("plain bytes");
        headers.append("etag", value);
        let head = Answer { status: StatusCode::OK, headers }.to_head();
        assert!(read_buffer.is_unique(), "the read buffer is free again");
        assert!(head.bytes().is_some());
    }

    #[test]
    fn a_truncated_head_does_not_decode() {
        let bytes = sample().to_head().bytes().expect("it keeps them");
        let whole = (0..bytes.len()).filter(|at| Answer::decode(bytes.slice(..*at)).is_some());
        // A head truncated between two fields decodes; the digest of the frame detects it.
        assert_eq!(whole.count(), 4);
    }

    #[test]
    fn bytes_that_are_no_head_do_not_decode() {
        let rows: [&[u8]; 7] = [
            b"",
            b"HTTP/1.1 200 OK",
            b"HTTP/1.0 200 OK\r\n",
            b"HTTP/1.1 20 OK\r\n",
            b"HTTP/1.1 200 OK\r\na:b\r\n",
            b"HTTP/1.1 200 OK\r\na: b\n",
            b"\xc8\x00\x04\x00etag",
        ];
        for bytes in rows {
            assert_eq!(Answer::decode(Bytes::from_static(bytes)), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_head_with_more_lines_than_a_header_map_holds_does_not_decode() {
        let mut bytes = b"HTTP/1.1 200 OK\r\n".to_vec();
        bytes.extend(b"\r\n".repeat(1 << 15));
        assert_eq!(Answer::decode(bytes.into()), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let _ = Answer::decode(bytes.into());
        }
    }
}
