//! HTTP/1.1 client that shows responses as received: fields in order, truncated bodies, interim
//! responses, and the time of each part.
//!
//! Every wait is limited by [`PATIENCE`].

mod crowd;
mod reply;
mod request;

pub use crowd::{Timings, crowd, crowd_of};
pub use reply::{Interim, Reply};
pub use request::Request;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::{Bytes, BytesMut};
use tokio::net::TcpStream;

use crate::wire::{BodyReader, Framing, Wire};

/// Limit of one step, such as the wait for one response.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Maximum number of bytes of a body that are kept; later ones are only counted.
pub const BODY_KEPT: usize = 64 << 20;

/// Maximum number of interim responses before one response.
const INTERIM_MAX: usize = 32;

/// Client with one connection.
#[derive(Debug)]
pub struct Client {
    wire: Wire,
    asked: VecDeque<Asked>,
    body_unread: bool,
}

/// Properties of a request that are needed to read its response.
#[derive(Clone, Copy, Debug)]
struct Asked {
    is_head: bool,
    at: Instant,
}

impl Client {
    /// Connects to `address`.
    ///
    /// # Errors
    /// If the connection fails or takes longer than [`PATIENCE`].
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = within(PATIENCE, "connect", TcpStream::connect(address)).await?;
        let wire = Wire::new(stream.with_context(|| format!("connect to {address}"))?)?;
        Ok(Self { wire, asked: VecDeque::new(), body_unread: false })
    }

    /// Sends a request and reads its whole response.
    ///
    /// # Errors
    /// If sending fails, or no valid response head arrives in time.
    pub async fn ask(&mut self, request: &Request) -> anyhow::Result<Reply> {
        self.send(request).await?;
        self.reply().await
    }

    /// Sends a request. Several may be sent before the first response is read.
    ///
    /// # Errors
    /// If writing fails or takes too long.
    pub async fn send(&mut self, request: &Request) -> anyhow::Result<()> {
        self.write(&request.to_bytes(), request.is_head()).await
    }

    /// Sends bytes unchanged. If they begin with `HEAD `, the response has no body.
    ///
    /// # Errors
    /// If writing fails or takes too long.
    pub async fn send_raw(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.write(bytes, bytes.starts_with(b"HEAD ")).await
    }

    /// Reads the next whole response. A truncated body is not an error: see
    /// [`Reply::ended_cleanly`].
    ///
    /// # Errors
    /// If no valid response head arrives in time, or the body takes too long.
    pub async fn reply(&mut self) -> anyhow::Result<Reply> {
        let mut reply = self.head().await?;
        self.read_body(&mut reply).await?;
        Ok(reply)
    }

    /// Reads the head of the next response, and the interim responses before it. Its body must be
    /// read with [`read_body`](Self::read_body) before the next head.
    ///
    /// # Errors
    /// If no valid response head arrives in time, or a body is unread.
    pub async fn head(&mut self) -> anyhow::Result<Reply> {
        if self.body_unread {
            bail!("the body of the reply before has not been read to its end");
        }
        within(PATIENCE, "a reply's head", self.next_head()).await?
    }

    /// Reads the rest of a response's body.
    ///
    /// # Errors
    /// If the body takes too long.
    pub async fn read_body(&mut self, reply: &mut Reply) -> anyhow::Result<()> {
        self.read_body_until(reply, u64::MAX).await
    }

    /// Reads until the body has at least `enough` bytes, or has ended.
    ///
    /// # Errors
    /// If that takes too long.
    pub async fn read_body_until(&mut self, reply: &mut Reply, enough: u64) -> anyhow::Result<()> {
        let reading = reply.body.read(&mut self.wire, enough);
        let waited = tokio::time::timeout(PATIENCE, reading).await;
        self.body_unread = !reply.body.ended();
        waited.with_context(|| {
            let came = reply.body.length;
            format!("waited {PATIENCE:?} for a reply's body, of which {came} bytes came")
        })
    }

    /// Reads until the connection ends.
    ///
    /// # Errors
    /// If that takes too long, or more than [`BODY_KEPT`] bytes arrive.
    pub async fn read_to_close(&mut self) -> anyhow::Result<Closed> {
        let mut bytes = BytesMut::new();
        let broke = within(PATIENCE, "the end of the connection", async {
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

    /// Closes the sending side of the connection.
    ///
    /// # Errors
    /// If the connection is already broken.
    pub async fn finish(&mut self) -> anyhow::Result<()> {
        Ok(self.wire.finish().await?)
    }

    /// Resets the connection.
    ///
    /// # Errors
    /// If the socket refuses the option.
    pub fn reset(self) -> anyhow::Result<()> {
        Ok(self.wire.reset()?)
    }

    async fn write(&mut self, bytes: &[u8], is_head: bool) -> anyhow::Result<()> {
        self.asked.push_back(Asked { is_head, at: Instant::now() });
        within(PATIENCE, "room to write", self.wire.write(bytes)).await??;
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

/// End of a connection.
#[derive(Clone, Debug)]
pub struct Closed {
    /// Bytes received before the end.
    pub bytes: Bytes,
    /// Error that ended the connection; `None` after an orderly close.
    pub broke: Option<String>,
}

/// Framing of a response's body (RFC 9112, section 6.3).
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
