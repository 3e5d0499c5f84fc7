//! Stale responses while the origin is broken. Exact timings are measured elsewhere; here, only
//! that no response comes before it is due.

#[path = "../../../forebay-bench/src/stampede/broken.rs"]
mod case;

use std::path::Path;
use std::time::Duration;

use crate::world::BINARY;
use case::{Breakage, Broken, CLIENTS, ERROR_DELAY, FETCH_TIMEOUT, SOFT_TIMEOUT, Said};

/// Upper limit of every case, far above the expected time, for a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(10);

async fn holds(breakage: Breakage, said: Said) -> anyhow::Result<()> {
    let broken = Broken { breakage, said };
    let got = broken.play(Path::new(BINARY)).await?;
    let took = got.times.max();
    let stale = if broken.status() == 200 { CLIENTS } else { 0 };
    assert_eq!((got.wrong, got.stale), (0, stale), "{got:?}");
    assert!((1..=broken.fetches_max(took)).contains(&got.fetches), "{got:?}");
    assert_eq!(got.replies.values().sum::<usize>(), CLIENTS, "{got:?}");
    let due = match (breakage, broken.status()) {
        (Breakage::Error, _) => ERROR_DELAY,
        (Breakage::Refused, _) => Duration::ZERO,
        (Breakage::Hangs, 200) => SOFT_TIMEOUT,
        (Breakage::Hangs, _) => FETCH_TIMEOUT,
    };
    assert!((due..WAIT_MAX).contains(&took), "{got:?}");
    Ok(())
}

/// Makes one test per case.
macro_rules! cases {
    ($($name:ident: $breakage:ident, $said:ident)*) => {
        $(#[tokio::test]
        async fn $name() -> anyhow::Result<()> {
            holds(Breakage::$breakage, Said::$said).await
        })*

        #[test]
        fn every_case_is_tested() {
            let tested =
                [$(Broken { breakage: Breakage::$breakage, said: Said::$said }),*];
            assert_eq!(Broken::all().collect::<Vec<_>>(), tested);
        }
    };
}

cases! {
    an_error_is_told: Error, Nothing
    an_error_is_not_told_where_stale_if_error_allows_that: Error, StaleIfError
    an_error_is_told_where_nothing_stale_may_be: Error, MustRevalidate
    without_an_origin_the_old_answer_is_served: Refused, Nothing
    without_an_origin_stale_if_error_is_served: Refused, StaleIfError
    without_an_origin_what_must_be_validated_is_a_504: Refused, MustRevalidate
    an_origin_that_hangs_is_waited_for_until_the_soft_timeout: Hangs, Nothing
    so_it_is_with_stale_if_error: Hangs, StaleIfError
    what_must_be_validated_is_waited_for_to_the_end: Hangs, MustRevalidate
}
