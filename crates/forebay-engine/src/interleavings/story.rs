//! The story of a demand, from the look to the answer, over and over.

use std::borrow::Cow;
use std::panic::resume_unwind;

use forebay_core::{Demand, Purge, Reach, TagSet, Vary, WallTime};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use shuttle::future::yield_now;
use shuttle::rand::{Rng, thread_rng};

use super::*;
use crate::load::{Company, Load, LoadError, Loaded, Select, Source};
use crate::obtain::{Ask, Coalesce, Credentials, Look, Obtained};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::finish_tasks;
use crate::{BrokenBody, Clock, Engine, Limits, Via};
use std::sync::atomic::AtomicBool;

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

/// There is room for all: waiting for it takes a timer, and there is none here.
fn engine_with(object_max: u64) -> Arc<Engine> {
    let limits = Limits { object_max, in_flight_max: 32 << 20, ..Limits::of(64 << 20) };
    Engine::new(limits, Arc::new(Still), Arc::new(()))
}

type Answer = Result<Loaded, LoadError>;

/// An origin that answers by script.
#[derive(Clone)]
struct Origin {
    script: Arc<Script>,
    /// What its requests select.
    language: &'static str,
}

/// What is stored goes in.
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

impl Load for Origin {
    fn load(
        &self,
        prior: Option<Arc<Entry>>,
        _company: Company,
    ) -> impl Future<Output = Answer> + Send {
        (self.script)(prior)
    }
}

async fn obtain(engine: Arc<Engine>, origin: Origin) -> Result<Obtained, LoadError> {
    let (key, demand) = (key(), Demand::default());
    engine.obtain(&ask(&key, &demand, &origin), origin.clone()).await
}

fn ask<'a>(key: &'a Key, demand: &'a Demand, select: &'a dyn Select) -> Ask<'a> {
    let credentials = Credentials::Anonymous;
    Ask { key: key.borrowed(), demand, select, credentials, coalesce: Coalesce::Everywhere }
}

fn meta() -> Meta {
    let mut meta = Meta::new(Still.now(), Lifetime::fresh(Duration::from_secs(60)));
    meta.set_tags(TagSet::new([TAG]));
    meta
}

/// An answer that is one number, all at once or in two pieces.
fn answer(number: u64, in_pieces: bool) -> Loaded {
    let mut bytes = Bytes::copy_from_slice(&number.to_le_bytes());
    let source = if in_pieces {
        let first = bytes.split_to(4);
        let rest = async {
            yield_now().await;
            Ok(bytes)
        };
        let pieces = stream::once(async { Ok(first) }).chain(stream::once(rest));
        Source::Stream(pieces.boxed())
    } else {
        Source::Whole(bytes)
    };
    Loaded::Entry { meta: meta(), head: Head::default(), source }
}

/// The same answer, for those alone who select as its request did.
fn varying(answer: Loaded) -> Loaded {
    let Loaded::Entry { mut meta, head, source } = answer else { panic!("nothing to select") };
    meta.set_vary(Vary::new([LANGUAGE]));
    Loaded::Entry { meta, head, source }
}

async fn number_from(obtained: &Obtained) -> u64 {
    number_in(&obtained.entry.body.reader().collect().await.expect("it does not break"))
}

/// Waits until nothing flies any more. Then nothing may be left of it.
fn settle(engine: &Engine) {
    finish_tasks();
    assert_eq!((engine.traffic().flights, engine.traffic().in_flight_bytes), (0, 0));
}

/// What memory holds is whole.
fn stored(engine: &Engine) -> Option<u64> {
    engine.memory().get(key().borrowed()).map(|entry| number_of(&entry))
}

/// What a caller would be given now, without a load.
fn at_hand(engine: &Engine, origin: &Origin) -> Option<u64> {
    let (key, demand) = (key(), Demand::default());
    match engine.look(&ask(&key, &demand, origin)) {
        Look::Served(obtained) => Some(number_of(&obtained.entry)),
        Look::Wanting(_) => None,
    }
}

/// Invariants 2 and 3: the re-check of the leader.
///
/// 1. A: looks (miss)   2. B: looks (miss)   3. A: boards, loads, stores, leaves
/// 4. B: boards, and would load again
#[test]
fn a_cold_key_is_loaded_once_whoever_comes_when() {
    explore(&["led", "followed", "hit"], |seen| {
        let (engine, loads) = (engine(), Arc::new(AtomicU64::new(0)));
        let in_pieces = thread_rng().gen_bool(0.5);
        let origin = Origin::new({
            let loads = loads.clone();
            move |_| {
                let number = loads.fetch_add(1, Ordering::SeqCst);
                async move { Ok(answer(number, in_pieces)) }
            }
        });
        let caller = |_| {
            let (engine, origin, seen) = (engine.clone(), origin.clone(), seen.clone());
            spawn(async move {
                come_when_it_may().await;
                let obtained = obtain(engine.clone(), origin).await.expect("an answer");
                seen.note(match obtained.via {
                    Via::Led { .. } => "led",
                    Via::Followed => "followed",
                    _ => "hit",
                });
                assert!(stored(&engine).is_none_or(|number| number == 0));
                assert_eq!(number_from(&obtained).await, 0);
            })
        };
        join((0..3).map(caller));
        settle(&engine);
        assert_eq!((loads.load(Ordering::SeqCst), stored(&engine)), (1, Some(0)));
    });
}

/// Invariant 2: who is told of a body finds all of it, also if nobody keeps it; who is told too
/// late is told that, and leads the next.
///
/// 1. A: leads, lands   2. the body flows on   3. A, or B who waited: begins to read, behind a gap
#[test]
fn a_body_that_nobody_keeps_reaches_all_who_are_told_of_it() {
    explore(&["led", "followed"], |seen| {
        let (engine, loads) = (engine_with(1), Arc::new(AtomicU64::new(0)));
        let origin = Origin::new({
            let loads = loads.clone();
            move |_| {
                let number = loads.fetch_add(1, Ordering::SeqCst);
                async move { Ok(answer(number, true)) }
            }
        });
        let caller = |_| {
            let (engine, origin, seen) = (engine.clone(), origin.clone(), seen.clone());
            spawn(async move {
                let obtained = obtain(engine, origin).await.expect("an answer");
                seen.note(if obtained.via == Via::Followed { "followed" } else { "led" });
                assert!(number_from(&obtained).await < 3);
            })
        };
        join((0..3).map(caller));
        settle(&engine);
        assert_eq!(stored(&engine), None, "it was too large to keep");
    });
}

/// Invariants 3 and 7: nothing is known of the variants, and each is loaded once all the same.
///
/// 1. A, B: lead and follow under the primary key   2. A: lands "de", names the family
/// 3. B: wants "fr", looks again   4. C: wants "fr", finds the family, boards under another key
#[test]
fn cold_variants_are_loaded_once_each_and_given_to_whom_they_are_for() {
    explore(&["led", "followed"], |seen| {
        let (engine, loads) = (engine(), Arc::new(AtomicU64::new(0)));
        let in_pieces = thread_rng().gen_bool(0.5);
        let origin = |language: &'static str, number| {
            let loads = loads.clone();
            let origin = Origin::new(move |_| {
                loads.fetch_add(1, Ordering::SeqCst);
                async move { Ok(varying(answer(number, in_pieces))) }
            });
            Origin { language, ..origin }
        };
        let caller = |(language, number): (&'static str, u64)| {
            let (engine, origin, seen) = (engine.clone(), origin(language, number), seen.clone());
            spawn(async move {
                pause().await;
                let obtained = obtain(engine, origin).await.expect("an answer");
                seen.note(if obtained.via == Via::Followed { "followed" } else { "led" });
                assert_eq!(number_from(&obtained).await, number, "{language}");
            })
        };
        join([("de", 1), ("fr", 2), ("fr", 2)].map(caller));
        settle(&engine);
        assert_eq!(loads.load(Ordering::SeqCst), 2);
        for (language, number) in [("de", 1), ("fr", 2)] {
            assert_eq!(at_hand(&engine, &origin(language, number)), Some(number));
        }
    });
}

/// Invariant 4.
///
/// 1. A: leads, its load departs   2. B: follows   3. A: goes away   4. the load goes on, for B
///
/// And: A boards, and goes away before anything departs; B waits for nobody.
#[test]
fn a_caller_that_goes_away_loses_no_flight() {
    explore(&["went away", "led", "followed"], |seen| {
        let (engine, loads) = (engine(), Arc::new(AtomicU64::new(0)));
        let origin = Origin::new({
            let loads = loads.clone();
            move |_| {
                let number = loads.fetch_add(1, Ordering::SeqCst);
                async move {
                    yield_now().await;
                    Ok(answer(number, false))
                }
            }
        });
        let goes = {
            let (engine, origin, seen) = (engine.clone(), origin.clone(), seen.clone());
            spawn(async move {
                let mut obtaining = Box::pin(obtain(engine, origin));
                if at_once(&mut obtaining).await.is_none() {
                    seen.note("went away");
                }
            })
        };
        let stay = |_| {
            let (engine, origin, seen) = (engine.clone(), origin.clone(), seen.clone());
            spawn(async move {
                let obtained = obtain(engine, origin).await.expect("an answer");
                seen.note(if obtained.via == Via::Followed { "followed" } else { "led" });
                assert_eq!(number_from(&obtained).await, 0);
            })
        };
        let stay: Vec<_> = (0..2).map(stay).collect();
        join(stay.into_iter().chain([goes]));
        settle(&engine);
        assert_eq!(loads.load(Ordering::SeqCst), 1);
    });
}

/// Invariant 4.
///
/// 1. A: leads   2. B: follows   3. A's load panics   4. B: waits for ever, or the key is never
///    loaded again
#[test]
fn a_load_that_panics_is_told_to_all_and_frees_the_seat() {
    explore(&["told", "loaded"], |seen| {
        let (engine, loads) = (engine(), Arc::new(AtomicU64::new(0)));
        let origin = Origin::new({
            let loads = loads.clone();
            move |_| {
                let first = loads.fetch_add(1, Ordering::SeqCst) == 0;
                async move {
                    yield_now().await;
                    if first {
                        resume_unwind(Box::new("the loader"));
                    }
                    Ok(answer(1, false))
                }
            }
        });
        let caller = |_| {
            let (engine, origin, seen) = (engine.clone(), origin.clone(), seen.clone());
            spawn(async move {
                match obtain(engine.clone(), origin.clone()).await {
                    Ok(obtained) => assert_eq!(number_from(&obtained).await, 1),
                    Err(LoadError::Panicked(_)) => {
                        seen.note("told");
                        let again = obtain(engine, origin).await;
                        match again {
                            Ok(again) => assert_eq!(number_from(&again).await, 1),
                            Err(error) => assert!(matches!(error, LoadError::Panicked(_))),
                        }
                    }
                    Err(error) => panic!("nobody said {error}"),
                }
                seen.note("loaded");
            })
        };
        join((0..3).map(caller));
        settle(&engine);
        assert_eq!((loads.load(Ordering::SeqCst), stored(&engine)), (2, Some(1)));
    });
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

fn some_purge() -> (Purge, Reach) {
    let what = match thread_rng().gen_range(0..4) {
        0 => Purge::Tag(TAG.into()),
        1 => Purge::Site(SITE.into()),
        2 => Purge::All,
        _ => Purge::Key(key()),
    };
    (what, if thread_rng().gen_bool(0.25) { Reach::Soft } else { Reach::Hard })
}

/// What is true, and what has happened to it. Not points of the schedule, but for the truth.
#[derive(Default)]
struct Database {
    truth: AtomicU64,
    /// Whether a hard purge has returned.
    purged: AtomicBool,
    /// Whether a load that read the old was answered after that.
    late: AtomicBool,
}

impl Database {
    async fn answer(self: Arc<Self>, in_pieces: bool) -> Answer {
        let number = self.truth.load(Ordering::SeqCst);
        pause().await;
        if number == 0 && self.purged.load(Ordering::SeqCst) {
            self.late.store(true, Ordering::SeqCst);
        }
        Ok(answer(number, in_pieces))
    }

    /// The truth changes, and then there is a purge. What it promises to who comes later.
    async fn purge(&self, engine: &Arc<Engine>) -> u64 {
        pause().await;
        let (what, reach) = some_purge();
        let floor = self.truth.fetch_add(1, Ordering::SeqCst) + 1;
        engine.purge(&what, reach).await;
        self.purged.fetch_or(reach == Reach::Hard, Ordering::SeqCst);
        floor
    }
}

/// Invariant 5, for purges of all kinds, and bodies whole and flowing.
///
/// 1. A: departs   2. the truth changes   3. P: purges   4. A: lands, and stores the old; or lands
///    it for C, who came after P
///
/// And: A counts as what departed when it landed, and so after P.
#[test]
fn after_a_purge_of_any_kind_nobody_is_given_what_was_true_before_it() {
    explore(&["old, in time", "new", "late"], |seen| {
        let (engine, database) = (engine(), Arc::new(Database::default()));
        let in_pieces = thread_rng().gen_bool(0.5);
        let origin = Origin::new({
            let database = database.clone();
            move |_| database.clone().answer(in_pieces)
        });
        let earlier = {
            let (engine, origin, database) = (engine.clone(), origin.clone(), database.clone());
            let seen = seen.clone();
            spawn(async move {
                let obtained = obtain(engine, origin).await.expect("an answer");
                let old = number_from(&obtained).await == 0;
                seen.note(if old { "old, in time" } else { "new" });
                // That a body will be stored is said of it when it begins to flow.
                let stored = matches!(obtained.via, Via::Led { stored: true, .. }) && !in_pieces;
                if old && database.late.load(Ordering::SeqCst) {
                    seen.note("late");
                    assert!(!stored, "it was purged before it came");
                }
            })
        };
        let purges = |_| {
            let (engine, origin, database) = (engine.clone(), origin.clone(), database.clone());
            spawn(async move {
                let floor = database.purge(&engine).await;
                let obtained = obtain(engine, origin).await.expect("an answer");
                let (number, via) = (number_from(&obtained).await, obtained.via);
                assert!(number >= floor, "{number} after a purge at {floor}, {via:?}");
            })
        };
        let purges: Vec<_> = (0..2).map(purges).collect();
        join(purges.into_iter().chain([earlier]));
        settle(&engine);
        assert!(at_hand(&engine, &origin).is_none_or(|number| number == 2), "the old is at hand");
    });
}

/// Invariant 5: what was purged is not asked about, or an origin that says it is unchanged would
/// bring it back.
///
/// 1. A: looks, finds the stale   2. P: purges   3. A: boards, or goes alone, asks about what it
///    has found   4. the origin: it is unchanged   5. A: stores it, as if it were new
#[test]
fn what_was_purged_is_not_confirmed() {
    explore(&["confirmed in time", "loaded"], |seen| {
        let engine = engine();
        let mut old = Meta::new(Still.now().minus(Duration::from_secs(1)), Lifetime::default());
        old.set_tags(TagSet::new([TAG]));
        assert!(engine.memory().put(key(), numbered(0, old)));
        let origin = Origin::new(|prior| async move {
            Ok(match prior {
                Some(_) => Loaded::Unchanged { meta: meta(), head: None },
                None => answer(1, false),
            })
        });
        let earlier = |coalesce| {
            let (engine, origin, seen) = (engine.clone(), origin.clone(), seen.clone());
            spawn(async move {
                let (key, demand) = (key(), Demand::default());
                let ask = Ask { coalesce, ..ask(&key, &demand, &origin) };
                let obtained = engine.obtain(&ask, origin.clone()).await.expect("an answer");
                let confirmed = number_from(&obtained).await == 0;
                seen.note(if confirmed { "confirmed in time" } else { "loaded" });
            })
        };
        let earlier = [earlier(Coalesce::Everywhere), earlier(Coalesce::Nowhere)];
        let purges = {
            let (engine, origin) = (engine.clone(), origin.clone());
            spawn(async move {
                pause().await;
                let (what, _) = some_purge();
                engine.purge(&what, Reach::Hard).await;
                let obtained = obtain(engine, origin).await.expect("an answer");
                let via = obtained.via;
                assert_eq!(number_from(&obtained).await, 1, "after a purge of {what:?}, {via:?}");
            })
        };
        join(earlier.into_iter().chain([purges]));
        settle(&engine);
        assert_ne!(at_hand(&engine, &origin), Some(0), "what was purged is back");
    });
}

/// Invariants 2 and 6: a refresh that breaks off leaves what was stored, at any moment.
///
/// 1. A: is given the stale, refreshes   2. the new head is here, and a part of its body
/// 3. B: looks, and finds nothing, or half   4. the body breaks off, and the stale is gone
#[test]
fn a_refresh_that_breaks_off_leaves_what_was_stored() {
    explore(&["refreshing"], |seen| {
        let engine = engine();
        let stale = Lifetime {
            stale_while_revalidate: Duration::from_secs(600),
            ..Lifetime::fresh(Duration::ZERO)
        };
        let prior = numbered(7, Meta::new(Still.now().minus(Duration::from_secs(1)), stale));
        assert!(engine.memory().put(key(), prior));
        let origin = Origin::new(|_| async {
            let broken = async {
                yield_now().await;
                Err(BrokenBody::Source("reset".into()))
            };
            let half = stream::once(async { Ok(Bytes::from_static(b"half")) });
            let source = Source::Stream(half.chain(stream::once(broken)).boxed());
            Ok(varying(Loaded::Entry { meta: meta(), head: Head::default(), source }))
        });
        let caller = |_| {
            let (engine, origin, seen) = (engine.clone(), origin.clone(), seen.clone());
            spawn(async move {
                for _ in 0..2 {
                    let obtained = obtain(engine.clone(), origin.clone()).await.expect("the stale");
                    assert_eq!(number_of(&obtained.entry), 7);
                    if obtained.via == Via::Refreshing {
                        seen.note("refreshing");
                    }
                    assert_eq!(stored(&engine), Some(7));
                }
            })
        };
        join((0..2).map(caller));
        settle(&engine);
        assert_eq!(stored(&engine), Some(7));
    });
}
