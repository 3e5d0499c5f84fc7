//! Levels of storage.

pub mod memory;
