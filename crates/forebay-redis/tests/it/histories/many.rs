//! Many entries: the cost of purging their common tag, and the memory after their expiry.

use std::time::Duration;

use forebay_core::{Lifetime, Purge, PurgeState, Reach, Stale, TagSet};
use forebay_engine::lease::Lease;
use forebay_engine::{Leases, TierError};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use tokio::time::Instant;

use crate::bus::{Instance, SOON, a_moment, tag, tagged};
use crate::fixture::{Fixture, calls, key, meta, number, server, until_later};
use crate::leases::{claim, fill_as};

/// Members of a tag; `FOREBAY_TEST_MEMBERS` overrides it.
const MEMBERS: u64 = 20_000;

/// Concurrent stores.
const AT_ONCE: usize = 128;

/// Purges of the tag.
const PURGES: usize = 21;

/// Maximum median duration of a purge.
const PURGE_MAX: Duration = Duration::from_millis(5);

/// Entries that are read back.
const LOOKS: u64 = 1_000;

fn member(number: u64) -> forebay_core::Key {
    key(&format!("/member/{number}"))
}

/// Stores an entry under a lease.
async fn store(fixture: &Fixture, number: u64) -> Result<(), TierError> {
    let (key, mut meta) = (member(number), tagged(&["red"]));
    meta.set_lifetime(Lifetime::fresh(Duration::from_secs(3_600)));
    let Lease::Granted(permit) = fixture.tier.acquire(claim(&key)).await? else {
        return Err(TierError::failed("expected the lease"));
    };
    fill_as(fixture, &key, &permit, &meta).await
}

#[tokio::test]
async fn large_tag_is_purged_as_fast_as_a_small_one() {
    let server = server().await;
    let [one, other] = Instance::pair(&server).await;
    let members = super::number("FOREBAY_TEST_MEMBERS", MEMBERS);
    a_moment().await;
    let fixture = &one.fixture;
    let storing = stream::iter(0..members).map(|number| store(fixture, number));
    let failed = storing.buffer_unordered(AT_ONCE).filter(|stored| {
        let is_err = stored.is_err();
        async move { is_err }
    });
    assert_eq!(failed.count().await, 0);
    assert_eq!(fixture.tier.counts().stored, members);
    let some = || (0..members).step_by(usize::try_from(members / LOOKS).unwrap().max(1));
    for one in some() {
        assert_eq!(other.standing(&member(one)).await, Some(PurgeState::Valid));
    }
    let before = calls(&server).await;
    let mut took = Vec::new();
    for _ in 0..PURGES {
        let began = Instant::now();
        one.publish(&tag("red"), Reach::Hard).await;
        took.push(began.elapsed());
    }
    let cost = calls(&server).await.since(&before);
    let first = took[0];
    took.sort_unstable();
    let usual = took[PURGES / 2];
    println!(
        "{members} members: the first purge of their tag took {first:?}, a usual one {usual:?}"
    );
    assert!(usual < PURGE_MAX, "{took:?}");
    // One script per purge, with its commands.
    let purges = PURGES as u64;
    assert_eq!(["xadd", "set", "get", "del"].map(|it| cost.of(it)), [purges, purges, purges, 0]);
    other.received.wait(&crate::bus::purged(&Purge::Tag("red".into()), Reach::Hard)).await;
    for one in some() {
        assert_eq!(other.standing(&member(one)).await, Some(PurgeState::Removed));
    }
}

#[tokio::test]
async fn generations_expire_with_their_entries() {
    let server = server().await;
    let [one, _other] = Instance::pair(&server).await;
    let writes: usize =
        std::env::var("FOREBAY_TEST_WRITES").map_or(5_000, |it| it.parse().unwrap());
    let short = |number: usize| {
        let name = format!("tag-{}", number / 2);
        let mut meta =
            meta(Duration::from_millis(if number.is_multiple_of(10) { 600_000 } else { 300 }));
        meta.set_tags(TagSet::new([&*name]));
        // The TTL is the fresh lifetime.
        meta.set_lifetime(Lifetime { stale: Stale::Forbidden, ..meta.lifetime() });
        let fixture = &one.fixture;
        async move { fixture.put_as(&key(&format!("/{number}")), &meta, b"body").await }
    };
    a_moment().await;
    for some in (0..writes).collect::<Vec<_>>().chunks(100) {
        for put in join_all(some.iter().map(|number| short(*number))).await {
            put.unwrap();
        }
    }
    let live = i64::try_from(writes / 10).unwrap();
    let stored = one.fixture.tier.counts().stored;
    assert!(stored * 10 >= writes as u64 * 9, "{stored}: some came too late");
    // One name per entry and one per tag.
    let most = 2 * live + 2 * live / 100 + 8;
    let mut left = i64::MAX;
    let began = Instant::now();
    while left > most && began.elapsed() < SOON {
        until_later(Duration::from_millis(100)).await;
        // Expired keys are deleted lazily.
        left = number(&server, &["EVAL", "return #redis.call('KEYS', '*')", "0"]).await;
    }
    assert!(left <= most, "{left} names for {live} entries");
    assert!(left > live, "{left}");
    println!("{writes} writes, {left} names for {live} entries and as many tags");
}
