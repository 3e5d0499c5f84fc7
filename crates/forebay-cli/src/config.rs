//! Configuration, in two levels: the values as typed, and the resolved configuration.
//!
//! | module | contents |
//! |---|---|
//! | `file` | file as typed: names checked, values raw, each with its line and column |
//! | `options` | every option, declared once: name, type, default, description, reason |
//! | `reader` | conversion of raw values to typed ones |
//! | `resolved` | resolved configuration: complete, immutable, valid by construction |
//! | `provenance` | value of every option and its source |
//! | `check` | `forebay check` |
//! | `explain` | `forebay check --explain` |
//! | `reference` | `docs/config.md`, rendered from the options |
//! | `bounded_file` | files of limited size |
//! | `warnings` | valid values that rarely are wanted |
//! | `units` | durations and sizes with units |
//! | `rules` | rules of sites |
//! | `problem` | errors with their positions, collected |
//! | `host`, `listen_address`, `origin_url`, `redis_url` | values with their own grammar |
//!
//! The parser does not use serde: it would stop at the first error and lose positions, and a user
//! who corrects a file needs all errors at once, each with its position.

mod bounded_file;
pub(crate) mod check;
pub(crate) mod explain;
mod file;
mod host;
mod listen_address;
mod options;
mod origin_url;
mod problem;
mod provenance;
mod reader;
mod redis_url;
#[cfg(test)]
mod reference;
pub(crate) mod resolved;
pub(crate) mod rules;
mod suggestion;
mod table;
mod typed;
pub(crate) mod units;
pub(crate) mod warnings;

pub(crate) use host::HostPattern;
pub(crate) use listen_address::ListenAddress;
pub(crate) use reader::{AccessLog, ClientIp, ListenerRole, LogFormat, Protocol};
pub(crate) use suggestion::nearest;
