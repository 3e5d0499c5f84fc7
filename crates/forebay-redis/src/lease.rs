//! Leases: one instance at a time loads a key.
//!
//! A request is one script with one of three results: an entry, a lease, or the lease of another
//! instance. It can also be the first lookup of a key. A task renews a held lease until it is
//! released, used for a store, or past its hard limit. A waiter for another instance is woken by a
//! message, or asks again after the end of that instance's lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, PurgeState, Timestamp, Vary};
use forebay_engine::lease::{Claim, Lease, LeaseToken, LoadMark, Permit, Release, Woken};
use forebay_engine::{Leases, TierError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use redis::{RedisResult, Value};
use ring::rand::SecureRandom;
use tokio::time::{sleep, timeout};

use crate::bus::purge_check::GenerationsReply;
use crate::connection::endpoint::Endpoint;
use crate::connection::link::{Link, RawValue, WritePermission, millis};
use crate::connection::scripts::{self};
use crate::connection::wakeups::{LeaseDigest, LeaseKey, Waiter, Wakeup, encode_outcome};
use crate::counts::count;
use crate::entry::envelope::{self, AgeSource, OpenedValue, Undecodable};
use crate::entry::names::{Names, entry_name, lease_field, variant_field};
use crate::error::{Error, unexpected};
use crate::settings::sharing::LeaseTerms;
use crate::state::held_lease::{HELD, HeldLease};
use crate::state::progress::BusPosition;
use crate::state::sharing::{Sharing, channels};
use crate::state::{Inner, Redis, failed};

/// Maximum number of leases per primary key: one for each variant that is loaded.
const LEASES_MAX: u64 = 256;

/// Maximum length of the mark of a load in bytes.
const MARK_MAX: usize = 64;

/// Maximum number of attempts per request. The stored entry, and its replacement, may be unusable.
const ATTEMPTS_MAX: usize = 3;

/// Margin after the end of another instance's lease before the next request.
const EXPIRY_MARGIN: Duration = Duration::from_millis(1);

/// Reply to a lease request.
enum AcquireReply {
    Granted,
    /// Another instance holds the lease for at least this time.
    Elsewhere(Duration, LeaseDigest, Option<LoadMark>),
    Found(RawValue),
    Foreign,
    TooMany,
    TooLate,
}

impl AcquireReply {
    fn read(value: Value) -> RedisResult<Self> {
        let Value::Array(parts) = value else { return Err(unexpected()) };
        match &parts[..] {
            [Value::Int(0)] => Ok(Self::Granted),
            [Value::Int(1), Value::Int(left), Value::BulkString(name), Value::BulkString(mark)] => {
                let left = Duration::from_millis(u64::try_from(*left).unwrap_or(0));
                let name = name.as_slice().try_into().map_err(|_| unexpected())?;
                let mark = str::from_utf8(mark).ok().filter(|mark| is_mark(mark));
                Ok(Self::Elsewhere(left, name, mark.map(Into::into)))
            }
            [Value::Int(2), Value::Int(left), Value::BulkString(value)] => {
                let left = u64::try_from(*left).ok().map(Duration::from_millis);
                let value = Bytes::copy_from_slice(value);
                Ok(Self::Found(RawValue { value, age_source: AgeSource::Left(left) }))
            }
            [Value::Int(3)] => Ok(Self::Foreign),
            [Value::Int(4)] => Ok(Self::TooMany),
            [Value::Int(5)] => Ok(Self::TooLate),
            _ => Err(unexpected()),
        }
    }
}

/// Returns true for a mark that a lease can carry.
fn is_mark(mark: &str) -> bool {
    (1..=MARK_MAX).contains(&mark.len()) && mark.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A lease request with its attempts.
struct AcquireRequest<'a> {
    tier: &'a Arc<Inner>,
    sharing: &'a Arc<Sharing>,
    endpoint: &'a Arc<Endpoint>,
    primary: KeyRef<'a>,
    names: Names,
    /// Name and key of the entry that may exist by now, which can be a variant's.
    entry: (String, KeyRef<'a>),
    field: Vec<u8>,
    asked: Timestamp,
    /// True if the request is also the lookup of the entry.
    is_lookup: bool,
    mark: &'a str,
}

impl Leases for Redis {
    fn acquire<'a>(&'a self, claim: Claim<'a>) -> BoxFuture<'a, Result<Lease, TierError>> {
        async move {
            let tier = &self.0;
            let sharing = tier.sharing.as_ref().ok_or_else(|| failed(Error::Unavailable))?;
            let endpoint = tier.used()?.1;
            endpoint.check_leases(tier.clock.now()).map_err(|error| {
                // The loaded entry will not be stored either.
                if matches!(error, Error::WritesRefused(_)) {
                    count(&tier.counters.writes_refused);
                }
                failed(error)
            })?;
            let request = AcquireRequest {
                tier,
                sharing,
                endpoint,
                primary: claim.primary,
                names: Names::of(&tier.namespace, claim.primary),
                entry: (entry_name(&tier.namespace, claim.entry), claim.entry),
                field: lease_field(claim.primary, claim.flight_key),
                asked: tier.clock.now(),
                is_lookup: claim.is_look,
                mark: claim.mark.filter(|mark| is_mark(mark)).unwrap_or_default(),
            };
            request.ask(claim.seen).await.map_err(|error| {
                let now = tier.clock.now();
                endpoint.suspend_leases(&error, now);
                if matches!(error, Error::WritesRefused(_)) {
                    endpoint.takes_no_writes(now);
                }
                failed(error)
            })
        }
        .boxed()
    }
}

impl AcquireRequest<'_> {
    async fn ask(self, mut seen: Option<u64>) -> Result<Lease, Error> {
        for attempt in 0..ATTEMPTS_MAX {
            let is_lookup = self.is_lookup && attempt == 0;
            let waiter = self.waiter().ok_or(Error::Busy)?;
            let mut token = [0; 16];
            self.tier.random.fill(&mut token).map_err(|_| Error::Busy)?;
            let before = self.tier.clock.exact();
            let position = self.sharing.bus.progress.position(self.endpoint);
            let (answer, pipelined) = self.send(token, seen, is_lookup).await?;
            if !matches!(answer, AcquireReply::Foreign) {
                self.endpoint.resume_leases();
            }
            if is_lookup && matches!(answer, AcquireReply::Granted | AcquireReply::Elsewhere(..)) {
                count(&self.tier.counters.misses);
            }
            match answer {
                AcquireReply::Granted => {
                    return Ok(Lease::Granted(self.granted(token, before, position)));
                }
                AcquireReply::Elsewhere(left, lease_digest, mark) => {
                    count(&self.tier.counters.leases_elsewhere);
                    return Ok(Lease::Held(self.wait(waiter, left, lease_digest), mark));
                }
                AcquireReply::Foreign => return Err(Error::ForeignData),
                AcquireReply::TooMany => return Err(Error::Busy),
                AcquireReply::TooLate => return Err(Error::TimedOut),
                AcquireReply::Found(found) => {
                    seen = envelope::stamp_of(&found.value);
                    if let Some(stored) = self.check_found(found, is_lookup, pipelined).await {
                        return Ok(Lease::Filled(Box::new(stored)));
                    }
                }
            }
        }
        Err(Error::Busy)
    }

    fn terms(&self) -> LeaseTerms {
        self.sharing.settings.terms(self.entry.1.namespace())
    }

    fn waiter(&self) -> Option<Waiter> {
        let (leases, field) = (self.names.leases.clone(), self.field.clone());
        self.sharing.wakeups.wait(LeaseKey { leases, field })
    }

    /// Sends the request, with a pipelined query of generations if it is also the lookup.
    async fn send(
        &self,
        token: [u8; 16],
        seen: Option<u64>,
        is_lookup: bool,
    ) -> Result<(AcquireReply, Option<GenerationsReply>), Error> {
        let Names { leases, waiters, .. } = &self.names;
        let seen = seen.map(u64::to_le_bytes);
        let bytes_max = envelope::value_max(self.tier.sealing.object_max);
        let call = scripts::ACQUIRE.call([&*self.entry.0, &**leases, &**waiters]);
        let call = call.arg(token).arg(&self.field).number(millis(self.terms().duration));
        let call = call.arg(&self.sharing.instance).arg(seen.as_ref().map_or(&[][..], |it| it));
        let call = call.arg(envelope::value_prefix()).number(bytes_max).number(LEASES_MAX);
        let call = call.number(u64::from(self.endpoint.receives_wakeups()));
        let call = call.number(self.endpoint.read_deadline()).number(u64::from(is_lookup));
        let call = call.arg(self.mark);
        let key = self.entry.1;
        let pipelined =
            if is_lookup { self.tier.pipelined_check(self.endpoint, key) } else { None };
        let command = pipelined.as_ref().map(|pipelined| &pipelined.command);
        let run = |link: Arc<Link>| async move {
            let (answer, pipelined) = match command {
                Some(command) => link.run_and(&call, command).await?,
                None => (link.run(&call).await?, None),
            };
            Ok((AcquireReply::read(answer)?, pipelined))
        };
        let (answer, generations) = self.endpoint.run(self.endpoint.read_timeout, run).await?;
        Ok((answer, self.tier.apply_reply(self.endpoint, key, pipelined, generations)))
    }

    /// Decodes the stored entry; `None` if it is invalid or purged.
    async fn check_found(
        &self,
        found: RawValue,
        is_lookup: bool,
        generations: Option<GenerationsReply>,
    ) -> Option<forebay_engine::Stored> {
        let counters = &self.tier.counters;
        let missed = || {
            if is_lookup {
                count(&counters.misses);
            }
            None
        };
        if self.endpoint.pending_removals.contains(&self.entry.0) {
            return missed();
        }
        let (name, key) = (&*self.entry.0, self.entry.1);
        let opened = self.tier.decode(found, name, key, self.asked).await;
        let opened = opened.map_err(|why| counters.undecodable(why)).ok()?;
        let stored = self.tier.check_purges(self.endpoint, opened, key, generations).await;
        if stored.vetted == Some(PurgeState::Removed) {
            return missed();
        }
        count(if is_lookup { &counters.hits } else { &counters.leases_filled });
        Some(stored)
    }

    fn granted(
        &self,
        token: [u8; 16],
        before: Duration,
        position: Option<BusPosition>,
    ) -> Arc<dyn Permit> {
        count(&self.tier.counters.leases_granted);
        let terms = self.terms();
        let until = before + terms.duration;
        let held = Arc::new(HeldLease {
            primary: self.primary.to_key(),
            names: self.names.clone(),
            endpoint: self.endpoint.clone(),
            position,
            token,
            terms,
            field: Mutex::new(self.field.clone()),
            since: self.tier.clock.exact(),
            until: AtomicU64::new(millis(until)),
            state: AtomicU8::new(HELD),
            renewal: Mutex::default(),
        });
        self.sharing.held.lock().insert(token, held.clone());
        start_renewal(&held, self.tier);
        Arc::new(HeldPermit { held, tier: self.tier.clone() })
    }

    fn wait(
        &self,
        waiter: Waiter,
        left: Duration,
        lease_digest: LeaseDigest,
    ) -> BoxFuture<'static, Woken> {
        let waiting = LeaseWait {
            tier: self.tier.clone(),
            endpoint: self.endpoint.clone(),
            key: self.entry.1.to_key(),
            name: self.entry.0.clone(),
            asked: self.asked,
            lease_digest,
        };
        waiting.wait(waiter, left + EXPIRY_MARGIN).boxed()
    }
}

/// State for handling the wake-up of a waiter.
struct LeaseWait {
    tier: Arc<Inner>,
    endpoint: Arc<Endpoint>,
    key: Key,
    name: String,
    /// Time of the request. Without an estimate of the server's clock, a received value is aged from
    /// here, since the travel time of a message is unknown.
    asked: Timestamp,
    /// Lease whose value is accepted; the value of another may have been purged.
    lease_digest: LeaseDigest,
}

impl LeaseWait {
    async fn wait(self, mut waiter: Waiter, wait_max: Duration) -> Woken {
        let woken = timeout(wait_max, &mut waiter.woken).await;
        drop(waiter);
        let woken = woken.map(|woken| match woken {
            Ok((lease_digest, wake)) if lease_digest == self.lease_digest => wake,
            Ok(_) | Err(_) => Wakeup::Again,
        });
        match woken {
            Ok(Wakeup::Filled(None)) => Woken::Filled(None),
            Ok(Wakeup::Filled(Some((left, value)))) => Woken::Filled(self.open(left, value).await),
            Ok(Wakeup::Released(outcome)) => Woken::Released(outcome),
            Ok(Wakeup::Again) => Woken::Again,
            Err(_) => {
                count(&self.tier.counters.leases_outwaited);
                Woken::Again
            }
        }
    }

    /// Decodes a received value; `None` if it is another variant's.
    async fn open(&self, left: Duration, value: Bytes) -> Option<Box<forebay_engine::Stored>> {
        let mut opened = Err(Undecodable::Unstamped);
        // Before the server's clock, so that no time is omitted.
        let received = self.tier.clock.now();
        if let Some(now) = self.endpoint.now() {
            opened = self.decode(value.clone(), AgeSource::Now(now), received).await;
        }
        if opened.as_ref().is_err_and(|why| *why == Undecodable::Unstamped) {
            opened = self.decode(value, AgeSource::Left(Some(left)), self.asked).await;
        }
        match opened {
            Ok(opened) => {
                let stored =
                    self.tier.check_purges(&self.endpoint, opened, self.key.borrowed(), None).await;
                (stored.vetted != Some(PurgeState::Removed)).then(|| Box::new(stored))
            }
            // The header's digest covers the name, so another variant's value fails it.
            Err(Undecodable::Damaged) => None,
            Err(why) => {
                self.tier.counters.undecodable(why);
                None
            }
        }
    }

    async fn decode(
        &self,
        value: Bytes,
        age_source: AgeSource,
        asked: Timestamp,
    ) -> Result<OpenedValue, Undecodable> {
        let found = RawValue { value, age_source };
        self.tier.decode(found, &self.name, self.key.borrowed(), asked).await
    }
}

fn start_renewal(held: &Arc<HeldLease>, tier: &Arc<Inner>) {
    if let Some(sharing) = &tier.sharing {
        let renewal = sharing.runtime.spawn(renew(held.clone(), tier.clone()));
        *held.renewal.lock() = Some(renewal.abort_handle());
    }
}

/// Renews a lease until it is lost or reaches its hard limit.
async fn renew(held: Arc<HeldLease>, tier: Arc<Inner>) {
    let terms = held.terms;
    while tier.clock.exact().saturating_sub(held.since) < terms.hard_limit {
        sleep(terms.heartbeat).await;
        let before = tier.clock.exact();
        let WritePermission { field, token } = held.permission();
        let call = scripts::RENEW.call([&*held.names.leases]).arg(token).arg(field);
        match held.run(call.number(millis(terms.duration))).await {
            Ok(true) => held.until.store(millis(before + terms.duration), Ordering::Release),
            // The server did not answer; the lease is assumed valid until its end.
            Err(_) if held.is_valid(tier.clock.exact()) => {}
            Ok(false) | Err(_) => {
                count(&tier.counters.leases_lost);
                // Does not abort the renewal task, which is this one.
                held.mark_lost();
                return held.check_loss().await;
            }
        }
    }
}

struct HeldPermit {
    held: Arc<HeldLease>,
    tier: Arc<Inner>,
}

impl Permit for HeldPermit {
    fn token(&self) -> LeaseToken {
        LeaseToken(self.held.token)
    }

    fn is_held(&self) -> bool {
        self.held.is_valid(self.tier.clock.exact())
    }

    fn narrow<'a>(&'a self, flight_key: KeyRef<'a>, vary: &'a Vary) -> BoxFuture<'a, bool> {
        async move {
            // A concurrent renewal of the old field would find it gone.
            self.held.stop();
            let lease = self.held.terms.duration;
            let WritePermission { field, token } = self.held.permission();
            let other = variant_field(flight_key);
            let Names { leases, waiters, .. } = &self.held.names;
            let before = self.tier.clock.exact();
            let call = scripts::NARROW.call([&**leases, &**waiters]).arg(token).arg(field);
            let call = call.arg(&other).arg(channels(&self.tier.namespace));
            let call = call.arg(encode_outcome(&Release::Vary(vary.clone())));
            let call = call.number(millis(lease));
            let is_narrowed = self.held.run(call).await == Ok(true);
            *self.held.field.lock() = other;
            if !is_narrowed {
                self.held.lose();
                return false;
            }
            self.held.until.store(millis(before + lease), Ordering::Release);
            start_renewal(&self.held, &self.tier);
            true
        }
        .boxed()
    }

    fn release(&self, outcome: Release) -> BoxFuture<'_, ()> {
        release(self.held.clone(), self.tier.clone(), outcome).boxed()
    }
}

impl Drop for HeldPermit {
    fn drop(&mut self) {
        let Some(sharing) = &self.tier.sharing else { return };
        sharing.held.lock().remove(&self.held.token);
        let releasing = release(self.held.clone(), self.tier.clone(), Release::Abandoned);
        if self.held.is_open() {
            sharing.runtime.spawn(releasing);
        }
    }
}

async fn release(held: Arc<HeldLease>, tier: Arc<Inner>, outcome: Release) {
    if !held.end() {
        return;
    }
    let WritePermission { field, token } = held.permission();
    let Names { leases, waiters, .. } = &held.names;
    let call = scripts::RELEASE.call([&**leases, &**waiters]).arg(token).arg(field);
    let call = call.arg(channels(&tier.namespace)).arg(encode_outcome(&outcome));
    // If the server does not answer, the lease expires.
    let _ = held.run(call).await;
}
