//! Engine of the cache: lookup, coalesced loads, bodies, purges, and the memory tier.
//!
//! | folder | content | may import |
//! |---|---|---|
//! | `lookup` | hit path: lookup in memory, and the verdict | engine, memory, flight, entry, runtime |
//! | `miss` | following a flight, leading one, or loading alone; refreshes | lookup, fill, flight, engine, runtime |
//! | `write` | entries stored or extended without a load | fill, flight, tiers, engine, entry |
//! | `fill` | one miss, from the lower tiers and the lease to the stored entry | flight, tiers, engine, entry, runtime |
//! | `purge` | purges of this instance and of others; versions | engine, purge_log, memory, tiers, runtime |
//! | `engine` | state of one cache: all parts, without behaviour | memory, flight, purge_log, tiers, runtime |
//! | `flight` | table of loads in progress; the [`Load`] trait | tiers, entry, runtime |
//! | `memory` | memory tier | entry, runtime |
//! | `purge_log` | record of purges; connection with other instances | tiers, entry, runtime |
//! | `tiers` | lower tiers, leases and the bus: traits and guarded access | entry, runtime |
//! | `entry` | entries, their heads and bodies; memory bound for bodies in transfer | runtime |
//! | `runtime` | clock, random numbers, locks, tasks, events | |
//!
//! `cargo xtask tidy` checks these imports. A miss begins in `miss`, which joins a flight or leads
//! one; `fill` describes what the leader does.
//!
//! Deliberately absent: HTTP, sockets, configuration. The engine calls a front end only through the
//! [`Load`] that it was given, and never parses a head.

mod engine;
mod entry;
mod fill;
mod flight;
#[cfg(feature = "interleavings")]
#[cfg(test)]
mod interleavings;
mod lookup;
mod memory;
mod miss;
mod purge;
mod purge_log;
mod runtime;
mod tiers;
mod write;

pub use engine::{Engine, Traffic};
pub use entry::body::{
    Body, BodyReader, BrokenBody, Content, LongReader, Parts, PieceStream, ReaderWatch,
};
pub use entry::derived::{DerivedForm, DerivedForms, FORMS_MAX, FormRequests};
pub use entry::select::{Credentials, Select};
pub use entry::{Entry, Head};
pub use fill::{TierEntry, TierReport};
pub use flight::batch::BatchPart;
pub use flight::load::{
    AnswerFor, Audience, Extent, HeadCodec, Load, LoadError, LoadOptions, LoadSource, Loaded,
    Passed, UnsharedLoad,
};
pub use flight::source::Source;
pub use flight::waiting::Waiting;
pub use lookup::{
    BackOff, Coalesce, Lookup, LookupResult, Miss, Outcome, PassMarker, StoredVariant,
};
pub use memory::{Limits, MemoryModel, MemoryTier};
pub use miss::{Forecast, RunningLoad};
pub use purge::publish::{Propagation, Purged};
pub use purge_log::cluster::{BusStatus, Cluster};
pub use purge_log::watch::{PurgesSoFar, Watch};
pub use runtime::clock::{self, Clock, SystemClock, ThreadDice};
pub use runtime::event::{Event, LeaseEvent, Observer, TierCall};
pub use tiers::bus::{self, Bus, Newer};
#[cfg(feature = "testkit")]
pub use tiers::conformance::{BrokenRule, check_tier};
pub use tiers::error::TierError;
pub use tiers::lease::{self, Leases};
pub use tiers::origin_budget::OriginBudgets;
pub use tiers::setup::{Namespaces, TierSetup};
pub use tiers::tier::{Budget, LeasedWrite, Stored, Tier, TierErrors, WriteMode, Writer};
pub use write::derive::FormAdded;
pub use write::put::NewEntry;
