//! Request fields that select a variant, and the normalization of their values; queries on which a
//! response does not depend.
//!
//! This folder uses `fields`.

pub mod choice;
pub(crate) mod preferences;
pub mod search_variance;
mod spacing;
pub mod vary;
