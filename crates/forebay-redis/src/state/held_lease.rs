//! A lease that this instance holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{Key, PurgeState, TagSet};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::connection::endpoint::Endpoint;
use crate::connection::link::{Link, WritePermission, millis, parse_bool};
use crate::connection::scripts::Call;
use crate::entry::names::Names;
use crate::error::Error;
use crate::settings::sharing::LeaseTerms;
use crate::state::progress::BusPosition;

/// A lease held by this instance.
pub(crate) struct HeldLease {
    pub(crate) primary: Key,
    pub(crate) names: Names,
    pub(crate) endpoint: Arc<Endpoint>,
    /// Bus position before the request, if known.
    pub(crate) position: Option<BusPosition>,
    pub(crate) token: [u8; 16],
    pub(crate) terms: LeaseTerms,
    /// Field in the hash of leases; [`Permit::narrow`] changes it.
    pub(crate) field: Mutex<Vec<u8>>,
    /// Time of the grant on the exact clock.
    pub(crate) since: Duration,
    /// Assumed end, in milliseconds of the exact clock.
    pub(crate) until: AtomicU64,
    pub(crate) state: AtomicU8,
    pub(crate) renewal: Mutex<Option<AbortHandle>>,
}

/// State: held.
pub(crate) const HELD: u8 = 0;
/// State: withdrawn or expired.
const LOST: u8 = 1;
/// State: released, or ended by a store.
const ENDED: u8 = 2;

impl HeldLease {
    pub(crate) fn permission(&self) -> WritePermission {
        WritePermission { field: self.field.lock().clone(), token: self.token }
    }

    /// Returns whether the lease is assumed to be valid at this time of the exact clock.
    pub(crate) fn is_valid(&self, now: Duration) -> bool {
        self.state.load(Ordering::Acquire) == HELD
            && millis(now) < self.until.load(Ordering::Acquire)
    }

    /// Returns whether the lease has neither ended nor been lost.
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD
    }

    pub(crate) fn lose(&self) {
        self.mark_lost();
        self.stop();
    }

    /// Marks the lease as lost unless it has ended.
    pub(crate) fn mark_lost(&self) {
        let _ = self.state.compare_exchange(HELD, LOST, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Ends the lease; returns `true` on the first call only.
    pub(crate) fn end(&self) -> bool {
        self.stop();
        self.state.swap(ENDED, Ordering::AcqRel) == HELD
    }

    pub(crate) fn stop(&self) {
        if let Some(renewal) = self.renewal.lock().take() {
            renewal.abort();
        }
    }

    /// Checks for evictions after the lease disappeared without a known purge of its key.
    pub(crate) async fn check_loss(&self) {
        let load_position = self.position.map(|position| position.id).unwrap_or_default();
        let (key, tags) = (self.primary.borrowed(), TagSet::default());
        if self.endpoint.tombstones.standing(key, &tags, load_position) == PurgeState::Valid {
            self.endpoint.check_evictions(&self.names.leases).await;
        }
    }

    pub(crate) async fn run(&self, call: Call<'_>) -> Result<bool, Error> {
        let wait_max = self.endpoint.write_timeout;
        let run = |link: Arc<Link>| async move { parse_bool(link.run(&call).await?) };
        self.endpoint.run(wait_max, run).await
    }
}
