//! Tests of configuration reloads while the service answers requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_http::{HostPattern, Reloaded, SiteSettings};
use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::origin::{Answer, Origin};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::server::{TestServer, site};

/// Number of clients that send requests continuously.
const CLIENTS: usize = 8;

/// Number of targets stored before the first reload.
const STORED: usize = 16;

/// Number of reloads during the requests.
const RELOADS: u64 = 50;

/// Number of responses between two reloads.
const BETWEEN: u64 = 40;

fn fresh(body: &'static str) -> Answer {
    Answer::ok(body).field("Cache-Control", "max-age=3600")
}

fn passed(body: &'static str) -> Answer {
    Answer::ok(body).field("Cache-Control", "no-store")
}

fn named(id: &str, host: &str, origin: SocketAddr) -> anyhow::Result<SiteSettings> {
    let hosts = vec![HostPattern::Exact(host.into())];
    Ok(SiteSettings { id: id.into(), hosts, ..site(origin)? })
}

fn is_hit(reply: &Reply) -> bool {
    reply.field("cache-status").is_some_and(|status| status.starts_with("forebay; hit"))
}

/// Sends requests until `stop` is set; checks that every response is right, and every stored one a
/// hit.
async fn ask_on(
    address: SocketAddr,
    answered: Arc<watch::Sender<u64>>,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let mut client = Client::connect(address).await?;
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let stored = round % 4 != 0;
        let target =
            if stored { format!("/stored/{}", round % STORED) } else { "/passed".to_owned() };
        let reply = client.ask(&Request::get(&target)).await?;
        assert_eq!((reply.status, &*reply.text()), (200, "hello"), "{target}");
        assert!(reply.ended_cleanly() && is_hit(&reply) == stored, "{target}: {reply:?}");
        answered.send_modify(|answered| *answered += 1);
    }
    Ok(())
}

/// Returns the settings of a reload. Each differs from the previous one: every second one has
/// another pool, every third one a second site, every fifth one differs only in its rules.
fn differing(round: u64, origin: SocketAddr) -> anyhow::Result<Vec<SiteSettings>> {
    let mut first = site(origin)?;
    first.fetch_timeout += Duration::from_secs(round % 2);
    first.rules.default_ttl = Duration::from_secs(round % 5);
    let mut sites = vec![first];
    if round.is_multiple_of(3) {
        sites.push(named("second", "second.example", origin)?);
    }
    Ok(sites)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_reloads_under_load_lose_no_request_and_no_entry() -> anyhow::Result<()> {
    let origin = Origin::start(|received| match received.path() {
        "/passed" => passed("hello"),
        _ => fresh("hello"),
    })
    .await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut warming = Client::connect(server.address).await?;
    for number in 0..STORED {
        warming.ask(&Request::get(&format!("/stored/{number}"))).await?;
    }
    let (answered, mut seen) = watch::channel(0);
    let (answered, stop) = (Arc::new(answered), Arc::new(AtomicBool::new(false)));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(ask_on(server.address, answered.clone(), stop.clone()));
    }
    for round in 1..=RELOADS {
        let enough = seen.wait_for(|answered| *answered >= round * BETWEEN);
        tokio::select! {
            enough = enough => drop(enough?),
            Some(ended) = clients.join_next() => anyhow::bail!("a client gave up: {ended:?}"),
        }
        server.service.reload(&differing(round, origin.address())?);
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client??;
    }
    for number in 0..STORED {
        assert_eq!(origin.requests_to(&format!("/stored/{number}")), 1);
    }
    assert!(*seen.borrow() >= RELOADS * BETWEEN);
    assert_eq!(server.service.engine().memory().entries(), STORED as u64);
    Ok(())
}

#[tokio::test]
async fn requests_in_progress_keep_the_old_origin_and_later_ones_use_the_new() -> anyhow::Result<()>
{
    let gate = Gate::new();
    let old = Origin::in_turn(vec![fresh("old"), passed("old at last").wait(&gate)]).await?;
    let new = Origin::always(fresh("new")).await?;
    let server = TestServer::start(old.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    client.ask(&Request::get("/stored")).await?;
    let mut under_way = Client::connect(server.address).await?;
    under_way.send(&Request::get("/slow")).await?;
    old.wait_requests(2).await?;

    let reloaded = server.service.reload(&[site(new.address())?]);
    assert_eq!(reloaded, Reloaded { changed: 1, ..Reloaded::default() });
    assert_eq!(client.ask(&Request::get("/other")).await?.text(), "new");
    let stored = client.ask(&Request::get("/stored")).await?;
    assert!(is_hit(&stored) && stored.text() == "old", "{stored:?}");
    gate.open();
    assert_eq!(under_way.reply().await?.text(), "old at last");
    assert_eq!(under_way.ask(&Request::get("/another")).await?.text(), "new");
    assert_eq!((old.requests(), new.requests()), (2, 2));
    Ok(())
}

#[tokio::test]
async fn a_reloaded_fetch_timeout_applies_to_the_next_request() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::hang()).await?;
    let server = TestServer::start(origin.address(), &[("fetch_timeout", "\"3600s\"")]).await?;
    let mut settings = site(origin.address())?;
    settings.fetch_timeout = Duration::from_millis(50);
    server.service.reload(&[settings]);
    let reply = Client::connect(server.address).await?.ask(&Request::get("/a")).await?;
    assert_eq!((reply.status, origin.requests()), (504, 1));
    Ok(())
}

#[tokio::test]
async fn a_site_removed_and_added_again_keeps_its_entries() -> anyhow::Result<()> {
    let origin = Origin::always(fresh("hello")).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let shop = named("shop", "shop.example", origin.address())?;
    let blog = named("blog", "blog.example", origin.address())?;
    let both = [shop.clone(), blog.clone()];
    let reloaded = server.service.reload(&both);
    assert_eq!(reloaded, Reloaded { added: 2, removed: 1, ..Reloaded::default() });
    let mut client = Client::connect(server.address).await?;
    let [in_shop, in_blog] =
        ["shop.example", "blog.example"].map(|host| Request::get("/a").field("Host", host));
    for request in [&in_shop, &in_blog] {
        assert_eq!(client.ask(request).await?.status, 200);
    }

    let reloaded = server.service.reload(&[blog]);
    assert_eq!(reloaded, Reloaded { unchanged: 1, removed: 1, ..Reloaded::default() });
    assert_eq!(client.ask(&in_shop).await?.status, 404);
    assert!(is_hit(&client.ask(&in_blog).await?));
    let reloaded = server.service.reload(&both);
    assert_eq!(reloaded, Reloaded { unchanged: 1, added: 1, ..Reloaded::default() });
    for request in [&in_shop, &in_blog] {
        assert!(is_hit(&client.ask(request).await?));
    }
    assert_eq!(origin.requests(), 2);
    let hits =
        "forebay_requests_total{site=\"shop\",method=\"GET\",status=\"200\",cache=\"hit\"} 1";
    assert!(server.metrics().lines().any(|line| line == hits), "{}", server.metrics());
    Ok(())
}

#[tokio::test]
async fn a_reload_keeps_connections_if_the_origin_settings_are_unchanged() -> anyhow::Result<()> {
    let origin = Origin::always(passed("hello")).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    let same = site(origin.address())?;
    let mut other_rules = same.clone();
    other_rules.rules.default_ttl = Duration::from_secs(9);
    other_rules.expose_errors = true;
    let mut other_pool = other_rules.clone();
    other_pool.origin.keep_alive = Duration::from_secs(9);
    for (settings, unchanged, connections) in
        [(same, 1, 1), (other_rules, 0, 1), (other_pool.clone(), 0, 2), (other_pool, 1, 2)]
    {
        client.ask(&Request::get("/a")).await?;
        let reloaded = server.service.reload(&[settings]);
        client.ask(&Request::get("/a")).await?;
        assert_eq!((reloaded.unchanged, origin.counts().connections), (unchanged, connections));
    }
    assert_eq!(origin.requests(), 8);
    Ok(())
}

#[tokio::test]
async fn connection_permits_survive_a_reload() -> anyhow::Result<()> {
    // The first response uses its connection for four seconds; the second request waits for a
    // connection.
    let slow = Answer::ok(vec![7; 80]).drip(80, Duration::from_millis(50));
    let origin = Origin::always(slow.field("Cache-Control", "no-store")).await?;
    let limits = [("connections_max", "1"), ("fetch_timeout", "\"1s\"")];
    let server = TestServer::start(origin.address(), &limits).await?;
    let mut first = Client::connect(server.address).await?;
    first.send(&Request::get("/a")).await?;
    assert_eq!(first.head().await?.status, 200);
    let mut settings = site(origin.address())?;
    settings.origin.connections_max = 1;
    settings.fetch_timeout = Duration::from_secs(1);
    settings.expose_errors = true;
    let reloaded = server.service.reload(&[settings]);
    assert_eq!(reloaded, Reloaded { changed: 1, ..Reloaded::default() });
    let reply = Client::connect(server.address).await?.ask(&Request::get("/b")).await?;
    assert_eq!((reply.status, origin.requests()), (503, 1));
    assert!(reply.text().contains("cause: "), "{}", reply.text());
    Ok(())
}

#[tokio::test]
async fn a_replaced_site_is_dropped() -> anyhow::Result<()> {
    let origin = Origin::always(fresh("hello")).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    client.ask(&Request::get("/a")).await?;
    assert!(is_hit(&client.ask(&Request::get("/a")).await?));
    let old = Arc::downgrade(&server.service.sites()[0]);
    let mut settings = site(origin.address())?;
    settings.fetch_timeout = Duration::from_secs(1);
    server.service.reload(&[settings]);
    // The load's task may not have ended on this thread yet.
    for _ in 0..1_000 {
        if old.strong_count() == 0 {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
    anyhow::bail!("the old site is still held {} times", old.strong_count())
}
