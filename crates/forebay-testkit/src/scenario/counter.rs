//! Counters of origins and front ends.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::Instant;

use super::check::holds;
use super::line::Line;
use super::metrics::Selector;
use super::run::World;

/// Interval between reads of a counter.
const PAUSE: Duration = Duration::from_millis(10);

/// Reads a counter until it has the expected value or `give_up` is reached. The rest of the line is
/// `ORIGIN COUNT [PATH] OP N` or `FOREBAY [metric] NAME{…} OP N`.
pub(super) async fn settle(words: Line, world: &World, give_up: Instant) -> anyhow::Result<()> {
    let subject = words.rest.split(' ').next().unwrap_or_default();
    loop {
        let mut words = words;
        let came = read(&mut words, world)?;
        let sign = words.word("one of = != >= <= > <")?;
        let number = words.number("a number")?;
        words.end()?;
        if holds(came, sign, number)? {
            return Ok(());
        }
        if Instant::now() >= give_up {
            let came = came.map_or_else(|| "no metric of that name".to_owned(), |c| c.to_string());
            bail!("{subject}: expected a count {sign} {number}, came {came}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Value of a counter; `None` if the metrics do not contain it, as before its first event.
fn read(words: &mut Line, world: &World) -> anyhow::Result<Option<f64>> {
    let subject = words.word("an origin or a forebay")?;
    if let Some(front) = world.fronts.get(subject) {
        words.take("metric");
        let read = Selector::read(words.rest);
        let (selector, rest) = read.with_context(|| format!("`{}` is no metric", words.rest))?;
        words.rest = rest.trim_start();
        let text = front.metrics_text().context("this front end has no metrics")?;
        return Ok(selector.sum(&text));
    }
    let origin = world.origins.get(subject);
    let origin = origin.with_context(|| format!("no origin or forebay is called `{subject}`"))?;
    let counts = origin.counts();
    let count = match words.word("a count")? {
        "requests" if words.rest.starts_with('/') => origin.requests_to(words.word("a path")?),
        "requests" => counts.requests,
        "conditional" => counts.conditional,
        "connections" => counts.connections,
        "in-flight" => counts.in_flight,
        "in-flight-max" => counts.in_flight_max,
        "abandoned" => counts.abandoned,
        other => bail!("`{other}` is no counter of an origin"),
    };
    Ok(Some(count as f64))
}
