//! Each key is loaded once, also if callers leave or panic.

use std::panic::resume_unwind;

use super::*;
use crate::Source;
use crate::runtime::sync::atomic::{AtomicU64, Ordering};

/// Invariants 2 and 3: the re-check of the leader.
///
/// 1. A: looks (miss)
/// 2. B: looks (miss)
/// 3. A: joins, loads, stores, leaves
/// 4. B: joins, and would load again
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
                seen.note(match obtained.source {
                    Source::Led { .. } => "led",
                    Source::Followed => "followed",
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

/// Invariant 2: each caller that gets a body reads all of it, also if it is not kept; a caller that
/// is too late gets no body, and leads the next flight.
///
/// 1. A: leads, announces
/// 2. the body is streaming
/// 3. A, or B who waited: begins to read, behind a gap
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
                seen.note(if obtained.source == Source::Followed { "followed" } else { "led" });
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
/// 1. A, B: lead and follow under the primary key
/// 2. A: announces "de", names the family
/// 3. B: wants "fr", looks again
/// 4. C: wants "fr", finds the family, joins under another key
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
                seen.note(if obtained.source == Source::Followed { "followed" } else { "led" });
                assert_eq!(number_from(&obtained).await, number, "{language}");
            })
        };
        join([("de", 1), ("fr", 2), ("fr", 2)].map(caller));
        settle(&engine);
        assert_eq!(loads.load(Ordering::SeqCst), 2);
        for (language, number) in [("de", 1), ("fr", 2)] {
            assert_eq!(answer_without_load(&engine, &origin(language, number)), Some(number));
        }
    });
}

/// Invariant 4.
///
/// 1. A: leads, its load starts
/// 2. B: follows
/// 3. A: is dropped
/// 4. the load continues, for B
///
/// And: A joins, and is dropped before its load starts; B waits for ever.
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
                seen.note(if obtained.source == Source::Followed { "followed" } else { "led" });
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
/// 1. A: leads
/// 2. B: follows
/// 3. A's load panics
/// 4. B: waits for ever, or the key is never    loaded again
#[test]
fn a_load_that_panics_is_told_to_all_and_frees_the_key() {
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
