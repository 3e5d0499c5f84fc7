//! One connection to Redis, and the commands that are sent over it.
//!
//! # No late writes
//!
//! A write must not become visible after its writer gave up, or it could undo a purge in between. A
//! frozen server executes queued commands when it resumes, possibly from a closed connection. Each
//! write therefore has two steps:
//!
//! 1. A lease or a permission is requested: a unique token in the hash of leases of the primary
//!    key. The writer waits for the reply.
//! 2. `fill` stores the value only if this token is still there and no more time has passed than
//!    the writer waits. The server measures both.
//!
//! A removal deletes the whole hash first. A missing token refuses the store, whether it was
//! removed, overwritten, evicted or lost in a failover.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, Pipeline, RedisResult, Value, cmd};

use crate::connection::read_connection::{NoReply, PendingReply, ReadConnections, Reply};
use crate::connection::scripts::{self, Call};
use crate::entry::envelope::{self, AgeSource, TOKEN_AT};
use crate::entry::names::Names;
use crate::error::unexpected;

/// Duration of a permission without a lease: longer than a slow origin needs for the largest body.
pub(crate) const CLAIM_DURATION: Duration = Duration::from_secs(30);

/// A connection to an endpoint. Clones share it.
#[derive(Clone)]
pub(crate) enum Link {
    Single(SingleLink),
    Cluster(ClusterConnection),
}

/// Connection to a single server.
#[derive(Clone)]
pub(crate) struct SingleLink {
    pub(crate) connection: MultiplexedConnection,
    /// Read-only connections to the same server, if available.
    pub(crate) read_connections: Option<Arc<ReadConnections>>,
}

/// A value as read from Redis.
pub(crate) struct RawValue {
    pub(crate) value: Bytes,
    pub(crate) age_source: AgeSource,
}

impl RawValue {
    /// Stands for data that is not a string, which fails to decode.
    const fn foreign() -> Self {
        Self { value: Bytes::new(), age_source: AgeSource::Left(None) }
    }
}

/// Result of a read.
pub(crate) enum ReadReply {
    Nothing,
    Value(Bytes),
}

/// Permission to store: a field in the hash of leases, and its token.
pub(crate) struct WritePermission {
    pub(crate) field: Vec<u8>,
    pub(crate) token: [u8; 16],
}

/// Arguments of the store script.
pub(crate) struct Fill<'a> {
    pub(crate) names: &'a Names,
    pub(crate) permission: &'a WritePermission,
    /// True if the store ends the permission.
    pub(crate) is_last: bool,
    /// Maximum bytes of a value that is sent to waiters.
    pub(crate) handover_max: u64,
    /// Prefix of the instances' channels.
    pub(crate) channels: &'a str,
    /// Time between the permission and the encoding of the frame.
    pub(crate) since: Duration,
    /// Time that the writer waits.
    pub(crate) wait_max: Duration,
    pub(crate) ttl: Duration,
    pub(crate) value: &'a [u8],
    /// Name of the record that lists the variants, if the value is that record or a variant.
    pub(crate) family: Option<&'a str>,
    /// Name of the version floor, and the version of the entry.
    pub(crate) version: Option<(&'a str, u64)>,
}

/// Result of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FillResult {
    /// The value was stored.
    Stored,
    /// The permission is gone.
    Withdrawn,
    /// A newer version is known.
    Outdated,
}

impl Link {
    /// Pings the server and returns its clock since the epoch, if allowed. A Cluster has no common
    /// clock.
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
            // Without routing, all nodes would be asked and one failure would fail the ping.
            Self::Cluster(mut cluster) => {
                let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
                cluster.route_command(cmd("PING"), anywhere).await.and_then(ok_or_error)?;
                Ok(None)
            }
        }
    }

    /// Subscribes to a channel.
    pub(crate) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        match self.clone() {
            Self::Single(SingleLink { connection: mut one, .. }) => one.subscribe(channel).await,
            Self::Cluster(mut cluster) => cluster.subscribe(channel).await,
        }
    }

    /// Reads up to `bytes_max` bytes of a value. A longer value is truncated and fails to decode;
    /// data of another type is read as empty.
    pub(crate) async fn read(&self, name: &str, bytes_max: u64) -> RedisResult<ReadReply> {
        read(self.query(&getrange(name, bytes_max)).await)
    }

    /// Starts a read over a read-only connection, if there is one. The wait ends with the read
    /// timeout.
    pub(crate) fn start_read(&self, name: &str, bytes_max: u64) -> Option<PendingRead> {
        let Self::Single(SingleLink { read_connections: Some(read_connections), .. }) = self else {
            return None;
        };
        read_connections.start_read(name, bytes_max).map(PendingRead)
    }

    /// Reads a value and runs a pipelined command. Its reply is `None` if it fails, and in a
    /// Cluster, which does not keep the order.
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

    /// Reads the remaining TTL, then the value, in one round trip; see
    /// [`envelope`](crate::entry::envelope).
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

    /// Reads several values with their remaining TTLs, in one round trip per server.
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

    /// Requests permission to store, replacing any earlier one. `false` if another program's data
    /// is in its place.
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

    /// Runs a script. Its text is sent only if the server has not cached it.
    pub(crate) async fn run(&self, call: &Call<'_>) -> RedisResult<Value> {
        match self.query(&call.by_digest()).await {
            Err(error) if error.code() == Some("NOSCRIPT") => self.query(&call.with_text()).await,
            answer => answer,
        }
    }

    /// Runs a script and a pipelined command, like [`read_and`](Self::read_and).
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
            // The pipelined reply would be older than this one.
            Err(error) if error.code() == Some("NOSCRIPT") => {
                Ok((self.query(&call.with_text()).await?, None))
            }
            first => Ok((first?, ok_or_error(second).ok())),
        }
    }

    /// Loads scripts into the server's cache. If that is not allowed, the first call sends the
    /// text.
    pub(crate) async fn load_scripts(&self) {
        let loads: Vec<Cmd> = scripts::preloaded().collect();
        // Each failed load is ignored.
        join_all(loads.iter().map(|load| self.query(load))).await;
    }

    /// Reads the stamps of values; `None` for values of another program. Single servers only.
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

    /// Returns the number of keys that the server has evicted.
    pub(crate) async fn evicted(&self, leases: &str) -> RedisResult<u64> {
        match self.run(&scripts::EVICTED.call([leases])).await? {
            Value::Int(evicted) => Ok(u64::try_from(evicted).unwrap_or(0)),
            _ => Err(unexpected()),
        }
    }

    /// Removes an entry, after its permissions. `false` if there was none.
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

/// A read that was started.
pub(crate) struct PendingRead(PendingReply);

impl PendingRead {
    /// Waits for the reply. If the read-only connection broke, the caller repeats the read on the
    /// main connection.
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
        let primary = self.family.unwrap_or(&**entry);
        let keys = [&**entry, &**leases, &**waiters, primary];
        let call = scripts::FILL.call(keys.into_iter().chain(floor));
        let call =
            call.arg(self.permission.token).arg(&self.permission.field).number(millis(self.since));
        let call = call.number(millis(self.wait_max)).number(millis(self.ttl));
        let call = call.number(u64::from(self.is_last)).number(self.handover_max);
        let call = call.arg(self.channels).arg(self.value);
        let call = call.number(self.family.map_or(0, |_| TOKEN_AT as u64));
        match self.version {
            Some((_, version)) => call.arg(written_version(version)),
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

/// Parses the results 1 and 0 of a script.
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

/// Parses seconds and microseconds; `None` if the command was refused.
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
        // The value expired or was created between the two commands.
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

/// Turns an error reply into an error.
fn ok_or_error(value: Value) -> RedisResult<Value> {
    value.extract_error()
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Encodes a version as twenty digits.
pub(crate) fn written_version(version: u64) -> String {
    format!("{version:020}")
}
