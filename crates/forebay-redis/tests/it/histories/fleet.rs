//! Engines that share a server, each over a breakable link.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{Key, Meta, TagSet, WhenBlind};
use forebay_engine::{
    Audience, BusStatus, Cluster, Content, Engine, Entry, Head, HeadCodec, Limits, Load, LoadError,
    Loaded, Select, Source, SystemClock, Tier,
};
use forebay_redis::{EndpointSettings, Settings, SharingSettings};
use forebay_testkit::faults::{FaultProxy, Faults};
use forebay_testkit::history::Truth;
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;

use super::Chance;
use crate::fixture::{Fixture, meta, obtained_via, server, until_later};

/// Namespace of all keys.
pub(super) const SITE: &str = "site";

/// Longer than any test.
const FRESH: Duration = Duration::from_secs(3_600);

pub(super) fn tagged(tag: &str) -> Meta {
    let mut meta = meta(FRESH);
    meta.set_tags(TagSet::new([tag]));
    meta
}

/// An origin that returns the current version of a key, after a delay.
#[derive(Clone)]
pub(super) struct Origin {
    truths: Arc<Vec<Truth>>,
    which: usize,
    tag: String,
    millis: u64,
}

impl Origin {
    pub(super) fn new(truths: &Arc<Vec<Truth>>, which: usize, tag: String, millis: u64) -> Self {
        Self { truths: truths.clone(), which, tag, millis }
    }
}

impl Select for Origin {
    fn field(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
}

impl HeadCodec for Origin {}

impl Load for Origin {
    async fn load(&self, _: Option<Arc<Entry>>, _: Audience) -> Result<Loaded, LoadError> {
        let meta = tagged(&self.tag);
        until_later(Duration::from_millis(self.millis)).await;
        let version = self.truths[self.which].version();
        until_later(Duration::from_millis(self.millis)).await;
        let content = Content::Whole(version.to_string().into());
        Ok(Loaded::Entry { meta, head: Head::default(), content })
    }
}

/// An engine with its tier.
pub(super) struct Instance {
    pub(super) engine: Arc<Engine>,
    /// Unique number of the process.
    pub(super) life: u64,
    _world: Fixture,
}

impl Instance {
    async fn new(proxy: &FaultProxy, when_blind: WhenBlind, life: u64) -> Arc<Self> {
        let url = format!("redis://{}", proxy.address());
        let sharing = Some(SharingSettings::default());
        let settings = Settings { sharing, ..Settings::new(EndpointSettings::at(url)) };
        let fixture = Fixture::connect(settings);
        let tier = Arc::new(fixture.tier.clone());
        let cluster = Cluster { when_blind, ..Cluster::new(tier.clone(), tier.clone()) };
        let tiers: Vec<Arc<dyn Tier>> = vec![tier];
        let engine = Engine::clustered(
            Limits::of(64 << 20),
            Arc::new(SystemClock),
            Arc::new(()),
            tiers,
            cluster,
        );
        Arc::new(Self { engine, life, _world: fixture })
    }

    /// Returns the source and the version.
    pub(super) async fn obtain(&self, key: &Key, origin: &Origin) -> (Source, u64) {
        let (source, version) = obtained_via(&self.engine, key.borrowed(), origin).await;
        (source, version.parse().expect("a version"))
    }

    /// True if all purges of this engine were published.
    pub(super) fn is_heard(&self) -> bool {
        self.engine.bus_status().is_some_and(|BusStatus { unpublished, .. }| unpublished == 0)
    }

    pub(super) fn hears(&self) -> bool {
        self.engine.bus_status().is_some_and(|BusStatus { connected, .. }| connected)
    }
}

/// A link and its current engine.
struct Place {
    proxy: FaultProxy,
    instance: Mutex<Arc<Instance>>,
}

/// All engines and their server.
pub(super) struct Fleet {
    server: Turn<Option<RedisServer>>,
    places: Vec<Place>,
    when_blind: WhenBlind,
    lives: AtomicU64,
}

impl Fleet {
    pub(super) async fn new(count: u64, when_blind: WhenBlind) -> Self {
        let server = server().await;
        let mut places = Vec::new();
        for life in 0..count {
            let proxy = FaultProxy::start(server.address()).await.unwrap();
            let instance = Mutex::new(Instance::new(&proxy, when_blind, life).await);
            places.push(Place { proxy, instance });
        }
        let server = Turn::new(Some(server));
        let fleet = Self { server, places, when_blind, lives: AtomicU64::new(count) };
        for place in 0..fleet.places.len() {
            fleet.heard(place).await;
        }
        fleet
    }

    pub(super) fn at(&self, place: usize) -> Arc<Instance> {
        self.places[place].instance.lock().clone()
    }

    pub(super) fn some(&self, chance: &Chance) -> Arc<Instance> {
        self.at(chance.one_of(self.places.len()))
    }

    /// Waits until the engine's bus is connected.
    pub(super) async fn heard(&self, place: usize) {
        let heard = async {
            while !self.at(place).hears() {
                until_later(super::LOOK_GAP).await;
            }
        };
        tokio::time::timeout(super::PATIENCE, heard).await.expect("it hears in time");
    }

    /// Applies faults to a link for a while.
    pub(super) async fn troubled(&self, place: usize, faults: Faults, long: Duration) {
        let proxy = &self.places[place].proxy;
        proxy.set(faults);
        until_later(long).await;
        proxy.set(Faults::default());
    }

    /// Resets the connections of a link and applies faults for a while.
    pub(super) async fn cut(&self, place: usize, faults: Faults, long: Duration) {
        self.places[place].proxy.set(faults);
        self.places[place].proxy.reset_all();
        self.troubled(place, faults, long).await;
    }

    /// Replaces an engine by a new one with empty memory.
    pub(super) async fn begin_anew(&self, place: usize) {
        let life = self.lives.fetch_add(1, Ordering::SeqCst);
        let Place { proxy, instance } = &self.places[place];
        proxy.reset_all();
        let begun = Instance::new(proxy, self.when_blind, life).await;
        *instance.lock() = begun;
    }

    /// Deletes all keys of the server.
    pub(super) async fn flush(&self) {
        let server = self.server.lock().await;
        server.as_ref().expect("it runs").ask(&["FLUSHALL"]).await.unwrap();
    }

    /// Kills the server and starts an empty one on the same port.
    pub(super) async fn restart(&self) {
        let mut server = self.server.lock().await;
        let port = server.take().expect("it runs").kill().await.unwrap();
        *server = Some(RedisLaunch::new().port(port).start().await.unwrap());
    }
}
