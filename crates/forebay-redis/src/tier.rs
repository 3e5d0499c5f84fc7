//! The Redis tier: reads, writes and removals.
//!
//! A read asks the first endpoint that answers for the value in one round trip, within its read
//! timeout. The reply is untrusted: a value that is not an entry of this key is counted and treated
//! as a miss. A write has two steps, explained in `link.rs`. A removal is carried out on the
//! endpoint in use and stays pending on the others until they have carried it out.
//!
//! This folder uses `bus`, `state`, `connection`, `entry` and `settings`; it is the only one that knows
//! the engine's tier trait.

mod entry_writer;

use crate::entry::pack::BLOCKING_FROM;
use crate::state::{Inner, Redis, failed};
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Meta, Timestamp};
use forebay_engine::{Budget, Clock, Stored, Tier, TierError, WriteMode, Writer};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ring::rand::SystemRandom;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::bus::BusReceiver;
use crate::connection::endpoint::{Channel, Endpoint};
use crate::connection::link::RawValue;
use crate::connection::watch::watch;
use crate::counts::{Counters, Counts, EndpointState, NoticeListener, SharingState, add, count};
use crate::entry::envelope::{self, OpenedValue, Receipt};
use crate::entry::names::entry_name;
use crate::purges::pending_removals::Reason;
use crate::settings::{self, EndpointSettings, Servers, Settings, SettingsError};
use crate::state::bus_client::BusClient;
use crate::state::sharing::{Sharing, channels};

impl Redis {
    /// Creates a tier and returns at once. Connecting continues in the background until a server
    /// answers.
    ///
    /// # Errors
    /// [`SettingsError`] if the settings are invalid. A server that cannot be reached or that
    /// refuses is reported to `notice_listener` and by [`Redis::endpoints`].
    pub fn connect(
        settings: Settings,
        clock: Arc<dyn Clock>,
        notice_listener: Arc<dyn NoticeListener>,
    ) -> Result<Self, SettingsError> {
        let Settings { nearest, fallback, namespace, sealing, sharing } = settings;
        settings::check_namespace(&namespace)?;
        let is_cluster = |one: &EndpointSettings| matches!(one.servers, Servers::Cluster(_));
        if sharing.as_ref().is_some_and(|sharing| sharing.tracking)
            && std::iter::once(&nearest).chain(&fallback).any(is_cluster)
        {
            return Err(SettingsError::TrackedCluster);
        }
        let counters = Arc::<Counters>::default();
        let (runtime, _running) = drive()?;
        let channels = channels(&namespace);
        let sharing = sharing.map(|it| Arc::new(Sharing::new(it, runtime.clone(), &counters)));
        let channel = sharing.as_ref().map(|sharing| Channel {
            name: format!("{channels}{}", sharing.instance),
            wakeups: sharing.wakeups.clone(),
            endpoint_changed: sharing.bus.endpoint_changed.clone(),
        });
        let all = std::iter::once(&nearest).chain(&fallback);
        let endpoint =
            |one| Endpoint::new(one, &counters, &clock, &notice_listener, channel.clone());
        let endpoints: Arc<[Arc<Endpoint>]> = all.map(endpoint).collect::<Result<_, _>>()?;
        for endpoint in endpoints.iter() {
            runtime.spawn(watch(endpoint.clone()));
        }
        if let Some(sharing) = &sharing {
            let receiver = BusReceiver {
                endpoints: endpoints.clone(),
                sharing: sharing.clone(),
                namespace: namespace.clone(),
                counters: counters.clone(),
                clock: clock.clone(),
            };
            runtime.spawn(receiver.run());
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

    /// Returns totals since `connect`: reads by result, writes, rejected values, errors, bytes,
    /// connections, leases and purges.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counters.read()
    }

    /// Returns the state of the bus that carries purges between instances; `None` if only entries
    /// are shared.
    #[must_use]
    pub fn sharing(&self) -> Option<SharingState> {
        let BusClient { progress, .. } = &self.0.sharing.as_ref()?.bus;
        let bus_connected =
            progress.is_connected() && !self.0.sharing.as_ref()?.bus.is_tracking_lost();
        let instances = progress.instances();
        Some(SharingState { bus_connected, instances, lag: progress.lag() })
    }

    /// Returns the state of each endpoint in the order of the settings: the nearest one, then the
    /// fallback servers.
    #[must_use]
    pub fn endpoints(&self) -> Vec<EndpointState> {
        let used = self.0.endpoints.iter().position(|endpoint| endpoint.is_usable());
        let numbered = self.0.endpoints.iter().enumerate();
        numbered.map(|(at, endpoint)| endpoint.state(used == Some(at))).collect()
    }
}

/// Starts the connection thread. It opens and watches connections and drives all but the read-only
/// ones, so leases are renewed and purges received even while callers' threads are busy.
fn drive() -> Result<(Handle, oneshot::Sender<()>), SettingsError> {
    let failed = |error: std::io::Error| SettingsError::Thread(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let handle = runtime.handle().clone();
    let (running, stopped) = oneshot::channel();
    // `stopped` fails when its sender is dropped; nothing is ever sent.
    let body = move || drop(runtime.block_on(stopped));
    std::thread::Builder::new().name("forebay-redis".to_owned()).spawn(body).map_err(failed)?;
    Ok((handle, running))
}

impl Inner {
    async fn read(&self, key: KeyRef<'_>) -> Result<Option<Stored>, TierError> {
        let (_, endpoint) = self.used()?;
        let name = entry_name(&self.namespace, key);
        if endpoint.pending_removals.contains(&name) {
            count(&self.counters.misses);
            return Ok(None);
        }
        let asked = self.clock.now();
        let bytes_max = envelope::value_max(self.sealing.object_max);
        let read = self.read_in(endpoint, &name, key, bytes_max).await;
        let (found, mut answer) = read.map_err(failed)?;
        let Some(found) = found else {
            count(&self.counters.misses);
            return Ok(None);
        };
        let mut opened = self.decode(found, &name, key, asked).await;
        if opened.as_ref().is_err_and(|why| *why == envelope::Undecodable::Unstamped) {
            let found = endpoint.read_with_left(&name, bytes_max).await.map_err(failed)?;
            let Some(found) = found else {
                count(&self.counters.misses);
                return Ok(None);
            };
            opened = self.decode(found, &name, key, asked).await;
            // The reply is older than the value that was read now.
            answer = None;
        }
        Ok(self.check_and_count(endpoint, opened, key, answer).await)
    }

    /// Reads an entry for a report, without counting the read or its result.
    async fn peek(&self, key: KeyRef<'_>) -> Result<Option<Stored>, TierError> {
        let (_, endpoint) = self.used()?;
        let name = entry_name(&self.namespace, key);
        if endpoint.pending_removals.contains(&name) {
            return Ok(None);
        }
        let asked = self.clock.now();
        let bytes_max = envelope::value_max(self.sealing.object_max);
        let found = endpoint.read_with_left(&name, bytes_max).await.map_err(failed)?;
        let Some(RawValue { value, age_source }) = found else { return Ok(None) };
        let receipt = Receipt { age_source, asked };
        match envelope::open(&value, &name, key, receipt, &self.sealing) {
            Ok(opened) => Ok(Some(self.check_purges(endpoint, opened, key, None).await)),
            Err(_) => Ok(None),
        }
    }

    /// Reads several keys in one round trip.
    async fn read_many(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>, TierError> {
        let (_, endpoint) = self.used()?;
        let names: Vec<String> =
            keys.iter().map(|key| entry_name(&self.namespace, key.borrowed())).collect();
        let asked = self.clock.now();
        let bytes_max = envelope::value_max(self.sealing.object_max);
        let found = endpoint.read_many(&names, bytes_max).await.map_err(failed)?;
        let mut all = Vec::with_capacity(keys.len());
        for ((name, key), found) in names.iter().zip(keys).zip(found) {
            let Some(found) = found.filter(|_| !endpoint.pending_removals.contains(name)) else {
                count(&self.counters.misses);
                all.push(None);
                continue;
            };
            let opened = self.decode(found, name, key.borrowed(), asked).await;
            all.push(self.check_and_count(endpoint, opened, key.borrowed(), None).await);
        }
        Ok(all)
    }

    pub(crate) async fn decode(
        &self,
        RawValue { value, age_source }: RawValue,
        name: &str,
        key: KeyRef<'_>,
        asked: Timestamp,
    ) -> Result<OpenedValue, envelope::Undecodable> {
        add(&self.counters.bytes_in, value.len() as u64);
        let receipt = Receipt { age_source, asked };
        let opened = if value.len() < BLOCKING_FROM {
            envelope::open(&value, name, key, receipt, &self.sealing)
        } else {
            let (name, key, sealing) = (name.to_owned(), key.to_key(), self.sealing.clone());
            let open = move || envelope::open(&value, &name, key.borrowed(), receipt, &sealing);
            let opened = tokio::task::spawn_blocking(open).await;
            // The task fails if the runtime shuts down.
            opened.unwrap_or(Err(envelope::Undecodable::Damaged))
        };
        if let (Ok(opened), Some(sharing)) = (&opened, &self.sharing) {
            sharing.note(name, key, opened.annotations.stamp);
        }
        opened
    }

    async fn remove(&self, key: KeyRef<'_>) -> Result<bool, TierError> {
        let names = self.names(key);
        // Recorded first, so that dropping this future does not cancel the removal. Removals on
        // other endpoints are scheduled at once, and no request waits for them.
        let removals = |endpoint: &Arc<Endpoint>| endpoint.begin_removal(&names, Reason::Removed);
        let mut removals: Vec<_> = self.endpoints.iter().map(removals).collect();
        let (at, used) = self.used()?;
        let own = removals.swap_remove(at);
        drop(removals);
        let removed = used.remove(&names).await.map_err(failed)?;
        own.complete();
        count(&self.counters.removed);
        Ok(removed)
    }
}

impl Tier for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    /// Returns the timeouts of the endpoint in use.
    fn budget(&self) -> Budget {
        let endpoints = &self.0.endpoints;
        let used = endpoints.iter().find(|endpoint| endpoint.is_usable()).unwrap_or(&endpoints[0]);
        Budget { read: used.read_timeout, write: used.write_timeout }
    }

    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        self.0.read(key).boxed()
    }

    fn peek<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        self.0.peek(key).boxed()
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
        mode: WriteMode<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        async move {
            let writer = self.0.begin(key, meta, head, mode).await?;
            Ok(Box::new(writer) as Box<dyn Writer>)
        }
        .boxed()
    }

    fn is_shared(&self) -> bool {
        self.0.sharing.is_some()
    }

    /// A purge of a key on the bus replaces its purge token.
    fn carries_out_soft_purges(&self) -> bool {
        self.is_shared()
    }

    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        self.0.remove(key).boxed()
    }
}
