//! Storage below memory: the traits of tiers, leases and the bus, and the guarded access to tiers.
//!
//! An implementation of [`tier::Tier`] lives in another crate. The engine reaches it through
//! [`lower`], which adds time limits, circuit breakers, panic isolation and pending removals. This
//! folder uses `entry` and `runtime`; it never sees memory, flights or the purge log.

pub mod bus;
pub mod lease;
pub(crate) mod tier;

pub(crate) mod bookmark;
pub(crate) mod catch_panic;
#[cfg(feature = "testkit")]
pub(crate) mod conformance;
pub(crate) mod error;
pub(crate) mod guard;
pub(crate) mod lease_strategy;
pub(crate) mod lease_token;
pub(crate) mod lower;
pub(crate) mod origin_budget;
pub(crate) mod setup;
