//! One instance's connection to the model: the shared tier, leases and the bus over it, with
//! delays, cuts and pauses.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Meta, Purge, PurgeState, Reach, Vary};
use forebay_engine::bus::{Bookmark, Bus, Listener, Notice, Published};
use forebay_engine::lease::{Claim, Lease, LeaseToken, Leases, Permit, Release, Woken};
use forebay_engine::{Stored, Tier, TierError, WriteMode, Writer};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::server::{
    Asked, CHANNEL_MAX, Instance, LEASE, Logged, Record, Server, State, Wake, Why,
};

/// Interval at which a lease is renewed.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// Maximum time for which a lease is renewed.
const LOAD_MAX: Duration = Duration::from_secs(30);

/// Time until a call over a cut link fails.
const NO_ANSWER: Duration = Duration::from_millis(20);

/// Interval at which the log is read if no write to it is reported.
const BEAT: Duration = Duration::from_millis(250);

/// Maximum silence of the bus before it counts as disconnected.
const TRUST: Duration = Duration::from_secs(1);

/// A source of chance: xorshift.
pub(crate) struct Chance(AtomicU64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    pub(crate) fn one_of(&self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).expect("less than the count")
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        let mut x = self.0.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.store(x, Ordering::Relaxed);
        (x >> 11) % bound
    }
}

/// Connection of one instance to the model. It is the tier, the leases and the bus of the instance.
pub(crate) struct Link {
    pub(crate) instance: Instance,
    server: Server,
    chance: Chance,
    /// Maximum delay of each direction, in milliseconds.
    delay_max: u64,
    /// Minimum duration of a call, in milliseconds.
    slowed: AtomicU64,
    refuses_leases: AtomicBool,
    cut: watch::Sender<bool>,
    /// `true` while the instance is paused or killed: none of its tasks continues.
    frozen: watch::Sender<bool>,
    waiters: Mutex<Vec<Waiter>>,
    tokens: AtomicU64,
    me: OnceLock<Weak<Self>>,
    heard_purges: AtomicU64,
    /// Position of the log when each lease was granted.
    known: Mutex<HashMap<LeaseToken, u64>>,
}

type Waking = mpsc::Receiver<(Option<LeaseToken>, Woken)>;

/// Waits for a message of the holder of this lease, or for one that makes the caller ask again.
async fn told_by(holder: LeaseToken, mut waking: Waking) -> Woken {
    while let Some((token, woken)) = waking.recv().await {
        if token.is_none_or(|token| token == holder) {
            return woken;
        }
    }
    Woken::Again
}

struct Waiter {
    primary: Key,
    flight_key: Key,
    entry: Key,
    tell: mpsc::Sender<(Option<LeaseToken>, Woken)>,
}

impl Link {
    pub(crate) fn new(server: &Server, instance: Instance, seed: u64, delay_max: u64) -> Arc<Self> {
        let link = Arc::new(Self {
            instance,
            server: server.clone(),
            chance: Chance::new(seed ^ (instance as u64) << 32),
            delay_max,
            slowed: AtomicU64::new(0),
            refuses_leases: AtomicBool::new(false),
            cut: watch::channel(false).0,
            frozen: watch::channel(false).0,
            waiters: Mutex::default(),
            tokens: AtomicU64::new(0),
            me: OnceLock::new(),
            heard_purges: AtomicU64::new(0),
            known: Mutex::default(),
        });
        assert!(link.me.set(Arc::downgrade(&link)).is_ok());
        link.subscribe();
        link
    }

    fn me(&self) -> Arc<Self> {
        self.me.get().and_then(Weak::upgrade).expect("the caller holds it")
    }

    /// Cuts the link, so that every call fails, or restores it.
    pub(crate) fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
        if cut {
            self.server.with(|state| state.disconnect(self.instance));
            // Who waits is not told any more: it asks again.
            self.waiters.lock().clear();
        } else {
            self.subscribe();
        }
    }

    /// Sets the minimum duration of each call, in milliseconds.
    pub(crate) fn slow(&self, millis: u64) {
        self.slowed.store(millis, Ordering::SeqCst);
    }

    pub(crate) fn refuse_leases(&self, refuses: bool) {
        self.refuses_leases.store(refuses, Ordering::SeqCst);
    }

    pub(crate) fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    pub(crate) fn is_frozen(&self) -> bool {
        *self.frozen.borrow()
    }

    /// Returns the number of purges received from other instances.
    pub(crate) fn heard(&self) -> u64 {
        self.heard_purges.load(Ordering::SeqCst)
    }

    pub(crate) async fn thawed(&self) {
        // The sender lives as long as the link.
        let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
    }

    async fn pass(&self) {
        let slowed = self.slowed.load(Ordering::SeqCst);
        if slowed > 0 {
            sleep(Duration::from_millis(slowed / 2)).await;
        }
        if self.delay_max > 0 {
            sleep(Duration::from_millis(self.chance.below(self.delay_max + 1))).await;
        }
        self.thawed().await;
    }

    /// Carries out one operation on the server. It fails if the server was replaced meanwhile.
    async fn call<T>(&self, operate: impl FnOnce(&mut State) -> T) -> Result<T, TierError> {
        let life = self.server.with(|state| state.life());
        self.pass().await;
        self.is_up(life).await?;
        let result = self.server.with(operate);
        self.pass().await;
        self.is_up(life).await?;
        Ok(result)
    }

    async fn is_up(&self, life: u64) -> Result<(), TierError> {
        if *self.cut.borrow() {
            sleep(NO_ANSWER).await;
            return Err(TierError::failed("no server answers"));
        }
        if self.server.with(|state| state.life()) != life {
            return Err(TierError::failed("the connection is broken"));
        }
        Ok(())
    }

    /// Replaces a broken connection by a new one. Messages in transit are lost.
    pub(crate) fn reconnect(&self) {
        self.waiters.lock().clear();
        if !*self.cut.borrow() {
            self.subscribe();
        }
    }

    fn subscribe(&self) {
        let (to, mut channel) = mpsc::channel(CHANNEL_MAX);
        self.server.with(|state| state.connect(self.instance, to));
        let link = self.me.get().cloned().expect("it is made");
        tokio::spawn(async move {
            while let Some(wake) = channel.recv().await {
                let Some(link) = link.upgrade() else { return };
                link.pass().await;
                link.wake(&wake);
            }
        });
    }

    fn wake(&self, wake: &Wake) {
        let mut waiters = self.waiters.lock();
        for waiter in std::mem::take(&mut *waiters) {
            let concerned = waiter.primary == wake.primary
                && wake.of.as_ref().is_none_or(|(flight_key, _)| *flight_key == waiter.flight_key);
            if !concerned {
                waiters.push(waiter);
                continue;
            }
            let token = wake.of.as_ref().map(|(_, token)| *token);
            let woken = match &wake.why {
                Why::Filled(key, record, standing) => {
                    // Large values do not come along.
                    let comes = *key == waiter.entry && self.chance.below(4) > 0;
                    let stored = || Box::new(stored((**record).clone(), *standing));
                    Woken::Filled(comes.then(stored))
                }
                Why::Released(outcome) => Woken::Released(outcome.clone()),
                Why::Again => Woken::Again,
            };
            // It may not wait any more.
            let _ = waiter.tell.try_send((token, woken));
            waiters.push(waiter);
        }
    }

    fn token(&self) -> LeaseToken {
        let number = self.tokens.fetch_add(1, Ordering::Relaxed);
        let mut token = [0; 16];
        token[..8].copy_from_slice(&number.to_le_bytes());
        token[8..].copy_from_slice(&(self.instance as u64).to_le_bytes());
        LeaseToken(token)
    }

    fn wait(&self, claim: Claim<'_>) -> Waking {
        let (tell, told) = mpsc::channel(CHANNEL_MAX);
        let [primary, flight_key, entry] =
            [claim.primary, claim.flight_key, claim.entry].map(KeyRef::to_key);
        let mut waiters = self.waiters.lock();
        waiters.retain(|waiter| !waiter.tell.is_closed());
        waiters.push(Waiter { primary, flight_key, entry, tell });
        told
    }
}

fn stored(record: Record, vetted: PurgeState) -> Stored {
    let body = stream::iter([Ok(record.body)]).boxed();
    let stored = Stored::new(record.meta, record.head, body);
    let (stamp, family_token) = (record.stamp, record.family_token);
    Stored { vetted: Some(vetted), stamp, family_token, ..stored }
}

impl Tier for Link {
    fn name(&self) -> &'static str {
        "shared"
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn carries_out_soft_purges(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        async move {
            let found = self.call(|state| state.open(key)).await?;
            Ok(found.map(|(record, standing)| stored(record, standing)))
        }
        .boxed()
    }

    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
        mode: WriteMode<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        let (key, link) = (key.to_key(), self.me());
        let (meta, head) = (meta.clone(), head.clone());
        async move {
            let filling = if let WriteMode::Leased(lease) = mode {
                let known = self.known.lock().get(&lease.token).copied().unwrap_or_default();
                Filling {
                    link,
                    primary: lease.primary.to_key(),
                    flight_key: Some(lease.flight_key.to_key()),
                    token: lease.token,
                    is_last: lease.is_last,
                    key,
                    record: Record::new(meta, head, known),
                }
            } else {
                let token = self.token();
                let known = self.call(|state| {
                    state.claim(&key, token);
                    state.newest()
                });
                let record = Record::new(meta, head, known.await?);
                let primary = key.clone();
                Filling { link, primary, flight_key: None, token, is_last: true, key, record }
            };
            Ok(Box::new(filling) as Box<dyn Writer>)
        }
        .boxed()
    }

    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        let purge = Purge::Key(key.to_key());
        async move {
            let publish = |state: &mut State| state.publish(&purge, Reach::Hard, self.instance).1;
            self.call(publish).await
        }
        .boxed()
    }
}

/// Write to the shared tier that is not committed yet.
struct Filling {
    link: Arc<Link>,
    primary: Key,
    flight_key: Option<Key>,
    token: LeaseToken,
    is_last: bool,
    key: Key,
    record: Record,
}

impl Writer for Filling {
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        self.record.body = [&self.record.body[..], &piece].concat().into();
        async { Ok(()) }.boxed()
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), TierError>> {
        async move {
            let Self { link, primary, flight_key, token, is_last, key, record } = *self;
            let filled = link.call(|state| {
                state.fill(&primary, flight_key.as_ref(), token, &key, record, is_last)
            });
            if filled.await? { Ok(()) } else { Err(TierError::Withdrawn) }
        }
        .boxed()
    }
}

/// A lease that this instance holds.
struct Held {
    link: Arc<Link>,
    primary: Key,
    flight_key: Mutex<Key>,
    token: LeaseToken,
    until: Mutex<Instant>,
    refused: AtomicBool,
    gave_back: AtomicBool,
}

impl Held {
    fn flight_key(&self) -> Key {
        self.flight_key.lock().clone()
    }

    /// Renews the lease until it is released, refused, or at its maximum duration.
    async fn keep_up(held: Weak<Self>) {
        let end = Instant::now() + LOAD_MAX;
        while Instant::now() < end {
            sleep(HEARTBEAT).await;
            let Some(held) = held.upgrade() else { return };
            let began = Instant::now();
            let (flight_key, token) = (held.flight_key(), held.token);
            let renewed = held.link.call(|state| state.renew(&held.primary, &flight_key, token));
            match renewed.await {
                Ok(true) => *held.until.lock() = began + LEASE,
                Ok(false) if held.flight_key() == flight_key => {
                    held.refused.store(true, Ordering::SeqCst);
                    return;
                }
                Ok(false) | Err(_) => {}
            }
        }
    }
}

impl Permit for Held {
    fn token(&self) -> LeaseToken {
        self.token
    }

    fn is_held(&self) -> bool {
        !self.refused.load(Ordering::SeqCst) && Instant::now() < *self.until.lock()
    }

    fn narrow<'a>(&'a self, flight_key: KeyRef<'a>, vary: &'a Vary) -> BoxFuture<'a, bool> {
        async move {
            let (from, to) = (self.flight_key(), flight_key.to_key());
            let narrow =
                |state: &mut State| state.narrow(&self.primary, &from, &to, self.token, vary);
            let narrowed = self.link.call(narrow).await.unwrap_or(false);
            *self.flight_key.lock() = to.clone();
            narrowed
        }
        .boxed()
    }

    fn release(&self, outcome: Release) -> BoxFuture<'_, ()> {
        async move {
            self.gave_back.store(true, Ordering::SeqCst);
            let flight_key = self.flight_key();
            let release =
                |state: &mut State| state.release(&self.primary, &flight_key, self.token, &outcome);
            // What cannot be given back expires.
            let _ = self.link.call(release).await;
        }
        .boxed()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.gave_back.load(Ordering::SeqCst) || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (link, primary, flight_key) =
            (self.link.clone(), self.primary.clone(), self.flight_key());
        let token = self.token;
        tokio::spawn(async move {
            let release = |state: &mut State| {
                state.release(&primary, &flight_key, token, &Release::Abandoned)
            };
            let _ = link.call(release).await;
        });
    }
}

impl Leases for Link {
    fn acquire<'a>(&'a self, claim: Claim<'a>) -> BoxFuture<'a, Result<Lease, TierError>> {
        async move {
            if self.refuses_leases.load(Ordering::SeqCst) {
                return Err(TierError::failed("no leases here"));
            }
            let token = self.token();
            let keys = [claim.primary, claim.flight_key, claim.entry].map(KeyRef::to_key);
            let [primary, flight_key, entry] = &keys;
            // It waits before it asks, or it could miss what it waits for.
            let waking = self.wait(claim);
            let began = Instant::now();
            let (seen, instance) = (claim.seen, self.instance);
            let asked =
                self.call(|state| state.ask(primary, flight_key, entry, seen, token, instance));
            let (remaining, holder) = match asked.await? {
                Asked::Filled(record, standing) => {
                    return Ok(Lease::Filled(Box::new(stored(*record, standing))));
                }
                Asked::Granted(known) => {
                    self.known.lock().insert(token, known);
                    let held = Arc::new(Held {
                        link: self.me(),
                        primary: primary.clone(),
                        flight_key: Mutex::new(flight_key.clone()),
                        token,
                        until: Mutex::new(began + LEASE),
                        refused: AtomicBool::new(false),
                        gave_back: AtomicBool::new(false),
                    });
                    tokio::spawn(Held::keep_up(Arc::downgrade(&held)));
                    return Ok(Lease::Granted(held));
                }
                Asked::Elsewhere(remaining, holder) => (remaining, holder),
            };
            let (link, end) = (self.me(), Instant::now() + remaining + Duration::from_millis(1));
            Ok(Lease::Held(
                async move {
                    let woken = timeout_at(end, told_by(holder, waking)).await;
                    link.thawed().await;
                    woken.unwrap_or(Woken::Again)
                }
                .boxed(),
                None,
            ))
        }
        .boxed()
    }
}

impl Bus for Link {
    fn publish<'a>(
        &'a self,
        what: &'a Purge,
        reach: Reach,
    ) -> BoxFuture<'a, Result<Published, TierError>> {
        async move {
            let publish = |state: &mut State| state.publish(what, reach, self.instance);
            let (id, found) = self.call(publish).await?;
            Ok(Published { id: id.to_string().into(), instances: 1, found })
        }
        .boxed()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        tokio::spawn(listen(self.me.get().cloned().expect("it is made"), listener));
    }
}

/// State of the reader of the log.
struct Reader {
    last: Option<u64>,
    /// Number of the server that was read.
    life: u64,
    heard_at: Instant,
    hears: bool,
}

async fn listen(link: Weak<Link>, listener: Arc<dyn Listener>) {
    let Some(mut bell) = link.upgrade().map(|link| link.server.bell()) else { return };
    let left = listener.bookmark().map(|bookmark| place_of(&bookmark));
    let (last, life) = (left.map(|[last, ..]| last), left.map_or(0, |[_, life, _]| life));
    let mut log = left.map(|[.., log]| log);
    let mut reader = Reader { last, life, heard_at: Instant::now(), hears: false };
    loop {
        let Some(link) = link.upgrade() else { return };
        link.thawed().await;
        bell.borrow_and_update();
        let from = reader.last;
        let read = link.call(|state| {
            let read = from.map(|from| state.read_log(from));
            (read.unwrap_or_default(), (state.newest(), state.life(), state.log_number()))
        });
        match read.await {
            Ok(((behind, missing), (newest, life, number))) => {
                // A pause is noticed by the own clock before anything else is.
                lose_if_silent(&mut reader, &listener);
                // It shows where a process goes on from an earlier one.
                let is_other = log.take().is_some_and(|left| left != number);
                let missing = missing || reader.life != life || is_other;
                follow(&link, &reader, &listener, behind, missing);
                let is_news = !reader.hears || reader.last != Some(newest) || reader.life != life;
                (reader.last, reader.life) = (Some(newest), life);
                reader.heard_at = Instant::now();
                if !reader.hears {
                    reader.hears = true;
                    listener.hear(Notice::Connected);
                }
                if is_news {
                    listener.hear(Notice::Reached(bookmark_at([newest, life, number])));
                }
            }
            Err(_) => lose_if_silent(&mut reader, &listener),
        }
        drop(link);
        // Without writes, a server that does not answer has to be noticed as well.
        let _ = timeout(BEAT, bell.changed()).await;
    }
}

/// Encodes a position of the log, the number of the server, and the number of the log.
fn bookmark_at(left: [u64; 3]) -> Bookmark {
    Bookmark::new(left.map(u64::to_le_bytes).concat().into()).expect("short enough")
}

fn place_of(bookmark: &Bookmark) -> [u64; 3] {
    let (numbers, _) = bookmark.bytes().as_chunks::<8>();
    let numbers: Vec<u64> = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    numbers.try_into().expect("one of ours")
}

fn lose_if_silent(reader: &mut Reader, listener: &Arc<dyn Listener>) {
    if reader.hears && reader.heard_at.elapsed() > TRUST {
        reader.hears = false;
        listener.hear(Notice::Disconnected);
    }
}

fn follow(
    link: &Link,
    reader: &Reader,
    listener: &Arc<dyn Listener>,
    behind: Vec<Logged>,
    missing: bool,
) {
    if missing || reader.last.is_none() {
        listener.hear(Notice::Gap);
    }
    for Logged { by, what, reach, .. } in behind {
        if by != link.instance {
            link.heard_purges.fetch_add(1, Ordering::SeqCst);
            listener.hear(Notice::Purged { what, reach });
        }
    }
}
