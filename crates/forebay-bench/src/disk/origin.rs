//! An origin of one large body and many small ones, which counts.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

/// One write's worth, and what can be verified by itself.
pub(crate) const BLOCK: usize = 64 << 10;

/// The longest head of a request.
const HEAD_MAX: usize = 4 << 10;

/// Small bodies have at least this many bytes, and at most so many more.
const SMALL_MIN: u64 = 1 << 10;
const SMALL_MORE: u64 = 8 << 10;

/// The origin. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    asked: Arc<Asked>,
}

#[derive(Default)]
struct Asked {
    film: AtomicU64,
    small: AtomicU64,
}

/// Size of the large body, and the duration of its transfer.
#[derive(Clone, Copy)]
pub(crate) struct Film {
    pub(crate) size: u64,
    pub(crate) takes: Duration,
}

impl Origin {
    pub(crate) async fn start(film: Film) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let origin = Self { address: listener.local_addr()?, asked: Arc::default() };
        let here = origin.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let here = here.clone();
                // A client that goes away ends its own connection alone.
                tokio::spawn(async move { here.serve(stream, film).await });
            }
        });
        Ok(origin)
    }

    /// Returns the number of requests for the large body.
    pub(crate) fn films(&self) -> u64 {
        self.asked.film.load(Ordering::Relaxed)
    }

    /// Returns the number of requests for small bodies.
    pub(crate) fn smalls(&self) -> u64 {
        self.asked.small.load(Ordering::Relaxed)
    }

    async fn serve(&self, mut stream: TcpStream, film: Film) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut head = Vec::new();
        loop {
            while !head.ends_with(b"\r\n\r\n") {
                if head.len() > HEAD_MAX || stream.read_buf(&mut head).await? == 0 {
                    return Ok(());
                }
            }
            let path = String::from_utf8_lossy(&head).split(' ').nth(1).map(str::to_owned);
            head.clear();
            match path.as_deref().and_then(|path| path.strip_prefix("/item/")?.parse().ok()) {
                Some(number) => self.small(&mut stream, number).await?,
                None => self.film(&mut stream, film).await?,
            }
        }
    }

    async fn small(&self, stream: &mut TcpStream, number: u64) -> io::Result<()> {
        self.asked.small.fetch_add(1, Ordering::Relaxed);
        let size = SMALL_MIN + number.wrapping_mul(2_654_435_761) % SMALL_MORE;
        let size = usize::try_from(size).unwrap_or(BLOCK);
        let answer = [head(size as u64).as_bytes(), &block(number)[..size]].concat();
        stream.write_all(&answer).await
    }

    /// At an even pace, whatever the reader does.
    async fn film(&self, stream: &mut TcpStream, film: Film) -> io::Result<()> {
        self.asked.film.fetch_add(1, Ordering::Relaxed);
        stream.write_all(head(film.size).as_bytes()).await?;
        let began = Instant::now();
        let blocks = film.size / BLOCK as u64;
        for number in 0..blocks {
            let share = u32::try_from(number).unwrap_or(0);
            sleep_until(began + film.takes / u32::try_from(blocks).unwrap_or(1) * share).await;
            stream.write_all(&block(number)).await?;
        }
        Ok(())
    }
}

fn head(size: u64) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nCache-Control: max-age=3600\r\n\r\n")
}

/// A block of a body: its number at the start, and what is the same in all behind it.
pub(crate) fn block(number: u64) -> Vec<u8> {
    let mut block: Vec<u8> = (0..BLOCK).map(|at| (at % 251).to_le_bytes()[0]).collect();
    block[..8].copy_from_slice(&number.to_le_bytes());
    block
}
