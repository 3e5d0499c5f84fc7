//! Barriers of a scenario.

use std::collections::BTreeMap;

use super::{Fault, Line};
use crate::gate::Gate;

#[derive(Default)]
pub(super) struct Gates(BTreeMap<String, Named>);

struct Named {
    gate: Gate,
    awaited_at: Option<usize>,
    signalled: bool,
}

impl Gates {
    /// Reads `NAME N`. A declaration must precede the first use.
    pub(super) fn declare(&mut self, mut line: Line<'_>) -> Result<(), Fault> {
        let name = line.word("a barrier's name")?;
        let needed: usize = line.number("how many signals open it")?;
        line.end()?;
        if needed == 0 {
            return Err(line.fault("a barrier needs at least one signal"));
        }
        let named = Named { gate: Gate::of(needed), awaited_at: None, signalled: false };
        match self.0.insert(name.to_owned(), named) {
            Some(_) => Err(line.fault(format!("barrier `{name}` is already used or declared"))),
            None => Ok(()),
        }
    }

    /// Takes the name of a barrier to wait at.
    pub(super) fn awaited(&mut self, line: &mut Line<'_>) -> Result<(String, Gate), Fault> {
        let name = line.word("a barrier's name")?;
        let named = self.named(name);
        named.awaited_at.get_or_insert(line.number);
        Ok((name.to_owned(), named.gate.clone()))
    }

    /// Takes the name of a barrier to arrive at.
    pub(super) fn signalled(&mut self, line: &mut Line<'_>) -> Result<Gate, Fault> {
        let named = self.named(line.word("a barrier's name")?);
        named.signalled = true;
        Ok(named.gate.clone())
    }

    /// All gates by name; fails if one is awaited and never signalled.
    pub(super) fn finish(self) -> Result<BTreeMap<String, Gate>, Fault> {
        let mut gates = BTreeMap::new();
        for (name, named) in self.0 {
            if let (Some(line), false) = (named.awaited_at, named.signalled) {
                return Err(Fault::new(line, format!("nothing signals barrier `{name}`")));
            }
            gates.insert(name, named.gate);
        }
        Ok(gates)
    }

    fn named(&mut self, name: &str) -> &mut Named {
        let undeclared = || Named { gate: Gate::new(), awaited_at: None, signalled: false };
        self.0.entry(name.to_owned()).or_insert_with(undeclared)
    }
}
