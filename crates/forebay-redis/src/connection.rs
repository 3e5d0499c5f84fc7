//! Connections to Redis: one endpoint and its monitoring, its links, the Lua scripts they run, and
//! messages that wake waiting callers.
//!
//! This folder uses `purges`, `entry`, `settings`, `counts` and `error`; it never sees leases, the bus or
//! the tier trait.

pub(crate) mod endpoint;
pub(crate) mod link;
pub(crate) mod read_connection;
pub(crate) mod scripts;
pub(crate) mod server_clock;
pub(crate) mod target;
pub(crate) mod wakeups;
pub(crate) mod watch;

use std::time::Duration;

/// Maximum duration of a connection attempt, including authentication.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(1);

/// Maximum silence of a connection before it is closed. A frozen server answers everything when it
/// resumes, so its connection is kept for a while.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(1);
