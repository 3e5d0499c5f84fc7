//! Incremental parser for replies to reads: strings, nil and errors.
//!
//! Input is untrusted. A length is compared with the limit before memory is allocated, and of a
//! large value that does not begin like a cache's only the first bytes are kept.

use bytes::Bytes;
use redis::{RedisError, parse_redis_value};

use crate::entry::envelope::value_prefix;
use crate::error::unexpected;

/// Bytes per read: as many small values as arrive together under load.
const BUFFER_LEN: usize = 64 << 10;

/// Minimum free space in the buffer before its content is moved to the front.
const FREE_SPACE_MIN: usize = BUFFER_LEN / 4;

/// Maximum bytes of a line: more than any length or error message.
const LINE_MAX: usize = 4 << 10;

const LINE_END: &[u8] = b"\r\n";

/// One reply.
#[derive(Debug)]
pub(crate) enum Reply {
    Value(Bytes),
    Nothing,
    /// The command was carried out and has no result.
    Done,
    Refused(RedisError),
}

/// The bytes are not a valid reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Buffer and state of the parser.
pub(crate) struct Replies {
    buffer: Box<[u8]>,
    /// Range of bytes that were received and not parsed.
    start: usize,
    end: usize,
    large: Option<LargeValue>,
    /// Maximum bytes of a value.
    bytes_max: usize,
}

/// A value larger than the buffer.
struct LargeValue {
    value: Vec<u8>,
    /// Number of bytes to keep; `None` until the first bytes have arrived.
    kept: Option<usize>,
    length: usize,
    /// Number of bytes not received yet.
    left: usize,
}

impl Replies {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let buffer = vec![0; BUFFER_LEN].into();
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        Self { buffer, start: 0, end: 0, large: None, bytes_max }
    }

    /// Returns the buffer for the next bytes. It is never empty unless [`Replies::next`] fails.
    pub(crate) fn free_space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < FREE_SPACE_MIN {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// Records that `count` bytes were written to the buffer.
    pub(crate) fn received(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// Returns the next complete reply.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not a valid reply.
    pub(crate) fn next(&mut self) -> Result<Option<Reply>, Malformed> {
        if self.large.is_some() {
            return self.rest_of_large();
        }
        let unread = &self.buffer[self.start..self.end];
        let Some(line) = unread.iter().take(LINE_MAX).position(|byte| *byte == b'\n') else {
            return if unread.len() < LINE_MAX { Ok(None) } else { Err(Malformed) };
        };
        let (line, rest) = unread.split_at(line + 1);
        let text = line.strip_suffix(LINE_END).ok_or(Malformed)?;
        let (kind, text) = text.split_first().ok_or(Malformed)?;
        let line_len = line.len();
        let reply = match kind {
            b'$' if text == b"-1" => Reply::Nothing,
            b'$' => {
                let length = number(text).filter(|it| *it <= self.bytes_max).ok_or(Malformed)?;
                return self.value(length, line_len);
            }
            b'_' => Reply::Nothing,
            b'+' => Reply::Done,
            b'-' => Reply::Refused(refusal(&unread[..unread.len() - rest.len()])),
            _ => return Err(Malformed),
        };
        self.start += line_len;
        Ok(Some(reply))
    }

    fn value(&mut self, length: usize, line_len: usize) -> Result<Option<Reply>, Malformed> {
        let total = line_len + length + LINE_END.len();
        if total > self.buffer.len() {
            self.start += line_len;
            self.large = Some(LargeValue { value: Vec::new(), kept: None, length, left: length });
            return self.rest_of_large();
        }
        let unread = &self.buffer[self.start..self.end];
        let Some(value) = unread.get(line_len..total) else { return Ok(None) };
        // Copied, since a slice would keep the whole buffer.
        let value = Bytes::copy_from_slice(value.strip_suffix(LINE_END).ok_or(Malformed)?);
        self.start += total;
        Ok(Some(Reply::Value(value)))
    }

    fn rest_of_large(&mut self) -> Result<Option<Reply>, Malformed> {
        let Some(large) = &mut self.large else { return Ok(None) };
        let unread = &self.buffer[self.start..self.end];
        let Some(taken) = large.take(unread) else { return Ok(None) };
        self.start += taken;
        // Until the value is complete, nothing follows it.
        let Some(end) = unread[taken..].get(..LINE_END.len()) else { return Ok(None) };
        if end != LINE_END {
            return Err(Malformed);
        }
        self.start += LINE_END.len();
        let value = self.large.take().map(|large| large.value).unwrap_or_default();
        Ok(Some(Reply::Value(value.into())))
    }
}

impl LargeValue {
    /// Takes the value's bytes and returns their number; `None` until the first bytes have arrived.
    fn take(&mut self, unread: &[u8]) -> Option<usize> {
        let value_prefix = value_prefix();
        let kept = match self.kept {
            Some(kept) => kept,
            None if unread.len() < value_prefix.len() => return None,
            None => {
                let is_ours = unread.starts_with(&value_prefix);
                let kept = if is_ours { self.length } else { value_prefix.len() };
                self.value.reserve_exact(kept);
                *self.kept.insert(kept)
            }
        };
        let taken = unread.len().min(self.left);
        let wanted = taken.min(kept - self.value.len());
        self.value.extend_from_slice(&unread[..wanted]);
        self.left -= taken;
        Some(taken)
    }
}

fn number(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses an error line.
fn refusal(line: &[u8]) -> RedisError {
    let read = parse_redis_value(line).and_then(redis::Value::extract_error);
    read.err().unwrap_or_else(unexpected)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 1 << 20;

    /// Parses the bytes, received in pieces of this size.
    fn read(bytes: &[u8], piece: usize) -> Result<Vec<Reply>, Malformed> {
        let (mut replies, mut all) = (Replies::new(MAX), Vec::new());
        for piece in bytes.chunks(piece) {
            let mut rest = piece;
            while !rest.is_empty() {
                let free_space = replies.free_space();
                let count = free_space.len().min(rest.len());
                assert!(count > 0, "there is always room");
                free_space[..count].copy_from_slice(&rest[..count]);
                replies.received(count);
                rest = &rest[count..];
                while let Some(reply) = replies.next()? {
                    all.push(reply);
                }
            }
        }
        Ok(all)
    }

    fn shown(replies: &[Reply]) -> Vec<String> {
        let shown = |reply: &Reply| match reply {
            Reply::Value(value) if value.len() < 10 => format!("{value:?}"),
            Reply::Value(value) => format!("{} bytes", value.len()),
            Reply::Nothing => "nothing".to_owned(),
            Reply::Done => "done".to_owned(),
            Reply::Refused(error) => format!("{:?}", error.code()),
        };
        replies.iter().map(shown).collect()
    }

    fn bulk(value: &[u8]) -> Vec<u8> {
        [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
    }

    #[test]
    fn replies_are_independent_of_chunking() {
        let ours = [&value_prefix()[..], &vec![7; 200_000]].concat();
        let bytes = [
            &b"+PONG\r\n$2\r\n\r\n\r\n$0\r\n\r\n$-1\r\n_\r\n"[..],
            b"-WRONGTYPE Operation against a key\r\n-NOPERM no\r\n",
            &bulk(&ours),
            &bulk(b"x"),
            &bulk(&vec![b'x'; 60_000]),
            &bulk(&vec![b'x'; 200_000]),
            &bulk(b"end"),
        ]
        .concat();
        let expected = [
            "done",
            r#"b"\r\n""#,
            r#"b"""#,
            "nothing",
            "nothing",
            r#"Some("WRONGTYPE")"#,
            r#"Some("NOPERM")"#,
            "200005 bytes",
            r#"b"x""#,
            "60000 bytes",
            // A value of another program: only its first bytes are kept.
            r#"b"xxxxx""#,
            r#"b"end""#,
        ];
        for piece in [1, 2, 3, 7, 1_000, 65_535, 65_536, 1 << 20] {
            assert_eq!(shown(&read(&bytes, piece).unwrap()), expected, "{piece}");
        }
    }

    #[test]
    fn large_value_is_received_unchanged() {
        let mut ours = value_prefix().to_vec();
        ours.extend((0..300_000_u32).map(|number| number.to_le_bytes()[0]));
        for piece in [4_096, 65_536] {
            let replies = read(&bulk(&ours), piece).unwrap();
            let [Reply::Value(value)] = &replies[..] else { panic!("{replies:?}") };
            assert!(value[..] == ours[..]);
        }
    }

    #[test]
    fn invalid_reply_is_malformed() {
        let long_line = vec![b'+'; LINE_MAX];
        let too_long = format!("${}\r\n", MAX + 1);
        for wrong in [
            &b"\r\n"[..],
            b":1\r\n",
            b"*1\r\n$1\r\nx\r\n",
            b">1\r\n$1\r\nx\r\n",
            b"$x\r\n",
            b"$-2\r\n",
            b"$99999999999999999999999\r\n",
            b"+PONG\n",
            b"$1\r\nxyz",
            too_long.as_bytes(),
            &long_line,
        ] {
            for piece in [1, 1 << 20] {
                assert_eq!(read(wrong, piece).unwrap_err(), Malformed, "{:?}", &wrong[..4]);
            }
        }
        let mut cut = bulk(&vec![b'x'; 100_000]);
        *cut.last_mut().unwrap() = b'x';
        assert_eq!(read(&cut, 999).unwrap_err(), Malformed);
    }

    #[test]
    fn large_foreign_reply_is_not_buffered() {
        let mut replies = Replies::new(MAX);
        let bytes = bulk(&vec![b'x'; 500_000]);
        for piece in bytes[..bytes.len() - 1].chunks(BUFFER_LEN / 2) {
            replies.free_space()[..piece.len()].copy_from_slice(piece);
            replies.received(piece.len());
            assert!(replies.next().unwrap().is_none());
            let kept = replies.large.as_ref().map(|large| large.value.capacity());
            assert_eq!(kept, Some(value_prefix().len()));
        }
    }
}
