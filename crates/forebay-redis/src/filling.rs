//! An entry on its way into Redis: its body in pieces, and then all of it at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::frame::{self, Frame};
use forebay_core::{Key, KeyRef, Lifetime, Meta, Stale, Timestamp};
use forebay_engine::{LeasedWrite, TierError, Writer};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::bus;
use crate::bus::place::{Place, Standpoint};
use crate::counts::{add, count};
use crate::debts::Reason;
use crate::endpoint::Endpoint;
use crate::envelope::{self, Marking, REST_MAX, Stay};
use crate::lease::Held;
use crate::link::{Fill, Filled, Right};
use crate::names::{Names, claim_field, floor_name};
use crate::tier::{BLOCKING_FROM, Inner, failed};
use crate::vet::Storing;

/// The longest that anything is kept: what Redis is told must not overflow.
const KEPT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Values up to this size are handed to those who wait for them, together with the news.
const HANDED_MAX: u64 = 4 << 10;

/// What is no longer fresh is kept for as long again as it was, within these bounds: what lived
/// for a second is asked for again within a minute, or not at all; and what lived for a year does
/// not fill the server for another one.
const STALE_KEPT_MIN: Duration = Duration::from_secs(60);
const STALE_KEPT_MAX: Duration = Duration::from_secs(60 * 60);

/// The right to fill an entry, and when it was certain.
pub(crate) struct Filler {
    pub(crate) right: Right,
    pub(crate) since: Duration,
    /// Where the bus stood at the departure, if that is known.
    pub(crate) place: Option<Place>,
    /// The lease that it comes from, and whether it ends with this.
    pub(crate) lease: Option<(Arc<Held>, bool)>,
}

/// An entry on its way.
pub(crate) struct Filling {
    pub(crate) tier: Arc<Inner>,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) names: Arc<Names>,
    pub(crate) right: Option<Filler>,
    pub(crate) key: Key,
    pub(crate) meta: Meta,
    pub(crate) head: Bytes,
    pub(crate) body: Vec<Bytes>,
    pub(crate) body_len: u64,
}

/// What an entry is that is to be written, and by which right.
pub(crate) enum Writing<'a> {
    /// It was loaded by somebody who asked nobody.
    Loaded,
    /// It was made just now.
    Put,
    Leased(LeasedWrite<'a>),
}

impl Inner {
    pub(crate) async fn begin(
        self: &Arc<Self>,
        (key, meta): (KeyRef<'_>, &Meta),
        head: &Bytes,
        by: Writing<'_>,
    ) -> Result<Filling, TierError> {
        let used = self.used()?.1.clone();
        let names = self.names(key);
        if head.len().saturating_add(key.bytes().len()) as u64 > REST_MAX {
            return Err(self.too_large(&names));
        }
        let place = |of: &dyn Fn(&Standpoint) -> Option<Place>| {
            self.sharing.as_ref().and_then(|sharing| of(&sharing.bus.standpoint))
        };
        let place = match &by {
            Writing::Loaded => place(&|bus| bus.place_at(&used, meta.departed)),
            Writing::Put => place(&|bus| bus.place(&used)),
            Writing::Leased(_) => None,
        };
        let (endpoint, right) = match by {
            Writing::Loaded | Writing::Put => {
                let right = self.claim(&used, (&names, key, meta.version()), place).await?;
                (used.clone(), right)
            }
            Writing::Leased(lease) => self.leased(&lease)?,
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
        (names, key, version): (&Names, KeyRef<'_>, Option<u64>),
        place: Option<Place>,
    ) -> Result<Option<Filler>, TierError> {
        if !endpoint.may_take_writes(self.clock.now()) {
            count(&self.counters.writes_refused);
            return Ok(None);
        }
        let right = Right { field: claim_field(key, version), token: self.random_token()? };
        match endpoint.claim(names, &right).await {
            Ok(true) => Ok(Some(Filler { right, since: self.clock.exact(), place, lease: None })),
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
            return self.withdrawn(filler).await;
        };
        let value = self.sealed((now, Stay { kept, from }), label).await?;
        let floor = |version| (floor_name(&self.tier.namespace, self.key.borrowed()), version);
        let version = self.meta.version().map(floor);
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
            version: version.as_ref().map(|(floor, version)| (&**floor, *version)),
        };
        add(&self.tier.counters.bytes_out, value.len() as u64);
        let filled = self.endpoint.fill(&fill).await;
        if let (Ok(_), Some((held, true))) = (&filled, &filler.lease) {
            held.end();
        }
        match filled {
            Ok(Filled::Stored) => count(&self.tier.counters.stored),
            // It was withdrawn by whoever has removed the entry, or takes its place.
            Ok(Filled::Withdrawn) => {
                owing.forgive();
                return self.withdrawn(filler).await;
            }
            Ok(Filled::Outdated) => {
                owing.forgive();
                count(&self.tier.counters.fills_refused);
                return Err(TierError::Outdated);
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

    async fn withdrawn(&self, filler: &Filler) -> Result<(), TierError> {
        count(&self.tier.counters.fills_refused);
        let Some((held, _)) = &filler.lease else { return Ok(()) };
        held.find_out().await;
        Err(TierError::Withdrawn)
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
        if let Some(sharing) = &self.tier.sharing {
            sharing.note(&names.entry, self.key.borrowed(), stamp);
        }
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
    let Lifetime { fresh, stale_while_revalidate, stale_if_error, stale } = meta.lifetime();
    let afterwards = fresh.clamp(STALE_KEPT_MIN, STALE_KEPT_MAX);
    let stale = match (stale, meta.validator()) {
        (Stale::Permitted, _) => stale_while_revalidate.max(stale_if_error).max(afterwards),
        (Stale::Forbidden, Some(_)) => afterwards,
        (Stale::Forbidden, None) => Duration::ZERO,
    };
    fresh.saturating_add(stale).saturating_sub(meta.age(now)).min(KEPT_MAX)
}
