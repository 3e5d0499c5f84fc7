//! Loads that are parts of a batch: a front end that loads many keys at once.

use std::sync::Arc;

use forebay_core::KeyRef;
use futures_util::future::BoxFuture;

use crate::tiers::error::TierError;
use crate::tiers::tier::{Stored, Tier};

/// Part of a batch: its front end counts the parts that are going to load, and waits for them.
pub trait BatchPart: Send + Sync {
    /// Called by the caller that starts the load, before the task of the load starts. If a lower
    /// tier has the answer, the load is dropped without a call of
    /// [`Load::load`](crate::Load::load).
    fn starts(&self);

    /// Called when this load waits for another instance: it may start late, or not at all. The batch
    /// must not let its other parts wait for it: the other instance may wait for one of them.
    fn delayed(&self);

    /// Called when a lower tier has the answer, so that [`Load::load`](crate::Load::load) will not be
    /// called. Writing the tiers above may take a while afterwards.
    fn is_spared(&self);

    /// Returns `true` if [`open`](Self::open) waits for other parts to read with them: then the
    /// lease is requested after it, and not in the same exchange.
    fn reads_together(&self) -> bool;

    /// Reads one record of the lower tier with this index; the tier next to memory has index 0. The
    /// batch combines the reads of its parts: see [`Tier::open_many`].
    fn open<'a>(
        &'a self,
        tier: &'a Arc<dyn Tier>,
        tier_index: usize,
        key: KeyRef<'a>,
    ) -> BoxFuture<'a, Result<Option<Stored>, TierError>>;
}
