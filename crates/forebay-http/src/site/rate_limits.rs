//! Rate limit per client address.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use forebay_core::Timestamp;
use forebay_core::rate::{BucketFull, RateLimit};
use forebay_semantics::PeerAddress;
use parking_lot::Mutex;

use crate::settings::RateLimitSettings;

/// Number of sets of the table. The keys are hashed with a random seed, so that a client cannot
/// choose its set.
const SETS: usize = 8_192;

/// Number of clients in one set.
const WAYS: usize = 8;

/// Requests of clients by address, IPv6 by /64. The table has [`SETS`] × [`WAYS`] rows; a new client
/// replaces the one of its set that has the fewest requests left to wait for.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    settings: RateLimitSettings,
    seeds: RandomState,
    sets: Box<[Mutex<[Row; WAYS]>]>,
}

/// One client: the hash of its address, and its state.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    client: u64,
    state: BucketFull,
}

impl RateLimiter {
    pub(crate) fn new(settings: RateLimitSettings) -> Self {
        let sets = std::iter::repeat_with(Mutex::default).take(SETS).collect();
        Self { settings, seeds: RandomState::new(), sets }
    }

    pub(crate) const fn settings(&self) -> RateLimitSettings {
        self.settings
    }

    /// Returns `true` if requests are counted that a fresh stored response answers.
    pub(crate) const fn counts_hits(&self) -> bool {
        !self.settings.exempts_hits
    }

    /// Counts a request of a client.
    ///
    /// # Errors
    /// The time after which the client may send another request, if it has sent too many.
    pub(crate) fn admit(&self, client: PeerAddress, now: Timestamp) -> Result<(), Duration> {
        self.with_row(client, |limit, row| {
            row.state = limit.admit(row.state, now)?;
            Ok(())
        })
    }

    /// Returns `true` if [`Self::admit`] would admit a request, without counting it.
    pub(crate) fn would_admit(&self, client: PeerAddress, now: Timestamp) -> bool {
        self.wait(client, now).is_none()
    }

    /// Returns the time after which the client may send another request; `None` if it may now. The
    /// request is not counted.
    pub(crate) fn wait(&self, client: PeerAddress, now: Timestamp) -> Option<Duration> {
        self.with_row(client, |limit, row| limit.admit(row.state, now).err())
    }

    fn with_row<T>(
        &self,
        client: PeerAddress,
        use_row: impl FnOnce(RateLimit, &mut Row) -> T,
    ) -> T {
        let hash = self.seeds.hash_one(client.for_limits());
        // The upper bits select the set, so that they do not have to differ within it.
        let at = usize::try_from(hash >> 32).unwrap_or_default() % SETS;
        let mut set = self.sets[at].lock();
        let known = set.iter().position(|row| row.client == hash);
        let at = known.unwrap_or_else(|| {
            let free = (0..WAYS).min_by_key(|at| set[*at].state).unwrap_or_default();
            set[free] = Row { client: hash, ..Row::default() };
            free
        });
        use_row(self.settings.limit, &mut set[at])
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    fn limiter(burst: u32) -> RateLimiter {
        let limit = RateLimit::new(1, Duration::from_secs(10), burst);
        RateLimiter::new(RateLimitSettings { limit, exempts_hits: false })
    }

    fn v4(number: u32) -> PeerAddress {
        IpAddr::V4(Ipv4Addr::from_bits(number)).into()
    }

    #[test]
    fn clients_do_not_use_up_the_requests_of_others() {
        let limiter = limiter(2);
        let now = Timestamp::from_millis(0);
        for number in 0..1_000 {
            assert!(limiter.would_admit(v4(number), now));
            assert_eq!(limiter.admit(v4(number), now), Ok(()));
            assert_eq!(limiter.admit(v4(number), now), Ok(()));
            assert!(!limiter.would_admit(v4(number), now));
            assert_eq!(limiter.admit(v4(number), now), Err(Duration::from_secs(10)));
        }
        let later = Timestamp::from_millis(10_000);
        assert_eq!(limiter.admit(v4(7), later), Ok(()));
    }

    #[test]
    fn a_network_of_version_6_is_one_client() {
        let limiter = limiter(1);
        let now = Timestamp::from_millis(0);
        let v6 = |text: &str| PeerAddress::from(IpAddr::V6(text.parse::<Ipv6Addr>().unwrap()));
        assert!(limiter.admit(v6("2001:db8::1"), now).is_ok());
        assert!(limiter.admit(v6("2001:db8::ffff:1"), now).is_err());
        assert!(limiter.admit(v6("2001:db8:0:1::1"), now).is_ok());
        assert!(limiter.admit(v6("::ffff:192.0.2.1"), now).is_ok());
        assert!(limiter.admit("192.0.2.1".parse::<IpAddr>().unwrap().into(), now).is_err());
    }

    #[test]
    fn a_flood_of_addresses_does_not_free_a_busy_one() {
        let limiter = limiter(1_000);
        let (busy, now) = (v4(u32::MAX), Timestamp::from_millis(0));
        for _ in 0..1_000 {
            limiter.admit(busy, now).unwrap();
        }
        // More clients than rows, each with one request.
        for number in 0..4 * u32::try_from(SETS * WAYS).unwrap() {
            limiter.admit(v4(number), now).unwrap();
        }
        assert!(limiter.admit(busy, now).is_err());
    }
}
