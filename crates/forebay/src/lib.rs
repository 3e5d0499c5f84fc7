//! A typed, stampede-proof cache for the inside of a service.

mod answer;
mod builder;
mod cache;
mod call;
mod error;
mod explain;
mod lifetimes;
mod load;
mod many;
mod nested;
mod options;
mod shared;
mod stats;
#[cfg(feature = "testkit")]
pub mod testkit;
mod warm;

pub use answer::{Answer, Prior};
pub use builder::{Builder, LoadGroup, Memory};
pub use cache::{Cache, With};
pub use error::{BuildError, Cause, Error};
pub use explain::{Explanation, Outlook, StoredEntry};
pub use options::Options;
pub use stats::Stats;
pub use warm::{Warm, Warmed};
