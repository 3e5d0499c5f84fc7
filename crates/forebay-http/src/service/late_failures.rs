//! Order of the responses to requests that a circuit breaker ends all at once.
//!
//! When a breaker opens, each request that waited for the origin is answered. There may be
//! thousands of them; without an order, a request that comes then waits behind all of them.

use std::time::Duration;

use forebay_core::Timestamp;
use forebay_engine::{Clock, LoadError};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;

/// Maximum number of requests that are answered at a time after the breaker ended them.
const ANSWERED_MAX: usize = 16;

/// Wait after which a failed request lets new requests go first. A breaker that is open already
/// rejects a request at once.
const WAIT_MIN: Duration = Duration::from_millis(100);

/// Turns of requests that waited for an origin until its circuit breaker opened.
#[derive(Debug)]
pub(super) struct LateFailures {
    turns: Semaphore,
}

impl Default for LateFailures {
    fn default() -> Self {
        Self { turns: Semaphore::new(ANSWERED_MAX) }
    }
}

impl LateFailures {
    /// Waits for the turn of a request that began to wait at `begun`, if the breaker ended it. The
    /// turn is over when the permit is dropped. No turn includes a wait for a peer, so this wait is
    /// the time to answer the requests before.
    pub(super) async fn turn<T>(
        &self,
        result: &Result<T, LoadError>,
        begun: Timestamp,
        clock: &dyn Clock,
    ) -> Option<SemaphorePermit<'_>> {
        let is_ended = matches!(result, Err(LoadError::Unavailable(_)));
        if !is_ended || clock.now().since(begun) < WAIT_MIN {
            return None;
        }
        let turn = self.turns.acquire().await.ok();
        // Otherwise each of them would be answered as soon as its task runs.
        yield_now().await;
        turn
    }
}

#[cfg(test)]
mod tests {
    use forebay_engine::SystemClock;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_requests_that_waited_until_the_breaker_opened_take_turns() {
        let late = LateFailures::default();
        let (begun, now) = (Timestamp::default(), SystemClock.now().plus(WAIT_MIN));
        let ended = Err::<(), _>(LoadError::Unavailable(Duration::ZERO));
        let turn = async |result, begun| {
            timeout(WAIT_MIN, late.turn(result, begun, &SystemClock)).await.map(|it| it.is_some())
        };
        let turns = (0..ANSWERED_MAX).map(|_| late.turn(&ended, begun, &SystemClock));
        let turns = futures_util::future::join_all(turns).await;
        assert!(turns.iter().all(Option::is_some));
        assert!(turn(&ended, begun).await.is_err(), "waits for its turn");
        assert_eq!(turn(&ended, now).await, Ok(false), "rejected at once");
        assert_eq!(turn(&Ok(()), begun).await, Ok(false), "answered");
        drop(turns);
        assert_eq!(turn(&ended, begun).await, Ok(true));
    }
}
