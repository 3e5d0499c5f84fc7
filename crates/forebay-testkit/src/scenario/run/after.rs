//! Checks the counters after all clients have ended.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;

use super::{Fault, World};
use crate::scenario::script::{Count, Counter, OriginCount};

/// Maximum wait for all counters: a server may count a response after its client has read it.
const COUNTER_WAIT: Duration = Duration::from_secs(2);

/// Interval between reads of a counter.
const COUNTER_PAUSE: Duration = Duration::from_millis(10);

pub(super) async fn check(counters: &[Counter], world: &World) -> Vec<Fault> {
    let mut faults = Vec::new();
    let give_up = Instant::now() + COUNTER_WAIT;
    for counter in counters {
        let fault = |what| Fault::new(counter.line, format!("{}: {what}", counter.subject));
        faults.extend(settle(counter, world, give_up).await.err().map(fault));
    }
    faults
}

/// Reads the counter until it has the expected value or `give_up` is reached.
pub(super) async fn settle(
    counter: &Counter,
    world: &World,
    give_up: Instant,
) -> Result<(), String> {
    loop {
        let came = read(counter, world).map_err(|error| format!("{error:#}"))?;
        if came.is_some_and(|came| counter.compare.holds(came, counter.number)) {
            return Ok(());
        }
        if Instant::now() >= give_up {
            let (compare, number) = (counter.compare, counter.number);
            let came = came.map_or_else(|| "no metric of that name".to_owned(), |c| c.to_string());
            return Err(format!("expected a count {compare} {number}, came {came}"));
        }
        tokio::time::sleep(COUNTER_PAUSE).await;
    }
}

/// Value of a counter; `None` if the metrics do not contain it, as before its first event.
fn read(counter: &Counter, world: &World) -> anyhow::Result<Option<f64>> {
    match &counter.count {
        Count::Origin(count) => {
            let origin = world.origins.get(&counter.subject).context("no such origin")?;
            let count = match count {
                OriginCount::RequestsTo(path) => origin.requests_to(path),
                OriginCount::Of(count) => count(&origin.counts()),
            };
            Ok(Some(count as f64))
        }
        Count::Metric(selector) => {
            let front = world.fronts.get(&counter.subject).context("no such forebay")?;
            let text = front.metrics_text().context("this front end has no metrics")?;
            Ok(selector.sum(&text))
        }
    }
}
