//! Steps of a client.

use std::iter::{Copied, Peekable};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};

use super::line::Line;
use super::parse::ClientBlock;
use super::run::{STEP_WAIT, World};
use super::{Fault, check, counter};
use crate::client::{Client, Reply, Request};

/// Maximum number of bytes of a body in a message.
const SHOWN_BYTES: usize = 200;

/// Runs the steps of one client.
pub(super) async fn run(
    block: Arc<ClientBlock>,
    copy: usize,
    world: Arc<World>,
) -> Result<(), Fault> {
    let name = match block.copies {
        1 => block.name.to_owned(),
        _ => format!("{}[{copy}]", block.name),
    };
    let fault = |line, error: anyhow::Error| Fault::new(line, format!("{name}: {error:#}"));
    let address = world.address(block.target).map_err(|error| fault(block.line, error))?;
    let mut session = Session { world: &world, address, client: None, reply: None };
    session.reconnect().await.map_err(|error| fault(block.line, error))?;
    let mut lines = block.steps.iter().copied().peekable();
    while let Some(line) = lines.next() {
        session.play(line, &mut lines).await.map_err(|error| fault(line.number, error))?;
    }
    Ok(())
}

type Lines<'a> = Peekable<Copied<std::slice::Iter<'a, Line>>>;

struct Session<'a> {
    world: &'a World,
    address: SocketAddr,
    client: Option<Client>,
    reply: Option<Reply>,
}

impl Session<'_> {
    async fn play(&mut self, mut words: Line, lines: &mut Lines<'_>) -> anyhow::Result<()> {
        ensure!(words.as_field().is_none(), "a field must stand under a `send`");
        let gates = &self.world.gates;
        match words.word("a step")? {
            "send" => {
                let request = self.request(&mut words, lines)?;
                self.client()?.send(&request).await?;
            }
            "send-raw" => self.client()?.send_raw(&words.quoted()?).await?,
            "expect" => self.expect(&mut words).await?,
            "close" => self.client = None,
            "reset" => self.client.take().context("not connected")?.reset()?,
            "reconnect" => self.reconnect().await?,
            "await" => {
                let (name, gate) = (words.rest, gates.named(&mut words)?);
                let waited = tokio::time::timeout(STEP_WAIT, gate.wait()).await;
                let shut = || format!("waited {STEP_WAIT:?} for barrier {name}; {}", gates.shut());
                waited.with_context(shut)?;
            }
            "signal" => gates.named(&mut words)?.arrive(),
            "wait-origin" => {
                let origin = self.world.origin(&mut words)?;
                origin.wait_requests(words.number("a number of requests")?).await?;
            }
            "shut" => self.world.origin(&mut words)?.shut().await?,
            "wait-metric" => {
                let give_up = tokio::time::Instant::now() + STEP_WAIT;
                return counter::settle(words, self.world, give_up).await;
            }
            "advance" => self.world.advance(words.duration()?)?,
            other => bail!("`{other}` is no step of a client"),
        }
        words.end()
    }

    /// Request in a line `METHOD TARGET` and in the lines below it.
    fn request(&self, words: &mut Line, lines: &mut Lines<'_>) -> anyhow::Result<Request> {
        let mut request = Request::new(words.word("a method")?, words.word("a target")?);
        while let Some(mut part) = lines.peek().copied() {
            if let Some((name, value)) = part.as_field() {
                request = request.field(name, self.world.now.expand(value)?);
            } else {
                request = match part.word("a step")? {
                    "body" => request.body(part.quoted()?),
                    "body-size" => request.body(part.pattern()?),
                    "chunked" => request.chunked(),
                    "no-host" => request.without_host(),
                    _ => break,
                };
                part.end()?;
            }
            lines.next();
        }
        Ok(request)
    }

    async fn expect(&mut self, words: &mut Line) -> anyhow::Result<()> {
        match words.word("what to expect")? {
            "head" => self.next_head(words.number("a status")?).await?,
            "version" => {
                let version = words.word("a version")?;
                let came = self.last()?.status_line.split(' ').next().unwrap_or_default();
                ensure!(came == format!("HTTP/{version}"), "expected {version}, came {came}");
            }
            "interim" => {
                let came = self.last()?.interim.iter().map(|interim| interim.status);
                let came: Vec<u16> = came.collect();
                let holds = match words.take("none") {
                    true => came.is_empty(),
                    false => came.contains(&words.number("a status or none")?),
                };
                ensure!(holds, "expected other interim responses, came {came:?}");
            }
            "header" => {
                check::field(*words, &self.last()?.fields, &self.world.now)?;
                words.rest = "";
            }
            "trailer" => {
                let now = self.world.now.clone();
                check::field(*words, self.whole_body().await?.trailers(), &now)?;
                words.rest = "";
            }
            "body" => same_body(&words.quoted()?, self.whole_body().await?.body())?,
            "body-size" => same_body(&words.pattern()?, self.whole_body().await?.body())?,
            "body-begins" => self.body_begins(&words.quoted()?).await?,
            "body-length" => {
                let length: u64 = words.number("a number of bytes")?;
                let came = self.whole_body().await?.body_length();
                ensure!(came == length, "expected a body of {length} bytes, came {came}");
            }
            "truncated" => self.truncated().await?,
            "closed" => self.closed().await?,
            status => {
                let number = status.parse().ok();
                let number = number.with_context(|| format!("`{status}` cannot be expected"))?;
                self.next_head(number).await?;
                self.whole_body().await?;
            }
        }
        Ok(())
    }

    async fn next_head(&mut self, status: u16) -> anyhow::Result<()> {
        self.finish_body().await?;
        self.reply = None;
        let read = self.client()?.head().await;
        let reply = read.with_context(|| self.while_waiting(&format!("status {status}")))?;
        let came = reply.status;
        self.reply = Some(reply);
        if came != status {
            bail!("expected status {status}, came {}", self.shown().await);
        }
        Ok(())
    }

    /// Reads the rest of the last response, which must end cleanly.
    async fn whole_body(&mut self) -> anyhow::Result<&Reply> {
        let finished = self.finish_body().await;
        finished.with_context(|| self.while_waiting("the rest of the body"))?;
        let reply = self.last()?;
        if let Some(why) = reply.broke() {
            bail!("expected a whole body, but it broke off: {why}");
        }
        Ok(reply)
    }

    async fn body_begins(&mut self, part: &[u8]) -> anyhow::Result<()> {
        let (client, reply) = self.both()?;
        let read = client.read_body_until(reply, part.len() as u64).await;
        read.with_context(|| self.while_waiting("the beginning of the body"))?;
        let body = self.last()?.body();
        same_body(part, &body[..body.len().min(part.len())])
    }

    async fn truncated(&mut self) -> anyhow::Result<()> {
        self.finish_body().await?;
        let reply = self.last()?;
        let length = reply.body_length();
        ensure!(
            !reply.ended_cleanly(),
            "expected a truncated body, came {length} bytes and a clean end"
        );
        Ok(())
    }

    async fn closed(&mut self) -> anyhow::Result<()> {
        if self.reply.is_some() {
            self.finish_body().await?;
        }
        let closed = self.client()?.read_to_close().await;
        let bytes = closed.with_context(|| self.while_waiting("the end of the connection"))?.bytes;
        let shown = bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii();
        ensure!(bytes.is_empty(), "expected the end of the connection, came \"{shown}\"");
        Ok(())
    }

    /// Reads the rest of the last response, if there is one.
    async fn finish_body(&mut self) -> anyhow::Result<()> {
        match (&mut self.client, &mut self.reply) {
            (Some(client), Some(reply)) => client.read_body(reply).await,
            _ => Ok(()),
        }
    }

    async fn reconnect(&mut self) -> anyhow::Result<()> {
        // The old connection is closed first, because a front end may limit connections.
        (self.client, self.reply) = (None, None);
        self.client = Some(Client::connect(self.address).await?);
        Ok(())
    }

    fn client(&mut self) -> anyhow::Result<&mut Client> {
        self.client.as_mut().context("the connection is closed; `reconnect` opens one")
    }

    fn last(&self) -> anyhow::Result<&Reply> {
        self.reply.as_ref().context("no reply has been read; `expect STATUS` reads one")
    }

    fn both(&mut self) -> anyhow::Result<(&mut Client, &mut Reply)> {
        let client = self.client.as_mut().context("the connection is closed")?;
        let reply = self.reply.as_mut();
        Ok((client, reply.context("no reply has been read; `expect head STATUS` reads one")?))
    }

    /// Last response as text for a message.
    async fn shown(&mut self) -> String {
        let broke = self.finish_body().await.err();
        let Some(reply) = &self.reply else { return "nothing".to_owned() };
        let body = reply.body();
        let start = body[..body.len().min(SHOWN_BYTES)].escape_ascii();
        let fields: Vec<String> =
            reply.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let end = broke.map_or_else(String::new, |error| format!(" ({error:#})"));
        format!("{:?} with {fields:?} and the body \"{start}\"{end}", reply.status_line)
    }

    fn while_waiting(&self, what: &str) -> String {
        format!("expected {what}; {}", self.world.gates.shut())
    }
}

fn same_body(expected: &[u8], came: &[u8]) -> anyhow::Result<()> {
    if expected == came {
        return Ok(());
    }
    let differs = expected.iter().zip(came).take_while(|(expected, came)| expected == came).count();
    let shown = |bytes: &[u8]| bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii().to_string();
    bail!(
        "expected the body \"{}\" of {} bytes, came \"{}\" of {}; they differ at byte {differs}",
        shown(expected),
        expected.len(),
        shown(came),
        came.len()
    )
}
