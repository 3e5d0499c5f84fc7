//! Purged entries are not served again (invariants 13, 14, 16).

use forebay_core::{Lifetime, Purge, Reach, Why};
use forebay_engine::{LoadError, Loaded, Source};
use forebay_testkit::gate::Gate;

use crate::crowd::{Crowd, reached, within_patience};
use crate::origin::{Asked, Origin, whole};
use crate::world::{Question, SITE, World, bytes, key, secs, tagged, varying};

const TAG: &str = "red";

fn all_kinds() -> [Purge; 4] {
    [Purge::Key(key("a")), Purge::Tag(TAG.into()), Purge::Site(SITE.into()), Purge::All]
}

/// Every load waits at the gate of its number; the last gate serves the rest.
fn stepwise(world: &World, lifetime: Lifetime, gates: &[Gate]) -> Origin {
    let (world, gates) = (world.clone(), gates.to_vec());
    Origin::new(move |asked: Asked| {
        let world = world.clone();
        let gate = gates[asked.number.min(gates.len()) - 1].clone();
        async move {
            gate.wait().await;
            Ok(whole(tagged(world.meta(lifetime), TAG), asked.number.to_string()))
        }
    })
}

fn minute() -> Lifetime {
    Lifetime::fresh(secs(60))
}

fn gates<const N: usize>() -> [Gate; N] {
    std::array::from_fn(|_| Gate::new())
}

async fn obtain_one(world: &World, origin: &Origin) -> (String, Option<Why>) {
    let obtained = within_patience(world.obtain("a", origin)).await.expect("an answer");
    (String::from_utf8_lossy(&bytes(&obtained)).into_owned(), obtained.why)
}

#[tokio::test]
async fn what_is_stored_is_gone_after_any_purge_that_reaches_it() {
    for what in all_kinds() {
        let (world, open) = (World::new(), Gate::of(0));
        let origin = stepwise(&world, minute(), &[open]);
        obtain_one(&world, &origin).await;
        assert!(world.purge(&what, Reach::Hard).await, "{what:?}");
        assert_eq!(world.answer_without_load("a", &origin).await, None, "{what:?}");
        assert_eq!(obtain_one(&world, &origin).await.0, "2", "{what:?}");
        assert_eq!(origin.priors(), [None, None], "what is gone is not asked about: {what:?}");
        assert_eq!(world.answer_without_load("a", &origin).await, Some("2".into()), "{what:?}");
    }
}

#[tokio::test]
async fn what_a_purge_does_not_reach_stays() {
    let (world, open) = (World::new(), Gate::of(0));
    let origin = stepwise(&world, minute(), &[open]);
    obtain_one(&world, &origin).await;
    for what in [Purge::Key(key("b")), Purge::Tag("blue".into()), Purge::Site("other".into())] {
        world.purge(&what, Reach::Hard).await;
        assert_eq!(world.answer_without_load("a", &origin).await, Some("1".into()), "{what:?}");
    }
    assert!(!world.purge(&Purge::Key(key("b")), Reach::Hard).await, "nothing was stored there");
    assert_eq!(origin.loads(), 1);
}

#[tokio::test]
async fn a_flight_that_started_before_a_purge_answers_its_callers_and_nobody_else() {
    for what in all_kinds() {
        let world = World::new();
        let gates = gates::<2>();
        let origin = stepwise(&world, minute(), &gates);
        let before = Crowd::of(20, |_| world.obtain("a", &origin)).await;
        reached(&gates[0], 1).await;
        world.purge(&what, Reach::Hard).await;
        let later = Crowd::of(20, |_| world.obtain("a", &origin)).await;
        gates[0].open();
        for obtained in before.obtained().await {
            assert_eq!(bytes(&obtained), "1", "{what:?}");
        }
        reached(&gates[1], 1).await;
        assert_eq!(
            world.answer_without_load("a", &origin).await,
            None,
            "nothing was stored: {what:?}"
        );
        gates[1].open();
        for obtained in later.obtained().await {
            assert_eq!(bytes(&obtained), "2", "{what:?}");
        }
        assert_eq!(origin.loads(), 2, "{what:?}");
        assert_eq!(world.answer_without_load("a", &origin).await, Some("2".into()), "{what:?}");
    }
}

#[tokio::test]
async fn who_comes_after_a_purge_does_not_wait_for_a_flight_that_is_known_to_be_reached() {
    for what in [Purge::Key(key("a")), Purge::Site(SITE.into()), Purge::All] {
        let world = World::new();
        let gates = gates::<2>();
        let origin = stepwise(&world, minute(), &gates);
        let before = Crowd::of(1, |_| world.obtain("a", &origin)).await;
        reached(&gates[0], 1).await;
        world.purge(&what, Reach::Hard).await;
        gates[1].open();
        // The first flight is still under way.
        assert_eq!(obtain_one(&world, &origin).await.0, "2", "{what:?}");
        gates[0].open();
        // It is given what the next caller is given.
        assert_eq!(bytes(&before.obtained().await[0]), "2", "{what:?}");
        assert_eq!(world.answer_without_load("a", &origin).await, Some("2".into()), "{what:?}");
    }
}

#[tokio::test]
async fn a_load_alone_that_started_before_a_purge_is_not_stored() {
    for what in all_kinds() {
        let world = World::new();
        let gates = gates::<2>();
        let origin = stepwise(&world, minute(), &gates);
        let alone = Crowd::of(1, |_| world.obtain(Question::from("a").alone(), &origin)).await;
        reached(&gates[0], 1).await;
        world.purge(&what, Reach::Hard).await;
        gates[0].open();
        let alone = alone.obtained().await;
        assert_eq!(bytes(&alone[0]), "1", "{what:?}");
        assert_eq!(alone[0].source, Source::Led { stored: false, unchanged: false }, "{what:?}");
        assert_eq!(world.answer_without_load("a", &origin).await, None, "{what:?}");
    }
}

#[tokio::test]
async fn a_load_that_starts_after_a_purge_is_stored_though_an_older_one_completes_later() {
    let world = World::new();
    let gates = gates::<2>();
    let origin = stepwise(&world, minute(), &gates);
    let old = Crowd::of(1, |_| world.obtain("a", &origin)).await;
    reached(&gates[0], 1).await;
    world.purge(&Purge::Key(key("a")), Reach::Hard).await;
    let new = Crowd::of(1, |_| world.obtain("a", &origin)).await;
    reached(&gates[1], 1).await;
    assert_eq!(origin.loads(), 2);
    gates[1].open();
    assert_eq!(bytes(&new.obtained().await[0]), "2");
    gates[0].open();
    let old = old.obtained().await;
    assert_eq!((bytes(&old[0]), old[0].source), ("2".into(), Source::Followed));
    assert_eq!(world.answer_without_load("a", &origin).await, Some("2".into()));
}

#[tokio::test]
async fn a_soft_purge_makes_stale_what_it_reaches() {
    let lifetime = Lifetime {
        stale_while_revalidate: secs(60),
        stale_if_error: secs(60),
        ..Lifetime::fresh(secs(60))
    };
    for what in all_kinds() {
        let (world, open) = (World::new(), Gate::of(0));
        let origin = stepwise(&world, lifetime, &[open]);
        obtain_one(&world, &origin).await;
        world.step(1);
        assert!(world.purge(&what, Reach::Soft).await, "{what:?}");
        let stale = world.obtain("a", &origin).await.expect("a stale answer");
        assert_eq!(
            (bytes(&stale).as_ref(), stale.source),
            (&b"1"[..], Source::Refreshing),
            "{what:?}"
        );
        world.until_nothing_is_under_way().await;
        let hit = world.obtain("a", &origin).await.expect("a hit");
        assert_eq!((bytes(&hit).as_ref(), hit.source), (&b"2"[..], Source::Hit), "{what:?}");
        assert_eq!(origin.priors(), [None, Some("1".into())], "{what:?}");
    }
}

#[tokio::test]
async fn what_is_softly_purged_without_a_window_is_loaded_first_and_serves_when_that_fails() {
    let lifetime = Lifetime { stale_if_error: secs(60), ..Lifetime::fresh(secs(60)) };
    for what in all_kinds() {
        let world = World::new();
        let origin = Origin::new({
            let world = world.clone();
            move |asked: Asked| {
                let meta = tagged(world.meta(lifetime), TAG);
                async move {
                    match asked.number {
                        1 => Ok(whole(meta, "1")),
                        _ => Err(LoadError::origin("no route")),
                    }
                }
            }
        });
        obtain_one(&world, &origin).await;
        world.step(1);
        world.purge(&what, Reach::Soft).await;
        let fallback = world.obtain("a", &origin).await.expect("a fallback");
        assert_eq!((bytes(&fallback).as_ref(), fallback.source), (&b"1"[..], Source::Fallback));
        assert_eq!(origin.loads(), 2, "{what:?}");
        world.purge(&what, Reach::Hard).await;
        assert!(world.obtain("a", &origin).await.is_err(), "hard is hard: {what:?}");
    }
}

#[tokio::test]
async fn a_flight_that_started_before_a_soft_purge_is_not_fresh_for_those_who_come_after() {
    for what in all_kinds() {
        let world = World::new();
        let gates = gates::<2>();
        let origin = stepwise(&world, minute(), &gates);
        let before = Crowd::of(5, |_| world.obtain("a", &origin)).await;
        reached(&gates[0], 1).await;
        world.purge(&what, Reach::Soft).await;
        let later = Crowd::of(5, |_| world.obtain("a", &origin)).await;
        gates[0].open();
        gates[1].open();
        for (crowd, body) in [(before, "1"), (later, "2")] {
            for obtained in crowd.obtained().await {
                assert_eq!(bytes(&obtained), body, "{what:?}");
            }
        }
        assert_eq!(origin.loads(), 2, "{what:?}");
    }
}

#[tokio::test]
async fn a_purge_of_a_key_removes_all_its_variants() {
    const LANGUAGES: [&str; 3] = ["de", "fr", "it"];
    let world = World::new();
    let origin = Origin::new({
        let world = world.clone();
        move |asked: Asked| {
            let meta = varying(world.fresh(60));
            let body = format!("{} {}", asked.language.unwrap_or("none"), asked.number);
            async move { Ok(whole(meta, body)) }
        }
    });
    for language in LANGUAGES {
        world.obtain("a", &origin.speaking(language)).await.expect("an answer");
    }
    assert!(world.purge(&Purge::Key(key("a")), Reach::Hard).await);
    for (place, language) in LANGUAGES.into_iter().enumerate() {
        let speaking = origin.speaking(language);
        assert_eq!(world.answer_without_load("a", &speaking).await, None, "{language}");
        let loaded = world.obtain("a", &speaking).await.expect("an answer");
        assert_eq!(bytes(&loaded), format!("{language} {}", 4 + place));
        assert_eq!(world.obtain("a", &speaking).await.expect("a hit").source, Source::Hit);
    }
}

/// Confirms whatever it is asked about.
fn confirming(world: &World) -> Origin {
    let world = world.clone();
    Origin::new(move |asked: Asked| {
        let meta = tagged(world.fresh(10), TAG);
        async move {
            Ok(match asked.prior {
                Some(_) => Loaded::Unchanged { meta, head: None },
                None => whole(meta, asked.number.to_string()),
            })
        }
    })
}

#[tokio::test]
async fn what_is_purged_between_look_and_load_is_not_asked_about_nor_revived() {
    for what in all_kinds() {
        let world = World::new();
        let origin = confirming(&world);
        obtain_one(&world, &origin).await;
        world.step(20);
        let wanting = world.look("a", &origin);
        world.purge(&what, Reach::Hard).await;
        let obtained = world.fetch("a", wanting, &origin).await.expect("an answer");
        assert_eq!(bytes(&obtained), "2", "{what:?}");
        assert_eq!(origin.priors(), [None, None], "{what:?}");
    }
}

#[tokio::test]
async fn what_is_purged_is_not_revived_by_one_who_goes_alone_after_it_was_loaded_anew() {
    for what in all_kinds() {
        let world = World::new();
        let origin = confirming(&world);
        obtain_one(&world, &origin).await;
        world.step(20);
        let wanting = world.look("a", &origin);
        world.purge(&what, Reach::Hard).await;
        assert_eq!(obtain_one(&world, &origin).await.0, "2", "{what:?}");
        let alone = Question::from("a").alone();
        let obtained = world.fetch(alone, wanting, &origin).await.expect("an answer");
        assert_eq!(bytes(&obtained), "2", "{what:?}");
        assert_eq!(origin.priors(), [None, None, Some("2".into())], "{what:?}");
        assert_eq!(world.answer_without_load("a", &origin).await, Some("2".into()), "{what:?}");
    }
}

#[tokio::test]
async fn an_entry_that_was_compared_with_purges_is_reached_by_later_ones() {
    for reach in [Reach::Soft, Reach::Hard] {
        for what in all_kinds() {
            let (world, open) = (World::new(), Gate::of(0));
            let origin = stepwise(&world, minute(), &[open]);
            obtain_one(&world, &origin).await;
            for other in [Purge::Site("other".into()), Purge::Tag("blue".into())] {
                world.purge(&other, Reach::Hard).await;
                for _ in 0..2 {
                    let stored = world.answer_without_load("a", &origin).await;
                    assert_eq!(stored, Some("1".into()), "{what:?}");
                }
            }
            assert!(world.purge(&what, reach).await, "{what:?}");
            assert_eq!(obtain_one(&world, &origin).await.0, "2", "{reach:?} {what:?}");
        }
    }
}
