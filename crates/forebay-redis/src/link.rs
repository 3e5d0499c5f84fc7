//! SingleLink connection to Redis, shared by all who ask, and what is asked over it.
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
//!    passed since then than the writer has wait_max: both are counted by the server.
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
use crate::envelope::{self, AgeSource};
use crate::names::Names;
use crate::read_connection::{NoReply, PendingReply, ReadConnections, Reply};
use crate::scripts::{self, Call};

/// How long a claim without a lease stands: longer than a body of the largest size takes to come
/// from a slow origin. A fill that comes later is refused.
pub(crate) const CLAIM_DURATION: Duration = Duration::from_secs(30);

/// A connection. Clones are the same one.
#[derive(Clone)]
pub(crate) enum Link {
    Single(SingleLink),
    Cluster(ClusterConnection),
}

/// A connection to one server.
#[derive(Clone)]
pub(crate) struct SingleLink {
    pub(crate) connection: MultiplexedConnection,
    /// Others to the same server, where there are such.
    pub(crate) read_connections: Option<Arc<ReadConnections>>,
}

/// A value as Redis has it.
pub(crate) struct RawValue {
    pub(crate) value: Bytes,
    pub(crate) age_source: AgeSource,
}

impl RawValue {
    /// What is no value at all; it cannot be read.
    const fn foreign() -> Self {
        Self { value: Bytes::new(), age_source: AgeSource::Left(None) }
    }
}

/// What a reading brings.
pub(crate) enum ReadReply {
    Nothing,
    Value(Bytes),
}

/// The right to fill: a field of the hash of leases, and the token that stands there.
pub(crate) struct WritePermission {
    pub(crate) field: Vec<u8>,
    pub(crate) token: [u8; 16],
}

/// What is stored, and on which terms.
pub(crate) struct Fill<'a> {
    pub(crate) names: &'a Names,
    pub(crate) permission: &'a WritePermission,
    /// Whether the right ends with this.
    pub(crate) is_last: bool,
    /// Values up to this size are handed to those who wait.
    pub(crate) handover_max: u64,
    /// What the channels of instances begin with.
    pub(crate) channels: &'a str,
    /// What has passed since the right was had, until the frame was made.
    pub(crate) since: Duration,
    /// How long the writer waits.
    pub(crate) wait_max: Duration,
    pub(crate) ttl: Duration,
    pub(crate) value: &'a [u8],
    /// Where the oldest version stands that may be stored, and which one this is.
    pub(crate) version: Option<(&'a str, u64)>,
}

/// What came of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FillResult {
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
            Self::Single(SingleLink { connection: mut one, .. }) => {
                let mut both = Pipeline::with_capacity(2);
                both.cmd("PING").cmd("TIME");
                let answers = one.req_packed_commands(&both, 0, 2).await?;
                let [pong, time] = answers.try_into().map_err(|_| unexpected())?;
                ok_or_error(pong)?;
                Ok(parse_time(&time))
            }
            // All nodes would be asked, and fail as one.
            Self::Cluster(mut cluster) => {
                let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
                cluster.route_command(cmd("PING"), anywhere).await.and_then(ok_or_error)?;
                Ok(None)
            }
        }
    }

    /// Listens to a channel from now on.
    pub(crate) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        match self.clone() {
            Self::Single(SingleLink { connection: mut one, .. }) => one.subscribe(channel).await,
            Self::Cluster(mut cluster) => cluster.subscribe(channel).await,
        }
    }

    /// The bytes under a name, up to `bytes_max` of them: a longer value is cut, and so is none.
    /// Empty if there are none, or no string.
    pub(crate) async fn read(&self, name: &str, bytes_max: u64) -> RedisResult<ReadReply> {
        read(self.query(&getrange(name, bytes_max)).await)
    }

    /// The same over a connection for readings, where there is one. It is waited for no longer than
    /// a reading may take.
    pub(crate) fn start_read(&self, name: &str, bytes_max: u64) -> Option<PendingRead> {
        let Self::Single(SingleLink { read_connections: Some(read_connections), .. }) = self else {
            return None;
        };
        read_connections.start_read(name, bytes_max).map(PendingRead)
    }

    /// The same, and what is asked pipelined it in the same exchange. Nothing comes of that if it
    /// fails, and in a Cluster: there it stands elsewhere, and would not be answered in this order.
    pub(crate) async fn read_and(
        &self,
        name: &str,
        bytes_max: u64,
        pipelined: &Cmd,
    ) -> RedisResult<(ReadReply, Option<Value>)> {
        let Self::Single(SingleLink { connection: one, .. }) = self else {
            return Ok((self.read(name, bytes_max).await?, None));
        };
        let mut both = Pipeline::with_capacity(2);
        both.add_command(getrange(name, bytes_max)).add_command(pipelined.clone());
        let answers = one.clone().req_packed_commands(&both, 0, 2).await?;
        let [value, answer] = answers.try_into().map_err(|_| unexpected())?;
        Ok((read(ok_or_error(value))?, ok_or_error(answer).ok()))
    }

    /// The same with what is left of its time, which is asked first: see
    /// [`envelope`](crate::envelope).
    pub(crate) async fn read_with_left(
        &self,
        name: &str,
        bytes_max: u64,
    ) -> RedisResult<Option<RawValue>> {
        let mut both = Pipeline::with_capacity(2);
        both.cmd("PTTL").arg(name);
        both.add_command(getrange(name, bytes_max));
        let (left, value) = match self.query_pair(&both).await {
            Ok(pair) => pair,
            Err(error) if error.code() == Some("WRONGTYPE") => {
                return Ok(Some(RawValue::foreign()));
            }
            Err(error) => return Err(error),
        };
        raw_value(left, value)
    }

    /// The same for several names, in one exchange. A Cluster has them in several places, and each
    /// is asked for its own.
    pub(crate) async fn read_many(
        &self,
        names: &[String],
        bytes_max: u64,
    ) -> RedisResult<Vec<Option<RawValue>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let Self::Single(SingleLink { connection: one, .. }) = self else {
            return try_join_all(names.iter().map(|name| self.read_with_left(name, bytes_max)))
                .await;
        };
        let mut all = Pipeline::with_capacity(2 * names.len());
        for name in names {
            all.cmd("PTTL").arg(name);
            all.add_command(getrange(name, bytes_max));
        }
        let answers = one.clone().req_packed_commands(&all, 0, 2 * names.len()).await?;
        if answers.len() != 2 * names.len() {
            return Err(unexpected());
        }
        let mut answers = answers.into_iter();
        let mut all = Vec::with_capacity(names.len());
        while let (Some(left), Some(value)) = (answers.next(), answers.next()) {
            all.push(match (ok_or_error(left)?, ok_or_error(value)) {
                (_, Err(error)) if error.code() == Some("WRONGTYPE") => Some(RawValue::foreign()),
                (left, value) => raw_value(left, value?)?,
            });
        }
        Ok(all)
    }

    /// Takes the right to fill an entry, from whoever has it. `false` if something foreign stands
    /// in its place.
    pub(crate) async fn claim(
        &self,
        names: &Names,
        permission: &WritePermission,
    ) -> RedisResult<bool> {
        let call =
            scripts::CLAIM.call([&*names.leases]).arg(permission.token).arg(&permission.field);
        parse_bool(self.run(&call.number(millis(CLAIM_DURATION))).await?)
    }

    /// Stores a value.
    pub(crate) async fn fill(&self, fill: &Fill<'_>) -> RedisResult<FillResult> {
        match self.run(&fill.call()).await? {
            Value::Int(1) => Ok(FillResult::Stored),
            Value::Int(0) => Ok(FillResult::Withdrawn),
            Value::Int(2) => Ok(FillResult::Outdated),
            _ => Err(unexpected()),
        }
    }

    /// Runs a script. Its text is sent only to a server that has not seen it, or was restarted.
    pub(crate) async fn run(&self, call: &Call<'_>) -> RedisResult<Value> {
        match self.query(&call.by_digest()).await {
            Err(error) if error.code() == Some("NOSCRIPT") => self.query(&call.with_text()).await,
            answer => answer,
        }
    }

    /// The same, and what is asked pipelined it in the same exchange, as
    /// [`read_and`](Self::read_and) does.
    pub(crate) async fn run_and(
        &self,
        call: &Call<'_>,
        pipelined: &Cmd,
    ) -> RedisResult<(Value, Option<Value>)> {
        let Self::Single(SingleLink { connection: one, .. }) = self else {
            return Ok((self.run(call).await?, None));
        };
        let mut both = Pipeline::with_capacity(2);
        both.add_command(call.by_digest()).add_command(pipelined.clone());
        let answers = one.clone().req_packed_commands(&both, 0, 2).await?;
        let [first, second] = answers.try_into().map_err(|_| unexpected())?;
        match ok_or_error(first) {
            // What was answered is older than what comes now.
            Err(error) if error.code() == Some("NOSCRIPT") => {
                Ok((self.query(&call.with_text()).await?, None))
            }
            first => Ok((first?, ok_or_error(second).ok())),
        }
    }

    /// Sends what scripts a server should have seen before anybody waits for them. Where it may
    /// not be sent so, it comes with the first call.
    pub(crate) async fn load_scripts(&self) {
        let loads: Vec<Cmd> = scripts::preloaded().collect();
        // A server that may not be sent any says so once for each.
        join_all(loads.iter().map(|load| self.query(load))).await;
    }

    /// By which stamps the values under these names are known; nothing stands for what is no value
    /// of ours. Of a single server.
    pub(crate) async fn stamps(&self, names: &[String]) -> RedisResult<Vec<Option<u64>>> {
        let Self::Single(SingleLink { connection: one, .. }) = self else {
            return Err(unexpected());
        };
        let mut all = Pipeline::with_capacity(names.len());
        for name in names {
            all.add_command(getrange(name, envelope::STAMP_END));
        }
        let answers = one.clone().req_packed_commands(&all, 0, names.len()).await?;
        let stamp = |answer| match ok_or_error(answer) {
            Ok(Value::BulkString(value)) if value.starts_with(&envelope::value_prefix()) => {
                envelope::stamp_of(&value)
            }
            _ => None,
        };
        Ok(answers.into_iter().map(stamp).collect())
    }

    /// How many names the server of these leases has dropped for want of room.
    pub(crate) async fn evicted(&self, leases: &str) -> RedisResult<u64> {
        match self.run(&scripts::EVICTED.call([leases])).await? {
            Value::Int(evicted) => Ok(u64::try_from(evicted).unwrap_or(0)),
            _ => Err(unexpected()),
        }
    }

    /// Removes an entry, and the right to fill it first. `false` if there was none.
    pub(crate) async fn remove(&self, names: &Names) -> RedisResult<bool> {
        let mut both = Pipeline::with_capacity(2);
        both.cmd("UNLINK").arg(&*names.leases);
        both.cmd("UNLINK").arg(&*names.entry);
        match self.query_pair(&both).await? {
            (Value::Int(_), Value::Int(removed)) => Ok(removed > 0),
            _ => Err(unexpected()),
        }
    }

    pub(crate) async fn query(&self, command: &Cmd) -> RedisResult<Value> {
        match self.clone() {
            Self::Single(SingleLink { connection: mut one, .. }) => {
                one.req_packed_command(command).await
            }
            Self::Cluster(mut cluster) => cluster.req_packed_command(command).await,
        }
        .and_then(ok_or_error)
    }

    async fn query_pair(&self, both: &Pipeline) -> RedisResult<(Value, Value)> {
        let answers = match self.clone() {
            Self::Single(SingleLink { connection: mut one, .. }) => {
                one.req_packed_commands(both, 0, 2).await?
            }
            Self::Cluster(mut cluster) => cluster.req_packed_commands(both, 0, 2).await?,
        };
        let answers: [Value; 2] = answers.try_into().map_err(|_| unexpected())?;
        let [first, second] = answers;
        Ok((ok_or_error(first)?, ok_or_error(second)?))
    }
}

/// A reading that was asked for.
pub(crate) struct PendingRead(PendingReply);

impl PendingRead {
    /// What it brings. That a connection for readings has broken is no failure: it is asked for
    /// again over the other one.
    pub(crate) async fn answer(self) -> Result<RedisResult<ReadReply>, NoReply> {
        Ok(match self.0.await? {
            Reply::Value(value) if value.is_empty() => Ok(ReadReply::Nothing),
            Reply::Value(value) => Ok(ReadReply::Value(value)),
            Reply::Nothing => Ok(ReadReply::Nothing),
            Reply::Done => Err(unexpected()),
            Reply::Refused(error) => read(Err(error)),
        })
    }
}

impl Fill<'_> {
    fn call(&self) -> Call<'_> {
        let Names { entry, leases, waiters } = self.names;
        let floor = self.version.map(|(floor, _)| floor);
        let call = scripts::FILL.call([&**entry, &**leases, &**waiters].into_iter().chain(floor));
        let call =
            call.arg(self.permission.token).arg(&self.permission.field).number(millis(self.since));
        let call = call.number(millis(self.wait_max)).number(millis(self.ttl));
        let call = call.number(u64::from(self.is_last)).number(self.handover_max);
        let call = call.arg(self.channels).arg(self.value);
        match self.version {
            Some((_, version)) => call.arg(written(version)),
            None => call,
        }
    }
}

fn read(answer: RedisResult<Value>) -> RedisResult<ReadReply> {
    match answer {
        Ok(Value::BulkString(value)) if value.is_empty() => Ok(ReadReply::Nothing),
        Ok(Value::BulkString(value)) => Ok(ReadReply::Value(value.into())),
        Ok(Value::Nil) => Ok(ReadReply::Nothing),
        Ok(_) => Err(unexpected()),
        Err(error) if error.code() == Some("WRONGTYPE") => Ok(ReadReply::Value(Bytes::new())),
        Err(error) => Err(error),
    }
}

/// What scripts say with 1 and 0.
pub(crate) fn parse_bool(answer: Value) -> RedisResult<bool> {
    match answer {
        Value::Int(number) => Ok(number == 1),
        _ => Err(unexpected()),
    }
}

fn getrange(name: &str, bytes_max: u64) -> Cmd {
    let mut range = cmd("GETRANGE");
    range.arg(name).arg(0).arg(bytes_max.saturating_sub(1));
    range
}

/// Seconds and microseconds, as two strings. Nothing if we may not ask.
fn parse_time(answer: &Value) -> Option<Duration> {
    let Value::Array(parts) = answer else { return None };
    let number = |part: &Value| match part {
        Value::BulkString(digits) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    let [seconds, micros] = &parts[..] else { return None };
    Duration::from_secs(number(seconds)?).checked_add(Duration::from_micros(number(micros)?))
}

fn raw_value(left: Value, value: Value) -> RedisResult<Option<RawValue>> {
    match (left, value) {
        // It ended, or began, between the two questions.
        (Value::Int(-2), _) => Ok(None),
        (Value::Int(_), Value::Nil) => Ok(None),
        (Value::Int(_), Value::BulkString(value)) if value.is_empty() => Ok(None),
        (Value::Int(left), Value::BulkString(value)) => {
            let left = u64::try_from(left).ok().map(Duration::from_millis);
            Ok(Some(RawValue { value: value.into(), age_source: AgeSource::Left(left) }))
        }
        _ => Err(unexpected()),
    }
}

/// An answer that is an error is one.
fn ok_or_error(value: Value) -> RedisResult<Value> {
    value.extract_error()
}

pub(crate) fn unexpected() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "an answer that no Redis gives").into()
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
