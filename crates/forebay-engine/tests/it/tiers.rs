//! Tiers below memory and their failures (invariants 8, 19, 37).
//!
//! Time is paused in these tests: a time limit expires only when no task can run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Demand, Lifetime, Validator};
use forebay_engine::{BrokenBody, Limits, LoadError, Loaded, PieceStream, Source};
use forebay_testkit::gate::Gate;
use tokio::time::Instant;

use crate::crowd::{Crowd, reached, within_patience};
use crate::faulty_tier::{Fault, FaultyTier};
use crate::origin::{Asked, Once, Origin, flowing, passed, ready_pieces, tap, whole};
use crate::world::{MEMORY, Question, Steps, World, bytes, key, secs, varying};

const NAME: &str = "faulty";

/// A tier, and the clock of the engines over it. Each engine starts with empty memory.
struct Below {
    clock: Arc<Steps>,
    tier: FaultyTier,
}

impl Below {
    fn new() -> Self {
        let clock = Arc::<Steps>::default();
        let tier = FaultyTier::new(NAME, clock.clone());
        Self { clock, tier }
    }

    fn world(&self) -> World {
        self.within(Limits::of(MEMORY))
    }

    fn within(&self, limits: Limits) -> World {
        World::over(limits, &self.clock, std::slice::from_ref(&self.tier))
    }

    /// Returns a tier that holds one entry.
    async fn warm(lifetime: Lifetime) -> Self {
        let below = Self::new();
        let world = below.world();
        obtain(&world, &numbered(&world, lifetime)).await;
        world.until_nothing_is_under_way().await;
        assert_eq!(below.tier.records(), 1);
        below
    }
}

/// Answers with the number of the load.
fn numbered(world: &World, lifetime: Lifetime) -> Origin {
    let world = world.clone();
    Origin::new(move |asked| {
        let mut meta = world.meta(lifetime);
        meta.set_validator(Some(Validator { tag: Some("\"v\"".into()), modified: None }));
        async move { Ok(whole(meta, asked.number.to_string())) }
    })
}

fn bringing(world: &World, body: PieceStream) -> Origin {
    let (world, body) = (world.clone(), Once::new(body));
    Origin::new(move |_| {
        let (meta, body) = (world.fresh(60), body.clone());
        async move { Ok(flowing(meta, body.take())) }
    })
}

fn unreachable() -> Origin {
    Origin::new(|_| async { Err(LoadError::origin("no route")) })
}

fn minute() -> Lifetime {
    Lifetime::fresh(secs(60))
}

async fn obtain(world: &World, origin: &Origin) -> (Bytes, Source) {
    let obtained = within_patience(world.obtain("a", origin)).await.expect("an answer");
    let source = obtained.source;
    (obtained.entry.body.reader().collect().await.expect("a whole body"), source)
}

/// Waits until nothing is under way. Unlike a turn of the scheduler, this lets deadlines pass.
async fn at_rest(world: &World) {
    let resting = async {
        while world.engine.traffic().flights > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within_patience(resting).await;
}

fn led() -> Source {
    Source::Led { stored: true, unchanged: false }
}

fn count(counter: &std::sync::atomic::AtomicUsize) -> usize {
    counter.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn what_stands_in_a_lower_tier_is_not_loaded_and_is_in_memory_from_then_on() {
    let below = Below::warm(minute()).await;
    below.clock.step(secs(10));
    let (world, origin) = (below.world(), unreachable());
    assert_eq!(obtain(&world, &origin).await, ("1".into(), Source::Tier(NAME)));
    let hit = world.obtain("a", &origin).await.expect("a hit");
    assert_eq!((bytes(&hit), hit.source), ("1".into(), Source::Hit));
    assert_eq!(hit.entry.meta.age(world.engine.clock().now()), secs(10));
    world.until_nothing_is_under_way().await;
    let commits = count(&below.tier.operations().commits);
    assert_eq!((origin.loads(), commits), (0, 1), "it is not written where it came from");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_callers_are_one_look_into_a_lower_tier() {
    let below = Below::warm(minute()).await;
    let (world, origin) = (below.world(), unreachable());
    let opens = count(&below.tier.operations().opens);
    let crowd = Crowd::of(1_000, |_| world.obtain("a", &origin)).await;
    assert!(crowd.obtained().await.iter().all(|obtained| bytes(obtained) == "1"));
    assert_eq!(count(&below.tier.operations().opens) - opens, 1);
    assert_eq!(origin.loads(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_finds_nothing_does_not_fail_the_loads_that_waited_for_it() {
    let below = Below::new();
    let (world, gate) = (below.world(), Gate::new());
    let lookup = Origin::new({
        let gate = gate.clone();
        move |_| {
            let gate = gate.clone();
            async move {
                gate.wait().await;
                Err(LoadError::NotCached)
            }
        }
    })
    .only_looking();
    let origin = numbered(&world, minute());
    let lookups = Crowd::of(10, |_| world.obtain("a", &lookup)).await;
    reached(&gate, 1).await;
    let loads = Crowd::of(10, |_| world.obtain("a", &origin)).await;
    gate.open();
    assert!(loads.obtained().await.iter().all(|obtained| bytes(obtained) == "1"));
    assert_eq!(origin.loads(), 1);
    let told = lookups.told().await;
    assert!(told.iter().all(|told| matches!(told, Err(LoadError::NotCached))));
    assert_eq!(lookup.loads(), 1, "lookups share one lookup");
}

#[tokio::test(start_paused = true)]
async fn what_comes_from_a_lower_tier_fills_those_above_it() {
    let below = Below::warm(minute()).await;
    let upper = FaultyTier::new("upper", below.clock.clone());
    let both = [upper.clone(), below.tier.clone()];
    let over = || World::over(Limits::of(MEMORY), &below.clock, &both);
    let (world, origin) = (over(), unreachable());
    assert_eq!(obtain(&world, &origin).await.1, Source::Tier(NAME));
    world.until_nothing_is_under_way().await;
    assert_eq!(obtain(&over(), &origin).await, ("1".into(), Source::Tier("upper")));
    assert_eq!(count(&below.tier.operations().commits), 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_exposed_when_all_of_it_is_there_and_not_if_it_breaks() {
    for breaks in [false, true] {
        let below = Below::new();
        let world = below.world();
        let (tap, body) = tap();
        let origin = bringing(&world, body);
        let leader = world.obtain("a", &origin).await.expect("a head");
        tap.try_send(Ok(Bytes::from_static(b"half"))).expect("it is read");
        let writes = &below.tier.operations().writes;
        world.until(|_| count(writes) == 1).await;
        assert_eq!((below.tier.records(), count(&below.tier.operations().commits)), (0, 0));
        if breaks {
            tap.try_send(Err(BrokenBody::Source("reset".into()))).expect("it is read");
        }
        drop(tap);
        assert_eq!(leader.entry.body.reader().collect().await.is_err(), breaks);
        world.until_nothing_is_under_way().await;
        let exposed = usize::from(!breaks);
        assert_eq!(below.tier.records(), exposed);
        assert_eq!(count(&below.tier.operations().commits), exposed);
    }
}

/// Whatever goes wrong, and whenever: every caller is answered rightly, with one load at most.
async fn survives(fault: Fault, entry: fn(&World) -> Origin) {
    for number in 1.. {
        let below = Below::new();
        let world = below.world();
        let origin = entry(&world).speaking("de");
        below.tier.inject_fault(number, fault);
        assert_eq!(obtain(&world, &origin).await, ("same".into(), led()), "{fault:?} {number}");
        at_rest(&world).await;
        assert_eq!(obtain(&world, &origin).await, ("same".into(), Source::Hit));
        let wrong_when_writing = below.tier.recover();
        let second = below.world();
        assert_eq!(obtain(&second, &origin).await.0, "same", "{fault:?} {number}");
        at_rest(&second).await;
        assert!(origin.loads() <= 2, "{fault:?} {number}");
        let third = below.world();
        below.tier.inject_fault(number, fault);
        assert_eq!(obtain(&third, &origin).await.0, "same", "{fault:?} {number}");
        at_rest(&third).await;
        assert!(origin.loads() <= 3, "{fault:?} {number}");
        let wrong_when_reading = below.tier.recover();
        let failures = [&world, &third].map(|world| count(&world.counts.tier_failures));
        let wrong = [wrong_when_writing, wrong_when_reading].map(usize::from);
        assert_eq!(failures, wrong, "{fault:?} {number}");
        if wrong == [0, 0] {
            assert!(number > 4, "several operations have gone wrong: {number}");
            return;
        }
    }
}

fn unvarying(world: &World) -> Origin {
    let world = world.clone();
    Origin::new(move |_| {
        let meta = world.fresh(60);
        async move { Ok(whole(meta, "same")) }
    })
}

fn varied(world: &World) -> Origin {
    let world = world.clone();
    Origin::new(move |_| {
        let meta = varying(world.fresh(60));
        async move { Ok(whole(meta, "same")) }
    })
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_goes_wrong_at_any_moment_costs_a_load_at_most() {
    for fault in [Fault::Fails, Fault::Freezes, Fault::Panics] {
        survives(fault, unvarying).await;
        survives(fault, varied).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_frozen_tier_costs_one_deadline() {
    const ORIGIN: Duration = Duration::from_millis(30);
    const WALK: Duration = Duration::from_millis(50);
    let below = Below::warm(minute()).await;
    let frozen = FaultyTier::new("frozen", below.clock.clone());
    frozen.inject_fault(0, Fault::Freezes);
    below.tier.inject_fault(0, Fault::Freezes);
    let both = [frozen, below.tier.clone()];
    let world = World::over(Limits::of(MEMORY), &below.clock, &both);
    let origin = Origin::new({
        let world = world.clone();
        move |_| {
            let meta = world.fresh(60);
            async move {
                tokio::time::sleep(ORIGIN).await;
                Ok(whole(meta, "loaded"))
            }
        }
    });
    let asked = Instant::now();
    assert_eq!(obtain(&world, &origin).await, ("loaded".into(), led()));
    let took = asked.elapsed();
    assert!((ORIGIN + WALK..ORIGIN + WALK + Duration::from_millis(5)).contains(&took), "{took:?}");
    assert_eq!(obtain(&world, &origin).await.1, Source::Hit);
    // The writes end as well, one time each.
    at_rest(&world).await;
    assert!(asked.elapsed() < Duration::from_millis(300), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn variants_pass_through_a_lower_tier_into_another_engine() {
    const LANGUAGES: [&str; 3] = ["de", "fr", "it"];
    let below = Below::new();
    let world = below.world();
    let origin = Origin::new({
        let world = world.clone();
        move |asked: Asked| {
            let meta = varying(world.fresh(60));
            async move { Ok(whole(meta, asked.language.unwrap_or("none"))) }
        }
    });
    for language in LANGUAGES {
        assert_eq!(obtain(&world, &origin.speaking(language)).await.0, language);
    }
    world.until_nothing_is_under_way().await;
    assert_eq!(below.tier.records(), 1 + LANGUAGES.len(), "the family and its members");
    let (fresh, offline) = (below.world(), unreachable());
    let crowd =
        Crowd::of(60, |caller| fresh.obtain("a", &offline.speaking(LANGUAGES[caller % 3]))).await;
    for (caller, obtained) in crowd.obtained().await.iter().enumerate() {
        assert_eq!(bytes(obtained), LANGUAGES[caller % 3]);
    }
    assert_eq!(offline.loads(), 0);
    // What the second engine adds, the first family has.
    let polish = origin.speaking("pl");
    assert_eq!(obtain(&fresh, &polish).await, ("pl".into(), led()));
    fresh.until_nothing_is_under_way().await;
    for language in ["de", "pl"] {
        let found = obtain(&below.world(), &offline.speaking(language)).await;
        assert_eq!(found, (language.into(), Source::Tier(NAME)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_variant_that_flows_while_something_else_stands_in_memory_is_written_when_whole() {
    let below = Below::new();
    let world = below.world();
    let origin = Origin::new({
        let world = world.clone();
        move |asked: Asked| {
            let meta = world.fresh(10);
            let (tap, body) = tap();
            async move {
                if asked.number == 1 {
                    return Ok(whole(meta, "plain"));
                }
                tokio::spawn(async move {
                    for piece in ["d", "e"] {
                        tokio::task::yield_now().await;
                        tap.send(Ok(Bytes::from_static(piece.as_bytes()))).await.expect("read");
                    }
                });
                Ok(flowing(varying(meta), body))
            }
        }
    });
    obtain(&world, &origin).await;
    world.step(20);
    let german = origin.speaking("de");
    assert_eq!(obtain(&world, &german).await, ("de".into(), led()));
    world.until_nothing_is_under_way().await;
    assert_eq!(obtain(&below.world(), &german).await, ("de".into(), Source::Tier(NAME)));
    assert_eq!(origin.loads(), 2);
}

/// Says that what is stored is still good, if it is asked about the very validator.
fn validating(world: &World) -> Origin {
    let world = world.clone();
    Origin::new(move |asked: Asked| {
        let meta = world.fresh(60);
        let tag = asked.prior.and_then(|prior| prior.meta.validator()?.tag.clone());
        async move {
            match tag.as_deref() {
                Some(b"\"v\"") => Ok(Loaded::Unchanged { meta, head: None }),
                _ => Err(LoadError::origin("not asked about anything")),
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn what_is_stale_in_a_lower_tier_is_validated_and_renewed_there() {
    let below = Below::warm(Lifetime::fresh(secs(10))).await;
    below.clock.step(secs(20));
    let world = below.world();
    let origin = validating(&world);
    let validated = (Bytes::from("1"), Source::Led { stored: true, unchanged: true });
    assert_eq!(obtain(&world, &origin).await, validated);
    assert_eq!(origin.priors(), [Some("1".into())]);
    world.until_nothing_is_under_way().await;
    let (fresh, offline) = (below.world(), unreachable());
    assert_eq!(
        obtain(&fresh, &offline).await,
        ("1".into(), Source::Tier(NAME)),
        "it was rewritten"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_stale_in_a_lower_tier_serves_when_the_load_fails() {
    for (window, served) in [(60, true), (5, false)] {
        let lifetime = Lifetime { stale_if_error: secs(window), ..Lifetime::fresh(secs(10)) };
        let below = Below::warm(lifetime).await;
        below.clock.step(secs(20));
        let (world, origin) = (below.world(), unreachable());
        let crowd = Crowd::of(10, |_| world.obtain("a", &origin)).await;
        for told in crowd.told().await {
            match told {
                Ok(obtained) => assert_eq!((served, obtained.source), (true, Source::Fallback)),
                Err(_) => assert!(!served),
            }
        }
        assert_eq!(origin.loads(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_stale_within_its_window_is_served_once_and_then_refreshed() {
    let lifetime = Lifetime { stale_while_revalidate: secs(60), ..Lifetime::fresh(secs(10)) };
    let below = Below::warm(lifetime).await;
    below.clock.step(secs(20));
    let world = below.world();
    let origin = Origin::new({
        let world = world.clone();
        move |_| {
            let meta = world.fresh(60);
            async move { Ok(whole(meta, "new")) }
        }
    });
    assert_eq!(obtain(&world, &origin).await, ("1".into(), Source::Tier(NAME)));
    assert_eq!(obtain(&world, &origin).await, ("1".into(), Source::Refreshing));
    world.until_nothing_is_under_way().await;
    // The refresh found in the tier what it was to replace, and went on to the origin.
    assert_eq!(obtain(&world, &origin).await, ("new".into(), Source::Hit));
    assert_eq!(origin.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_takes_what_another_engine_has_refreshed() {
    let lifetime = Lifetime { stale_while_revalidate: secs(60), ..Lifetime::fresh(secs(10)) };
    let below = Below::new();
    let [one, other] = [below.world(), below.world()];
    let origin = numbered(&one, lifetime);
    assert_eq!(obtain(&one, &origin).await, ("1".into(), led()));
    one.until_nothing_is_under_way().await;
    assert_eq!(obtain(&other, &origin).await, ("1".into(), Source::Tier(NAME)));
    other.until_nothing_is_under_way().await;
    below.clock.step(secs(20));
    for (world, refreshed) in [(&one, "2"), (&other, "2")] {
        assert_eq!(obtain(world, &origin).await, ("1".into(), Source::Refreshing));
        world.until_nothing_is_under_way().await;
        assert_eq!(obtain(world, &origin).await, (refreshed.into(), Source::Hit));
    }
    assert_eq!(origin.loads(), 2, "the second engine found what the first had loaded");
}

#[tokio::test(start_paused = true)]
async fn who_demands_validation_is_not_answered_by_a_lower_tier() {
    let below = Below::warm(minute()).await;
    let world = below.world();
    let origin = numbered(&world, minute());
    let demand = Demand { revalidate: true, ..Demand::default() };
    let crowd = Crowd::of(10, |number| match number {
        0 => world.obtain("a", &origin),
        _ => world.obtain(Question::of("a", demand.clone()), &origin),
    })
    .await;
    let obtained = crowd.obtained().await;
    assert_eq!(obtained[0].source, Source::Tier(NAME));
    assert_eq!(origin.loads(), 1);
    assert_eq!(origin.priors(), [Some("1".into())], "it is asked about, though");
    for (number, obtained) in obtained[1..].iter().enumerate() {
        let source = if number == 0 { led() } else { Source::Followed };
        assert_eq!(obtained.source, source, "{number}");
        assert_eq!(obtained.entry.meta.load_started_at, world.engine.clock().now());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_to_be_stored_is_neither_sought_nor_written() {
    let below = Below::warm(minute()).await;
    let operations = || {
        let operations = below.tier.operations();
        (count(&operations.opens), count(&operations.begins))
    };
    let (before, world) = (operations(), below.world());
    let origin = numbered(&world, minute());
    let no_store = Question::of("a", Demand { no_store: true, ..Demand::default() });
    let obtained = world.obtain(no_store, &origin).await.expect("an answer");
    assert_eq!(obtained.source, Source::Passed);
    world.until_nothing_is_under_way().await;
    assert_eq!((operations(), origin.loads()), (before, 1));
}

#[tokio::test(start_paused = true)]
async fn a_body_too_large_for_memory_goes_into_a_tier_as_it_flows_and_comes_back_in_pieces() {
    const PIECE: usize = 64 << 10;
    const PIECES: usize = 64;
    let limits = Limits { object_max: 1 << 20, in_flight_max: 2 << 20, ..Limits::of(8 << 20) };
    let below = Below::new();
    let world = below.within(limits);
    let origin = bringing(&world, ready_pieces(PIECES, PIECE));
    let (body, source) = obtain(&world, &origin).await;
    assert_eq!((body.len(), source), (PIECES * PIECE, led()));
    world.until_nothing_is_under_way().await;
    assert!(count(&below.tier.operations().writes) >= PIECES / 4, "as it flows, not all at once");
    for _ in 0..2 {
        let found = world.obtain("a", &origin).await.expect("it stands in the tier");
        assert_eq!(found.source, Source::Tier(NAME));
        assert!(!found.entry.body.is_whole());
        let most = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let mut reader = found.entry.body.reader();
        let mut length = 0;
        while let Some(piece) = reader.next().await {
            length += piece.expect("it does not break").len();
            most.fetch_max(world.engine.traffic().in_flight_bytes, Ordering::SeqCst);
        }
        assert_eq!(length, PIECES * PIECE);
        assert!(most.load(Ordering::SeqCst) <= 3 << 20, "only a window of it is in memory");
        world.until_nothing_is_under_way().await;
    }
    assert_eq!((origin.loads(), world.engine.traffic().in_flight_bytes), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_damaged_or_foreign_is_a_miss() {
    type Spoil = fn(&FaultyTier);
    let spoilers: [Spoil; 4] = [
        |tier| tier.rewrite(|frame| *frame.last_mut().expect("bytes") ^= 1),
        |tier| tier.rewrite(|frame| frame.truncate(frame.len() - 1)),
        |tier| tier.rewrite(|frame| *frame = b"something else".to_vec()),
        |tier| tier.misplace(&key("a")),
    ];
    for (number, spoil) in spoilers.into_iter().enumerate() {
        let below = Below::new();
        let world = below.world();
        let origin = numbered(&world, minute());
        let name = if number == 3 { "b" } else { "a" };
        world.obtain(name, &origin).await.expect("an answer");
        world.until_nothing_is_under_way().await;
        spoil(&below.tier);
        assert_eq!(obtain(&below.world(), &origin).await, ("2".into(), led()), "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_tier_stalls_or_fails_in_its_midst_breaks_and_is_not_kept() {
    const LENGTH: usize = 1 << 20;
    for fault in [Fault::Freezes, Fault::Fails] {
        let below = Below::new();
        let world = below.world();
        let large = Origin::new({
            let world = world.clone();
            move |_| {
                let meta = world.fresh(60);
                async move { Ok(whole(meta, vec![7; LENGTH])) }
            }
        });
        assert_eq!(obtain(&world, &large).await.0.len(), LENGTH);
        world.until_nothing_is_under_way().await;
        let fresh = below.world();
        // The first operation opens, the second reads the piece that comes with the head.
        below.tier.inject_fault(3, fault);
        let found = fresh.obtain("a", &large).await.expect("a head");
        assert_eq!(found.source, Source::Tier(NAME));
        let read = within_patience(found.entry.body.reader().collect()).await;
        assert!(matches!(read, Err(BrokenBody::Source(_))), "{fault:?}: {read:?}");
        at_rest(&fresh).await;
        assert_eq!(count(&fresh.counts.broken), 1);
        assert!(below.tier.recover());
        assert_eq!(obtain(&fresh, &large).await.1, Source::Tier(NAME), "it was not kept in memory");
        assert_eq!(large.loads(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn writes_that_take_their_time_are_bounded_in_number() {
    /// The engine's bound, which is no setting.
    const WRITES: usize = 256;
    const BEYOND: usize = 10;
    let below = Below::new();
    let (world, gate) = (below.world(), Gate::new());
    let origin = numbered(&world, minute());
    below.tier.hold_commits(&gate);
    for name in 0..WRITES + BEYOND {
        let obtained = world.obtain(name.to_string().as_str(), &origin).await.expect("an answer");
        assert_eq!(obtained.source, led());
    }
    world.until(|world| count(&world.counts.tier_skips) == BEYOND).await;
    gate.open();
    world.until_nothing_is_under_way().await;
    assert_eq!(below.tier.records(), WRITES);
    world.obtain("later", &origin).await.expect("an answer");
    world.until_nothing_is_under_way().await;
    assert_eq!(below.tier.records(), WRITES + 1, "their places are free again");
}

#[tokio::test(start_paused = true)]
async fn an_early_refresh_is_not_content_with_a_copy_of_what_it_is_to_refresh() {
    let below = Below::new();
    let world = below.world();
    let origin = Origin::new({
        let world = world.clone();
        move |asked: Asked| {
            let world = world.clone();
            async move {
                // What costs nothing is not refreshed early.
                world.step(1);
                Ok(whole(world.fresh(100), asked.number.to_string()))
            }
        }
    });
    obtain(&world, &origin).await;
    world.until_nothing_is_under_way().await;
    world.step(95);
    let eager = Question::of("a", Demand { beta: 1e9, ..Demand::default() });
    let obtained = world.obtain(eager, &origin).await.expect("a hit");
    assert_eq!((bytes(&obtained), obtained.source), ("1".into(), Source::Refreshing));
    world.until_nothing_is_under_way().await;
    assert_eq!(obtain(&world, &origin).await, ("2".into(), Source::Hit));
}

#[tokio::test(start_paused = true)]
async fn what_a_tier_brings_is_as_old_as_it_is_however_late_its_flight_started() {
    let (below, gate) = (Below::new(), Gate::new());
    let world = below.world();
    let origin = Origin::new({
        let (world, gate) = (world.clone(), gate.clone());
        move |asked: Asked| {
            let (world, gate) = (world.clone(), gate.clone());
            async move {
                gate.wait().await;
                Ok(match asked.number {
                    1 => Loaded::Pass(passed("nobody else's", Duration::ZERO)),
                    _ => whole(world.fresh(60), "loaded"),
                })
            }
        }
    });
    let first = Crowd::of(1, |_| world.obtain("a", &origin)).await;
    reached(&gate, 1).await;
    let patient = Crowd::of(1, |_| world.obtain("a", &origin)).await;
    let max_age = Demand { max_age: Some(secs(5)), ..Demand::default() };
    let demanding =
        Crowd::of(1, |_| world.obtain(Question::of("a", max_age.clone()), &origin)).await;
    // Meanwhile another engine fills the tier, and the next flight will find that there.
    let other = below.world();
    obtain(&other, &numbered(&other, minute())).await;
    other.until_nothing_is_under_way().await;
    below.clock.step(secs(10));
    gate.open();
    assert_eq!(first.obtained().await[0].source, Source::Passed);
    assert_eq!(patient.obtained().await[0].source, Source::Tier(NAME));
    let demanding = demanding.obtained().await;
    assert_eq!((bytes(&demanding[0]), demanding[0].source), ("loaded".into(), led()));
}

/// Answers in the language it is asked in, once the gate is open.
fn polyglot(world: &World, gate: &Gate) -> Origin {
    let (world, gate) = (world.clone(), gate.clone());
    Origin::new(move |asked: Asked| {
        let (meta, gate) = (varying(world.meta(Lifetime::fresh(secs(60)))), gate.clone());
        async move {
            gate.wait().await;
            Ok(whole(meta, asked.language.unwrap_or("none")))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_family_that_a_lower_tier_knows_is_joined_by_what_is_loaded() {
    let below = Below::new();
    let world = below.world();
    obtain(&world, &polyglot(&world, &Gate::of(0)).speaking("de")).await;
    world.until_nothing_is_under_way().await;
    let (second, gate) = (below.world(), Gate::new());
    let polish = polyglot(&second, &gate).speaking("pl");
    let early = Crowd::of(10, |_| second.obtain("a", &polish)).await;
    reached(&gate, 1).await;
    // Callers that arrive after the leader has found the family, and before its load completes,
    // wait with the others.
    let late = Crowd::of(10, |_| second.obtain("a", &polish)).await;
    gate.open();
    for crowd in [early, late] {
        assert!(crowd.obtained().await.iter().all(|obtained| bytes(obtained) == "pl"));
    }
    assert_eq!(polish.loads(), 1);
    second.until_nothing_is_under_way().await;
    for language in ["de", "pl"] {
        let found = obtain(&below.world(), &unreachable().speaking(language)).await;
        assert_eq!(found, (language.into(), Source::Tier(NAME)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refresh_is_not_content_with_what_is_younger_and_stale_as_well() {
    let lifetime = Lifetime { stale_while_revalidate: secs(60), ..Lifetime::fresh(secs(10)) };
    let below = Below::new();
    let [one, other] = [below.world(), below.world()];
    let origin = numbered(&one, lifetime);
    for world in [&one, &other] {
        assert_eq!(obtain(world, &origin).await.0, "1");
        world.until_nothing_is_under_way().await;
    }
    below.clock.step(secs(20));
    assert_eq!(obtain(&one, &origin).await, ("1".into(), Source::Refreshing));
    one.until_nothing_is_under_way().await;
    below.clock.step(secs(20));
    assert_eq!(obtain(&other, &origin).await, ("1".into(), Source::Refreshing));
    other.until_nothing_is_under_way().await;
    assert_eq!(obtain(&other, &origin).await, ("3".into(), Source::Hit));
    assert_eq!(origin.priors().last(), Some(&Some("2".into())), "it is asked about");
}
