//! Fuzz targets, one file each, with the properties that hold for every input.

pub mod codec;
pub mod conditions;
pub mod date;
pub mod directives;
pub mod frame;
pub mod framing;
pub mod groups;
pub mod head;
pub mod hop;
pub mod invalidated;
pub mod key;
pub mod lifetime;
pub mod parts;
pub mod policy;
pub mod preferences;
pub mod range;
pub mod segment;
pub mod served;
pub mod trace_context;
pub mod value;
pub mod vary;
