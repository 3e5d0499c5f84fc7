//! What early refresh spares, in time that is only said to pass: the bounds hold whatever the
//! machine does meanwhile. How it goes in real time is measured elsewhere.

#[path = "../../examples/early/experiment.rs"]
mod experiment;
#[path = "../../examples/early/traffic.rs"]
mod traffic;

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Timestamp, WallTime};
use forebay_engine::Clock;
use tokio::time::Instant;

use experiment::{LOAD, Outcome};
use traffic::{KEYS, Traffic};

/// As long as is measured in real time; here it takes a moment.
const MEASURED: Duration = Duration::from_secs(60);

/// The time of the runtime, which a test may stop.
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let passed = self.0.elapsed().as_millis();
        Timestamp::from_millis(passed.try_into().unwrap_or(i64::MAX))
    }

    fn wall(&self) -> WallTime {
        WallTime::from_secs(self.0.elapsed().as_secs())
    }

    fn exact(&self) -> Duration {
        self.0.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn early_refresh_spares_most_foreground_loads_and_nobody_waits_for_it() -> anyhow::Result<()>
{
    let clock = Arc::new(RuntimeClock(Instant::now()));
    let outcome = experiment::run((1, MEASURED), clock).await?;
    let Outcome { early, never, late_max } = &outcome;
    for tally in [early, never] {
        assert_eq!((tally.fresh_that_waited, tally.other), (0, 0), "{outcome:?}");
        assert_eq!(tally.fresh_max, Duration::ZERO, "{outcome:?}");
        assert_eq!(tally.loads_of_one_key, 1, "{outcome:?}");
        assert_eq!(tally.fresh + tally.foreground(), tally.requests, "{outcome:?}");
        let (least, most) = tally.learnt.expect("something was loaded");
        assert!(least >= LOAD && most < LOAD + Duration::from_millis(3), "{outcome:?}");
    }
    assert!(early.hit_ratio() >= 0.996 && outcome.ratio() <= 0.4, "{outcome:?}");
    assert!(early.refreshing > 0 && early.loads > early.led, "{outcome:?}");
    assert!(early.joined_wait_max < LOAD, "a refresh that is joined is under way: {outcome:?}");
    assert_eq!((never.refreshing, never.joined), (0, 0), "{outcome:?}");
    assert!(*late_max < Duration::from_millis(2), "time passes only while all wait: {late_max:?}");
    Ok(())
}

#[test]
fn a_seed_gives_the_same_requests_and_they_are_spread_as_said() {
    let drawn: Vec<_> = Traffic::from_seed(7).take(100_000).collect();
    let again = Traffic::from_seed(7).take(100_000);
    assert!(again.eq(drawn.iter().copied()));
    let count = drawn.len() as f64;
    let rate = count / drawn[drawn.len() - 1].at.as_secs_f64();
    assert!((850.0..870.0).contains(&rate), "{rate}");
    let mean = drawn.iter().map(|arrival| arrival.key as f64).sum::<f64>() / count;
    let variance =
        drawn.iter().map(|arrival| (arrival.key as f64 - mean).powi(2)).sum::<f64>() / count;
    // Rounding adds a twelfth to the variance.
    assert!((49.95..50.05).contains(&mean) && (3.9..4.3).contains(&variance), "{mean} {variance}");
    assert!(drawn.iter().all(|arrival| arrival.key < KEYS - 1));
}
