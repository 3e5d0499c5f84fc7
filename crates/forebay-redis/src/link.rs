//! One connection to Redis, shared by all who ask, and what is asked over it.
//!
//! # No write that comes too late
//!
//! A tier must not let a write become visible after whoever wrote it has given up: a purge that
//! came in between would be undone. But what was sent to a server that stood still is carried out
//! when it goes on, perhaps on a connection that nobody knows any more. So each write is two steps:
//!
//! 1. `claim` puts a token that is never used again under the lease of the entry, and waits for
//!    the answer.
//! 2. `fill` stores the value only if that very token still stands there, and if no more time has
//!    passed since the claim than the writer has patience: both are counted by the server.
//!
//! A removal deletes the lease first. Everything is safe by absence: a lease that was removed,
//! overwritten, evicted or lost in a failover refuses the fill.

use std::time::Duration;

use bytes::Bytes;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value, cmd};

use crate::envelope::Term;
use crate::names::Names;

/// How long a lease stands: longer than a body of the largest size takes to come from a slow
/// origin. A fill that comes later is refused.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// `fill`. KEYS: lease, entry. ARGV: the token; what must be left of the lease if no time was lost;
/// how much may have been lost; how long the value is kept; the value. Lost time is taken off the
/// value's, so that it counts as age. Answers 1, or 0 if the fill was refused.
const FILL: &str = "\
local left = redis.call('PTTL', KEYS[1])
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
local lost = math.max(tonumber(ARGV[2]) - left, 0)
local kept = tonumber(ARGV[4]) - lost
if lost > tonumber(ARGV[3]) or kept <= 0 then return 0 end
redis.call('SET', KEYS[2], ARGV[5], 'PX', kept)
return 1";

/// The SHA-1 of `FILL`, by which servers know it once they have seen it.
const FILL_SHA: &str = "ebc35a21d24c8f6602e191a932c3edf9259eb00a";

/// A connection. Clones are the same one.
#[derive(Clone)]
pub(crate) enum Link {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// A value as Redis has it.
pub(crate) struct Found {
    pub(crate) value: Bytes,
    pub(crate) term: Term,
}

/// What a reading brings.
pub(crate) enum Read {
    Nothing,
    Value(Bytes),
}

/// The right to fill an entry.
pub(crate) struct Token([u8; 16]);

impl Token {
    pub(crate) const fn new(random: [u8; 16]) -> Self {
        Self(random)
    }
}

/// What is stored, and on which terms.
pub(crate) struct Fill<'a> {
    pub(crate) names: &'a Names,
    pub(crate) token: &'a Token,
    /// What has passed since the claim was answered, until the frame was made.
    pub(crate) since_claim: Duration,
    /// How long the writer waits.
    pub(crate) patience: Duration,
    pub(crate) kept: Duration,
    pub(crate) value: &'a [u8],
}

impl Link {
    /// Whether the server is there and speaks to us; and what its clock shows, since the epoch, if
    /// it tells. The nodes of a Cluster have a clock each.
    pub(crate) async fn ping(&self) -> RedisResult<Option<Duration>> {
        match self.clone() {
            Self::One(mut one) => {
                let mut both = Pipeline::with_capacity(2);
                both.cmd("PING").cmd("TIME");
                let answers = one.req_packed_commands(&both, 0, 2).await?;
                let [pong, time] = answers.try_into().map_err(|_| unexpected())?;
                sound(pong)?;
                Ok(date(&time))
            }
            // All nodes would be asked, and fail as one.
            Self::Cluster(mut cluster) => {
                let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
                cluster.route_command(cmd("PING"), anywhere).await.and_then(sound)?;
                Ok(None)
            }
        }
    }

    /// The bytes under a name, up to `bytes_max` of them: a longer value is cut, and so is none.
    /// Empty if there are none, or no string.
    pub(crate) async fn read(&self, name: &str, bytes_max: u64) -> RedisResult<Read> {
        match self.one(&range(name, bytes_max)).await {
            Ok(Value::BulkString(value)) if value.is_empty() => Ok(Read::Nothing),
            Ok(Value::BulkString(value)) => Ok(Read::Value(value.into())),
            Ok(Value::Nil) => Ok(Read::Nothing),
            Ok(_) => Err(unexpected()),
            Err(error) if error.code() == Some("WRONGTYPE") => Ok(Read::Value(Bytes::new())),
            Err(error) => Err(error),
        }
    }

    /// The same with what is left of its time, which is asked first: see
    /// [`envelope`](crate::envelope).
    pub(crate) async fn read_with_left(
        &self,
        name: &str,
        bytes_max: u64,
    ) -> RedisResult<Option<Found>> {
        let mut both = Pipeline::with_capacity(2);
        both.cmd("PTTL").arg(name);
        both.add_command(range(name, bytes_max));
        let (left, value) = match self.pair(&both).await {
            Ok(pair) => pair,
            Err(error) if error.code() == Some("WRONGTYPE") => {
                return Ok(Some(Found { value: Bytes::new(), term: Term::Left(None) }));
            }
            Err(error) => return Err(error),
        };
        match (left, value) {
            // It ended, or began, between the two questions.
            (Value::Int(-2), _) => Ok(None),
            (Value::Int(_), Value::Nil) => Ok(None),
            (Value::Int(_), Value::BulkString(value)) if value.is_empty() => Ok(None),
            (Value::Int(left), Value::BulkString(value)) => {
                let left = u64::try_from(left).ok().map(Duration::from_millis);
                Ok(Some(Found { value: value.into(), term: Term::Left(left) }))
            }
            _ => Err(unexpected()),
        }
    }

    /// Takes the right to fill an entry, from whoever has it.
    pub(crate) async fn claim(&self, names: &Names, token: &Token) -> RedisResult<()> {
        let mut claim = cmd("SET");
        claim.arg(&*names.lease).arg(&token.0).arg("PX").arg(millis(LEASE));
        self.one(&claim).await.map(drop)
    }

    /// Stores a value. `false` if the right to do so is gone.
    pub(crate) async fn fill(&self, fill: &Fill<'_>) -> RedisResult<bool> {
        let answer = match self.one(&fill.command("EVALSHA", FILL_SHA)).await {
            // The server has been restarted, or has not seen it yet.
            Err(error) if error.code() == Some("NOSCRIPT") => {
                self.one(&fill.command("EVAL", FILL)).await
            }
            answer => answer,
        };
        match answer? {
            Value::Int(stored) => Ok(stored == 1),
            _ => Err(unexpected()),
        }
    }

    /// Removes an entry, and the right to fill it first. `false` if there was none.
    pub(crate) async fn remove(&self, names: &Names) -> RedisResult<bool> {
        let mut both = Pipeline::with_capacity(2);
        both.cmd("UNLINK").arg(&*names.lease);
        both.cmd("UNLINK").arg(&*names.entry);
        match self.pair(&both).await? {
            (Value::Int(_), Value::Int(removed)) => Ok(removed > 0),
            _ => Err(unexpected()),
        }
    }

    async fn one(&self, command: &Cmd) -> RedisResult<Value> {
        match self.clone() {
            Self::One(mut one) => one.req_packed_command(command).await,
            Self::Cluster(mut cluster) => cluster.req_packed_command(command).await,
        }
        .and_then(sound)
    }

    async fn pair(&self, both: &Pipeline) -> RedisResult<(Value, Value)> {
        let answers = match self.clone() {
            Self::One(mut one) => one.req_packed_commands(both, 0, 2).await?,
            Self::Cluster(mut cluster) => cluster.req_packed_commands(both, 0, 2).await?,
        };
        let answers: [Value; 2] = answers.try_into().map_err(|_| unexpected())?;
        let [first, second] = answers;
        Ok((sound(first)?, sound(second)?))
    }
}

impl Fill<'_> {
    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(2).arg(&*self.names.lease).arg(&*self.names.entry);
        command.arg(&self.token.0).arg(millis(LEASE.saturating_sub(self.since_claim)));
        command.arg(millis(self.patience)).arg(millis(self.kept)).arg(self.value);
        command
    }
}

fn range(name: &str, bytes_max: u64) -> Cmd {
    let mut range = cmd("GETRANGE");
    range.arg(name).arg(0).arg(bytes_max.saturating_sub(1));
    range
}

/// Seconds and microseconds, as two strings. Nothing if we may not ask.
fn date(answer: &Value) -> Option<Duration> {
    let Value::Array(parts) = answer else { return None };
    let number = |part: &Value| match part {
        Value::BulkString(digits) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    let [seconds, micros] = &parts[..] else { return None };
    Duration::from_secs(number(seconds)?).checked_add(Duration::from_micros(number(micros)?))
}

/// An answer that is an error is one.
fn sound(value: Value) -> RedisResult<Value> {
    value.extract_error()
}

fn unexpected() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "an answer that no Redis gives").into()
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_known_by_its_digest() {
        let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, FILL.as_bytes());
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, FILL_SHA);
    }
}
