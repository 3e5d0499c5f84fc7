//! Configuration, in two levels: what was typed and what it means.
//!
//! | room | holds |
//! |---|---|
//! | `file` | what was typed: names checked, values raw, each with its line and column |
//! | `options` | every option, declared once: name, type, default, doc, reason |
//! | `reader` | how a raw value becomes a typed one |
//! | `resolved` | what it means: resolved, immutable, valid by construction |
//! | `check` | `forebay check` |
//! | `reference` | `docs/config.md`, rendered from the options |
//! | `units` | durations and sizes with units |
//! | `problem` | a mistake, its place, and the list of all of them |
//! | `host`, `origin_url`, `redis_url` | the values with a grammar of their own |
//!
//! Absent by design: serde. It stops at the first mistake and forgets where a value stood; a person
//! who corrects a file wants all mistakes at once, each with its place.

pub(crate) mod check;
mod file;
mod host;
mod options;
mod origin_url;
mod problem;
mod provenance;
mod reader;
mod redis_url;
#[cfg(test)]
mod reference;
pub(crate) mod resolved;
mod table;
mod typed;
pub(crate) mod units;

pub(crate) use host::HostPattern;
pub(crate) use reader::AccessLog;
