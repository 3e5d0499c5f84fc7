//! Request fields that select a variant, and the normalization of their values.
//!
//! This folder uses `fields`.

pub mod choice;
pub(crate) mod preferences;
mod spacing;
pub mod vary;
