//! Reads on an endpoint, and the server's clock for the age of values.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};

use super::{Endpoint, FailOnDrop};
use crate::connection::link::{Link, RawValue, ReadReply, millis};
use crate::connection::read_connection::NoReply;
use crate::connection::server_clock::Reading;
use crate::entry::envelope::AgeSource;
use crate::error::Error;

impl Endpoint {
    /// Reads a value, with the reply to a pipelined command. There is no such reply if it would
    /// take another round trip.
    pub(crate) async fn read(
        &self,
        name: &str,
        bytes_max: u64,
        pipelined: Option<&Cmd>,
    ) -> Result<(Option<RawValue>, Option<Value>), Error> {
        if pipelined.is_none()
            && let Some(found) = self.read_dedicated(name, bytes_max).await?
        {
            return Ok((found, None));
        }
        // Boxed to keep the future of the common path small.
        Box::pin(self.read_shared(name, bytes_max, pipelined)).await
    }

    /// Reads over a read-only connection; `None` if there is none.
    async fn read_dedicated(
        &self,
        name: &str,
        bytes_max: u64,
    ) -> Result<Option<Option<RawValue>>, Error> {
        let link = self.link.load();
        let usable = link.as_deref().filter(|_| self.is_usable() && self.reading.lock().is_some());
        let Some(read) = usable.and_then(|link| link.start_read(name, bytes_max)) else {
            return Ok(None);
        };
        drop(link);
        let pending = FailOnDrop(Some(self));
        let answer = read.answer().await;
        pending.finish();
        let value = match answer {
            Ok(Ok(ReadReply::Nothing)) => return Ok(Some(None)),
            Ok(Ok(ReadReply::Value(value))) => value,
            Ok(Err(error)) => return Err(self.failed(error.into())),
            Err(NoReply::TimedOut) => return Err(self.failed(Error::TimedOut)),
            Err(NoReply::Broken) => return Ok(None),
        };
        // Read after the value arrived, which may have been written a moment ago.
        Ok(self.now().map(|now| Some(RawValue { value, age_source: AgeSource::Now(now) })))
    }

    async fn read_shared(
        &self,
        name: &str,
        bytes_max: u64,
        pipelined: Option<&Cmd>,
    ) -> Result<(Option<RawValue>, Option<Value>), Error> {
        let read = |link: Arc<Link>| async move {
            if self.reading.lock().is_none() {
                return Ok((link.read_with_left(name, bytes_max).await?, None));
            }
            let (read, answer) = match pipelined {
                Some(pipelined) => link.read_and(name, bytes_max, pipelined).await?,
                None => (link.read(name, bytes_max).await?, None),
            };
            let ReadReply::Value(value) = read else { return Ok((None, answer)) };
            // Read after the value arrived, which may have been written a moment ago.
            match self.now() {
                Some(now) => {
                    Ok((Some(RawValue { value, age_source: AgeSource::Now(now) }), answer))
                }
                // The pipelined reply would be older than the value that is read now.
                None => Ok((link.read_with_left(name, bytes_max).await?, None)),
            }
        };
        self.run(self.read_timeout, read).await
    }

    /// Reads a value with its remaining TTL, for values without a timestamp.
    pub(crate) async fn read_with_left(
        &self,
        name: &str,
        bytes_max: u64,
    ) -> Result<Option<RawValue>, Error> {
        let read = |link: Arc<Link>| async move { link.read_with_left(name, bytes_max).await };
        self.run(self.read_timeout, read).await
    }

    /// Returns the latest possible time on the server's clock.
    pub(crate) fn now(&self) -> Option<Duration> {
        let reading = (*self.reading.lock())?;
        reading.latest(self.clock.exact())
    }

    /// Returns the deadline of a read that starts now, in milliseconds since the epoch on the
    /// server's clock; 0 if unknown.
    pub(crate) fn read_deadline(&self) -> u64 {
        self.now().map_or(0, |now| millis(now + self.read_timeout))
    }

    /// Returns the earliest possible time on the server's clock.
    pub(crate) fn earliest_now(&self) -> Option<Duration> {
        let reading = (*self.reading.lock())?;
        reading.earliest(self.clock.exact())
    }

    /// Pings the server and records its clock.
    pub(crate) async fn ping(&self, link: &Link) -> RedisResult<()> {
        let asked = self.clock.exact();
        let server_time = link.ping().await?;
        let answered = self.clock.exact();
        *self.reading.lock() = server_time.map(|server| Reading { server, asked, answered });
        Ok(())
    }

    pub(crate) async fn read_many(
        &self,
        names: &[String],
        bytes_max: u64,
    ) -> Result<Vec<Option<RawValue>>, Error> {
        let read = |link: Arc<Link>| async move { link.read_many(names, bytes_max).await };
        self.run(self.read_timeout, read).await
    }
}
