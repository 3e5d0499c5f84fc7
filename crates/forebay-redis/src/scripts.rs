//! What Redis is asked to do in one step. The texts are beside this file.

use std::sync::LazyLock;

use redis::{Cmd, cmd};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::names::hex;

/// A script, known to servers that have seen it by the SHA-1 of its text.
pub(crate) struct Script {
    text: String,
    sha: String,
}

/// What is given to a script.
pub(crate) struct Call<'a> {
    script: &'static Script,
    keys: Vec<&'a str>,
    arguments: Vec<Vec<u8>>,
}

const PRELUDE: &str = include_str!("scripts/prelude.lua");
const BUS_PRELUDE: &str = include_str!("scripts/bus_prelude.lua");
const LOOKUP: &str = include_str!("scripts/lookup.lua");
const RAISE_FLOOR: &str = include_str!("scripts/raise.lua");

/// Every script is the prelude and a text of its own. One looks before it, and then a hit is not
/// kept waiting for functions that it does not need; some share further text behind it.
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
    /// What stands there, or the right to load it.
    ACQUIRE = "scripts/acquire.lua" after LOOKUP;
    /// Takes the right to fill without a lease.
    CLAIM = "scripts/claim.lua";
    /// Stores a value, if the right to do so still stands.
    FILL = "scripts/fill.lua";
    /// Keeps a lease up.
    RENEW = "scripts/renew.lua";
    /// Gives a lease back.
    RELEASE = "scripts/release.lua";
    /// Turns the lease of a key into that of one variant.
    NARROW = "scripts/narrow.lua";
    /// Asks how much was dropped for want of room.
    EVICTED = "scripts/evicted.lua";
    /// Removes an entry, and the rights to load it.
    REMOVE = "scripts/remove.lua";
    /// The same, for a version that is newer.
    RAISE = "scripts/remove.lua" with RAISE_FLOOR;
    /// Tells all instances of a purge.
    PUBLISH = "scripts/publish.lua" with BUS_PRELUDE;
    /// Reads, and for a fill makes, the generations of an entry.
    GENERATIONS = "scripts/generations.lua" with BUS_PRELUDE;
    /// Moves an generation that another program has told of.
    MOVE_GENERATION = "scripts/move_generation.lua" with BUS_PRELUDE;
    /// Asks where the bus stands.
    BUS_CHECK = "scripts/bus_check.lua" with BUS_PRELUDE;
}

/// What has to be there when a miss is waited for: sent to a server as soon as there is a
/// connection, so that nobody pays for a second exchange.
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

    /// A call of it for these names.
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

    /// By its digest.
    pub(crate) fn by_digest(&self) -> Cmd {
        self.command("EVALSHA", &self.script.sha)
    }

    /// With its text: for servers that have not seen it.
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
    fn a_script_is_made_of_its_parts_in_their_order() {
        let after = [LOOKUP, PRELUDE, include_str!("scripts/acquire.lua")].concat();
        let alone = [PRELUDE, include_str!("scripts/claim.lua")].concat();
        let with = [PRELUDE, BUS_PRELUDE, include_str!("scripts/publish.lua")].concat();
        assert_eq!([&ACQUIRE.text, &CLAIM.text, &PUBLISH.text], [&after, &alone, &with]);
        assert!(all().iter().all(|script| script.text.contains(PRELUDE)));
    }
}
