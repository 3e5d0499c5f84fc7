//! The right to load a key, held by one instance at a time.
//!
//! What is asked is one script, and its answer one of three: somebody has filled it, the caller
//! loads, or another instance does. It can be the first look at a key, too: get, or lease. A lease
//! that is held is kept up by a task of its own until it is given back, filled under, or past its
//! hard limit. Whoever waits for another instance is woken by a message, or asks again when that
//! one's lease would have ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Standing, TagSet, Timestamp, Vary};
use forebay_engine::lease::{Claim, Lease, LeaseToken, Outcome, Permit, Woken};
use forebay_engine::{Leases, TierError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use redis::{RedisResult, Value};
use ring::rand::SecureRandom;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::bus::place::Place;
use crate::counts::count;
use crate::endpoint::Endpoint;
use crate::envelope::{self, Term, Undecodable};
use crate::link::{Found, Link, Right, is_one, millis, unexpected};
use crate::names::{Names, entry_name, lease_field, variant_field};
use crate::scripts::{self, Call};
use crate::sharing::{LeaseTerms, Sharing, channels};
use crate::tier::{Inner, Redis, failed};
use crate::trouble::Trouble;
use crate::vet::Answer as Eras;
use crate::wakes::{Awaited, LeaseName, Waiter, Wake, written};

/// How many leases one primary key can have: one for each variant that is being loaded.
const LEASES_MAX: u64 = 256;

/// How often the same is asked for at once: what stands there may be of no use, and what takes its
/// place too.
const ATTEMPTS_MAX: usize = 3;

/// How much later than its end a lease that another instance holds is asked for.
const PAST_END: Duration = Duration::from_millis(1);

/// A lease that is held here.
pub(crate) struct Held {
    pub(crate) primary: Key,
    pub(crate) names: Names,
    pub(crate) endpoint: Arc<Endpoint>,
    /// Where the bus stood before it was had, if that is known.
    pub(crate) place: Option<Place>,
    token: [u8; 16],
    terms: LeaseTerms,
    /// Where it stands: it goes over to another field with [`Permit::narrow`].
    field: Mutex<Vec<u8>>,
    /// When it was certain, by the exact clock.
    pub(crate) since: Duration,
    /// Until when it is believed in, in milliseconds of the exact clock.
    until: AtomicU64,
    state: AtomicU8,
    keeper: Mutex<Option<AbortHandle>>,
}

const HELD: u8 = 0;
/// It was withdrawn, or has expired: nothing can be filled under it.
const LOST: u8 = 1;
/// It was given back, or ended with a fill.
const ENDED: u8 = 2;

impl Held {
    pub(crate) fn right(&self) -> Right {
        Right { field: self.field.lock().clone(), token: self.token }
    }

    /// Whether it is believed to stand at this time of the exact clock.
    pub(crate) fn stands(&self, now: Duration) -> bool {
        self.state.load(Ordering::Acquire) == HELD
            && millis(now) < self.until.load(Ordering::Acquire)
    }

    /// Whether it has neither ended nor been lost.
    fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD
    }

    fn lose(&self) {
        self.give_up();
        self.stop();
    }

    /// From now on. What has ended is not lost.
    fn give_up(&self) {
        let _ = self.state.compare_exchange(HELD, LOST, Ordering::AcqRel, Ordering::Acquire);
    }

    /// `true` for the one who ends it.
    pub(crate) fn end(&self) -> bool {
        self.stop();
        self.state.swap(ENDED, Ordering::AcqRel) == HELD
    }

    fn stop(&self) {
        if let Some(keeper) = self.keeper.lock().take() {
            keeper.abort();
        }
    }

    /// It is gone. If no purge of its key is known, that is its server's doing.
    pub(crate) async fn find_out(&self) {
        let departed = self.place.map(|place| place.id).unwrap_or_default();
        let about = (self.primary.borrowed(), &TagSet::default());
        if self.endpoint.tombstones.standing(about, departed) == Standing::Good {
            self.endpoint.lost_a_lease(&self.names.leases).await;
        }
    }

    async fn run(&self, call: Call<'_>) -> Result<bool, Trouble> {
        let patience = self.endpoint.write_timeout;
        let run = |link: Arc<Link>| async move { is_one(link.run(&call).await?) };
        self.endpoint.run(patience, run).await
    }
}

/// What Redis says to who asks for a lease.
enum Answer {
    Granted,
    /// For so long at least, by the lease of this name.
    Elsewhere(Duration, LeaseName),
    Stands(Found),
    Foreign,
    TooMany,
    TooLate,
}

impl Answer {
    fn read(value: Value) -> RedisResult<Self> {
        let Value::Array(parts) = value else { return Err(unexpected()) };
        match &parts[..] {
            [Value::Int(0)] => Ok(Self::Granted),
            [Value::Int(1), Value::Int(left), Value::BulkString(name)] => {
                let left = Duration::from_millis(u64::try_from(*left).unwrap_or(0));
                let name = name.as_slice().try_into().map_err(|_| unexpected())?;
                Ok(Self::Elsewhere(left, name))
            }
            [Value::Int(2), Value::Int(left), Value::BulkString(value)] => {
                let left = u64::try_from(*left).ok().map(Duration::from_millis);
                let value = Bytes::copy_from_slice(value);
                Ok(Self::Stands(Found { value, term: Term::Left(left) }))
            }
            [Value::Int(3)] => Ok(Self::Foreign),
            [Value::Int(4)] => Ok(Self::TooMany),
            [Value::Int(5)] => Ok(Self::TooLate),
            _ => Err(unexpected()),
        }
    }
}

/// One asking, as often as it takes.
struct Asking<'a> {
    tier: &'a Arc<Inner>,
    sharing: &'a Arc<Sharing>,
    endpoint: &'a Arc<Endpoint>,
    primary: KeyRef<'a>,
    names: Names,
    /// The entry that may stand there by now, which need not be that of the primary key.
    entry: (String, KeyRef<'a>),
    field: Vec<u8>,
    asked: Timestamp,
    /// Whether this is the reading of the entry as well.
    is_look: bool,
}

impl Leases for Redis {
    fn acquire<'a>(&'a self, claim: Claim<'a>) -> BoxFuture<'a, Result<Lease, TierError>> {
        async move {
            let tier = &self.0;
            let sharing = tier.sharing.as_ref().ok_or_else(|| failed(Trouble::Absent))?;
            let endpoint = tier.used()?.1;
            endpoint.shares(tier.clock.now()).map_err(|trouble| {
                // What is loaded now is not going to be written there.
                if matches!(trouble, Trouble::NoWrites(_)) {
                    count(&tier.counters.writes_refused);
                }
                failed(trouble)
            })?;
            let asking = Asking {
                tier,
                sharing,
                endpoint,
                primary: claim.primary,
                names: Names::of(&tier.namespace, claim.primary),
                entry: (entry_name(&tier.namespace, claim.entry), claim.entry),
                field: lease_field(claim.primary, claim.boarded),
                asked: tier.clock.now(),
                is_look: claim.is_look,
            };
            asking.ask(claim.seen).await.map_err(|trouble| {
                let now = tier.clock.now();
                endpoint.shares_no_more(&trouble, now);
                if matches!(trouble, Trouble::NoWrites(_)) {
                    endpoint.takes_no_writes(now);
                }
                failed(trouble)
            })
        }
        .boxed()
    }
}

impl Asking<'_> {
    async fn ask(self, mut seen: Option<u64>) -> Result<Lease, Trouble> {
        for attempt in 0..ATTEMPTS_MAX {
            let looks = self.is_look && attempt == 0;
            let waiter = self.waiter().ok_or(Trouble::Busy)?;
            let mut token = [0; 16];
            self.tier.random.fill(&mut token).map_err(|_| Trouble::Busy)?;
            let before = self.tier.clock.exact();
            let place = self.sharing.bus.standpoint.place(self.endpoint);
            let (answer, behind) = self.answer((token, seen), looks).await?;
            if !matches!(answer, Answer::Foreign) {
                self.endpoint.shares_again();
            }
            if looks && matches!(answer, Answer::Granted | Answer::Elsewhere(..)) {
                count(&self.tier.counters.misses);
            }
            match answer {
                Answer::Granted => {
                    return Ok(Lease::Granted(self.granted(token, (before, place))));
                }
                Answer::Elsewhere(left, whose) => {
                    count(&self.tier.counters.leases_elsewhere);
                    return Ok(Lease::Elsewhere(self.wait(waiter, (left, whose))));
                }
                Answer::Foreign => return Err(Trouble::Foreign),
                Answer::TooMany => return Err(Trouble::Busy),
                Answer::TooLate => return Err(Trouble::TimedOut),
                Answer::Stands(found) => {
                    seen = envelope::stamp_of(&found.value);
                    if let Some(stored) = self.judge(found, (looks, behind)).await {
                        return Ok(Lease::Filled(Box::new(stored)));
                    }
                }
            }
        }
        Err(Trouble::Busy)
    }

    fn terms(&self) -> LeaseTerms {
        self.sharing.settings.terms(self.entry.1.namespace())
    }

    fn waiter(&self) -> Option<Waiter> {
        let (leases, field) = (self.names.leases.clone(), self.field.clone());
        self.sharing.wakes.wait(Awaited { leases, field })
    }

    /// What is said to it, and to what is asked behind it if this is the reading.
    async fn answer(
        &self,
        (token, seen): ([u8; 16], Option<u64>),
        looks: bool,
    ) -> Result<(Answer, Option<Eras>), Trouble> {
        let Names { leases, waiters, .. } = &self.names;
        let seen = seen.map(u64::to_le_bytes);
        let bytes_max = envelope::value_max(self.tier.sealing.object_max);
        let call = scripts::ACQUIRE.on([&*self.entry.0, &**leases, &**waiters]);
        let call = call.arg(token).arg(&self.field).number(millis(self.terms().duration));
        let call = call.arg(&self.sharing.instance).arg(seen.as_ref().map_or(&[][..], |it| it));
        let call = call.arg(envelope::beginning()).number(bytes_max).number(LEASES_MAX);
        let call = call.number(u64::from(self.endpoint.hears()));
        let call = call.number(self.endpoint.waits_until()).number(u64::from(looks));
        let key = self.entry.1;
        let behind = if looks { self.tier.behind(self.endpoint, key) } else { None };
        let command = behind.as_ref().map(|behind| &behind.command);
        let run = |link: Arc<Link>| async move {
            let (answer, behind) = match command {
                Some(command) => link.run_and(&call, command).await?,
                None => (link.run(&call).await?, None),
            };
            Ok((Answer::read(answer)?, behind))
        };
        let (answer, eras) = self.endpoint.run(self.endpoint.read_timeout, run).await?;
        Ok((answer, self.tier.learned(self.endpoint, (key, behind), eras)))
    }

    /// What stands there, if it is an entry, and was not purged.
    async fn judge(
        &self,
        found: Found,
        (looks, eras): (bool, Option<Eras>),
    ) -> Option<forebay_engine::Stored> {
        let counters = &self.tier.counters;
        let missed = || {
            if looks {
                count(&counters.misses);
            }
            None
        };
        if self.endpoint.debts.has(&self.entry.0) {
            return missed();
        }
        let (name, key) = (&*self.entry.0, self.entry.1);
        let opened = self.tier.decode(found, (name, key), self.asked).await;
        let opened = opened.map_err(|why| counters.undecodable(why)).ok()?;
        let stored = self.tier.vetted(self.endpoint, opened, (key, eras)).await;
        if stored.vetted == Some(Standing::Gone) {
            return missed();
        }
        count(if looks { &counters.hits } else { &counters.leases_filled });
        Some(stored)
    }

    fn granted(
        &self,
        token: [u8; 16],
        (before, place): (Duration, Option<Place>),
    ) -> Arc<dyn Permit> {
        count(&self.tier.counters.leases_granted);
        let terms = self.terms();
        let until = before + terms.duration;
        let held = Arc::new(Held {
            primary: self.primary.to_key(),
            names: self.names.clone(),
            endpoint: self.endpoint.clone(),
            place,
            token,
            terms,
            field: Mutex::new(self.field.clone()),
            since: self.tier.clock.exact(),
            until: AtomicU64::new(millis(until)),
            state: AtomicU8::new(HELD),
            keeper: Mutex::default(),
        });
        self.sharing.held.lock().insert(token, held.clone());
        begin_to_keep(&held, self.tier);
        Arc::new(HeldPermit { held, tier: self.tier.clone() })
    }

    fn wait(
        &self,
        waiter: Waiter,
        (left, whose): (Duration, LeaseName),
    ) -> BoxFuture<'static, Woken> {
        let waiting = Waited {
            tier: self.tier.clone(),
            endpoint: self.endpoint.clone(),
            key: self.entry.1.to_key(),
            name: self.entry.0.clone(),
            asked: self.asked,
            whose,
        };
        waiting.wait(waiter, left + PAST_END).boxed()
    }
}

/// What it takes to make use of a message.
struct Waited {
    tier: Arc<Inner>,
    endpoint: Arc<Endpoint>,
    key: Key,
    name: String,
    /// When it was asked for. What comes later counts from here: how long a message was on its way
    /// cannot be known.
    asked: Timestamp,
    /// What it brings is taken; of another it may have been purged since.
    whose: LeaseName,
}

impl Waited {
    async fn wait(self, mut waiter: Waiter, patience: Duration) -> Woken {
        let woken = timeout(patience, &mut waiter.woken).await;
        drop(waiter);
        let woken = woken.map(|woken| match woken {
            Ok((whose, wake)) if whose == self.whose => wake,
            Ok(_) | Err(_) => Wake::Again,
        });
        match woken {
            Ok(Wake::Filled(None)) => Woken::Filled(None),
            Ok(Wake::Filled(Some(handed))) => Woken::Filled(self.open(handed).await),
            Ok(Wake::Released(outcome)) => Woken::Released(outcome),
            Ok(Wake::Again) => Woken::Again,
            Err(_) => {
                count(&self.tier.counters.leases_outwaited);
                Woken::Again
            }
        }
    }

    /// What was handed over, if it is what was waited for: it can be another variant.
    async fn open(&self, (left, value): (Duration, Bytes)) -> Option<Box<forebay_engine::Stored>> {
        let found = Found { value, term: Term::Left(Some(left)) };
        let named = (&*self.name, self.key.borrowed());
        let opened = self.tier.decode(found, named, self.asked).await;
        match opened {
            Ok(opened) => {
                let stored =
                    self.tier.vetted(&self.endpoint, opened, (self.key.borrowed(), None)).await;
                (stored.vetted != Some(Standing::Gone)).then(|| Box::new(stored))
            }
            // The digest of its header covers its name: that of another variant is wrong.
            Err(Undecodable::Damaged) => None,
            Err(why) => {
                self.tier.counters.undecodable(why);
                None
            }
        }
    }
}

fn begin_to_keep(held: &Arc<Held>, tier: &Arc<Inner>) {
    if let Some(sharing) = &tier.sharing {
        let keeper = sharing.runtime.spawn(keep_up(held.clone(), tier.clone()));
        *held.keeper.lock() = Some(keeper.abort_handle());
    }
}

/// Keeps a lease up until it is gone, or has been kept up for as long as may be.
async fn keep_up(held: Arc<Held>, tier: Arc<Inner>) {
    let terms = held.terms;
    while tier.clock.exact().saturating_sub(held.since) < terms.hard_limit {
        sleep(terms.heartbeat).await;
        let before = tier.clock.exact();
        let Right { field, token } = held.right();
        let call = scripts::RENEW.on([&*held.names.leases]).arg(token).arg(field);
        match held.run(call.number(millis(terms.duration))).await {
            Ok(true) => held.until.store(millis(before + terms.duration), Ordering::Release),
            // It cannot be told now; until its end it is believed in.
            Err(_) if held.stands(tier.clock.exact()) => {}
            Ok(false) | Err(_) => {
                count(&tier.counters.leases_lost);
                // Not by stopping who keeps it up: that is this task.
                held.give_up();
                return held.find_out().await;
            }
        }
    }
}

struct HeldPermit {
    held: Arc<Held>,
    tier: Arc<Inner>,
}

impl Permit for HeldPermit {
    fn token(&self) -> LeaseToken {
        LeaseToken(self.held.token)
    }

    fn is_held(&self) -> bool {
        self.held.stands(self.tier.clock.exact())
    }

    fn narrow<'a>(&'a self, boarded: KeyRef<'a>, vary: &'a Vary) -> BoxFuture<'a, bool> {
        async move {
            // A heartbeat for what it was until now would find it gone.
            self.held.stop();
            let lease = self.held.terms.duration;
            let Right { field, token } = self.held.right();
            let other = variant_field(boarded);
            let Names { leases, waiters, .. } = &self.held.names;
            let before = self.tier.clock.exact();
            let call = scripts::NARROW.on([&**leases, &**waiters]).arg(token).arg(field);
            let call = call.arg(&other).arg(channels(&self.tier.namespace));
            let call = call.arg(written(&Outcome::Vary(vary.clone())));
            let call = call.number(millis(lease));
            let is_narrowed = self.held.run(call).await == Ok(true);
            *self.held.field.lock() = other;
            if !is_narrowed {
                self.held.lose();
                return false;
            }
            self.held.until.store(millis(before + lease), Ordering::Release);
            begin_to_keep(&self.held, &self.tier);
            true
        }
        .boxed()
    }

    fn release(&self, outcome: Outcome) -> BoxFuture<'_, ()> {
        release(self.held.clone(), self.tier.clone(), outcome).boxed()
    }
}

impl Drop for HeldPermit {
    fn drop(&mut self) {
        let Some(sharing) = &self.tier.sharing else { return };
        sharing.held.lock().remove(&self.held.token);
        let releasing = release(self.held.clone(), self.tier.clone(), Outcome::Abandoned);
        if self.held.is_open() {
            sharing.runtime.spawn(releasing);
        }
    }
}

async fn release(held: Arc<Held>, tier: Arc<Inner>, outcome: Outcome) {
    if !held.end() {
        return;
    }
    let Right { field, token } = held.right();
    let Names { leases, waiters, .. } = &held.names;
    let call = scripts::RELEASE.on([&**leases, &**waiters]).arg(token).arg(field);
    let call = call.arg(channels(&tier.namespace)).arg(written(&outcome));
    // If it cannot be told, the lease ends by itself.
    let _ = held.run(call).await;
}
