//! Changes by other programs are received, if tracking is enabled.

use std::time::Duration;

use forebay_core::{Key, Purge, PurgeState, Reach};
use forebay_engine::bus::Notice;
use forebay_redis::{EndpointSettings, Redis, Servers, Settings, SettingsError, SharingSettings};
use forebay_testkit::faults::{FaultProxy, Faults, Flow};
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use tokio::time::Instant;

use crate::bus::{Instance, a_moment, purged, tag};
use crate::fixture::{Fixture, key, name, number, patient, server};
use crate::leases::{fill, granted_having_seen};

fn tracking() -> Option<SharingSettings> {
    Some(SharingSettings { tracking: true, ..SharingSettings::default() })
}

fn tracked(server: &RedisServer) -> Settings {
    Settings { sharing: tracking(), ..Settings::new(patient(server.url())) }
}

async fn pair(server: &RedisServer) -> [Instance; 2] {
    [Instance::new(tracked(server)).await, Instance::new(tracked(server)).await]
}

fn removed(key: &Key) -> Notice {
    purged(&Purge::Key(key.clone()), Reach::Hard)
}

#[tokio::test]
async fn changes_by_another_program_are_received() {
    let server = server().await;
    let [one, other] = pair(&server).await;
    let long = "/long".repeat(60);
    let mut stands = 0;
    for path in ["/", &long] {
        let (key, at) = (key(path), name(path));
        let name = if path == long { long_name(&server).await } else { at };
        let commands: [&[&str]; 5] = [
            &["DEL", &name],
            &["SET", &name, "garbage"],
            &["RENAME", &name, "elsewhere"],
            &[
                "EVAL",
                "redis.call('DEL', KEYS[1]) return redis.call('LPUSH', KEYS[1], 'x')",
                "1",
                &name,
            ],
            &["PEXPIRE", &name, "1"],
        ];
        for command in commands {
            number(&server, &["DEL", &name]).await;
            a_moment().await;
            one.put(&key, &[]).await;
            assert_eq!(other.standing(&key).await, Some(PurgeState::Valid));
            stands += 1;
            a_moment().await;
            for instance in [&one, &other] {
                instance.received.forget();
            }
            server.ask(command).await.unwrap();
            for instance in [&one, &other] {
                instance.received.wait(&removed(&key)).await;
                assert_eq!(instance.received.count(&Notice::Gap), 0, "{command:?}");
            }
        }
    }
    assert!(one.fixture.tier.counts().changed_elsewhere >= stands);
}

/// Returns the name of the only entry with a digest as its name.
async fn long_name(server: &RedisServer) -> String {
    let fixture = Fixture::new(Settings::new(patient(server.url()))).await;
    fixture.put(&key(&"/long".repeat(60)), b"body").await.unwrap();
    let name = server.ask(&["KEYS", "forebay:d:{#*"]).await.unwrap().text();
    assert!(!name.contains(' '), "{name}");
    name
}

#[tokio::test]
async fn own_writes_and_reads_are_no_changes() {
    let server = server().await;
    let [one, other] = pair(&server).await;
    a_moment().await;
    for number in 0..20 {
        let key = key(&format!("/{number}"));
        one.put(&key, &["red"]).await;
        assert_eq!(one.standing(&key).await, Some(PurgeState::Valid));
        let seen = other.open(&key).await.map(|stored| stored.stamp);
        let permit = granted_having_seen(&one.fixture, &key, seen).await;
        let waiting = crate::leases::elsewhere_having_seen(&other.fixture, &key, seen).await;
        fill(&one.fixture, &key, &permit, b"newer").await.unwrap();
        drop(waiting.await);
    }
    // Earlier messages have arrived when this one has.
    server.ask(&["DEL", &name("/0")]).await.unwrap();
    for instance in [&one, &other] {
        instance.received.wait(&removed(&key("/0"))).await;
    }
    assert_eq!(one.fixture.tier.counts().changed_elsewhere, 1, "{:?}", one.fixture.tier.counts());
    // The other instance receives each message before it reads the entry.
    assert!(other.fixture.tier.counts().changed_elsewhere <= 41);
    assert_eq!((one.received.count(&Notice::Gap), other.received.count(&Notice::Gap)), (0, 0));
}

#[tokio::test]
async fn a_server_that_was_emptied_is_a_gap_at_once() {
    let server = server().await;
    let one = Instance::new(tracked(&server)).await;
    a_moment().await;
    one.put(&key("/"), &[]).await;
    one.publish(&tag("red"), Reach::Hard).await;
    server.ask(&["FLUSHALL"]).await.unwrap();
    one.received.wait(&Notice::Gap).await;
}

#[tokio::test]
async fn a_lost_connection_is_a_gap_and_silence_is_lost() {
    let server = server().await;
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let through = patient(format!("redis://{}", proxy.address()));
    let one = Instance::new(Settings { sharing: tracking(), ..Settings::new(through) }).await;
    server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    one.received.wait(&Notice::Gap).await;
    one.received.until(|all| all.last() == Some(&Notice::Connected)).await;
    one.received.forget();
    let began = Instant::now();
    proxy.set(Faults::flow(Flow::BlackHole));
    one.received.wait(&Notice::Disconnected).await;
    let took = began.elapsed();
    assert!(took <= Duration::from_millis(1_500), "{took:?}");
    assert!(!one.fixture.tier.sharing().unwrap().bus_connected);
    proxy.set(Faults::default());
    proxy.reset_all();
    one.received.wait(&Notice::Connected).await;
    assert!(one.received.count(&Notice::Gap) > 0, "what was written meanwhile was not heard");
    one.fixture.until(|tier| tier.sharing().unwrap().bus_connected).await;
}

#[tokio::test]
async fn denied_tracking_is_reported_and_disconnects_the_bus() {
    let user = "user cache on >secret ~forebay:* &* +@all -client|tracking";
    let server = RedisLaunch::new().config(user).start().await.unwrap();
    let url = format!("redis://cache:secret@{}", server.address());
    let settings = Settings { sharing: tracking(), ..Settings::new(patient(url)) };
    let fixture = Fixture::new(settings).await;
    fixture
        .notices
        .wait("changes by other programs are not received: Redis denies access", 1)
        .await;
    let tracking_error = fixture.tier.endpoints()[0].tracking_error.clone().unwrap();
    assert!(tracking_error.starts_with("Redis denies access"), "{tracking_error}");
    assert!(!fixture.tier.sharing().unwrap().bus_connected);
}

#[test]
fn a_cluster_cannot_be_tracked() {
    let servers = Servers::Cluster(vec!["redis://127.0.0.1:1".to_owned()]);
    let endpoint = EndpointSettings { servers, ..patient("") };
    let settings = Settings { sharing: tracking(), ..Settings::new(endpoint) };
    let clock = std::sync::Arc::new(forebay_engine::SystemClock);
    let made = Redis::connect(settings, clock, std::sync::Arc::new(()));
    assert_eq!(made.err(), Some(SettingsError::TrackedCluster));
}
