//! Connections of `forebay warm` to the listeners of a running cache.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use forebay_tls::client::{ClientSettings, ServerName, TlsClient};
use http::uri::Authority;
use http::{Response, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::list::WarmUrl;
use super::request;
use crate::config::resolved::authorities;

/// Maximum number of idle connections that are kept. Each host has its own over TLS.
const IDLE_MAX: usize = 1_024;

/// Protocol of the connections over TLS (ALPN).
const HTTP1: &[u8] = b"http/1.1";

type Sender = SendRequest<Empty<Bytes>>;

/// Listeners of a running cache: one of them, or one for each scheme.
#[derive(Debug)]
pub(super) struct Cache {
    listeners: Vec<Listener>,
}

/// Listener of a running cache.
#[derive(Debug)]
struct Listener {
    authority: Authority,
    /// TLS client of an `https://` listener.
    tls: Option<TlsClient>,
    /// Idle connections with the names that their certificates have; without TLS, the name is empty.
    idle: Mutex<Vec<(String, Sender)>>,
}

impl Cache {
    /// Checks the URLs of the listeners. No connection is opened yet.
    ///
    /// # Errors
    /// If a URL is malformed, two have one scheme, or the authorities cannot be read.
    pub(super) fn at(via: &[String], ca: Option<&Path>) -> anyhow::Result<Self> {
        let listeners =
            via.iter().map(|url| Listener::at(url, ca).with_context(|| format!("--via {url}")));
        let listeners = listeners.collect::<anyhow::Result<Vec<_>>>()?;
        if let [one, other] = &*listeners {
            ensure!(
                one.is_tls() != other.is_tls(),
                "--via: names two listeners of one scheme; name one"
            );
        }
        ensure!(
            listeners.len() <= 2,
            "--via: names more than two listeners; name one of each scheme"
        );
        ensure!(
            ca.is_none() || listeners.iter().any(Listener::is_tls),
            "--ca: needs --via https://…"
        );
        Ok(Self { listeners })
    }

    /// Sends a GET to the listener with the scheme of the URL, or to the only one.
    ///
    /// # Errors
    /// If the cache cannot be reached, or sends no valid response.
    pub(super) async fn get(&self, url: &WarmUrl) -> anyhow::Result<Exchange<'_>> {
        let same = |listener: &&Listener| listener.is_tls() == url.is_https;
        let listener = self.listeners.iter().find(same).or_else(|| self.listeners.first());
        listener.context("no listener is named")?.get(url).await
    }
}

/// Response whose connection is kept when the whole body has been read.
pub(super) struct Exchange<'a> {
    pub(super) response: Response<Incoming>,
    listener: &'a Listener,
    name: String,
    sender: Sender,
}

impl Exchange<'_> {
    /// Keeps the connection, after the body has been read.
    pub(super) fn keep(self) {
        self.listener.keep(self.name, self.sender);
    }
}

impl Listener {
    fn at(url: &str, ca: Option<&Path>) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().context("is not a URL")?;
        let (Some(authority), Some(scheme @ ("http" | "https"))) =
            (uri.authority(), uri.scheme_str())
        else {
            bail!("must be a URL such as http://127.0.0.1:8080");
        };
        let settings = ClientSettings {
            authorities: authorities(ca, Path::new("")),
            verify: true,
            certificate: None,
        };
        let tls =
            (scheme == "https").then(|| TlsClient::new(settings)).transpose().context("--ca")?;
        Ok(Self { authority: authority.clone(), tls, idle: Mutex::default() })
    }

    const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Host that the cache must prove to be: that of the URL. Without TLS, all hosts share connections.
    fn name_for(&self, url: &WarmUrl) -> String {
        if !self.is_tls() {
            return String::new();
        }
        let host = url.authority.as_ref().unwrap_or(&self.authority).host();
        host.trim_start_matches('[').trim_end_matches(']').to_owned()
    }

    async fn get(&self, url: &WarmUrl) -> anyhow::Result<Exchange<'_>> {
        let name = self.name_for(url);
        // An idle connection may have been closed; a GET can be sent again.
        while let Some(mut sender) = self.take(&name) {
            if let Ok(response) = self.send(&mut sender, url).await {
                return Ok(Exchange { response, listener: self, name, sender });
            }
        }
        let mut sender = self.connect(&name).await?;
        let response = self.send(&mut sender, url).await?;
        Ok(Exchange { response, listener: self, name, sender })
    }

    async fn send(&self, sender: &mut Sender, url: &WarmUrl) -> anyhow::Result<Response<Incoming>> {
        sender.ready().await?;
        let target = Uri::from(url.target.clone());
        Ok(sender
            .send_request(request(url, self.authority.as_str(), target, Empty::new())?)
            .await?)
    }

    fn take(&self, name: &str) -> Option<Sender> {
        let mut idle = self.idle.lock();
        let index = idle.iter().rposition(|(known, _)| known == name)?;
        Some(idle.swap_remove(index).1)
    }

    fn keep(&self, name: String, sender: Sender) {
        let mut idle = self.idle.lock();
        idle.retain(|(_, sender)| !sender.is_closed());
        if idle.len() < IDLE_MAX {
            idle.push((name, sender));
        }
    }

    async fn connect(&self, name: &str) -> anyhow::Result<Sender> {
        let port =
            self.authority.port_u16().unwrap_or_else(|| if self.is_tls() { 443 } else { 80 });
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, port)).await;
        let stream = stream.with_context(|| format!("no cache answers at {}", self.authority))?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return sender(stream).await };
        let server = ServerName::try_from(name.to_owned());
        let server = server.with_context(|| format!("{name} is not a name of a certificate"))?;
        let stream = tls.connect(server, stream, &[HTTP1]).await;
        let stream = stream.with_context(|| {
            format!(
                "the TLS handshake with {} for {name} failed; --ca names the authority that signed \
                 the certificate",
                self.authority
            )
        })?;
        sender(stream).await
    }
}

/// Begins HTTP/1.1 on a connection, which a task of its own drives.
async fn sender<S>(stream: S) -> anyhow::Result<Sender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // An error of the connection is an error of its request as well.
    tokio::spawn(connection);
    Ok(sender)
}
