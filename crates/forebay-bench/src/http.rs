//! HTTP/1.1 client whose caller decides when a body is read.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::header::HeaderName;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;

/// Receive buffer of a client that does not read, so that little of a body leaves the cache.
const SMALL_BUFFER: u32 = 16 << 10;

/// One connection that is kept.
pub(crate) struct Client(SendRequest<Empty<Bytes>>);

impl Client {
    pub(crate) async fn connect(to: SocketAddr) -> Result<Self> {
        Self::on(TcpSocket::new_v4()?, to).await
    }

    /// Connects with a small receive buffer.
    pub(crate) async fn small(to: SocketAddr) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(SMALL_BUFFER)?;
        Self::on(socket, to).await
    }

    async fn on(socket: TcpSocket, to: SocketAddr) -> Result<Self> {
        let stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // An error of the connection is an error of its request as well.
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// Requests a path, and returns the response once its head has arrived.
    pub(crate) async fn ask(&mut self, path: &str) -> Result<Response<Incoming>> {
        self.ask_with(path, None).await
    }

    async fn ask_with(
        &mut self,
        path: &str,
        field: Option<(HeaderName, &'static str)>,
    ) -> Result<Response<Incoming>> {
        self.0.ready().await?;
        let mut request = Request::get(path).header("host", "bench");
        if let Some((name, value)) = field {
            request = request.header(name, value);
        }
        Ok(self.0.send_request(request.body(Empty::new())?).await?)
    }

    /// Requests a path, and returns the response with the length of its whole body.
    pub(crate) async fn get(&mut self, path: &str) -> Result<(Response<()>, u64)> {
        self.get_with(path, None).await
    }

    /// Requests a path with a field.
    pub(crate) async fn get_with(
        &mut self,
        path: &str,
        field: Option<(HeaderName, &'static str)>,
    ) -> Result<(Response<()>, u64)> {
        let (head, mut body) = self.ask_with(path, field).await?.into_parts();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame?.data_ref().map_or(0, |data| data.len() as u64);
        }
        Ok((Response::from_parts(head, ()), length))
    }
}

/// Next bytes of a body, which must not have ended.
pub(crate) async fn piece(body: &mut Incoming) -> Result<Bytes> {
    let frame = body.frame().await.context("the body has ended")??;
    let data = frame.into_data();
    ensure!(data.is_ok(), "trailers instead of a body");
    Ok(data.unwrap_or_default())
}
