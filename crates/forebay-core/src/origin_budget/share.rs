//! Fair parts of an amount that several members want.

/// Parts below this size differ by more than 20 percent if some have one more.
const SMALL_PART: u64 = 5;

/// Place of a member among all, by which a remainder is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// Number of other members before this one: the first of the others.
    pub(super) position: usize,
    pub(super) round: u64,
}

/// Returns the part of one member: max-min fairness. Nobody gets more than it wants while another
/// one gets less and wants more. If all get what they want, each member has an equal part of the
/// rest in reserve, and one such part is left for a new member.
///
/// The remainder of small parts goes round, so that the parts are equal over time.
pub(super) fn fair_share(
    total: u64,
    mine: u64,
    others: impl Iterator<Item = u64> + Clone,
    standing: Standing,
) -> u64 {
    let mut wanted: Vec<u64> = others.clone().chain([mine]).collect();
    let members = wanted.len() as u64;
    wanted.sort_unstable();
    let (mut left, mut unserved) = (total, members);
    for want in wanted {
        let level = left / unserved;
        if want > level {
            let before = others.take(standing.position).filter(|want| *want > level).count();
            let is_unserved = mine > level;
            let takes_one = is_unserved && gets_one(left, unserved, before as u64, standing.round);
            return mine.min(level) + u64::from(takes_one);
        }
        left -= want;
        unserved -= 1;
    }
    mine + left / (members + 1)
}

/// Returns `true` if a member gets one of the remainder of `left / unserved`. `before` of these
/// members are before it.
fn gets_one(left: u64, unserved: u64, before: u64, round: u64) -> bool {
    // In larger parts, one more makes little difference, and nothing need move.
    let shift = if left < SMALL_PART * unserved { round } else { 0 };
    before.wrapping_add(shift) % unserved < left % unserved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(total: u64, wanted: &[u64], round: u64) -> Vec<u64> {
        let part = |index: usize| {
            let others = wanted.iter().enumerate().filter(|(other, _)| *other != index);
            let others = others.map(|(_, want)| *want);
            let standing = Standing { position: index, round };
            fair_share(total, wanted[index], others, standing)
        };
        (0..wanted.len()).map(part).collect()
    }

    #[test]
    fn parts_are_max_min_fair() {
        for (total, wanted, expected) in [
            (64, &[0][..], &[32][..]),
            (64, &[64], &[64]),
            (64, &[640, 640, 640, 640], &[16, 16, 16, 16]),
            (64, &[4, 640, 640, 640], &[4, 20, 20, 20]),
            (64, &[4, 8, 640], &[4, 8, 52]),
            (64, &[0, 0, 0], &[16, 16, 16]),
            (64, &[10, 6, 0], &[22, 18, 12]),
            (7, &[9, 9, 9, 9], &[2, 2, 2, 1]),
            (0, &[9, 9], &[0, 0]),
        ] {
            assert_eq!(parts(total, wanted, 0), expected, "{total} {wanted:?}");
        }
    }

    #[test]
    fn the_remainder_of_small_parts_goes_round() {
        let mut sums = [0; 4];
        for round in 0..40 {
            let parts = parts(7, &[9, 9, 9, 9], round);
            assert_eq!(parts.iter().sum::<u64>(), 7);
            sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        }
        assert_eq!(sums, [70; 4]);
    }

    #[test]
    fn parts_never_exceed_the_amount() {
        for total in 0..40 {
            for wanted in [&[1, 2, 3][..], &[0, 0], &[7, 7, 7, 7, 7], &[100, 1, 50], &[0, 90, 3]] {
                for round in 0..5 {
                    let sum: u64 = parts(total, wanted, round).iter().sum();
                    assert!(sum <= total, "{total} {wanted:?} {round}: {sum}");
                }
            }
        }
    }
}
