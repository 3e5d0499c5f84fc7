//! Settings and state for sharing leases and purges with other instances.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_core::KeyRef;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::runtime::Handle;

use crate::connection::wakeups::Wakeups;
use crate::counts::Counters;
use crate::entry::names::hex;
use crate::settings::sharing::SharingSettings;
use crate::state::bus_client::BusClient;
use crate::state::held_lease::HeldLease;
use crate::state::tracked::Tracked;

/// State of one tier for sharing leases and purges.
pub(crate) struct Sharing {
    pub(crate) settings: SharingSettings,
    /// Id of this instance as hexadecimal digits.
    pub(crate) instance: String,
    pub(crate) wakeups: Arc<Wakeups>,
    /// Leases held by this instance, by token.
    pub(crate) held: Mutex<HashMap<[u8; 16], Arc<HeldLease>>>,
    pub(crate) bus: BusClient,
    /// Stamps of the values in Redis that this instance knows, if tracking is enabled.
    pub(crate) tracked: Option<Arc<Tracked>>,
    random: SystemRandom,
    /// Runtime of the connection thread.
    pub(crate) runtime: Handle,
}

impl Sharing {
    pub(crate) fn new(
        settings: SharingSettings,
        runtime: Handle,
        counters: &Arc<Counters>,
    ) -> Self {
        let instance = hex(&settings.instance);
        let wakeups = Wakeups::new(counters);
        let has_tracking = settings.tracking;
        Self {
            settings,
            instance,
            wakeups,
            held: Mutex::default(),
            bus: BusClient::new(has_tracking),
            tracked: has_tracking.then(Arc::default),
            random: SystemRandom::new(),
            runtime,
        }
    }

    /// Records the stamp of the value that is stored under this name in Redis.
    pub(crate) fn note(&self, name: &str, key: KeyRef<'_>, stamp: u64) {
        if let Some(tracked) = &self.tracked {
            tracked.note(name, key, stamp);
        }
    }

    /// Returns a random number for the token of a purge.
    pub(crate) fn random(&self) -> u64 {
        let mut random = [0; 8];
        // Without random numbers no lease is granted either.
        let _ = self.random.fill(&mut random);
        u64::from_le_bytes(random)
    }
}

/// Returns the prefix of all instances' channels in this namespace.
pub(crate) fn channels(namespace: &str) -> String {
    format!("{namespace}:i:")
}
