//! Barriers of a scenario.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::ensure;
use parking_lot::Mutex;

use super::line::Line;
use crate::gate::Gate;

/// Barriers by name. Those without a declaration open at the first signal.
#[derive(Clone, Debug, Default)]
pub(super) struct Gates(Arc<Mutex<BTreeMap<&'static str, Gate>>>);

impl Gates {
    /// Reads `NAME N`. A declaration must precede the first use.
    pub(super) fn declare(&self, mut words: Line) -> anyhow::Result<()> {
        let name = words.word("a barrier's name")?;
        let needed: usize = words.number("how many signals open it")?;
        words.end()?;
        ensure!(needed > 0, "a barrier needs at least one signal");
        let earlier = self.0.lock().insert(name, Gate::of(needed));
        ensure!(earlier.is_none(), "barrier `{name}` is already used or declared");
        Ok(())
    }

    /// Takes the name of a barrier.
    pub(super) fn named(&self, words: &mut Line) -> anyhow::Result<Gate> {
        let name = words.word("a barrier's name")?;
        Ok(self.0.lock().entry(name).or_default().clone())
    }

    /// Closed barriers, for the message of a wait that timed out.
    pub(super) fn shut(&self) -> String {
        let gates = self.0.lock();
        let shut = gates.iter().filter(|(_, gate)| !gate.is_open()).map(|(name, gate)| {
            let (arrived, needed) = gate.arrivals();
            format!("{name} has {arrived} of {needed} signals")
        });
        format!("shut barriers: {}", shut.collect::<Vec<_>>().join(", "))
    }
}
