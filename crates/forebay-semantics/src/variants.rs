//! Request fields that select a variant, and the normalization of their values.
//!
//! This folder uses `fields`.

mod preferences;
mod spacing;
pub mod vary;
