//! Deadline that several steps share.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::time::Sleep;

/// End of the time that several steps share.
pub(crate) struct Deadline {
    sleep: Pin<Box<Sleep>>,
    is_over: bool,
}

impl Deadline {
    pub(crate) fn within(span: Duration) -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(span)), is_over: false }
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns `true` if this much time is left, by a timer's own clock.
    pub(super) fn leaves(&self, span: Duration) -> bool {
        self.sleep.deadline() >= tokio::time::sleep(span).deadline()
    }

    /// Returns the output of `future`, or `None` at the deadline.
    pub(super) async fn race<F: Future>(&mut self, future: F) -> Option<F::Output> {
        if self.is_over {
            return None;
        }
        match select(pin!(future), &mut self.sleep).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => {
                self.is_over = true;
                None
            }
        }
    }
}
