//! Adaptive limit: an origin that refuses requests above its capacity.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use forebay_testkit::origin::{Answer, Origin};
use parking_lot::Mutex;

use super::cache;
use super::traffic::{Reply, closed_loop, count_other};
use crate::environment::Options;
use crate::report::{Bound, Table};

/// Requests that the origin processes at once; it refuses further ones with 503.
const CAPACITY: usize = 32;

/// Time of a request at the origin.
const EXCHANGE: Duration = Duration::from_millis(50);

/// Clients without a pause.
const CLIENTS: u64 = 128;

/// Least rate of responses, relative to the best fixed limit.
const RATE_MIN: f64 = 0.90;

/// Largest share of 503.
const REFUSED_MAX: f64 = 0.05;

/// Origin with a fixed capacity.
async fn limited() -> Result<Origin> {
    let running = Mutex::new(VecDeque::new());
    let origin = Origin::start(move |_| {
        let (mut running, now) = (running.lock(), Instant::now());
        while running.front().is_some_and(|end| *end <= now) {
            running.pop_front();
        }
        if running.len() >= CAPACITY {
            return Answer::status(503).field("Cache-Control", "no-store");
        }
        running.push_back(now + EXCHANGE);
        Answer::ok("x").field("Cache-Control", "no-store").delay(EXCHANGE)
    });
    Ok(origin.await?)
}

async fn replies(limit: &str, span: Duration) -> Result<Vec<Reply>> {
    let origin = limited().await?;
    let site = format!("[site.origin]\nurls = [\"{}\"]\n{limit}", origin.url());
    let cache = cache("", &site).await?;
    let is_over = Arc::<AtomicBool>::default();
    let over = is_over.clone();
    tokio::spawn(async move {
        tokio::time::sleep(span).await;
        over.store(true, Ordering::Relaxed);
    });
    closed_loop(CLIENTS, cache.address(), &is_over).await
}

pub(super) async fn run(options: &Options) -> Result<Table> {
    let span = Duration::from_secs(options.pick(20, 5));
    let fixed = replies(&format!("in_flight_max = {CAPACITY}"), span).await?;
    let adaptive = replies("in_flight_max = 256\nadaptive = true", span).await?;
    let rate = |replies: &[Reply]| {
        let good = replies.len() as f64 - count_other(replies, 200);
        good / span.as_secs_f64()
    };
    let refused = count_other(&adaptive, 200) / adaptive.len() as f64;
    let title = format!("adaptive limit: an origin for {CAPACITY} requests, {CLIENTS} clients");
    let mut table = Table::figures(title);
    table.figure("responses/s with the right fixed limit", rate(&fixed), "", Bound::None);
    table.figure("responses/s, adaptive", rate(&adaptive), "", Bound::None);
    let ratio = rate(&adaptive) / rate(&fixed);
    table.figure("ratio", ratio, "", Bound::AtLeast(RATE_MIN));
    table.figure("share of other responses", refused, "", Bound::AtMost(REFUSED_MAX));
    Ok(table)
}
