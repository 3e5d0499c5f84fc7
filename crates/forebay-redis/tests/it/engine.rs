//! The Redis tier below an engine.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, Purge, Reach, Vary};
use forebay_engine::{
    Audience, Content, Engine, Entry, Head, HeadCodec, Limits, Load, LoadError, Loaded, Select,
    SystemClock,
};
use forebay_redis::{EndpointSettings, Settings};
use forebay_testkit::faults::{Direction, FaultProxy, Faults};
use forebay_testkit::redis::RedisServer;
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::fixture::{Fixture, key, meta, obtained, server, settings};

/// Slow, but within the engine's timeouts.
const SLOW: Duration = Duration::from_millis(15);

const LANGUAGE: &str = "accept-language";

/// An origin that answers at once and counts loads.
#[derive(Clone, Default)]
struct Origin {
    loads: Arc<AtomicUsize>,
    language: Option<&'static str>,
}

impl Select for Origin {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let language = self.language.filter(|_| name == LANGUAGE)?;
        Some(Cow::Borrowed(language.as_bytes()))
    }
}

impl HeadCodec for Origin {}

impl Load for Origin {
    async fn load(&self, _: Option<Arc<Entry>>, _: Audience) -> Result<Loaded, LoadError> {
        let number = self.loads.fetch_add(1, Ordering::SeqCst) + 1;
        let mut meta = meta(Duration::from_secs(60));
        meta.set_vary(self.language.and_then(|_| Vary::new([LANGUAGE])));
        let body = format!("{} {number}", self.language.unwrap_or("any"));
        let head = Head::new(Bytes::from_static(b"the head"));
        Ok(Loaded::Entry { meta, head, content: Content::Whole(body.into()) })
    }
}

/// An engine with an empty memory tier.
struct Instance {
    engine: Arc<Engine>,
    fixture: Fixture,
}

impl Instance {
    async fn new(settings: Settings) -> Self {
        let fixture = Fixture::new(settings).await;
        let tiers: Vec<Arc<dyn forebay_engine::Tier>> = vec![Arc::new(fixture.tier.clone())];
        let clock = Arc::new(SystemClock);
        let engine = Engine::with_tiers(Limits::of(64 << 20), clock, Arc::new(()), tiers);
        Self { engine, fixture }
    }

    async fn obtain(&self, key: &Key, origin: &Origin) -> String {
        obtained(&self.engine, key.borrowed(), origin).await
    }

    /// Waits until this many entries were stored.
    async fn stored(&self, count: u64) {
        self.fixture.until(|tier| tier.counts().stored == count).await;
    }
}

async fn instances(server: &RedisServer) -> [Instance; 2] {
    [Instance::new(settings(server)).await, Instance::new(settings(server)).await]
}

#[tokio::test]
async fn entry_loaded_by_one_instance_is_shared() {
    let server = server().await;
    let [one, other] = instances(&server).await;
    let origin = Origin::default();
    let keys: Vec<Key> = (0..200).map(|number| key(&format!("/{number}"))).collect();
    join_all(keys.iter().map(|key| one.obtain(key, &origin))).await;
    one.stored(200).await;
    for some in keys.chunks(20) {
        let bodies = join_all(some.iter().map(|key| other.obtain(key, &origin))).await;
        assert!(bodies.iter().all(|body| body.starts_with("any ")));
    }
    assert_eq!(origin.loads.load(Ordering::SeqCst), 200);
    // From now on the entries are in memory, and Redis is not asked.
    let read = other.fixture.tier.counts().hits;
    join_all(keys.iter().map(|key| other.obtain(key, &origin))).await;
    assert_eq!((read, other.fixture.tier.counts().hits), (200, 200));
}

#[tokio::test]
async fn variants_are_found_by_every_instance() {
    let server = server().await;
    let [one, other] = instances(&server).await;
    let origin = Origin::default();
    let speaking = |language| Origin { language: Some(language), ..origin.clone() };
    let key = key("/");
    assert_eq!(one.obtain(&key, &speaking("de")).await, "de 1");
    one.stored(2).await;
    assert_eq!(one.obtain(&key, &speaking("en")).await, "en 2");
    one.stored(4).await;
    for language in ["de 1", "en 2"] {
        assert_eq!(other.obtain(&key, &speaking(&language[..2])).await, language);
    }
    assert_eq!(origin.loads.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn purged_entry_is_not_restored_by_another_instance() {
    let server = server().await;
    let [one, other] = instances(&server).await;
    let (origin, key) = (Origin::default(), key("/"));
    assert_eq!(one.obtain(&key, &origin).await, "any 1");
    one.stored(1).await;
    assert!(one.engine.purge(&Purge::Key(key.clone()), Reach::Hard).await.found);
    assert_eq!(other.obtain(&key, &origin).await, "any 2");
}

#[tokio::test]
async fn a_frozen_server_costs_a_miss_its_time_and_a_hit_nothing() {
    let server = server().await;
    let instance = Instance::new(Settings::new(EndpointSettings::at(server.url()))).await;
    let origin = Origin::default();
    assert_eq!(instance.obtain(&key("/hot"), &origin).await, "any 1");
    instance.stored(1).await;
    server.freeze().await.unwrap();
    let before = instance.fixture.tier.counts().timed_out;
    assert_eq!(instance.obtain(&key("/cold"), &origin).await, "any 2");
    assert_eq!(instance.fixture.tier.counts().timed_out - before, 1);
    instance.fixture.until(|tier| !tier.endpoints()[0].is_up).await;
    let asked = instance.fixture.tier.counts().timed_out;
    for number in 0..100 {
        assert_eq!(instance.obtain(&key("/hot"), &origin).await, "any 1");
        instance.obtain(&key(&format!("/cold/{number}")), &origin).await;
    }
    assert_eq!(instance.fixture.tier.counts().timed_out, asked, "no request waited for the server");
}

#[tokio::test]
async fn a_crowd_reads_once_from_a_server_that_is_slow() {
    let server = server().await;
    let [one, _] = instances(&server).await;
    let (origin, key) = (Origin::default(), key("/"));
    one.obtain(&key, &origin).await;
    one.stored(1).await;
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let url = format!("redis://{}", proxy.address());
    let other = Instance::new(Settings::new(crate::fixture::patient(url))).await;
    let sent = proxy.passed(Direction::ToServer);
    proxy.set(Faults::delayed(SLOW));
    let crowd = (0..500).map(|_| other.obtain(&key, &origin));
    let began = Instant::now();
    let bodies = join_all(crowd).await;
    assert!(began.elapsed() >= SLOW);
    assert!(bodies.iter().all(|body| body == "any 1"));
    assert_eq!((origin.loads.load(Ordering::SeqCst), other.fixture.tier.counts().hits), (1, 1));
    assert!(proxy.passed(Direction::ToServer) - sent < 1_000);
}

#[tokio::test]
async fn distant_fallback_has_its_own_timeout() {
    let (near, far) = (server().await, server().await);
    let proxy = FaultProxy::start(far.address()).await.unwrap();
    proxy.set(Faults::delayed(Duration::from_millis(80)));
    let instance = async || {
        let url = format!("redis://{}", proxy.address());
        let mut settings = Settings::new(crate::fixture::patient(near.url()));
        settings.fallback.push(crate::fixture::patient(url));
        let instance = Instance::new(settings).await;
        instance.fixture.until(|tier| tier.endpoints()[1].is_up).await;
        instance
    };
    let (one, other) = (instance().await, instance().await);
    near.kill().await.unwrap();
    for instance in [&one, &other] {
        let over = instance.fixture.until(|tier| tier.endpoints()[1].is_used).await;
        assert!(over < Duration::from_secs(1), "{over:?}");
    }
    let (origin, key) = (Origin::default(), key("/"));
    one.obtain(&key, &origin).await;
    one.stored(1).await;
    assert_eq!(other.obtain(&key, &origin).await, "any 1");
    assert_eq!(origin.loads.load(Ordering::SeqCst), 1);
}
