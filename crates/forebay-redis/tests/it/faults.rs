//! Servers that are slow, frozen, gone or refusing.

use std::time::Duration;

use forebay_engine::TierError;
use forebay_redis::{EndpointSettings, Settings};
use forebay_testkit::faults::{Direction, FaultProxy, Faults, Flow};
use forebay_testkit::redis::RedisLaunch;
use tokio::time::Instant;

use crate::fixture::{Fixture, PATIENT, key, name, number, patient, server, settings, wait_number};

/// Settings with the default timeouts.
fn quick(url: impl Into<String>) -> Settings {
    Settings::new(EndpointSettings::at(url))
}

async fn proxied(server: &forebay_testkit::redis::RedisServer) -> (FaultProxy, String) {
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let url = format!("redis://{}", proxy.address());
    (proxy, url)
}

#[tokio::test]
async fn missing_server_is_connected_in_the_background() {
    let port = server().await.kill().await.unwrap();
    let fixture = Fixture::connect(Settings::new(patient(format!("redis://127.0.0.1:{port}"))));
    fixture.notices.wait("refused", 1).await;
    let began = Instant::now();
    assert!(matches!(fixture.get(&key("/")).await, Err(TierError::Failed(_))));
    assert!(fixture.put(&key("/"), b"x").await.is_err());
    assert!(fixture.remove(&key("/")).await.is_err());
    assert!(began.elapsed() < PATIENT, "nothing waits for it");
    assert_eq!(fixture.tier.counts().absent, 3);
    let _server = RedisLaunch::new().port(port).start().await.unwrap();
    fixture.until(|tier| tier.endpoints()[0].is_up).await;
    fixture.put(&key("/"), b"x").await.unwrap();
    assert!(fixture.body(&key("/")).await.is_some());
    let said = fixture.notices.all();
    assert_eq!(said.len(), 2, "each thing once: {said:?}");
}

#[tokio::test]
async fn restarted_server_is_used_again() {
    let server = server().await;
    let fixture = Fixture::new(settings(&server)).await;
    fixture.put(&key("/"), b"x").await.unwrap();
    let port = server.kill().await.unwrap();
    fixture.until(|tier| !tier.endpoints()[0].is_up).await;
    assert!(fixture.get(&key("/")).await.is_err());
    let server = RedisLaunch::new().port(port).start().await.unwrap();
    fixture.until(|tier| tier.endpoints()[0].is_up).await;
    assert_eq!(fixture.get(&key("/")).await.unwrap(), None, "it has come back empty");
    fixture.put(&key("/"), b"y").await.unwrap();
    assert_eq!(fixture.body(&key("/")).await.as_deref(), Some(&b"y"[..]));
    drop(server);
}

/// Repetitions of measurements that a busy machine can disturb.
const ROUNDS: usize = 6;

#[tokio::test]
async fn a_frozen_server_costs_its_time_once_and_is_back_at_once() {
    let server = server().await;
    let fixture = Fixture::new(quick(server.url())).await;
    let (mut waited, mut back) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        fixture.put_until_stored(&key("/"), b"x").await;
        server.freeze().await.unwrap();
        let began = Instant::now();
        let frozen = fixture.get(&key("/")).await;
        waited.push(began.elapsed());
        assert!(matches!(frozen, Err(TierError::TimedOut | TierError::Failed(_))), "{frozen:?}");
        fixture.until(|tier| !tier.endpoints()[0].is_up).await;
        let began = Instant::now();
        for _ in 0..1_000 {
            assert!(matches!(fixture.get(&key("/")).await, Err(TierError::Failed(_))));
        }
        let each = began.elapsed() / 1_000;
        assert!(each < Duration::from_millis(1), "{each:?}");
        server.thaw().await.unwrap();
        back.push(fixture.until(|tier| tier.endpoints()[0].is_up).await);
    }
    let (waited, back) = (waited.iter().min().unwrap(), back.iter().min().unwrap());
    assert!(*waited <= Duration::from_millis(55), "{waited:?}");
    assert!(*back <= Duration::from_millis(250), "{back:?}");
    assert!(fixture.tier.counts().timed_out >= 1);
    assert!(fixture.tier.counts().connected <= 1 + ROUNDS as u64);
}

#[tokio::test]
async fn slow_server_is_not_used_until_it_is_fast_again() {
    let server = server().await;
    let (proxy, url) = proxied(&server).await;
    let fixture = Fixture::new(quick(url)).await;
    proxy.set(Faults::delayed(Duration::from_millis(120)));
    fixture.until(|tier| !tier.endpoints()[0].is_up).await;
    let said = fixture.notices.all();
    assert!(
        said.iter().any(|notice| notice.contains("sent no reply within the timeout")),
        "{said:?}"
    );
    proxy.set(Faults::default());
    fixture.until(|tier| tier.endpoints()[0].is_up).await;
    assert_eq!(fixture.tier.counts().connected, 1, "the connection was as good as any");
}

#[tokio::test]
async fn broken_connections_are_reopened_with_a_pause() {
    let server = server().await;
    let (proxy, url) = proxied(&server).await;
    let fixture = Fixture::new(Settings::new(patient(url))).await;
    proxy.reset_all();
    fixture.until(|tier| tier.counts().connected == 2 && tier.endpoints()[0].is_up).await;
    proxy.half_close_all(Direction::ToClient);
    fixture.until(|tier| tier.counts().connected == 3 && tier.endpoints()[0].is_up).await;

    let (before, began) = (proxy.accepted(), Instant::now());
    proxy.change(|faults| faults.refuses = true);
    proxy.reset_all();
    fixture.until(|_| proxy.accepted() >= before + 6).await;
    let elapsed = began.elapsed();
    assert!(elapsed >= Duration::from_millis(500), "6 attempts in {elapsed:?}");
    proxy.set(Faults::default());
    let back = fixture.until(|tier| tier.endpoints()[0].is_up).await;
    assert!(back < Duration::from_secs(2), "{back:?}");
}

#[tokio::test]
async fn dropped_tier_closes_its_connections() {
    let server = server().await;
    let (proxy, url) = proxied(&server).await;
    let fixture = Fixture::new(Settings::new(patient(url))).await;
    assert_eq!(proxy.open(), 1);
    let other = Fixture::new(settings(&server)).await;
    drop(fixture);
    other.until(|_| proxy.open() == 0).await;
}

#[tokio::test]
async fn a_connection_into_nowhere_is_given_up() {
    let server = server().await;
    let (proxy, url) = proxied(&server).await;
    let fixture = Fixture::new(quick(url)).await;
    proxy.set(Faults::flow(Flow::BlackHole));
    fixture.until(|tier| !tier.endpoints()[0].is_up).await;
    assert!(fixture.get(&key("/")).await.is_err());
    proxy.set(Faults::default());
    fixture.until(|tier| tier.endpoints()[0].is_up).await;
    assert!(fixture.tier.counts().connected >= 2);
}

#[tokio::test]
async fn the_fallback_is_used_while_the_nearest_does_not_answer() {
    let (near, far) = (server().await, server().await);
    let (proxy, far_url) = proxied(&far).await;
    proxy.set(Faults::delayed(Duration::from_millis(80)));
    let mut settings = quick(near.url());
    let read_timeout = Duration::from_millis(250);
    let write_timeout = PATIENT;
    let there = EndpointSettings { read_timeout, write_timeout, ..EndpointSettings::at(far_url) };
    settings.fallback.push(there);
    let fixture = Fixture::new(settings).await;
    fixture.until(|tier| tier.endpoints()[1].is_up).await;
    fixture.put(&key("/"), b"near").await.unwrap();
    fixture.put(&key("/purged"), b"near").await.unwrap();
    assert_eq!(number(&far, &["DBSIZE"]).await, 0);

    near.freeze().await.unwrap();
    let over = fixture.until(|tier| tier.endpoints()[1].is_used).await;
    assert!(over < Duration::from_secs(1), "{over:?}");
    fixture.put(&key("/"), b"newer").await.unwrap();
    assert_eq!(fixture.body(&key("/")).await.as_deref(), Some(&b"newer"[..]));
    assert!(!fixture.remove(&key("/purged")).await.unwrap());
    assert_eq!(fixture.tier.endpoints()[0].pending, 2);

    near.thaw().await.unwrap();
    let back = fixture.until(|tier| tier.endpoints()[0].is_used).await;
    assert!(back < Duration::from_secs(1), "{back:?}");
    // Outdated and purged entries are not read.
    for path in ["/", "/purged"] {
        assert_eq!(fixture.get(&key(path)).await.unwrap(), None, "{path}");
    }
    fixture.until(|tier| tier.endpoints()[0].pending == 0).await;
    assert_eq!(number(&near, &["DBSIZE"]).await, 0);
}

#[tokio::test]
async fn wrong_password_is_reported_once_without_it() {
    let server = RedisLaunch::new().config("requirepass right").start().await.unwrap();
    let wrong = format!("redis://:wrong@{}", server.address());
    let fixture = Fixture::connect(Settings::new(patient(wrong)));
    fixture.notices.wait("Redis denies access", 1).await;
    assert!(fixture.get(&key("/")).await.is_err());
    let said = fixture.notices.all();
    assert!(said.len() == 1 && !said[0].contains("wrong@"), "{said:?}");
    assert!(said[0].starts_with(&format!("server {}", server.url())), "{said:?}");
    assert_eq!(
        fixture.tier.endpoints()[0].error.as_deref(),
        said[0].split_once(&format!("{}: ", server.url())).map(|s| s.1)
    );
}

#[tokio::test]
async fn missing_database_is_reported_once() {
    let server = server().await;
    let fixture = Fixture::connect(Settings::new(patient(format!("{}/99", server.url()))));
    fixture.notices.wait("DB index is out of range", 1).await;
    assert!(fixture.get(&key("/")).await.is_err());
    assert_eq!(fixture.notices.all().len(), 1);
}

#[tokio::test]
async fn missing_access_right_is_reported_once() {
    let config = "user reader on >secret ~* +@read +ping +hello +client";
    let server = RedisLaunch::new().config(config).start().await.unwrap();
    let writer = Fixture::new(settings(&server)).await;
    writer.put(&key("/"), b"x").await.unwrap();
    let url = format!("redis://reader:secret@{}", server.address());
    let fixture = Fixture::new(Settings::new(patient(url))).await;
    for _ in 0..5 {
        fixture.put(&key("/"), b"y").await.unwrap();
        assert_eq!(fixture.body(&key("/")).await.as_deref(), Some(&b"x"[..]), "reading goes on");
    }
    let counts = fixture.tier.counts();
    assert_eq!((counts.stored, counts.denied + counts.writes_refused), (0, 5));
    assert!(fixture.tier.endpoints()[0].is_read_only);
    let said = fixture.notices.all();
    let told: Vec<_> = said
        .iter()
        .filter(|notice| {
            notice.contains(
                "Redis denies \
        access",
            )
        })
        .collect();
    assert_eq!(told.len(), 1, "{said:?}");
    assert!(!told[0].contains("secret"), "{told:?}");
}

#[tokio::test]
async fn read_only_replica_is_read_without_failures() {
    let master = server().await;
    let replica = RedisLaunch::new().replica_of(&master).start().await.unwrap();
    let writer = Fixture::new(settings(&master)).await;
    writer.put(&key("/"), b"x").await.unwrap();
    wait_number(&replica, &["EXISTS", &name("/")], 1).await;
    let fixture = Fixture::new(settings(&replica)).await;
    for _ in 0..3 {
        fixture.put(&key("/"), b"y").await.unwrap();
        assert_eq!(fixture.body(&key("/")).await.as_deref(), Some(&b"x"[..]));
    }
    assert!(fixture.remove(&key("/")).await.is_err(), "a removal that was not carried out");
    assert_eq!(fixture.get(&key("/")).await.unwrap(), None, "is at least not read");
    let state = &fixture.tier.endpoints()[0];
    assert!(state.is_up && state.is_read_only && state.pending == 1, "{state:?}");
    assert_eq!(
        (fixture.tier.counts().stored, fixture.tier.counts().writes_refused >= 4),
        (0, true)
    );
    // The replica becomes a master, and writes resume.
    replica.ask(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    fixture.until(|tier| tier.endpoints()[0].pending == 0).await;
    fixture.put_until_stored(&key("/"), b"y").await;
    assert!(!fixture.tier.endpoints()[0].is_read_only);
}

#[tokio::test]
async fn full_server_is_reported_and_still_read() {
    let launch = RedisLaunch::new().config("maxmemory-policy noeviction");
    let server = launch.start().await.unwrap();
    let fixture = Fixture::new(settings(&server)).await;
    fixture.put(&key("/"), b"old").await.unwrap();
    server.ask(&["CONFIG", "SET", "maxmemory", "1kb"]).await.unwrap();
    fixture.put(&key("/"), b"new").await.unwrap();
    assert_eq!(fixture.tier.counts().writes_refused, 1);
    fixture.notices.wait("Redis refuses writes", 1).await;
    assert_eq!(fixture.body(&key("/")).await.as_deref(), Some(&b"old"[..]), "reading goes on");
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    fixture.put_until_stored(&key("/"), b"new").await;
    assert_eq!(fixture.body(&key("/")).await.as_deref(), Some(&b"new"[..]));
}
