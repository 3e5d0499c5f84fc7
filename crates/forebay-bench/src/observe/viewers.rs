//! Clients of the admin listener, and a collector of spans, which read or do not read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Receive buffer of a client that does not read.
const SMALL_BUFFER: u32 = 4 << 10;

/// Interval of `top`, as a person sees it.
const TOP_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes that a reader takes at once.
const PIECE: usize = 64 << 10;

/// Largest head of a request to the collector.
const HEAD_MAX: usize = 16 << 10;

/// Viewers, which leave when this is dropped.
#[derive(Default)]
pub(super) struct Viewers {
    readers: JoinSet<Result<()>>,
    /// Connections that are not read.
    stuck: Vec<TcpStream>,
}

fn request(admin: SocketAddr, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\n\r\n")
}

impl Viewers {
    /// Requests a path this many times on one connection, and reads all that comes.
    pub(super) async fn read(&mut self, admin: SocketAddr, path: &str, times: usize) -> Result<()> {
        let mut stream = TcpStream::connect(admin).await?;
        stream.write_all(request(admin, path).repeat(times).as_bytes()).await?;
        let mut first = vec![0; PIECE];
        anyhow::ensure!(stream.read(&mut first).await? > 0, "{path} is not answered");
        let is_ok = first.starts_with(b"HTTP/1.1 200");
        anyhow::ensure!(is_ok, "{path}: {}", String::from_utf8_lossy(&first));
        self.readers.spawn(read_all(stream, first));
        Ok(())
    }

    /// Requests a path this many times on one connection, and reads nothing.
    pub(super) async fn stick(
        &mut self,
        admin: SocketAddr,
        path: &str,
        times: usize,
    ) -> Result<()> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(SMALL_BUFFER)?;
        let mut stream = socket.connect(admin).await?;
        stream.write_all(request(admin, path).repeat(times).as_bytes()).await?;
        self.stuck.push(stream);
        Ok(())
    }

    /// Asks for the lists of `top` again and again.
    pub(super) async fn watch_top(&mut self, admin: SocketAddr) -> Result<()> {
        self.readers.spawn(poll_top(TcpStream::connect(admin).await?, admin));
        Ok(())
    }

    /// Fails if a reader has failed.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.readers.try_join_next() {
            None => Ok(()),
            Some(ended) => ended?.context("a viewer of the admin listener has ended"),
        }
    }
}

/// Reads until the end of a connection.
async fn read_all(mut stream: TcpStream, mut piece: Vec<u8>) -> Result<()> {
    while stream.read(&mut piece).await? > 0 {}
    Ok(())
}

async fn poll_top(mut stream: TcpStream, admin: SocketAddr) -> Result<()> {
    let (mut piece, mut ticks) = (vec![0; PIECE], tokio::time::interval(TOP_INTERVAL));
    loop {
        tokio::select! {
            _ = ticks.tick() => stream.write_all(request(admin, "/top").as_bytes()).await?,
            read = stream.read(&mut piece) => anyhow::ensure!(read? > 0, "top has ended"),
        }
    }
}

/// Collector of spans on a free port, which stops when this is dropped.
pub(super) struct Collector {
    pub(super) address: SocketAddr,
    requests: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Collector {
    /// Starts a collector that accepts all spans; a stuck one reads and answers nothing.
    pub(super) async fn start(is_stuck: bool) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, requests) = (listener.local_addr()?, Arc::<AtomicU64>::default());
        let (mut tasks, counted) = (JoinSet::new(), requests.clone());
        tasks.spawn(async move {
            let (mut exchanges, mut stuck) = (JoinSet::new(), Vec::new());
            while let Ok((stream, _)) = listener.accept().await {
                if is_stuck {
                    stuck.push(stream);
                } else {
                    exchanges.spawn(collect(stream, counted.clone()));
                }
            }
        });
        Ok(Self { address, requests, _tasks: tasks })
    }

    /// Number of requests that were answered.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// Answers the requests of a connection, until it ends.
async fn collect(mut stream: TcpStream, requests: Arc<AtomicU64>) -> Result<()> {
    let mut received = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = memchr::memmem::find(&received, b"\r\n\r\n") {
                break end + 4;
            }
            anyhow::ensure!(received.len() < HEAD_MAX, "the head of a request is too large");
            anyhow::ensure!(stream.read_buf(&mut received).await? > 0, "the connection has ended");
        };
        let text = String::from_utf8_lossy(&received[..head]).to_ascii_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.context("a request without a length")?.trim().parse()?;
        while received.len() < head + length {
            anyhow::ensure!(stream.read_buf(&mut received).await? > 0, "the connection has ended");
        }
        received.drain(..head + length);
        requests.fetch_add(1, Ordering::Relaxed);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
    }
}
