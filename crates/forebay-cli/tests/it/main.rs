//! The real binary, from outside: what it prints, what it answers, how it ends.
//!
//! | module | claims |
//! |---|---|
//! | `start` | flags, variables and files say the same; what is wrong is said, and nothing starts |
//! | `serve` | all threads share one cache |
//! | `demo` | what the demonstration prints works as printed |
//! | `stop` | what is under way is answered, and nothing else holds the end |
//! | `disk` | what outlives the process |
//! | `disk_bodies` | large bodies on disk, read while they are written, and in part |
//! | `disk_cluster` | a cache with a disk that was away while others purged |
//! | `disk_trouble` | a disk tier that cannot be had, or fails |
//! | `reload` | what a file may change while the cache runs, and what a broken one may not |
//! | `logs` | what is written where, and what never |
//! | `cluster` | caches that share a Redis fetch once, and forget together |
//! | `cluster_trouble` | a Redis that is not as it should be, for several caches; who refreshes |
//! | `shared` | what a Redis that caches share saves, and what it cannot cost |
//! | `servers` | Redis in all its forms, of one site alone, and what is told of it |
//! | `tier` | what a Redis that is slow, frozen, gone or full of lies comes to |
//! | `tools` | `check` and `origin` |
//! | `opt_ins` | what a site has to ask for: answers by the bodies of their requests, groups |
//! | `purge` | the command and what it changes |
//! | `admin` | the second listener, and whom it turns away |
//! | `crowded` | more clients than the system has files for |
//! | `bad_input` | neither clients nor origins can break it |
//! | `broken` | what clients get of an old answer when the origin is broken |
//! | `clocks` | a wall clock that jumps by an hour while the cache runs |
//! | `early` | what early refresh spares |
//! | `stampede` | what a crowd of 500 costs the origin, and what each client gets |
//!
//! The tests look at counters and answers. Time matters only to the drain.

mod admin;
mod bad_input;
mod broken;
mod clocks;
mod cluster;
mod cluster_trouble;
mod crowded;
mod demo;
mod disk;
mod disk_bodies;
mod disk_cluster;
mod disk_trouble;
mod early;
mod logs;
mod opt_ins;
mod purge;
mod reload;
mod serve;
mod servers;
mod shared;
mod stampede;
mod start;
mod stop;
mod tier;
mod tools;
mod world;
