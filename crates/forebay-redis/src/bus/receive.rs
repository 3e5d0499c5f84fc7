//! Reads the bus and proves that nothing was missed.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Purge, Timestamp};
use forebay_engine::Clock;
use forebay_engine::bus::Notice;
use redis::{RedisResult, Value, cmd};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::entry::{Entry, Message};
use super::publish::purge_call;
use super::{ALIVE, KEPT_MAX, Publication, Publisher, RULES_MAX, SharedNames, foreign};
use crate::bus::tracking::track;
use crate::connection::CONNECT_MAX;
use crate::connection::endpoint::Endpoint;
use crate::connection::link::{Link, millis};
use crate::connection::scripts;
use crate::connection::watch::{ATTEMPT_GAP, ATTEMPT_GAP_MAX, spread};
use crate::counts::{Counters, count};
use crate::entry::names::Names;
use crate::error::unexpected;
use crate::purges::generation::{BusId, KnownGenerations, PrefixRule, Scope};
use crate::purges::pending_purges::ScheduledPurge;
use crate::purges::tombstones;
use crate::state::bus_client::BusClient;
use crate::state::progress::{BusCheck, BusPosition};
use crate::state::sharing::Sharing;

/// Interval between bus checks. Four of them fit into the default `bus_silence_max`.
const CHECK_GAP: Duration = Duration::from_millis(250);

/// Maximum time that one blocking read waits for entries.
const READ_WAIT: Duration = Duration::from_secs(5);

/// Additional time for the reply to a blocking read before the connection is closed.
const READ_GRACE: Duration = Duration::from_secs(1);

/// Maximum time for which the reader may be behind the last check before its connection is closed.
/// On a healthy connection entries arrive at once.
const BEHIND_MAX: Duration = Duration::from_millis(500);

/// Maximum number of entries per read.
const ENTRIES_MAX: usize = 256;

/// Maximum number of entries that are searched for missed purge requests.
const MISSED_REQUESTS_MAX: usize = 1_024;

/// Interval at which the endpoint in use is checked.
const LOOK_GAP: Duration = Duration::from_millis(20);

/// Receiver of the bus. It does not keep the tier alive.
pub(crate) struct BusReceiver {
    pub(crate) endpoints: Arc<[Arc<Endpoint>]>,
    pub(crate) sharing: Arc<Sharing>,
    pub(crate) namespace: String,
    pub(crate) counters: Arc<Counters>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl BusReceiver {
    /// Checks the bus, reads it and detects silence for as long as the tier exists. All run on one
    /// thread, so notices are delivered one at a time.
    pub(crate) async fn run(self) {
        let receiver = &self;
        let tracking = track(receiver);
        tokio::join!(receiver.keep_checking(), receiver.read(), receiver.watch_silence(), tracking);
    }

    pub(crate) fn bus(&self) -> &BusClient {
        &self.sharing.bus
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn used(&self) -> Option<&Arc<Endpoint>> {
        self.endpoints.iter().find(|endpoint| endpoint.is_usable())
    }

    async fn keep_checking(&self) {
        // Includes requests from before this instance started.
        let mut has_missed_requests = true;
        loop {
            let used = self.used();
            self.bus().progress.switch_to(used);
            let Some(endpoint) = used else {
                self.bus().endpoint_changed.notified().await;
                continue;
            };
            let asked = Instant::now();
            match self.check_bus(endpoint, asked).await {
                Ok(check) => {
                    endpoint.set_bus_error(None);
                    let notices = self.bus().progress.apply_check(check, self.now());
                    has_missed_requests |= notices.contains(&Notice::Gap);
                    if notices.contains(&Notice::Gap) {
                        endpoint.republish_all();
                    } else if self.bus().progress.is_connected() {
                        endpoint.tombstones.forget(self.now().minus(tombstones::RETENTION));
                    }
                    // Before any shared entry is read again.
                    has_missed_requests =
                        has_missed_requests && self.apply_missed_requests(endpoint).await.is_err();
                    // A listener that arrived meanwhile resumes at its saved position instead.
                    if !self.bus().progress.has_pending_resume() {
                        self.notify(notices);
                        self.notify_progress();
                    }
                    self.bus().reader_wakeup.notify_one();
                    self.publish_pending(endpoint).await;
                }
                Err(error) => {
                    endpoint.set_bus_error(Some(&error));
                    self.bus().reader_wakeup.notify_one();
                }
            }
            tokio::select! {
                () = sleep_until(asked + CHECK_GAP) => {}
                () = self.bus().endpoint_changed.notified() => sleep(LOOK_GAP).await,
            }
        }
    }

    /// Counts a gap and marks tracking as working.
    pub(crate) fn tracking_started(&self) {
        count(&self.counters.bus_gaps);
        self.bus().tracking_started();
    }

    /// Marks tracking as lost.
    pub(crate) fn tracking_stopped(&self) {
        if self.bus().tracking_stopped() {
            count(&self.counters.bus_lost);
        }
    }

    pub(crate) fn notify(&self, notices: impl IntoIterator<Item = Notice>) {
        let notices: Vec<_> = notices.into_iter().collect();
        for notice in &notices {
            match notice {
                Notice::Gap => count(&self.counters.bus_gaps),
                Notice::Disconnected => count(&self.counters.bus_lost),
                Notice::Purged { .. } | Notice::Outdated { .. } => {
                    count(&self.counters.purges_received);
                }
                Notice::Connected | Notice::Reached(_) => {}
            }
        }
        self.bus().notify(notices);
    }

    /// Reports the position to the listener. Nothing is awaited between applying an entry and this
    /// report.
    fn notify_progress(&self) {
        if !self.bus().has_listener() {
            return;
        }
        let bookmark = self.bus().progress.bookmark(&self.namespace);
        self.notify(bookmark.map(Notice::Reached));
    }

    async fn check_bus(
        &self,
        endpoint: &Arc<Endpoint>,
        asked: Instant,
    ) -> Result<BusCheck, crate::error::Error> {
        let names = SharedNames::of(&self.namespace);
        let wants_rules = self.bus().progress.wants_rules();
        let read_position = self.bus().progress.read_position(endpoint);
        let call = scripts::BUS_CHECK.call([&*names.bus, &*names.instances, &*names.rules]);
        let call = call.arg(&self.sharing.instance).number(millis(ALIVE));
        let call = call.number(u64::from(wants_rules)).number(RULES_MAX * 2);
        let call = call.number(u64::from(endpoint.target.is_cluster()));
        // Never 0, which another entry of the same millisecond could have.
        let call = call.number((self.sharing.random() >> 33) + 1);
        let run = |link: Arc<Link>| async move {
            let Value::Array(parts) = link.run(&call).await? else { return Err(unexpected()) };
            parse_check(&parts, asked, read_position, wants_rules).ok_or_else(foreign)
        };
        // No caller waits for this query, and a late reply is a valid proof of its own time.
        endpoint.run(self.sharing.settings.bus_silence_max, run).await
    }

    /// Publishes purges that this endpoint has not received.
    async fn publish_pending(&self, endpoint: &Arc<Endpoint>) {
        let began = Instant::now();
        // At least one batch, and never so long that the next check is late.
        while began.elapsed() < CHECK_GAP / 2 {
            let due = endpoint.pending_purges.scheduled();
            if due.is_empty() {
                return;
            }
            for ScheduledPurge { number, what, reach, before } in due {
                let publisher =
                    Publisher { namespace: &self.namespace, sharing: &self.sharing, endpoint };
                let publication = Publication { what: &what, reach, before, newer: None };
                let published = endpoint.run(endpoint.write_timeout, |link| async move {
                    publisher.publish(&link, publication).await
                });
                if published.await.is_err() {
                    return;
                }
                count(&self.counters.republished);
                endpoint.pending_purges.complete(number);
            }
        }
    }

    async fn read(&self) {
        loop {
            let Some((endpoint, _)) = self.bus().progress.next() else {
                self.bus().reader_wakeup.notified().await;
                continue;
            };
            // Failures are detected and reported by the bus check.
            let _ = self.read_from(&endpoint).await;
            sleep(spread(ATTEMPT_GAP, ATTEMPT_GAP_MAX)).await;
        }
    }

    /// Reads entries from one endpoint until another endpoint is used or the connection fails.
    async fn read_from(&self, endpoint: &Arc<Endpoint>) -> RedisResult<()> {
        let opening = timeout(CONNECT_MAX, endpoint.target.open_reader()).await;
        let link = opening.map_err(|_| unexpected())??;
        let bus = shared_bus(&self.namespace);
        while let Some((current, from)) = self.bus().progress.next() {
            if !Arc::ptr_eq(&current, endpoint) {
                return Ok(());
            }
            let entries = tokio::select! {
                entries = read_after(&link, &bus, from) => entries?,
                () = self.wait_until_stuck(endpoint, from) => return Ok(()),
            };
            for entry in entries {
                // The endpoint may have changed while the read was pending.
                if self.bus().progress.next().is_none_or(|(it, _)| !Arc::ptr_eq(&it, endpoint)) {
                    return Ok(());
                }
                self.apply(endpoint, &link, entry).await?;
            }
            self.notify(self.bus().progress.caught_up());
            self.notify_progress();
        }
        Ok(())
    }

    /// Returns when the pending read is of no use: the position or endpoint changed, or the
    /// connection is too far behind.
    async fn wait_until_stuck(&self, endpoint: &Arc<Endpoint>, from: BusId) {
        loop {
            // Every bus check sends a wake-up.
            self.bus().reader_wakeup.notified().await;
            let progress = &self.bus().progress;
            let is_behind = progress.behind_since().is_some_and(|at| at.elapsed() > BEHIND_MAX);
            let is_there = progress
                .next()
                .is_some_and(|(it, position)| Arc::ptr_eq(&it, endpoint) && position == from);
            if is_behind || !is_there {
                return;
            }
        }
    }

    async fn apply(&self, endpoint: &Arc<Endpoint>, link: &Link, entry: Entry) -> RedisResult<()> {
        let progress = &self.bus().progress;
        let Some((_, before)) = progress.next() else { return Ok(()) };
        let follows_previous = match &entry.message {
            Message::Purged { previous, .. } | Message::Started { previous } => *previous == before,
            Message::Unknown { .. } => false,
            // Such an entry names no predecessor, so the last entry read must still exist.
            Message::Requested { .. } | Message::Invalid => {
                is_there(link, &self.namespace, before).await?
            }
        };
        if matches!(entry.message, Message::Requested { .. }) {
            self.apply_request(endpoint, &entry).await?;
        }
        if matches!(entry.message, Message::Unknown { .. } | Message::Invalid) {
            count(&self.counters.foreign);
        }
        let change = |known: &mut KnownGenerations| learn(known, &entry);
        let gap = progress.read(entry.id, follows_previous, self.now(), change);
        if let Message::Purged { what, reach, .. } = &entry.message
            && what.kind() == "prefix"
        {
            progress.add_rule(PrefixRule { id: entry.id, what: what.clone(), reach: *reach });
        }
        self.notify(gap);
        if let Some(tombstone) = entry.tombstone() {
            // A purge published again was applied the first time. Entries stored since then are
            // newer.
            let was_received = endpoint.tombstones.has(&tombstone);
            endpoint.remember(tombstone);
            if was_received {
                return Ok(());
            }
        }
        self.notify(self.notice(entry.message));
        Ok(())
    }

    /// Returns the notice for the listener. Purges by this instance are not repeated to it.
    fn notice(&self, message: Message) -> Option<Notice> {
        match message {
            Message::Purged { instance, .. } if *instance == *self.sharing.instance => None,
            Message::Purged { what: Purge::Key(key), newer: Some(newer), .. } => {
                Some(Notice::Outdated { key, newer })
            }
            Message::Purged { what, reach, .. } => Some(Notice::Purged { what, reach }),
            Message::Requested { what, reach } => Some(Notice::Purged { what, reach }),
            Message::Started { .. } | Message::Unknown { .. } | Message::Invalid => None,
        }
    }

    /// Carries out a purge request of another program. Every instance does so; the script applies
    /// it once.
    async fn apply_request(&self, endpoint: &Arc<Endpoint>, entry: &Entry) -> RedisResult<()> {
        let Message::Requested { what, reach } = &entry.message else { return Ok(()) };
        let names = match what {
            Purge::Key(key) => Some(Names::of(&self.namespace, key.borrowed())),
            _ => None,
        };
        let generation = Scope::of_purge(what).map(|scope| scope.name(&self.namespace));
        let random = format!("{:016x}", self.sharing.random());
        let call = match (&names, &generation) {
            (Some(names), _) => purge_call(&self.namespace, names, *reach, &self.sharing),
            (None, Some(generation)) => {
                let call = scripts::MOVE_GENERATION
                    .call([&**generation])
                    .arg(crate::purges::generation::written_reach(*reach));
                call.number(entry.id.millis).number(entry.id.number).arg(random)
            }
            (None, None) => return Ok(()),
        };
        let mut note = cmd("SET");
        note.arg(SharedNames::of(&self.namespace).applied).arg(entry.id.to_string());
        note.arg("PX").arg(millis(KEPT_MAX));
        let run = |link: Arc<Link>| async move {
            link.run(&call).await?;
            link.query(&note).await
        };
        let granted = endpoint.run(endpoint.write_timeout, run).await;
        count(&self.counters.purge_requests);
        // The entry is read again, and the request is repeated then.
        granted.map(drop).map_err(|_| unexpected())
    }

    /// Carries out purge requests that no instance has read.
    async fn apply_missed_requests(&self, endpoint: &Arc<Endpoint>) -> RedisResult<()> {
        let names = SharedNames::of(&self.namespace);
        let run = |link: Arc<Link>| async move {
            let mut granted = cmd("GET");
            let granted = match link.query(granted.arg(&names.applied)).await? {
                Value::BulkString(id) => BusId::read(&id).unwrap_or_default(),
                _ => BusId::default(),
            };
            let mut read = cmd("XREVRANGE");
            read.arg(&names.bus).arg("+").arg(format!("({granted}"));
            Entry::read_all(&link.query(read.arg("COUNT").arg(MISSED_REQUESTS_MAX)).await?)
        };
        let entries = endpoint.run(endpoint.write_timeout, run).await.map_err(|_| unexpected())?;
        let is_request = |entry: &&Entry| matches!(entry.message, Message::Requested { .. });
        for entry in entries.iter().rev().filter(is_request) {
            self.apply_request(endpoint, entry).await?;
        }
        Ok(())
    }

    async fn watch_silence(&self) {
        let bus_silence_max = self.sharing.settings.bus_silence_max;
        loop {
            match self.bus().progress.connected_until(bus_silence_max) {
                None => sleep(LOOK_GAP.max(bus_silence_max / 8)).await,
                Some(until) if Instant::now() < until => sleep_until(until).await,
                Some(_) => self.notify(self.bus().progress.mark_lost()),
            }
        }
    }
}

fn learn(known: &mut KnownGenerations, entry: &Entry) {
    let Some(scope) = entry.what().and_then(Scope::of_purge) else { return };
    match (&entry.message, entry.token()) {
        (Message::Purged { reach, .. }, Some(token)) => known.purged(scope, *reach, token),
        _ => known.forget(scope),
    }
}

fn shared_bus(namespace: &str) -> String {
    SharedNames::of(namespace).bus
}

fn parse_check(
    parts: &[Value],
    asked: Instant,
    read_position: Option<BusPosition>,
    wants_rules: bool,
) -> Option<BusCheck> {
    let [Value::BulkString(last), replication, Value::Int(instances), rules] = parts else {
        return None;
    };
    let replication = match replication {
        Value::BulkString(id) if id.len() <= 64 => String::from_utf8_lossy(id).into_owned(),
        _ => return None,
    };
    let rules = if wants_rules { Some(PrefixRule::read_all(rules)?) } else { None };
    let instances = usize::try_from(*instances).ok()?;
    Some(BusCheck { asked, read_position, last: BusId::read(last)?, replication, instances, rules })
}

async fn read_after(link: &Link, bus: &str, from: BusId) -> RedisResult<Vec<Entry>> {
    let mut read = cmd("XREAD");
    read.arg("COUNT").arg(ENTRIES_MAX).arg("BLOCK").arg(millis(READ_WAIT));
    read.arg("STREAMS").arg(bus).arg(from.to_string());
    let answer = timeout(READ_WAIT + READ_GRACE, link.query(&read)).await;
    Entry::read_stream(answer.map_err(|_| unexpected())??)
}

async fn is_there(link: &Link, namespace: &str, id: BusId) -> RedisResult<bool> {
    if id == BusId::default() {
        return Ok(true);
    }
    let mut read = cmd("XRANGE");
    read.arg(shared_bus(namespace)).arg(id.to_string()).arg(id.to_string());
    Ok(!Entry::read_all(&link.query(&read).await?)?.is_empty())
}
