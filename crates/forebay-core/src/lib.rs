//! Entries of the cache, and the rules that decide whether an entry may be used now.
//!
//! | file | holds |
//! |---|---|
//! | [`key`] | keys of entries: length-prefixed parts, compared in full |
//! | [`time`] | points on a monotonic clock, in milliseconds |
//! | [`entry`] | [`Meta`]: the metadata of an entry that [`judge()`] uses |
//! | [`demand`] | requirements of one caller |
//! | [`mod@judge`] | the decision: may this entry be used for this demand, now? |
//! | [`pace`] | schedules: back-off, jitter of lifetimes, average cost of a load |
//! | [`breaker`] | circuit breaker |
//! | [`call_breaker`] | circuit breaker of an origin, which also counts slow calls |
//! | [`endpoint_health`] | health of the endpoints of an origin: ejection, checks, slow start |
//! | [`heap`] | memory that allocations take |
//! | [`version`] | ordered validators |
//! | [`rate`] | rate limit of one client |
//! | [`origin_budget`] | budget of an origin that all instances share |
//! | [`retry_budget`] | budget of retries, as a share of all requests |
//! | [`why`] | the closed list of reasons why an answer was not a fresh hit |
//! | [`tags`] | tags, positions in the purge log, effect of purges on an entry |
//! | [`adaptive_limit`] | limit on concurrent calls to an origin that follows their results |
//! | [`bus_trust`] | entries that a missed purge may have invalidated |
//! | [`frame`] | serialized entries: versioned, with a digest over all bytes |
//!
//! Deliberately absent: a clock, random numbers, a runtime, I/O and HTTP. Callers pass the time and
//! the random numbers as arguments.

pub mod adaptive_limit;
pub mod breaker;
pub mod bus_trust;
pub mod call_breaker;
pub mod demand;
pub mod endpoint_health;
pub mod entry;
pub mod frame;
pub mod heap;
pub mod judge;
pub mod key;
mod key_pattern;
pub mod origin_budget;
pub mod pace;
pub mod rate;
pub mod retry_budget;
pub mod tags;
pub mod time;
pub mod version;
pub mod why;

pub use adaptive_limit::{AdaptiveLimit, LimitedCall, LoadSign};
pub use breaker::{Admission, Breaker, BreakerRules, Condition};
pub use bus_trust::{BusTrust, WhenBlind};
pub use call_breaker::{
    CallAdmission, CallBreaker, CallResult, CallRules, CallState, CallTicket, CallWindow,
};
pub use demand::Demand;
pub use endpoint_health::{EndpointHealth, EndpointState, HealthChange, HealthRules, OriginHealth};
pub use entry::{Lifetime, Meta, Presence, Stale, Validator, Vary};
pub use judge::{Dice, OriginFailure, Verdict, judge, may_fall_back};
pub use key::{Key, KeyBuf, KeyRef};
pub use key_pattern::KeyPattern;
pub use origin_budget::{
    Allowance, BudgetClaim, BudgetReply, BudgetRequest, BudgetState, BudgetWait, OriginBudget,
};
pub use retry_budget::RetryBudget;
pub use tags::{PREFIXES_MAX, Position, Purge, PurgeState, Purges, Reach, Recorded, TagSet};
pub use time::{Timestamp, WallTime};
pub use why::Why;
