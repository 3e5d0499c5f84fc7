//! Panic isolation of tiers and the bus: a panic counts as a failure.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use super::error::TierError;
use crate::runtime::panic_text;

/// Runs an operation of a tier or a bus. A panic is a failure like any other, even before the
/// operation has returned its future.
pub(crate) async fn caught<T, F>(begin: impl FnOnce() -> F) -> Result<T, TierError>
where
    F: Future<Output = Result<T, TierError>>,
{
    let operation = AssertUnwindSafe(async { begin().await }).catch_unwind();
    operation.await.unwrap_or_else(|panic| Err(TierError::failed(panic_text(&*panic))))
}

#[cfg(test)]
mod tests {
    use std::future::Ready;

    use super::*;

    #[tokio::test]
    async fn what_does_not_panic_is_as_it_was() {
        assert!(matches!(caught(|| async { Ok(1) }).await, Ok(1)));
        let overdue = caught(|| async { Err::<(), _>(TierError::TimedOut) }).await;
        assert!(matches!(overdue, Err(TierError::TimedOut)));
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_also_before_there_is_a_future() {
        let within = caught(|| async { panic!("within") }).await;
        let before = caught(|| -> Ready<Result<(), TierError>> { panic!("before") }).await;
        for (failed, word) in [(within, "within"), (before, "before")] {
            let Err(TierError::Failed(cause)) = failed else { unreachable!("{failed:?}") };
            assert!(cause.to_string().contains(word), "{cause}");
        }
    }
}
