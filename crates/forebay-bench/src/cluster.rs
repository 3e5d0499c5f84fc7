//! Several caches with one Redis: the bounds of docs/cluster.md for the HTTP front end, the same for
//! the library, and the commands and bytes that each operation sends to Redis.
//!
//! Caches, Redis, origin and clients share one machine. Counts do not depend on that. The bounds of
//! times hold for a machine with a core per process: with fewer, a miss is shown and not counted.

mod costs;
mod filled;
pub(crate) mod fleet;
pub(crate) mod floor;
pub(crate) mod library;
#[path = "../../forebay/tests/it/processes/peer.rs"]
mod peer;
#[path = "../../forebay/tests/it/processes/peers.rs"]
mod peers;
mod play;
mod tap;

use anyhow::Result;
use play::Plan;

use crate::environment::{Options, cores, forebay};
use crate::report::Table;

const ROUNDS: usize = 100;
const ROUNDS_QUICK: usize = 10;

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let plan = Plan { binary: forebay()?, rounds: options.pick(ROUNDS, ROUNDS_QUICK) };
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let title = format!("caches, Redis, origin and clients share {} cores", cores());
        let mut caches = Table::figures(title);
        play::measure(&plan, &mut caches).await?;
        let mut typed = Table::figures("typed caches in several processes");
        library::measure(plan.rounds, &mut typed).await?;
        let [sent, times] = costs::measure().await?;
        Ok(vec![caches, typed, sent, times])
    })
}
