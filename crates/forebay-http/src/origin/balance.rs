//! Choice among the endpoints of an origin.

use twox_hash::XxHash3_64;

/// Factor above the mean number of requests in flight at which `hash` takes the next endpoint.
const LOAD_MAX: f64 = 1.25;

/// Set of endpoints by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EndpointSet(u64);

impl EndpointSet {
    /// Maximum number of endpoints.
    pub(super) const MAX: usize = u64::BITS as usize;

    /// Returns the set of the first `count` endpoints.
    pub(super) const fn first(count: usize) -> Self {
        if count >= Self::MAX { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    pub(super) const fn has(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn with(self, index: usize) -> Self {
        Self(self.0 | (1 << index))
    }

    pub(super) const fn without(self, index: usize) -> Self {
        Self(self.0 & !(1 << index))
    }

    pub(super) const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) const fn count(self) -> u32 {
        self.0.count_ones()
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        let next = |set: &u64| Some(set & set.wrapping_sub(1)).filter(|_| *set != 0);
        let sets = std::iter::successors(Some(self.0).filter(|set| *set != 0), move |set| {
            next(set).filter(|rest| *rest != 0)
        });
        sets.map(|set| set.trailing_zeros() as usize)
    }
}

/// Load of one endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Number of requests in flight.
    pub(super) in_flight: usize,
    /// Share of the requests, relative to the other endpoints; above zero.
    pub(super) weight: f64,
}

impl Load {
    fn per_weight(self) -> f64 {
        self.in_flight as f64 / self.weight
    }
}

/// Returns the first endpoint of a set.
pub(super) fn first(among: EndpointSet) -> Option<usize> {
    among.iter().next()
}

/// Draws two endpoints, each with the probability of its weight, and returns the one with fewer
/// requests in flight per weight. `dice` returns numbers from 0 to 1.
pub(super) fn least(
    among: EndpointSet,
    load: impl Fn(usize) -> Load,
    mut dice: impl FnMut() -> f64,
) -> Option<usize> {
    let one = drawn(among, &load, dice())?;
    let Some(other) = drawn(among.without(one), &load, dice()) else { return Some(one) };
    let is_other = load(other).per_weight() < load(one).per_weight();
    Some(if is_other { other } else { one })
}

/// Returns an endpoint of a set with the probability of its weight.
fn drawn(among: EndpointSet, load: impl Fn(usize) -> Load, dice: f64) -> Option<usize> {
    let total: f64 = among.iter().map(|index| load(index).weight).sum();
    let mut left = dice * total;
    let mut last = None;
    for index in among.iter() {
        last = Some(index);
        left -= load(index).weight;
        if left < 0.0 {
            break;
        }
    }
    last
}

/// Returns the endpoint with the highest score for a key (rendezvous hashing) whose load is not above
/// [`LOAD_MAX`] times the mean. A removed endpoint moves only its own keys. `seed` returns the hash of
/// the endpoint's name.
pub(super) fn hash(
    among: EndpointSet,
    load: impl Fn(usize) -> Load,
    seed: impl Fn(usize) -> u64,
    key: u64,
) -> Option<usize> {
    let sum = |(in_flight, weight): (usize, f64), one: Load| {
        (in_flight + one.in_flight, weight + one.weight)
    };
    let (in_flight, weight) = among.iter().map(&load).fold((0, 0.0), sum);
    let mean = (in_flight + 1) as f64 / weight;
    let has_room = |one: Load| {
        let most = (LOAD_MAX * mean * one.weight).ceil();
        (one.in_flight + 1) as f64 <= most
    };
    let score = |index: usize| {
        // From 0 to 1, both excluded.
        let hash = XxHash3_64::oneshot_with_seed(seed(index), &key.to_le_bytes());
        let unit = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -load(index).weight / unit.ln()
    };
    let best = |indexes: &mut dyn Iterator<Item = usize>| {
        let scored = indexes.map(|index| (index, score(index)));
        scored.max_by(|one, other| one.1.total_cmp(&other.1)).map(|(index, _)| index)
    };
    best(&mut among.iter().filter(|index| has_room(load(*index))))
        .or_else(|| best(&mut among.iter()))
}

/// Hash of a host and a target. It is the same in each process and version, so that instances agree.
pub(super) fn key_hash(host: &[u8], target: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(host), target)
}

/// Hash of the name of an endpoint.
pub(super) fn endpoint_hash(name: &str) -> u64 {
    XxHash3_64::oneshot(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(_: usize) -> Load {
        Load { in_flight: 0, weight: 1.0 }
    }

    fn seed(index: usize) -> u64 {
        endpoint_hash(&format!("10.0.0.{index}:80"))
    }

    fn key(number: u32) -> u64 {
        key_hash(b"shop.example", format!("/{number}").as_bytes())
    }

    #[test]
    fn a_set_lists_its_endpoints_in_order() {
        let listed = |set: EndpointSet| set.iter().collect::<Vec<_>>();
        assert!(listed(EndpointSet::default()).is_empty());
        assert_eq!(listed(EndpointSet::first(4).without(1)), [0, 2, 3]);
        assert_eq!(EndpointSet::first(64).count(), 64);
        assert_eq!(listed(EndpointSet::first(64)).last(), Some(&63));
        assert_eq!(first(EndpointSet::first(3).without(0)), Some(1));
        assert_eq!(first(EndpointSet::default()), None);
    }

    #[test]
    fn least_prefers_fewer_requests_in_flight_per_weight() {
        let load = |index: usize| match index {
            0 => Load { in_flight: 3, weight: 2.0 },
            _ => Load { in_flight: 2, weight: 1.0 },
        };
        let both = EndpointSet::first(2);
        for dice in [0.0, 0.5, 0.99] {
            assert_eq!(least(both, load, || dice), Some(0), "{dice}");
        }
        assert_eq!(least(both.without(0), load, || 0.5), Some(1));
        assert_eq!(least(EndpointSet::default(), load, || 0.5), None);
    }

    #[test]
    fn idle_endpoints_get_requests_in_proportion_to_their_weights() {
        let load = |index: usize| Load { in_flight: 0, weight: if index == 2 { 2.0 } else { 1.0 } };
        let mut random = fastrand::Rng::with_seed(7);
        let mut counts = [0_u32; 3];
        for _ in 0..10_000 {
            counts[least(EndpointSet::first(3), load, || random.f64()).unwrap()] += 1;
        }
        assert!(counts[2] > 4_700 && counts[2] < 5_300, "{counts:?}");
        assert!(counts[0].abs_diff(counts[1]) < 400, "{counts:?}");
    }

    #[test]
    fn a_removed_endpoint_moves_only_its_own_keys() {
        let all = EndpointSet::first(4);
        let mut moved = 0;
        for number in 0..10_000 {
            let before = hash(all, idle, seed, key(number)).unwrap();
            let after = hash(all.without(2), idle, seed, key(number)).unwrap();
            assert!(before == after || before == 2, "{number}");
            moved += u32::from(before != after);
        }
        assert!(moved > 2_200 && moved < 2_800, "a quarter of the keys moves: {moved}");
    }

    #[test]
    fn a_heavier_endpoint_gets_more_keys() {
        let load = |index: usize| Load { in_flight: 0, weight: if index == 0 { 3.0 } else { 1.0 } };
        let chosen = (0..10_000).map(|number| hash(EndpointSet::first(2), load, seed, key(number)));
        let share = chosen.filter(|index| *index == Some(0)).count();
        assert!(share > 7_200 && share < 7_800, "{share}");
    }

    /// With popular keys, no endpoint has more than 1.25 times the mean in flight.
    #[test]
    fn popular_keys_do_not_overload_an_endpoint() {
        let mut in_flight = [0_usize; 4];
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..4_000 {
            // A tenth of the keys gets most of the requests.
            let number = if random.f64() < 0.9 { random.u32(0..3) } else { random.u32(0..1_000) };
            let load = |index: usize| Load { in_flight: in_flight[index], weight: 1.0 };
            let chosen = hash(EndpointSet::first(4), load, seed, key(number)).unwrap();
            in_flight[chosen] += 1;
        }
        assert!(in_flight.iter().all(|count| *count <= 1_250), "{in_flight:?}");
    }

    /// Another value would move the keys of a running fleet.
    #[test]
    fn the_hash_is_the_same_in_every_version() {
        assert_eq!(key_hash(b"shop.example", b"/a"), 9_990_034_777_286_225_760);
    }
}
