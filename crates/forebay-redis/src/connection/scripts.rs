//! Lua scripts that Redis runs atomically. Their texts are in `scripts/`.

use std::sync::LazyLock;

use redis::{Cmd, cmd};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::entry::names::hex;

/// A script and the SHA-1 of its text, by which servers cache it.
pub(crate) struct Script {
    text: String,
    sha: String,
}

/// A script with its arguments.
pub(crate) struct Call<'a> {
    script: &'static Script,
    keys: Vec<&'a str>,
    arguments: Vec<Vec<u8>>,
}

const PRELUDE: &str = include_str!("scripts/prelude.lua");
const BUS_PRELUDE: &str = include_str!("scripts/bus_prelude.lua");
const LOOKUP: &str = include_str!("scripts/lookup.lua");
const RAISE_FLOOR: &str = include_str!("scripts/raise.lua");

/// A script is the prelude and its own text. A lookup part runs before the prelude, so that a hit
/// does not define unused functions; shared parts follow the prelude.
macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident =
        $file:literal $(after $first:ident)? $(with $shared:ident)?;)*) => {
        $($(#[$doc])* pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(&[$($first,)? PRELUDE, $($shared,)? include_str!($file)])
        });)*

        #[cfg(test)]
        fn all() -> Vec<&'static Script> {
            vec![$(&*$name,)*]
        }
    };
}

scripts! {
    /// Returns the entry, or grants a lease.
    ACQUIRE = "scripts/acquire.lua" after LOOKUP;
    /// Grants permission to store without a lease.
    CLAIM = "scripts/claim.lua";
    /// Stores a value if its permission is still valid.
    FILL = "scripts/fill.lua";
    /// Renews a lease.
    RENEW = "scripts/renew.lua";
    /// Releases a lease.
    RELEASE = "scripts/release.lua";
    /// Changes the lease of a key to the lease of one variant.
    NARROW = "scripts/narrow.lua";
    /// Returns the number of evicted keys.
    EVICTED = "scripts/evicted.lua";
    /// Removes an entry and its leases.
    REMOVE = "scripts/remove.lua";
    /// Makes an entry and its variants stale, and removes its leases.
    SOFTEN = "scripts/soften.lua";
    /// Removes an entry and its leases if the version is newer.
    RAISE = "scripts/remove.lua" with RAISE_FLOOR;
    /// Publishes a purge to all instances.
    PUBLISH = "scripts/publish.lua" with BUS_PRELUDE;
    /// Returns the generations of an entry, and creates missing ones for a fill.
    GENERATIONS = "scripts/generations.lua" with BUS_PRELUDE;
    /// Replaces a generation at the request of another program.
    MOVE_GENERATION = "scripts/move_generation.lua" with BUS_PRELUDE;
    /// Replaces a claim on a budget, and grants an allowance.
    BUDGET = "scripts/budget.lua";
    /// Returns the end of the bus.
    BUS_CHECK = "scripts/bus_check.lua" with BUS_PRELUDE;
}

/// Returns the commands that load the scripts of a miss. They are sent with each new connection, so
/// that no miss needs a second round trip.
pub(crate) fn preloaded() -> impl Iterator<Item = Cmd> {
    [&*ACQUIRE, &*GENERATIONS, &*FILL].into_iter().map(|script| {
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(&*script.text);
        load
    })
}

impl Script {
    fn new(texts: &[&str]) -> Self {
        let text = texts.concat();
        let sha = hex(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()).as_ref());
        Self { text, sha }
    }

    /// Creates a call with these keys.
    pub(crate) fn call<'a>(&'static self, keys: impl IntoIterator<Item = &'a str>) -> Call<'a> {
        Call { script: self, keys: keys.into_iter().collect(), arguments: Vec::new() }
    }
}

impl Call<'_> {
    pub(crate) fn arg(mut self, argument: impl AsRef<[u8]>) -> Self {
        self.arguments.push(argument.as_ref().to_vec());
        self
    }

    pub(crate) fn number(self, number: u64) -> Self {
        self.arg(number.to_string())
    }

    /// Builds an `EVALSHA` command.
    pub(crate) fn by_digest(&self) -> Cmd {
        self.command("EVALSHA", &self.script.sha)
    }

    /// Builds an `EVAL` command, for servers that have not cached the script.
    pub(crate) fn with_text(&self) -> Cmd {
        self.command("EVAL", &self.script.text)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(self.keys.len());
        self.keys.iter().for_each(|key| {
            command.arg(key);
        });
        self.arguments.iter().for_each(|argument| {
            command.arg(&argument[..]);
        });
        command
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_script_has_a_digest_of_its_own() {
        let digests: HashSet<&str> = all().iter().map(|script| &*script.sha).collect();
        assert_eq!(digests.len(), all().len());
        assert!(digests.iter().all(|digest| digest.len() == 40));
    }

    #[test]
    fn script_contains_its_parts_in_order() {
        let after = [LOOKUP, PRELUDE, include_str!("scripts/acquire.lua")].concat();
        let alone = [PRELUDE, include_str!("scripts/claim.lua")].concat();
        let with = [PRELUDE, BUS_PRELUDE, include_str!("scripts/publish.lua")].concat();
        assert_eq!([&ACQUIRE.text, &CLAIM.text, &PUBLISH.text], [&after, &alone, &with]);
        assert!(all().iter().all(|script| script.text.contains(PRELUDE)));
    }
}
