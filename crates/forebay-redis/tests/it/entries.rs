//! Entries are stored and read with their metadata, TTL and age.

use std::time::Duration;

use bytes::Bytes;
use forebay_core::frame::{self, Frame};
use forebay_core::{Key, Lifetime, Meta, Stale, TagSet, Validator, Vary};
use forebay_engine::{Tier, TierError};
use forebay_redis::envelope::{self, Annotations, Retention};
use forebay_redis::{Codec, Packing, SealKey};
use futures_util::StreamExt;

use crate::fixture::{
    Fixture, a_moment_ago, bytes, key, meta, name, now, number, server, settings, without_time,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns incompressible bytes.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 7_u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[tokio::test]
async fn entry_round_trips_with_all_metadata() {
    let server = server().await;
    let fixture = Fixture::new(settings(&server)).await;
    let lifetime = Lifetime {
        fresh: MINUTE,
        stale_while_revalidate: Duration::from_secs(7),
        stale_if_error: Duration::from_secs(9),
        stale: Stale::Permitted,
    };
    let mut full = Meta::new(now().minus(Duration::from_secs(5)), lifetime);
    full.load_started_at = now().minus(Duration::from_millis(500));
    full.set_load_cost(Duration::from_millis(31));
    full.set_tags(TagSet::new(["one", "two"]));
    full.set_validator(Some(Validator { tag: Some("\"v1\"".into()), modified: None }));
    full.set_vary(Vary::new(["accept"]));
    let bodies = [vec![], b"short".to_vec(), vec![b'x'; 10_000], noise(300_000), noise(1 << 20)];
    for (number, body) in bodies.iter().enumerate() {
        let key = key(&format!("/{number}"));
        fixture.put_as(&key, &full, body).await.unwrap();
        let got = fixture.get(&key).await.unwrap().unwrap();
        assert_eq!((&got.head[..], &got.body[..]), (&b"the head"[..], &body[..]));
        let age = got.meta.age(now());
        assert!((Duration::from_secs(5)..Duration::from_secs(8)).contains(&age), "{age:?}");
        let mut expected = full.clone();
        expected.born = got.meta.born;
        expected.load_started_at = got.meta.load_started_at;
        assert_eq!(got.meta, expected);
    }
    let counts = fixture.tier.counts();
    assert_eq!((counts.hits, counts.stored, counts.misses), (5, 5, 0));
    assert!(counts.bytes_in > 1_300_000 && counts.bytes_in == counts.bytes_out);
}

#[tokio::test]
async fn many_are_read_in_one_exchange_and_in_their_order() {
    let server = server().await;
    let fixture = Fixture::new(settings(&server)).await;
    let keys: Vec<Key> = (0..100).map(|number| key(&format!("/{number}"))).collect();
    for (number, key) in keys.iter().enumerate().filter(|(number, _)| number % 3 == 0) {
        fixture.put(key, format!("body {number}").as_bytes()).await.unwrap();
    }
    number(&server, &["DEL", &name("/3")]).await;
    number(&server, &["LPUSH", &name("/3"), "no value"]).await;
    let reads = || async {
        let told = server.ask(&["INFO", "stats"]).await.unwrap().text();
        let line = told.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
        line.expect("Redis counts them").trim().parse::<i64>().unwrap()
    };
    let before = reads().await;
    let found = fixture.tier.open_many(&keys).await.unwrap();
    let exchanges = reads().await - before;
    assert_eq!(found.len(), 100);
    for (number, stored) in found.into_iter().enumerate() {
        let body = match stored {
            None => None,
            Some(stored) => {
                let pieces: Vec<_> = stored.body.map(Result::unwrap).collect().await;
                Some(pieces.concat())
            }
        };
        let expected =
            (number % 3 == 0 && number != 3).then(|| format!("body {number}").into_bytes());
        assert_eq!(body, expected, "{number}");
    }
    // Includes heartbeats and the query of the counter.
    assert!(exchanges < 20, "{exchanges} reads of the server for 100 keys");
    assert_eq!(fixture.tier.open_many(&[]).await.unwrap().len(), 0);
    let counts = fixture.tier.counts();
    assert_eq!((counts.hits, counts.misses, counts.foreign), (33, 67, 1));
}

#[tokio::test]
async fn missing_and_removed_entries_are_misses() {
    let server = server().await;
    let fixture = Fixture::new(settings(&server)).await;
    let key = key("/");
    assert_eq!(fixture.get(&key).await.unwrap(), None);
    assert!(!fixture.remove(&key).await.unwrap());
    fixture.put(&key, b"body").await.unwrap();
    assert!(fixture.remove(&key).await.unwrap());
    assert_eq!(fixture.get(&key).await.unwrap(), None);
    assert_eq!(fixture.tier.counts().misses, 2);
    assert_eq!(number(&server, &["DBSIZE"]).await, 0, "and no lease stays behind");
}

#[tokio::test]
async fn entry_has_the_ttl_of_its_usefulness() {
    let server = server().await;
    let fixture = Fixture::new(settings(&server)).await;
    let lifetime = |stale| Lifetime {
        fresh: MINUTE,
        stale_while_revalidate: Duration::from_secs(30),
        stale_if_error: Duration::from_secs(90),
        stale,
    };
    let validator = || Validator { tag: Some("\"v\"".into()), modified: None };
    for (stale, validator, seconds) in [
        (Stale::Permitted, None, 140),
        (Stale::Forbidden, None, 50),
        (Stale::Forbidden, Some(validator()), 110),
    ] {
        let mut meta = Meta::new(now(), lifetime(stale));
        meta.set_validator(validator);
        meta.born = now().minus(Duration::from_secs(10));
        fixture.put_as(&key("/"), &meta, b"body").await.unwrap();
        let left = number(&server, &["PTTL", &name("/")]).await;
        assert!((seconds * 1_000 - 3_000..=seconds * 1_000).contains(&left), "{left}");
    }
    // An entry that must not be served removes the stored one.
    let mut never = meta(Duration::ZERO);
    never.set_lifetime(Lifetime { stale: Stale::Forbidden, ..never.lifetime() });
    fixture.put_as(&key("/"), &never, b"newer").await.unwrap();
    assert_eq!(fixture.get(&key("/")).await.unwrap(), None);
    fixture.until(|tier| tier.endpoints()[0].pending == 0).await;
    assert_eq!(number(&server, &["EXISTS", &name("/")]).await, 0);
    fixture.put_as(&key("/"), &meta(Duration::MAX), b"for ever").await.unwrap();
    assert_eq!(fixture.body(&key("/")).await.as_deref(), Some(&b"for ever"[..]));
}

#[tokio::test]
async fn time_in_redis_is_age() {
    let server = server().await;
    let settings = settings(&server);
    let fixture = Fixture::new(settings.clone()).await;
    let planted = |after: u64| {
        let (key, meta, body) = (key("/"), meta(MINUTE), [Bytes::from_static(b"body")]);
        let frame = Frame { key: key.borrowed(), meta: &meta, head: b"", body: &body };
        let frame = frame::encode(&frame, now()).unwrap();
        let from = a_moment_ago() - Duration::from_secs(after);
        let retention = Retention { ttl: MINUTE, from: Some(from) };
        envelope::seal(&frame, &name("/"), retention, &Annotations::default(), &settings.sealing)
    };
    // As if 45 seconds had passed in Redis; the TTL set by another program is ignored.
    for end in [&["PERSIST"][..], &["PEXPIRE", "61000"]] {
        server.ask(&[b"SET", name("/").as_bytes(), &planted(45)]).await.unwrap();
        let name = name("/");
        let command = [&[end[0], &*name], &end[1..]].concat();
        server.ask(&command).await.unwrap();
        let got = fixture.get(&key("/")).await.unwrap().unwrap();
        let age = got.meta.age(now());
        assert!((Duration::from_secs(45)..Duration::from_secs(48)).contains(&age), "{age:?}");
        assert!(got.meta.is_fresh(now()));
    }
    // The value has outlived its TTL.
    server.ask(&[b"SET", name("/").as_bytes(), &planted(62)]).await.unwrap();
    assert_eq!(fixture.get(&key("/")).await.unwrap(), None);
    assert_eq!(fixture.tier.counts().ageless, 1);
}

#[tokio::test]
async fn a_hit_is_one_command_and_a_hundred_are_a_hundred() {
    let server = server().await;
    let fixture = Fixture::new(settings(&server)).await;
    fixture.put(&key("/"), b"body").await.unwrap();
    for _ in 0..100 {
        assert!(fixture.body(&key("/")).await.is_some());
    }
    let stats = server.ask(&["INFO", "commandstats"]).await.unwrap().text();
    assert!(stats.contains("cmdstat_getrange:calls=100,"), "{stats}");
    // Only the claim reads the TTL.
    assert!(stats.contains("cmdstat_pttl:calls=1,"), "{stats}");
}

#[tokio::test]
async fn without_the_servers_clock_the_remaining_ttl_is_read() {
    let server = server().await;
    let settings = settings(&server);
    let fixture = Fixture::new(without_time(&server).await).await;
    // Value of a writer that does not know the server's clock.
    let (named, meta, body) = (key("/"), meta(MINUTE), [Bytes::from_static(b"body")]);
    let frame = Frame { key: named.borrowed(), meta: &meta, head: b"", body: &body };
    let frame = frame::encode(&frame, now()).unwrap();
    let retention = Retention { ttl: 2 * MINUTE, from: None };
    let value =
        envelope::seal(&frame, &name("/"), retention, &Annotations::default(), &settings.sealing);
    server.ask(&[b"SET", name("/").as_bytes(), &value, b"PX", b"120000"]).await.unwrap();
    // A reader with access to the clock also reads values without a timestamp.
    let other = Fixture::new(settings.clone()).await;
    assert_eq!(other.body(&key("/")).await.as_deref(), Some(&b"body"[..]));
    assert_eq!(other.tier.counts().ageless, 0);
    // TTL of two minutes, as if 45 seconds had passed.
    number(&server, &["PEXPIRE", &name("/"), "75000"]).await;
    let got = fixture.get(&key("/")).await.unwrap().unwrap();
    let age = got.meta.age(now());
    assert!((Duration::from_secs(45)..Duration::from_secs(48)).contains(&age), "{age:?}");
    assert!(got.meta.is_fresh(now()));
    // Another program extends or removes the TTL.
    for command in [&["PEXPIRE", &name("/"), "121000"][..], &["PERSIST", &name("/")]] {
        number(&server, command).await;
        assert_eq!(fixture.get(&key("/")).await.unwrap(), None);
    }
    assert_eq!(fixture.tier.counts().ageless, 2);
}

#[tokio::test]
async fn namespaces_do_not_see_each_other() {
    let server = server().await;
    let one = Fixture::new(settings(&server)).await;
    let mut other = settings(&server);
    other.namespace = "other".to_owned();
    let other = Fixture::new(other).await;
    one.put(&key("/"), b"one").await.unwrap();
    assert_eq!(other.get(&key("/")).await.unwrap(), None);
    other.put(&key("/"), b"other").await.unwrap();
    assert_eq!(one.body(&key("/")).await.as_deref(), Some(&b"one"[..]));
    // A copy is not an entry of the other namespace.
    server.ask(&["COPY", &name("/"), "other:d:{site|/|}", "REPLACE"]).await.unwrap();
    assert_eq!(other.get(&key("/")).await.unwrap(), None);
    assert_eq!(other.tier.counts().damaged, 1);
}

#[tokio::test]
async fn a_signature_is_needed_where_there_is_a_key() {
    let server = server().await;
    let sealed = |secret: Option<&[u8]>| {
        let mut settings = settings(&server);
        settings.sealing.key = secret.map(SealKey::new);
        settings
    };
    let one = Fixture::new(sealed(Some(b"one"))).await;
    let other = Fixture::new(sealed(Some(b"other"))).await;
    let none = Fixture::new(sealed(None)).await;
    one.put(&key("/"), b"signed").await.unwrap();
    assert_eq!(one.body(&key("/")).await.as_deref(), Some(&b"signed"[..]));
    assert_eq!(other.get(&key("/")).await.unwrap(), None);
    assert_eq!(none.get(&key("/")).await.unwrap(), None);
    none.put(&key("/"), b"unsigned").await.unwrap();
    assert_eq!(one.get(&key("/")).await.unwrap(), None);
    let wrong = [&one, &other, &none].map(|fixture| fixture.tier.counts().unauthentic);
    assert_eq!(wrong, [1, 1, 1]);
}

#[tokio::test]
async fn every_codec_reads_what_every_other_has_written() {
    let server = server().await;
    let body = noise(2_000).repeat(20);
    let codecs = [Codec::None, Codec::Zstd { level: 3 }, Codec::Lz4];
    let mut fixtures = Vec::new();
    for codec in codecs {
        let mut settings = settings(&server);
        settings.sealing.packing = Packing { codec, threshold: 1_000 };
        fixtures.push(Fixture::new(settings).await);
    }
    for (number, writer) in fixtures.iter().enumerate() {
        writer.put(&key("/"), &body).await.unwrap();
        for reader in &fixtures {
            assert_eq!(reader.body(&key("/")).await.as_deref(), Some(&body[..]));
        }
        let value = bytes(&server, &name("/")).await;
        assert_eq!((value[5] as usize, value.len() < 10_000), (number, number > 0));
        writer.put(&key("/"), b"below the threshold").await.unwrap();
        assert_eq!(bytes(&server, &name("/")).await[5], 0);
    }
}

#[tokio::test]
async fn too_large_entry_is_not_sent_and_removes_the_older_one() {
    let server = server().await;
    let mut settings = settings(&server);
    settings.sealing.object_max = 1_000;
    let fixture = Fixture::new(settings).await;
    fixture.put(&key("/"), &noise(1_000)).await.unwrap();
    let error = fixture.put(&key("/"), &noise(1_001)).await.unwrap_err();
    assert!(matches!(error, TierError::TooLarge));
    assert_eq!(fixture.get(&key("/")).await.unwrap(), None);
    fixture.until(|tier| tier.endpoints()[0].pending == 0).await;
    assert_eq!(number(&server, &["EXISTS", &name("/")]).await, 0);
    let counts = fixture.tier.counts();
    assert_eq!((counts.too_large, counts.stored), (1, 1));
}
