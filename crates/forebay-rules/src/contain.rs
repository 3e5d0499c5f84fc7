//! Proofs about rules: one contains the other, both can match, one never matches.
//!
//! Paths are compared as automata. A proof that would take too long fails, and then nothing is
//! claimed.

use std::collections::HashSet;

use regex_automata::dfa::{Automaton, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, util::start};

use crate::glob::NamePattern;
use crate::pattern::{automaton, whole};
use crate::rule::{Condition, Extension, HostName, Rule, Tests};

/// Maximum number of pairs of states of one proof.
const PAIRS_MAX: usize = 20_000;

/// Returns true if every request that `inner` matches is proved to be matched by `outer`.
pub(crate) fn contains(outer: &Rule, inner: &Rule) -> bool {
    let excepted = outer.unless.iter().all(|condition| inner.unless.contains(condition));
    let clauses = |rule: &Rule| match &*rule.when {
        [] => vec![Vec::new()],
        all => all.to_vec(),
    };
    let outer = clauses(outer);
    excepted
        && clauses(inner)
            .iter()
            .all(|inner| outer.iter().any(|outer| clause_contains(outer, inner)))
}

fn clause_contains(outer: &[Condition], inner: &[Condition]) -> bool {
    outer.iter().all(|outer| inner.iter().any(|inner| implies(inner, outer)))
}

/// Returns true if `one` holding is proved to mean that `other` holds.
pub(crate) fn implies(one: &Condition, other: &Condition) -> bool {
    if one == other {
        return true;
    }
    match (one, other) {
        (Condition::Method(one), Condition::Method(other)) => is_subset(one, other),
        (Condition::Scheme(one), Condition::Scheme(other)) => is_subset(one, other),
        (Condition::Device(one), Condition::Device(other)) => is_subset(one, other),
        (Condition::GraphQl(one), Condition::GraphQl(other)) => is_subset(one, other),
        (Condition::Host(one), Condition::Host(other)) => {
            one.iter().all(|one| other.iter().any(|other| host_implies(one, other)))
        }
        (Condition::Extension(one), Condition::Extension(other)) => {
            other.contains(&Extension::Any) || is_subset(one, other)
        }
        (Condition::Query(one), Condition::Query(other))
        | (Condition::Cookie(one), Condition::Cookie(other))
        | (Condition::Header(one), Condition::Header(other)) => tests_imply(one, other),
        (one, other) => match (path_sources(one), path_sources(other)) {
            (Some(one), Some(other)) => compare(&one, &other, Question::Contained) == Some(true),
            _ => false,
        },
    }
}

fn is_subset<T: PartialEq>(one: &[T], other: &[T]) -> bool {
    one.iter().all(|member| other.contains(member))
}

fn host_implies(one: &HostName, other: &HostName) -> bool {
    match (one, other) {
        (HostName::Exact(host), other) => other.matches(host),
        (HostName::Below(one), HostName::Below(two)) => {
            one == two || HostName::Below(two.clone()).matches(one)
        }
        (HostName::Below(_), HostName::Exact(_)) => false,
    }
}

fn tests_imply(one: &Tests, other: &Tests) -> bool {
    match (one, other) {
        (Tests::Any(one), Tests::Any(other)) => {
            let covers = |name: &NamePattern| other.iter().any(|other| name_implies(name, other));
            one.iter().all(covers)
        }
        (Tests::All(one), Tests::All(other)) => is_subset(other, one),
        _ => false,
    }
}

fn name_implies(one: &NamePattern, other: &NamePattern) -> bool {
    match (one, other) {
        (NamePattern::Exact(name), other) => other.matches(name),
        (NamePattern::Prefix(one), NamePattern::Prefix(other)) => one.starts_with(&**other),
        (NamePattern::Prefix(_), NamePattern::Exact(_)) => false,
    }
}

/// Returns the expressions of a condition on the whole path.
fn path_sources(condition: &Condition) -> Option<Vec<String>> {
    match condition {
        Condition::Path(globs) => Some(globs.iter().map(crate::PathGlob::to_regex).collect()),
        Condition::PathRegex(patterns) => Some(patterns.iter().map(whole).collect()),
        Condition::Extension(extensions) => {
            let source = |extension: &Extension| match extension {
                Extension::Any => r"\A(?s-u:(?:.*/)?[^/]+\.[^/.]+)\z".to_owned(),
                Extension::Exact(name) => {
                    format!(r"\A(?s-u:(?:.*/)?[^/]+\.(?i:{}))\z", regex_syntax::escape(name))
                }
            };
            Some(extensions.iter().map(source).collect())
        }
        _ => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// Every text of the first is one of the second.
    Contained,
    /// No text is one of both.
    Disjoint,
}

/// Answers a question about two sets of expressions. `None` if that would take too long.
fn compare(one: &[String], other: &[String], question: Question) -> Option<bool> {
    let (one, other) = (automaton(one)?, automaton(other)?);
    let config = start::Config::new().anchored(Anchored::Yes);
    let begin = (one.start_state(&config).ok()?, other.start_state(&config).ok()?);
    let mut seen = HashSet::from([begin]);
    let mut open = vec![begin];
    while let Some((a, b)) = open.pop() {
        let contradicts = match question {
            Question::Contained => accepts(&one, a) && !accepts(&other, b),
            Question::Disjoint => accepts(&one, a) && accepts(&other, b),
        };
        if contradicts {
            return Some(false);
        }
        for byte in 0..=u8::MAX {
            let next = (one.next_state(a, byte), other.next_state(b, byte));
            let ends = one.is_dead_state(next.0)
                || question == Question::Disjoint && other.is_dead_state(next.1);
            if ends || !seen.insert(next) {
                continue;
            }
            if seen.len() > PAIRS_MAX {
                return None;
            }
            open.push(next);
        }
    }
    Some(true)
}

fn accepts(automaton: &dense::DFA<Vec<u32>>, state: StateID) -> bool {
    automaton.is_match_state(automaton.next_eoi_state(state))
}

/// Returns true if no request can match the rule.
pub(crate) fn never_matches(rule: &Rule) -> bool {
    let is_excepted = |clause: &[Condition]| {
        rule.unless.iter().any(|exception| clause.iter().any(|one| implies(one, exception)))
    };
    let contradicts = |clause: &[Condition]| {
        let paths: Vec<Vec<String>> = clause.iter().filter_map(path_sources).collect();
        let pairs =
            paths.iter().enumerate().flat_map(|(n, a)| paths[..n].iter().map(move |b| (a, b)));
        pairs.into_iter().any(|(a, b)| compare(a, b, Question::Disjoint) == Some(true))
    };
    let is_never = |clause: &Vec<Condition>| is_excepted(clause) || contradicts(clause);
    !rule.when.is_empty() && rule.when.iter().all(is_never)
}

/// Returns true if some request is proved to match both rules. Rules with conditions that are not
/// compared as sets are not proved to.
pub(crate) fn intersect(one: &Rule, other: &Rule) -> bool {
    let ([one], [other]) = (&*one.when, &*other.when) else { return false };
    let names = |clause: &[Condition]| clause.iter().map(Condition::name).collect::<Vec<_>>();
    names(one) == names(other) && one.iter().zip(other).all(|(one, other)| meet(one, other))
}

fn meet(one: &Condition, other: &Condition) -> bool {
    fn share<T: PartialEq>(one: &[T], other: &[T]) -> bool {
        one.iter().any(|member| other.contains(member))
    }
    match (one, other) {
        (Condition::Method(one), Condition::Method(other)) => share(one, other),
        (Condition::Scheme(one), Condition::Scheme(other)) => share(one, other),
        (Condition::Extension(one), Condition::Extension(other)) => share(one, other),
        (Condition::Host(one), Condition::Host(other)) => one.iter().any(|one| {
            other.iter().any(|other| host_implies(one, other) || host_implies(other, one))
        }),
        (one, other) => match (path_sources(one), path_sources(other)) {
            (Some(one), Some(other)) => compare(&one, &other, Question::Disjoint) == Some(false),
            _ => false,
        },
    }
}
