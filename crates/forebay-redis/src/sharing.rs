//! Settings and state for sharing leases and purges with other instances.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::KeyRef;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::runtime::Handle;

use crate::bus::BusClient;
use crate::counts::Counters;
use crate::lease::HeldLease;
use crate::names::hex;
use crate::tracking::Tracked;
use crate::wakeups::Wakeups;

/// Default duration of a lease: a dead leader is noticed after this time.
const LEASE: Duration = Duration::from_millis(1_500);

/// Default interval between lease renewals: a third of the lease, so two may be lost.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// Default maximum age of a renewed lease: the default maximum duration of a load.
const HARD_LIMIT: Duration = Duration::from_secs(60);

/// Default maximum silence of the bus.
const BUS_SILENCE_MAX: Duration = Duration::from_secs(1);

/// Default length of the bus, in purges. A reader that is further behind has missed some.
const BUS_LENGTH: u64 = 16_384;

/// Settings for sharing leases (one load per key) and purges with other instances over Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharingSettings {
    /// Id of this instance, unique among all instances; random by default.
    pub instance: [u8; 16],
    /// Duration of a lease that is not renewed; after it, another instance may load the key.
    pub lease: Duration,
    /// Interval at which the instance that loads renews its lease.
    pub heartbeat: Duration,
    /// Maximum time for which a lease is renewed.
    pub hard_limit: Duration,
    /// Lease terms of single sites or caches, by namespace of the key; they replace the three
    /// durations above.
    pub lease_overrides: HashMap<Box<[u8]>, LeaseTerms>,
    /// Maximum time without confirmation that no purge was missed; after it, stored entries count
    /// as unverified.
    pub bus_silence_max: Duration,
    /// Approximate number of purges that Redis keeps on the bus.
    pub bus_length: u64,
    /// True if writes and removals by other programs also invalidate entries here. Redis then sends
    /// each instance one message for each stored entry. A Redis Cluster does not support it.
    pub tracking: bool,
}

/// Durations of a lease, the right of one instance to load a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// Duration of the lease without renewal; after it, another instance may load the key.
    pub duration: Duration,
    /// Interval at which the instance that loads renews the lease.
    pub heartbeat: Duration,
    /// Maximum time for which the lease is renewed.
    pub hard_limit: Duration,
}

impl SharingSettings {
    /// Returns the lease terms for keys of this namespace.
    pub(crate) fn terms(&self, namespace: &[u8]) -> LeaseTerms {
        let Self { lease: duration, heartbeat, hard_limit, .. } = *self;
        let lease_overrides = self.lease_overrides.get(namespace).copied();
        lease_overrides.unwrap_or(LeaseTerms { duration, heartbeat, hard_limit })
    }
}

impl Default for SharingSettings {
    fn default() -> Self {
        let mut instance = [0; 16];
        // Without random numbers no lease can be created either, so nothing is shared then.
        let _ = SystemRandom::new().fill(&mut instance);
        Self {
            instance,
            lease: LEASE,
            heartbeat: HEARTBEAT,
            hard_limit: HARD_LIMIT,
            lease_overrides: HashMap::new(),
            bus_silence_max: BUS_SILENCE_MAX,
            bus_length: BUS_LENGTH,
            tracking: false,
        }
    }
}

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
