//! Server without a parser: it reads until an empty line and writes prepared bytes.
//!
//! It is the floor of every server that uses epoll and two system calls per request, and an origin
//! that is faster than any cache. One thread; it runs until it is killed.
//!
//! The parameters `size` and `cc` of the target select the length of the body and the value of
//! `Cache-Control`, both without escapes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// Argument of this program that makes it this server.
pub(crate) const CHILD: &str = "raw-server";

/// Length of a response head without the empty line, in bytes.
pub(crate) const HEAD: usize = 250;

const EVENTS: usize = 256;
const BUFFER: usize = 64 << 10;

/// Data of the events of the listener; connections count from 0.
const LISTENER: u64 = u64::MAX;

struct Connection {
    stream: TcpStream,
    /// Start of an incomplete head.
    begun: Vec<u8>,
    /// Unwritten rest of responses.
    unwritten: Vec<u8>,
}

/// Last response, with the parameters that selected it.
#[derive(Default)]
struct Prepared {
    parameters: Vec<u8>,
    response: Vec<u8>,
}

pub(crate) fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // The form that the launcher of the test kit reads.
    println!("forebay ready: http://{}", listener.local_addr()?);
    listener.set_nonblocking(true)?;
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&poll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let (mut buffer, mut prepared) = (vec![0; BUFFER], Prepared::default());
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            if event.data.u64() == LISTENER {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                let free = connections.iter().position(Option::is_none);
                let place = free.unwrap_or(connections.len());
                let interest = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
                epoll::add(&poll, &stream, EventData::new_u64(place as u64), interest)?;
                let connection = Connection { stream, begun: Vec::new(), unwritten: Vec::new() };
                match connections.get_mut(place) {
                    Some(slot) => *slot = Some(connection),
                    None => connections.push(Some(connection)),
                }
                continue;
            }
            let place = usize::try_from(event.data.u64()).context("a place")?;
            let slot = connections.get_mut(place).context("a connection")?;
            let is_open = slot.as_mut().is_some_and(|one| one.answer(&mut buffer, &mut prepared));
            if !is_open {
                *slot = None;
            }
        }
    }
}

impl Connection {
    /// Answers all complete requests. Returns false at the end of the connection.
    fn answer(&mut self, buffer: &mut [u8], prepared: &mut Prepared) -> bool {
        loop {
            if !self.unwritten.is_empty() && !self.write_rest() {
                return false;
            }
            if !self.unwritten.is_empty() {
                return true;
            }
            let length = match self.stream.read(buffer) {
                Ok(0) => return false,
                Ok(length) => length,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            };
            let mut rest = &buffer[..length];
            let joined;
            if !self.begun.is_empty() {
                self.begun.extend_from_slice(rest);
                joined = std::mem::take(&mut self.begun);
                rest = &joined;
            }
            while let Some(end) = memchr::memmem::find(rest, b"\r\n\r\n") {
                prepared.select(&rest[..end]);
                if !self.write(&prepared.response) {
                    return false;
                }
                rest = &rest[end + 4..];
            }
            self.begun = rest.to_vec();
        }
    }

    fn write(&mut self, response: &[u8]) -> bool {
        let mut written = 0;
        if self.unwritten.is_empty() {
            written = match self.stream.write(response) {
                Ok(written) => written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(_) => return false,
            };
        }
        self.unwritten.extend_from_slice(&response[written..]);
        true
    }

    fn write_rest(&mut self) -> bool {
        while !self.unwritten.is_empty() {
            match self.stream.write(&self.unwritten) {
                Ok(written) => drop(self.unwritten.drain(..written)),
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }
}

impl Prepared {
    /// Prepares the response to a request head.
    fn select(&mut self, head: &[u8]) {
        let line = &head[..memchr::memchr(b'\r', head).unwrap_or(head.len())];
        let query = memchr::memchr(b'?', line).map_or(&b""[..], |at| &line[at + 1..]);
        let query = &query[..memchr::memchr(b' ', query).unwrap_or(query.len())];
        if self.response.is_empty() || self.parameters != query {
            self.parameters = query.to_vec();
            self.response = response(&String::from_utf8_lossy(query));
        }
    }
}

fn response(query: &str) -> Vec<u8> {
    let parameter =
        |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let size = parameter("size").and_then(|size| size.parse().ok()).unwrap_or(0);
    let control = parameter("cc").unwrap_or("no-store");
    let date = httpdate::fmt_http_date(SystemTime::now());
    let mut head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {size}\r\ndate: {date}\r\n\
         cache-control: {control}\r\ncontent-type: application/json; charset=utf-8\r\n\
         etag: \"33a64df551425fcc55e4d42a148795d9f25f89d4\"\r\nx-pad: "
    );
    let padding = HEAD.saturating_sub(head.len() + 2);
    head.extend(std::iter::repeat_n('p', padding));
    head.push_str("\r\n\r\n");
    let mut bytes = head.into_bytes();
    bytes.resize(bytes.len() + size, b'x');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_the_announced_lengths() {
        let text = String::from_utf8(response("size=40&cc=max-age=3600")).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!((head.len() + 2, body.len()), (HEAD, 40));
        assert!(head.contains("cache-control: max-age=3600"));
    }
}
