//! First lookup with a lease request: an entry or the lease in one round trip.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Purge, Reach};
use forebay_engine::{
    Audience, Cluster, Content, Engine, Entry, Event, Head, HeadCodec, LeaseEvent, Limits, Load,
    LoadError, Loaded, Observer, Select, SystemClock, Tier,
};
use forebay_redis::{EndpointSettings, Settings, SharingSettings};
use forebay_testkit::faults::{FaultProxy, Faults};
use forebay_testkit::redis::RedisServer;
use futures_util::future::{join, join_all};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::fixture::{
    Calls, Fixture, PATIENT, calls, key, meta, name, number, obtained, patient, server, until_later,
};
use crate::leases::sharing;

/// Duration of a load.
const LOAD: Duration = Duration::from_millis(50);

/// Read timeout that a busy machine does not exceed.
const READ: Duration = Duration::from_millis(500);

/// An origin that counts loads.
#[derive(Clone, Default)]
struct Origin(Arc<AtomicUsize>);

impl Origin {
    fn loads(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Select for Origin {
    fn field(&self, _: &str) -> Option<std::borrow::Cow<'_, [u8]>> {
        None
    }
}

impl HeadCodec for Origin {}

impl Load for Origin {
    async fn load(&self, _: Option<Arc<Entry>>, _: Audience) -> Result<Loaded, LoadError> {
        let number = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        until_later(LOAD).await;
        let (head, content) = (Head::new(Bytes::new()), Content::Whole(number.to_string().into()));
        Ok(Loaded::Entry { meta: meta(Duration::from_secs(60)), head, content })
    }
}

#[derive(Default)]
struct Came(Mutex<Vec<LeaseEvent>>);

impl Observer for Came {
    fn observe(&self, event: Event<'_>) {
        if let Event::Lease { event: came, .. } = event {
            self.0.lock().push(came);
        }
    }
}

/// A clustered engine with an empty memory tier.
struct Instance {
    engine: Arc<Engine>,
    fixture: Fixture,
    came: Arc<Came>,
}

impl Instance {
    async fn new(settings: Settings) -> Self {
        let fixture = Fixture::connect(settings);
        let (tier, came) = (Arc::new(fixture.tier.clone()), Arc::<Came>::default());
        let tiers: Vec<Arc<dyn Tier>> = vec![tier.clone()];
        let cluster = Cluster::new(tier.clone(), tier);
        let engine = Engine::clustered(
            Limits::of(64 << 20),
            Arc::new(SystemClock),
            came.clone(),
            tiers,
            cluster,
        );
        fixture
            .until(|tier| tier.endpoints()[0].is_up && tier.endpoints()[0].receives_wakeups)
            .await;
        fixture.until(|tier| tier.sharing().unwrap().bus_connected).await;
        Self { engine, fixture, came }
    }

    async fn obtain(&self, key: KeyRef<'_>, origin: &Origin) -> String {
        obtained(&self.engine, key, origin).await
    }

    async fn stored(&self, count: u64) {
        self.fixture.until(|tier| tier.counts().stored == count).await;
    }
}

/// Returns the numbers of value reads and of scripts since `before`, without bus checks and queries
/// of generations.
async fn asked(server: &RedisServer, before: &Calls) -> (u64, u64) {
    let calls = calls(server).await.since(before);
    (calls.of("getrange"), calls.of("evalsha") + calls.of("eval") - calls.of("xrevrange"))
}

/// Creates instances that know the generations of the site.
async fn instances(server: &RedisServer, count: usize, origin: &Origin) -> Vec<Instance> {
    let mut all = Vec::new();
    for _ in 0..count {
        let instance = Instance::new(sharing(server)).await;
        instance.obtain(key("/first").borrowed(), origin).await;
        all.push(instance);
    }
    all[0].stored(1).await;
    all
}

#[tokio::test]
async fn cold_key_costs_two_commands_per_instance() {
    let (server, origin) = (server().await, Origin::default());
    let all = instances(&server, 2, &origin).await;
    let [leader, follower] = &all[..] else { unreachable!() };
    for number in 1..=5 {
        let key = key(&format!("/{number}"));
        let before = calls(&server).await;
        let leading = leader.obtain(key.borrowed(), &origin);
        assert_eq!(leading.await, (1 + number).to_string());
        leader.stored(1 + number).await;
        assert_eq!(asked(&server, &before).await, (1, 2), "a look, and the fill");
    }
    for number in 6..=10 {
        let key = key(&format!("/{number}"));
        let before = calls(&server).await;
        let led = leader.obtain(key.borrowed(), &origin);
        let followed = follower.obtain(key.borrowed(), &origin);
        let (led, followed) = join(led, followed).await;
        assert_eq!((led, followed), ((1 + number).to_string(), (1 + number).to_string()));
        until_stored(&all, 1 + number).await;
        assert_eq!(asked(&server, &before).await, (2, 3), "two looks, and the fill");
    }
    assert_eq!(origin.loads(), 11);
    let came = follower.came.0.lock().clone();
    let elsewhere = came.iter().filter(|came| **came == LeaseEvent::Elsewhere).count();
    let led = came.iter().filter(|came| **came == LeaseEvent::Granted).count();
    assert_eq!(elsewhere + led, 5, "{came:?}");
}

async fn until_stored(all: &[Instance], count: u64) {
    let stored = || all.iter().map(|one| one.fixture.tier.counts().stored).sum::<u64>();
    all[0].fixture.until(|_| stored() == count).await;
}

/// Once half of the recent lookups are hits, plain reads come first, since they cost the server
/// less than scripts.
#[tokio::test]
async fn frequent_hits_use_plain_reads() {
    let (server, origin) = (server().await, Origin::default());
    let all = instances(&server, 1, &origin).await;
    let keys: Vec<Key> = (0..100).map(|number| key(&format!("/{number}"))).collect();
    join_all(keys.iter().map(|key| all[0].obtain(key.borrowed(), &origin))).await;
    until_stored(&all, 101).await;
    let reader = Instance::new(sharing(&server)).await;
    for key in &keys[..50] {
        reader.obtain(key.borrowed(), &origin).await;
    }
    let counts = reader.fixture.tier.counts();
    assert_eq!((counts.hits, counts.misses, counts.leases_filled), (50, 0, 0));
    let before = calls(&server).await;
    for key in &keys[50..] {
        reader.obtain(key.borrowed(), &origin).await;
    }
    assert_eq!(asked(&server, &before).await, (50, 0), "no script for a hit");
    assert_eq!((reader.fixture.tier.counts().hits, origin.loads()), (100, 101));
}

/// A lookup with a lease request counts and finds the same entries as a plain read.
#[tokio::test]
async fn lookup_with_a_lease_request_finds_valid_entries_only() {
    let (server, origin) = (server().await, Origin::default());
    let all = instances(&server, 1, &origin).await;
    let paths = ["/sound", "/garbage", "/damaged", "/purged", "/other"];
    let keys = paths.map(key);
    for (number, key) in keys.iter().enumerate() {
        all[0].obtain(key.borrowed(), &origin).await;
        all[0].stored(2 + number as u64).await;
    }
    let server = &server;
    server.ask(&["SET", &name(paths[1]), "garbage"]).await.unwrap();
    server.ask(&["SETRANGE", &name(paths[2]), "60", "garbage"]).await.unwrap();
    server.ask(&["DEL", &name(paths[4])]).await.unwrap();
    server.ask(&["RPUSH", &name(paths[4]), "a list"]).await.unwrap();
    all[0].engine.purge(&Purge::Key(keys[3].clone()), Reach::Hard).await;
    let reader = Instance::new(sharing(server)).await;
    for (key, number) in keys.iter().zip(["2", "7", "8", "9", "10"]) {
        assert_eq!(reader.obtain(key.borrowed(), &origin).await, number);
    }
    reader.fixture.until(|tier| tier.counts().stored == 4).await;
    let counts = reader.fixture.tier.counts();
    assert_eq!((counts.hits, counts.leases_filled, counts.leases_granted), (1, 0, 4));
    assert_eq!((counts.damaged, counts.foreign, counts.misses), (1, 2, 4), "{counts:?}");
}

#[tokio::test]
async fn frozen_server_costs_one_timeout() {
    let (server, origin) = (server().await, Origin::default());
    let mut endpoint = EndpointSettings::at(server.url());
    endpoint.read_timeout = READ;
    let shared = Some(SharingSettings::default());
    let settings = Settings { sharing: shared, ..Settings::new(endpoint) };
    let instance = Instance::new(settings).await;
    instance.obtain(key("/first").borrowed(), &origin).await;
    instance.stored(1).await;
    let before = instance.fixture.tier.counts().timed_out;
    server.freeze().await.unwrap();
    assert_eq!(instance.obtain(key("/").borrowed(), &origin).await, "2");
    assert_eq!(instance.fixture.tier.counts().timed_out - before, 1);
    assert_eq!(instance.came.0.lock().last(), Some(&LeaseEvent::Failed));
}

/// A resuming server executes the requests of callers that gave up. Their leases must not block
/// others.
#[tokio::test]
async fn resumed_server_grants_no_lease_after_the_deadline() {
    let (server, origin) = (server().await, Origin::default());
    let all = instances(&server, 2, &origin).await;
    let mut endpoint = EndpointSettings::at(server.url());
    endpoint.read_timeout = READ;
    let shared = Some(SharingSettings::default());
    let hasty = Instance::new(Settings { sharing: shared, ..Settings::new(endpoint) }).await;
    server.freeze().await.unwrap();
    let late = key("/late");
    assert_eq!(hasty.obtain(late.borrowed(), &origin).await, "2");
    // The server's clock advances while it is frozen.
    until_later(READ / 10).await;
    server.thaw().await.unwrap();
    hasty.fixture.until(|tier| tier.endpoints()[0].is_up).await;
    assert_eq!(number(&server, &["EXISTS", &lease_name("/late")]).await, 0);
    assert_eq!(all[0].obtain(late.borrowed(), &origin).await, "3");
    assert!(!all[0].came.0.lock().contains(&LeaseEvent::Elsewhere));
}

fn lease_name(path: &str) -> String {
    name(path).replacen(":d:", ":l:", 1)
}

/// A distant hit takes one round trip, including the generations.
#[tokio::test]
async fn distant_hit_takes_one_round_trip() {
    const AWAY: Duration = Duration::from_secs(1);
    let (server, origin) = (server().await, Origin::default());
    let all = instances(&server, 1, &origin).await;
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let endpoint = patient(format!("redis://{}", proxy.address()));
    let shared = Some(SharingSettings { bus_silence_max: PATIENT, ..SharingSettings::default() });
    let far = Instance::new(Settings { sharing: shared, ..Settings::new(endpoint) }).await;
    proxy.set(Faults::delayed(AWAY));
    for (path, loads) in [("/first", 1), ("/cold", 2)] {
        let began = Instant::now();
        far.obtain(key(path).borrowed(), &origin).await;
        assert!(began.elapsed() < 2 * AWAY, "{path}: {:?}", began.elapsed());
        assert_eq!(origin.loads(), loads);
    }
    drop(all);
}
