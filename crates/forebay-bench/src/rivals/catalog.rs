//! Libraries that are measured as child processes.

use super::Rival;

/// Program that runs a library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    /// This program: forebay and other Rust libraries.
    Rust,
    Node,
    Go,
}

/// A library with its settings.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    /// Name in tables and argument of its program.
    pub(crate) name: &'static str,
    pub(crate) runs: Runs,
    /// True if it uses a Redis below its memory.
    pub(crate) is_shared: bool,
    pub(crate) why: &'static str,
    pub(crate) documentation: &'static str,
}

/// forebay with memory alone.
pub(crate) const OURS: &str = "forebay";
/// forebay with memory and Redis.
pub(crate) const OURS_SHARED: &str = "forebay+redis";
/// Loads without any cache.
pub(crate) const UNCOALESCED: &str = "without coalescing";

const OUR_REASON: &str = "the settings that the builder has without further calls";
const OUR_PAGE: &str = "docs/library.md";
const BENTO: &str =
    "getOrSet with the memory driver; it coalesces calls in one process by a lock for each key";
const BENTO_SHARED: &str = "memory, Redis and the Redis bus, as its documentation advises for several \
     instances; commands end after 200 ms and the circuit breaker of the second layer is on, so that \
     a failed Redis does not hold it up";
const BENTO_PAGE: &str =
    "https://bentocache.dev/docs/options, https://bentocache.dev/docs/multi-tier";
const MANAGER: &str = "wrap over cacheable's memory store; wrap coalesces calls in one process";
const MANAGER_SHARED: &str =
    "wrap over memory and Redis as two Keyv stores, as its documentation shows";
const MANAGER_PAGE: &str = "https://www.npmjs.com/package/cache-manager";
const GO: &str = "the design of the article: sync.Map, lifetimes, singleflight with a second look";
const GO_SHARED: &str =
    "the same with go-redis below it and its default timeouts, as in the article";
const GO_PAGE: &str = "https://pkg.go.dev/golang.org/x/sync/singleflight";

const fn library(
    name: &'static str,
    runs: Runs,
    is_shared: bool,
    why: &'static str,
    documentation: &'static str,
) -> Library {
    Library { name, runs, is_shared, why, documentation }
}

/// Every library; those with memory alone first.
pub(crate) const LIBRARIES: &[Library] = &[
    library(OURS, Runs::Rust, false, OUR_REASON, OUR_PAGE),
    library(
        "moka",
        Runs::Rust,
        false,
        "get_with with a capacity and a time to live: its call that coalesces",
        "https://docs.rs/moka/latest/moka/future/struct.Cache.html#method.get_with",
    ),
    library(
        "foyer",
        Runs::Rust,
        false,
        "get_or_fetch with the default policy: its call that coalesces; it has no lifetimes",
        "https://docs.rs/foyer-memory/latest/foyer_memory/enum.Cache.html",
    ),
    library("bentocache", Runs::Node, false, BENTO, BENTO_PAGE),
    library("cache-manager", Runs::Node, false, MANAGER, MANAGER_PAGE),
    library("go-two-tier", Runs::Go, false, GO, GO_PAGE),
    library(OURS_SHARED, Runs::Rust, true, OUR_REASON, OUR_PAGE),
    library("bentocache+redis", Runs::Node, true, BENTO_SHARED, BENTO_PAGE),
    library("cache-manager+redis", Runs::Node, true, MANAGER_SHARED, MANAGER_PAGE),
    library("go-two-tier+redis", Runs::Go, true, GO_SHARED, GO_PAGE),
];

impl Library {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        LIBRARIES.iter().find(|library| library.name == name)
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.name == OURS || self.name == OURS_SHARED
    }

    /// The library as a row of a report.
    pub(crate) fn rival(&self, version: &str, settings: &str) -> Rival {
        Rival {
            name: self.name.to_owned(),
            version: version.to_owned(),
            settings: settings.to_owned(),
            why: self.why,
            documentation: self.documentation,
            missing: None,
        }
    }
}

/// Rivals of the published texts that no package manager offers.
pub(crate) fn unavailable() -> Vec<Rival> {
    let absent = "the npm registry has no package of this name";
    vec![Rival::missing("layercache", absent), Rival::missing("Speedis", absent)]
}
