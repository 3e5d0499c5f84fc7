//! Benchmarks of a hit without HTTP: memory tier, freshness and engine.

use std::borrow::Cow;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use forebay_core::{Demand, Key, KeyBuf, Lifetime, Meta, PurgeState, Vary, Verdict, judge};
use forebay_engine::clock::ThreadDice;
use forebay_engine::{
    Audience, Body, Clock, Coalesce, Content, Credentials, Engine, Entry, Head, HeadCodec, Limits,
    Load, LoadError, Loaded, Lookup, LookupResult, MemoryTier, Select, Source, SystemClock,
};
use forebay_http::Metrics;

use crate::{Run, measured};

/// Number of keys, requested in turn. The hash seeds differ in every run, and with them the search
/// among keys in one bucket; many keys even that out.
const KEYS: usize = 1_024;

const MEMORY: u64 = 64 << 20;
const BODY: usize = 1_024;

/// Lifetime: long enough that no run under a profiler reaches the time of early refreshes.
const FRESH: Duration = Duration::from_secs(3_600);

/// Start time: not zero, and not whole seconds, for which the calculation is shorter.
const AGE: Duration = Duration::from_millis(1_500);

/// Fields that select a variant, with their values in the request.
const SELECTING: [(&str, &str); 2] = [("accept-encoding", "gzip, br"), ("accept-language", "de")];

fn keys() -> Vec<Key> {
    let key = |number: usize| {
        let mut key = KeyBuf::new("default");
        key.part(b"http").part(b"shop.example");
        key.part(format!("/products/{number:04}?lang=en").as_bytes());
        key.borrowed().to_key()
    };
    (0..KEYS).map(key).collect()
}

fn meta() -> Meta {
    let cost = Duration::from_millis(5);
    let mut meta = Meta::new(SystemClock.now().minus(AGE), Lifetime::fresh(FRESH));
    meta.set_load_cost(cost);
    meta
}

fn fill(memory: &MemoryTier, keys: &[Key]) -> Result<()> {
    for key in keys {
        let body = Body::whole(Bytes::from(vec![b'x'; BODY]));
        let entry = Entry::new(meta(), Head::default(), body);
        ensure!(memory.put(key.clone(), Arc::new(entry)), "an entry of 1 KiB is too large");
    }
    Ok(())
}

fn engine() -> Arc<Engine> {
    Engine::new(Limits::of(MEMORY), Arc::new(SystemClock), Arc::new(Metrics::new()))
}

fn ask<'a>(key: &'a Key, demand: &'a Demand, select: &'a dyn Select) -> Lookup<'a> {
    let credentials = Credentials::Anonymous;
    Lookup { key: key.borrowed(), demand, select, credentials, coalesce: Coalesce::Cluster }
}

/// Case: one lookup in the memory tier, including dropping the entry's reference.
pub(crate) fn memory_get(times: usize) -> Result<Run> {
    let (engine, keys) = (engine(), keys());
    fill(engine.memory(), &keys)?;
    let is_there = move |key: &Key| engine.memory().get(black_box(key.borrowed())).is_some();
    Ok(Box::new(move || measured(|| cycled(&keys, times).filter(|key| is_there(key)).count())))
}

/// Case: one verdict on a fresh entry.
pub(crate) fn judge_fresh(times: usize) -> Result<Run> {
    let (meta, demand) = (meta(), Demand::default());
    let now = meta.born.plus(AGE);
    let is_served = move || {
        let (meta, demand) = black_box((&meta, &demand));
        judge(meta, demand, PurgeState::Valid, now, &mut ThreadDice) == Verdict::Serve
    };
    Ok(Box::new(move || measured(|| (0..times).filter(|_| black_box(is_served())).count())))
}

/// Case: one engine lookup that finds a fresh entry: memory, clock, purges, freshness.
pub(crate) fn look(times: usize) -> Result<Run> {
    let (engine, keys) = (engine(), keys());
    fill(engine.memory(), &keys)?;
    Ok(looks(engine, keys, times, ()))
}

/// Case: one engine lookup among variants selected by two fields.
pub(crate) fn look_variant(times: usize) -> Result<Run> {
    let (engine, keys) = (engine(), keys());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        for key in &keys {
            let demand = Demand::default();
            let lookup = ask(key, &demand, &Asker);
            let obtained = match engine.lookup(&lookup) {
                LookupResult::Hit(outcome) => outcome,
                LookupResult::Miss(miss) => miss.load(&engine, &lookup, Asker).await?,
            };
            ensure!(
                matches!(obtained.source, Source::Led { stored: true, .. }),
                "{:?}",
                obtained.source
            );
        }
        Ok(())
    })?;
    Ok(looks(engine, keys, times, Asker))
}

fn looks(engine: Arc<Engine>, keys: Vec<Key>, times: usize, select: impl Select + 'static) -> Run {
    let demand = Demand::default();
    let is_hit = move |key: &Key| is_fresh_hit(&engine.lookup(&ask(key, &demand, &select)));
    Box::new(move || measured(|| cycled(&keys, times).filter(|key| is_hit(key)).count()))
}

fn cycled(keys: &[Key], times: usize) -> impl Iterator<Item = &Key> {
    keys.iter().cycle().take(times)
}

fn is_fresh_hit(look: &LookupResult) -> bool {
    matches!(look, LookupResult::Hit(obtained) if obtained.why.is_none())
}

/// Request with both selecting fields, and a response that varies by them.
#[derive(Clone)]
struct Asker;

impl Select for Asker {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let found = SELECTING.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| Cow::Borrowed(value.as_bytes()))
    }
}

impl HeadCodec for Asker {}

impl Load for Asker {
    async fn load(
        &self,
        _prior: Option<Arc<Entry>>,
        _company: Audience,
    ) -> Result<Loaded, LoadError> {
        let vary = Vary::new(SELECTING.map(|(name, _)| name));
        let vary = Some(vary.context("two names are some").map_err(LoadError::origin)?);
        let content = Content::Whole(Bytes::from(vec![b'x'; BODY]));
        let mut meta = meta();
        meta.set_vary(vary);
        Ok(Loaded::Entry { meta, head: Head::default(), content })
    }
}
