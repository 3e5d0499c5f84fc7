//! Tests of whole rule sets.

mod naive;
mod sets;
mod warned;
