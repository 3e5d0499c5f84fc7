//! Graceful shutdown.

use std::time::{Duration, Instant};

use anyhow::Context;
use forebay_testkit::client::{Client, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Framing, Origin};

use crate::world::{
    ANYWHERE, ConfigFile, END_MAX, ask, forebay, fresh_origin, get, get_admin, is_hit, metric,
    serve,
};

/// Maximum duration of a drain: the documented ten seconds, plus the exit of the process.
const DRAIN_MAX: Duration = Duration::from_secs(12);

/// Asserts that a process exits with success within a time.
async fn ends_well(mut cache: Launched, within: Duration) -> anyhow::Result<()> {
    let status = cache.wait_exit(within).await?;
    assert_eq!(status.code(), Some(0), "{:#?}", cache.stderr());
    assert!(!cache.stderr().iter().any(|line| line.contains("panicked")), "{:#?}", cache.stderr());
    Ok(())
}

/// Starts a cache, and stops it while its client waits for the gate.
async fn stopping_during_a_request(gate: &Gate) -> anyhow::Result<(Origin, Launched, Client)> {
    let origin = Origin::always(Answer::ok("late").wait(gate)).await?;
    let cache = serve(&origin).await?;
    let mut client = Client::connect(cache.address()).await?;
    client.send(&Request::get("/")).await?;
    origin.wait_requests(1).await?;
    cache.signal(Signal::Term).await?;
    cache.wait_stderr("stopping").await?;
    Ok((origin, cache, client))
}

async fn completes_requests_in_progress(signal: Signal) -> anyhow::Result<()> {
    let gate = Gate::new();
    let origin = Origin::always(Answer::ok("at last").hold_at(3, &gate)).await?;
    let cache = serve(&origin).await?;
    let address = cache.address();
    let mut client = Client::connect(address).await?;
    client.send(&Request::get("/slow")).await?;
    let mut reply = client.head().await?;
    cache.signal(signal).await?;
    cache.wait_stderr("stopping").await?;
    assert!(Client::connect(address).await.is_err(), "a new connection was taken");
    gate.open();
    client.read_body(&mut reply).await?;
    assert_eq!((reply.text().as_ref(), reply.ended_cleanly()), ("at last", true));
    assert!(client.read_to_close().await?.bytes.is_empty());
    ends_well(cache, END_MAX).await
}

#[tokio::test]
async fn sigterm_completes_requests_in_progress() -> anyhow::Result<()> {
    completes_requests_in_progress(Signal::Term).await
}

#[tokio::test]
async fn sigint_completes_requests_in_progress() -> anyhow::Result<()> {
    completes_requests_in_progress(Signal::Int).await
}

#[tokio::test]
async fn a_response_that_has_not_begun_is_completed() -> anyhow::Result<()> {
    let gate = Gate::new();
    let (_origin, cache, mut client) = stopping_during_a_request(&gate).await?;
    gate.open();
    let reply = client.reply().await?;
    assert_eq!((reply.text().as_ref(), reply.ended_cleanly()), ("late", true));
    assert!(client.read_to_close().await?.bytes.is_empty());
    ends_well(cache, END_MAX).await
}

/// The clients are on different threads, and one of them still waits for the origin.
#[tokio::test]
async fn a_thread_that_has_drained_waits_for_the_others() -> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let origin = Origin::start(move |received| match received.path() {
        "/slow" => Answer::ok("late").wait(&held),
        _ => Answer::ok("warm"),
    })
    .await?;
    let cache = serve(&origin).await?;
    let mut first = Client::connect(cache.address()).await?;
    assert_eq!(first.ask(&Request::get("/warm")).await?.status, 200);
    let mut second = Client::connect(cache.address()).await?;
    second.send(&Request::get("/slow")).await?;
    origin.wait_requests(2).await?;
    cache.signal(Signal::Term).await?;
    assert!(first.read_to_close().await?.bytes.is_empty());
    gate.open();
    let reply = second.reply().await?;
    assert_eq!((reply.status, reply.text().as_ref()), (200, "late"));
    ends_well(cache, END_MAX).await
}

#[tokio::test]
async fn the_demo_completes_its_responses() -> anyhow::Result<()> {
    let demo = forebay(["serve", "--demo"]).args(ANYWHERE).start().await?;
    let mut client = Client::connect(demo.address()).await?;
    // Longer than the sample origin's own drain.
    client.send(&Request::get("/items/a?drip=3000&size=4096")).await?;
    let mut reply = client.head().await?;
    demo.signal(Signal::Int).await?;
    client.read_body(&mut reply).await?;
    assert_eq!((reply.body_length(), reply.ended_cleanly()), (4_096, true));
    ends_well(demo, END_MAX).await
}

#[tokio::test]
async fn idle_connections_do_not_delay_the_exit() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    let mut used = Client::connect(cache.address()).await?;
    assert_eq!(used.ask(&Request::get("/")).await?.status, 200);
    let mut unused = Client::connect(cache.address()).await?;
    let begun = Instant::now();
    cache.signal(Signal::Term).await?;
    assert!(used.read_to_close().await?.bytes.is_empty());
    assert!(unused.read_to_close().await?.bytes.is_empty());
    ends_well(cache, END_MAX).await?;
    assert!(begun.elapsed() < END_MAX);
    Ok(())
}

#[tokio::test]
async fn an_origin_that_never_answers_delays_the_exit_up_to_the_drain_limit() -> anyhow::Result<()>
{
    let origin = Origin::always(Answer::hang()).await?;
    let cache = serve(&origin).await?;
    let mut client = Client::connect(cache.address()).await?;
    client.send(&Request::get("/")).await?;
    origin.wait_requests(1).await?;
    cache.signal(Signal::Term).await?;
    cache.wait_stderr("stopping").await?;
    ends_well(cache, DRAIN_MAX).await
}

#[tokio::test]
async fn a_tunnel_is_cut_at_the_end_of_the_drain() -> anyhow::Result<()> {
    let agreed = Answer::status(101).framing(Framing::AsGiven);
    let agreed = agreed.field("Connection", "upgrade").field("Upgrade", "websocket");
    let origin = Origin::always(agreed).await?;
    let top = "drain_max = \"500ms\"";
    let cache = ConfigFile::serving(&origin.url(), top, "")?.serve().await?;
    let mut client = Client::connect(cache.address()).await?;
    let asking = Request::get("/").field("Connection", "upgrade").field("Upgrade", "websocket");
    assert_eq!(client.ask(&asking).await?.status, 101);
    cache.signal(Signal::Term).await?;
    cache.wait_stderr("stopping").await?;
    assert!(client.read_to_close().await?.bytes.is_empty());
    cache.wait_stderr("that are still open are cut").await?;
    ends_well(cache, END_MAX).await
}

#[tokio::test]
async fn a_second_signal_ends_the_process_at_once() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::hang()).await?;
    let cache = serve(&origin).await?;
    let mut client = Client::connect(cache.address()).await?;
    client.send(&Request::get("/")).await?;
    origin.wait_requests(1).await?;
    cache.signal(Signal::Int).await?;
    cache.wait_stderr("stopping").await?;
    cache.signal(Signal::Int).await?;
    ends_well(cache, END_MAX).await
}

/// Cache with a delay that ends only by a second signal, after SIGTERM.
async fn delayed(origin: &Origin) -> anyhow::Result<Launched> {
    let top = "shutdown_delay = \"10m\"\nprobe = \"127.0.0.1:0\"";
    ConfigFile::serving(&origin.url(), top, "")?.serve().await
}

#[tokio::test]
async fn during_the_delay_it_serves_and_is_not_ready() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = delayed(&origin).await?;
    let probe = cache.probe().context("no probe listener")?;
    let readiness = async || ask(probe, &Request::get("/readyz")).await;
    let word = async |path| anyhow::Ok(ask(probe, &Request::get(path)).await?.text().to_string());
    assert_eq!((readiness().await?.status, word("/readyz").await?), (200, "ready\n".into()));
    assert_eq!(metric(&cache, "forebay_state", "").await?, 1);
    let mut kept = Client::connect(cache.address()).await?;
    let first = kept.ask(&Request::get("/a")).await?;
    assert_eq!((first.status, first.field("connection")), (200, None));
    cache.signal(Signal::Term).await?;
    cache.wait_stderr("stop signal received").await?;
    assert_eq!((readiness().await?.status, word("/readyz").await?), (503, "stopping\n".into()));
    assert_eq!(word("/livez").await?, "live\n");
    let shown = get_admin(&cache, "/readyz").await?;
    let text = shown.text();
    assert!(shown.status == 503 && text.contains(r#""ready":false,"state":"stopping""#), "{text}");
    assert_eq!(metric(&cache, "forebay_state", "").await?, 2);
    // A hit on the kept connection, a miss and a hit on new ones.
    let hit = kept.ask(&Request::get("/a")).await?;
    assert_eq!((is_hit(&hit), hit.field("connection")), (true, Some("close")));
    assert!(kept.read_to_close().await?.bytes.is_empty());
    for path in ["/b", "/b"] {
        let mut client = Client::connect(cache.address()).await?;
        let reply = client.ask(&Request::get(path)).await?;
        assert_eq!((reply.status, reply.field("connection")), (200, Some("close")));
        assert!(client.read_to_close().await?.bytes.is_empty());
    }
    // The second signal omits the rest.
    cache.signal(Signal::Term).await?;
    ends_well(cache, END_MAX).await
}

#[tokio::test]
async fn sigint_omits_the_delay() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = delayed(&origin).await?;
    cache.signal(Signal::Int).await?;
    ends_well(cache, END_MAX).await
}

#[tokio::test]
async fn the_delay_ends() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let top = "shutdown_delay = \"200ms\"";
    let cache = ConfigFile::serving(&origin.url(), top, "")?.serve().await?;
    cache.signal(Signal::Term).await?;
    ends_well(cache, END_MAX).await
}

#[tokio::test]
async fn the_admin_listener_answers_while_requests_drain() -> anyhow::Result<()> {
    let gate = Gate::new();
    let (_origin, cache, mut client) = stopping_during_a_request(&gate).await?;
    assert_eq!(get_admin(&cache, "/readyz").await?.status, 503);
    assert_eq!(metric(&cache, "forebay_state", "").await?, 2);
    gate.open();
    let reply = client.reply().await?;
    assert_eq!((reply.text().as_ref(), reply.field("connection")), ("late", Some("close")));
    ends_well(cache, END_MAX).await
}

/// Number of connections that wait in the listen queue when the stop signal arrives.
const QUEUED: usize = 40;

#[tokio::test]
async fn connections_in_the_listen_queue_are_answered() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    assert_eq!(get(&cache, "/").await?.status, 200);
    cache.signal(Signal::Stop).await?;
    let mut clients = Vec::new();
    for _ in 0..QUEUED {
        let mut client = Client::connect(cache.address()).await?;
        client.send(&Request::get("/")).await?;
        clients.push(client);
    }
    cache.signal(Signal::Term).await?;
    cache.signal(Signal::Cont).await?;
    // Some may be answered before the process has noticed the signal.
    for mut client in clients {
        assert_eq!(client.reply().await?.status, 200);
    }
    ends_well(cache, END_MAX).await
}

#[tokio::test]
async fn sighup_does_not_end_the_process() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    cache.signal(Signal::Hup).await?;
    cache.wait_stderr("SIGHUP").await?;
    assert_eq!(get(&cache, "/").await?.status, 200);
    cache.signal(Signal::Term).await?;
    ends_well(cache, END_MAX).await
}

#[tokio::test]
async fn the_sample_origin_stops_on_a_signal() -> anyhow::Result<()> {
    let origin = forebay(["origin", "--listen", "127.0.0.1:0"]).start().await?;
    assert_eq!(get(&origin, "/items/a").await?.status, 200);
    origin.signal(Signal::Term).await?;
    ends_well(origin, END_MAX).await
}
