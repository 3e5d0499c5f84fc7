//! Fuzz targets, one file each, with the properties that hold for every input.

use crate::run::Target;

mod codec;
mod conditions;
mod date;
mod directives;
mod frame;
mod framing;
mod groups;
mod head;
mod hop;
mod invalidated;
mod key;
mod lifetime;
mod parts;
mod policy;
mod preferences;
mod range;
mod segment;
mod served;
mod value;
mod vary;

/// All targets.
pub const TARGETS: &[Target] = &[
    codec::TARGET,
    conditions::TARGET,
    date::TARGET,
    directives::TARGET,
    frame::TARGET,
    framing::TARGET,
    groups::TARGET,
    head::TARGET,
    hop::TARGET,
    invalidated::TARGET,
    key::TARGET,
    lifetime::TARGET,
    parts::TARGET,
    policy::TARGET,
    preferences::TARGET,
    range::TARGET,
    segment::TARGET,
    served::TARGET,
    value::TARGET,
    vary::TARGET,
];
