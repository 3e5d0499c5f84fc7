//! What other programs remove or write over is heard, where that is asked for.

use std::time::Duration;

use forebay_core::{Key, Purge, Reach, Standing};
use forebay_engine::bus::Notice;
use forebay_redis::{EndpointSettings, Redis, Servers, Settings, SettingsError, SharingSettings};
use forebay_testkit::faults::{FaultProxy, Faults, Flow};
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use tokio::time::Instant;

use crate::bus::{Instance, a_moment, purged, tag};
use crate::leases::{fill, granted_having_seen};
use crate::world::{World, key, name, number, patient, server};

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
async fn what_another_program_removes_or_writes_over_is_heard() {
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
            assert_eq!(other.standing(&key).await, Some(Standing::Good));
            stands += 1;
            a_moment().await;
            for instance in [&one, &other] {
                instance.heard.forget();
            }
            server.ask(command).await.unwrap();
            for instance in [&one, &other] {
                instance.heard.wait(&removed(&key)).await;
                assert_eq!(instance.heard.count(&Notice::Gap), 0, "{command:?}");
            }
        }
    }
    assert!(one.world.tier.counts().changed_elsewhere >= stands);
}

/// What the one entry is called that is there.
async fn long_name(server: &RedisServer) -> String {
    let world = World::new(Settings::new(patient(server.url()))).await;
    world.put(&key(&"/long".repeat(60)), b"body").await.unwrap();
    let name = server.ask(&["KEYS", "forebay:d:{#*"]).await.unwrap().text();
    assert!(!name.contains(' '), "{name}");
    name
}

#[tokio::test]
async fn what_instances_store_and_read_is_no_change_for_them() {
    let server = server().await;
    let [one, other] = pair(&server).await;
    a_moment().await;
    for number in 0..20 {
        let key = key(&format!("/{number}"));
        one.put(&key, &["red"]).await;
        assert_eq!(one.standing(&key).await, Some(Standing::Good));
        let seen = other.open(&key).await.map(|stored| stored.stamp);
        let permit = granted_having_seen(&one.world, &key, seen).await;
        let waiting = crate::leases::elsewhere_having_seen(&other.world, &key, seen).await;
        fill(&one.world, &key, &permit, b"newer").await.unwrap();
        drop(waiting.await);
    }
    // Whatever was told until now has been heard when this is.
    server.ask(&["DEL", &name("/0")]).await.unwrap();
    for instance in [&one, &other] {
        instance.heard.wait(&removed(&key("/0"))).await;
    }
    assert_eq!(one.world.tier.counts().changed_elsewhere, 1, "{:?}", one.world.tier.counts());
    // The other one was told of each before it had it.
    assert!(other.world.tier.counts().changed_elsewhere <= 41);
    assert_eq!((one.heard.count(&Notice::Gap), other.heard.count(&Notice::Gap)), (0, 0));
}

#[tokio::test]
async fn a_server_that_was_emptied_is_a_gap_at_once() {
    let server = server().await;
    let one = Instance::new(tracked(&server)).await;
    a_moment().await;
    one.put(&key("/"), &[]).await;
    one.publish(&tag("red"), Reach::Hard).await;
    server.ask(&["FLUSHALL"]).await.unwrap();
    one.heard.wait(&Notice::Gap).await;
}

#[tokio::test]
async fn a_lost_connection_is_a_gap_and_silence_is_lost() {
    let server = server().await;
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let through = patient(format!("redis://{}", proxy.address()));
    let one = Instance::new(Settings { sharing: tracking(), ..Settings::new(through) }).await;
    server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    one.heard.wait(&Notice::Gap).await;
    one.heard.until(|all| all.last() == Some(&Notice::Heard)).await;
    one.heard.forget();
    let began = Instant::now();
    proxy.set(Faults::flow(Flow::BlackHole));
    one.heard.wait(&Notice::Lost).await;
    let took = began.elapsed();
    assert!(took <= Duration::from_millis(1_500), "{took:?}");
    assert!(!one.world.tier.sharing().unwrap().is_heard);
    proxy.set(Faults::default());
    proxy.reset_all();
    one.heard.wait(&Notice::Heard).await;
    assert!(one.heard.count(&Notice::Gap) > 0, "what was written meanwhile was not heard");
    one.world.until(|tier| tier.sharing().unwrap().is_heard).await;
}

#[tokio::test]
async fn who_may_not_be_told_is_named_and_hears_nothing() {
    let user = "user cache on >secret ~forebay:* &* +@all -client|tracking";
    let server = RedisLaunch::new().config(user).start().await.unwrap();
    let url = format!("redis://cache:secret@{}", server.address());
    let settings = Settings { sharing: tracking(), ..Settings::new(patient(url)) };
    let world = World::new(settings).await;
    world.notices.wait("what other programs write is not heard: it refuses", 1).await;
    let untracked = world.tier.endpoints()[0].untracked.clone().unwrap();
    assert!(untracked.starts_with("it refuses"), "{untracked}");
    assert!(!world.tier.sharing().unwrap().is_heard);
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
