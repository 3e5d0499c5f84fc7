//! Many callers at once.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use forebay_engine::{LoadError, Outcome};
use forebay_testkit::gate::Gate;
use tokio::task::JoinHandle;

/// Maximum time that a test waits. With paused time it is over as soon as no task can run.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type Obtaining = Result<Outcome, LoadError>;

/// Callers that have all asked: each has gone as far as it could without waiting.
pub(crate) struct Crowd(Vec<JoinHandle<Obtaining>>);

impl Crowd {
    /// Lets `count` callers ask, and returns when all of them have.
    pub(crate) async fn of<F, A>(count: usize, ask: F) -> Self
    where
        F: Fn(usize) -> A,
        A: Future<Output = Obtaining> + Send + 'static,
    {
        let asked = Gate::of(count);
        let callers =
            (0..count).map(|number| tokio::spawn(arriving(ask(number), asked.clone()))).collect();
        within_patience(asked.wait()).await;
        Self(callers)
    }

    /// All callers go away without an answer.
    pub(crate) async fn leave(self) {
        for caller in self.0 {
            caller.abort();
            assert!(caller.await.expect_err("it was still waiting").is_cancelled());
        }
    }

    /// Returns the results of all callers, in their order.
    pub(crate) async fn told(self) -> Vec<Obtaining> {
        let mut told = Vec::with_capacity(self.0.len());
        for caller in self.0 {
            told.push(within_patience(caller).await.expect("a caller does not panic"));
        }
        told
    }

    /// Returns the answers of all callers, in their order.
    pub(crate) async fn obtained(self) -> Vec<Outcome> {
        self.told().await.into_iter().map(|told| told.expect("an answer")).collect()
    }
}

/// Waits until this number of loads waits at a gate.
pub(crate) async fn reached(gate: &Gate, count: usize) {
    within_patience(gate.wait_waiters(count)).await;
}

/// Fails a test that would wait for ever.
pub(crate) async fn within_patience<F: Future>(waiting: F) -> F::Output {
    tokio::time::timeout(PATIENCE, waiting).await.expect("it does not take for ever")
}

async fn arriving<A: Future>(ask: A, asked: Gate) -> A::Output {
    let mut ask = pin!(ask);
    let mut arrives = true;
    poll_fn(|cx| {
        let polled = ask.as_mut().poll(cx);
        if std::mem::take(&mut arrives) {
            asked.arrive();
        }
        polled
    })
    .await
}
