//! Request fields without which a clause cannot match.

use forebay_semantics::FieldLines;

use super::tables::Clause;
use crate::bits::Bits;
use crate::glob::NamePattern;
use crate::rule::{Condition, Tests, ValueTest};

/// Request fields that clauses need. One pass over the names of a request answers the conditions on
/// fields that it does not have, which are most of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldNeeds {
    /// Digests of names, of which one must be present, and the clauses that need it.
    needs: Vec<(Names, Bits)>,
    /// All clauses that need a field.
    clauses: Bits,
}

/// Number of digests.
const NAMES: usize = 64;

/// Set of digests of names. Names with equal digests cannot be told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Names(u64);

impl Names {
    /// Set of one name, in any letter case.
    #[inline]
    fn of(name: &[u8]) -> Self {
        let at = |n: usize| name.get(n).map_or(0, |byte| usize::from(byte | 0x20));
        let (middle, last) = (at(name.len() / 2), at(name.len().wrapping_sub(1)));
        // Any function does; this one separates the usual fields.
        let digest = at(0).wrapping_mul(7) ^ middle.wrapping_mul(13) ^ last.wrapping_mul(29);
        Self(1 << (digest.wrapping_add(name.len()) % NAMES))
    }

    const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl FieldNeeds {
    /// Collects what the clauses need.
    pub(super) fn of(clauses: &[Clause]) -> Self {
        let mut all = Self::default();
        for (n, clause) in clauses.iter().enumerate() {
            for names in clause.tests.iter().filter_map(needed) {
                all.clauses.insert(n);
                match all.needs.iter_mut().find(|(known, _)| *known == names) {
                    Some((_, bits)) => bits.insert(n),
                    None => {
                        let mut bits = Bits::NONE;
                        bits.insert(n);
                        all.needs.push((names, bits));
                    }
                }
            }
        }
        all
    }

    /// Returns clauses that cannot match because the request has no field that they need. `clauses`
    /// are those that may match.
    pub(crate) fn unmet(&self, clauses: Bits, headers: &impl FieldLines) -> Bits {
        let mut unmet = Bits::NONE;
        if (clauses & self.clauses).is_empty() {
            return unmet;
        }
        let all = headers.all();
        let present = all.fold(Names::default(), |all, (name, _)| all.union(Names::of(name)));
        for (names, bits) in &self.needs {
            if !present.meets(*names) {
                unmet |= *bits;
            }
        }
        unmet
    }
}

/// Returns names of which a request must have one for a condition to hold; `None` if it may hold
/// without.
fn needed(condition: &Condition) -> Option<Names> {
    let exact = |name: &NamePattern| match name {
        NamePattern::Exact(name) => Some(Names::of(name.as_bytes())),
        NamePattern::Prefix(_) => None,
    };
    let Condition::Header(tests) = condition else { return None };
    match tests {
        Tests::Any(names) => {
            names.iter().map(exact).try_fold(Names::default(), |all, name| Some(all.union(name?)))
        }
        Tests::All(tests) => {
            let mut present = tests.iter().filter(|(_, test)| *test != ValueTest::Absent);
            present.find_map(|(name, _)| exact(name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_in_any_letter_case() {
        for (one, other) in [("x-a", "X-A"), ("Accept-Language", "accept-language"), ("", "")] {
            assert_eq!(Names::of(one.as_bytes()), Names::of(other.as_bytes()));
        }
    }

    #[test]
    fn conditions_need_the_fields_that_they_test() {
        let name = |text: &str| NamePattern::parse(text).unwrap();
        let of = |text: &str| Names::of(text.as_bytes());
        let any = |texts: &[&str]| {
            needed(&Condition::Header(Tests::Any(texts.iter().map(|text| name(text)).collect())))
        };
        assert_eq!(any(&["a", "b"]), Some(of("a").union(of("b"))));
        assert_eq!(any(&["a", "b*"]), None);
        let all = |tests| needed(&Condition::Header(Tests::All(tests)));
        let (absent, present) = (ValueTest::Absent, ValueTest::Present);
        assert_eq!(all(vec![(name("a"), absent.clone())]), None);
        assert_eq!(all(vec![(name("a"), absent), (name("b"), present.clone())]), Some(of("b")));
        assert_eq!(all(vec![(name("a*"), present)]), None);
    }
}
