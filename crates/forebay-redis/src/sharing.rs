//! What instances share beside entries: loads, and purges.

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

/// Dead holders are noticed after this long.
const LEASE: Duration = Duration::from_millis(1_500);

/// A third of the lease: two of them may be lost.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// As long as a load takes by default at most.
const HARD_LIMIT: Duration = Duration::from_secs(60);

/// How long silence of the bus is trusted.
const BUS_SILENCE_MAX: Duration = Duration::from_secs(1);

/// How many purges the bus remembers: readers that are further behind have missed some.
const BUS_LENGTH: u64 = 16_384;

/// How loads and purges are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharingSettings {
    /// Who this is. No other instance may have the same; random by default.
    pub instance: [u8; 16],
    /// How long the right to load stands without a heartbeat.
    pub lease: Duration,
    /// How often it is kept up.
    pub heartbeat: Duration,
    /// How long it is kept up at most.
    pub hard_limit: Duration,
    /// The same for the keys of some namespaces, by what those begin with.
    pub lease_overrides: HashMap<Box<[u8]>, LeaseTerms>,
    /// How long what is held here counts as purged of all that it should be, without proof.
    pub bus_silence_max: Duration,
    /// About how many purges Redis remembers.
    pub bus_length: u64,
    /// Whether what other programs remove from Redis, or write over, goes here, too. It costs Redis
    /// a message to each instance for each entry that is stored, and is not to be had of a Cluster.
    pub tracking: bool,
}

/// How long one right to load stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// Without a heartbeat.
    pub duration: Duration,
    /// How often it is kept up.
    pub heartbeat: Duration,
    /// How long it is kept up at most.
    pub hard_limit: Duration,
}

impl SharingSettings {
    /// How long the right to load what belongs to a namespace stands.
    pub(crate) fn terms(&self, namespace: &[u8]) -> LeaseTerms {
        let Self { lease: duration, heartbeat, hard_limit, .. } = *self;
        let lease_overrides = self.lease_overrides.get(namespace).copied();
        lease_overrides.unwrap_or(LeaseTerms { duration, heartbeat, hard_limit })
    }
}

impl Default for SharingSettings {
    fn default() -> Self {
        let mut instance = [0; 16];
        // A system without random numbers could not make a lease either, and shares nothing then.
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

/// All that a tier has for it.
pub(crate) struct Sharing {
    pub(crate) settings: SharingSettings,
    /// As other instances know it.
    pub(crate) instance: String,
    pub(crate) wakeups: Arc<Wakeups>,
    /// The leases that are held here, by their tokens.
    pub(crate) held: Mutex<HashMap<[u8; 16], Arc<HeldLease>>>,
    pub(crate) bus: BusClient,
    /// What stands in Redis as far as is known here, if others may change it.
    pub(crate) tracked: Option<Arc<Tracked>>,
    random: SystemRandom,
    /// Where connections are driven.
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

    /// What stands in Redis under a name from now on, as this instance knows it.
    pub(crate) fn note(&self, name: &str, key: KeyRef<'_>, stamp: u64) {
        if let Some(tracked) = &self.tracked {
            tracked.note(name, key, stamp);
        }
    }

    /// For a token that tells one purge from another.
    pub(crate) fn random(&self) -> u64 {
        let mut random = [0; 8];
        // Without random numbers nothing is loaded under a lease either.
        let _ = self.random.fill(&mut random);
        u64::from_le_bytes(random)
    }
}

/// What the channels of all instances of a namespace begin with.
pub(crate) fn channels(namespace: &str) -> String {
    format!("{namespace}:i:")
}
