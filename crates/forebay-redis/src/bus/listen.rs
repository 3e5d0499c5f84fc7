//! Reading the bus, and proving that nothing was missed.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Purge, Timestamp};
use forebay_engine::Clock;
use forebay_engine::bus::Notice;
use redis::{RedisResult, Value, cmd};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::entry::{Entry, Said};
use super::place::{Place, Pulse};
use super::{ALIVE, BusEnd, KEPT_MAX, RULES_MAX, SharedNames, Teller, Telling, foreign};
use crate::counts::{Counters, count};
use crate::endpoint::Endpoint;
use crate::era::{BusId, Known, Rule, Scope};
use crate::link::{Link, millis, unexpected};
use crate::names::Names;
use crate::purge_debts::Due;
use crate::scripts;
use crate::sharing::{Sharing, channels};
use crate::target::CONNECT_MAX;
use crate::tombstones;
use crate::tracking::track;
use crate::watch::{ATTEMPT_GAP, ATTEMPT_GAP_MAX, spread};

/// How often it is asked where the bus ends. Four proofs fit into the time that silence is trusted
/// by default.
const PULSE_GAP: Duration = Duration::from_millis(250);

/// How long one reading waits at most where nothing comes.
const READ_WAIT: Duration = Duration::from_secs(5);

/// How much later than that an answer may come, before the connection is given up.
const READ_PATIENCE: Duration = Duration::from_secs(1);

/// How long the reader may be behind what a pulse has seen, before its connection is given up: on
/// one that is well the entry arrives at once.
const BEHIND_MAX: Duration = Duration::from_millis(500);

/// How many entries are read at once.
const ENTRIES_MAX: usize = 256;

/// How many entries are looked at for what other programs have wished for.
const MISSED_MAX: usize = 1_024;

/// How often it is looked whether another endpoint is used, or the reader is stuck.
const LOOK_GAP: Duration = Duration::from_millis(20);

/// All that listening takes. It does not keep the tier alive.
pub(crate) struct Listening {
    pub(crate) endpoints: Arc<[Arc<Endpoint>]>,
    pub(crate) sharing: Arc<Sharing>,
    pub(crate) namespace: String,
    pub(crate) counters: Arc<Counters>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Listens for ever: asks where the bus ends, reads it, and notices silence. All three run on one
/// thread, so nobody is told of two things at once.
pub(crate) async fn listen(listening: Listening) {
    let listening = Arc::new(listening);
    let tracking = track(&listening);
    tokio::join!(listening.pulse(), listening.read(), listening.notice_silence(), tracking);
}

impl Listening {
    pub(crate) fn bus(&self) -> &BusEnd {
        &self.sharing.bus
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn used(&self) -> Option<&Arc<Endpoint>> {
        self.endpoints.iter().find(|endpoint| endpoint.is_usable())
    }

    async fn pulse(&self) {
        // What was wished for while nobody listened, too.
        let mut has_missed = true;
        loop {
            let used = self.used();
            self.bus().standpoint.turn_to(used);
            let Some(endpoint) = used else {
                self.bus().changed.notified().await;
                continue;
            };
            let asked = Instant::now();
            match self.ask(endpoint, asked).await {
                Ok(pulse) => {
                    endpoint.says_bus(None);
                    let notices = self.bus().standpoint.pulsed(pulse, self.now());
                    has_missed |= notices.contains(&Notice::Gap);
                    if notices.contains(&Notice::Gap) {
                        endpoint.may_have_forgotten();
                    } else if self.bus().standpoint.is_heard() {
                        endpoint.tombstones.forget(self.now().minus(tombstones::KEPT));
                    }
                    // Before anybody looks again at what is shared.
                    has_missed = has_missed && self.grant_missed(endpoint).await.is_err();
                    // Who has come meanwhile begins elsewhere.
                    if !self.bus().standpoint.is_to_begin() {
                        self.tell(notices);
                        self.tell_reached();
                    }
                    self.bus().turned.notify_one();
                    self.pay(endpoint).await;
                }
                Err(trouble) => {
                    endpoint.says_bus(Some(&trouble));
                    self.bus().turned.notify_one();
                }
            }
            tokio::select! {
                () = sleep_until(asked + PULSE_GAP) => {}
                () = self.bus().changed.notified() => sleep(LOOK_GAP).await,
            }
        }
    }

    /// What other programs write is heard from now on; before, it was not.
    pub(crate) fn tracks(&self) {
        count(&self.counters.bus_gaps);
        self.bus().tracks();
    }

    /// It is not, from now on.
    pub(crate) fn lacks_tracking(&self) {
        if self.bus().lacks_tracking() {
            count(&self.counters.bus_lost);
        }
    }

    pub(crate) fn tell(&self, notices: impl IntoIterator<Item = Notice>) {
        let notices: Vec<_> = notices.into_iter().collect();
        for notice in &notices {
            match notice {
                Notice::Gap => count(&self.counters.bus_gaps),
                Notice::Lost => count(&self.counters.bus_lost),
                Notice::Purged { .. } | Notice::Outdated { .. } => {
                    count(&self.counters.purges_heard);
                }
                Notice::Heard | Notice::Reached(_) => {}
            }
        }
        self.bus().tell(notices);
    }

    /// What has been applied has been told: between the two nothing is waited for.
    fn tell_reached(&self) {
        if !self.bus().has_listener() {
            return;
        }
        let bookmark = self.bus().standpoint.bookmark(&self.namespace);
        self.tell(bookmark.map(Notice::Reached));
    }

    async fn ask(
        &self,
        endpoint: &Arc<Endpoint>,
        asked: Instant,
    ) -> Result<Pulse, crate::trouble::Trouble> {
        let names = SharedNames::of(&self.namespace);
        let wants_rules = self.bus().standpoint.wants_rules();
        let stood = self.bus().standpoint.stood(endpoint);
        let call = scripts::PULSE.on([&*names.bus, &*names.instances, &*names.rules]);
        let call = call.arg(&self.sharing.instance).number(millis(ALIVE));
        let call = call.number(u64::from(wants_rules)).number(RULES_MAX * 2);
        let call = call.number(u64::from(endpoint.target.is_cluster()));
        // Never 0, which another entry of the same millisecond could have.
        let call = call.number((self.sharing.random() >> 33) + 1);
        let run = |link: Arc<Link>| async move {
            let Value::Array(parts) = link.run(&call).await? else { return Err(unexpected()) };
            read_pulse(&parts, (asked, stood), wants_rules).ok_or_else(foreign)
        };
        // Nobody waits for it; an answer that comes late proves as much.
        endpoint.run(self.sharing.settings.trust, run).await
    }

    /// Carries out what this endpoint has not been told of.
    async fn pay(&self, endpoint: &Arc<Endpoint>) {
        let began = Instant::now();
        // One batch at least, and no proof comes late for it.
        while began.elapsed() < PULSE_GAP / 2 {
            let due = endpoint.purges.due();
            if due.is_empty() {
                return;
            }
            for Due { number, what, reach, before } in due {
                let teller =
                    Teller { namespace: &self.namespace, sharing: &self.sharing, endpoint };
                let telling = Telling { what: &what, reach, before, newer: None };
                let told = endpoint.run(endpoint.write_timeout, |link| async move {
                    teller.tell(&link, telling).await
                });
                if told.await.is_err() {
                    return;
                }
                count(&self.counters.republished);
                endpoint.purges.forgive(number);
            }
        }
    }

    async fn read(&self) {
        loop {
            let Some((endpoint, _)) = self.bus().standpoint.next() else {
                self.bus().turned.notified().await;
                continue;
            };
            // Whatever went wrong is found out, and told, by the pulse.
            let _ = self.read_from(&endpoint).await;
            sleep(spread(ATTEMPT_GAP, ATTEMPT_GAP_MAX)).await;
        }
    }

    /// Reads from one endpoint, for as long as it is the one and the connection is well.
    async fn read_from(&self, endpoint: &Arc<Endpoint>) -> RedisResult<()> {
        let opening = timeout(CONNECT_MAX, endpoint.target.open_reader()).await;
        let link = opening.map_err(|_| unexpected())??;
        let bus = shared_bus(&self.namespace);
        while let Some((current, from)) = self.bus().standpoint.next() {
            if !Arc::ptr_eq(&current, endpoint) {
                return Ok(());
            }
            let entries = tokio::select! {
                entries = read_after(&link, &bus, from) => entries?,
                () = self.stuck(endpoint, from) => return Ok(()),
            };
            for entry in entries {
                // Somebody else may have turned elsewhere meanwhile.
                if self.bus().standpoint.next().is_none_or(|(it, _)| !Arc::ptr_eq(&it, endpoint)) {
                    return Ok(());
                }
                self.apply(endpoint, &link, entry).await?;
            }
            self.tell(self.bus().standpoint.caught_up());
            self.tell_reached();
        }
        Ok(())
    }

    /// Ends when reading makes no sense any more: from another place, from another endpoint, or
    /// not at all.
    async fn stuck(&self, endpoint: &Arc<Endpoint>, from: BusId) {
        loop {
            // Each pulse says so.
            self.bus().turned.notified().await;
            let standpoint = &self.bus().standpoint;
            let is_behind = standpoint.behind_since().is_some_and(|at| at.elapsed() > BEHIND_MAX);
            let is_there = standpoint
                .next()
                .is_some_and(|(it, place)| Arc::ptr_eq(&it, endpoint) && place == from);
            if is_behind || !is_there {
                return;
            }
        }
    }

    async fn apply(&self, endpoint: &Arc<Endpoint>, link: &Link, entry: Entry) -> RedisResult<()> {
        let standpoint = &self.bus().standpoint;
        let Some((_, before)) = standpoint.next() else { return Ok(()) };
        let is_chained = match &entry.said {
            Said::Purged { previous, .. } | Said::Begun { previous } => *previous == before,
            Said::Unknown { .. } => false,
            // It names nothing before it: what was read last must still be there.
            Said::Wished { .. } | Said::Garbage => is_there(link, &self.namespace, before).await?,
        };
        if matches!(entry.said, Said::Wished { .. }) {
            self.grant(endpoint, &entry).await?;
        }
        if matches!(entry.said, Said::Unknown { .. } | Said::Garbage) {
            count(&self.counters.foreign);
        }
        let change = |known: &mut Known| learn(known, &entry);
        let gap = standpoint.read((entry.id, is_chained), self.now(), change);
        if let Said::Purged { what, reach, .. } = &entry.said
            && what.kind() == "prefix"
        {
            standpoint.add_rule(Rule { id: entry.id, what: what.clone(), reach: *reach });
        }
        self.tell(gap);
        if let Some(tombstone) = entry.tombstone() {
            // What is told again, and was heard then, has nothing more to reach here: what came
            // since is newer.
            let was_heard = endpoint.tombstones.has(&tombstone);
            endpoint.remember(tombstone);
            if was_heard {
                return Ok(());
            }
        }
        self.tell(self.notice(entry.said));
        Ok(())
    }

    /// What it means to the listener. It knows what this instance has purged itself.
    fn notice(&self, said: Said) -> Option<Notice> {
        match said {
            Said::Purged { instance, .. } if *instance == *self.sharing.instance => None,
            Said::Purged { what: Purge::Key(key), newer: Some(newer), .. } => {
                Some(Notice::Outdated { key, newer })
            }
            Said::Purged { what, reach, .. } => Some(Notice::Purged { what, reach }),
            Said::Wished { what, reach } => Some(Notice::Purged { what, reach }),
            Said::Begun { .. } | Said::Unknown { .. } | Said::Garbage => None,
        }
    }

    /// Carries out what another program has told of. Every instance does, and it is done once.
    async fn grant(&self, endpoint: &Arc<Endpoint>, entry: &Entry) -> RedisResult<()> {
        let Said::Wished { what, reach } = &entry.said else { return Ok(()) };
        let names = match what {
            Purge::Key(key) => Some(Names::of(&self.namespace, key.borrowed())),
            _ => None,
        };
        let era = Scope::of_purge(what).map(|scope| scope.name(&self.namespace));
        let random = format!("{:016x}", self.sharing.random());
        let call = match (&names, &era) {
            (Some(Names { entry, leases, waiters }), _) => {
                let call = scripts::REMOVE.on([&**entry, &**leases, &**waiters]);
                call.arg(channels(&self.namespace))
            }
            (None, Some(era)) => {
                let call = scripts::MOVE.on([&**era]).arg(crate::era::written_reach(*reach));
                call.number(entry.id.millis).number(entry.id.number).arg(random)
            }
            (None, None) => return Ok(()),
        };
        let mut note = cmd("SET");
        note.arg(SharedNames::of(&self.namespace).granted).arg(entry.id.to_string());
        note.arg("PX").arg(millis(KEPT_MAX));
        let run = |link: Arc<Link>| async move {
            link.run(&call).await?;
            link.one(&note).await
        };
        let granted = endpoint.run(endpoint.write_timeout, run).await;
        count(&self.counters.wishes);
        // It is read again, and granted then.
        granted.map(drop).map_err(|_| unexpected())
    }

    /// Carries out what other programs have wished for and no instance has read.
    async fn grant_missed(&self, endpoint: &Arc<Endpoint>) -> RedisResult<()> {
        let names = SharedNames::of(&self.namespace);
        let run = |link: Arc<Link>| async move {
            let mut granted = cmd("GET");
            let granted = match link.one(granted.arg(&names.granted)).await? {
                Value::BulkString(id) => BusId::read(&id).unwrap_or_default(),
                _ => BusId::default(),
            };
            let mut read = cmd("XREVRANGE");
            read.arg(&names.bus).arg("+").arg(format!("({granted}"));
            Entry::read_all(&link.one(read.arg("COUNT").arg(MISSED_MAX)).await?)
        };
        let entries = endpoint.run(endpoint.write_timeout, run).await.map_err(|_| unexpected())?;
        let wished = |entry: &&Entry| matches!(entry.said, Said::Wished { .. });
        for entry in entries.iter().rev().filter(wished) {
            self.grant(endpoint, entry).await?;
        }
        Ok(())
    }

    async fn notice_silence(&self) {
        let trust = self.sharing.settings.trust;
        loop {
            match self.bus().standpoint.trusted_until(trust) {
                None => sleep(LOOK_GAP.max(trust / 8)).await,
                Some(until) if Instant::now() < until => sleep_until(until).await,
                Some(_) => self.tell(self.bus().standpoint.lose()),
            }
        }
    }
}

fn learn(known: &mut Known, entry: &Entry) {
    let Some(scope) = entry.what().and_then(Scope::of_purge) else { return };
    match (&entry.said, entry.token()) {
        (Said::Purged { reach, .. }, Some(token)) => known.purged(scope, *reach, token),
        _ => known.forget(scope),
    }
}

fn shared_bus(namespace: &str) -> String {
    SharedNames::of(namespace).bus
}

fn read_pulse(
    parts: &[Value],
    (asked, stood): (Instant, Option<Place>),
    wants_rules: bool,
) -> Option<Pulse> {
    let [Value::BulkString(last), replication, Value::Int(instances), rules] = parts else {
        return None;
    };
    let replication = match replication {
        Value::BulkString(id) if id.len() <= 64 => String::from_utf8_lossy(id).into_owned(),
        _ => return None,
    };
    let rules = if wants_rules { Some(Rule::read_all(rules)?) } else { None };
    let instances = usize::try_from(*instances).ok()?;
    Some(Pulse { asked, stood, last: BusId::read(last)?, replication, instances, rules })
}

async fn read_after(link: &Link, bus: &str, from: BusId) -> RedisResult<Vec<Entry>> {
    let mut read = cmd("XREAD");
    read.arg("COUNT").arg(ENTRIES_MAX).arg("BLOCK").arg(millis(READ_WAIT));
    read.arg("STREAMS").arg(bus).arg(from.to_string());
    let answer = timeout(READ_WAIT + READ_PATIENCE, link.one(&read)).await;
    Entry::read_stream(answer.map_err(|_| unexpected())??)
}

async fn is_there(link: &Link, namespace: &str, id: BusId) -> RedisResult<bool> {
    if id == BusId::default() {
        return Ok(true);
    }
    let mut read = cmd("XRANGE");
    read.arg(shared_bus(namespace)).arg(id.to_string()).arg(id.to_string());
    Ok(!Entry::read_all(&link.one(&read).await?)?.is_empty())
}
