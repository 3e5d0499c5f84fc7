//! Runs a script: starts all servers, runs the clients at the same time, then checks the counters.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Fault;
use super::date;
use super::front::{Front, Running};
use super::gates::Gates;
use super::line::Line;
use super::origin::{Exchange, Play};
use super::parse::{ClientBlock, FrontBlock, Script};
use super::{client, counter};
use crate::clock::SteppedClock;
use crate::origin::Origin;

/// Maximum duration of one step, such as one response or one barrier.
pub(super) const STEP_WAIT: Duration = Duration::from_secs(10);

/// Maximum wait for all counters: a server may count a response after its client has read it.
const COUNTER_WAIT: Duration = Duration::from_secs(2);

/// Maximum duration of a front end's start; the real binary may be cold.
const START_WAIT: Duration = Duration::from_secs(30);

/// Runs the script.
///
/// # Errors
/// All faults, those of origins first, because they tend to cause those of clients.
pub(super) async fn run<F: Front>(script: Script, front: &F) -> Result<(), Vec<Fault>> {
    let Script { origins, fronts, clients, after, gates } = script;
    let mut world = World { gates, ..World::default() };
    for (name, exchanges) in origins {
        world.start_origin(name, exchanges).await.map_err(|fault| vec![fault])?;
    }
    for block in &fronts {
        world.start_front(block, front).await.map_err(|fault| vec![fault])?;
    }
    let world = Arc::new(world);
    let of_clients = run_clients(clients, &world).await;
    let mut faults: Vec<Fault> = world.plays.iter().flat_map(|play| play.faults()).collect();
    faults.extend(of_clients);
    if faults.is_empty() {
        faults.extend(world.plays.iter().filter_map(|play| play.unplayed()));
        let give_up = Instant::now() + COUNTER_WAIT;
        for mut line in after {
            let outcome = match line.keyword("expect") {
                Ok(()) => counter::settle(line, &world, give_up).await,
                error => error,
            };
            let fault = |error: anyhow::Error| Fault::new(line.number, format!("{error:#}"));
            faults.extend(outcome.err().map(fault));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Runs all clients at the same time. The first fault ends the others, which might wait for the
/// failed client.
async fn run_clients(blocks: Vec<ClientBlock>, world: &Arc<World>) -> Option<Fault> {
    let mut running = JoinSet::new();
    for block in blocks {
        let block = Arc::new(block);
        for copy in 0..block.copies {
            running.spawn(client::run(block.clone(), copy, world.clone()));
        }
    }
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => return Some(fault),
            Err(error) => return Some(Fault::new(0, format!("a client panicked: {error}"))),
        }
    }
    None
}

/// Running servers of a scenario.
#[derive(Default)]
pub(super) struct World {
    pub(super) origins: BTreeMap<&'static str, Origin>,
    pub(super) fronts: BTreeMap<&'static str, Running>,
    plays: Vec<Arc<Play>>,
    pub(super) gates: Gates,
    pub(super) now: Arc<Now>,
}

impl World {
    async fn start_origin(
        &mut self,
        name: &'static str,
        exchanges: Vec<Exchange>,
    ) -> Result<(), Fault> {
        let play = Arc::new(Play::new(name, exchanges, self.now.clone()));
        self.plays.push(play.clone());
        let origin = Origin::start(move |received| play.answer(received)).await;
        let origin = origin.map_err(|e| Fault::new(0, format!("cannot start an origin: {e}")))?;
        self.origins.insert(name, origin);
        Ok(())
    }

    async fn start_front<F: Front>(&mut self, block: &FrontBlock, front: &F) -> Result<(), Fault> {
        let starting = async {
            let target = self.address(block.target)?;
            let start = tokio::time::timeout(START_WAIT, front.start(target, &block.settings));
            start.await.context("too slow")?
        };
        let fault = |e| Fault::new(block.line, format!("{}: did not start: {e:#}", block.name));
        let running = starting.await.map_err(fault)?;
        if let Some(clock) = &running.clock {
            self.now.clock.get_or_init(|| clock.clone());
        }
        self.fronts.insert(block.name, running);
        Ok(())
    }

    pub(super) fn address(&self, name: &str) -> anyhow::Result<SocketAddr> {
        let origin = self.origins.get(name).map(Origin::address);
        let address = origin.or_else(|| self.fronts.get(name).map(|front| front.address));
        address.with_context(|| format!("no origin or forebay above is called `{name}`"))
    }

    /// Takes the name of an origin.
    pub(super) fn origin(&self, words: &mut Line) -> anyhow::Result<&Origin> {
        let name = words.word("an origin")?;
        self.origins.get(name).with_context(|| format!("no origin is called `{name}`"))
    }

    /// Steps every clock once, also one that several front ends share.
    pub(super) fn advance(&self, by: Duration) -> anyhow::Result<()> {
        let mut stepped: Vec<&Arc<SteppedClock>> = Vec::new();
        for clock in self.fronts.values().filter_map(|front| front.clock.as_ref()) {
            if !stepped.iter().any(|seen| Arc::ptr_eq(seen, clock)) {
                clock.step(by);
                stepped.push(clock);
            }
        }
        ensure!(!stepped.is_empty(), "no front end of this scenario has a clock to step");
        Ok(())
    }
}

/// Time of `${now}`: the first stepped clock, or the real one.
#[derive(Debug, Default)]
pub(super) struct Now {
    clock: OnceLock<Arc<SteppedClock>>,
}

impl Now {
    pub(super) fn expand(&self, value: &str) -> anyhow::Result<String> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let real = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        date::expand(value, self.clock.get().map_or(real, |clock| clock.unix_seconds()))
    }
}
