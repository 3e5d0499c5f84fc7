//! Whole requests: lookup, join, load, store, announce.

mod leaders;
mod truth;

use std::borrow::Cow;

use forebay_core::{Demand, TagSet, Vary, WallTime};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use shuttle::future::yield_now;
use shuttle::rand::{Rng, thread_rng};

use super::*;
use crate::entry::select::{Credentials, Select};
use crate::flight::load::{Audience, HeadCodec, Load, LoadError, Loaded};
use crate::lookup::{Coalesce, Lookup, LookupResult, Outcome};
use crate::runtime::sync::finish_tasks;
use crate::{Clock, Content, Engine, Limits};

const SITE: &str = "test";
const TAG: &str = "red";
const LANGUAGE: &str = "accept-language";

/// Time does not pass.
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_000_000)
    }

    fn wall(&self) -> WallTime {
        WallTime::from_secs(1_000)
    }

    fn exact(&self) -> Duration {
        Duration::ZERO
    }
}

fn engine() -> Arc<Engine> {
    engine_with(1 << 10)
}

/// Creates an engine with memory for all bodies: a wait for memory needs a timer, which does not
/// run here.
fn engine_with(object_max: u64) -> Arc<Engine> {
    let limits = Limits { object_max, in_flight_max: 32 << 20, ..Limits::of(64 << 20) };
    Engine::new(limits, Arc::new(Still), Arc::new(()))
}

type Answer = Result<Loaded, LoadError>;

/// An origin that answers by script.
#[derive(Clone)]
struct Origin {
    script: Arc<Script>,
    /// Value of the selecting field in its requests.
    language: &'static str,
}

/// Function that gets the prior entry of a load and returns the answer.
type Script = dyn Fn(Option<Arc<Entry>>) -> BoxFuture<'static, Answer> + Send + Sync;

impl Origin {
    fn new<A: Future<Output = Answer> + Send + 'static>(
        script: impl Fn(Option<Arc<Entry>>) -> A + Send + Sync + 'static,
    ) -> Self {
        Self { script: Arc::new(move |prior| script(prior).boxed()), language: "" }
    }
}

impl Select for Origin {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        (name == LANGUAGE).then_some(Cow::Borrowed(self.language.as_bytes()))
    }
}

impl HeadCodec for Origin {}

impl Load for Origin {
    fn load(
        &self,
        prior: Option<Arc<Entry>>,
        _company: Audience,
    ) -> impl Future<Output = Answer> + Send {
        (self.script)(prior)
    }
}

async fn obtain(engine: Arc<Engine>, origin: Origin) -> Result<Outcome, LoadError> {
    let (key, demand) = (key(), Demand::default());
    answer_to(&engine, &ask(&key, &demand, &origin), origin.clone()).await
}

/// Looks an entry up, and loads it if memory does not answer.
async fn answer_to(
    engine: &Arc<Engine>,
    lookup: &Lookup<'_>,
    load: Origin,
) -> Result<Outcome, LoadError> {
    match engine.lookup(lookup) {
        LookupResult::Hit(outcome) => Ok(outcome),
        LookupResult::Miss(miss) => miss.load(engine, lookup, load).await,
    }
}

fn ask<'a>(key: &'a Key, demand: &'a Demand, select: &'a dyn Select) -> Lookup<'a> {
    let credentials = Credentials::Anonymous;
    Lookup { key: key.borrowed(), demand, select, credentials, coalesce: Coalesce::Cluster }
}

fn meta() -> Meta {
    let mut meta = Meta::new(Still.now(), Lifetime::fresh(Duration::from_secs(60)));
    meta.set_tags(TagSet::new([TAG]));
    meta
}

/// An answer that is one number, all at once or in two pieces.
fn answer(number: u64, in_pieces: bool) -> Loaded {
    let mut bytes = Bytes::copy_from_slice(&number.to_le_bytes());
    let content = if in_pieces {
        let first = bytes.split_to(4);
        let rest = async {
            yield_now().await;
            Ok(bytes)
        };
        let pieces = stream::once(async { Ok(first) }).chain(stream::once(rest));
        Content::Stream(pieces.boxed())
    } else {
        Content::Whole(bytes)
    };
    Loaded::Entry { meta: meta(), head: Head::default(), content }
}

/// Makes an answer a variant, selected by the language of the request.
fn varying(answer: Loaded) -> Loaded {
    let Loaded::Entry { mut meta, head, content } = answer else { panic!("nothing to select") };
    meta.set_vary(Vary::new([LANGUAGE]));
    Loaded::Entry { meta, head, content }
}

async fn number_from(obtained: &Outcome) -> u64 {
    number_in(&obtained.entry.body.reader().collect().await.expect("it does not break"))
}

/// Waits until no flight is in progress, and checks that none has left memory charged.
fn settle(engine: &Engine) {
    finish_tasks();
    assert_eq!((engine.traffic().flights, engine.traffic().in_flight_bytes), (0, 0));
}

/// Returns the number in the stored entry, whose body must be complete.
fn stored(engine: &Engine) -> Option<u64> {
    engine.memory().get(key().borrowed()).map(|entry| number_of(&entry))
}

/// Returns the number that a caller gets from memory now, without a load.
fn answer_without_load(engine: &Engine, origin: &Origin) -> Option<u64> {
    let (key, demand) = (key(), Demand::default());
    match engine.lookup(&ask(&key, &demand, origin)) {
        LookupResult::Hit(obtained) => Some(number_of(&obtained.entry)),
        LookupResult::Miss(_) => None,
    }
}

/// A load takes many steps, and with a scheduler that takes any task all callers would come in its
/// first few.
async fn come_when_it_may() {
    for _ in 0..thread_rng().gen_range(0..4) * 64 {
        yield_now().await;
    }
}

/// Takes its time, so that others come to things that take many steps.
async fn pause() {
    for _ in 0..thread_rng().gen_range(0..32) {
        yield_now().await;
    }
}
