//! Leases: one instance loads a key, the others are woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Meta, Purge, Reach, Vary, key as keys};
use forebay_engine::lease::{Claim, Lease, LeaseToken, Permit, Release, Woken};
use forebay_engine::{Bus, Credentials, LeasedWrite, Leases, Stored, Tier, TierError, WriteMode};
use forebay_redis::{Settings, SharingSettings};
use forebay_testkit::faults::{FaultProxy, Faults, Flow};
use forebay_testkit::redis::{RedisLaunch, RedisServer, Reply};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::time::{Instant, timeout};

use crate::fixture::{
    Fixture, PATIENT, calls, key, meta, name, now, number, patient, server, settings, until_later,
    wait_number,
};

/// Maximum wait for an expected event.
const SOON: Duration = Duration::from_secs(10);

const MINUTE: Duration = Duration::from_secs(60);

pub(crate) fn sharing(server: &RedisServer) -> Settings {
    Settings { sharing: Some(SharingSettings::default()), ..settings(server) }
}

pub(crate) async fn instances<const N: usize>(server: &RedisServer) -> [Fixture; N] {
    let mut all = Vec::new();
    for _ in 0..N {
        all.push(Fixture::clustered(sharing(server)).await);
    }
    all.try_into().unwrap_or_else(|_| unreachable!("as many as were made"))
}

pub(crate) fn claim(key: &Key) -> Claim<'_> {
    let key = key.borrowed();
    Claim { primary: key, flight_key: key, entry: key, seen: None, is_look: false, mark: None }
}

pub(crate) async fn acquire(fixture: &Fixture, key: &Key) -> Lease {
    fixture.tier.acquire(claim(key)).await.unwrap()
}

pub(crate) async fn granted(fixture: &Fixture, key: &Key) -> Arc<dyn Permit> {
    match acquire(fixture, key).await {
        Lease::Granted(permit) => permit,
        Lease::Filled(_) => panic!("unexpected entry"),
        Lease::Held(..) => panic!("another instance holds the lease"),
    }
}

async fn elsewhere(fixture: &Fixture, key: &Key) -> BoxFuture<'static, Woken> {
    match acquire(fixture, key).await {
        Lease::Held(waiting, _) => waiting,
        Lease::Filled(_) => panic!("unexpected entry"),
        Lease::Granted(_) => panic!("expected the lease"),
    }
}

fn write_of(key: &Key, token: LeaseToken) -> LeasedWrite<'_> {
    LeasedWrite { primary: key.borrowed(), flight_key: key.borrowed(), token, is_last: true }
}

pub(crate) async fn fill(
    fixture: &Fixture,
    key: &Key,
    permit: &Arc<dyn Permit>,
    body: &[u8],
) -> Result<(), TierError> {
    filled(fixture, key, permit, &meta(MINUTE), body).await
}

pub(crate) async fn fill_as(
    fixture: &Fixture,
    key: &Key,
    permit: &Arc<dyn Permit>,
    meta: &Meta,
) -> Result<(), TierError> {
    filled(fixture, key, permit, meta, b"body").await
}

async fn filled(
    fixture: &Fixture,
    key: &Key,
    permit: &Arc<dyn Permit>,
    meta: &Meta,
    body: &[u8],
) -> Result<(), TierError> {
    let head = Bytes::from_static(b"head");
    let writing = write_of(key, permit.token());
    let mut writer =
        fixture.tier.begin(key.borrowed(), meta, &head, WriteMode::Leased(writing)).await?;
    writer.write(Bytes::copy_from_slice(body)).await?;
    writer.commit().await
}

pub(crate) async fn granted_having_seen(
    fixture: &Fixture,
    key: &Key,
    seen: Option<u64>,
) -> Arc<dyn Permit> {
    match fixture.tier.acquire(Claim { seen, ..claim(key) }).await.unwrap() {
        Lease::Granted(permit) => permit,
        _ => panic!("expected the lease"),
    }
}

pub(crate) async fn elsewhere_having_seen(
    fixture: &Fixture,
    key: &Key,
    seen: Option<u64>,
) -> BoxFuture<'static, Woken> {
    match fixture.tier.acquire(Claim { seen, ..claim(key) }).await.unwrap() {
        Lease::Held(waiting, _) => waiting,
        _ => panic!("another instance holds the lease"),
    }
}

async fn body_of(stored: Stored) -> Vec<u8> {
    let pieces: Vec<Bytes> = stored.body.map(Result::unwrap).collect().await;
    pieces.concat()
}

async fn within<T>(waiting: impl Future<Output = T>) -> T {
    timeout(SOON, waiting).await.expect("the waiter is not woken")
}

#[tokio::test]
async fn one_loads_and_the_others_are_woken_with_the_value() {
    let server = server().await;
    let [one, two, three] = instances(&server).await;
    let key = key("/");
    let permit = granted(&one, &key).await;
    let waiting = [elsewhere(&two, &key).await, elsewhere(&three, &key).await];
    fill(&one, &key, &permit, b"body").await.unwrap();
    for waiting in waiting {
        let Woken::Filled(Some(stored)) = within(waiting).await else { panic!("not filled") };
        assert_eq!(body_of(*stored).await, b"body");
    }
    assert!(!permit.is_held(), "it has ended with the fill");
    drop(permit);
    let Lease::Filled(stored) = acquire(&two, &key).await else { panic!("it stands there") };
    let seen = Some(stored.stamp);
    // A caller for which the entry is unusable may load.
    let again = two.tier.acquire(Claim { seen, ..claim(&key) }).await.unwrap();
    assert!(matches!(again, Lease::Granted(_)));
}

/// Age of the entry with which a waiter was woken.
async fn age_of(waiting: BoxFuture<'static, Woken>) -> Duration {
    let Woken::Filled(Some(stored)) = within(waiting).await else { panic!("not filled") };
    stored.meta.age(now())
}

#[tokio::test]
async fn the_time_of_a_wait_is_no_age_and_that_of_a_delayed_message_is() {
    const WAIT: Duration = Duration::from_millis(1_200);
    let server = server().await;
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let [leader] = instances(&server).await;
    let far = patient(format!("redis://{}", proxy.address()));
    let shared = Some(SharingSettings::default());
    let follower = Fixture::clustered(Settings { sharing: shared, ..Settings::new(far) }).await;
    let prompt = key("/prompt");
    let permit = granted(&leader, &prompt).await;
    let waiting = elsewhere(&follower, &prompt).await;
    until_later(WAIT).await;
    let before = Instant::now();
    fill(&leader, &prompt, &permit, b"body").await.unwrap();
    let age = age_of(waiting).await;
    assert!(age < before.elapsed() + WAIT / 2, "{age:?}");

    let late = key("/late");
    let permit = granted(&leader, &late).await;
    let waiting = elsewhere(&follower, &late).await;
    proxy.change(|faults| faults.to_client.flow = Flow::Frozen);
    fill(&leader, &late, &permit, b"body").await.unwrap();
    until_later(WAIT).await;
    proxy.set(Faults::default());
    let age = age_of(waiting).await;
    assert!(age >= WAIT, "{age:?}");
}

#[tokio::test]
async fn a_follower_needs_two_commands_and_never_polls() {
    let server = server().await;
    let [leader, follower] = instances(&server).await;
    // Incompressible bytes.
    let next = |it: &u64| Some(it ^ (it << 13) ^ ((it ^ (it << 13)) >> 7));
    let large: Vec<u8> = std::iter::successors(Some(88_172_645_463_325_252_u64), next)
        .take(6_000)
        .map(|it| it.to_le_bytes()[3])
        .collect();
    for (path, body, most) in [("/small", &b"body"[..], 2), ("/large", &large, 3)] {
        let key = key(path);
        let permit = granted(&leader, &key).await;
        let before = calls(&server).await;
        assert!(follower.get(&key).await.unwrap().is_none());
        let waiting = elsewhere(&follower, &key).await;
        // Longer than the renewal interval.
        until_later(Duration::from_millis(700)).await;
        fill(&leader, &key, &permit, body).await.unwrap();
        match within(waiting).await {
            Woken::Filled(Some(stored)) => assert_eq!(body_of(*stored).await, body),
            Woken::Filled(None) => assert_eq!(follower.body(&key).await.as_deref(), Some(body)),
            _ => panic!("not filled"),
        }
        // Each lookup and lease request of a follower reads the value once. Renewals and bus checks
        // do not.
        let waited = calls(&server).await.since(&before);
        assert_eq!((waited.of("sadd"), waited.of("getrange")), (1, most), "{waited:?}");
    }
}

#[tokio::test]
async fn concurrent_requests_grant_one_lease_per_key() {
    let server = server().await;
    let fixtures: [Fixture; 8] = instances(&server).await;
    let granted = AtomicUsize::new(0);
    for some in (0..500).collect::<Vec<_>>().chunks(50) {
        let (fixtures, granted) = (&fixtures, &granted);
        let ask = |number: usize| async move {
            let key = key(&format!("/{number}"));
            let asked = join_all(fixtures.iter().map(|fixture| acquire(fixture, &key))).await;
            let permits: Vec<_> =
                asked.into_iter().filter(|lease| matches!(lease, Lease::Granted(_))).collect();
            assert_eq!(permits.len(), 1, "{number}");
            granted.fetch_add(1, Ordering::SeqCst);
        };
        join_all(some.iter().map(|number| ask(*number))).await;
    }
    assert_eq!(granted.load(Ordering::SeqCst), 500);
}

#[tokio::test]
async fn outcome_of_a_load_reaches_waiters() {
    let server = server().await;
    let [leader, follower] = instances(&server).await;
    let key = key("/");
    let pass =
        Release::Pass { remember: Duration::from_secs(7), credentials: Credentials::Presented };
    for outcome in [pass, Release::Failed, Release::Abandoned] {
        let permit = granted(&leader, &key).await;
        let waiting = elsewhere(&follower, &key).await;
        permit.release(outcome.clone()).await;
        let Woken::Released(told) = within(waiting).await else { panic!("not released") };
        assert_eq!(told, outcome);
        assert!(!permit.is_held());
        granted(&follower, &key).await.release(Release::Abandoned).await;
    }
    // Dropping the permit abandons the lease.
    let permit = granted(&leader, &key).await;
    let waiting = elsewhere(&follower, &key).await;
    drop(permit);
    let woken = within(waiting).await;
    assert!(matches!(woken, Woken::Released(Release::Abandoned)));
    assert_eq!(number(&server, &["DBSIZE"]).await - shared_names(&server).await, 0);
}

/// Returns the number of names that belong to no single key.
async fn shared_names(server: &RedisServer) -> i64 {
    match server.ask(&["KEYS", "forebay:{bus}*"]).await.unwrap() {
        Reply::All(all) => i64::try_from(all.len()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn lease_moves_to_a_variant_atomically() {
    let server = server().await;
    let [leader, same, other] = instances(&server).await;
    let primary = key("/");
    let vary = Vary::new(["accept"]).unwrap();
    let speaking = |value: &'static [u8]| {
        let fields = std::iter::once(("accept", Some(value.into())));
        keys::variant(primary.borrowed(), 0, fields).borrowed().to_key()
    };
    let (german, english) = (speaking(b"de"), speaking(b"en"));
    let permit = granted(&leader, &primary).await;
    let waiting = elsewhere(&same, &primary).await;
    assert!(permit.narrow(german.borrowed(), &vary).await);
    let Woken::Released(told) = within(waiting).await else { panic!("not told") };
    assert_eq!(told, Release::Vary(vary.clone()));
    assert!(permit.is_held());
    let variant = |flight_key| Claim { flight_key, ..claim(&primary) };
    let asked = same.tier.acquire(variant(german.borrowed())).await.unwrap();
    let Lease::Held(waiting, _) = asked else { panic!("the leader has it") };
    let asked = other.tier.acquire(variant(english.borrowed())).await.unwrap();
    let Lease::Granted(english_permit) = asked else { panic!("expected the lease of the variant") };
    // A lease cannot be moved to a variant that another instance loads.
    let primary_permit = granted(&same, &primary).await;
    assert!(!primary_permit.narrow(english.borrowed(), &vary).await);
    assert!(english_permit.is_held() && !primary_permit.is_held());
    fill(&leader, &german, &permit, b"de").await.unwrap();
    assert!(matches!(within(waiting).await, Woken::Filled(_)));
    assert_eq!(same.body(&german).await.as_deref(), Some(&b"de"[..]));
}

#[tokio::test]
async fn a_removal_withdraws_the_leases_of_all_variants() {
    let server = server().await;
    let [leader, remover] = instances(&server).await;
    let primary = key("/");
    let variant = keys::question(primary.borrowed(), b"variant").borrowed().to_key();
    let claim_by =
        |flight_key: KeyRef<'static>| Claim { flight_key, ..claim(Box::leak(Box::new(key("/")))) };
    let permit = granted(&leader, &primary).await;
    let asked =
        leader.tier.acquire(claim_by(Box::leak(Box::new(variant)).borrowed())).await.unwrap();
    let Lease::Granted(of_variant) = asked else { panic!("expected the lease of the variant") };
    remover.remove(&primary).await.unwrap();
    for permit in [permit, of_variant] {
        let refused = fill(&leader, &primary, &permit, b"old").await;
        assert!(matches!(refused, Err(TierError::Withdrawn)), "{refused:?}");
    }
    assert!(leader.get(&primary).await.unwrap().is_none());
    assert_eq!(leader.tier.counts().fills_refused, 2);
}

/// 1. A waits for B's lease and gives up. 2. B stores; the message to A is delayed. 3. The key is
/// purged. 4. C has the next lease. 5. A asks, and the message arrives before the reply. It carries
/// the purged value.
#[tokio::test]
async fn value_of_an_ended_lease_is_not_accepted() {
    let server = server().await;
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let [b, c] = instances(&server).await;
    let far = patient(format!("redis://{}", proxy.address()));
    let shared = Some(SharingSettings::default());
    let a = Fixture::clustered(Settings { sharing: shared, ..Settings::new(far) }).await;
    let key = key("/");
    let ended = granted(&b, &key).await;
    drop(elsewhere(&a, &key).await);
    proxy.change(|faults| faults.to_client.flow = Flow::Frozen);
    fill(&b, &key, &ended, b"purged").await.unwrap();
    b.remove(&key).await.unwrap();
    let next = granted(&c, &key).await;
    let asking = tokio::spawn({
        let (tier, key) = (a.tier.clone(), key.clone());
        async move { tier.acquire(claim(&key)).await }
    });
    // The request has arrived when A is registered as a waiter.
    let waiters = name("/").replacen(":d:", ":w:", 1);
    wait_number(&server, &["SCARD", &waiters], 1).await;
    proxy.set(Faults::default());
    let Ok(Lease::Held(waiting, _)) = asking.await.unwrap() else { panic!("it is held") };
    assert!(matches!(within(waiting).await, Woken::Again), "it was for those before");
    fill(&c, &key, &next, b"new").await.unwrap();
    assert_eq!(a.body(&key).await.as_deref(), Some(&b"new"[..]));
}

#[tokio::test]
async fn lease_is_renewed_and_ends_soon_after_its_holder() {
    let server = server().await;
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let through = patient(format!("redis://{}", proxy.address()));
    let settings = Settings { sharing: Some(SharingSettings::default()), ..Settings::new(through) };
    let holder = Fixture::clustered(settings).await;
    let [other] = instances(&server).await;
    let key = key("/");
    let permit = granted(&holder, &key).await;
    // The lease is renewed beyond its duration.
    let waiting = elsewhere(&other, &key).await;
    assert!(matches!(within(waiting).await, Woken::Again));
    assert!(permit.is_held());
    let waiting = elsewhere(&other, &key).await;
    // The holder is disconnected.
    let died = Instant::now();
    proxy.set(Faults::flow(Flow::BlackHole));
    assert!(matches!(within(waiting).await, Woken::Again));
    let mut next = acquire(&other, &key).await;
    while let Lease::Held(waiting, _) = next {
        within(waiting).await;
        next = acquire(&other, &key).await;
    }
    assert!(matches!(next, Lease::Granted(_)));
    let took = died.elapsed();
    assert!(took < Duration::from_millis(1_550) + PATIENT, "{took:?}");
    assert!(!permit.is_held(), "the holder knows it by its own clock");
    drop(fill(&holder, &key, &permit, b"late").await);
    proxy.set(Faults::default());
    assert!(other.get(&key).await.unwrap().is_none());
}

/// Otherwise the former holder would renew the lease of the next one, whose death would not be
/// noticed.
#[tokio::test]
async fn lost_lease_is_not_renewed_for_the_next_holder() {
    let server = server().await;
    let [one, two] = instances(&server).await;
    let key = key("/");
    let lost = granted(&one, &key).await;
    two.remove(&key).await.unwrap();
    let next = granted(&two, &key).await;
    one.until(|tier| tier.counts().leases_lost == 1).await;
    assert!(!lost.is_held() && next.is_held());
}

#[tokio::test]
async fn lost_lease_is_not_released_for_the_next_holder() {
    let server = server().await;
    let [one, two] = instances(&server).await;
    let key = key("/");
    let lost = granted(&one, &key).await;
    two.remove(&key).await.unwrap();
    let next = granted(&two, &key).await;
    lost.release(Release::Failed).await;
    fill(&two, &key, &next, b"new").await.unwrap();
    assert_eq!(one.body(&key).await.as_deref(), Some(&b"new"[..]));
}

/// Leases of variants may last longer, and with them the hash.
#[tokio::test]
async fn lease_ends_while_leases_of_variants_are_renewed() {
    let server = server().await;
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let [other] = instances(&server).await;
    let far = patient(format!("redis://{}", proxy.address()));
    let shared = Some(SharingSettings::default());
    let dead = Fixture::clustered(Settings { sharing: shared, ..Settings::new(far) }).await;
    let key = key("/");
    let _ended = granted(&dead, &key).await;
    proxy.set(Faults::flow(Flow::Frozen));
    let variant = keys::question(key.borrowed(), b"variant").borrowed().to_key();
    let of_variant = Claim { flight_key: variant.borrowed(), ..claim(&key) };
    let Lease::Granted(kept_up) = other.tier.acquire(of_variant).await.unwrap() else {
        panic!("expected the lease of the variant")
    };
    let waiting = elsewhere(&other, &key).await;
    assert!(matches!(within(waiting).await, Woken::Again));
    let again = acquire(&other, &key).await;
    assert!(matches!(again, Lease::Granted(_)), "it has ended");
    assert!(kept_up.is_held());
}

/// A waiter for a withdrawn lease asks again at once.
#[tokio::test]
async fn purge_wakes_waiters() {
    let server = server().await;
    let [leader, follower] = instances(&server).await;
    let key = key("/");
    let _withdrawn = granted(&leader, &key).await;
    let waiting = elsewhere(&follower, &key).await;
    leader.tier.publish(&Purge::Key(key), Reach::Hard).await.unwrap();
    assert!(matches!(within(waiting).await, Woken::Again));
    // It was woken, and did not wait for the end of the lease.
    let counts = follower.tier.counts();
    assert_eq!((counts.woken, counts.leases_outwaited), (1, 0));
}

#[tokio::test]
async fn lease_is_not_renewed_beyond_its_hard_limit() {
    let server = server().await;
    let short = SharingSettings {
        lease: Duration::from_millis(300),
        heartbeat: Duration::from_millis(100),
        hard_limit: Duration::from_millis(400),
        ..SharingSettings::default()
    };
    let holder = Fixture::clustered(Settings { sharing: Some(short), ..settings(&server) }).await;
    let [other] = instances(&server).await;
    let key = key("/");
    let permit = granted(&holder, &key).await;
    let mut next = acquire(&other, &key).await;
    while let Lease::Held(waiting, _) = next {
        within(waiting).await;
        next = acquire(&other, &key).await;
    }
    assert!(!permit.is_held());
    let refused = fill(&holder, &key, &permit, b"late").await;
    assert!(matches!(refused, Err(TierError::Withdrawn)), "{refused:?}");
}

#[tokio::test]
async fn store_without_a_lease_keeps_the_lease() {
    let server = server().await;
    let [leader, other] = instances(&server).await;
    let key = key("/");
    let permit = granted(&leader, &key).await;
    other.put(&key, b"without").await.unwrap();
    assert!(permit.is_held());
    fill(&leader, &key, &permit, b"with").await.unwrap();
    assert_eq!(other.body(&key).await.as_deref(), Some(&b"with"[..]));
}

#[tokio::test]
async fn scripts_that_a_server_has_forgotten_are_sent_again() {
    let server = server().await;
    let [one, other] = instances(&server).await;
    for number in 0..3 {
        let key = key(&format!("/{number}"));
        let permit = granted(&one, &key).await;
        server.ask(&["SCRIPT", "FLUSH"]).await.unwrap();
        let waiting = elsewhere(&other, &key).await;
        server.ask(&["SCRIPT", "FLUSH"]).await.unwrap();
        fill(&one, &key, &permit, b"body").await.unwrap();
        assert!(matches!(within(waiting).await, Woken::Filled(Some(_))));
    }
}

#[tokio::test]
async fn denied_scripts_suspend_leases() {
    let user = "user cache on >secret ~forebay:* &forebay:* +@all -@scripting";
    let server = RedisLaunch::new().config(user).start().await.unwrap();
    let url = format!("redis://cache:secret@{}", server.address());
    let settings =
        Settings { sharing: Some(SharingSettings::default()), ..Settings::new(patient(url)) };
    let fixture = Fixture::new(settings).await;
    for _ in 0..3 {
        assert!(fixture.tier.acquire(claim(&key("/"))).await.is_err());
    }
    assert!(fixture.tier.endpoints()[0].lease_error.as_ref().unwrap().contains(
        "Redis denies \
        access"
    ));
    let told = fixture.notices.all();
    let told = told.iter().filter(|one| one.contains("each instance loads for itself")).count();
    assert_eq!(told, 1, "{:#?}", fixture.notices.all());
    assert!(fixture.get(&key("/")).await.unwrap().is_none(), "it is read all the same");
}

#[tokio::test]
async fn a_user_needs_the_rights_that_the_documents_name() {
    let rights = "+@read +@write +@connection +@scripting +@pubsub +time +info";
    let rows = [
        ("&forebay:i:*", rights.to_owned(), true, true),
        ("&forebay:i:*", rights.replace(" +info", ""), true, true),
        ("&forebay:i:*", rights.replace(" +@pubsub", ""), true, false),
        ("resetchannels", rights.to_owned(), true, false),
        ("&forebay:i:*", rights.replace(" +time", ""), false, true),
    ];
    for (channels, rights, shares, hears) in rows {
        let user = format!("user cache on >secret ~forebay:* {channels} {rights}");
        let server = RedisLaunch::new().config(user).start().await.unwrap();
        let url = format!("redis://cache:secret@{}", server.address());
        let sharing = Some(SharingSettings::default());
        let fixture = Fixture::new(Settings { sharing, ..Settings::new(patient(url)) }).await;
        if !shares {
            fixture.until(|tier| tier.endpoints()[0].bus_error.is_some()).await;
            assert!(fixture.tier.acquire(claim(&key("/"))).await.is_err());
            let lease_error = fixture.tier.endpoints()[0].lease_error.clone().unwrap();
            assert!(lease_error.contains("Redis denies access"), "{lease_error}");
            continue;
        }
        fixture.until(|tier| tier.sharing().unwrap().bus_connected).await;
        let permit = granted(&fixture, &key("/")).await;
        assert_eq!(fixture.tier.endpoints()[0].receives_wakeups, hears, "{channels} {rights}");
        fill(&fixture, &key("/"), &permit, b"body").await.unwrap();
        assert_eq!(fixture.body(&key("/")).await.as_deref(), Some(&b"body"[..]));
    }
}

#[tokio::test]
async fn a_replica_grants_no_leases() {
    let master = server().await;
    let replica = RedisLaunch::new().replica_of(&master).start().await.unwrap();
    let fixture = Fixture::new(sharing(&replica)).await;
    assert!(fixture.tier.acquire(claim(&key("/"))).await.is_err());
    let lease_error = fixture.tier.endpoints()[0].lease_error.clone().unwrap();
    assert!(lease_error.contains("Redis refuses writes"), "{lease_error}");
}

#[tokio::test]
async fn foreign_data_is_reported_and_left_unchanged() {
    let server = server().await;
    let [fixture] = instances(&server).await;
    let leases = |path: &str| name(path).replace(":d:", ":l:");
    let long = "9".repeat(1_000);
    let rows: [&[&str]; 5] = [
        &["SET", &leases("/0"), "garbage"],
        &["HSET", &leases("/1"), "", "garbage"],
        &["HSET", &leases("/2"), "", "0123456789abcdef99999999999999 1"],
        &["HSET", &leases("/3"), "", &long],
        &["LPUSH", &leases("/4"), "garbage"],
    ];
    for (number, row) in rows.into_iter().enumerate() {
        server.ask(row).await.unwrap();
        let key = key(&format!("/{number}"));
        until_later(Duration::from_millis(1_050)).await;
        let asked = fixture.tier.acquire(claim(&key)).await;
        assert!(asked.is_err(), "{row:?}");
        assert_eq!(fixture.tier.counts().leases_failed, number as u64 + 1);
        let lease_error = fixture.tier.endpoints()[0].lease_error.clone().unwrap();
        assert!(lease_error.contains("another program"), "{lease_error}");
    }
    // A granted lease on another key ends the suspension; a removal deletes the other program's
    // data.
    until_later(Duration::from_millis(1_050)).await;
    drop(granted(&fixture, &key("/sound")).await);
    assert_eq!(fixture.tier.endpoints()[0].lease_error, None);
    assert_eq!(fixture.notices.all().iter().filter(|one| one.contains("granted again")).count(), 1);
    fixture.remove(&key("/0")).await.unwrap();
    drop(granted(&fixture, &key("/0")).await);
}

#[tokio::test]
async fn a_lease_that_was_evicted_refuses_the_fill() {
    let server = server().await;
    let [leader] = instances(&server).await;
    let key = key("/");
    let permit = granted(&leader, &key).await;
    let leases = name("/").replace(":d:", ":l:");
    assert_eq!(number(&server, &["DEL", &leases]).await, 1);
    let refused = fill(&leader, &key, &permit, b"body").await;
    assert!(matches!(refused, Err(TierError::Withdrawn)), "{refused:?}");
    assert_eq!(leader.tier.endpoints()[0].pending, 0);
}

#[tokio::test]
async fn eviction_of_leases_is_reported() {
    let launch = RedisLaunch::new().config("maxmemory-policy allkeys-random");
    let server = launch.start().await.unwrap();
    let [one, other] = instances(&server).await;
    for (number, is_filled) in [true, false].into_iter().enumerate() {
        let key = key(&format!("/{number}"));
        let permit = granted(&one, &key).await;
        let leases = format!("forebay:l:{{site|/{number}|}}");
        let junk = "x".repeat(10_000);
        server.ask(&["CONFIG", "SET", "maxmemory", "3mb"]).await.unwrap();
        let mut written = 0;
        while number_of(&server, &leases).await > 0 {
            server.ask(&["SET", &format!("junk:{written}"), &junk]).await.unwrap();
            written += 1;
            assert!(written < 100_000, "it is never dropped");
        }
        server.ask(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
        server.ask(&["FLUSHALL"]).await.unwrap();
        if is_filled {
            let refused = fill(&one, &key, &permit, b"body").await;
            assert!(matches!(refused, Err(TierError::Withdrawn)), "{refused:?}");
        }
        // Otherwise a renewal detects the loss.
        one.until(|tier| tier.endpoints()[0].lease_error.is_some()).await;
        let lease_error = one.tier.endpoints()[0].lease_error.clone().unwrap();
        assert!(lease_error.contains("Redis evicted leases"), "{lease_error}");
        one.notices
            .wait(
                "leases are suspended, so each instance loads for itself: Redis evicted \
                          leases",
                number + 1,
            )
            .await;
        assert!(one.tier.acquire(claim(&key)).await.is_err(), "it loads for itself for a while");
        assert_eq!(other.tier.endpoints()[0].lease_error, None, "nothing happened to it");
        if is_filled {
            let began = Instant::now();
            while one.tier.acquire(claim(&key)).await.is_err() {
                assert!(began.elapsed() < 2 * SOON, "it is not asked again");
                tokio::task::yield_now().await;
            }
            one.notices.wait("leases are granted again", 1).await;
        }
    }
}

async fn number_of(server: &RedisServer, name: &str) -> i64 {
    number(server, &["EXISTS", name]).await
}

#[tokio::test]
async fn lease_withdrawn_by_a_purge_is_no_eviction() {
    let server = server().await;
    let [one, other] = instances(&server).await;
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]).await.unwrap();
    server.ask(&["CONFIG", "SET", "maxmemory", "3mb"]).await.unwrap();
    let junk = "x".repeat(10_000);
    for number in 0..400 {
        server.ask(&["SET", &format!("junk:{number}"), &junk]).await.unwrap();
    }
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    let key = key("/");
    let permit = granted(&one, &key).await;
    let what = Purge::Key(key.clone());
    other.tier.publish(&what, Reach::Hard).await.unwrap();
    one.until(|tier| tier.counts().purges_received == 1).await;
    let refused = fill(&one, &key, &permit, b"body").await;
    assert!(matches!(refused, Err(TierError::Withdrawn)), "{refused:?}");
    assert_eq!(one.tier.endpoints()[0].lease_error, None);
}
