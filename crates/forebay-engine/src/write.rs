//! Changes that a caller makes to stored entries without a load: put, put of a version, extension,
//! derived forms.
//!
//! A put is a flight that ends as soon as it has started, so that it excludes older loads. This
//! folder uses `engine`, `entry`, `fill`, `flight` and `tiers`; it never sees an origin.

pub(crate) mod derive;
mod extend;
pub(crate) mod put;
