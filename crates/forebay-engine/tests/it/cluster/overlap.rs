//! Overlapping loads whose origin reads in another order than they started. A version that was
//! read once may be followed by the one before it, until the purge of the older one is
//! acknowledged; never after that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{Purge, Reach, WhenBlind};
use forebay_engine::{Coalesce, LeaseEvent, Outcome, Propagation};
use tokio::task::JoinHandle;

use super::counts::minute;
use super::{Instance, Making, Passing, Together, pass};
use crate::origin::{Origin, whole};
use crate::world::{Question, bytes, key, tagged};

/// Version of the key `a`, which is tagged red.
#[derive(Clone)]
struct Truth {
    version: Arc<AtomicU64>,
    clock: Arc<Passing>,
}

impl Truth {
    fn new(together: &Together) -> Self {
        Self { version: Arc::new(AtomicU64::new(1)), clock: together.clock.clone() }
    }

    fn change(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// An origin that reads the version so many milliseconds after it was asked, and answers so
    /// many later.
    fn origin(&self, before: u64, after: u64) -> Origin {
        let truth = self.clone();
        Origin::new(move |_| {
            let truth = truth.clone();
            async move {
                pass(before).await;
                let version = truth.version.load(Ordering::SeqCst);
                pass(after).await;
                Ok(whole(tagged(minute(&truth.clock), "red"), version.to_string()))
            }
        })
    }
}

async fn read(instance: &Instance, origin: &Origin) -> u64 {
    number(&instance.obtain("a", origin).await.expect("an answer"))
}

fn number(obtained: &Outcome) -> u64 {
    std::str::from_utf8(&bytes(obtained)).expect("text").parse().expect("a version")
}

/// Reads in a task of its own.
fn reading(instance: &Instance, origin: Origin) -> JoinHandle<u64> {
    let instance = instance.clone();
    tokio::spawn(async move { read(&instance, &origin).await })
}

async fn purged(instance: &Instance, what: Purge) {
    let purged = instance.purge(what, Reach::Hard).await;
    assert!(matches!(purged.propagation, Propagation::Published(_)), "{purged:?}");
}

fn by_key() -> Purge {
    Purge::Key(key("a"))
}

/// Purges, and checks that all instances give the newest version from then on.
async fn settled(together: &Together, truth: &Truth, what: Purge) {
    purged(&together.instances[0], what).await;
    pass(5).await;
    let newest = truth.version.load(Ordering::SeqCst);
    for _ in 0..3 {
        for instance in &together.instances {
            assert_eq!(read(instance, &truth.origin(0, 0)).await, newest);
        }
        pass(2_000).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_that_was_cut_may_be_ahead_of_what_another_instance_has_loaded_later() {
    let together = Together::new(2).await;
    let [one, other] = &together.instances[..] else { unreachable!() };
    let truth = Truth::new(&together);
    let cut = reading(other, truth.origin(40, 10));
    pass(5).await;
    truth.change();
    purged(one, by_key()).await;
    pass(5).await;
    assert_eq!(read(one, &truth.origin(0, 0)).await, 2);
    truth.change();
    assert_eq!(cut.await.unwrap(), 3, "its origin has read late");
    assert_eq!(read(other, &truth.origin(0, 0)).await, 2);
    settled(&together, &truth, by_key()).await;
}

/// Memory holds the entry of the later load, and the next caller is given that one.
#[tokio::test(start_paused = true)]
async fn a_load_that_was_outrun_gives_what_has_outrun_it() {
    for purges in [true, false] {
        for is_cut_off in [true, false] {
            let together = Together::new(2).await;
            let [other, one] = &together.instances[..] else { unreachable!() };
            let truth = Truth::new(&together);
            if is_cut_off {
                one.link.cut(true);
            }
            let outrun = reading(one, truth.origin(200, 10));
            pass(50).await;
            let later = if purges {
                truth.change();
                one.purge_key("a").await;
                read(one, &truth.origin(0, 0)).await
            } else {
                // As a client that wants a load of its own: it stores what it brings.
                truth.change();
                let question = Question { coalesce: Coalesce::Never, ..Question::from("a") };
                let obtained = one.obtain(question, &truth.origin(0, 0)).await.expect("an answer");
                number(&obtained)
            };
            assert_eq!(later, 2);
            truth.change();
            assert_eq!(outrun.await.unwrap(), 2, "{purges} {is_cut_off}");
            assert_eq!(read(one, &truth.origin(0, 0)).await, 2, "{purges} {is_cut_off}");
            one.link.cut(false);
            pass(3_000).await;
            purged(other, by_key()).await;
            settled(&together, &truth, by_key()).await;
        }
    }
}

/// A request for a load of its own is answered by that load alone.
#[tokio::test(start_paused = true)]
async fn a_caller_that_wants_a_load_of_its_own_is_given_what_that_brings() {
    let together = Together::new(1).await;
    let [one] = &together.instances[..] else { unreachable!() };
    let truth = Truth::new(&together);
    let question = Question { coalesce: Coalesce::Never, ..Question::from("a") };
    let own = tokio::spawn({
        let asked = one.obtain(question, &truth.origin(40, 10));
        async move { number(&asked.await.expect("an answer")) }
    });
    pass(5).await;
    one.purge_key("a").await;
    assert_eq!(read(one, &truth.origin(0, 0)).await, 1);
    truth.change();
    assert_eq!(own.await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_loaded_without_a_lease_may_be_ahead_of_what_is_shared() {
    let making = Making { when_blind: WhenBlind::Strict, ..Making::default() };
    // A purge that was missed, and more of them than the log keeps.
    for purges in [1, 100] {
        let together = Together::made(2, making).await;
        let [one, cut] = &together.instances[..] else { unreachable!() };
        let truth = Truth::new(&together);
        assert_eq!(read(cut, &truth.origin(0, 0)).await, 1);
        cut.link.cut(true);
        pass(2_000).await;
        truth.change();
        for _ in 0..purges {
            purged(one, by_key()).await;
        }
        assert_eq!(read(one, &truth.origin(0, 0)).await, 2);
        truth.change();
        assert_eq!(read(cut, &truth.origin(0, 0)).await, 3);
        assert!(cut.seen.came(LeaseEvent::Failed) > 0);
        cut.link.cut(false);
        pass(300).await;
        assert_eq!(read(cut, &truth.origin(0, 0)).await, 2, "{purges}");
        settled(&together, &truth, by_key()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_waited_too_long_for_another_instance_may_be_ahead_of_it() {
    let wait_max = Duration::from_millis(50);
    let together = Together::made(2, Making { wait_max, ..Making::default() }).await;
    let [one, other] = &together.instances[..] else { unreachable!() };
    let truth = Truth::new(&together);
    let slow = reading(one, truth.origin(10, 200));
    pass(20).await;
    truth.change();
    assert_eq!(read(other, &truth.origin(0, 0)).await, 2);
    assert_eq!(other.seen.came(LeaseEvent::Overdue), 1);
    assert_eq!(slow.await.unwrap(), 1);
    pass(5).await;
    assert_eq!(read(other, &truth.origin(0, 0)).await, 1);
    settled(&together, &truth, by_key()).await;
}
