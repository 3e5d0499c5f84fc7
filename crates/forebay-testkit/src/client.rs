//! An HTTP/1.1 client that shows what really came: fields in order, bodies that broke off,
//! interim responses, and when each part arrived.
//!
//! Every wait ends after the client's patience, [`PATIENCE`] unless told otherwise.

mod crowd;
mod reply;
mod request;

pub use crowd::{Timings, crowd};
pub use reply::{Interim, Reply};
pub use request::Request;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::{Bytes, BytesMut};
use tokio::net::TcpStream;

use crate::wire::{BodyReader, Framing, Wire};

/// Longest wait for one step, such as one reply, unless the test says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// How many bytes of a body are kept; later ones are only counted.
pub const BODY_KEPT: usize = 64 << 20;

/// More interim responses than this before one reply are an error.
const INTERIM_MAX: usize = 32;

/// One connection.
#[derive(Debug)]
pub struct Client {
    wire: Wire,
    patience: Duration,
    asked: VecDeque<Asked>,
    body_unread: bool,
}

/// What has to be known of a request to read its reply.
#[derive(Clone, Copy, Debug)]
struct Asked {
    is_head: bool,
    at: Instant,
}

impl Client {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = within(PATIENCE, "connect", TcpStream::connect(address)).await?;
        let wire = Wire::new(stream.with_context(|| format!("connect to {address}"))?)?;
        Ok(Self { wire, patience: PATIENCE, asked: VecDeque::new(), body_unread: false })
    }

    /// Changes how long each step may take.
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends a request and reads its reply to the end.
    pub async fn ask(&mut self, request: &Request) -> anyhow::Result<Reply> {
        self.send(request).await?;
        self.reply().await
    }

    /// Sends a request. Several may be sent before the first reply is read.
    pub async fn send(&mut self, request: &Request) -> anyhow::Result<()> {
        self.write(&request.to_bytes(), request.is_head()).await
    }

    /// Sends bytes as they are. Those that begin with `HEAD ` announce a reply without a body.
    pub async fn send_raw(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.write(bytes, bytes.starts_with(b"HEAD ")).await
    }

    /// Reads the next reply to the end. A body that breaks off is not an error: see
    /// [`Reply::ended_cleanly`].
    pub async fn reply(&mut self) -> anyhow::Result<Reply> {
        let mut reply = self.head().await?;
        self.read_body(&mut reply).await?;
        Ok(reply)
    }

    /// Reads the next reply's head, and the interim responses before it. Its body must be read
    /// with [`read_body`](Self::read_body) before the next head.
    pub async fn head(&mut self) -> anyhow::Result<Reply> {
        if self.body_unread {
            bail!("the body of the reply before has not been read to its end");
        }
        within(self.patience, "a reply's head", self.next_head()).await?
    }

    /// Reads the rest of the reply's body.
    pub async fn read_body(&mut self, reply: &mut Reply) -> anyhow::Result<()> {
        self.read_body_until(reply, u64::MAX).await
    }

    /// Reads on until the reply's body has at least that many bytes, or has ended.
    pub async fn read_body_until(&mut self, reply: &mut Reply, enough: u64) -> anyhow::Result<()> {
        let reading = reply.body.read(&mut self.wire, enough);
        let waited = tokio::time::timeout(self.patience, reading).await;
        self.body_unread = !reply.body.ended();
        waited.with_context(|| {
            let (waited, came) = (self.patience, reply.body.length);
            format!("waited {waited:?} for a reply's body, of which {came} bytes came")
        })
    }

    /// Reads everything up to the end of the connection.
    pub async fn read_to_close(&mut self) -> anyhow::Result<Closed> {
        let mut bytes = BytesMut::new();
        let broke = within(self.patience, "the end of the connection", async {
            loop {
                match self.wire.some(u64::MAX).await {
                    Ok(some) if some.is_empty() => return Ok(None),
                    Ok(some) => bytes.extend_from_slice(&some),
                    Err(error) => return Ok(Some(error.to_string())),
                }
                if bytes.len() > BODY_KEPT {
                    bail!("more than {BODY_KEPT} bytes before the end of the connection");
                }
            }
        })
        .await??;
        Ok(Closed { bytes: bytes.freeze(), broke })
    }

    /// Ends our side of the connection and keeps reading.
    pub async fn finish(&mut self) -> anyhow::Result<()> {
        Ok(self.wire.finish().await?)
    }

    /// Ends the connection with a reset.
    pub fn reset(self) -> anyhow::Result<()> {
        Ok(self.wire.reset()?)
    }

    async fn write(&mut self, bytes: &[u8], is_head: bool) -> anyhow::Result<()> {
        self.asked.push_back(Asked { is_head, at: Instant::now() });
        within(self.patience, "room to write", self.wire.write(bytes)).await??;
        Ok(())
    }

    async fn next_head(&mut self) -> anyhow::Result<Reply> {
        let asked = self.asked.pop_front();
        let asked = asked.unwrap_or_else(|| Asked { is_head: false, at: Instant::now() });
        let mut interim = Vec::new();
        loop {
            let raw_head = self.wire.head().await?.context("closed without a reply")?;
            let head = reply::Head::parse(raw_head, self.wire.filled_at)?;
            if !head.is_interim() {
                let body = BodyReader::new(framing(&head, asked), BODY_KEPT);
                self.body_unread = true;
                return Ok(Reply::new(head, interim, body, asked.at));
            }
            interim.push(Interim { status: head.status, fields: head.fields });
            if interim.len() > INTERIM_MAX {
                bail!("more than {INTERIM_MAX} interim responses");
            }
        }
    }
}

/// What came before a connection ended.
#[derive(Clone, Debug)]
pub struct Closed {
    /// The bytes.
    pub bytes: Bytes,
    /// Why it ended, unless it ended in order.
    pub broke: Option<String>,
}

/// Which body a reply has (RFC 9112, section 6.3).
fn framing(head: &reply::Head, asked: Asked) -> Framing {
    if asked.is_head || matches!(head.status, 101 | 204 | 304) {
        return Framing::Length(0);
    }
    Framing::of(&head.fields, Framing::UntilClose)
}

async fn within<T>(
    bound: Duration,
    what: &str,
    wait: impl Future<Output = T>,
) -> anyhow::Result<T> {
    let waited = tokio::time::timeout(bound, wait).await;
    waited.with_context(|| format!("waited {bound:?} for {what}"))
}

#[cfg(test)]
mod tests;
