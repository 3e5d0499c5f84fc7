//! State of one tier: endpoints, counters, and what is shared with other instances.
//!
//! This folder holds the parts and has little behaviour. It uses `connection`, `purges`, `entry`,
//! `settings`, `counts` and `error`; it never sees the operations of a tier, leases or the bus.

pub(crate) mod bookmark;
pub(crate) mod bus_client;
pub(crate) mod held_lease;
pub(crate) mod progress;
pub(crate) mod sharing;
pub(crate) mod tracked;

use std::sync::Arc;

use forebay_core::KeyRef;
use forebay_engine::{Clock, TierError};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::oneshot;

use crate::connection::endpoint::Endpoint;
use crate::counts::{Counters, count};
use crate::entry::envelope::Sealing;
use crate::entry::names::Names;
use crate::error::Error;
use crate::purges::pending_removals::Reason;
use crate::state::sharing::Sharing;

/// A tier in Redis. Clones share one tier; dropping the last one closes its connections.
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
    /// Prefix of the instances' channels.
    pub(crate) channels: String,
    /// Dropped with the tier, which ends the connection thread.
    pub(crate) _running: oneshot::Sender<()>,
}

impl Inner {
    pub(crate) fn names(&self, key: KeyRef<'_>) -> Arc<Names> {
        Arc::new(Names::of(&self.namespace, key))
    }

    /// Returns the index of the nearest endpoint that answers, and the endpoint.
    pub(crate) fn used(&self) -> Result<(usize, &Arc<Endpoint>), TierError> {
        let used = self.endpoints.iter().enumerate().find(|(_, endpoint)| endpoint.is_usable());
        used.ok_or_else(|| {
            self.counters.failure(&Error::Unavailable);
            failed(Error::Unavailable)
        })
    }

    pub(crate) fn random_token(&self) -> Result<[u8; 16], TierError> {
        let mut random = [0; 16];
        self.random.fill(&mut random).map_err(|_| {
            TierError::failed(
                "the operating system gave no random numbers for the id of a Redis value",
            )
        })?;
        Ok(random)
    }

    /// Schedules the removal of the stored entry, which is older than the one that is too large.
    pub(crate) fn too_large(&self, names: &Arc<Names>) -> TierError {
        count(&self.counters.too_large);
        for endpoint in self.endpoints.iter() {
            drop(endpoint.begin_removal(names, Reason::Superseded));
        }
        TierError::TooLarge
    }
}

pub(crate) fn failed(error: Error) -> TierError {
    match error {
        Error::TimedOut => TierError::TimedOut,
        other => TierError::failed(other),
    }
}
