//! What is read at an endpoint, and the server's clock that tells how old it is.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};

use super::{Endpoint, FailOnDrop};
use crate::envelope::AgeSource;
use crate::error::Error;
use crate::link::{Link, RawValue, ReadReply, millis};
use crate::read_connection::NoReply;
use crate::server_clock::Reading;

impl Endpoint {
    /// What stands there, and what was answered to what is asked pipelined it. Nothing is, where that
    /// would take an exchange of its own.
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
        // Boxed, or each reading in a lane would make room for this.
        Box::pin(self.read_shared(name, bytes_max, pipelined)).await
    }

    /// The same over a connection for readings. Nothing if there is none, or not any more.
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
        // Asked pipelined the value: it may have been written a moment ago.
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
            // Asked pipelined the value: it may have been written a moment ago.
            match self.now() {
                Some(now) => {
                    Ok((Some(RawValue { value, age_source: AgeSource::Now(now) }), answer))
                }
                // What was answered is older than the value that comes now.
                None => Ok((link.read_with_left(name, bytes_max).await?, None)),
            }
        };
        self.run(self.read_timeout, read).await
    }

    /// Reads what does not say itself when it was made.
    pub(crate) async fn read_with_left(
        &self,
        name: &str,
        bytes_max: u64,
    ) -> Result<Option<RawValue>, Error> {
        let read = |link: Arc<Link>| async move { link.read_with_left(name, bytes_max).await };
        self.run(self.read_timeout, read).await
    }

    /// What the server's clock shows, at the latest.
    fn now(&self) -> Option<Duration> {
        let reading = (*self.reading.lock())?;
        reading.latest(self.clock.exact())
    }

    /// Until when a reading that begins now is waited for, by the server's clock in milliseconds
    /// since the epoch; 0 if nobody knows.
    pub(crate) fn read_deadline(&self) -> u64 {
        self.now().map_or(0, |now| millis(now + self.read_timeout))
    }

    /// What the server's clock shows, at the earliest.
    pub(crate) fn earliest_now(&self) -> Option<Duration> {
        let reading = (*self.reading.lock())?;
        reading.earliest(self.clock.exact())
    }

    /// Asks whether the server is there, and remembers what its clock shows.
    pub(crate) async fn ping(&self, link: &Link) -> RedisResult<()> {
        let asked = self.clock.exact();
        let told = link.ping().await?;
        let answered = self.clock.exact();
        *self.reading.lock() = told.map(|server| Reading { server, asked, answered });
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
