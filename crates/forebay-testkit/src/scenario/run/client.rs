//! Runs the steps of a client.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};

use super::{Fault, STEP_WAIT, World, after};
use crate::client::{Client, Reply};
use crate::scenario::script::{ClientBlock, Expect, Step};

/// Maximum number of bytes of a body in a message.
const SHOWN_BYTES: usize = 200;

pub(super) async fn run(
    block: Arc<ClientBlock>,
    copy: usize,
    world: Arc<World>,
) -> Result<(), Fault> {
    let name = match block.copies {
        1 => block.name.clone(),
        _ => format!("{}[{copy}]", block.name),
    };
    let fault = |line, error: anyhow::Error| Fault::new(line, format!("{name}: {error:#}"));
    let address =
        world.address(&block.target).map_err(|what| fault(block.line, anyhow::anyhow!(what)))?;
    let mut session = Session { world: &world, address, client: None, reply: None };
    session.reconnect().await.map_err(|error| fault(block.line, error))?;
    for (line, step) in &block.steps {
        session.play(step).await.map_err(|error| fault(*line, error))?;
    }
    Ok(())
}

struct Session<'a> {
    world: &'a World,
    address: SocketAddr,
    client: Option<Client>,
    reply: Option<Reply>,
}

impl Session<'_> {
    async fn play(&mut self, step: &Step) -> anyhow::Result<()> {
        match step {
            Step::Send(request) => {
                let now = &self.world.now;
                let request = request.clone().map_values(|value| now.expand(value));
                self.client()?.send(&request).await
            }
            Step::SendRaw(bytes) => self.client()?.send_raw(bytes).await,
            Step::Expect(expect) => self.expect(expect).await,
            Step::Close => {
                self.client = None;
                Ok(())
            }
            Step::Reconnect => self.reconnect().await,
            Step::Await(name, gate) => {
                let waited = tokio::time::timeout(STEP_WAIT, gate.wait()).await;
                waited.with_context(|| self.too_long(&format!("barrier {name}")))
            }
            Step::Signal(gate) => {
                gate.arrive();
                Ok(())
            }
            Step::WaitOrigin(name, count) => {
                let origin = self.world.origins.get(name).context("no such origin")?;
                origin.wait_requests(*count).await
            }
            Step::Shut(name) => {
                let origin = self.world.origins.get(name).context("no such origin")?;
                origin.shut().await
            }
            Step::WaitMetric(counter) => {
                let give_up = tokio::time::Instant::now() + STEP_WAIT;
                let settled = after::settle(counter, self.world, give_up).await;
                settled.map_err(|what| anyhow::anyhow!("{}: {what}", counter.subject))
            }
            Step::Advance(by) => self.world.advance(*by).map_err(anyhow::Error::msg),
        }
    }

    async fn expect(&mut self, expect: &Expect) -> anyhow::Result<()> {
        match expect {
            Expect::Reply(status) => {
                self.next_head(*status).await?;
                self.whole_body().await.map(|_| ())
            }
            Expect::Head(status) => self.next_head(*status).await,
            Expect::Version(version) => {
                let line = &self.last()?.status_line;
                let came = line.split(' ').next().unwrap_or_default();
                ensure!(came == format!("HTTP/{version}"), "expected HTTP/{version}, came {came}");
                Ok(())
            }
            Expect::Interim(status) => expect_interim(self.last()?, *status),
            Expect::NoInterim => {
                let came = &self.last()?.interim;
                ensure!(came.is_empty(), "expected no interim response, came {came:?}");
                Ok(())
            }
            Expect::Header(check) => {
                let now = &self.world.now;
                let fields = &self.last()?.fields;
                check.check(fields, |value| now.expand(value)).map_err(anyhow::Error::msg)
            }
            Expect::Trailer(check) => {
                let now = self.world.now.clone();
                let fields = self.whole_body().await?.trailers();
                check.check(fields, |value| now.expand(value)).map_err(anyhow::Error::msg)
            }
            Expect::Body(body) => same_body(body, self.whole_body().await?.body()),
            Expect::BodyBegins(part) => self.body_begins(part).await,
            Expect::BodyLength(length) => {
                let came = self.whole_body().await?.body_length();
                ensure!(came == *length, "expected a body of {length} bytes, came {came}");
                Ok(())
            }
            Expect::Truncated => self.truncated().await,
            Expect::Closed => self.closed().await,
        }
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
        format!("expected {what}; {}", self.world.shut_gates())
    }

    fn too_long(&self, what: &str) -> String {
        format!("waited {STEP_WAIT:?} for {what}; {}", self.world.shut_gates())
    }
}

fn expect_interim(reply: &Reply, status: u16) -> anyhow::Result<()> {
    let came: Vec<u16> = reply.interim.iter().map(|interim| interim.status).collect();
    ensure!(came.contains(&status), "expected an interim {status}, came {came:?}");
    Ok(())
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
