//! Benchmarks of requests that the origin answers, from the bytes of the request to the bytes of the
//! response. The origin is a thread, which is not counted.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use bytes::Bytes;

use crate::front_end::{Filled, HEAD, served};
use crate::replay::Replay;
use crate::{Run, measured};

/// Number in the target of the request.
const NUMBER: &str = "0042";

/// Body of each response.
const BODY: &str = "{\"id\":42,\"name\":\"a product\",\"stock\":[1,2,3],\"price\":\"9.99\"}";

/// Case: a response that may not be stored, with a pass marker. Both connections are kept.
pub(crate) fn pass(times: usize) -> Result<Run> {
    fetched(times, "no-store", None)
}

/// Case: a response that is not in memory and is stored. Both connections are kept.
pub(crate) fn miss(times: usize) -> Result<Run> {
    let at = HEAD.find(NUMBER).context("no number in the request")?;
    fetched(times, "max-age=3600", Some(at..at + NUMBER.len()))
}

fn fetched(times: usize, cache_control: &str, number: Option<Range<usize>>) -> Result<Run> {
    let filled = Filled::empty(origin(cache_control)?)?;
    let (service, answers) = (filled.service.clone(), Arc::new(AtomicUsize::new(0)));
    let request = Bytes::from_static(HEAD.as_bytes());
    let mut served = served(filled, Replay::new(request, number, times, answers.clone()));
    let is_stored = cache_control != "no-store";
    Ok(Box::new(move || {
        measured(&mut served);
        let stored = service.engine().memory().entries();
        let expected = if is_stored { times as u64 } else { 0 };
        if stored == expected { answers.load(Ordering::Relaxed) } else { 0 }
    }))
}

/// Starts an origin that gives every request the same answer.
fn origin(cache_control: &str) -> Result<SocketAddr> {
    let (length, date) = (BODY.len(), httpdate::fmt_http_date(SystemTime::now()));
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nDate: {date}\r\nCache-Control: {cache_control}\r\n\
         Content-Type: application/json\r\nETag: \"33a64df551425fcc\"\r\nServer: bench\r\n\r\n{BODY}"
    );
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || serve(connection, answer.as_bytes()));
        }
    });
    Ok(address)
}

/// Answers each request of a connection until its client closes it.
fn serve(mut connection: TcpStream, answer: &[u8]) {
    let (mut buffer, mut head) = ([0; 4_096], Vec::new());
    while let Ok(length @ 1..) = connection.read(&mut buffer) {
        head.extend_from_slice(&buffer[..length]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            if connection.write_all(answer).is_err() {
                return;
            }
        }
    }
}
