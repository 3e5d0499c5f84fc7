//! Runs a script: starts all servers, runs the clients at the same time, then checks the counters.

mod after;
mod client;
mod origin;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;

use super::Fault;
use super::date;
use super::front::{Front, Running};
use super::script::{ClientBlock, FrontBlock, Script};
use crate::clock::SteppedClock;
use crate::gate::Gate;
use crate::origin::Origin;
use origin::Play;

/// Maximum duration of one step, such as one response or one barrier.
const STEP_WAIT: Duration = Duration::from_secs(10);

/// Maximum duration of a front end's start; the real binary may be cold.
const START_WAIT: Duration = Duration::from_secs(30);

/// Runs the script.
///
/// # Errors
/// All faults, those of origins first, because they tend to cause those of clients.
pub(super) async fn run<F: Front>(script: Script, front: &F) -> Result<(), Vec<Fault>> {
    let Script { origins, fronts, clients, after, gates } = script;
    let mut world = World { gates, ..World::default() };
    for block in origins {
        world.start_origin(block).await.map_err(|fault| vec![fault])?;
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
        faults.extend(after::check(&after, &world).await);
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
struct World {
    origins: BTreeMap<String, Origin>,
    fronts: BTreeMap<String, Running>,
    plays: Vec<Arc<Play>>,
    gates: BTreeMap<String, Gate>,
    now: Arc<Now>,
}

impl World {
    async fn start_origin(&mut self, block: super::script::OriginBlock) -> Result<(), Fault> {
        let play = Arc::new(Play::new(block.name.clone(), block.exchanges, self.now.clone()));
        self.plays.push(play.clone());
        let origin = Origin::start(move |received| play.answer(received)).await;
        let origin = origin.map_err(|e| Fault::new(0, format!("cannot start an origin: {e}")))?;
        self.origins.insert(block.name, origin);
        Ok(())
    }

    async fn start_front<F: Front>(&mut self, block: &FrontBlock, front: &F) -> Result<(), Fault> {
        let fault = |what: String| Fault::new(block.line, format!("{}: {what}", block.name));
        let target = self.address(&block.target).map_err(&fault)?;
        let start = tokio::time::timeout(START_WAIT, front.start(target, &block.settings));
        let running = start
            .await
            .map_err(|_| fault(format!("did not start within {START_WAIT:?}")))?
            .map_err(|error| fault(format!("did not start: {error:#}")))?;
        if let Some(clock) = &running.clock {
            self.now.clock.get_or_init(|| clock.clone());
        }
        self.fronts.insert(block.name.clone(), running);
        Ok(())
    }

    fn address(&self, name: &str) -> Result<SocketAddr, String> {
        let origin = self.origins.get(name).map(Origin::address);
        let address = origin.or_else(|| self.fronts.get(name).map(|front| front.address));
        address.ok_or_else(|| format!("`{name}` does not run"))
    }

    /// Steps every clock once, also one that several front ends share.
    fn advance(&self, by: Duration) -> Result<(), String> {
        let mut stepped: Vec<&Arc<SteppedClock>> = Vec::new();
        for clock in self.fronts.values().filter_map(|front| front.clock.as_ref()) {
            if !stepped.iter().any(|seen| Arc::ptr_eq(seen, clock)) {
                clock.step(by);
                stepped.push(clock);
            }
        }
        if stepped.is_empty() {
            return Err("no front end of this scenario has a clock that can be stepped".to_owned());
        }
        Ok(())
    }

    /// Closed barriers, for the message of a wait that timed out.
    fn shut_gates(&self) -> String {
        let shut = self.gates.iter().filter(|(_, gate)| !gate.is_open());
        let shown: Vec<String> = shut
            .map(|(name, gate)| {
                let (arrived, needed) = gate.arrivals();
                format!("{name} has {arrived} of {needed} signals")
            })
            .collect();
        if shown.is_empty() {
            return "no barrier is shut".to_owned();
        }
        format!("shut barriers: {}", shown.join(", "))
    }
}

/// Time of `${now}`: the first stepped clock, or the real one.
#[derive(Default)]
struct Now {
    clock: OnceLock<Arc<SteppedClock>>,
}

impl Now {
    fn expand(&self, value: &str) -> String {
        // The parser has checked the value, so expanding cannot fail.
        date::expand(value, self.unix_seconds()).unwrap_or_else(|_| value.to_owned())
    }

    fn unix_seconds(&self) -> i64 {
        if let Some(clock) = self.clock.get() {
            return clock.unix_seconds();
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    }
}
