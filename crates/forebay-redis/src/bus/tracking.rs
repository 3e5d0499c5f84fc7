//! Receives changes by other programs through `CLIENT TRACKING`.
//!
//! A separate connection asks Redis for a message about each changed entry. Most changes are made
//! by instances, so the stamp of the changed entry is read. If it differs from the stamp that this
//! instance stored or read, the key is purged from memory and disk. Redis does not replay missed
//! messages: without this connection the bus counts as lost, and entries held at the reconnect are
//! unverified.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::{Purge, Reach};
use forebay_engine::bus::Notice;
use redis::{PushInfo, PushKind, Value, cmd};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::bus::BusReceiver;
use crate::connection::CONNECT_MAX;
use crate::connection::endpoint::Endpoint;
use crate::connection::link::Link;
use crate::connection::watch::{ATTEMPT_GAP, ATTEMPT_GAP_MAX, REFUSED_FACTOR, spread};
use crate::counts::count;
use crate::entry::names::entry_prefix;
use crate::error::Error;
use crate::state::tracked::{Change, Tracked};

/// Maximum number of queued messages. A message beyond it is lost and counts as a gap.
const QUEUE_MAX: usize = 4_096;

/// Maximum number of stamps per read.
const STAMP_READS_MAX: usize = 256;

/// Interval of the pings that prove the connection works.
const PROOF_GAP: Duration = Duration::from_millis(250);

/// Interval at which a usable endpoint is looked for.
const LOOK_GAP: Duration = Duration::from_millis(50);

/// Message of the tracking connection.
enum Pushed {
    Names(Vec<Value>),
    /// All keys of the server were deleted.
    All,
}

impl Pushed {
    fn read(info: PushInfo) -> Option<Self> {
        if info.kind != PushKind::Invalidate {
            return None;
        }
        match info.data.into_iter().next() {
            Some(Value::Array(names)) => Some(Self::Names(names)),
            _ => Some(Self::All),
        }
    }
}

/// Tracks the endpoint in use for as long as the tier exists, if tracking is enabled.
pub(crate) async fn track(receiver: &BusReceiver) {
    let Some(tracked) = &receiver.sharing.tracked else { return };
    loop {
        let Some(endpoint) = receiver.used() else {
            sleep(LOOK_GAP).await;
            continue;
        };
        let tracker = Tracker { receiver, tracked, endpoint };
        let ended = tracker.track().await;
        receiver.tracking_stopped();
        let error = ended.err();
        endpoint.set_tracking_error(error.as_ref());
        let is_refused = error.as_ref().is_some_and(Error::is_refusal);
        let factor = if is_refused { REFUSED_FACTOR } else { 1 };
        sleep(spread(ATTEMPT_GAP, ATTEMPT_GAP_MAX) * factor).await;
    }
}

struct Tracker<'a> {
    receiver: &'a BusReceiver,
    tracked: &'a Arc<Tracked>,
    endpoint: &'a Arc<Endpoint>,
}

impl Tracker<'_> {
    /// Tracks one endpoint until it fails or another one is used.
    ///
    /// # Errors
    /// [`Error`] if the connection fails or the server refuses tracking.
    async fn track(&self) -> Result<(), Error> {
        let (sender, mut pushed) = mpsc::channel(QUEUE_MAX);
        let tracked = self.tracked.clone();
        let receive = move |info: PushInfo| {
            if let Some(one) = Pushed::read(info)
                && sender.try_send(one).is_err()
            {
                tracked.has_overflowed.store(true, Ordering::Release);
            }
        };
        let link = self.in_time(CONNECT_MAX, self.endpoint.target.open_pushed(receive)).await?;
        let mut track = cmd("CLIENT");
        track.arg("TRACKING").arg("ON").arg("BCAST").arg("PREFIX");
        track.arg(entry_prefix(&self.receiver.namespace));
        self.in_time(CONNECT_MAX, link.query(&track)).await?;
        self.endpoint.set_tracking_error(None);
        self.receiver.tracking_started();
        let mut proofs = interval(PROOF_GAP);
        proofs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(one) = pushed.recv() => self.receive(&link, one).await?,
                _ = proofs.tick() => self.prove(&link).await?,
            }
            let is_used = |used: &Arc<Endpoint>| Arc::ptr_eq(used, self.endpoint);
            if !self.receiver.used().is_some_and(is_used) {
                return Ok(());
            }
        }
    }

    /// Messages and replies arrive in one order, so all messages before this reply have arrived.
    async fn prove(&self, link: &Link) -> Result<(), Error> {
        self.in_time(self.receiver.sharing.settings.bus_silence_max, link.query(&cmd("PING")))
            .await?;
        if self.tracked.has_overflowed.swap(false, Ordering::AcqRel) {
            self.receiver.notify([Notice::Gap]);
        }
        Ok(())
    }

    async fn receive(&self, link: &Link, pushed: Pushed) -> Result<(), Error> {
        let Pushed::Names(names) = pushed else {
            self.receiver.notify([Notice::Gap]);
            return Ok(());
        };
        let text = |name: &Value| match name {
            Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
            Value::SimpleString(text) => Some(text.clone()),
            _ => None,
        };
        // A name that is not UTF-8 was not written by a cache.
        let names: Vec<String> = names.iter().filter_map(text).collect();
        for some in names.chunks(STAMP_READS_MAX) {
            let bus_silence_max = self.receiver.sharing.settings.bus_silence_max;
            let stamps = self.in_time(bus_silence_max, link.stamps(some)).await?;
            for (name, stamp) in some.iter().zip(stamps) {
                self.receiver.notify(self.notice(name, stamp));
            }
        }
        Ok(())
    }

    fn notice(&self, name: &str, stamp: Option<u64>) -> Option<Notice> {
        match self.tracked.change(name, stamp) {
            Change::None => None,
            Change::Key(key) => {
                count(&self.receiver.counters.changed_elsewhere);
                Some(Notice::Purged { what: Purge::Key(key), reach: Reach::Hard })
            }
            Change::Unknown => Some(Notice::Gap),
        }
    }

    async fn in_time<T>(
        &self,
        span: Duration,
        asked: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T, Error> {
        match timeout(span, asked).await {
            Ok(answer) => answer.map_err(Error::from),
            Err(_) => Err(Error::TimedOut),
        }
    }
}
