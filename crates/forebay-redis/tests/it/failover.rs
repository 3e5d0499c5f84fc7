//! An acknowledged purge survives the loss of a server that had not replicated it, if one instance
//! knows it.

use forebay_core::{Purge, PurgeState, Reach};
use forebay_engine::bus::Notice;
use forebay_engine::lease::{Lease, Release, Woken};
use forebay_engine::{Bus, Leases, Tier};
use forebay_redis::{EndpointSettings, Servers, Settings, SharingSettings};
use forebay_testkit::faults::{FaultProxy, Faults, Flow};
use forebay_testkit::redis::{
    RedisLaunch, RedisServer, add_replica, start_cluster, start_sentinel,
};
use tokio::time::Instant;

use crate::bus::{BUS, Instance, SOON, a_moment, purged, tag};
use crate::fixture::{key, name, number, patient, server, wait_number};
use crate::leases::{claim, fill, granted, sharing};

/// A master and a replica with a breakable link. Instances reach the current master through a
/// proxy.
struct Pair {
    master: RedisServer,
    replica: RedisServer,
    replication: FaultProxy,
    way: FaultProxy,
}

impl Pair {
    async fn start() -> Self {
        let master = server().await;
        let replication = FaultProxy::start(master.address()).await.unwrap();
        let replica = replica_through(&replication).await;
        let way = FaultProxy::start(master.address()).await.unwrap();
        Self { master, replica, replication, way }
    }

    fn settings(&self) -> Settings {
        let endpoint = patient(format!("redis://{}", self.way.address()));
        Settings { sharing: Some(SharingSettings::default()), ..Settings::new(endpoint) }
    }

    /// Stops replication.
    fn cut(&self) {
        self.replication.set(Faults::flow(Flow::BlackHole));
    }

    /// Promotes the replica and redirects the instances to it.
    async fn fail_over(&self) {
        self.replica.ask(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
        self.way.turn(self.replica.address());
        self.way.reset_all();
    }
}

async fn replica_through(replication: &FaultProxy) -> RedisServer {
    let master = format!("replicaof 127.0.0.1 {}", replication.address().port());
    RedisLaunch::new().config(master).start().await.unwrap()
}

fn whats() -> [Purge; 5] {
    let prefix = Purge::Prefix { site: "site".into(), prefix: "/a".into() };
    [Purge::Key(key("/a")), tag("red"), prefix, Purge::Site("site".into()), Purge::All]
}

/// Waits until the instance has published this many purges again, and asserts that no purged entry
/// is good meanwhile.
async fn until_told(instance: &Instance, purges: u64, path: &str) {
    let began = Instant::now();
    let is_told = || {
        let tier = &instance.fixture.tier;
        tier.counts().republished == purges && tier.endpoints()[0].is_up
    };
    while !is_told() || instance.received.count(&Notice::Gap) < 1 {
        if let Ok(Some(stored)) = instance.fixture.tier.open(key(path).borrowed()).await {
            assert_ne!(stored.vetted, Some(PurgeState::Valid), "it has come back");
        }
        assert!(began.elapsed() < SOON, "the purges are not published");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn purge_missing_on_the_replica_is_published_again_once() {
    for reach in [Reach::Soft, Reach::Hard] {
        for what in whats() {
            let pair = Pair::start().await;
            let one = Instance::new(pair.settings()).await;
            let other = Instance::new(pair.settings()).await;
            a_moment().await;
            one.put(&key("/a"), &["red"]).await;
            wait_number(&pair.replica, &["EXISTS", &name("/a")], 1).await;
            pair.cut();
            one.publish(&what, reach).await;
            other.received.wait(&purged(&what, reach)).await;
            other.received.forget();
            pair.fail_over().await;
            assert_eq!(number(&pair.replica, &["EXISTS", &name("/a")]).await, 1, "it is back");
            let late = Instance::new(sharing(&pair.replica)).await;
            tokio::join!(until_told(&one, 1, "/a"), until_told(&other, 1, "/a"));
            // The late instance received the purge, or read it on the bus.
            let expected = match (&what, reach) {
                (Purge::Key(_), Reach::Hard) => None,
                (_, Reach::Soft) => Some(PurgeState::SoftPurged),
                (_, Reach::Hard) => Some(PurgeState::Removed),
            };
            for instance in [&one, &other, &late] {
                assert_eq!(instance.standing(&key("/a")).await, expected, "{what:?} {reach:?}");
            }
            assert_eq!(
                number(&pair.replica, &["XLEN", BUS]).await,
                2,
                "told once, behind the first entry"
            );
            let again = purged(&what, reach);
            assert_eq!(
                one.received.count(&again) + other.received.count(&again),
                0,
                "they knew of it"
            );
            // Loads that start from now on are stored.
            one.fixture.put_until_stored(&key("/a"), b"new").await;
            for instance in [&one, &other, &late] {
                assert_eq!(
                    instance.standing(&key("/a")).await,
                    Some(PurgeState::Valid),
                    "{what:?}"
                );
            }
            drop(pair.master);
        }
    }
}

#[tokio::test]
async fn purge_survives_its_publisher_and_a_failover() {
    let pair = Pair::start().await;
    let one = Instance::new(pair.settings()).await;
    let other = Instance::new(pair.settings()).await;
    // It receives nothing from before the purge on.
    let own_way = FaultProxy::start(pair.master.address()).await.unwrap();
    let endpoint = patient(format!("redis://{}", own_way.address()));
    let sharing = Some(SharingSettings::default());
    let deaf = Instance::new(Settings { sharing, ..Settings::new(endpoint) }).await;
    a_moment().await;
    one.put(&key("/a"), &["red"]).await;
    assert_eq!(deaf.standing(&key("/a")).await, Some(PurgeState::Valid));
    wait_number(&pair.replica, &["EXISTS", &name("/a")], 1).await;
    pair.cut();
    own_way.set(Faults::flow(Flow::BlackHole));
    one.publish(&tag("red"), Reach::Hard).await;
    other.received.wait(&purged(&tag("red"), Reach::Hard)).await;
    drop(one);
    pair.fail_over().await;
    own_way.turn(pair.replica.address());
    own_way.set(Faults::default());
    own_way.reset_all();
    deaf.received.wait(&purged(&tag("red"), Reach::Hard)).await;
    deaf.fixture.until(|tier| tier.endpoints()[0].is_up).await;
    assert_eq!(deaf.standing(&key("/a")).await, Some(PurgeState::Removed));
    other.fixture.until(|tier| tier.endpoints()[0].pending == 0).await;
    assert_eq!(other.fixture.tier.counts().republished, 1);
}

#[tokio::test]
async fn purge_known_to_the_replica_is_not_published_again() {
    let pair = Pair::start().await;
    let one = Instance::new(pair.settings()).await;
    a_moment().await;
    one.put(&key("/"), &["red"]).await;
    let wished = ["XADD", BUS, "*", "kind", "tag", "what", "blue"];
    pair.master.ask(&wished).await.unwrap();
    one.received.wait(&purged(&tag("blue"), Reach::Hard)).await;
    one.publish(&tag("red"), Reach::Hard).await;
    one.publish(&Purge::Key(key("/")), Reach::Hard).await;
    a_moment().await;
    one.put(&key("/"), &["red"]).await;
    wait_number(&pair.replica, &["XLEN", BUS], 4).await;
    wait_number(&pair.replica, &["EXISTS", &name("/")], 1).await;
    one.received.forget();
    pair.fail_over().await;
    one.received.wait(&Notice::Gap).await;
    one.fixture.until(|tier| tier.counts().republished == 3).await;
    assert_eq!(number(&pair.replica, &["XLEN", BUS]).await, 4);
    assert_eq!(one.standing(&key("/")).await, Some(PurgeState::Valid), "it is newer than all");
}

#[tokio::test]
async fn lease_restored_by_a_replica_does_not_store() {
    let pair = Pair::start().await;
    let one = Instance::new(pair.settings()).await;
    let other = Instance::new(pair.settings()).await;
    a_moment().await;
    one.put(&key("/warm"), &["red"]).await;
    let permit = granted(&one.fixture, &key("/a")).await;
    wait_number(&pair.replica, &["EXISTS", "forebay:l:{site|/a|}"], 1).await;
    pair.cut();
    let what = Purge::Key(key("/a"));
    other.publish(&what, Reach::Hard).await;
    one.received.wait(&purged(&what, Reach::Hard)).await;
    pair.fail_over().await;
    let refused = fill(&one.fixture, &key("/a"), &permit, b"old").await;
    assert!(refused.is_err(), "{refused:?}");
    for instance in [&one, &other] {
        until_told(instance, 1, "/a").await;
        assert_eq!(instance.standing(&key("/a")).await, None);
    }
}

#[tokio::test]
async fn purge_survives_the_only_master_that_had_it() {
    let master = server().await;
    let replication = FaultProxy::start(master.address()).await.unwrap();
    let replica = replica_through(&replication).await;
    let sentinel = start_sentinel("main", &master, 1).await.unwrap();
    let servers = Servers::Sentinel { master: "main".into(), nodes: vec![sentinel.url()] };
    let endpoint = EndpointSettings { servers, ..patient("") };
    let settings = || Settings {
        sharing: Some(SharingSettings::default()),
        ..Settings::new(endpoint.clone())
    };
    let [one, other] = [Instance::new(settings()).await, Instance::new(settings()).await];
    a_moment().await;
    for path in ["/a", "/b"] {
        one.put(&key(path), &["red"]).await;
        wait_number(&replica, &["EXISTS", &name(path)], 1).await;
    }
    replication.set(Faults::flow(Flow::BlackHole));
    one.publish(&tag("red"), Reach::Hard).await;
    one.publish(&Purge::Key(key("/b")), Reach::Hard).await;
    other.received.wait(&purged(&Purge::Key(key("/b")), Reach::Hard)).await;
    master.kill().await.unwrap();
    for instance in [&one, &other] {
        until_told(instance, 2, "/a").await;
        assert_eq!(instance.standing(&key("/a")).await, Some(PurgeState::Removed));
        assert_eq!(instance.standing(&key("/b")).await, None);
    }
    assert_eq!(number(&replica, &["XLEN", BUS]).await, 3);
    let late = Instance::new(settings()).await;
    assert_eq!(late.standing(&key("/a")).await, Some(PurgeState::Removed));
    assert_eq!(late.standing(&key("/b")).await, None);
}

/// Returns the index of the master that owns a name.
async fn owner_of(servers: &[RedisServer], name: &str) -> usize {
    for (at, server) in servers.iter().enumerate() {
        // Other masters reply with a redirect.
        if server.ask(&["EXISTS", name]).await.is_ok() {
            return at;
        }
    }
    panic!("no master owns {name}");
}

fn of_cluster(servers: &[RedisServer]) -> Settings {
    let servers = Servers::Cluster(servers.iter().map(RedisServer::url).collect());
    let endpoint = EndpointSettings { servers, ..patient("") };
    Settings { sharing: Some(SharingSettings::default()), ..Settings::new(endpoint) }
}

/// Returns a path and the index of its master, which does not own the bus.
async fn key_beside_the_bus(servers: &[RedisServer]) -> (String, usize) {
    let bus = owner_of(servers, BUS).await;
    for number in 0..100 {
        let path = format!("/{number}");
        let owner = owner_of(servers, &name(&path)).await;
        if owner != bus {
            return (path, owner);
        }
    }
    panic!("all keys lie with the bus");
}

#[tokio::test]
async fn purged_key_does_not_return_with_another_cluster_master() {
    let mut servers = start_cluster(3).await.unwrap();
    let (path, owner) = key_beside_the_bus(&servers).await;
    let replica = add_replica(&servers[owner], 3).await.unwrap();
    let one = Instance::new(of_cluster(&servers)).await;
    let other = Instance::new(of_cluster(&servers)).await;
    a_moment().await;
    one.put(&key(&path), &[]).await;
    let exists = ["EVAL_RO", "return redis.call('EXISTS', KEYS[1])", "1", &name(&path)];
    replica.ask(&["CONFIG", "SET", "replica-serve-stale-data", "yes"]).await.unwrap();
    let there = ["DBSIZE"];
    wait_number(&replica, &there, number(&servers[owner], &there).await).await;
    // The replica is disconnected and does not receive the purge.
    replica.freeze().await.unwrap();
    servers[owner].ask(&["CLIENT", "KILL", "TYPE", "replica"]).await.unwrap();
    let what = Purge::Key(key(&path));
    one.publish(&what, Reach::Hard).await;
    other.received.wait(&purged(&what, Reach::Hard)).await;
    servers.remove(owner).kill().await.unwrap();
    replica.thaw().await.unwrap();
    let began = Instant::now();
    while replica.ask(&exists).await.is_err() {
        assert!(began.elapsed() < SOON, "it does not take over");
    }
    // The entry may be removed again already.
    for instance in [&one, &other] {
        until_told(instance, 1, &path).await;
    }
    assert_eq!(number(&replica, &exists).await, 0, "it is removed again");
    one.fixture.put_until_stored(&key(&path), b"new").await;
    assert_eq!(other.standing(&key(&path)).await, Some(PurgeState::Valid));
}

#[tokio::test]
async fn moved_slots_are_a_gap_and_leases_continue() {
    let servers = start_cluster(3).await.unwrap();
    let (path, from) = key_beside_the_bus(&servers).await;
    let to = (from + 1) % 3;
    let one = Instance::new(of_cluster(&servers)).await;
    let other = Instance::new(of_cluster(&servers)).await;
    a_moment().await;
    let slot = number(&servers[from], &["CLUSTER", "KEYSLOT", &name(&path)]).await.to_string();
    let permit = granted(&one.fixture, &key(&path)).await;
    let ids = [from, to].map(|at| &servers[at]);
    let [from_id, to_id] = [
        ids[0].ask(&["CLUSTER", "MYID"]).await.unwrap().text(),
        ids[1].ask(&["CLUSTER", "MYID"]).await.unwrap().text(),
    ];
    servers[to].ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await.unwrap();
    servers[from].ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await.unwrap();
    // While the slot moves, its names are found by ASK redirects.
    let port = servers[to].port().to_string();
    let names = servers[from].ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"]).await.unwrap();
    let forebay_testkit::redis::Reply::All(names) = names else { panic!("no names") };
    for name in &names {
        let name = name.text();
        let migrate = ["MIGRATE", "127.0.0.1", &port, &name, "0", "5000"];
        servers[from].ask(&migrate).await.unwrap();
    }
    for at in [to, from, 3 - to - from] {
        servers[at].ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await.unwrap();
    }
    // The load is stored before the gap is noticed, or refused after it. In either case the next
    // load is shared.
    let filled = fill(&one.fixture, &key(&path), &permit, b"body").await;
    for instance in [&one, &other] {
        instance.received.wait(&Notice::Gap).await;
    }
    if filled.is_err() {
        permit.release(Release::Abandoned).await;
    }
    a_moment().await;
    one.fixture.remove(&key(&path)).await.unwrap();
    let permit = granted(&one.fixture, &key(&path)).await;
    let waiting = crate::leases::elsewhere_having_seen(&other.fixture, &key(&path), None).await;
    fill(&one.fixture, &key(&path), &permit, b"body").await.unwrap();
    let woken = tokio::time::timeout(SOON, waiting).await.unwrap();
    assert!(matches!(woken, Woken::Filled(_)));
    assert_eq!(owner_of(&servers, &name(&path)).await, to);
}

#[tokio::test]
async fn a_master_that_is_lost_with_its_slots_concerns_those_alone() {
    let mut servers = start_cluster(3).await.unwrap();
    for server in &servers {
        server.ask(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await.unwrap();
    }
    let (lost, owner) = key_beside_the_bus(&servers).await;
    let bus = owner_of(&servers, BUS).await;
    let mut kept = None;
    for number in 0..100 {
        let path = format!("/kept/{number}");
        let at = owner_of(&servers, &name(&path)).await;
        if at != owner && at != bus {
            kept = Some(path);
        }
    }
    let (lost, kept) = (key(&lost), key(&kept.unwrap()));
    let one = Instance::new(of_cluster(&servers)).await;
    let other = Instance::new(of_cluster(&servers)).await;
    servers.remove(owner).kill().await.unwrap();
    // Requests for the lost slots are refused, and the instance loads for itself.
    let began = Instant::now();
    while one.fixture.tier.acquire(claim(&lost)).await.is_ok() {
        assert!(began.elapsed() < SOON, "leases are still granted");
    }
    assert!(one.fixture.tier.counts().leases_failed > 0);
    // The other slots are shared as before, once the loss is known.
    let (permit, waiting) = loop {
        assert!(began.elapsed() < 3 * SOON, "nothing is shared: {:?}", one.fixture.notices.all());
        let Ok(Lease::Granted(permit)) = one.fixture.tier.acquire(claim(&kept)).await else {
            continue;
        };
        match other.fixture.tier.acquire(claim(&kept)).await {
            Ok(Lease::Held(waiting, _)) => break (permit, waiting),
            _ => permit.release(Release::Abandoned).await,
        }
    };
    permit.release(Release::Failed).await;
    let woken = tokio::time::timeout(SOON, waiting).await.unwrap();
    assert!(matches!(woken, Woken::Released(Release::Failed) | Woken::Again));
    for instance in [&one, &other] {
        instance.fixture.until(|tier| tier.sharing().unwrap().bus_connected).await;
    }
    let what = tag("red");
    let began = Instant::now();
    while one.fixture.tier.publish(&what, Reach::Hard).await.is_err() {
        assert!(began.elapsed() < SOON, "the purge is not published");
    }
    other.received.wait(&purged(&what, Reach::Hard)).await;
}

#[tokio::test]
async fn cluster_without_the_bus_master_reports_the_error() {
    let mut servers = start_cluster(3).await.unwrap();
    let bus = owner_of(&servers, BUS).await;
    let one = Instance::new(of_cluster(&servers)).await;
    servers.remove(bus).kill().await.unwrap();
    one.received.wait(&Notice::Disconnected).await;
    assert!(!one.fixture.tier.sharing().unwrap().bus_connected);
    assert!(one.fixture.tier.publish(&tag("red"), Reach::Hard).await.is_err());
    // With full coverage required, no slot is available: each instance loads for itself.
    let began = Instant::now();
    while one.fixture.tier.acquire(claim(&key("/"))).await.is_ok() {
        assert!(began.elapsed() < SOON, "leases are granted still");
    }
    one.fixture.until(|tier| tier.endpoints()[0].bus_error.is_some()).await;
    assert!(one.fixture.notices.all().len() > 1, "{:?}", one.fixture.notices.all());
}
