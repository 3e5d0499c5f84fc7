//! Settings for sharing leases and purges with other instances.

use std::collections::HashMap;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

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
    /// Default: 1.5 s.
    pub lease: Duration,
    /// Interval at which the instance that loads renews its lease. Default: 500 ms.
    pub heartbeat: Duration,
    /// Maximum time for which a lease is renewed. Default: 60 s.
    pub hard_limit: Duration,
    /// Lease terms for keys of single namespaces (site ids or cache names). They replace `lease`,
    /// `heartbeat` and `hard_limit`.
    pub lease_overrides: HashMap<Box<[u8]>, LeaseTerms>,
    /// Maximum time without confirmation that no purge was missed; after it, stored entries count
    /// as unverified. Default: 1 s.
    pub bus_silence_max: Duration,
    /// Approximate number of purges that Redis keeps on the bus. An instance that is further behind
    /// has missed some. Default: 16,384.
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
