//! Set of small numbers, for rules and for their alternatives.

use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not};

/// Maximum number of members; also the maximum number of alternatives of all rules of a site.
pub(crate) const BITS: usize = 256;

const WORD: usize = 64;

/// Set of numbers below [`BITS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits([u64; BITS / WORD]);

impl Bits {
    /// The set without members.
    pub(crate) const NONE: Self = Self([0; BITS / WORD]);

    pub(crate) fn insert(&mut self, member: usize) {
        if let Some(word) = self.0.get_mut(member / WORD) {
            *word |= 1 << (member % WORD);
        }
    }

    pub(crate) fn remove(&mut self, member: usize) {
        if let Some(word) = self.0.get_mut(member / WORD) {
            *word &= !(1 << (member % WORD));
        }
    }

    pub(crate) fn contains(self, member: usize) -> bool {
        self.0.get(member / WORD).is_some_and(|word| word >> (member % WORD) & 1 == 1)
    }

    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.0[0] | self.0[1] | self.0[2] | self.0[3] == 0
    }

    /// Returns the largest member.
    pub(crate) fn last(self) -> Option<usize> {
        let (n, word) = self.0.iter().enumerate().rev().find(|(_, word)| **word != 0)?;
        Some(n * WORD + (WORD - 1 - word.leading_zeros() as usize))
    }

    /// Returns the members in ascending order.
    #[inline]
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        let (mut n, mut word) = (0, self.0[0]);
        std::iter::from_fn(move || {
            while word == 0 {
                n += 1;
                word = *self.0.get(n)?;
            }
            let bit = word.trailing_zeros() as usize;
            word &= word - 1;
            Some(n * WORD + bit)
        })
    }
}

impl BitAnd for Bits {
    type Output = Self;

    #[inline]
    fn bitand(mut self, other: Self) -> Self {
        self &= other;
        self
    }
}

impl BitOr for Bits {
    type Output = Self;

    #[inline]
    fn bitor(mut self, other: Self) -> Self {
        self |= other;
        self
    }
}

impl BitAndAssign for Bits {
    #[inline]
    fn bitand_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= other);
    }
}

impl BitOrAssign for Bits {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
    }
}

impl Not for Bits {
    type Output = Self;

    #[inline]
    fn not(self) -> Self {
        Self(self.0.map(|word| !word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_returned_in_order() {
        let members = [0, 1, 63, 64, 127, 128, 200, 255];
        let mut bits = Bits::NONE;
        assert!(bits.is_empty() && bits.last().is_none());
        for member in members.iter().rev() {
            bits.insert(*member);
        }
        assert_eq!(bits.iter().collect::<Vec<_>>(), members);
        assert_eq!(bits.last(), Some(255));
        bits.remove(255);
        assert_eq!((bits.last(), bits.contains(200), bits.contains(255)), (Some(200), true, false));
        assert_eq!((!bits & bits, !bits | bits), (Bits::NONE, !Bits::NONE));
    }
}
