//! Makes sure that what is going to be measured is a hit of the right length.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::Size;
use super::rivals::Rival;

/// The first request fills the cache, the second should be a hit; a cache may need a moment
/// to put the answer away, but not more requests than this.
const TRIES_MAX: u32 = 5;
/// How long an answer may take; it comes from this machine.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// A head and the largest body, with room to spare: more is not what was asked for.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// Asks until the answer is a hit; fails when it never is, or is wrong.
pub(super) fn until_hit(rival: &Rival, size: Size) -> Result<()> {
    let mut head = String::new();
    for _ in 0..TRIES_MAX {
        let answer = ask(rival, size).with_context(|| format!("ask {}", rival.name))?;
        let length = answer.body;
        let is_ok = answer.head.starts_with("HTTP/1.1 200 ");
        ensure!(is_ok, "{} answers\n{}", rival.name, answer.head);
        ensure!(length == size.bytes, "{} sends {length} bytes, not {}", rival.name, size.bytes);
        if rival.hit_mark.is_none_or(|mark| is_marked(&answer.head, mark)) {
            return Ok(());
        }
        head = answer.head;
    }
    bail!("{} does not make a hit of it:\n{head}", rival.name)
}

struct Answer {
    head: String,
    body: usize,
}

fn ask(rival: &Rival, size: Size) -> Result<Answer> {
    let mut stream = TcpStream::connect(rival.address).context("connect")?;
    stream.set_read_timeout(Some(ANSWER_MAX)).context("set a time limit")?;
    let target = rival.target(size);
    let request =
        format!("GET {target} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", rival.address);
    stream.write_all(request.as_bytes()).context("send")?;
    let mut bytes = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes).context("receive")?;
    parse(&bytes).context("the answer has no head")
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    Some(Answer { head, body: bytes.len() - end - 4 })
}

/// Whether a field of the head has a value that holds the mark.
fn is_marked(head: &str, (field, mark): (&str, &str)) -> bool {
    let values = head.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case(field).then_some(value)
    });
    values.into_iter().any(|value| value.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_head_and_a_body() {
        let answer = parse(b"HTTP/1.1 200 OK\r\nage: 1\r\n\r\nab\r\n\r\nc").unwrap();
        assert_eq!((answer.head.as_str(), answer.body), ("HTTP/1.1 200 OK\r\nage: 1", 7));
        assert!(parse(b"HTTP/1.1 200 OK\r\n").is_none());
    }

    #[test]
    fn a_mark_is_looked_for_in_its_field_alone() {
        let head = "HTTP/1.1 200 OK\r\nCache-Status: forebay; hit; ttl=9\r\nX-Cache: MISS";
        assert!(is_marked(head, ("cache-status", "hit")));
        assert!(!is_marked(head, ("x-cache", "HIT")));
        assert!(!is_marked(head, ("via", "hit")));
    }
}
