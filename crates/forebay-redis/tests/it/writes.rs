//! No write becomes visible after its writer gave up, or after a removal.

use std::time::Duration;

use bytes::Bytes;
use forebay_core::Lifetime;
use forebay_redis::{EndpointSettings, Settings};
use forebay_testkit::faults::{FaultProxy, Faults, Flow};

use crate::fixture::{
    Fixture, PATIENT, key, lose_time, meta, name, number, server, settings, without_time,
};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_removal_between_the_beginning_and_the_commit_wins() {
    let server = server().await;
    let (writer, remover) =
        (Fixture::new(settings(&server)).await, Fixture::new(settings(&server)).await);
    let mut writing = writer.begin(&key("/"), &meta(MINUTE)).await.unwrap();
    writing.write(Bytes::from_static(b"old")).await.unwrap();
    assert!(!remover.remove(&key("/")).await.unwrap());
    writing.commit().await.unwrap();
    assert_eq!(writer.get(&key("/")).await.unwrap(), None);
    assert_eq!(writer.tier.counts().fills_refused, 1);
    assert_eq!(number(&server, &["DBSIZE"]).await, 0);
}

#[tokio::test]
async fn of_two_writers_the_one_that_began_last_wins() {
    let server = server().await;
    let (one, other) =
        (Fixture::new(settings(&server)).await, Fixture::new(settings(&server)).await);
    let mut first = one.begin(&key("/"), &meta(MINUTE)).await.unwrap();
    first.write(Bytes::from_static(b"first")).await.unwrap();
    other.put(&key("/"), b"second").await.unwrap();
    first.commit().await.unwrap();
    assert_eq!(one.body(&key("/")).await.as_deref(), Some(&b"second"[..]));
    assert_eq!((one.tier.counts().fills_refused, other.tier.counts().stored), (1, 1));
}

#[tokio::test]
async fn only_the_holder_of_a_claim_can_use_it() {
    let server = server().await;
    let (one, other) =
        (Fixture::new(settings(&server)).await, Fixture::new(settings(&server)).await);
    let mut first = one.begin(&key("/"), &meta(MINUTE)).await.unwrap();
    first.write(Bytes::from_static(b"first")).await.unwrap();
    let mut second = other.begin(&key("/"), &meta(MINUTE)).await.unwrap();
    second.write(Bytes::from_static(b"second")).await.unwrap();
    first.commit().await.unwrap();
    assert_eq!(one.get(&key("/")).await.unwrap(), None);
    second.commit().await.unwrap();
    assert_eq!(one.body(&key("/")).await.as_deref(), Some(&b"second"[..]));
    assert_eq!((one.tier.counts().fills_refused, other.tier.counts().stored), (1, 1));
}

#[tokio::test]
async fn what_is_dropped_before_its_commit_leaves_no_entry() {
    let server = server().await;
    let fixture = Fixture::new(settings(&server)).await;
    fixture.put(&key("/"), b"before").await.unwrap();
    let mut writing = fixture.begin(&key("/"), &meta(MINUTE)).await.unwrap();
    writing.write(Bytes::from_static(b"half")).await.unwrap();
    drop(writing);
    assert_eq!(fixture.body(&key("/")).await.as_deref(), Some(&b"before"[..]));
}

#[tokio::test]
async fn a_commit_that_nobody_waits_for_is_undone() {
    let server = server().await;
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let write_timeout = Duration::from_millis(100);
    let url = format!("redis://{}", proxy.address());
    let endpoint =
        EndpointSettings { write_timeout, read_timeout: PATIENT, ..EndpointSettings::at(url) };
    let fixture = Fixture::new(Settings::new(endpoint)).await;
    // The server caches the script, so that one command is pending.
    fixture.put(&key("/warm"), b"x").await.unwrap();
    let mut writing = fixture.begin(&key("/"), &meta(MINUTE)).await.unwrap();
    writing.write(Bytes::from_static(b"body")).await.unwrap();
    proxy.change(|faults| faults.to_client.flow = Flow::Frozen);
    assert!(writing.commit().await.is_err());
    // The server has stored the value, but the tier cannot know it.
    assert_eq!(number(&server, &["EXISTS", &name("/")]).await, 1);
    assert_eq!(fixture.tier.endpoints()[0].pending, 1);
    proxy.set(Faults::default());
    assert_eq!(fixture.get(&key("/")).await.unwrap(), None);
    fixture.until(|tier| tier.endpoints()[0].pending == 0).await;
    assert_eq!(number(&server, &["EXISTS", &name("/")]).await, 0);
}

#[tokio::test]
async fn a_fill_that_comes_late_is_refused_by_the_server() {
    let server = server().await;
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let write_timeout = Duration::from_millis(100);
    let url = format!("redis://{}", proxy.address());
    let endpoint =
        EndpointSettings { write_timeout, read_timeout: PATIENT, ..EndpointSettings::at(url) };
    let fixture = Fixture::new(Settings::new(endpoint)).await;
    let other = Fixture::new(settings(&server)).await;
    // The server caches the script, so that one command is pending.
    fixture.put(&key("/warm"), b"x").await.unwrap();
    let mut writing = fixture.begin(&key("/"), &meta(MINUTE)).await.unwrap();
    writing.write(Bytes::from_static(b"body")).await.unwrap();
    proxy.change(|faults| faults.to_server.flow = Flow::Frozen);
    assert!(writing.commit().await.is_err());
    // The command is delayed beyond the timeout on the server's clock.
    lose_time(&server, "/", 1_000).await;
    proxy.set(Faults::default());
    fixture.until(|tier| tier.endpoints()[0].pending == 0).await;
    assert_eq!(other.get(&key("/")).await.unwrap(), None);
    let evals = server.ask(&["INFO", "commandstats"]).await.unwrap().text();
    assert!(evals.contains("cmdstat_evalsha:calls=4"), "two claims and two fills: {evals}");
    assert!(evals.contains("cmdstat_set:calls=1,"), "one value: {evals}");
}

#[tokio::test]
async fn time_that_a_fill_has_lost_on_its_way_counts_as_age() {
    let server = server().await;
    let fixture = Fixture::new(settings(&server)).await;
    // A reader that uses the remaining TTL.
    let reader = Fixture::new(without_time(&server).await).await;
    let mut writing = fixture.begin(&key("/"), &meta(MINUTE)).await.unwrap();
    writing.write(Bytes::from_static(b"body")).await.unwrap();
    // As if a second had passed between claim and store that the writer did not measure.
    lose_time(&server, "/", 1_000).await;
    writing.commit().await.unwrap();
    let got = reader.get(&key("/")).await.unwrap().unwrap();
    let age = got.meta.age(crate::fixture::now());
    // Time that really passed is overwritten by it.
    assert!(age >= Duration::from_millis(950), "{age:?}");
    assert_eq!(got.meta.lifetime(), Lifetime::fresh(MINUTE));
}
