//! A restarted instance with a tier of its own: purged entries are gone, the others are used; if
//! that cannot be decided, they are revalidated within the bound.

use std::sync::Arc;

use forebay_core::{Purge, Reach, WhenBlind};
use forebay_engine::{Clock, Source, Tier};

use super::counts::numbering;
use super::{Instance, Making, Passing, Together, pass};
use crate::faulty_tier::FaultyTier;
use crate::origin::Origin;
use crate::world::{SITE, bytes, key, tagged};

/// Number of purges that the log cannot keep.
const TOO_MANY: usize = 100;

/// Time for which unverified entries are served, in milliseconds.
const PATIENCE: u64 = 30_000;

/// Maximum time until a bookmark is stored, in milliseconds.
const KEPT: u64 = 600;

/// An instance that keeps running, and consecutive processes of another one that has a tier of its
/// own.
struct Lives {
    together: Together,
    tier: FaultyTier,
    /// Origin of red entries, whose answers are 1, 2, 3, ….
    red: Origin,
    blue: Origin,
}

impl Lives {
    async fn new(when_blind: WhenBlind) -> Self {
        let together = Together::made(1, Making { when_blind, ..Making::default() }).await;
        let clock: Arc<dyn Clock> = together.clock.clone();
        let tagging = |tag: &'static str| match tag {
            "red" => numbering(&together.clock, |clock| tagged(long(clock), "red")),
            _ => numbering(&together.clock, |clock| tagged(long(clock), "blue")),
        };
        let (red, blue) = (tagging("red"), tagging("blue"));
        Self { tier: FaultyTier::new("own", clock), together, red, blue }
    }

    fn one(&self) -> Instance {
        self.together.instances[0].clone()
    }

    /// Starts the next process, with what the previous one has stored.
    fn begin(&mut self) -> Instance {
        self.tier = self.tier.restarted();
        self.together.join(&[Arc::new(self.tier.clone()) as Arc<dyn Tier>])
    }

    /// Runs a process that stores `a` (red) and `b` (blue), and kills it.
    async fn filled(&mut self) {
        let life = self.begin();
        pass(300).await;
        assert_eq!((self.a(&life).await, self.b(&life).await), ("1".into(), "1".into()));
        pass(KEPT).await;
        assert_eq!(self.tier.records(), 2);
        kill(&life);
    }

    async fn a(&self, instance: &Instance) -> String {
        body(instance, "a", &self.red).await
    }

    async fn b(&self, instance: &Instance) -> String {
        body(instance, "b", &self.blue).await
    }

    fn loads(&self) -> (usize, usize) {
        (self.red.loads(), self.blue.loads())
    }

    async fn purge_many(&self) {
        for number in 0..TOO_MANY {
            self.one().purge_key(&number.to_string()).await;
        }
    }

    /// Empties the shared server.
    async fn forget(&self) {
        self.together.server.flush();
        pass(300).await;
    }
}

fn long(clock: &Passing) -> forebay_core::Meta {
    forebay_core::Meta::new(clock.now(), forebay_core::Lifetime::fresh(crate::world::secs(600)))
}

/// Stops the instance for ever.
fn kill(instance: &Instance) {
    instance.link.freeze(true);
    instance.link.cut(true);
}

async fn body(instance: &Instance, name: &str, origin: &Origin) -> String {
    let obtained = instance.obtain(name, origin).await.expect("an answer");
    String::from_utf8(bytes(&obtained).to_vec()).expect("a number")
}

/// Purges that affect `a`, each with `true` if it affects `b`, too.
fn purges() -> [(Purge, bool); 5] {
    [
        (Purge::Key(key("a")), false),
        (Purge::Tag("red".into()), false),
        (Purge::Prefix { site: SITE.into(), prefix: "a".into() }, false),
        (Purge::Site(SITE.into()), true),
        (Purge::All, true),
    ]
}

#[tokio::test(start_paused = true)]
async fn what_was_purged_meanwhile_is_gone_and_the_rest_is_warm() {
    for when_blind in [WhenBlind::Strict, WhenBlind::Available] {
        for (what, reaches_both) in purges() {
            for reach in [Reach::Hard, Reach::Soft] {
                let mut lives = Lives::new(when_blind).await;
                lives.filled().await;
                lives.one().purge(what.clone(), reach).await;
                let life = lives.begin();
                // At once, before it has received any purge.
                let case = format!("{when_blind:?} {what:?} {reach:?}");
                let b = if reaches_both { "2" } else { "1" };
                assert_eq!(
                    (lives.a(&life).await, lives.b(&life).await),
                    ("2".into(), b.into()),
                    "{case}"
                );
                assert_eq!(lives.loads(), (2, 1 + usize::from(reaches_both)), "{case}");
                // What it waited for was purged meanwhile, and is stored the next time.
                let newest = lives.a(&life).await;
                pass(KEPT).await;
                kill(&life);
                // What was heard once more has reached nothing that came since.
                let (life, loads) = (lives.begin(), lives.loads());
                assert_eq!((lives.a(&life).await, lives.b(&life).await), (newest, b.into()));
                assert_eq!(lives.loads(), loads, "{case}");
            }
        }
    }
}

/// Entries stay valid also later: no purge was missed.
#[tokio::test(start_paused = true)]
async fn what_was_not_purged_meanwhile_is_trusted() {
    let mut lives = Lives::new(WhenBlind::Available).await;
    lives.filled().await;
    lives.together.server.evict_records();
    let life = lives.begin();
    assert_eq!(lives.a(&life).await, "1");
    pass(2 * PATIENCE).await;
    assert_eq!((lives.a(&life).await, lives.b(&life).await), ("1".into(), "1".into()));
    assert_eq!((lives.loads(), life.seen.suspects.lock().len()), ((1, 1), 0));
}

#[tokio::test(start_paused = true)]
async fn where_too_much_was_purged_meanwhile_it_is_looked_at_in_what_is_shared() {
    let mut lives = Lives::new(WhenBlind::Strict).await;
    lives.filled().await;
    lives.one().purge(Purge::Tag("red".into()), Reach::Hard).await;
    lives.purge_many().await;
    let life = lives.begin();
    assert_eq!((lives.a(&life).await, lives.b(&life).await), ("2".into(), "1".into()));
    assert_eq!(lives.loads(), (2, 1), "what stands there is not loaded");
}

#[tokio::test(start_paused = true)]
async fn what_is_suspect_is_served_for_as_long_as_stated_and_not_longer() {
    for away in [false, true] {
        let mut lives = Lives::new(WhenBlind::Available).await;
        lives.filled().await;
        lives.one().purge(Purge::Tag("red".into()), Reach::Hard).await;
        lives.forget().await;
        let life = lives.begin();
        life.link.cut(away);
        pass(1_000).await;
        assert_eq!(life.hears(), !away);
        // Brought into memory it is not better than it was.
        assert_eq!((lives.a(&life).await, lives.b(&life).await), ("1".into(), "1".into()));
        pass(PATIENCE - 2_000).await;
        assert_eq!(life.obtain("a", &lives.red).await.unwrap().source, Source::Hit);
        pass(2_000).await;
        assert_eq!((lives.a(&life).await, lives.b(&life).await), ("2".into(), "2".into()));
        assert_eq!(lives.loads(), (2, 2), "away: {away}");
    }
}

#[tokio::test(start_paused = true)]
async fn strict_serves_nothing_that_nobody_can_vouch_for() {
    for away in [false, true] {
        let mut lives = Lives::new(WhenBlind::Strict).await;
        lives.filled().await;
        lives.one().purge(Purge::Tag("red".into()), Reach::Soft).await;
        lives.forget().await;
        let life = lives.begin();
        life.link.cut(away);
        assert_eq!((lives.a(&life).await, lives.b(&life).await), ("2".into(), "2".into()));
        assert_eq!(lives.loads(), (2, 2), "away: {away}");
    }
}

/// A gap in the bus also applies to the next process.
#[tokio::test(start_paused = true)]
async fn what_one_life_could_not_look_at_is_suspect_in_the_next() {
    let mut lives = Lives::new(WhenBlind::Available).await;
    lives.filled().await;
    lives.forget().await;
    let life = lives.begin();
    pass(300).await;
    assert_eq!(lives.b(&life).await, "1", "it may be served for a while");
    assert_eq!(body(&life, "c", &lives.blue).await, "2");
    pass(KEPT).await;
    kill(&life);
    lives.together.server.evict_records();
    let life = lives.begin();
    assert_eq!(body(&life, "c", &lives.blue).await, "2", "it came after the gap");
    assert_eq!(lives.b(&life).await, "3", "its time is over");
    pass(2 * PATIENCE).await;
    assert_eq!(body(&life, "c", &lives.blue).await, "2");
}

/// A received purge that the tier could not record is received again by the next process, or its
/// entries are unverified.
#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_down_is_not_taken_for_done() {
    for what in [Purge::Key(key("a")), Purge::Tag("red".into())] {
        let mut lives = Lives::new(WhenBlind::Strict).await;
        lives.filled().await;
        let life = lives.begin();
        pass(300).await;
        lives.tier.refuse_removals(true);
        lives.tier.refuse_purges(true);
        lives.one().purge(what.clone(), Reach::Hard).await;
        pass(KEPT).await;
        kill(&life);
        lives.together.server.evict_records();
        let life = lives.begin();
        assert_eq!(lives.a(&life).await, "2", "{what:?}");
        assert_eq!(lives.b(&life).await, "2", "nobody knows which one it was");
    }
}

/// An instance that shares no tier stores no bookmark, and waits for no bus.
#[tokio::test(start_paused = true)]
async fn alone_nothing_is_suspect() {
    let mut lives = Lives::new(WhenBlind::Strict).await;
    lives.filled().await;
    let tier = lives.tier.restarted();
    let clock = lives.together.clock.clone();
    let limits = forebay_engine::Limits::of(crate::world::MEMORY);
    let tiers = vec![Arc::new(tier) as Arc<dyn Tier>];
    let engine = forebay_engine::Engine::with_tiers(limits, clock, Arc::new(()), tiers);
    let began = tokio::time::Instant::now();
    let question = crate::world::Question::from("a");
    let obtained =
        crate::world::answer_to(&engine, &question.ask(&lives.red), lives.red.clone()).await;
    assert_eq!(bytes(&obtained.expect("an answer")), "1");
    assert_eq!((began.elapsed().as_millis(), lives.loads()), (0, (1, 1)));
}
