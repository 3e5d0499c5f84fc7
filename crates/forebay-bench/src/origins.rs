//! Origins: servers that fail, the circuit breaker, the budget of several instances, rolling
//! restarts, the adaptive limit, https origins, and compression beside nginx.
//!
//! | file | contents |
//! |---|---|
//! | `traffic.rs` | load at a fixed rate, and clients without a pause |
//! | `servers.rs` | several servers of one origin, retries |
//! | `breaker.rs` | an origin that hangs, and one that is slow |
//! | `adaptive.rs` | an origin that refuses requests above its capacity |
//! | `budget.rs` | a budget for four instances, with a Redis that is killed |
//! | `restarts.rs` | rolling restart of four instances with a warm-up |
//! | `https.rs` | CPU time with an https origin |
//! | `compress.rs` | CPU time of compressed responses |

mod adaptive;
mod breaker;
mod budget;
mod compress;
mod https;
mod restarts;
mod servers;
pub(crate) mod traffic;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::launch::{Launch, Launched};
use futures_util::future::{FutureExt as _, LocalBoxFuture};

use crate::environment::{Options, forebay};
use crate::report::Table;

/// Maximum wait for a state, far above the longest timeout of a measurement.
const STATE_MAX: Duration = Duration::from_secs(60);

/// Interval at which a state is polled. It bounds the error of measured times.
const POLL: Duration = Duration::from_millis(5);

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut tables = Vec::new();
    for (name, measured) in scenarios(options) {
        eprintln!("measuring: {name}");
        tables.push(runtime.block_on(measured).with_context(|| name)?);
    }
    eprintln!("measuring: https and compression");
    tables.extend(https::run(options)?);
    tables.extend(compress::run(options)?);
    Ok(tables)
}

/// Name of a scenario, and its measurement.
type Scenario<'a> = (&'static str, LocalBoxFuture<'a, Result<Table>>);

fn scenarios(options: &Options) -> [Scenario<'_>; 8] {
    [
        ("a killed server", servers::failing(options).boxed_local()),
        ("a slow server", servers::uneven(options).boxed_local()),
        ("retries", servers::retries(options).boxed_local()),
        ("an origin that hangs", breaker::hung(options).boxed_local()),
        ("an origin that is slow", breaker::slow().boxed_local()),
        ("adaptive limit", adaptive::run(options).boxed_local()),
        ("budget", budget::run(options).boxed_local()),
        ("rolling restart", restarts::run(options).boxed_local()),
    ]
}

/// Starts forebay with one thread, lines at the top of its configuration, and those of a site.
async fn cache(top: &str, site: &str) -> Result<Launched> {
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nthreads = 1\n{top}\n\
         [[site]]\nid = \"bench\"\n{site}\n"
    );
    Launch::binary(forebay()?).args(["serve"]).config(&config)?.start().await
}

/// Waits until a metric of a cache has a value, and returns the time at which it had.
async fn reached(cache: &Launched, metric: &str, value: u64) -> Result<Instant> {
    let begun = Instant::now();
    loop {
        let seen = cache.metric(metric).await?;
        let now = Instant::now();
        if seen == value {
            return Ok(now);
        }
        ensure!(begun.elapsed() < STATE_MAX, "{metric} is {seen} instead of {value}");
        tokio::time::sleep(POLL).await;
    }
}
