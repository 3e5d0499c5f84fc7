//! Starts, stops, restarts and log rotations under load.
//!
//! Those that measure time are ignored, because other tests run beside them:
//! `cargo xtask soak lifecycle` runs them one after another.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use forebay_testkit::client::Request;
use forebay_testkit::gate::Gate;
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use futures_util::future::try_join_all;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::load::{Http2, Load};
use crate::operate::activated;
use crate::world::{
    ConfigFile, END_MAX, ask, end, fresh_origin, get_admin, metric, nowhere, serve, serving,
};

/// Connections per second in the tests that measure.
const RATE: u32 = 500;

/// Number of streams that are open at a stop; a connection may have 128.
const STREAMS: usize = 100;

/// Length of the body of each of them.
const BODY: usize = 64 << 10;

#[tokio::test]
async fn streams_of_http2_that_are_open_at_the_stop_end_whole() -> anyhow::Result<()> {
    let gate = Gate::new();
    let answer = Answer::ok(vec![7; BODY]).field("Cache-Control", "max-age=60");
    let origin = Origin::always(answer.hold_at(BODY / 2, &gate)).await?;
    let cache = serve(&origin).await?;
    let (address, client) = (cache.address(), Http2::default());
    let streams = (0..STREAMS).map(|number| {
        let client = client.clone();
        async move { client.get(address, &format!("/{number}")).await }
    });
    let streams = tokio::spawn(try_join_all(streams.collect::<Vec<_>>()));
    origin.wait_requests(STREAMS as u64).await?;
    cache.signal(Signal::Term).await?;
    cache.wait_stderr("stopping").await?;
    gate.open();
    let bodies = streams.await??;
    assert!(bodies.iter().all(|body| body.len() == BODY && body.iter().all(|byte| *byte == 7)));
    assert_eq!(bodies.len(), STREAMS);
    let mut cache = cache;
    assert!(cache.wait_exit(END_MAX).await?.success());
    Ok(())
}

/// Maximum time from SIGTERM to an unready answer.
const UNREADY_MAX: Duration = Duration::from_millis(50);

/// `shutdown_delay` of the test, and the part of it in which connections are opened.
const DELAY: Duration = Duration::from_secs(3);
const LOADED: Duration = Duration::from_millis(2_800);

/// Maximum time from the last metrics to the exit.
const METRICS_MAX: Duration = Duration::from_millis(200);

#[tokio::test]
#[ignore = "cargo xtask soak lifecycle runs it alone, because it measures time"]
async fn no_connection_fails_during_the_delay_of_a_stop() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let top = format!("shutdown_delay = \"{}s\"\nprobe = \"127.0.0.1:0\"", DELAY.as_secs());
    let mut cache = ConfigFile::serving(&origin.url(), &top, "")?.serve().await?;
    let probe = cache.probe().context("no probe listener")?;
    let load = Load::of_connections(RATE, cache.address());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let signalled = Instant::now();
    cache.signal(Signal::Term).await?;
    while ask(probe, &Request::get("/readyz")).await?.status != 503 {
        ensure!(signalled.elapsed() < DELAY, "still ready");
    }
    let unready = signalled.elapsed();
    tokio::time::sleep(LOADED.saturating_sub(signalled.elapsed())).await;
    let tally = load.end().await?;
    // The admin listener answers to the end.
    let mut last = Instant::now();
    while get_admin(&cache, "/metrics").await.is_ok_and(|reply| reply.status == 200) {
        last = Instant::now();
    }
    let status = cache.wait_exit(END_MAX).await?;
    let after = last.elapsed();
    println!(
        "{} connections, {} failed; unready after {unready:?}, exit {after:?} after the last metrics",
        tally.answered + tally.failures.len(),
        tally.failures.len()
    );
    tally.assert_none_failed();
    assert!(status.success() && unready <= UNREADY_MAX && after <= METRICS_MAX);
    Ok(())
}

/// Number of restarts on one inherited socket, and the maximum time that a connection waits.
const RESTARTS: usize = 10;
const RESTART_MAX: Duration = Duration::from_millis(1_500);

#[tokio::test]
#[ignore = "cargo xtask soak lifecycle runs it alone, because it measures time"]
async fn restarts_on_inherited_sockets_refuse_no_connection() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let load = Load::of_connections(RATE, listener.local_addr()?);
    for _ in 0..RESTARTS {
        let cache = activated(&origin.url(), Some(&listener))?.start().await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        end(cache, Signal::Term).await?;
    }
    let last = activated(&origin.url(), Some(&listener))?.start().await?;
    let tally = load.end().await?;
    println!("{} connections in {RESTARTS} restarts, longest {:?}", tally.answered, tally.longest);
    tally.assert_none_failed();
    assert!(tally.longest <= RESTART_MAX, "{:?}", tally.longest);
    end(last, Signal::Term).await
}

/// Number of log rotations, and lines per second that are written meanwhile.
const ROTATIONS: usize = 10;
const LINES: usize = 5_000;

/// Requests that are sent at once on each of the connections, ten times a second.
const CONNECTIONS: usize = 10;
const BATCH: usize = LINES / CONNECTIONS / 10;

/// Duration between two rotations.
const ROTATION: Duration = Duration::from_millis(500);

#[tokio::test]
#[ignore = "cargo xtask soak lifecycle runs it alone, because it needs a rate of requests"]
async fn log_rotations_lose_no_line() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let top = "access_log = \"common\"\n[access]\nfile = \"access.log\"";
    let file = ConfigFile::serving(&origin.url(), top, "")?;
    let cache = file.serve().await?;
    let folder = file.folder.path();
    let batches = ROTATIONS * 5 + 10;
    let writers = (0..CONNECTIONS).map(|_| tokio::spawn(pipeline(cache.address(), batches)));
    let writers: Vec<_> = writers.collect();
    let begun = Instant::now();
    for number in 0..ROTATIONS {
        tokio::time::sleep(ROTATION).await;
        std::fs::rename(folder.join("access.log"), folder.join(format!("access.{number}")))?;
        cache.signal(Signal::Usr1).await?;
        wait_file(&folder.join("access.log")).await?;
    }
    let mut answered = 0;
    for writer in writers {
        answered += writer.await??;
    }
    let rate = answered as f64 / begun.elapsed().as_secs_f64();
    let dropped = metric(&cache, "forebay_log_dropped_total", "log=\"access\"").await?;
    end(cache, Signal::Term).await?;
    let mut written = 0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_stem().is_some_and(|name| name == "access") {
            written += std::fs::read_to_string(path)?.lines().count();
        }
    }
    println!(
        "{answered} responses, {written} lines in {} files, {rate:.0} per second",
        ROTATIONS + 1
    );
    assert_eq!((written, dropped), (answered, 0));
    assert!(rate >= LINES as f64 * 0.9, "{rate}");
    Ok(())
}

/// Sends batches of requests on one connection, ten per second; returns the number of responses.
async fn pipeline(address: SocketAddr, batches: usize) -> anyhow::Result<usize> {
    let mut stream = TcpStream::connect(address).await?;
    let batch = "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n".repeat(BATCH);
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let (mut received, mut answered) = (Vec::new(), 0);
    for _ in 0..batches {
        ticks.tick().await;
        stream.write_all(batch.as_bytes()).await?;
        received.clear();
        let mut count = 0;
        while count < BATCH {
            let length = stream.read_buf(&mut received).await?;
            ensure!(length > 0, "closed after {answered} responses");
            count = received.windows(STATUS.len()).filter(|part| *part == STATUS).count();
        }
        answered += count;
    }
    Ok(answered)
}

const STATUS: &[u8] = b"HTTP/1.1 200 OK";

/// Waits until a file exists.
async fn wait_file(path: &Path) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !path.exists() {
        ensure!(begun.elapsed() < END_MAX, "{} does not appear", path.display());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Number of restarts of two instances in turn.
const ROLLING: usize = 30;

/// `shutdown_delay` of these instances: HAProxy needs two failures of its check, a second apart.
const ROLLING_DELAY: &str = "shutdown_delay = \"3s\"";

/// Maximum time for HAProxy to use a server again.
const UP_MAX: Duration = Duration::from_secs(20);

#[tokio::test]
#[ignore = "cargo xtask soak lifecycle runs it alone: it takes minutes"]
async fn rolling_restarts_behind_haproxy_fail_no_request() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let mut instances = Vec::new();
    for _ in 0..2 {
        let [clients, probe] = [nowhere()?, nowhere()?];
        let top = format!("probe = \"{probe}\"\ntrusted_proxies = [\"loopback\"]\n{ROLLING_DELAY}");
        let text = serving(&origin.url(), &top, "");
        let text = text.replacen("127.0.0.1:0", &clients.to_string(), 1);
        let file = ConfigFile::of(&text)?;
        let cache = file.serve().await?;
        instances.push(Instance { clients, probe, cache: Some(cache), file });
    }
    let proxy = HaProxy::start(&instances).await?;
    let (http1, http2) = (proxy.http1, proxy.http2);
    let mut loads = vec![Load::of_connections(RATE / 2, http1)];
    // As many connections as a browser or a service opens.
    let clients: Vec<Http2> = (0..8).map(|_| Http2::default()).collect();
    loads.push(Load::start(RATE / 2, move |number| {
        clients[number % clients.len()].clone().request(http2, number)
    }));
    for number in 0..ROLLING {
        let instance = &mut instances[number % 2];
        end(instance.cache.take().context("not running")?, Signal::Term).await?;
        instance.cache = Some(instance.file.serve().await?);
        proxy.wait_up(number % 2).await?;
    }
    let (mut answered, mut failures) = (0, Vec::new());
    for load in loads {
        let tally = load.end().await?;
        answered += tally.answered;
        failures.extend(tally.failures);
    }
    println!("{answered} requests in {ROLLING} restarts, {} failed", failures.len());
    assert!(failures.is_empty() && answered > 0, "{failures:#?}");
    Ok(())
}

struct Instance {
    clients: SocketAddr,
    probe: SocketAddr,
    cache: Option<Launched>,
    file: ConfigFile,
}

/// HAProxy with the configuration that the project ships; dropping it kills the process.
struct HaProxy {
    http1: SocketAddr,
    http2: SocketAddr,
    socket: std::path::PathBuf,
    _process: Child,
    _folder: TempDir,
}

impl HaProxy {
    async fn start(instances: &[Instance]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("socket");
        let [http1, http2] = [nowhere()?, nowhere()?];
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/compose/haproxy.cfg");
        let mut text = std::fs::read_to_string(shipped)?;
        let socket_line = format!("global\n    stats socket {}\n", socket.display());
        text = text.replacen("global\n", &socket_line, 1);
        // HAProxy does not start if the limit on open files is too low for its connections.
        text = text.replace("maxconn 10000", "maxconn 2000");
        text = text.replace("bind :8080", &format!("bind {http1}\n    bind {http2} proto h2"));
        for (number, instance) in (1..).zip(instances) {
            let server = format!("forebay-{number} {} check port", instance.clients);
            let line = format!("forebay-{number} forebay-{number}:8080");
            ensure!(text.contains(&line), "the shipped configuration has no server {line:?}");
            text = text.replace(&line, &format!("{server} {}", instance.probe.port()));
        }
        let file = folder.path().join("haproxy.cfg");
        std::fs::write(&file, text)?;
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/usr/local/sbin";
        let mut haproxy = Command::new("haproxy");
        haproxy.env("PATH", &path).args(["-db", "-f"]).arg(&file).kill_on_drop(true);
        let process = haproxy.spawn().context("haproxy is not installed")?;
        let proxy = Self { http1, http2, socket, _process: process, _folder: folder };
        for number in 0..instances.len() {
            proxy.wait_up(number).await?;
        }
        Ok(proxy)
    }

    /// Waits until HAProxy uses a server.
    async fn wait_up(&self, number: usize) -> anyhow::Result<()> {
        let begun = Instant::now();
        let name = format!("caches,forebay-{},", number + 1);
        loop {
            let text = self.stats().await.unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(&name)).unwrap_or_default();
            // The check that brings it up is layer 7; before the first one, the state is "UP", too.
            if line.contains(",UP,") && line.contains(",L7OK,") {
                return Ok(());
            }
            ensure!(begun.elapsed() < UP_MAX, "not up: {line}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn stats(&self) -> anyhow::Result<String> {
        let mut socket = tokio::net::UnixStream::connect(&self.socket).await?;
        socket.write_all(b"show stat\n").await?;
        let mut text = String::new();
        socket.read_to_string(&mut text).await?;
        Ok(text)
    }
}
