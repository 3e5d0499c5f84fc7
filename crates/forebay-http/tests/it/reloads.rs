//! Other settings for the same service, while it answers.

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

use crate::door::{Door, site};

/// Clients that ask all the time.
const CLIENTS: usize = 8;

/// Targets that are stored before the first reload.
const STORED: usize = 16;

/// Reloads while they ask.
const RELOADS: u64 = 50;

/// Answers between one reload and the next.
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

/// Asks until told to stop; every answer must be right, and every stored one a hit.
async fn ask_on(
    address: SocketAddr,
    (answered, stop): (Arc<watch::Sender<u64>>, Arc<AtomicBool>),
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

/// Settings in which each reload differs from the one before: every other one has a pool of its
/// own, every third one a second site, every fifth one differs in nothing but its rules.
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
async fn fifty_reloads_under_load_cost_no_request_and_no_entry() -> anyhow::Result<()> {
    let origin = Origin::start(|received| match received.path() {
        "/passed" => passed("hello"),
        _ => fresh("hello"),
    })
    .await?;
    let door = Door::open(origin.address(), &[]).await?;
    let mut warming = Client::connect(door.address).await?;
    for number in 0..STORED {
        warming.ask(&Request::get(&format!("/stored/{number}"))).await?;
    }
    let (answered, mut seen) = watch::channel(0);
    let (answered, stop) = (Arc::new(answered), Arc::new(AtomicBool::new(false)));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(ask_on(door.address, (answered.clone(), stop.clone())));
    }
    for round in 1..=RELOADS {
        let enough = seen.wait_for(|answered| *answered >= round * BETWEEN);
        tokio::select! {
            enough = enough => drop(enough?),
            Some(ended) = clients.join_next() => anyhow::bail!("a client gave up: {ended:?}"),
        }
        door.service.reload(&differing(round, origin.address())?);
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client??;
    }
    for number in 0..STORED {
        assert_eq!(origin.requests_to(&format!("/stored/{number}")), 1);
    }
    assert!(*seen.borrow() >= RELOADS * BETWEEN);
    assert_eq!(door.service.engine().memory().entries(), STORED as u64);
    Ok(())
}

#[tokio::test]
async fn who_is_under_way_ends_with_the_old_origin_and_who_comes_later_asks_the_new()
-> anyhow::Result<()> {
    let gate = Gate::new();
    let old = Origin::in_turn(vec![fresh("old"), passed("old at last").wait(&gate)]).await?;
    let new = Origin::always(fresh("new")).await?;
    let door = Door::open(old.address(), &[]).await?;
    let mut client = Client::connect(door.address).await?;
    client.ask(&Request::get("/stored")).await?;
    let mut under_way = Client::connect(door.address).await?;
    under_way.send(&Request::get("/slow")).await?;
    old.wait_requests(2).await?;

    let reloaded = door.service.reload(&[site(new.address())?]);
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
async fn a_shorter_patience_holds_for_the_next_request() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::hang()).await?;
    let door = Door::open(origin.address(), &[("fetch_timeout", "\"3600s\"")]).await?;
    let mut settings = site(origin.address())?;
    settings.fetch_timeout = Duration::from_millis(50);
    door.service.reload(&[settings]);
    let reply = Client::connect(door.address).await?.ask(&Request::get("/a")).await?;
    assert_eq!((reply.status, origin.requests()), (504, 1));
    Ok(())
}

#[tokio::test]
async fn a_site_that_comes_back_finds_its_entries() -> anyhow::Result<()> {
    let origin = Origin::always(fresh("hello")).await?;
    let door = Door::open(origin.address(), &[]).await?;
    let shop = named("shop", "shop.example", origin.address())?;
    let blog = named("blog", "blog.example", origin.address())?;
    let both = [shop.clone(), blog.clone()];
    let reloaded = door.service.reload(&both);
    assert_eq!(reloaded, Reloaded { added: 2, removed: 1, ..Reloaded::default() });
    let mut client = Client::connect(door.address).await?;
    let [in_shop, in_blog] =
        ["shop.example", "blog.example"].map(|host| Request::get("/a").field("Host", host));
    for request in [&in_shop, &in_blog] {
        assert_eq!(client.ask(request).await?.status, 200);
    }

    let reloaded = door.service.reload(&[blog]);
    assert_eq!(reloaded, Reloaded { unchanged: 1, removed: 1, ..Reloaded::default() });
    assert_eq!(client.ask(&in_shop).await?.status, 404);
    assert!(is_hit(&client.ask(&in_blog).await?));
    let reloaded = door.service.reload(&both);
    assert_eq!(reloaded, Reloaded { unchanged: 1, added: 1, ..Reloaded::default() });
    for request in [&in_shop, &in_blog] {
        assert!(is_hit(&client.ask(request).await?));
    }
    assert_eq!(origin.requests(), 2);
    let hits =
        "forebay_requests_total{site=\"shop\",method=\"GET\",status=\"200\",cache=\"hit\"} 1";
    assert!(door.metrics().lines().any(|line| line == hits), "{}", door.metrics());
    Ok(())
}

#[tokio::test]
async fn connections_stay_as_long_as_they_are_told_the_same() -> anyhow::Result<()> {
    let origin = Origin::always(passed("hello")).await?;
    let door = Door::open(origin.address(), &[]).await?;
    let mut client = Client::connect(door.address).await?;
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
        let reloaded = door.service.reload(&[settings]);
        client.ask(&Request::get("/a")).await?;
        assert_eq!((reloaded.unchanged, origin.counts().connections), (unchanged, connections));
    }
    assert_eq!(origin.requests(), 8);
    Ok(())
}

#[tokio::test]
async fn places_that_are_taken_stay_taken() -> anyhow::Result<()> {
    // The first answer keeps its place for four seconds, the second request waits for one.
    let slow = Answer::ok(vec![7; 80]).drip(80, Duration::from_millis(50));
    let origin = Origin::always(slow.field("Cache-Control", "no-store")).await?;
    let limits = [("connections_max", "1"), ("fetch_timeout", "\"1s\"")];
    let door = Door::open(origin.address(), &limits).await?;
    let mut first = Client::connect(door.address).await?;
    first.send(&Request::get("/a")).await?;
    assert_eq!(first.head().await?.status, 200);
    let mut settings = site(origin.address())?;
    settings.origin.connections_max = 1;
    settings.fetch_timeout = Duration::from_secs(1);
    settings.expose_errors = true;
    let reloaded = door.service.reload(&[settings]);
    assert_eq!(reloaded, Reloaded { changed: 1, ..Reloaded::default() });
    let reply = Client::connect(door.address).await?.ask(&Request::get("/b")).await?;
    assert_eq!((reply.status, origin.requests()), (503, 1));
    assert!(reply.text().contains("cause: "), "{}", reply.text());
    Ok(())
}

#[tokio::test]
async fn nothing_keeps_a_site_that_nobody_asks_any_more() -> anyhow::Result<()> {
    let origin = Origin::always(fresh("hello")).await?;
    let door = Door::open(origin.address(), &[]).await?;
    let mut client = Client::connect(door.address).await?;
    client.ask(&Request::get("/a")).await?;
    assert!(is_hit(&client.ask(&Request::get("/a")).await?));
    let old = Arc::downgrade(&door.service.sites()[0]);
    let mut settings = site(origin.address())?;
    settings.fetch_timeout = Duration::from_secs(1);
    door.service.reload(&[settings]);
    // The task of the load may still be on its way out, on this thread.
    for _ in 0..1_000 {
        if old.strong_count() == 0 {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
    anyhow::bail!("the old site is still held {} times", old.strong_count())
}
