//! Rules of a site: which requests they match, and what they set.
//!
//! | module | contents |
//! |---|---|
//! | [`rule`] | a rule as it is written: conditions and settings |
//! | [`setting`] | settings, with the phase and the effect on caching of each |
//! | [`edit`], [`template`] | edits of header fields; text with placeholders |
//! | [`glob`], [`pattern`] | globs, names and regular expressions |
//! | [`request`] | requests as conditions see them |
//! | [`reading`] | the two readings of an ambiguous path |
//! | [`compile`] | compilation into tables and one automaton |
//! | [`evaluate`], [`outcome`] | matching; the values that apply |
//! | [`key`] | header fields and cookies in the key |
//! | [`graphql`], [`json`] | operation in a request body; cuts of JSON bodies |
//! | [`purge`] | purges by requests of clients |
//! | [`apply`] | effect on targets and cookies |
//! | [`check`] | warnings about rules that are valid and probably wrong |
//!
//! All matching rules apply, in file order; the last value wins, and lists add up.
//!
//! Deliberately absent: a clock, I/O, a runtime, the syntax of the configuration file.

pub mod apply;
mod bits;
pub mod check;
pub mod compile;
mod contain;
pub mod edit;
pub mod evaluate;
pub mod glob;
pub mod graphql;
pub mod json;
pub mod key;
pub mod outcome;
pub mod pattern;
pub mod purge;
pub mod reading;
pub mod request;
pub mod rule;
pub mod setting;
pub mod template;
#[cfg(test)]
mod tests;
pub mod validate;

pub use compile::{CompileError, RuleSet, SiteFacts};
pub use edit::{Edits, Value};
pub use evaluate::Matched;
pub use glob::{NamePattern, PathGlob, TextGlob};
pub use graphql::Operation;
pub use json::JsonCut;
pub use key::{KeyParts, Keyed, KeyedFields};
pub use outcome::{Ended, Outcome};
pub use pattern::Pattern;
pub use purge::PurgeRule;
pub use request::{Request, Target};
pub use rule::{Condition, Rule};
pub use setting::{Kind, Setting};
pub use template::{EditFailed, Placeholder, Placeholders, Template};
