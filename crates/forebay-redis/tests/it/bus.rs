//! Purges reach every instance, and an instance that may have missed one detects it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, Meta, Purge, PurgeState, Reach, TagSet, Vary};
use forebay_engine::bus::{Listener, Notice, Published};
use forebay_engine::{Bus, Newer, Stored, Tier, TierError};
use forebay_redis::{EndpointSettings, Servers, Settings, SharingSettings};
use forebay_testkit::faults::{FaultProxy, Faults, Flow};
use forebay_testkit::redis::{RedisLaunch, RedisServer, start_cluster, start_sentinel};
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::fixture::{
    Fixture, PATIENT, bytes, calls, key, meta, name, number, patient, server, until_later,
    wait_number,
};
use crate::leases::{fill, granted, instances, sharing};

pub(crate) const SOON: Duration = Duration::from_secs(10);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const BUS: &str = "forebay:{bus}";

/// Notices that an instance received.
#[derive(Default)]
pub(crate) struct Received(watch::Sender<Vec<Notice>>);

impl Listener for Received {
    fn hear(&self, notice: Notice) {
        // Progress reports are ignored.
        if !matches!(notice, Notice::Reached(_)) {
            self.0.send_modify(|all| all.push(notice));
        }
    }
}

impl Received {
    pub(crate) async fn until(&self, is_so: impl Fn(&[Notice]) -> bool) {
        let mut all = self.0.subscribe();
        let waited = timeout(SOON, all.wait_for(|all| is_so(all))).await;
        assert!(waited.is_ok(), "{:?}", self.0.borrow());
    }

    pub(crate) async fn wait(&self, notice: &Notice) {
        self.until(|all| all.contains(notice)).await;
    }

    pub(crate) fn forget(&self) {
        self.0.send_replace(Vec::new());
    }

    pub(crate) fn count(&self, notice: &Notice) -> usize {
        self.0.borrow().iter().filter(|one| *one == notice).count()
    }
}

/// An instance that receives purges.
pub(crate) struct Instance {
    pub(crate) fixture: Fixture,
    pub(crate) received: Arc<Received>,
}

impl Instance {
    pub(crate) async fn new(settings: Settings) -> Self {
        let fixture = Fixture::clustered(settings).await;
        let received = Arc::<Received>::default();
        fixture.tier.listen(received.clone());
        received.wait(&Notice::Connected).await;
        received.forget();
        Self { fixture, received }
    }

    pub(crate) async fn pair(server: &RedisServer) -> [Self; 2] {
        [Self::new(sharing(server)).await, Self::new(sharing(server)).await]
    }

    pub(crate) async fn publish(&self, what: &Purge, reach: Reach) -> Published {
        self.fixture.tier.publish(what, reach).await.unwrap()
    }

    pub(crate) async fn open(&self, key: &Key) -> Option<Stored> {
        self.fixture.tier.open(key.borrowed()).await.unwrap()
    }

    /// Returns the purge state of an entry; `None` if there is none.
    pub(crate) async fn standing(&self, key: &Key) -> Option<PurgeState> {
        let stored = self.open(key).await?;
        let softened = if stored.softened { PurgeState::SoftPurged } else { PurgeState::Valid };
        Some(stored.vetted.expect("the instance receives purges").max(softened))
    }

    pub(crate) async fn put(&self, key: &Key, tags: &[&str]) {
        let before = self.fixture.tier.counts().stored;
        self.fixture.put_as(key, &tagged(tags), b"body").await.unwrap();
        assert_eq!(self.fixture.tier.counts().stored, before + 1, "it was refused");
    }
}

pub(crate) fn tagged(tags: &[&str]) -> Meta {
    let mut meta = meta(MINUTE);
    meta.set_tags(TagSet::new(tags.iter().copied()));
    // The load started before any purge of the test.
    meta
}

pub(crate) fn tag(name: &str) -> Purge {
    Purge::Tag(name.into())
}

pub(crate) fn purged(what: &Purge, reach: Reach) -> Notice {
    Notice::Purged { what: what.clone(), reach }
}

/// Waits until the load of an entry starts later than everything received before.
pub(crate) async fn a_moment() {
    until_later(Duration::from_millis(60)).await;
}

#[tokio::test]
async fn a_purge_reaches_what_it_names_on_every_instance() {
    let server = server().await;
    let [one, other] = Instance::pair(&server).await;
    let prefix = Purge::Prefix { site: "site".into(), prefix: "/a".into() };
    let rows = [
        (tag("red"), [true, false, true]),
        (prefix, [true, true, false]),
        (Purge::Site("site".into()), [true, true, true]),
        (Purge::Site("elsewhere".into()), [false, false, false]),
        (Purge::All, [true, true, true]),
    ];
    let entries: [(&str, &[&str]); 3] =
        [("/a/1", &["red", "blue"]), ("/a/2", &["blue"]), ("/b", &["red"])];
    for reach in [Reach::Soft, Reach::Hard] {
        for (what, reached) in &rows {
            a_moment().await;
            for (path, tags) in entries {
                one.put(&key(path), tags).await;
                assert_eq!(other.standing(&key(path)).await, Some(PurgeState::Valid));
            }
            let published = one.publish(what, reach).await;
            assert_eq!(published.instances, 2);
            let worst =
                if reach == Reach::Soft { PurgeState::SoftPurged } else { PurgeState::Removed };
            for ((path, _), reached) in entries.iter().zip(reached) {
                let expected = if *reached { worst } else { PurgeState::Valid };
                assert_eq!(one.standing(&key(path)).await, Some(expected), "{what:?} {path}");
            }
            other.received.wait(&purged(what, reach)).await;
            for ((path, _), reached) in entries.iter().zip(reached) {
                let expected = if *reached { worst } else { PurgeState::Valid };
                assert_eq!(other.standing(&key(path)).await, Some(expected), "{what:?} {path}");
            }
        }
    }
    assert_eq!(one.received.0.borrow().len(), 0, "its own purges are not repeated to it");
}

#[tokio::test]
async fn a_purge_of_a_key_removes_it_and_withdraws_its_loads() {
    let server = server().await;
    let [one, other] = Instance::pair(&server).await;
    let key = key("/");
    a_moment().await;
    one.put(&key, &[]).await;
    let what = Purge::Key(key.clone());
    assert!(other.publish(&what, Reach::Hard).await.found);
    one.received.wait(&purged(&what, Reach::Hard)).await;
    assert!(one.open(&key).await.is_none());
    assert!(!other.publish(&what, Reach::Soft).await.found);
    let permit = granted(&one.fixture, &key).await;
    other.publish(&what, Reach::Hard).await;
    let refused = fill(&one.fixture, &key, &permit, b"old").await;
    assert!(matches!(refused, Err(TierError::Withdrawn)), "{refused:?}");
}

#[tokio::test]
async fn a_soft_purge_of_a_key_makes_it_and_its_variants_stale_until_they_are_stored_again() {
    let server = server().await;
    let [one, other] = Instance::pair(&server).await;
    let (plain, family) = (key("/plain"), key("/family"));
    let variants = ["de", "en"].map(|language| {
        let field = std::iter::once(("accept-language", Some(language.as_bytes().into())));
        forebay_core::key::variant(family.borrowed(), 7, field).borrowed().to_key()
    });
    let put = async |key: &Key| {
        let mut varying = meta(MINUTE);
        varying.set_vary(Vary::new(["accept-language"]));
        one.fixture.put_as(key, &varying, b"body").await.unwrap();
    };
    a_moment().await;
    one.put(&plain, &[]).await;
    for variant in &variants {
        put(&family).await;
        put(variant).await;
    }
    let token = async |key: &Key| other.open(key).await.unwrap().family_token;
    let [de, en] = &variants;
    let tokens = async || [token(&family).await, token(de).await, token(en).await];
    let [first, ..] = tokens().await;
    assert_eq!((first != 0, tokens().await), (true, [first; 3]));
    assert!(!other.open(&plain).await.unwrap().softened);
    for key in [&plain, &family] {
        assert!(other.publish(&Purge::Key(key.clone()), Reach::Soft).await.found);
        one.received.wait(&purged(&Purge::Key(key.clone()), Reach::Soft)).await;
    }
    assert!(one.open(&plain).await.unwrap().softened);
    let [second, of_de, of_en] = tokens().await;
    assert!(second != first && [of_de, of_en] == [first; 2], "{first} {second} {of_de} {of_en}");
    a_moment().await;
    // One variant is loaded again; the other one stays stale.
    one.put(&plain, &[]).await;
    put(&family).await;
    put(en).await;
    assert!(!other.open(&plain).await.unwrap().softened);
    assert_eq!(tokens().await, [second, first, second]);
    // The record of the family is lost: variants that outlived it are stale.
    server.ask(&["UNLINK", &name("/family")]).await.unwrap();
    put(&family).await;
    let [third, of_de, of_en] = tokens().await;
    assert!(third != 0 && third != second, "{second} {third}");
    assert_eq!([of_de, of_en], [first, second]);
}

#[tokio::test]
async fn new_version_purges_unless_it_is_known() {
    let server = server().await;
    let [one, other] = Instance::pair(&server).await;
    let [stored, loading] = ["/stored", "/loading"].map(key);
    a_moment().await;
    one.put(&stored, &[]).await;
    let found = async |key, version| {
        let newer = Newer { version, keep: MINUTE };
        other.fixture.tier.publish_version(key, newer).await.unwrap().map(|told| told.found)
    };
    assert_eq!(found(&stored, 7).await, Some(true));
    assert!(one.open(&stored).await.is_none());
    let permit = granted(&one.fixture, &stored).await;
    assert_eq!([found(&stored, 7).await, found(&stored, 6).await], [None, None]);
    fill(&one.fixture, &stored, &permit, b"new").await.expect("its right still stands");
    let permit = granted(&one.fixture, &loading).await;
    assert_eq!(found(&loading, 1).await, Some(false));
    let refused = fill(&one.fixture, &loading, &permit, b"old").await;
    assert!(matches!(refused, Err(TierError::Withdrawn)), "{refused:?}");
}

#[tokio::test]
async fn entry_whose_load_started_before_a_purge_is_not_stored() {
    let server = server().await;
    let [one, other] = Instance::pair(&server).await;
    a_moment().await;
    one.put(&key("/warm"), &["red", "blue"]).await;
    for (number, what) in
        [tag("red"), Purge::Site("site".into()), Purge::All, tag("never seen")].iter().enumerate()
    {
        let tags = ["red", "never seen"];
        let unleased = key(&format!("/unleased/{number}"));
        let meta = tagged(&tags);
        let mut writer = one.fixture.begin(&unleased, &meta).await.unwrap();
        let leased = key(&format!("/leased/{number}"));
        let permit = granted(&one.fixture, &leased).await;
        writer.write(Bytes::from_static(b"old")).await.unwrap();
        other.publish(what, Reach::Hard).await;
        let before = one.fixture.tier.counts();
        writer.commit().await.unwrap();
        let refused = crate::leases::fill_as(&one.fixture, &leased, &permit, &meta).await;
        assert!(matches!(refused, Err(TierError::Withdrawn)), "{what:?} {refused:?}");
        assert_eq!(one.fixture.tier.counts().fills_refused, before.fills_refused + 2, "{what:?}");
        for key in [unleased, leased] {
            assert!(other.open(&key).await.is_none(), "{what:?}");
        }
        a_moment().await;
    }
}

/// Removed bus entries may have been purges of the entry to be stored.
#[tokio::test]
async fn entry_whose_load_started_before_trimmed_purges_is_not_stored() {
    let server = server().await;
    let [one, other] = Instance::pair(&server).await;
    a_moment().await;
    for (path, is_forgotten) in [("/remembered", false), ("/forgotten", true)] {
        let key = key(path);
        let permit = granted(&one.fixture, &key).await;
        for tag_name in ["red", "blue"] {
            other.publish(&tag(tag_name), Reach::Hard).await;
        }
        if is_forgotten {
            server.ask(&["XTRIM", BUS, "MAXLEN", "1"]).await.unwrap();
        }
        let filled = crate::leases::fill_as(&one.fixture, &key, &permit, &tagged(&["red"])).await;
        assert!(matches!(filled, Err(TierError::Withdrawn)), "{path}: {filled:?}");
        assert!(one.open(&key).await.is_none(), "{path}");
    }
}

/// Every instance carries out the request, and it is applied once.
#[tokio::test]
async fn request_of_another_program_is_applied_once() {
    let server = server().await;
    let [one, other] = Instance::pair(&server).await;
    a_moment().await;
    one.put(&key("/"), &["red"]).await;
    let before = calls(&server).await;
    server.ask(&["XADD", BUS, "*", "kind", "tag", "what", "red"]).await.unwrap();
    for instance in [&one, &other] {
        instance.received.wait(&purged(&tag("red"), Reach::Hard)).await;
    }
    let cost = calls(&server).await.since(&before);
    // The generation, and a note by each instance.
    assert_eq!(cost.of("set"), 1 + 2, "{cost:?}");
    assert_eq!(one.standing(&key("/")).await, Some(PurgeState::Removed));
}

#[tokio::test]
async fn entry_whose_load_started_after_an_own_purge_is_stored() {
    let server = server().await;
    let [one, other] = Instance::pair(&server).await;
    let key = key("/");
    for _ in 0..50 {
        one.publish(&tag("red"), Reach::Hard).await;
        let seen = one.open(&key).await.map(|stored| stored.stamp);
        let permit = crate::leases::granted_having_seen(&one.fixture, &key, seen).await;
        crate::leases::fill_as(&one.fixture, &key, &permit, &tagged(&["red"])).await.unwrap();
        assert_eq!(other.standing(&key).await, Some(PurgeState::Valid));
    }
}

#[tokio::test]
async fn missing_generation_purges_the_entry() {
    let server = server().await;
    let [one, other] = Instance::pair(&server).await;
    a_moment().await;
    one.put(&key("/"), &["red"]).await;
    number(&server, &["DEL", "forebay:{bus}:t:red"]).await;
    assert_eq!(other.standing(&key("/")).await, Some(PurgeState::Removed));
    server.ask(&["SET", "forebay:{bus}:t:red", "garbage"]).await.unwrap();
    assert_eq!(other.standing(&key("/")).await, Some(PurgeState::Removed));
    one.put(&key("/two"), &["blue"]).await;
    server.ask(&["LPUSH", "forebay:{bus}:t:green", "garbage"]).await.unwrap();
    one.put(&key("/three"), &["green", "blue"]).await;
    assert_eq!(other.standing(&key("/three")).await, Some(PurgeState::Valid));
}

#[tokio::test]
async fn site_generations_are_fetched_with_the_first_entry() {
    const AWAY: Duration = Duration::from_millis(800);
    let server = server().await;
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let through = patient(format!("redis://{}", proxy.address()));
    // Generations that the bus has not confirmed for this time would be fetched again.
    let shared =
        Some(SharingSettings { bus_silence_max: 10 * PATIENT, ..SharingSettings::default() });
    let settings = Settings { sharing: shared, ..Settings::new(through) };
    let [one, other] = [Instance::new(settings).await, Instance::new(sharing(&server)).await];
    a_moment().await;
    for name in ["/", "/two", "/tagged"] {
        other.put(&key(name), if name == "/tagged" { &["red"] } else { &[] }).await;
    }
    proxy.set(Faults::delayed(AWAY));
    // The second entry needs no generation that the first has not fetched; the tagged one does.
    for (name, waits) in [("/", 1), ("/two", 1), ("/tagged", 2)] {
        let began = Instant::now();
        assert_eq!(one.standing(&key(name)).await, Some(PurgeState::Valid), "{name}");
        let took = began.elapsed();
        assert!(took >= AWAY * waits && took < AWAY * (waits + 1), "{name}: {took:?}");
    }
}

#[tokio::test]
async fn uncached_generations_script_is_sent_again() {
    let server = server().await;
    let one = Instance::new(sharing(&server)).await;
    a_moment().await;
    one.put(&key("/"), &[]).await;
    for what in [None, Some(Purge::All)] {
        if let Some(what) = &what {
            one.publish(what, Reach::Hard).await;
        }
        let other = Instance::new(sharing(&server)).await;
        server.ask(&["SCRIPT", "FLUSH"]).await.unwrap();
        let standing = if what.is_none() { PurgeState::Valid } else { PurgeState::Removed };
        assert_eq!(other.standing(&key("/")).await, Some(standing));
        assert_eq!(other.standing(&key("/")).await, Some(standing));
    }
}

#[tokio::test]
async fn failed_purge_is_published_later_and_hides_entries_meanwhile() {
    let server = server().await;
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let url = format!("redis://{}", proxy.address());
    let endpoint = EndpointSettings {
        read_timeout: Duration::from_millis(300),
        write_timeout: Duration::from_millis(300),
        ..EndpointSettings::at(url)
    };
    let settings =
        Settings { sharing: Some(SharingSettings::default()), ..Settings::new(endpoint) };
    let one = Instance::new(settings).await;
    let other = Instance::new(sharing(&server)).await;
    a_moment().await;
    other.put(&key("/"), &["red"]).await;
    other.put(&key("/key"), &[]).await;
    proxy.set(Faults::flow(Flow::BlackHole));
    let whats = [tag("red"), Purge::Key(key("/key"))];
    for what in &whats {
        assert!(one.fixture.tier.publish(what, Reach::Hard).await.is_err());
    }
    assert_eq!(other.standing(&key("/")).await, Some(PurgeState::Valid));
    proxy.set(Faults::default());
    for what in &whats {
        other.received.wait(&purged(what, Reach::Hard)).await;
    }
    assert_eq!(other.standing(&key("/")).await, Some(PurgeState::Removed));
    assert!(other.open(&key("/key")).await.is_none());
    one.fixture.until(|tier| tier.endpoints()[0].pending == 0).await;
    assert_eq!(one.fixture.tier.counts().republished, 2);
}

#[tokio::test]
async fn silence_is_lost_and_reconnects_without_a_gap() {
    let server = server().await;
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let through = patient(format!("redis://{}", proxy.address()));
    let settings = Settings { sharing: Some(SharingSettings::default()), ..Settings::new(through) };
    let one = Instance::new(settings).await;
    let other = Instance::new(sharing(&server)).await;
    for flow in [Flow::Frozen, Flow::BlackHole] {
        one.received.forget();
        let began = Instant::now();
        proxy.change(|faults| faults.to_client.flow = flow);
        one.received.wait(&Notice::Disconnected).await;
        let took = began.elapsed();
        assert!(took <= Duration::from_secs(1) + Duration::from_secs(2), "{took:?}");
        assert!(!one.fixture.tier.sharing().unwrap().bus_connected);
        other.publish(&tag("red"), Reach::Hard).await;
        proxy.set(Faults::default());
        if flow == Flow::BlackHole {
            proxy.reset_all();
        }
        one.received.wait(&Notice::Connected).await;
        one.received.wait(&purged(&tag("red"), Reach::Hard)).await;
        assert_eq!(one.received.count(&Notice::Gap), 0, "{:?}", one.received.0.borrow());
        assert_eq!(one.received.count(&purged(&tag("red"), Reach::Hard)), 1);
        one.fixture.until(|tier| tier.sharing().unwrap().bus_connected).await;
    }
}

#[tokio::test]
async fn trimmed_bus_entries_are_a_gap() {
    let server = server().await;
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let through = patient(format!("redis://{}", proxy.address()));
    let settings = Settings { sharing: Some(SharingSettings::default()), ..Settings::new(through) };
    let one = Instance::new(settings).await;
    let other = Instance::new(sharing(&server)).await;
    proxy.change(|faults| faults.to_client.flow = Flow::BlackHole);
    for number in 0..10 {
        other.publish(&tag(&number.to_string()), Reach::Hard).await;
    }
    number(&server, &["XTRIM", BUS, "MAXLEN", "5"]).await;
    proxy.set(Faults::default());
    proxy.reset_all();
    one.received.wait(&purged(&tag("9"), Reach::Hard)).await;
    assert_eq!(one.received.count(&Notice::Gap), 1);
    assert_eq!(one.received.count(&purged(&tag("4"), Reach::Hard)), 0);
    assert_eq!(one.fixture.tier.counts().bus_gaps, 2, "and the one in the beginning");
}

#[tokio::test]
async fn emptied_server_is_a_gap() {
    let server = server().await;
    let [one, other] = Instance::pair(&server).await;
    a_moment().await;
    one.put(&key("/"), &["red"]).await;
    one.publish(&tag("any"), Reach::Hard).await;
    other.received.wait(&purged(&tag("any"), Reach::Hard)).await;
    server.ask(&["FLUSHALL"]).await.unwrap();
    for instance in [&one, &other] {
        instance.received.wait(&Notice::Gap).await;
        instance.received.forget();
    }
    // New ids are higher than the old ones; only the chain shows the loss.
    server.ask(&["FLUSHALL"]).await.unwrap();
    one.publish(&tag("new"), Reach::Hard).await;
    // The bus check may detect the loss first. Reading then resumes behind the purge, for which the
    // gap counts.
    let told = [purged(&tag("new"), Reach::Hard), Notice::Gap];
    other.received.until(|all| told.iter().any(|notice| all.contains(notice))).await;
    assert!(other.open(&key("/")).await.is_none());
}

#[tokio::test]
async fn failover_is_a_gap_even_if_no_entry_is_missing() {
    let master = server().await;
    let replica = RedisLaunch::new().replica_of(&master).start().await.unwrap();
    // Clients of the replica can detect the failover by its replication id only.
    let proxy = FaultProxy::start(master.address()).await.unwrap();
    let through = patient(format!("redis://{}", proxy.address()));
    let settings = Settings { sharing: Some(SharingSettings::default()), ..Settings::new(through) };
    let one = Instance::new(settings).await;
    one.publish(&tag("red"), Reach::Hard).await;
    wait_number(&replica, &["XLEN", BUS], 2).await;
    replica.ask(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    one.received.forget();
    proxy.turn(replica.address());
    proxy.reset_all();
    one.received.wait(&Notice::Gap).await;
    one.publish(&tag("blue"), Reach::Hard).await;
    assert_eq!(number(&replica, &["XLEN", BUS]).await, 3);
}

#[tokio::test]
async fn another_program_purges_with_one_command() {
    let server = server().await;
    let [one, other] = Instance::pair(&server).await;
    let hard = ["kind", "tag", "what", "red"];
    let soft = ["kind", "tag", "what", "red", "reach", "soft"];
    let by_key = ["kind", "key", "what", "site|/|"];
    let rows: [(&[&str], Notice, Option<PurgeState>); 4] = [
        (&hard, purged(&tag("red"), Reach::Hard), Some(PurgeState::Removed)),
        (&soft, purged(&tag("red"), Reach::Soft), Some(PurgeState::SoftPurged)),
        (&by_key, purged(&Purge::Key(key("/")), Reach::Hard), None),
        (&["kind", "all"], purged(&Purge::All, Reach::Hard), Some(PurgeState::Removed)),
    ];
    for (words, notice, standing) in rows {
        a_moment().await;
        one.put(&key("/"), &["red"]).await;
        assert_eq!(other.standing(&key("/")).await, Some(PurgeState::Valid));
        let command = [&["XADD", BUS, "*"][..], words].concat();
        server.ask(&command).await.unwrap();
        for instance in [&one, &other] {
            instance.received.wait(&notice).await;
            assert_eq!(instance.standing(&key("/")).await, standing, "{words:?}");
        }
    }
    one.publish(&tag("blue"), Reach::Hard).await;
    other.received.wait(&purged(&tag("blue"), Reach::Hard)).await;
    assert_eq!(other.received.count(&Notice::Gap), 0, "the chain goes on");
    assert_eq!(other.fixture.tier.counts().purge_requests, 4);
}

#[tokio::test]
async fn missed_request_is_applied_at_the_start() {
    let server = server().await;
    let one = Instance::new(sharing(&server)).await;
    a_moment().await;
    one.put(&key("/"), &["red"]).await;
    one.put(&key("/other"), &["blue"]).await;
    one.put(&key("/third"), &[]).await;
    drop(one);
    // The thread of the dropped instance ends soon; no instance may read the requests.
    let gone = async {
        while number(&server, &["EVAL", CLIENTS, "0"]).await > 1 {
            a_moment().await;
        }
    };
    assert!(timeout(SOON, gone).await.is_ok());
    for words in [["tag", "red"], ["key", "site|/third|"]] {
        server.ask(&["XADD", BUS, "*", "kind", words[0], "what", words[1]]).await.unwrap();
    }
    let late = Instance::new(sharing(&server)).await;
    assert_eq!(late.standing(&key("/")).await, Some(PurgeState::Removed));
    assert_eq!(late.standing(&key("/other")).await, Some(PurgeState::Valid));
    assert!(late.open(&key("/third")).await.is_none());
    assert_eq!(late.fixture.tier.counts().purge_requests, 2);
}

/// Returns the number of connections, including the caller's.
const CLIENTS: &str =
    "return tonumber(string.match(redis.call('INFO', 'clients'), 'connected_clients:(%d+)'))";

#[tokio::test]
async fn sentinel_failover_is_a_gap_and_the_bus_resumes() {
    let master = server().await;
    let replica = RedisLaunch::new().replica_of(&master).start().await.unwrap();
    let sentinel = start_sentinel("main", &master, 1).await.unwrap();
    let servers = Servers::Sentinel { master: "main".into(), nodes: vec![sentinel.url()] };
    let endpoint = EndpointSettings { servers, ..patient("") };
    let settings = || Settings {
        sharing: Some(SharingSettings::default()),
        ..Settings::new(endpoint.clone())
    };
    let [one, other] = [Instance::new(settings()).await, Instance::new(settings()).await];
    a_moment().await;
    one.put(&key("/"), &["red"]).await;
    wait_number(&replica, &["EXISTS", &name("/")], 1).await;
    let permit = granted(&one.fixture, &key("/loading")).await;
    master.kill().await.unwrap();
    for instance in [&one, &other] {
        instance.received.until(|all| all.contains(&Notice::Disconnected)).await;
        instance.received.until(|all| all.contains(&Notice::Gap)).await;
        instance.received.until(|all| all.last() == Some(&Notice::Connected)).await;
    }
    // A load that started before the failover does not store.
    let refused = fill(&one.fixture, &key("/loading"), &permit, b"old").await;
    assert!(refused.is_err(), "{refused:?}");
    one.publish(&tag("red"), Reach::Hard).await;
    other.received.wait(&purged(&tag("red"), Reach::Hard)).await;
    assert_eq!(other.standing(&key("/")).await, Some(PurgeState::Removed));
    assert!(number(&replica, &["XLEN", BUS]).await > 0);
}

#[tokio::test]
async fn endpoint_change_is_a_gap_and_both_receive_purges() {
    let (near, far) = (server().await, server().await);
    let proxy = FaultProxy::start(near.address()).await.unwrap();
    let through = EndpointSettings {
        read_timeout: Duration::from_millis(200),
        write_timeout: Duration::from_millis(200),
        ..EndpointSettings::at(format!("redis://{}", proxy.address()))
    };
    let sharing = Some(SharingSettings::default());
    let fallback = vec![patient(far.url())];
    let one = Instance::new(Settings { sharing, fallback, ..Settings::new(through) }).await;
    // Waits until the instance has switched to the nearest endpoint's bus.
    until_later(Duration::from_millis(300)).await;
    one.put(&key("/"), &["red"]).await;
    let permit = granted(&one.fixture, &key("/loading")).await;
    proxy.set(Faults::flow(Flow::BlackHole));
    one.received.wait(&Notice::Gap).await;
    one.fixture.until(|tier| tier.endpoints()[1].is_used).await;
    one.fixture.until(|tier| tier.sharing().unwrap().bus_connected).await;
    one.publish(&tag("red"), Reach::Hard).await;
    assert_eq!(number(&far, &["XLEN", BUS]).await, 2);
    one.received.forget();
    proxy.set(Faults::default());
    one.received.wait(&Notice::Gap).await;
    one.fixture.until(|tier| tier.endpoints()[0].is_used).await;
    // Published there or not, the purge is applied to the read.
    assert_eq!(one.standing(&key("/")).await, Some(PurgeState::Removed));
    one.fixture.until(|tier| tier.endpoints()[0].pending == 0).await;
    assert_eq!(number(&near, &["XLEN", BUS]).await, 2);
    assert_eq!(one.standing(&key("/")).await, Some(PurgeState::Removed));
    let refused = fill(&one.fixture, &key("/loading"), &permit, b"old").await;
    assert!(matches!(refused, Err(TierError::Withdrawn)), "{refused:?}");
}

#[tokio::test]
async fn invalid_bus_entries_are_counted_and_ignored() {
    let server = server().await;
    let [one, other] = Instance::pair(&server).await;
    a_moment().await;
    one.put(&key("/"), &["red"]).await;
    let huge = "x".repeat(300_000);
    let rows: [&[&str]; 4] = [
        &["a", "b"],
        &["kind", "nonsense", "what", "x"],
        &["kind", "tag", "what", &huge],
        &["kind", "key", "what", "no|key"],
    ];
    for row in rows {
        server.ask(&[&["XADD", BUS, "*"][..], row].concat()).await.unwrap();
    }
    one.publish(&tag("blue"), Reach::Hard).await;
    other.received.wait(&purged(&tag("blue"), Reach::Hard)).await;
    assert_eq!(other.fixture.tier.counts().foreign, 4);
    assert_eq!(other.received.count(&Notice::Gap), 0);
    assert_eq!(other.standing(&key("/")).await, Some(PurgeState::Valid));
    // An unknown message of an instance may be a purge.
    server.ask(&["XADD", BUS, "*", "p", "1-1", "k", "later"]).await.unwrap();
    other.received.wait(&Notice::Gap).await;
}

#[tokio::test]
async fn foreign_data_in_place_of_the_bus_is_reported_and_lost() {
    let server = server().await;
    let [one, _other] = Instance::pair(&server).await;
    server.ask(&["SET", BUS, "garbage"]).await.unwrap();
    one.received.wait(&Notice::Disconnected).await;
    assert!(one.fixture.tier.publish(&tag("red"), Reach::Hard).await.is_err());
    let bus_error = one.fixture.tier.endpoints()[0].bus_error.clone().unwrap();
    assert!(bus_error.contains("another program"), "{bus_error}");
    let told = one.fixture.notices.all();
    assert_eq!(told.iter().filter(|one| one.contains("not received")).count(), 1, "{told:#?}");
    number(&server, &["DEL", BUS]).await;
    one.received.wait(&Notice::Connected).await;
    one.fixture.until(|tier| tier.counts().republished == 1).await;
}

#[tokio::test]
async fn tag_purge_cost_is_independent_of_members() {
    let launch = RedisLaunch::new().config("enable-debug-command yes");
    let server = launch.start().await.unwrap();
    let [one, other] = Instance::pair(&server).await;
    a_moment().await;
    one.put(&key("/first"), &["red"]).await;
    let mut costs = Vec::new();
    for members in [1, 2_000] {
        let put = |number: usize| {
            let (fixture, key) = (&one.fixture, key(&format!("/{members}/{number}")));
            async move { fixture.put_as(&key, &tagged(&["red"]), b"body").await }
        };
        a_moment().await;
        for some in (0..members).collect::<Vec<_>>().chunks(100) {
            join_all(some.iter().map(|number| put(*number))).await;
        }
        // Other keys do not matter either.
        server.ask(&["DEBUG", "POPULATE", "1000000", "forebay:d"]).await.unwrap();
        // The server was busy meanwhile.
        one.fixture.until(|tier| tier.endpoints()[0].is_up).await;
        let before = calls(&server).await;
        one.publish(&tag("red"), Reach::Hard).await;
        let cost = calls(&server).await.since(&before);
        costs.push((cost.of("xadd"), cost.of("set"), cost.of("get"), cost.of("del")));
        other.received.wait(&purged(&tag("red"), Reach::Hard)).await;
        other.received.forget();
        let some = key(&format!("/{members}/0"));
        assert_eq!(other.standing(&some).await, Some(PurgeState::Removed));
    }
    assert_eq!(costs, [(1, 1, 1, 0); 2]);
}

#[tokio::test]
async fn too_many_prefixes_purge_the_site() {
    let server = server().await;
    let [one, other] = Instance::pair(&server).await;
    let prefix = |number: usize| Purge::Prefix {
        site: "site".into(),
        prefix: format!("/prefix/{number}").into(),
    };
    for number in 0..64 {
        one.publish(&prefix(number), Reach::Hard).await;
    }
    other.received.wait(&purged(&prefix(63), Reach::Hard)).await;
    assert_eq!(number(&server, &["HLEN", "forebay:{bus}:p"]).await, 64);
    a_moment().await;
    one.put(&key("/else"), &[]).await;
    // An equal prefix needs no further rule.
    one.publish(&prefix(1), Reach::Hard).await;
    assert_eq!(other.standing(&key("/else")).await, Some(PurgeState::Valid));
    one.publish(&prefix(64), Reach::Hard).await;
    other.received.wait(&purged(&Purge::Site("site".into()), Reach::Hard)).await;
    assert_eq!(other.standing(&key("/else")).await, Some(PurgeState::Removed));
    // An instance that starts later receives the rules.
    a_moment().await;
    one.put(&key("/prefix/7"), &[]).await;
    one.publish(&prefix(7), Reach::Hard).await;
    let late = Instance::new(sharing(&server)).await;
    assert_eq!(late.standing(&key("/prefix/7")).await, Some(PurgeState::Removed));
}

#[tokio::test]
async fn a_cluster_shares_loads_and_purges() {
    let servers = start_cluster(3).await.unwrap();
    let urls = vec![servers[0].url(), servers[1].url()];
    let servers_of = Servers::Cluster(urls);
    let endpoint = EndpointSettings { servers: servers_of, ..patient("") };
    let settings = || Settings {
        sharing: Some(SharingSettings::default()),
        ..Settings::new(endpoint.clone())
    };
    let [one, other] = [Instance::new(settings()).await, Instance::new(settings()).await];
    a_moment().await;
    for number in 0..30 {
        let key = key(&format!("/{number}"));
        one.put(&key, &["red"]).await;
        assert_eq!(other.standing(&key).await, Some(PurgeState::Valid));
    }
    one.publish(&tag("red"), Reach::Hard).await;
    other.received.wait(&purged(&tag("red"), Reach::Hard)).await;
    for number in 0..30 {
        let key = key(&format!("/{number}"));
        assert_eq!(other.standing(&key).await, Some(PurgeState::Removed));
        let seen = other.open(&key).await.map(|stored| stored.stamp);
        let permit = crate::leases::granted_having_seen(&one.fixture, &key, seen).await;
        let waiting = crate::leases::elsewhere_having_seen(&other.fixture, &key, seen).await;
        fill(&one.fixture, &key, &permit, b"new").await.unwrap();
        let woken = timeout(SOON, waiting).await.unwrap();
        assert!(matches!(woken, forebay_engine::lease::Woken::Filled(_)));
    }
}

#[tokio::test]
async fn concurrent_loader_and_writer_leave_no_stale_value() {
    let server = server().await;
    let fixtures: [Fixture; 2] = instances(&server).await;
    let rounds: usize =
        std::env::var("FOREBAY_TEST_ROUNDS").map_or(1_000, |it| it.parse().unwrap());
    let stale = join_all((0..20).map(|lane| race(&fixtures, lane, rounds / 20))).await;
    assert_eq!(stale.into_iter().sum::<usize>(), 0);
    let counts = fixtures[0].tier.counts();
    assert!(counts.stored > 0 && counts.fills_refused > 0, "{counts:?}");
}

/// Takes the time of this many lookups.
async fn dawdle(fixture: &Fixture, looks: usize) {
    for _ in 0..looks {
        assert!(fixture.get(&key("/elsewhere")).await.unwrap().is_none());
    }
}

/// Overlaps a loader, which reads and stores, with a writer, which writes and purges. Returns the
/// number of stale entries.
async fn race(fixtures: &[Fixture; 2], lane: usize, rounds: usize) -> usize {
    let mut stale = 0;
    for round in 0..rounds {
        let key = key(&format!("/{lane}"));
        let truth = std::sync::atomic::AtomicUsize::new(round);
        let load = async {
            let Ok(forebay_engine::lease::Lease::Granted(permit)) =
                forebay_engine::Leases::acquire(&fixtures[0].tier, crate::leases::claim(&key))
                    .await
            else {
                return;
            };
            let read = truth.load(std::sync::atomic::Ordering::SeqCst);
            dawdle(&fixtures[0], (round * 7 + lane) % 5).await;
            let _ = fill(&fixtures[0], &key, &permit, read.to_string().as_bytes()).await;
        };
        let write = async {
            dawdle(&fixtures[1], (round * 3 + lane) % 7).await;
            truth.store(round + 1, std::sync::atomic::Ordering::SeqCst);
            fixtures[1].tier.publish(&Purge::Key(key.clone()), Reach::Hard).await.unwrap();
        };
        tokio::join!(load, write);
        if let Some(found) = fixtures[1].body(&key).await {
            stale += usize::from(found != (round + 1).to_string().as_bytes());
        }
        fixtures[1].remove(&key).await.unwrap();
    }
    stale
}

#[tokio::test]
async fn generation_names_are_readable() {
    let server = server().await;
    let [one, _other] = Instance::pair(&server).await;
    a_moment().await;
    one.put(&key("/"), &["red shoes"]).await;
    let era = bytes(&server, "forebay:{bus}:t:red%20shoes").await;
    let era = String::from_utf8(era).unwrap();
    assert_eq!(era.split(' ').count(), 2, "{era}");
    assert!(number(&server, &["PTTL", "forebay:{bus}:s:site"]).await > 59_000);
    assert!(number(&server, &["PTTL", "forebay:{bus}:a"]).await > 59_000);
}
