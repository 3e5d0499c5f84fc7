//! Early refresh in simulated time, so that the bounds hold on any machine. Real time is measured
//! elsewhere.

#[path = "../../../forebay-bench/src/early/experiment.rs"]
mod experiment;

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Timestamp, WallTime};
use forebay_engine::Clock;
use forebay_testkit::traffic::LOAD;
use tokio::time::Instant;

use experiment::Tallies;

/// Simulated duration.
const MEASURED: Duration = Duration::from_secs(60);

/// Clock of the runtime, which a test can pause.
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
async fn early_refresh_avoids_most_foreground_loads_and_no_request_waits_for_it()
-> anyhow::Result<()> {
    let clock = Arc::new(RuntimeClock(Instant::now()));
    let outcome = experiment::run(1, MEASURED, clock).await?;
    let Tallies { early, never, late_max } = &outcome;
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
