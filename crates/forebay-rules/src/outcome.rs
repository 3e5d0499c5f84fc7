//! Rules that apply to a request or response, and the values of their settings.

use crate::bits::Bits;
use crate::compile::RuleSet;
use crate::edit::Edits;
use crate::json::JsonCut;
use crate::purge::PurgeRule;
use crate::rule::Rule;
use crate::setting::{Kind, KindSet, Redirect, Respond, Setting};

/// Rules that apply, and the settings that they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    /// Rules that match both readings of the path.
    both: Bits,
    /// Rules that match one of them.
    either: Bits,
    /// Settings that apply. Most questions about a request end here.
    kinds: KindSet,
}

/// Rules that apply to a request or response.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'r> {
    set: &'r RuleSet,
    applied: Applied,
}

/// Response that a rule makes in place of the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ended<'r> {
    /// A redirect.
    Redirect(&'r Redirect),
    /// A fixed response.
    Respond(&'r Respond),
}

impl Applied {
    pub(crate) const NONE: Self =
        Self { both: Bits::NONE, either: Bits::NONE, kinds: KindSet::of(&[]) };

    /// Rules that match the first and the second reading of the path.
    pub(crate) fn new(set: &RuleSet, first: Bits, second: Bits) -> Self {
        let (both, either) = (first & second, first | second);
        let mut kinds = set.kinds_of(both);
        if first != second {
            kinds = kinds.union(set.kinds_of(either).common(KindSet::WIDE));
        }
        Self { both, either, kinds }
    }
}

impl<'r> Outcome<'r> {
    #[inline]
    pub(crate) const fn new(set: &'r RuleSet, applied: Applied) -> Self {
        Self { set, applied }
    }

    /// Returns the outcome of no rules.
    #[must_use]
    pub const fn none(set: &'r RuleSet) -> Self {
        Self::new(set, Applied::NONE)
    }

    /// Returns true if no rule applies, not even with the settings that need only one reading of
    /// the path.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.applied.either.is_empty()
    }

    /// Returns the numbers (from 0) of the rules that apply with all settings, because they match
    /// all readings of the path.
    pub fn rules(&self) -> impl Iterator<Item = usize> {
        self.applied.both.iter()
    }

    /// Returns true if one of these settings applies. A `respond` may apply if a rule with it
    /// matches one reading of the path; [`ended`](Self::ended) decides.
    #[inline]
    #[must_use]
    pub fn has_any(&self, kinds: &[Kind]) -> bool {
        !self.applied.kinds.common(KindSet::of(kinds)).is_empty()
    }

    /// Returns the rules that apply and have a setting.
    #[inline]
    fn with(&self, kind: Kind) -> Bits {
        if !self.applied.kinds.has(kind) {
            return Bits::NONE;
        }
        let Applied { both, either, .. } = self.applied;
        let rules = if KindSet::WIDE.has(kind) { either } else { both };
        rules & self.set.having(kind)
    }

    /// Returns the value of a setting in the last rule that applies and has it.
    #[inline]
    #[must_use]
    pub fn last(&self, kind: Kind) -> Option<&'r Setting> {
        self.rule_of(kind).and_then(|rule| rule.setting(kind))
    }

    /// Returns the last rule that applies and has a setting.
    #[inline]
    #[must_use]
    pub fn rule_of(&self, kind: Kind) -> Option<&'r Rule> {
        if !self.applied.kinds.has(kind) {
            return None;
        }
        self.set.rules.get(self.with(kind).last()?)
    }

    /// Returns all values of a setting, in file order.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &'r Setting> {
        let set = self.set;
        self.with(kind).iter().filter_map(move |n| set.rules.get(n)?.setting(kind))
    }

    /// Returns the numbers (from 0) of the rules that apply and have a setting, in file order.
    pub fn numbers(&self, kind: Kind) -> impl Iterator<Item = usize> {
        self.with(kind).iter()
    }

    /// Returns the edits of a setting in file order, each with the number (from 0) of its rule.
    pub fn edits(&self, kind: Kind) -> impl Iterator<Item = (usize, &'r Edits)> {
        let edits = self.all(kind).filter_map(|setting| match setting {
            Setting::ClientRequest(edits)
            | Setting::CacheRequest(edits)
            | Setting::OriginRequest(edits)
            | Setting::OriginResponse(edits)
            | Setting::CacheResponse(edits)
            | Setting::ClientResponse(edits) => Some(edits),
            _ => None,
        });
        self.numbers(kind).zip(edits)
    }

    /// Returns true if the request bypasses the cache. `bypass = true` applies if it matches one
    /// reading of the path, `bypass = false` only if it matches both.
    #[must_use]
    pub fn bypasses(&self) -> bool {
        if (self.applied.either & self.set.bypasses).is_empty() {
            return false;
        }
        let mut bypasses = false;
        for n in self.with(Kind::Bypass).iter() {
            match self.set.rules[n].setting(Kind::Bypass) {
                Some(Setting::Bypass(true)) => bypasses = true,
                Some(Setting::Bypass(false)) if self.applied.both.contains(n) => bypasses = false,
                _ => {}
            }
        }
        bypasses
    }

    /// Returns the cuts of JSON bodies, in file order.
    pub fn json_cuts(&self) -> impl Iterator<Item = &'r JsonCut> {
        self.all(Kind::Json).filter_map(|setting| match setting {
            Setting::Json(cut) => Some(cut),
            _ => None,
        })
    }

    /// Returns the purge of the first rule that has one.
    #[must_use]
    pub fn purge(&self) -> Option<&'r PurgeRule> {
        self.all(Kind::Purge).find_map(|setting| match setting {
            Setting::Purge(purge) => Some(purge),
            _ => None,
        })
    }

    /// Returns the response of the first rule that ends the request. A client error applies if the
    /// rule matches one reading of the path, other responses only if it matches both. A redirect
    /// applies only if its `from` is found in `path`.
    #[must_use]
    pub fn ended(&self, path: &str) -> Option<Ended<'r>> {
        let set = self.set;
        let Applied { both, .. } = self.applied;
        let rules = self.with(Kind::Redirect) | self.with(Kind::Respond);
        rules.iter().find_map(|n| {
            let rule = &set.rules[n];
            if let Some(Setting::Respond(respond)) = rule.setting(Kind::Respond)
                && (both.contains(n) || respond.status.is_client_error())
            {
                return Some(Ended::Respond(respond));
            }
            match rule.setting(Kind::Redirect) {
                Some(Setting::Redirect(redirect)) if both.contains(n) => {
                    let from = redirect.from.as_ref();
                    let is_meant = from.is_none_or(|from| from.is_match(path.as_bytes()));
                    is_meant.then_some(Ended::Redirect(redirect))
                }
                _ => None,
            }
        })
    }
}
