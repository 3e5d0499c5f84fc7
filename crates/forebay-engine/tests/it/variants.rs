//! One load per variant (RFC 9111 section 4.1).

use bytes::Bytes;
use forebay_core::{Demand, Lifetime, Purge, Reach, Vary, Why};
use forebay_engine::{BrokenBody, PieceStream, Source};
use forebay_testkit::gate::Gate;

use crate::crowd::{Crowd, reached};
use crate::origin::{Asked, Once, Origin, flowing, tap, whole};
use crate::world::{Question, World, bytes, key, secs, varying};

const LANGUAGES: [&str; 10] = ["de", "en", "es", "fr", "it", "ja", "nl", "pl", "pt", "sv"];

/// Answers in the language it is asked in, once the gate is open.
fn polyglot(world: &World, gate: &Gate) -> Origin {
    let (world, gate) = (world.clone(), gate.clone());
    Origin::new(move |asked: Asked| {
        let (world, gate) = (world.clone(), gate.clone());
        async move {
            gate.wait().await;
            Ok(whole(varying(world.fresh(60)), asked.language.unwrap_or("none")))
        }
    })
}

async fn crowd(world: &World, origin: &Origin, count: usize, languages: usize) -> Crowd {
    Crowd::of(count, |caller| world.obtain("a", &origin.speaking(LANGUAGES[caller % languages])))
        .await
}

async fn each_has_its_own(crowd: Crowd, languages: usize) {
    for (caller, obtained) in crowd.obtained().await.iter().enumerate() {
        assert_eq!(bytes(obtained), LANGUAGES[caller % languages]);
    }
}

#[tokio::test]
async fn callers_of_unknown_variants_are_one_load_each_variant() {
    for (count, languages) in [(4, 2), (500, 10)] {
        let (world, gate) = (World::new(), Gate::new());
        let origin = polyglot(&world, &gate);
        let crowd = crowd(&world, &origin, count, languages).await;
        reached(&gate, 1).await;
        assert_eq!(origin.loads(), 1, "nobody knows yet that there are variants");
        gate.open();
        each_has_its_own(crowd, languages).await;
        assert_eq!(origin.loads(), languages);
    }
}

#[tokio::test]
async fn variants_that_are_known_are_loaded_together() {
    let (world, gate) = (World::new(), Gate::new());
    gate.open();
    world.obtain("a", &polyglot(&world, &gate)).await.expect("an answer");
    let gate = Gate::new();
    let origin = polyglot(&world, &gate);
    let crowd = crowd(&world, &origin, 500, 10).await;
    reached(&gate, 10).await;
    gate.open();
    each_has_its_own(crowd, 10).await;
    assert_eq!((origin.loads(), origin.most_at_once()), (10, 10));
    let hit = world.obtain("a", &origin.speaking("de")).await.expect("a hit");
    assert_eq!((bytes(&hit).as_ref(), hit.source), (&b"de"[..], Source::Hit));
}

#[tokio::test]
async fn the_reason_tells_a_missing_variant_from_a_missing_key() {
    let (world, gate) = (World::new(), Gate::new());
    gate.open();
    let origin = polyglot(&world, &gate);
    let first = world.obtain("a", &origin.speaking("de")).await.expect("an answer");
    let second = world.obtain("a", &origin.speaking("fr")).await.expect("an answer");
    assert_eq!((first.why, second.why), (Some(Why::UriMiss), Some(Why::VaryMiss)));
}

#[tokio::test]
async fn a_leader_that_learns_of_variants_at_the_last_moment_joins_its_own() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = polyglot(&world, &gate);
    let german = origin.speaking("de");
    let wanting = world.look("a", &german);
    gate.open();
    world.obtain("a", &origin.speaking("fr")).await.expect("an answer");
    let gate = Gate::new();
    let german = polyglot(&world, &gate).speaking("de");
    let leader = Crowd::of(1, |_| world.obtain("a", &german)).await;
    reached(&gate, 1).await;
    let late = tokio::spawn(world.fetch("a", wanting, &german));
    gate.open();
    let late = late.await.expect("no panic").expect("an answer");
    assert_eq!((bytes(&late).as_ref(), late.source), (&b"de"[..], Source::Followed));
    each_has_its_own(leader, 1).await;
    assert_eq!(german.loads(), 1);
}

#[tokio::test]
async fn the_first_variant_is_shared_while_it_flows_by_those_who_know_the_family_by_now() {
    let (world, (tap, body)) = (World::new(), tap());
    let origin = Origin::new({
        let (world, body) = (world.clone(), Once::new(body));
        move |asked: Asked| {
            let (meta, body) = (varying(world.fresh(60)), body.clone());
            async move {
                Ok(match asked.number {
                    1 => flowing(meta, body.take()),
                    _ => whole(meta, asked.language.unwrap_or("none")),
                })
            }
        }
    });
    let first = world.obtain("a", &origin.speaking("de")).await.expect("an answer");
    let second = world.obtain("a", &origin.speaking("de")).await.expect("an answer");
    assert_eq!((second.source, origin.loads()), (Source::Followed, 1));
    let other = world.obtain("a", &origin.speaking("fr")).await.expect("an answer");
    assert_eq!((bytes(&other).as_ref(), origin.loads()), (&b"fr"[..], 2));
    tap.send(Ok(Bytes::from_static(b"de"))).await.expect("it is read");
    drop(tap);
    for obtained in [first, second] {
        assert_eq!(obtained.entry.body.reader().collect().await, Ok("de".into()));
    }
}

/// Origin whose first answer has no variants and has expired, whose second has variants and a body
/// that the test writes, and whose later answers are complete and wait for the gate.
async fn grown_variants(world: &World, gate: &Gate, body: PieceStream) -> Origin {
    let origin = Origin::new({
        let (world, gate, body) = (world.clone(), gate.clone(), Once::new(body));
        move |asked: Asked| {
            let meta = world.meta(Lifetime::fresh(secs(10)));
            let (gate, body) = (gate.clone(), body.clone());
            async move {
                if asked.number > 2 {
                    gate.wait().await;
                }
                Ok(match asked.number {
                    1 => whole(meta, "plain"),
                    2 => flowing(varying(meta), body.take()),
                    _ => whole(varying(meta), asked.language.unwrap_or("none")),
                })
            }
        }
    });
    world.obtain("a", &origin).await.expect("an answer");
    world.step(20);
    origin
}

async fn stale(world: &World, origin: &Origin) -> Bytes {
    let demand = Demand { max_stale: Some(secs(1_000)), ..Demand::default() };
    bytes(&world.obtain(Question::of("a", demand), origin).await.expect("a stale hit"))
}

#[tokio::test]
async fn an_entry_without_variants_survives_a_broken_answer_with_variants() {
    let world = World::new();
    let (tap, body) = tap();
    let origin = grown_variants(&world, &Gate::new(), body).await;
    let leader = world.obtain("a", &origin.speaking("de")).await.expect("a head");
    let broken = BrokenBody::Source("reset".into());
    tap.try_send(Err(broken.clone())).expect("it is read");
    assert_eq!(leader.entry.body.reader().collect().await, Err(broken));
    assert_eq!(stale(&world, &origin).await, "plain");
}

#[tokio::test(start_paused = true)]
async fn while_a_first_variant_flows_the_others_are_one_load_each() {
    let (world, gate) = (World::new(), Gate::new());
    let (tap, body) = tap();
    let origin = grown_variants(&world, &gate, body).await;
    let leader = world.obtain("a", &origin.speaking(LANGUAGES[0])).await.expect("a head");
    let others =
        Crowd::of(90, |caller| world.obtain("a", &origin.speaking(LANGUAGES[1 + caller % 9])))
            .await;
    // Nothing tells of variants but the head of the first, and all have learned from it.
    reached(&gate, 9).await;
    assert_eq!(origin.loads(), 2 + 9);
    gate.open();
    for (caller, obtained) in others.obtained().await.iter().enumerate() {
        assert_eq!(bytes(obtained), LANGUAGES[1 + caller % 9]);
    }
    assert_eq!(origin.loads(), 2 + 9);
    tap.try_send(Ok(Bytes::from_static(b"de"))).expect("it is read");
    drop(tap);
    assert_eq!(leader.entry.body.reader().collect().await, Ok(Bytes::from_static(b"de")));
    let hit = world.obtain("a", &origin.speaking("fr")).await.expect("a hit");
    assert_eq!((hit.source, origin.loads()), (Source::Hit, 11));
}

#[tokio::test]
async fn a_family_of_variants_survives_a_broken_answer_that_varies_otherwise() {
    let world = World::new();
    let (tap, body) = tap();
    let origin = Origin::new({
        let (world, body) = (world.clone(), Once::new(body));
        move |asked: Asked| {
            let (mut meta, body) = (varying(world.fresh(10)), body.clone());
            async move {
                Ok(match asked.number {
                    1 => whole(meta, "good"),
                    _ => {
                        meta.set_vary(Vary::new(["accept-encoding"]));
                        flowing(meta, body.take())
                    }
                })
            }
        }
    });
    let german = origin.speaking("de");
    world.obtain("a", &german).await.expect("an answer");
    world.step(20);
    let leader = world.obtain("a", &german).await.expect("a head");
    tap.try_send(Err(BrokenBody::Source("reset".into()))).expect("it is read");
    assert!(leader.entry.body.reader().collect().await.is_err());
    assert_eq!(stale(&world, &german).await, "good");
}

#[tokio::test]
async fn variants_that_are_purged_while_the_first_is_under_way_are_still_one_load_each() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = polyglot(&world, &gate);
    let crowd = crowd(&world, &origin, 100, 5).await;
    reached(&gate, 1).await;
    assert!(!world.purge(&Purge::Key(key("a")), Reach::Hard).await, "nothing is stored yet");
    gate.open();
    each_has_its_own(crowd, 5).await;
    assert_eq!(origin.loads(), 5, "those who joined are answered, and nobody goes alone");
}
