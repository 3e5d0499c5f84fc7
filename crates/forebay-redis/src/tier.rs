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
use forebay_core::{Key, KeyRef, Lifetime, Meta, Stale, Timestamp};
use forebay_engine::{Budget, Clock, Stored, Tier, TierError, Writer};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::oneshot;

use crate::counts::{Counters, Counts, EndpointState, Witness, add, count};
use crate::debts::Reason;
use crate::endpoint::Endpoint;
use crate::envelope::{self, REST_MAX, Receipt, Sealing, Stay};
use crate::link::{Fill, Found, Token};
use crate::names::{Names, entry_name};
use crate::settings::{self, Settings, SettingsError};
use crate::trouble::Trouble;
use crate::watch::watch;

/// The longest that anything is kept: what Redis is told must not overflow.
const KEPT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Values from this size on are packed and unpacked where blocking is allowed: below it, it takes
/// less time than to go there.
const BLOCKING_FROM: usize = 64 << 10;

/// A tier in Redis. Clones are the same tier; the last one to go closes its connections.
#[derive(Clone)]
pub struct Redis(Arc<Inner>);

struct Inner {
    endpoints: Arc<[Arc<Endpoint>]>,
    namespace: String,
    sealing: Arc<Sealing>,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    random: SystemRandom,
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
        let Settings { nearest, fallback, namespace, sealing } = settings;
        settings::check_namespace(&namespace)?;
        let counters = Arc::<Counters>::default();
        let all = std::iter::once(&nearest).chain(&fallback);
        let endpoints: Arc<[Arc<Endpoint>]> = all
            .map(|one| Endpoint::new(one, (&counters, &clock), &witness))
            .collect::<Result<_, _>>()?;
        let _running = drive(endpoints.clone())?;
        let (sealing, random) = (Arc::new(sealing), SystemRandom::new());
        let inner = Inner { endpoints, namespace, sealing, clock, counters, random, _running };
        Ok(Self(Arc::new(inner)))
    }

    /// What it has done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counters.read()
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
fn drive(endpoints: Arc<[Arc<Endpoint>]>) -> Result<oneshot::Sender<()>, SettingsError> {
    let failed = |error: std::io::Error| SettingsError::Thread(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let (running, stopped) = oneshot::channel();
    let body = move || {
        runtime.block_on(async {
            for endpoint in endpoints.iter() {
                tokio::spawn(watch(endpoint.clone()));
            }
            // It ends with an error when the other end is dropped; nothing is ever sent.
            let _ = stopped.await;
        });
    };
    std::thread::Builder::new().name("forebay-redis".to_owned()).spawn(body).map_err(failed)?;
    Ok(running)
}

impl Inner {
    fn names(&self, key: KeyRef<'_>) -> Arc<Names> {
        Arc::new(Names::of(&self.namespace, key))
    }

    /// The nearest endpoint that answers, and which one that is.
    fn used(&self) -> Result<(usize, &Arc<Endpoint>), TierError> {
        let used = self.endpoints.iter().enumerate().find(|(_, endpoint)| endpoint.is_usable());
        used.ok_or_else(|| {
            self.counters.trouble(&Trouble::Absent);
            failed(Trouble::Absent)
        })
    }

    async fn read(&self, key: KeyRef<'_>) -> Result<Option<Decoded>, TierError> {
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
        let mut decoded = self.decode(found, (&name, key), asked).await;
        if decoded.as_ref().is_err_and(|why| *why == envelope::Undecodable::Unstamped) {
            let found = endpoint.read_with_left(&name, bytes_max).await.map_err(failed)?;
            let Some(found) = found else {
                count(&self.counters.misses);
                return Ok(None);
            };
            decoded = self.decode(found, (&name, key), asked).await;
        }
        Ok(match decoded {
            Ok(decoded) => {
                count(&self.counters.hits);
                Some(decoded)
            }
            Err(why) => {
                self.counters.undecodable(why);
                None
            }
        })
    }

    async fn decode(
        &self,
        Found { value, term }: Found,
        (name, key): (&str, KeyRef<'_>),
        asked: Timestamp,
    ) -> Result<Decoded, envelope::Undecodable> {
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
    ) -> Result<Filling, TierError> {
        let endpoint = self.used()?.1.clone();
        let names = self.names(key);
        if head.len().saturating_add(key.bytes().len()) as u64 > REST_MAX {
            return Err(self.too_large(&names));
        }
        let claim = self.claim(&endpoint, &names).await?;
        Ok(Filling {
            tier: self.clone(),
            endpoint,
            names,
            claim,
            key: key.to_key(),
            meta: meta.clone(),
            head: head.clone(),
            body: Vec::new(),
            body_len: 0,
        })
    }

    /// Takes the right to fill an entry. Nothing if the server takes no writes, or none of ours:
    /// that is no failure, since reading goes on.
    async fn claim(&self, endpoint: &Endpoint, names: &Names) -> Result<Option<Claim>, TierError> {
        if !endpoint.may_take_writes(self.clock.now()) {
            count(&self.counters.writes_refused);
            return Ok(None);
        }
        let mut random = [0; 16];
        self.random.fill(&mut random).map_err(|_| TierError::failed("no random numbers"))?;
        let token = Token::new(random);
        match endpoint.claim(names, &token).await {
            Ok(()) => Ok(Some(Claim { token, answered: self.clock.exact() })),
            Err(trouble) if trouble.is_refusal() => {
                endpoint.takes_no_writes(self.clock.now());
                Ok(None)
            }
            Err(trouble) => Err(failed(trouble)),
        }
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
        async move { Ok(self.0.read(key).await?.map(stored)) }.boxed()
    }

    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        async move {
            let filling = self.0.begin((key, meta), head).await?;
            Ok(Box::new(filling) as Box<dyn Writer>)
        }
        .boxed()
    }

    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        self.0.remove(key).boxed()
    }
}

fn stored(decoded: Decoded) -> Stored {
    let Decoded { meta, head, body } = decoded;
    // An empty body has no pieces.
    let pieces = (!body.is_empty()).then_some(Ok(body));
    Stored::new(meta, head, stream::iter(pieces).boxed())
}

/// The right to fill an entry, and when it was certain.
struct Claim {
    token: Token,
    answered: Duration,
}

/// An entry on its way.
struct Filling {
    tier: Arc<Inner>,
    endpoint: Arc<Endpoint>,
    names: Arc<Names>,
    claim: Option<Claim>,
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
            let Some(claim) = &self.claim else { return Ok(()) };
            self.fill(claim).await
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
        if self.claim.is_some() {
            self.body.push(piece);
        }
        Ok(())
    }

    async fn fill(&self, claim: &Claim) -> Result<(), TierError> {
        let since_claim = self.tier.clock.exact().saturating_sub(claim.answered);
        // In this order: a frame may seem older than it is, and not younger.
        let from = self.endpoint.earliest_now();
        let now = self.tier.clock.now();
        // From here on what stands there is older than what there is, until it is replaced.
        let owing = self.endpoint.owing(&self.names, Reason::Superseded);
        let nearer = self.tier.endpoints.iter().take_while(|one| !Arc::ptr_eq(one, &self.endpoint));
        nearer.for_each(|endpoint| drop(endpoint.owing(&self.names, Reason::Superseded)));
        let kept = kept(&self.meta, now);
        if kept.is_zero() {
            return Ok(());
        }
        let value = self.sealed(now, Stay { kept, from }).await?;
        let fill = Fill {
            names: &self.names,
            token: &claim.token,
            since_claim,
            patience: self.endpoint.write_timeout,
            kept,
            value: &value,
        };
        add(&self.tier.counters.bytes_out, value.len() as u64);
        match self.endpoint.fill(&fill).await {
            Ok(true) => count(&self.tier.counters.stored),
            // It was withdrawn by whoever has removed the entry, or takes its place.
            Ok(false) => count(&self.tier.counters.fills_refused),
            Err(trouble) if trouble.is_refusal() => self.endpoint.takes_no_writes(now),
            Err(trouble) => return Err(failed(trouble)),
        }
        owing.forgive();
        Ok(())
    }

    async fn sealed(&self, now: Timestamp, stay: Stay) -> Result<Vec<u8>, TierError> {
        let (key, meta, head) = (self.key.borrowed(), &self.meta, &self.head);
        let frame = Frame { key, meta, head, body: &self.body };
        let frame = frame::encode(&frame, now).map_err(|_| self.tier.too_large(&self.names))?;
        if frame.len() as u64 > self.tier.sealing.object_max.saturating_add(REST_MAX) {
            return Err(self.tier.too_large(&self.names));
        }
        let (names, sealing) = (self.names.clone(), self.tier.sealing.clone());
        let is_short = frame.len() < BLOCKING_FROM;
        let seal = move || envelope::seal(&frame, (&names.entry, stay), &sealing);
        if is_short {
            return Ok(seal());
        }
        tokio::task::spawn_blocking(seal).await.map_err(TierError::failed)
    }
}

/// How long an entry can be of any use: as long as it may be served, to whomever.
fn kept(meta: &Meta, now: Timestamp) -> Duration {
    let Lifetime { fresh, stale_while_revalidate, stale_if_error, stale } = meta.lifetime;
    let stale = match stale {
        Stale::Permitted => stale_while_revalidate.max(stale_if_error),
        Stale::Forbidden => Duration::ZERO,
    };
    fresh.saturating_add(stale).saturating_sub(meta.age(now)).min(KEPT_MAX)
}

fn failed(trouble: Trouble) -> TierError {
    match trouble {
        Trouble::TimedOut => TierError::TimedOut,
        other => TierError::failed(other),
    }
}
