//! After a purge or a broken body, no caller gets an old or incomplete value.

use std::sync::atomic::AtomicBool;

use forebay_core::{Purge, Reach};

use super::*;
use crate::runtime::sync::atomic::{AtomicU64, Ordering};
use crate::{BrokenBody, Source};

fn some_purge() -> (Purge, Reach) {
    let what = match thread_rng().gen_range(0..4) {
        0 => Purge::Tag(TAG.into()),
        1 => Purge::Site(SITE.into()),
        2 => Purge::All,
        _ => Purge::Key(key()),
    };
    (what, if thread_rng().gen_bool(0.25) { Reach::Soft } else { Reach::Hard })
}

/// Value at the origin, and whether it was purged. Only the value is a point at which the scheduler
/// may switch.
#[derive(Default)]
struct Database {
    truth: AtomicU64,
    /// `true` after a hard purge has returned.
    purged: AtomicBool,
    /// `true` if a load that read the old value was answered after that purge.
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

    /// Changes the value, then purges the old one. Returns the lowest value that later callers may
    /// get.
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
/// 1. A: starts
/// 2. the truth changes
/// 3. P: purges
/// 4. A: stores the old value, or announces it to C, which arrived after P
///
/// And: A counts as started when its load completed, and so after P.
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
                let stored =
                    matches!(obtained.source, Source::Led { stored: true, .. }) && !in_pieces;
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
                let (number, source) = (number_from(&obtained).await, obtained.source);
                assert!(number >= floor, "{number} after a purge at {floor}, {source:?}");
            })
        };
        let purges: Vec<_> = (0..2).map(purges).collect();
        join(purges.into_iter().chain([earlier]));
        settle(&engine);
        assert!(
            answer_without_load(&engine, &origin).is_none_or(|number| number == 2),
            "the old is at hand"
        );
    });
}

/// Invariant 5: what was purged is not asked about, or an origin that says it is unchanged would
/// bring it back.
///
/// 1. A: looks, finds the stale
/// 2. P: purges
/// 3. A: joins, or goes alone, asks about what it    has found
/// 4. the origin: it is unchanged
/// 5. A: stores it, as if it were new
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
                let ask = Lookup { coalesce, ..ask(&key, &demand, &origin) };
                let obtained = answer_to(&engine, &ask, origin.clone()).await.expect("an answer");
                let confirmed = number_from(&obtained).await == 0;
                seen.note(if confirmed { "confirmed in time" } else { "loaded" });
            })
        };
        let earlier = [earlier(Coalesce::Cluster), earlier(Coalesce::Never)];
        let purges = {
            let (engine, origin) = (engine.clone(), origin.clone());
            spawn(async move {
                pause().await;
                let (what, _) = some_purge();
                engine.purge(&what, Reach::Hard).await;
                let obtained = obtain(engine, origin).await.expect("an answer");
                let source = obtained.source;
                assert_eq!(
                    number_from(&obtained).await,
                    1,
                    "after a purge of {what:?}, {source:?}"
                );
            })
        };
        join(earlier.into_iter().chain([purges]));
        settle(&engine);
        assert_ne!(answer_without_load(&engine, &origin), Some(0), "what was purged is back");
    });
}

/// Invariants 2 and 6: a refresh that breaks off leaves what was stored, at any moment.
///
/// 1. A: is given the stale, refreshes
/// 2. the new head is here, and a part of its body
/// 3. B: looks, and finds nothing, or half
/// 4. the body breaks off, and the stale is gone
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
            let content = Content::Stream(half.chain(stream::once(broken)).boxed());
            Ok(varying(Loaded::Entry { meta: meta(), head: Head::default(), content }))
        });
        let caller = |_| {
            let (engine, origin, seen) = (engine.clone(), origin.clone(), seen.clone());
            spawn(async move {
                for _ in 0..2 {
                    let obtained = obtain(engine.clone(), origin.clone()).await.expect("the stale");
                    assert_eq!(number_of(&obtained.entry), 7);
                    if obtained.source == Source::Refreshing {
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
