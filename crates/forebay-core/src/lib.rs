//! What a cache entry is, and whether it may be used now.
//!
//! | file | holds |
//! |---|---|
//! | [`key`] | the name of an entry: length-prefixed parts, compared in full |
//! | [`time`] | points on a monotonic clock, in milliseconds |
//! | [`entry`] | [`Meta`]: all that [`judge()`] needs to know of an entry |
//! | [`demand`] | what one caller requires |
//! | [`mod@judge`] | the question itself: may this entry be used for this demand, now? |
//! | [`pace`] | schedules: back-off, the spread of lifetimes, what a load costs |
//! | [`breaker`] | when to stop asking something that fails |
//! | [`version`] | validators that have an order |
//! | [`why`] | the closed list of reasons why an answer was not a fresh hit |
//! | [`tags`] | tags, positions in the log of purges, what a purge has reached |
//! | [`suspicion`] | what may have been purged without a word of it here |
//! | [`frame`] | the bytes of an entry: versioned, with a digest over everything |
//!
//! Deliberately absent: a clock, dice, a runtime, I/O, and every word of HTTP.
//! Whoever calls in says what time it is and throws the dice.

pub mod breaker;
pub mod demand;
pub mod entry;
pub mod frame;
pub mod judge;
pub mod key;
pub mod pace;
pub mod suspicion;
pub mod tags;
pub mod time;
pub mod version;
pub mod why;

pub use breaker::{Admission, Breaker, BreakerRules, Condition};
pub use demand::Demand;
pub use entry::{Lifetime, Meta, Presence, Stale, Validator, Vary};
pub use judge::{Dice, Trouble, Verdict, judge, may_fall_back};
pub use key::{Key, KeyBuf, KeyRef};
pub use suspicion::{Suspicion, WhenBlind};
pub use tags::{PREFIXES_MAX, Position, Purge, Purges, Reach, Recorded, Standing, TagSet};
pub use time::{Timestamp, WallTime};
pub use why::Why;
