//! One connection to Redis, shared by all who ask, and what is asked over it.
//!
//! # No write that comes too late
//!
//! A tier must not let a write become visible after whoever wrote it has given up: a purge that
//! came in between would be undone. But what was sent to a server that stood still is carried out
//! when it goes on, perhaps on a connection that nobody knows any more. So each write is two steps:
//!
//! 1. A lease is asked for, or a right is claimed without one: a token that is never used again
//!    stands in the hash of leases of the primary key, and the answer is waited for.
//! 2. `fill` stores the value only if that very token still stands there, and if no more time has
//!    passed since then than the writer has patience: both are counted by the server.
//!
//! A removal deletes the whole hash first. Everything is safe by absence: a right that was removed,
//! overwritten, evicted or lost in a failover refuses the fill.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value, cmd};

use crate::bus::version::written;
use crate::envelope::{self, Term};
use crate::lane::{Lanes, Lost, Reply, Waiting};
use crate::names::Names;
use crate::scripts::{self, Call};

/// How long a claim without a lease stands: longer than a body of the largest size takes to come
/// from a slow origin. A fill that comes later is refused.
pub(crate) const CLAIM: Duration = Duration::from_secs(30);

/// A connection. Clones are the same one.
#[derive(Clone)]
pub(crate) enum Link {
    One(One),
    Cluster(ClusterConnection),
}

/// A connection to one server.
#[derive(Clone)]
pub(crate) struct One {
    pub(crate) connection: MultiplexedConnection,
    /// Others to the same server, where there are such.
    pub(crate) lanes: Option<Arc<Lanes>>,
}

/// A value as Redis has it.
pub(crate) struct Found {
    pub(crate) value: Bytes,
    pub(crate) term: Term,
}

impl Found {
    /// What is no value at all; it cannot be read.
    const fn foreign() -> Self {
        Self { value: Bytes::new(), term: Term::Left(None) }
    }
}

/// What a reading brings.
pub(crate) enum Read {
    Nothing,
    Value(Bytes),
}

/// The right to fill: a field of the hash of leases, and the token that stands there.
pub(crate) struct Right {
    pub(crate) field: Vec<u8>,
    pub(crate) token: [u8; 16],
}

/// What is stored, and on which terms.
pub(crate) struct Fill<'a> {
    pub(crate) names: &'a Names,
    pub(crate) right: &'a Right,
    /// Whether the right ends with this.
    pub(crate) is_last: bool,
    /// Values up to this size are handed to those who wait.
    pub(crate) handed_max: u64,
    /// What the channels of instances begin with.
    pub(crate) channels: &'a str,
    /// What has passed since the right was had, until the frame was made.
    pub(crate) since: Duration,
    /// How long the writer waits.
    pub(crate) patience: Duration,
    pub(crate) kept: Duration,
    pub(crate) value: &'a [u8],
    /// Where the oldest version stands that may be stored, and which one this is.
    pub(crate) version: Option<(&'a str, u64)>,
}

/// What came of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// It is there.
    Stored,
    /// The right to it is gone.
    Withdrawn,
    /// A newer version is known.
    Outdated,
}

impl Link {
    /// Whether the server is there and speaks to us; and what its clock shows, since the epoch, if
    /// it tells. The nodes of a Cluster have a clock each.
    pub(crate) async fn ping(&self) -> RedisResult<Option<Duration>> {
        match self.clone() {
            Self::One(One { connection: mut one, .. }) => {
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

    /// Listens to a channel from now on.
    pub(crate) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        match self.clone() {
            Self::One(One { connection: mut one, .. }) => one.subscribe(channel).await,
            Self::Cluster(mut cluster) => cluster.subscribe(channel).await,
        }
    }

    /// The bytes under a name, up to `bytes_max` of them: a longer value is cut, and so is none.
    /// Empty if there are none, or no string.
    pub(crate) async fn read(&self, name: &str, bytes_max: u64) -> RedisResult<Read> {
        read(self.one(&range(name, bytes_max)).await)
    }

    /// The same over a connection for readings, where there is one. It is waited for no longer than
    /// a reading may take.
    pub(crate) fn ask(&self, asked: (&str, u64)) -> Option<Asked> {
        let Self::One(One { lanes: Some(lanes), .. }) = self else { return None };
        lanes.ask(asked).map(Asked)
    }

    /// The same, and what is asked behind it in the same exchange. Nothing comes of that if it
    /// fails, and in a Cluster: there it stands elsewhere, and would not be answered in this order.
    pub(crate) async fn read_and(
        &self,
        (name, bytes_max): (&str, u64),
        behind: &Cmd,
    ) -> RedisResult<(Read, Option<Value>)> {
        let Self::One(One { connection: one, .. }) = self else {
            return Ok((self.read(name, bytes_max).await?, None));
        };
        let mut both = Pipeline::with_capacity(2);
        both.add_command(range(name, bytes_max)).add_command(behind.clone());
        let answers = one.clone().req_packed_commands(&both, 0, 2).await?;
        let [value, answer] = answers.try_into().map_err(|_| unexpected())?;
        Ok((read(sound(value))?, sound(answer).ok()))
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
                return Ok(Some(Found::foreign()));
            }
            Err(error) => return Err(error),
        };
        found(left, value)
    }

    /// The same for several names, in one exchange. A Cluster has them in several places, and each
    /// is asked for its own.
    pub(crate) async fn read_many(
        &self,
        names: &[String],
        bytes_max: u64,
    ) -> RedisResult<Vec<Option<Found>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let Self::One(One { connection: one, .. }) = self else {
            return try_join_all(names.iter().map(|name| self.read_with_left(name, bytes_max)))
                .await;
        };
        let mut all = Pipeline::with_capacity(2 * names.len());
        for name in names {
            all.cmd("PTTL").arg(name);
            all.add_command(range(name, bytes_max));
        }
        let answers = one.clone().req_packed_commands(&all, 0, 2 * names.len()).await?;
        if answers.len() != 2 * names.len() {
            return Err(unexpected());
        }
        let mut answers = answers.into_iter();
        let mut all = Vec::with_capacity(names.len());
        while let (Some(left), Some(value)) = (answers.next(), answers.next()) {
            all.push(match (sound(left)?, sound(value)) {
                (_, Err(error)) if error.code() == Some("WRONGTYPE") => Some(Found::foreign()),
                (left, value) => found(left, value?)?,
            });
        }
        Ok(all)
    }

    /// Takes the right to fill an entry, from whoever has it. `false` if something foreign stands
    /// in its place.
    pub(crate) async fn claim(&self, names: &Names, right: &Right) -> RedisResult<bool> {
        let call = scripts::CLAIM.on([&*names.leases]).arg(right.token).arg(&right.field);
        is_one(self.run(&call.number(millis(CLAIM))).await?)
    }

    /// Stores a value.
    pub(crate) async fn fill(&self, fill: &Fill<'_>) -> RedisResult<Filled> {
        match self.run(&fill.call()).await? {
            Value::Int(1) => Ok(Filled::Stored),
            Value::Int(0) => Ok(Filled::Withdrawn),
            Value::Int(2) => Ok(Filled::Outdated),
            _ => Err(unexpected()),
        }
    }

    /// Runs a script. Its text is sent only to a server that has not seen it, or was restarted.
    pub(crate) async fn run(&self, call: &Call<'_>) -> RedisResult<Value> {
        match self.one(&call.short()).await {
            Err(error) if error.code() == Some("NOSCRIPT") => self.one(&call.long()).await,
            answer => answer,
        }
    }

    /// The same, and what is asked behind it in the same exchange, as
    /// [`read_and`](Self::read_and) does.
    pub(crate) async fn run_and(
        &self,
        call: &Call<'_>,
        behind: &Cmd,
    ) -> RedisResult<(Value, Option<Value>)> {
        let Self::One(One { connection: one, .. }) = self else {
            return Ok((self.run(call).await?, None));
        };
        let mut both = Pipeline::with_capacity(2);
        both.add_command(call.short()).add_command(behind.clone());
        let answers = one.clone().req_packed_commands(&both, 0, 2).await?;
        let [first, second] = answers.try_into().map_err(|_| unexpected())?;
        match sound(first) {
            // What was answered is older than what comes now.
            Err(error) if error.code() == Some("NOSCRIPT") => {
                Ok((self.one(&call.long()).await?, None))
            }
            first => Ok((first?, sound(second).ok())),
        }
    }

    /// Sends what scripts a server should have seen before anybody waits for them. Where it may
    /// not be sent so, it comes with the first call.
    pub(crate) async fn prepare(&self) {
        let loads: Vec<Cmd> = scripts::hurried().collect();
        // A server that may not be sent any says so once for each.
        join_all(loads.iter().map(|load| self.one(load))).await;
    }

    /// By which stamps the values under these names are known; nothing stands for what is no value
    /// of ours. Of a single server.
    pub(crate) async fn stamps(&self, names: &[String]) -> RedisResult<Vec<Option<u64>>> {
        let Self::One(One { connection: one, .. }) = self else { return Err(unexpected()) };
        let mut all = Pipeline::with_capacity(names.len());
        for name in names {
            all.add_command(range(name, envelope::STAMP_END));
        }
        let answers = one.clone().req_packed_commands(&all, 0, names.len()).await?;
        let stamp = |answer| match sound(answer) {
            Ok(Value::BulkString(value)) if value.starts_with(&envelope::beginning()) => {
                envelope::stamp_of(&value)
            }
            _ => None,
        };
        Ok(answers.into_iter().map(stamp).collect())
    }

    /// How many names the server of these leases has dropped for want of room.
    pub(crate) async fn evicted(&self, leases: &str) -> RedisResult<u64> {
        match self.run(&scripts::EVICTED.on([leases])).await? {
            Value::Int(evicted) => Ok(u64::try_from(evicted).unwrap_or(0)),
            _ => Err(unexpected()),
        }
    }

    /// Removes an entry, and the right to fill it first. `false` if there was none.
    pub(crate) async fn remove(&self, names: &Names) -> RedisResult<bool> {
        let mut both = Pipeline::with_capacity(2);
        both.cmd("UNLINK").arg(&*names.leases);
        both.cmd("UNLINK").arg(&*names.entry);
        match self.pair(&both).await? {
            (Value::Int(_), Value::Int(removed)) => Ok(removed > 0),
            _ => Err(unexpected()),
        }
    }

    pub(crate) async fn one(&self, command: &Cmd) -> RedisResult<Value> {
        match self.clone() {
            Self::One(One { connection: mut one, .. }) => one.req_packed_command(command).await,
            Self::Cluster(mut cluster) => cluster.req_packed_command(command).await,
        }
        .and_then(sound)
    }

    async fn pair(&self, both: &Pipeline) -> RedisResult<(Value, Value)> {
        let answers = match self.clone() {
            Self::One(One { connection: mut one, .. }) => {
                one.req_packed_commands(both, 0, 2).await?
            }
            Self::Cluster(mut cluster) => cluster.req_packed_commands(both, 0, 2).await?,
        };
        let answers: [Value; 2] = answers.try_into().map_err(|_| unexpected())?;
        let [first, second] = answers;
        Ok((sound(first)?, sound(second)?))
    }
}

/// A reading that was asked for.
pub(crate) struct Asked(Waiting);

impl Asked {
    /// What it brings. That a connection for readings has broken is no failure: it is asked for
    /// again over the other one.
    pub(crate) async fn answer(self) -> Result<RedisResult<Read>, Lost> {
        Ok(match self.0.await? {
            Reply::Value(value) if value.is_empty() => Ok(Read::Nothing),
            Reply::Value(value) => Ok(Read::Value(value)),
            Reply::Nothing => Ok(Read::Nothing),
            Reply::Done => Err(unexpected()),
            Reply::Refused(error) => read(Err(error)),
        })
    }
}

impl Fill<'_> {
    fn call(&self) -> Call<'_> {
        let Names { entry, leases, waiters } = self.names;
        let floor = self.version.map(|(floor, _)| floor);
        let call = scripts::FILL.on([&**entry, &**leases, &**waiters].into_iter().chain(floor));
        let call = call.arg(self.right.token).arg(&self.right.field).number(millis(self.since));
        let call = call.number(millis(self.patience)).number(millis(self.kept));
        let call = call.number(u64::from(self.is_last)).number(self.handed_max);
        let call = call.arg(self.channels).arg(self.value);
        match self.version {
            Some((_, version)) => call.arg(written(version)),
            None => call,
        }
    }
}

fn read(answer: RedisResult<Value>) -> RedisResult<Read> {
    match answer {
        Ok(Value::BulkString(value)) if value.is_empty() => Ok(Read::Nothing),
        Ok(Value::BulkString(value)) => Ok(Read::Value(value.into())),
        Ok(Value::Nil) => Ok(Read::Nothing),
        Ok(_) => Err(unexpected()),
        Err(error) if error.code() == Some("WRONGTYPE") => Ok(Read::Value(Bytes::new())),
        Err(error) => Err(error),
    }
}

/// What scripts say with 1 and 0.
pub(crate) fn is_one(answer: Value) -> RedisResult<bool> {
    match answer {
        Value::Int(number) => Ok(number == 1),
        _ => Err(unexpected()),
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

fn found(left: Value, value: Value) -> RedisResult<Option<Found>> {
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

/// An answer that is an error is one.
fn sound(value: Value) -> RedisResult<Value> {
    value.extract_error()
}

pub(crate) fn unexpected() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "an answer that no Redis gives").into()
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
