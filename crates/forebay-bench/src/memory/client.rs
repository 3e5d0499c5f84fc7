//! A client as small as it can be: thousands of them must not be what is measured.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// The largest head that is waited for.
const HEAD_MAX: usize = 8 << 10;

/// Size of one read.
const SCRATCH: usize = 64 << 10;

/// The receive buffer of a client that does not read, so that little of a body leaves the cache.
const SMALL_BUFFER: u32 = 16 << 10;

/// One connection that is kept.
pub(crate) struct Client {
    stream: TcpStream,
    scratch: Vec<u8>,
}

/// An answer that was read to its end.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: u64,
}

impl Client {
    pub(crate) async fn connect(to: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { stream: TcpStream::connect(to).await?, scratch: Vec::new() })
    }

    /// One whose system takes little more than it reads.
    pub(crate) async fn small(to: SocketAddr) -> anyhow::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(SMALL_BUFFER)?;
        Ok(Self { stream: socket.connect(to).await?, scratch: Vec::new() })
    }

    pub(crate) async fn ask(&mut self, path: &str) -> anyhow::Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n");
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    /// Asks, and reads the answer to its end.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Answer> {
        self.ask(path).await?;
        self.scratch.resize(SCRATCH, 0);
        let (head, mut body) = self.head().await?;
        let length: u64 = field(&head, "content-length").context("no length")?.parse()?;
        while body < length {
            let read = self.stream.read(&mut self.scratch).await?;
            if read == 0 {
                bail!("the body ends after {body} of {length} bytes");
            }
            body += read as u64;
        }
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok(Answer { status, body })
    }

    /// Lets go of what only a client that asks needs.
    pub(crate) fn rest(&mut self) {
        self.scratch = Vec::new();
    }

    /// The head, and how much of the body came with it.
    async fn head(&mut self) -> anyhow::Result<(String, u64)> {
        let mut filled = 0;
        while filled < HEAD_MAX {
            let read = self.stream.read(&mut self.scratch[filled..]).await?;
            if read == 0 {
                bail!("the connection ends after {filled} bytes of a head");
            }
            filled += read;
            let end = self.scratch[..filled].windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                let head = String::from_utf8_lossy(&self.scratch[..end]).into_owned();
                return Ok((head, (filled - end - 4) as u64));
            }
        }
        bail!("a head of more than {HEAD_MAX} bytes")
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim())
}
