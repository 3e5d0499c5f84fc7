//! The tier: entries in, entries out. Read first.
//!
//! What happens to a reading: the first endpoint that answers is asked for the value and for what
//! is left of its time, in one round trip and within the endpoint's time. What comes back is taken
//! apart as if an enemy had written it, and whatever is not an entry of this key is a miss and a
//! count. A writing is two steps, which `link.rs` explains. A removal reaches the
//! endpoint that is used, and is owed by the others until they have carried it out.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::frame::{self, Decoded, Frame};
use forebay_core::{Key, KeyRef, Lifetime, Meta, Stale, Standing, Timestamp};
use forebay_engine::{Budget, Clock, LeasedWrite, Stored, Tier, TierError, Writer};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::bus::place::Place;
use crate::bus::{self, Listening, listen};
use crate::counts::{Counters, Counts, EndpointState, SharingState, Witness, add, count};
use crate::debts::Reason;
use crate::endpoint::{Channel, Endpoint};
use crate::envelope::{self, Marking, Opened, REST_MAX, Receipt, Sealing, Stay};
use crate::lease::Held;
use crate::link::{Fill, Found, Right};
use crate::names::{Names, claim_field, entry_name};
use crate::settings::{self, Settings, SettingsError};
use crate::sharing::{Sharing, channels};
use crate::trouble::Trouble;
use crate::vet::Storing;
use crate::watch::watch;

/// The longest that anything is kept: what Redis is told must not overflow.
const KEPT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Values up to this size are handed to those who wait for them, together with the news.
const HANDED_MAX: u64 = 4 << 10;
/// What is no longer fresh is kept for as long again as it was, within these bounds: what lived
/// for a second is asked for again within a minute, or not at all; and what lived for a year does
/// not fill the server for another one.
const STALE_KEPT_MIN: Duration = Duration::from_secs(60);
const STALE_KEPT_MAX: Duration = Duration::from_secs(60 * 60);

/// Values from this size on are packed and unpacked where blocking is allowed: below it, it takes
/// less time than to go there.
const BLOCKING_FROM: usize = 64 << 10;

/// A tier in Redis. Clones are the same tier; the last one to go closes its connections.
#[derive(Clone)]
pub struct Redis(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) endpoints: Arc<[Arc<Endpoint>]>,
    pub(crate) namespace: String,
    pub(crate) sealing: Arc<Sealing>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) random: SystemRandom,
    pub(crate) sharing: Option<Arc<Sharing>>,
    /// What the channels of instances begin with.
    channels: String,
    /// Dropped with the tier, which ends the thread of the connections.
    _running: oneshot::Sender<()>,
}

impl Redis {
    /// A tier with these settings. It is not there until a server answers: connecting goes on
    /// behind, for as long as it takes.
    ///
    /// # Errors
    /// If the settings are wrong in themselves. That a server cannot be reached, or refuses, is
    /// told to the witness, and seen in [`Redis::endpoints`].
    pub fn connect(
        settings: Settings,
        clock: Arc<dyn Clock>,
        witness: Arc<dyn Witness>,
    ) -> Result<Self, SettingsError> {
        let Settings { nearest, fallback, namespace, sealing, sharing } = settings;
        settings::check_namespace(&namespace)?;
        let counters = Arc::<Counters>::default();
        let (runtime, _running) = drive()?;
        let channels = channels(&namespace);
        let sharing = sharing.map(|it| Arc::new(Sharing::new(it, runtime.clone(), &counters)));
        let channel = sharing.as_ref().map(|sharing| Channel {
            name: format!("{channels}{}", sharing.instance),
            wakes: sharing.wakes.clone(),
            changed: sharing.bus.changed.clone(),
        });
        let all = std::iter::once(&nearest).chain(&fallback);
        let endpoint = |one| Endpoint::new(one, (&counters, &clock), (&witness, channel.clone()));
        let endpoints: Arc<[Arc<Endpoint>]> = all.map(endpoint).collect::<Result<_, _>>()?;
        for endpoint in endpoints.iter() {
            runtime.spawn(watch(endpoint.clone()));
        }
        if let Some(sharing) = &sharing {
            runtime.spawn(listen(Listening {
                endpoints: endpoints.clone(),
                sharing: sharing.clone(),
                namespace: namespace.clone(),
                counters: counters.clone(),
                clock: clock.clone(),
            }));
        }
        let (sealing, random) = (Arc::new(sealing), SystemRandom::new());
        Ok(Self(Arc::new(Inner {
            endpoints,
            namespace,
            sealing,
            clock,
            counters,
            random,
            sharing,
            channels,
            _running,
        })))
    }

    /// What it has done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counters.read()
    }

    /// How sharing goes; nothing if nothing but entries is shared.
    #[must_use]
    pub fn sharing(&self) -> Option<SharingState> {
        let standpoint = &self.0.sharing.as_ref()?.bus.standpoint;
        let (is_heard, instances) = (standpoint.is_heard(), standpoint.instances());
        Some(SharingState { is_heard, instances, lag: standpoint.lag() })
    }

    /// How its endpoints are, the nearest first.
    #[must_use]
    pub fn endpoints(&self) -> Vec<EndpointState> {
        let used = self.0.endpoints.iter().position(|endpoint| endpoint.is_usable());
        let numbered = self.0.endpoints.iter().enumerate();
        numbered.map(|(at, endpoint)| endpoint.state(used == Some(at))).collect()
    }
}

/// Starts the one thread on which connections are made, driven and watched: replies are taken
/// apart where they arrive, and cross threads once.
fn drive() -> Result<(Handle, oneshot::Sender<()>), SettingsError> {
    let failed = |error: std::io::Error| SettingsError::Thread(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let handle = runtime.handle().clone();
    let (running, stopped) = oneshot::channel();
    // It ends with an error when the other end is dropped; nothing is ever sent.
    let body = move || drop(runtime.block_on(stopped));
    std::thread::Builder::new().name("forebay-redis".to_owned()).spawn(body).map_err(failed)?;
    Ok((handle, running))
}

impl Inner {
    pub(crate) fn names(&self, key: KeyRef<'_>) -> Arc<Names> {
        Arc::new(Names::of(&self.namespace, key))
    }

    /// The nearest endpoint that answers, and which one that is.
    pub(crate) fn used(&self) -> Result<(usize, &Arc<Endpoint>), TierError> {
        let used = self.endpoints.iter().enumerate().find(|(_, endpoint)| endpoint.is_usable());
        used.ok_or_else(|| {
            self.counters.trouble(&Trouble::Absent);
            failed(Trouble::Absent)
        })
    }

    async fn read(&self, key: KeyRef<'_>) -> Result<Option<Stored>, TierError> {
        let (_, endpoint) = self.used()?;
        let name = entry_name(&self.namespace, key);
        if endpoint.debts.has(&name) {
            count(&self.counters.misses);
            return Ok(None);
        }
        let asked = self.clock.now();
        let bytes_max = envelope::value_max(self.sealing.object_max);
        let found = endpoint.read(&name, bytes_max).await.map_err(failed)?;
        let Some(found) = found else {
            count(&self.counters.misses);
            return Ok(None);
        };
        let mut opened = self.decode(found, (&name, key), asked).await;
        if opened.as_ref().is_err_and(|why| *why == envelope::Undecodable::Unstamped) {
            let found = endpoint.read_with_left(&name, bytes_max).await.map_err(failed)?;
            let Some(found) = found else {
                count(&self.counters.misses);
                return Ok(None);
            };
            opened = self.decode(found, (&name, key), asked).await;
        }
        Ok(self.counted(endpoint, opened, key).await)
    }

    /// The same for several keys, in one exchange.
    async fn read_many(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>, TierError> {
        let (_, endpoint) = self.used()?;
        let names: Vec<String> =
            keys.iter().map(|key| entry_name(&self.namespace, key.borrowed())).collect();
        let asked = self.clock.now();
        let bytes_max = envelope::value_max(self.sealing.object_max);
        let found = endpoint.read_many(&names, bytes_max).await.map_err(failed)?;
        let mut all = Vec::with_capacity(keys.len());
        for ((name, key), found) in names.iter().zip(keys).zip(found) {
            let Some(found) = found.filter(|_| !endpoint.debts.has(name)) else {
                count(&self.counters.misses);
                all.push(None);
                continue;
            };
            let opened = self.decode(found, (name, key.borrowed()), asked).await;
            all.push(self.counted(endpoint, opened, key.borrowed()).await);
        }
        Ok(all)
    }

    async fn counted(
        &self,
        endpoint: &Arc<Endpoint>,
        opened: Result<Opened, envelope::Undecodable>,
        key: KeyRef<'_>,
    ) -> Option<Stored> {
        match opened {
            Ok(opened) => {
                let stored = self.vetted(endpoint, opened, key).await;
                let is_gone = stored.vetted == Some(Standing::Gone);
                count(if is_gone { &self.counters.misses } else { &self.counters.hits });
                Some(stored)
            }
            Err(why) => {
                self.counters.undecodable(why);
                None
            }
        }
    }

    pub(crate) async fn decode(
        &self,
        Found { value, term }: Found,
        (name, key): (&str, KeyRef<'_>),
        asked: Timestamp,
    ) -> Result<Opened, envelope::Undecodable> {
        add(&self.counters.bytes_in, value.len() as u64);
        let receipt = Receipt { term, asked };
        if value.len() < BLOCKING_FROM {
            return envelope::open(&value, (name, key), receipt, &self.sealing);
        }
        let (name, key, sealing) = (name.to_owned(), key.to_key(), self.sealing.clone());
        let open = move || envelope::open(&value, (&name, key.borrowed()), receipt, &sealing);
        let opened = tokio::task::spawn_blocking(open).await;
        // It ends with an error if the runtime shuts down.
        opened.unwrap_or(Err(envelope::Undecodable::Damaged))
    }

    async fn begin(
        self: &Arc<Self>,
        (key, meta): (KeyRef<'_>, &Meta),
        head: &Bytes,
        lease: Option<LeasedWrite<'_>>,
    ) -> Result<Filling, TierError> {
        let used = self.used()?.1.clone();
        let names = self.names(key);
        if head.len().saturating_add(key.bytes().len()) as u64 > REST_MAX {
            return Err(self.too_large(&names));
        }
        let (endpoint, right) = match lease {
            None => (used.clone(), self.claim(&used, (&names, key), meta).await?),
            Some(lease) => self.leased(&lease)?,
        };
        Ok(Filling {
            tier: self.clone(),
            endpoint,
            names,
            right,
            key: key.to_key(),
            meta: meta.clone(),
            head: head.clone(),
            body: Vec::new(),
            body_len: 0,
        })
    }

    /// Takes the right to fill an entry. Nothing if the server takes no writes, or none of ours:
    /// that is no failure, since reading goes on.
    async fn claim(
        &self,
        endpoint: &Arc<Endpoint>,
        (names, key): (&Names, KeyRef<'_>),
        meta: &Meta,
    ) -> Result<Option<Filler>, TierError> {
        if !endpoint.may_take_writes(self.clock.now()) {
            count(&self.counters.writes_refused);
            return Ok(None);
        }
        let right = Right { field: claim_field(key), token: self.random_token()? };
        match endpoint.claim(names, &right).await {
            Ok(true) => {
                let sharing = self.sharing.as_ref();
                let place =
                    sharing.and_then(|it| it.bus.standpoint.place_at(endpoint, meta.departed));
                Ok(Some(Filler { right, since: self.clock.exact(), place, lease: None }))
            }
            Ok(false) => {
                count(&self.counters.foreign);
                count(&self.counters.fills_refused);
                Ok(None)
            }
            Err(trouble) if trouble.is_refusal() => {
                endpoint.takes_no_writes(self.clock.now());
                Ok(None)
            }
            Err(trouble) => Err(failed(trouble)),
        }
    }

    /// The right to fill under a lease, where the lease stands.
    fn leased(
        &self,
        lease: &LeasedWrite<'_>,
    ) -> Result<(Arc<Endpoint>, Option<Filler>), TierError> {
        let held = self.sharing.as_ref().and_then(|sharing| {
            let held = sharing.held.lock().get(&lease.token.0).cloned();
            held.filter(|held| held.stands(self.clock.exact()))
        });
        let Some(held) = held else {
            count(&self.counters.fills_refused);
            return Err(TierError::Withdrawn);
        };
        let (right, endpoint) = (held.right(), held.endpoint.clone());
        let (since, place) = (held.since, held.place);
        let lease = Some((held, lease.is_last));
        Ok((endpoint, Some(Filler { right, since, place, lease })))
    }

    pub(crate) fn random_token(&self) -> Result<[u8; 16], TierError> {
        let mut random = [0; 16];
        self.random.fill(&mut random).map_err(|_| TierError::failed("no random numbers"))?;
        Ok(random)
    }

    /// What stands there is older than what is too large to take its place.
    fn too_large(&self, names: &Arc<Names>) -> TierError {
        count(&self.counters.too_large);
        for endpoint in self.endpoints.iter() {
            drop(endpoint.owing(names, Reason::Superseded));
        }
        TierError::TooLarge
    }

    async fn remove(&self, key: KeyRef<'_>) -> Result<bool, TierError> {
        let names = self.names(key);
        // Noted first: whoever drops this half-way has removed it all the same. What the others
        // owe falls due at once, and nobody waits for it.
        let owing = |endpoint: &Arc<Endpoint>| endpoint.owing(&names, Reason::Removed);
        let mut owing: Vec<_> = self.endpoints.iter().map(owing).collect();
        let (at, used) = self.used()?;
        let own = owing.swap_remove(at);
        drop(owing);
        let removed = used.remove(&names).await.map_err(failed)?;
        own.forgive();
        count(&self.counters.removed);
        Ok(removed)
    }
}

impl Tier for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    /// Of the endpoint that is used now, or would be.
    fn budget(&self) -> Budget {
        let endpoints = &self.0.endpoints;
        let used = endpoints.iter().find(|endpoint| endpoint.is_usable()).unwrap_or(&endpoints[0]);
        Budget { read: used.read_timeout, write: used.write_timeout }
    }

    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        self.0.read(key).boxed()
    }

    fn open_many<'a>(
        &'a self,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Vec<Option<Stored>>, TierError>> {
        self.0.read_many(keys).boxed()
    }

    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        async move {
            let filling = self.0.begin((key, meta), head, None).await?;
            Ok(Box::new(filling) as Box<dyn Writer>)
        }
        .boxed()
    }

    fn begin_leased<'a>(
        &'a self,
        key: KeyRef<'a>,
        (meta, head): (&'a Meta, &'a Bytes),
        lease: LeasedWrite<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        async move {
            let filling = self.0.begin((key, meta), head, Some(lease)).await?;
            Ok(Box::new(filling) as Box<dyn Writer>)
        }
        .boxed()
    }

    fn is_shared(&self) -> bool {
        self.0.sharing.is_some()
    }

    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        self.0.remove(key).boxed()
    }
}

pub(crate) fn stored(opened: Opened) -> Stored {
    let Opened { entry: Decoded { meta, head, body }, marking } = opened;
    // An empty body has no pieces.
    let pieces = (!body.is_empty()).then_some(Ok(body));
    let stamp = marking.stamp;
    Stored { stamp, ..Stored::new(meta, head, stream::iter(pieces).boxed()) }
}

/// The right to fill an entry, and when it was certain.
struct Filler {
    right: Right,
    since: Duration,
    /// Where the bus stood at the departure, if that is known.
    place: Option<Place>,
    /// The lease that it comes from, and whether it ends with this.
    lease: Option<(Arc<Held>, bool)>,
}

/// An entry on its way.
struct Filling {
    tier: Arc<Inner>,
    endpoint: Arc<Endpoint>,
    names: Arc<Names>,
    right: Option<Filler>,
    key: Key,
    meta: Meta,
    head: Bytes,
    body: Vec<Bytes>,
    body_len: u64,
}

impl Writer for Filling {
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        let result = self.take(piece);
        async move { result }.boxed()
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), TierError>> {
        async move {
            let Some(filler) = &self.right else { return Ok(()) };
            self.fill(filler).await
        }
        .boxed()
    }
}

impl Filling {
    fn take(&mut self, piece: Bytes) -> Result<(), TierError> {
        self.body_len += piece.len() as u64;
        if self.body_len > self.tier.sealing.object_max {
            self.body = Vec::new();
            return Err(self.tier.too_large(&self.names));
        }
        if self.right.is_some() {
            self.body.push(piece);
        }
        Ok(())
    }

    async fn fill(&self, filler: &Filler) -> Result<(), TierError> {
        let is_last = filler.lease.as_ref().is_none_or(|(_, is_last)| *is_last);
        let since = self.tier.clock.exact().saturating_sub(filler.since);
        // In this order: a frame may seem older than it is, and not younger.
        let from = self.endpoint.earliest_now();
        let now = self.tier.clock.now();
        // From here on what stands there is older than what there is, until it is replaced.
        let owing = self.endpoint.owing(&self.names, Reason::Superseded);
        let nearer = self.tier.endpoints.iter().take_while(|one| !Arc::ptr_eq(one, &self.endpoint));
        nearer.for_each(|endpoint| drop(endpoint.owing(&self.names, Reason::Superseded)));
        let most = if self.tier.sharing.is_some() { bus::KEPT_MAX } else { KEPT_MAX };
        let kept = kept(&self.meta, now).min(most);
        if kept.is_zero() {
            return Ok(());
        }
        let Some(label) = self.label(filler, kept).await? else {
            owing.forgive();
            return self.withdrawn(filler);
        };
        let value = self.sealed((now, Stay { kept, from }), label).await?;
        let fill = Fill {
            names: &self.names,
            right: &filler.right,
            is_last,
            handed_max: HANDED_MAX,
            channels: &self.tier.channels,
            since,
            patience: self.endpoint.write_timeout,
            kept,
            value: &value,
        };
        add(&self.tier.counters.bytes_out, value.len() as u64);
        let filled = self.endpoint.fill(&fill).await;
        if let (Ok(_), Some((held, true))) = (&filled, &filler.lease) {
            held.end();
        }
        match filled {
            Ok(true) => count(&self.tier.counters.stored),
            // It was withdrawn by whoever has removed the entry, or takes its place.
            Ok(false) => {
                owing.forgive();
                return self.withdrawn(filler);
            }
            Err(trouble) if trouble.is_refusal() => self.endpoint.takes_no_writes(now),
            Err(trouble) => return Err(failed(trouble)),
        }
        owing.forgive();
        Ok(())
    }

    /// The purges that it knew of. Nothing if one that it did not know of reaches it.
    async fn label(&self, filler: &Filler, kept: Duration) -> Result<Option<Bytes>, TierError> {
        if self.tier.sharing.is_none() {
            return Ok(Some(Bytes::new()));
        }
        let Some(place) = filler.place else { return Ok(None) };
        let is_leased = filler.lease.is_some();
        let (key, meta) = (self.key.borrowed(), &self.meta);
        let storing = Storing { key, meta, place, kept, is_leased };
        self.tier.label(&self.endpoint, &storing).await.map_err(failed)
    }

    fn withdrawn(&self, filler: &Filler) -> Result<(), TierError> {
        count(&self.tier.counters.fills_refused);
        if filler.lease.is_some() { Err(TierError::Withdrawn) } else { Ok(()) }
    }

    async fn sealed(
        &self,
        (now, stay): (Timestamp, Stay),
        label: Bytes,
    ) -> Result<Vec<u8>, TierError> {
        let (key, meta, head) = (self.key.borrowed(), &self.meta, &self.head);
        let frame = Frame { key, meta, head, body: &self.body };
        let frame = frame::encode(&frame, now).map_err(|_| self.tier.too_large(&self.names))?;
        if frame.len() as u64 > self.tier.sealing.object_max.saturating_add(REST_MAX) {
            return Err(self.tier.too_large(&self.names));
        }
        let (names, sealing) = (self.names.clone(), self.tier.sealing.clone());
        let [one, two, three, four, five, six, seven, eight, ..] = self.tier.random_token()?;
        let stamp = u64::from_le_bytes([one, two, three, four, five, six, seven, eight]);
        let marking = Marking { stamp, label };
        let is_short = frame.len() < BLOCKING_FROM;
        let seal = move || envelope::seal(&frame, (&names.entry, stay), &marking, &sealing);
        if is_short {
            return Ok(seal());
        }
        tokio::task::spawn_blocking(seal).await.map_err(TierError::failed)
    }
}

/// How long an entry can be of any use: as long as it may be served; and for a while after that,
/// if its origin can be asked whether it is still good, or if it may be served where there is
/// nothing better.
fn kept(meta: &Meta, now: Timestamp) -> Duration {
    let Lifetime { fresh, stale_while_revalidate, stale_if_error, stale } = meta.lifetime;
    let afterwards = fresh.clamp(STALE_KEPT_MIN, STALE_KEPT_MAX);
    let stale = match (stale, &meta.validator) {
        (Stale::Permitted, _) => stale_while_revalidate.max(stale_if_error).max(afterwards),
        (Stale::Forbidden, Some(_)) => afterwards,
        (Stale::Forbidden, None) => Duration::ZERO,
    };
    fresh.saturating_add(stale).saturating_sub(meta.age(now)).min(KEPT_MAX)
}

pub(crate) fn failed(trouble: Trouble) -> TierError {
    match trouble {
        Trouble::TimedOut => TierError::TimedOut,
        other => TierError::failed(other),
    }
}
