//! Redis slowed: what a miss and a hit there cost one caller, and five hundred.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use forebay_core::{Demand, Key, KeyBuf, Lifetime, Meta};
use forebay_engine::{
    Audience, Clock as _, Coalesce, Content, Credentials, Engine, Entry, Head, HeadCodec, Limits,
    Load, LoadError, Loaded, Lookup, LookupResult, Select, SystemClock, Tier,
};
use forebay_redis::{EndpointSettings, Redis, Settings};
use forebay_testkit::client::{Request, Timings, crowd};
use forebay_testkit::faults::{FaultProxy, Faults};
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use futures_util::future::join_all;

use super::ground::{self, LOOK_GAP, Row, Scale, ms, put};

/// Callers at once.
const CROWD: usize = 500;

/// Delay of the origin: long compared with five hundred HTTP responses.
const ORIGIN: Duration = Duration::from_millis(500);

/// By how much Redis is slowed: within its time, and beyond it.
const WITHIN: Duration = Duration::from_millis(30);
const BEYOND: Duration = Duration::from_millis(200);
const READ_TIMEOUT: Duration = Duration::from_millis(50);

const LATE_MAX: Duration = Duration::from_millis(5);

/// Maximum additional wait of five hundred clients over one.
const CROWD_MAX: f64 = 1.05;

/// Additional wait that shows a second wait for Redis. At half a second, nothing less is
/// promised: what five hundred HTTP answers take here is part of the figure.
const TWO_WAITS: f64 = 2.0;

/// A cold miss, alone and of a crowd.
pub(crate) async fn misses(binary: &Path, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for slowed in [WITHIN, BEYOND] {
        rows.push(miss(binary, scale, slowed).await?);
    }
    Ok(rows)
}

async fn miss(binary: &Path, scale: Scale, slowed: Duration) -> anyhow::Result<Row> {
    let (origin, redis) = (ground::origin(ORIGIN).await?, RedisLaunch::new().start().await?);
    let mut plain = ground::cache(binary, &origin, "", &[]).await?;
    let (mut singles, mut ratios) = (Vec::new(), Vec::new());
    let mut loads = 0;
    for round in 0..scale.rounds {
        let proxy = FaultProxy::start(redis.address()).await?;
        let url = format!("redis://{}", proxy.address());
        let mut cache = ground::cache(binary, &origin, "", &["--redis", &url]).await?;
        cache.wait_state("ready").await?;
        let path = format!("/{}/{round}", slowed.as_millis());
        let alone = plain.timed(&format!("{path}/alone")).await?;
        proxy.set(Faults::delayed(slowed));
        let single = cache.timed(&format!("{path}/single")).await?;
        singles.push(single.saturating_sub(alone));
        let address = cache.process.address();
        let hits = crowd(CROWD, address, |_| Request::get(&format!("{path}/single"))).await?;
        let hits = Timings::of_ends(&hits).p99();
        let before = origin.requests();
        let replies = crowd(CROWD, address, |_| Request::get(&format!("{path}/crowd"))).await?;
        ensure!(replies.iter().all(|reply| reply.status == 200), "not everybody was answered");
        loads += origin.requests() - before;
        let alike = (single + hits).as_secs_f64();
        ratios.push(Timings::of_ends(&replies).p99().as_secs_f64() / alike);
    }
    ratios.sort_by(f64::total_cmp);
    let (late, ratio) = (Timings::new(singles).p50(), ratios[ratios.len() / 2]);
    let allowed = slowed.min(READ_TIMEOUT) + LATE_MAX;
    Ok(Row {
        case: format!("slowed by {}: cold miss", ms(slowed)),
        measured: format!(
            "origin + {}; {CROWD}: {ratio:.3} x one and {CROWD} hits, {loads} loads in {} rounds",
            ms(late),
            scale.rounds
        ),
        bound: format!("origin + {}; {CROWD_MAX} x, 1 load", ms(allowed)),
        counted: loads == scale.rounds as u64,
        timed: late <= allowed && ratio <= CROWD_MAX,
    })
}

/// A hit in Redis, alone and of a crowd, through the engine itself: five hundred HTTP answers take
/// two cores longer than what is measured here.
pub(crate) async fn hits(_: &Path, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let redis = RedisLaunch::new().start().await?;
    let (mut singles, mut ratios, mut reads, mut loads) = (Vec::new(), Vec::new(), 0, 0);
    for round in 0..scale.rounds {
        let proxy = FaultProxy::start(redis.address()).await?;
        let instance = Instance::start(&redis, &proxy).await?;
        let (alone, crowded) = (key(&format!("/alone/{round}")), key(&format!("/{round}")));
        instance.fill(&[&alone, &crowded]).await?;
        proxy.set(Faults::delayed(WITHIN));
        let begun = Instant::now();
        instance.obtain(&alone).await?;
        let single = begun.elapsed();
        let before = instance.tier.counts().hits;
        let begun = Instant::now();
        let crowd = join_all((0..CROWD).map(|_| instance.obtain(&crowded))).await;
        ratios.push(begun.elapsed().as_secs_f64() / single.as_secs_f64());
        crowd.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        singles.push(single);
        reads += instance.tier.counts().hits - before;
        loads += instance.loads();
    }
    ratios.sort_by(f64::total_cmp);
    let (single, ratio) = (Timings::new(singles).p50(), ratios[ratios.len() / 2]);
    Ok(vec![Row {
        case: format!("slowed by {}: hit in Redis x {CROWD}", ms(WITHIN)),
        measured: format!(
            "{}; {ratio:.3} x; {reads} reads and {loads} loads in {} rounds",
            ms(single),
            scale.rounds
        ),
        bound: format!("{CROWD_MAX} x, 1 read"),
        counted: reads == scale.rounds as u64 && loads == 0,
        timed: ratio <= CROWD_MAX,
    }])
}

/// A hit half a second away, where that was allowed.
pub(crate) async fn far_hits(binary: &Path, scale: Scale) -> anyhow::Result<Vec<Row>> {
    const AWAY: Duration = Duration::from_millis(500);
    let (origin, redis) = (ground::origin(LOOK_GAP).await?, RedisLaunch::new().start().await?);
    let proxy = FaultProxy::start(redis.address()).await?;
    let top = format!(
        "[redis]\nurl = \"redis://{}\"\nread_timeout = \"{}\"\nwrite_timeout = \"2s\"\n",
        proxy.address(),
        scale.far_timeout
    );
    let mut filler = ground::sharing(binary, &origin, &redis, scale.patience).await?;
    let mut cache = ground::configured(binary, &origin, &top).await?;
    let (mut singles, mut crowds) = (Vec::new(), Vec::new());
    for round in 0..scale.rounds {
        filler.get(&format!("/{round}")).await?;
        filler.get(&format!("/crowd/{round}")).await?;
    }
    filler.wait_stored(2 * scale.rounds as u64).await?;
    let loads = origin.requests();
    proxy.set(Faults::delayed(AWAY));
    for round in 0..scale.rounds {
        singles.push(cache.timed(&format!("/{round}")).await?);
        let address = cache.process.address();
        let replies = crowd(CROWD, address, |_| Request::get(&format!("/crowd/{round}"))).await?;
        crowds.push(Timings::of_ends(&replies).p99());
    }
    let reads = cache.hits().await?;
    let counted = origin.requests() == loads && reads == 2 * scale.rounds as u64;
    let (single, many) = (Timings::new(singles).p50(), Timings::new(crowds).p50());
    let ratio = many.as_secs_f64() / single.as_secs_f64();
    Ok(vec![Row {
        case: format!("slowed by {}, read_timeout {}: hit", ms(AWAY), scale.far_timeout),
        measured: format!("{}; {CROWD}: {ratio:.3} x; {reads} reads", ms(single)),
        bound: format!("{}; one wait; a read a key", ms(AWAY + LATE_MAX)),
        counted,
        timed: single <= AWAY + LATE_MAX && ratio < TWO_WAITS,
    }])
}

/// An engine of its own above Redis.
struct Instance {
    engine: Arc<Engine>,
    tier: Redis,
    filler: Redis,
    origin: Counted,
}

/// An origin that counts, and is not to be asked.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl Select for Counted {
    fn field(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
}

impl HeadCodec for Counted {}

impl Load for Counted {
    async fn load(&self, _: Option<Arc<Entry>>, _: Audience) -> Result<Loaded, LoadError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let (head, content) = (Head::new(Bytes::new()), Content::Whole(Bytes::new()));
        Ok(Loaded::Entry { meta: fresh(), head, content })
    }
}

fn fresh() -> Meta {
    Meta::new(SystemClock.now(), Lifetime::fresh(Duration::from_secs(60)))
}

pub(crate) fn key(path: &str) -> Key {
    let mut key = KeyBuf::new("site");
    key.part(path.as_bytes());
    key.borrowed().to_key()
}

impl Instance {
    async fn start(redis: &RedisServer, proxy: &FaultProxy) -> anyhow::Result<Self> {
        let url = format!("redis://{}", proxy.address());
        let (filler, tier) = (connect(&redis.url()).await?, connect(&url).await?);
        let tiers: Vec<Arc<dyn Tier>> = vec![Arc::new(tier.clone())];
        let clock = Arc::new(SystemClock);
        let engine = Engine::with_tiers(Limits::of(64 << 20), clock, Arc::new(()), tiers);
        Ok(Self { engine, tier, filler, origin: Counted::default() })
    }

    async fn fill(&self, keys: &[&Key]) -> anyhow::Result<()> {
        for key in keys {
            put(&self.filler, key.borrowed(), Bytes::from_static(b"body")).await?;
        }
        Ok(())
    }

    async fn obtain(&self, key: &Key) -> anyhow::Result<()> {
        let demand = Demand { beta: 0.0, ..Demand::default() };
        let ask = Lookup {
            key: key.borrowed(),
            demand: &demand,
            select: &self.origin,
            credentials: Credentials::Anonymous,
            coalesce: Coalesce::Cluster,
        };
        if let LookupResult::Miss(miss) = self.engine.lookup(&ask) {
            miss.load(&self.engine, &ask, self.origin.clone()).await.context("load")?;
        }
        Ok(())
    }

    fn loads(&self) -> usize {
        self.origin.0.load(Ordering::SeqCst)
    }
}

/// With time limits that a busy machine does not reach: a read that timed out would be a load.
async fn connect(url: &str) -> anyhow::Result<Redis> {
    let mut endpoint = EndpointSettings::at(url);
    endpoint.read_timeout = Duration::from_secs(2);
    endpoint.write_timeout = Duration::from_secs(2);
    connected(Settings::new(endpoint)).await
}

/// A tier whose server answers.
pub(crate) async fn connected(settings: Settings) -> anyhow::Result<Redis> {
    let tier = Redis::connect(settings, Arc::new(SystemClock), Arc::new(()))?;
    let begun = Instant::now();
    while !tier.endpoints()[0].is_up {
        ensure!(begun.elapsed() < Duration::from_secs(10), "no server answers");
        tokio::time::sleep(LOOK_GAP).await;
    }
    Ok(tier)
}
