//! Model of the server that instances share: records, leases, waiting instances, purge generations,
//! and the log that all instances read.
//!
//! Each operation is one step, like a script in Redis. Time is that of the runtime, so a test can
//! advance it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Meta, Purge, PurgeState, Reach, Vary};
use forebay_engine::lease::{LeaseToken, Release};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Duration of a lease that is not renewed.
pub(crate) const LEASE: Duration = Duration::from_millis(1_500);

/// Number of entries that the log keeps.
const LOG_MAX: usize = 64;

/// Maximum number of messages that wait for one instance. Further ones are dropped, as on a full
/// channel.
pub(crate) const CHANNEL_MAX: usize = 4_096;

/// Number of an instance.
pub(crate) type Instance = usize;

/// Entry as the server stores it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) meta: Meta,
    pub(crate) head: Bytes,
    pub(crate) body: Bytes,
    /// Where the log stood when its load had not started yet.
    pub(crate) known: u64,
    pub(crate) stamp: u64,
    /// The generations of its tags when it was filled.
    made: Vec<u64>,
    /// Number that a soft purge of the primary key replaces. Variants have that of their family.
    pub(crate) family_token: u64,
}

/// Message to an instance that waits for a lease.
#[derive(Clone, Debug)]
pub(crate) struct Wake {
    pub(crate) primary: Key,
    /// Key and token of the lease that the message is about; `None` for all leases of the key. A
    /// value is only taken from the lease that was waited for: a purge may have affected one that
    /// an earlier lease filled.
    pub(crate) of: Option<(Key, LeaseToken)>,
    pub(crate) why: Why,
}

#[derive(Clone, Debug)]
pub(crate) enum Why {
    /// The tier is filled: key and record, and the effect of purges on it.
    Filled(Key, Box<Record>, PurgeState),
    Released(Release),
    Again,
}

/// One entry of the log.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) id: u64,
    pub(crate) before: u64,
    pub(crate) by: Instance,
    pub(crate) what: Purge,
    pub(crate) reach: Reach,
}

/// Result of a lease request.
pub(crate) enum Asked {
    Filled(Box<Record>, PurgeState),
    /// The lease is granted; with the position of the log.
    Granted(u64),
    /// Another instance holds the lease; with its remaining time and its token.
    Elsewhere(Duration, LeaseToken),
}

#[derive(Clone, Copy)]
struct Field {
    token: LeaseToken,
    until: Instant,
}

/// Log positions of the last purges of a tag, a site or everything.
#[derive(Clone, Copy, Default)]
struct Generation {
    hard: u64,
    soft: u64,
    /// Number that distinguishes the generation from one that was evicted.
    made: u64,
}

/// Data of the server that replicas receive.
#[derive(Clone, Default)]
pub(crate) struct Stored {
    records: HashMap<Key, Record>,
    leases: HashMap<Key, HashMap<Key, Field>>,
    waiting: HashMap<Key, BTreeSet<Instance>>,
    generations: BTreeMap<String, Generation>,
    prefixes: Vec<(Purge, Generation)>,
    log: Vec<Logged>,
    /// The last entry of the log; 0 if there is none.
    newest: u64,
}

/// Model of the shared server. Clones share one server.
#[derive(Clone, Default)]
pub(crate) struct Server(Arc<Mutex<State>>);

#[derive(Default)]
pub(crate) struct State {
    stored: Stored,
    /// Last id. Ids follow the time: they grow even if the log is lost.
    ids: u64,
    /// Number of the server. Connections to an earlier one are broken, and its replication id
    /// differs.
    life: u64,
    /// Number of the log, as its first entry would show.
    log_number: u64,
    bell: watch::Sender<u64>,
    stamps: u64,
    channels: HashMap<Instance, mpsc::Sender<Wake>>,
    pub(crate) counts: Counts,
}

/// Numbers of requests to the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) opens: usize,
    pub(crate) asks: usize,
    pub(crate) fills: usize,
    pub(crate) refusals: usize,
    pub(crate) publishes: usize,
}

impl Server {
    pub(crate) fn with<T>(&self, operate: impl FnOnce(&mut State) -> T) -> T {
        operate(&mut self.0.lock())
    }

    /// Returns a channel that changes with every entry of the log.
    pub(crate) fn bell(&self) -> watch::Receiver<u64> {
        self.with(|state| state.bell.subscribe())
    }

    pub(crate) fn counts(&self) -> Counts {
        self.with(|state| state.counts)
    }

    /// Removes all data, and starts another log.
    pub(crate) fn flush(&self) {
        self.with(|state| state.take(Stored::default()));
    }

    /// Returns the data of a replica that has received everything, and the last id.
    pub(crate) fn replica(&self) -> (Stored, u64) {
        self.with(|state| (state.stored.clone(), state.ids))
    }

    /// Replaces the server by another one with this data.
    pub(crate) fn fail_over(&self, to: Stored) {
        self.with(|state| {
            state.take(to);
            state.life += 1;
            state.channels.clear();
        });
    }

    /// Removes all leases, as a server that lacks memory does.
    pub(crate) fn evict_leases(&self) {
        self.with(|state| state.leases.clear());
    }

    /// Removes the generations of all tags, as a server that lacks memory does.
    pub(crate) fn evict_tags(&self) {
        self.with(|state| state.generations.retain(|name, _| !name.starts_with("t:")));
    }

    pub(crate) fn evict_records(&self) {
        self.with(|state| state.records.clear());
    }

    pub(crate) fn leases(&self) -> usize {
        let now = Instant::now();
        let live = |fields: &HashMap<Key, Field>| {
            fields.values().filter(|field| field.until > now).count()
        };
        self.with(|state| state.leases.values().map(live).sum())
    }

    pub(crate) fn records(&self) -> usize {
        self.with(|state| state.records.len())
    }
}

impl Deref for State {
    type Target = Stored;

    fn deref(&self) -> &Stored {
        &self.stored
    }
}

impl DerefMut for State {
    fn deref_mut(&mut self) -> &mut Stored {
        &mut self.stored
    }
}

impl State {
    fn take(&mut self, stored: Stored) {
        self.log_number += 1;
        self.stored = stored;
    }

    pub(crate) const fn life(&self) -> u64 {
        self.life
    }

    pub(crate) const fn log_number(&self) -> u64 {
        self.log_number
    }

    pub(crate) fn connect(&mut self, instance: Instance, to: mpsc::Sender<Wake>) {
        self.channels.insert(instance, to);
    }

    pub(crate) fn disconnect(&mut self, instance: Instance) {
        self.channels.remove(&instance);
    }

    pub(crate) const fn newest(&self) -> u64 {
        self.stored.newest
    }

    pub(crate) fn open(&mut self, key: KeyRef<'_>) -> Option<(Record, PurgeState)> {
        self.counts.opens += 1;
        self.vetted(key)
    }

    fn vetted(&self, key: KeyRef<'_>) -> Option<(Record, PurgeState)> {
        let record = self.records.get(key.bytes())?;
        let is_softened = record.meta.vary().is_none() && record.family_token != 0;
        let softened = if is_softened { PurgeState::SoftPurged } else { PurgeState::Valid };
        let standing = self.standing(key, &record.meta, record.known).max(softened);
        // What was evicted and made anew tells nothing of those who knew the one before.
        let is_known = self.made_of(&record.meta) == record.made;
        Some((record.clone(), if is_known { standing } else { PurgeState::Removed }))
    }

    fn made_of(&self, meta: &Meta) -> Vec<u64> {
        let made = |tag: &str| self.generations.get(&format!("t:{tag}")).map_or(0, |its| its.made);
        meta.tags().iter().map(made).collect()
    }

    fn make(&mut self, name: String) -> &mut Generation {
        let Self { stored, stamps, .. } = self;
        stored.generations.entry(name).or_insert_with(|| {
            *stamps += 1;
            Generation { made: *stamps, ..Generation::default() }
        })
    }

    fn standing(&self, key: KeyRef<'_>, meta: &Meta, known: u64) -> PurgeState {
        let of = |generation: Generation| {
            if generation.hard > known {
                PurgeState::Removed
            } else if generation.soft > known {
                PurgeState::SoftPurged
            } else {
                PurgeState::Valid
            }
        };
        // A tag whose generation is not there makes all its members a miss.
        let tagged = meta.tags().iter().map(|tag| {
            self.generations
                .get(&format!("t:{tag}"))
                .map_or(PurgeState::Removed, |found| of(*found))
        });
        let site = String::from_utf8_lossy(key.namespace()).into_owned();
        let named = [format!("s:{site}"), "a".to_owned()]
            .map(|name| self.generations.get(&name).map_or(PurgeState::Valid, |found| of(*found)));
        let prefixes = self.prefixes.iter().filter(|(what, _)| what.is_about(key));
        let prefixes = prefixes.map(|(_, generation)| of(*generation));
        tagged.chain(named).chain(prefixes).max().unwrap_or_default()
    }

    pub(crate) fn ask(
        &mut self,
        primary: &Key,
        flight_key: &Key,
        entry: &Key,
        seen: Option<u64>,
        token: LeaseToken,
        instance: Instance,
    ) -> Asked {
        self.counts.asks += 1;
        if let Some((record, standing)) = self.vetted(entry.borrowed())
            && standing != PurgeState::Removed
            && Some(record.stamp) != seen
        {
            return Asked::Filled(Box::new(record), standing);
        }
        let now = Instant::now();
        let Stored { leases, waiting, newest, .. } = &mut self.stored;
        let fields = leases.entry(primary.clone()).or_default();
        if let Some(field) = fields.get(flight_key).filter(|field| field.until > now) {
            waiting.entry(primary.clone()).or_default().insert(instance);
            return Asked::Elsewhere(field.until - now, field.token);
        }
        fields.insert(flight_key.clone(), Field { token, until: now + LEASE });
        Asked::Granted(*newest)
    }

    /// Renews a lease. Returns `false` if it is not valid.
    pub(crate) fn renew(&mut self, primary: &Key, flight_key: &Key, token: LeaseToken) -> bool {
        let field = self.live(primary, flight_key, token);
        field.map(|field| field.until = Instant::now() + LEASE).is_some()
    }

    fn live(&mut self, primary: &Key, flight_key: &Key, token: LeaseToken) -> Option<&mut Field> {
        let now = Instant::now();
        let field = self.leases.get_mut(primary)?.get_mut(flight_key)?;
        (field.until > now && field.token == token).then_some(field)
    }

    fn drop_lease(&mut self, primary: &Key, flight_key: &Key) {
        if let Some(fields) = self.leases.get_mut(primary) {
            fields.remove(flight_key);
        }
    }

    /// Takes a lease for a write whose load requested none. A held lease is not affected.
    pub(crate) fn claim(&mut self, primary: &Key, token: LeaseToken) {
        let until = Instant::now() + LEASE;
        let field = Key::clone(&claim_field(primary));
        self.leases.entry(primary.clone()).or_default().insert(field, Field { token, until });
    }

    /// Stores a record if the lease is valid and no purge came since its load started.
    pub(crate) fn fill(
        &mut self,
        primary: &Key,
        flight_key: Option<&Key>,
        token: LeaseToken,
        key: &Key,
        record: Record,
        is_last: bool,
    ) -> bool {
        let claimed = claim_field(primary);
        let lease_key = flight_key.unwrap_or(&claimed);
        for tag in record.meta.tags().iter() {
            // It is as old as the log, so that it does not hide an earlier purge.
            self.make(format!("t:{tag}"));
        }
        let stands = self.live(primary, lease_key, token).is_some();
        let standing = self.standing(key.borrowed(), &record.meta, record.known);
        if !stands || standing == PurgeState::Removed {
            self.counts.refusals += 1;
            return false;
        }
        self.counts.fills += 1;
        self.stamps += 1;
        let made = self.made_of(&record.meta);
        let family_token = self.token_of(primary, key, &record.meta);
        let record = Record { stamp: self.stamps, made, family_token, ..record };
        self.records.insert(key.clone(), record.clone());
        if is_last {
            self.drop_lease(primary, lease_key);
            self.wake(
                primary,
                Some((lease_key, token)),
                &Why::Filled(key.clone(), Box::new(record), standing),
            );
        }
        true
    }

    /// Returns the token for a record: for a variant that of its family, which always has one.
    fn token_of(&self, primary: &Key, key: &Key, meta: &Meta) -> u64 {
        if meta.vary().is_none() {
            return 0;
        }
        let of_family = self.records.get(primary).map_or(0, |record| record.family_token);
        if of_family == 0 && key == primary { self.stamps } else { of_family }
    }

    /// Releases a lease. Returns `false` if it was not valid.
    pub(crate) fn release(
        &mut self,
        primary: &Key,
        flight_key: &Key,
        token: LeaseToken,
        outcome: &Release,
    ) -> bool {
        if self.live(primary, flight_key, token).is_none() {
            return false;
        }
        self.drop_lease(primary, flight_key);
        self.wake(primary, Some((flight_key, token)), &Why::Released(outcome.clone()));
        true
    }

    pub(crate) fn narrow(
        &mut self,
        primary: &Key,
        from: &Key,
        to: &Key,
        token: LeaseToken,
        vary: &Vary,
    ) -> bool {
        let Some(field) = self.live(primary, from, token).copied() else { return false };
        let now = Instant::now();
        let fields = self.leases.entry(primary.clone()).or_default();
        fields.remove(from);
        let is_free = fields.get(to).is_none_or(|held| held.until <= now);
        if is_free {
            fields.insert(to.clone(), field);
        }
        self.wake(primary, Some((from, token)), &Why::Released(Release::Vary(vary.clone())));
        is_free
    }

    fn wake(&self, primary: &Key, of: Option<(&Key, LeaseToken)>, why: &Why) {
        let waiting = self.waiting.get(primary).cloned().unwrap_or_default();
        for instance in waiting {
            if let Some(channel) = self.channels.get(&instance) {
                let of = of.map(|(flight_key, token)| (flight_key.clone(), token));
                // An instance that no longer listens gets no message.
                let _ = channel.try_send(Wake { primary: primary.clone(), of, why: why.clone() });
            }
        }
    }

    /// Purges shared entries, withdraws leases, and appends to the log. Returns the id, and `true`
    /// if an entry was found.
    pub(crate) fn publish(&mut self, what: &Purge, reach: Reach, by: Instance) -> (u64, bool) {
        self.counts.publishes += 1;
        let before = self.newest;
        self.ids += 1;
        let id = self.ids;
        self.newest = id;
        let found = match what {
            Purge::Key(key) => self.invalidate(key, reach),
            Purge::Tag(tag) => self.generation(format!("t:{tag}"), reach, id),
            Purge::Site(site) => self.generation(format!("s:{site}"), reach, id),
            Purge::All => self.generation("a".to_owned(), reach, id),
            Purge::Prefix { .. } => {
                let mut generation = Generation::default();
                generation.note(reach, id);
                self.prefixes.push((what.clone(), generation));
                true
            }
        };
        self.log.push(Logged { id, before, by, what: what.clone(), reach });
        if self.log.len() > LOG_MAX {
            self.log.remove(0);
        }
        self.bell.send_replace(id);
        (id, found)
    }

    fn generation(&mut self, name: String, reach: Reach, id: u64) -> bool {
        self.make(name).note(reach, id);
        true
    }

    fn invalidate(&mut self, key: &Key, reach: Reach) -> bool {
        let found = match reach {
            Reach::Hard => self.records.remove(key).is_some(),
            Reach::Soft => {
                self.stamps += 1;
                let token = self.stamps;
                self.records.get_mut(key).map(|record| record.family_token = token).is_some()
            }
        };
        self.leases.remove(key);
        self.wake(key, None, &Why::Again);
        found
    }

    /// Returns the entries of the log after a position, and `true` if any of them is missing.
    pub(crate) fn read_log(&self, from: u64) -> (Vec<Logged>, bool) {
        let behind: Vec<_> = self.log.iter().filter(|logged| logged.id > from).cloned().collect();
        let mut last = from;
        let chained = behind.iter().all(|logged| {
            let follows = logged.before == last;
            last = logged.id;
            follows
        });
        (behind, !chained || last != self.newest)
    }
}

impl Generation {
    fn note(&mut self, reach: Reach, id: u64) {
        match reach {
            Reach::Hard => self.hard = id,
            Reach::Soft => self.soft = id,
        }
    }
}

impl Record {
    /// Record with an empty body, to which a writer appends.
    pub(crate) fn new(meta: Meta, head: Bytes, known: u64) -> Self {
        let (body, made) = (Bytes::new(), Vec::new());
        Self { meta, head, body, known, stamp: 0, made, family_token: 0 }
    }
}

/// Returns the lease field for writes whose loads requested no lease.
fn claim_field(primary: &Key) -> Key {
    forebay_core::key::question(primary.borrowed(), b"claim").borrowed().to_key()
}
