//! Parts for a tier of your own: the [`Tier`] trait, and all types in its signatures.
//!
//! A tier stores entries: a key, [`Meta`], a head and a body. The engine gives it bytes and times, and
//! adds time limits, circuit breakers and pending removals, so a tier only stores, reads and removes.
//! [`frame`] encodes an entry as bytes with a checksum, and decodes them as untrusted input.
//!
//! `examples/directory_tier.rs` is a complete tier, with one file for each entry. Test a tier with
//! `forebay::testkit::check_tier` (feature `testkit`).
//!
//! A tier that instances share also implements [`Leases`] and [`Bus`], for
//! [`Builder::cluster`](crate::Builder::cluster).

pub use forebay_core::{
    Key, KeyRef, Lifetime, Meta, Position, Presence, Purge, PurgeState, Reach, TagSet, Timestamp,
    Validator, Vary, WallTime, frame,
};
pub use forebay_engine::{
    Budget, Bus, Clock, LeasedWrite, Leases, Parts, PieceStream, Stored, SystemClock, Tier,
    TierError, WriteMode, Writer, bus, lease,
};
pub use futures_util::future::BoxFuture;
