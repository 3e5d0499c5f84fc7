//! Writer of one entry: collects the body and stores it with one command.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::frame::{self, Frame};
use forebay_core::{Key, KeyRef, Lifetime, Meta, Stale, Timestamp};
use forebay_engine::{LeasedWrite, TierError, WriteMode, Writer};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::bus;
use crate::bus::purge_check::StoreCheck;
use crate::connection::endpoint::Endpoint;
use crate::connection::link::{Fill, FillResult, WritePermission};
use crate::counts::{add, count};
use crate::entry::envelope::{self, Annotations, REST_MAX, Retention};
use crate::entry::names::{Names, claim_field, entry_name, floor_name, primary_of};
use crate::entry::pack::BLOCKING_FROM;
use crate::purges::pending_removals::Reason;
use crate::state::held_lease::HeldLease;
use crate::state::progress::{BusPosition, BusProgress};
use crate::state::{Inner, failed};

/// Maximum TTL, to avoid overflows in Redis.
const TTL_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Maximum bytes of a value that is sent to waiters with the wake-up.
const HANDOVER_MAX: u64 = 4 << 10;

/// Bounds of the additional TTL for stale entries, which otherwise equals the fresh lifetime.
const STALE_TTL_MIN: Duration = Duration::from_secs(60);
const STALE_TTL_MAX: Duration = Duration::from_secs(60 * 60);

/// Permission to store an entry.
pub(crate) struct HeldPermission {
    pub(crate) permission: WritePermission,
    pub(crate) since: Duration,
    /// Bus position at the start of the load, if known.
    pub(crate) position: Option<BusPosition>,
    /// The lease of the permission, and whether this store ends it.
    pub(crate) lease: Option<(Arc<HeldLease>, bool)>,
}

/// Writer of one entry.
pub(crate) struct EntryWriter {
    pub(crate) tier: Arc<Inner>,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) names: Arc<Names>,
    pub(crate) permission: Option<HeldPermission>,
    pub(crate) key: Key,
    pub(crate) meta: Meta,
    pub(crate) head: Bytes,
    pub(crate) body: Vec<Bytes>,
    pub(crate) body_len: u64,
}

impl Inner {
    pub(crate) async fn begin(
        self: &Arc<Self>,
        key: KeyRef<'_>,
        meta: &Meta,
        head: &Bytes,
        mode: WriteMode<'_>,
    ) -> Result<EntryWriter, TierError> {
        let used = self.used()?.1.clone();
        let names = self.names(key);
        // The library stores a value as the head of an entry without a body.
        let head_max = self.sealing.object_max.max(REST_MAX);
        if head.len().saturating_add(key.bytes().len()) as u64 > head_max {
            return Err(self.too_large(&names));
        }
        let position = |of: &dyn Fn(&BusProgress) -> Option<BusPosition>| {
            self.sharing.as_ref().and_then(|sharing| of(&sharing.bus.progress))
        };
        let position = match &mode {
            WriteMode::Loaded => position(&|bus| bus.position_at(&used, meta.load_started_at)),
            WriteMode::Put => position(&|bus| bus.position(&used)),
            WriteMode::Leased(_) => None,
        };
        let (endpoint, permission) = match mode {
            WriteMode::Loaded | WriteMode::Put => {
                let permission = self.claim(&used, &names, key, meta.version(), position).await?;
                (used.clone(), permission)
            }
            WriteMode::Leased(lease) => self.leased(&lease)?,
        };
        Ok(EntryWriter {
            tier: self.clone(),
            endpoint,
            names,
            permission,
            key: key.to_key(),
            meta: meta.clone(),
            head: head.clone(),
            body: Vec::new(),
            body_len: 0,
        })
    }

    /// Requests permission to store. `None` if the server refuses writes, which is no failure since
    /// reads continue.
    async fn claim(
        &self,
        endpoint: &Arc<Endpoint>,
        names: &Names,
        key: KeyRef<'_>,
        version: Option<u64>,
        position: Option<BusPosition>,
    ) -> Result<Option<HeldPermission>, TierError> {
        if !endpoint.may_take_writes(self.clock.now()) {
            count(&self.counters.writes_refused);
            return Ok(None);
        }
        let permission =
            WritePermission { field: claim_field(key, version), token: self.random_token()? };
        match endpoint.claim(names, &permission).await {
            Ok(true) => Ok(Some(HeldPermission {
                permission,
                since: self.clock.exact(),
                position,
                lease: None,
            })),
            Ok(false) => {
                count(&self.counters.foreign);
                count(&self.counters.fills_refused);
                Ok(None)
            }
            Err(error) if error.is_refusal() => {
                endpoint.takes_no_writes(self.clock.now());
                Ok(None)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the permission of a lease, if it is still valid.
    ///
    /// # Errors
    /// [`TierError::Withdrawn`] if it is not.
    fn leased(
        &self,
        lease: &LeasedWrite<'_>,
    ) -> Result<(Arc<Endpoint>, Option<HeldPermission>), TierError> {
        let held = self.sharing.as_ref().and_then(|sharing| {
            let held = sharing.held.lock().get(&lease.token.0).cloned();
            held.filter(|held| held.is_valid(self.clock.exact()))
        });
        let Some(held) = held else {
            count(&self.counters.fills_refused);
            return Err(TierError::Withdrawn);
        };
        let (permission, endpoint) = (held.permission(), held.endpoint.clone());
        let (since, position) = (held.since, held.position);
        let lease = Some((held, lease.is_last));
        Ok((endpoint, Some(HeldPermission { permission, since, position, lease })))
    }
}

impl Writer for EntryWriter {
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        let result = self.take(piece);
        async move { result }.boxed()
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), TierError>> {
        async move {
            let Some(held_permission) = &self.permission else { return Ok(()) };
            self.fill(held_permission).await
        }
        .boxed()
    }
}

impl EntryWriter {
    fn take(&mut self, piece: Bytes) -> Result<(), TierError> {
        self.body_len += piece.len() as u64;
        if self.body_len > self.tier.sealing.object_max {
            self.body = Vec::new();
            return Err(self.tier.too_large(&self.names));
        }
        if self.permission.is_some() {
            self.body.push(piece);
        }
        Ok(())
    }

    async fn fill(&self, held_permission: &HeldPermission) -> Result<(), TierError> {
        let is_last = held_permission.lease.as_ref().is_none_or(|(_, is_last)| *is_last);
        let since = self.tier.clock.exact().saturating_sub(held_permission.since);
        // In this order a frame may appear older than it is, and never younger.
        let from = self.endpoint.earliest_now();
        let now = self.tier.clock.now();
        // From here on the stored entry is outdated until it is replaced.
        let removal = self.endpoint.begin_removal(&self.names, Reason::Superseded);
        let nearer = self.tier.endpoints.iter().take_while(|one| !Arc::ptr_eq(one, &self.endpoint));
        nearer.for_each(|endpoint| drop(endpoint.begin_removal(&self.names, Reason::Superseded)));
        let ttl_max = if self.tier.sharing.is_some() { bus::KEPT_MAX } else { TTL_MAX };
        let ttl = ttl(&self.meta, now).min(ttl_max);
        if ttl.is_zero() {
            return Ok(());
        }
        let Some(label) = self.label(held_permission, ttl).await? else {
            removal.complete();
            return self.withdrawn(held_permission).await;
        };
        let family = self.family_name();
        let is_record = family.as_deref() == Some(&*self.names.entry);
        let value = self.sealed(now, Retention { ttl, from }, label, is_record).await?;
        let floor = |version| (floor_name(&self.tier.namespace, self.key.borrowed()), version);
        let version = self.meta.version().map(floor);
        let fill = Fill {
            names: &self.names,
            permission: &held_permission.permission,
            is_last,
            handover_max: HANDOVER_MAX,
            channels: &self.tier.channels,
            since,
            wait_max: self.endpoint.write_timeout,
            ttl,
            value: &value,
            family: family.as_deref(),
            version: version.as_ref().map(|(floor, version)| (&**floor, *version)),
        };
        add(&self.tier.counters.bytes_out, value.len() as u64);
        let filled = self.endpoint.fill(&fill).await;
        if let (Ok(_), Some((held, true))) = (&filled, &held_permission.lease) {
            held.end();
        }
        match filled {
            Ok(FillResult::Stored) => count(&self.tier.counters.stored),
            // The entry was removed, or another writer claimed it.
            Ok(FillResult::Withdrawn) => {
                removal.complete();
                return self.withdrawn(held_permission).await;
            }
            Ok(FillResult::Outdated) => {
                removal.complete();
                count(&self.tier.counters.fills_refused);
                return Err(TierError::Outdated);
            }
            Err(error) if error.is_refusal() => self.endpoint.takes_no_writes(now),
            Err(error) => return Err(failed(error)),
        }
        removal.complete();
        Ok(())
    }

    /// Returns the purge label of the entry. `None` if a purge after the start of its load reaches
    /// it.
    async fn label(
        &self,
        held_permission: &HeldPermission,
        ttl: Duration,
    ) -> Result<Option<Bytes>, TierError> {
        if self.tier.sharing.is_none() {
            return Ok(Some(Bytes::new()));
        }
        let Some(position) = held_permission.position else { return Ok(None) };
        let is_leased = held_permission.lease.is_some();
        let (key, meta) = (self.key.borrowed(), &self.meta);
        let check = StoreCheck { key, meta, position, ttl, is_leased };
        self.tier.label(&self.endpoint, &check).await.map_err(failed)
    }

    async fn withdrawn(&self, held_permission: &HeldPermission) -> Result<(), TierError> {
        count(&self.tier.counters.fills_refused);
        let Some((held, _)) = &held_permission.lease else { return Ok(()) };
        held.check_loss().await;
        Err(TierError::Withdrawn)
    }

    /// Returns the name of the record that lists the variants, if this entry is it or a variant.
    fn family_name(&self) -> Option<String> {
        self.meta.vary()?;
        let primary = primary_of(self.key.borrowed());
        Some(entry_name(&self.tier.namespace, primary.borrowed()))
    }

    /// Encodes the value. `is_record` is true for the record that lists variants, which always has
    /// a purge token: those that outlived an earlier record must not count as fresh.
    async fn sealed(
        &self,
        now: Timestamp,
        retention: Retention,
        label: Bytes,
        is_record: bool,
    ) -> Result<Vec<u8>, TierError> {
        let (key, meta, head) = (self.key.borrowed(), &self.meta, &self.head);
        let frame = Frame { key, meta, head, body: &self.body };
        let frame = frame::encode(&frame, now).map_err(|_| self.tier.too_large(&self.names))?;
        if frame.len() as u64 > self.tier.sealing.object_max.saturating_add(REST_MAX) {
            return Err(self.tier.too_large(&self.names));
        }
        let (names, sealing) = (self.names.clone(), self.tier.sealing.clone());
        let [stamp, token] = halves(self.tier.random_token()?);
        if let Some(sharing) = &self.tier.sharing {
            sharing.note(&names.entry, self.key.borrowed(), stamp);
        }
        let annotations = Annotations { stamp, label, token: if is_record { token } else { 0 } };
        let is_short = frame.len() < BLOCKING_FROM;
        let seal = move || envelope::seal(&frame, &names.entry, retention, &annotations, &sealing);
        if is_short {
            return Ok(seal());
        }
        tokio::task::spawn_blocking(seal).await.map_err(TierError::failed)
    }
}

/// Returns two numbers of 8 random bytes.
fn halves(random: [u8; 16]) -> [u64; 2] {
    let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| random[at + byte]));
    [half(0), half(8)]
}

/// Returns the TTL of an entry: its lifetime, and additional time if it can be validated or served
/// stale.
fn ttl(meta: &Meta, now: Timestamp) -> Duration {
    let Lifetime { fresh, stale_while_revalidate, stale_if_error, stale } = meta.lifetime();
    let afterwards = fresh.clamp(STALE_TTL_MIN, STALE_TTL_MAX);
    let stale = match (stale, meta.validator()) {
        (Stale::Permitted, _) => stale_while_revalidate.max(stale_if_error).max(afterwards),
        (Stale::Forbidden, Some(_)) => afterwards,
        (Stale::Forbidden, None) => Duration::ZERO,
    };
    fresh.saturating_add(stale).saturating_sub(meta.age(now)).min(TTL_MAX)
}
