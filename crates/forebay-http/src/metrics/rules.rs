//! Metrics of the rules of sites.
//!
//! The counters belong to a site. A changed site continues those of its rules with equal names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_rules::setting::UnsafeWord;
use forebay_rules::{Kind, Rule, RuleSet, Setting};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::SiteLabel;
use super::responses::stripes;
use crate::record::thread_number::thread_number;
use crate::transform;

/// Kind of an error that a rule caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleError {
    /// The value of an edit was invalid or too long, and the edit was skipped.
    Value,
    /// A rewritten path or the target of a redirect was invalid.
    Target,
    /// The JSON body of a response could not be cut.
    Json,
    /// A value in the key was too long.
    Key,
    /// A request to purge had no right to.
    Purge,
    /// A transform failed.
    Transform,
}

impl RuleError {
    const ALL: [Self; 6] =
        [Self::Value, Self::Target, Self::Json, Self::Key, Self::Purge, Self::Transform];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Target => "target",
            Self::Json => "json",
            Self::Key => "key",
            Self::Purge => "purge",
            Self::Transform => "transform",
        }
    }

    /// Settings that can cause the error.
    const fn causes(self) -> &'static [Kind] {
        match self {
            Self::Value => &[
                Kind::ClientRequest,
                Kind::CacheRequest,
                Kind::OriginRequest,
                Kind::OriginResponse,
                Kind::CacheResponse,
                Kind::ClientResponse,
            ],
            Self::Target => &[Kind::Rewrite, Kind::Redirect],
            Self::Json => &[Kind::Json],
            Self::Key => &[Kind::Key],
            Self::Purge => &[Kind::Purge],
            // Of the rules that stand for transforms.
            Self::Transform => &[],
        }
    }
}

/// Counters of the rules of a site, in file order.
#[derive(Debug, Default)]
pub(crate) struct RuleCounters(Box<[Arc<RuleCounter>]>);

/// Counters of one rule.
#[derive(Debug)]
struct RuleCounter {
    name: Box<str>,
    matches: Box<[Matches]>,
    errors: [AtomicU64; RuleError::ALL.len()],
    unsafe_stored: [AtomicU64; UnsafeWord::ALL.len()],
}

/// Matches that the threads of one stripe have counted.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Matches(AtomicU64);

impl RuleCounter {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            matches: (0..stripes()).map(|_| Matches::default()).collect(),
            errors: Default::default(),
            unsafe_stored: Default::default(),
        }
    }
}

impl RuleCounters {
    /// Creates counters, and continues those of rules that `before` has.
    pub(crate) fn new(set: &RuleSet, before: &Self) -> Self {
        let counter = |rule: &Rule| {
            let known = before.0.iter().find(|known| known.name == rule.name);
            known.cloned().unwrap_or_else(|| Arc::new(RuleCounter::new(&rule.name)))
        };
        Self(set.rules().iter().map(counter).collect())
    }

    /// Counts a match of each of these rules.
    pub(crate) fn count_matches(&self, rules: impl Iterator<Item = usize>) {
        let stripe = thread_number();
        for counter in rules.filter_map(|n| self.0.get(n)) {
            let matches = &counter.matches[stripe % counter.matches.len()];
            matches.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts an error that a rule caused.
    pub(crate) fn count_error(&self, rule: usize, error: RuleError) {
        if let Some(counter) = self.0.get(rule) {
            counter.errors[error as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a response that is stored because a rule ignores a prohibition.
    pub(crate) fn count_unsafe(&self, rule: usize, word: UnsafeWord) {
        if let Some(counter) = self.0.get(rule) {
            counter.unsafe_stored[word as usize].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Rules of one site, with their counters.
pub(crate) struct SiteRules<'s> {
    pub(crate) site: &'s str,
    pub(crate) set: &'s RuleSet,
    pub(crate) counters: &'s RuleCounters,
}

#[derive(Debug, Default)]
pub(super) struct RuleMetrics {
    matches: Family<RuleLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    unsafe_stored: Family<WordLabels, Counter>,
    rules: Family<SiteLabel, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabels {
    site: Box<str>,
    rule: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    site: Box<str>,
    rule: Box<str>,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WordLabels {
    site: Box<str>,
    rule: Box<str>,
    word: &'static str,
}

impl RuleMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "rule_matches",
            "Requests that a rule matched; for a rule with conditions on the response, responses of \
             the origin",
            self.matches.clone(),
        );
        registry.register(
            "rule_errors",
            "Errors that a rule caused, by kind (value: edit skipped; target: 400; json: body not \
             cut; key: value too long, cache bypassed; purge: refused; transform: 500 or 502)",
            self.errors.clone(),
        );
        registry.register(
            "rule_unsafe_stored",
            "Responses that are stored only because a rule ignores a prohibition, by word",
            self.unsafe_stored.clone(),
        );
        registry.register(
            "rules",
            "Rules of a site, those for every site included",
            self.rules.clone(),
        );
    }

    /// Replaces all values by those of the current sites.
    pub(super) fn refresh<'s>(&self, sites: impl Iterator<Item = SiteRules<'s>>) {
        self.matches.clear();
        self.errors.clear();
        self.unsafe_stored.clear();
        self.rules.clear();
        for SiteRules { site, set, counters } in sites {
            let rules = set.rules();
            let count = i64::try_from(rules.len()).unwrap_or(i64::MAX);
            self.rules.get_or_create(&SiteLabel { site: site.into() }).set(count);
            for (rule, counter) in rules.iter().zip(&counters.0) {
                self.refresh_rule(site, rule, counter);
            }
        }
    }

    /// Exports the matches of a rule, and the errors and words that it can cause.
    fn refresh_rule(&self, site: &str, rule: &Rule, counter: &RuleCounter) {
        let (site, name) = (|| site.into(), || rule.name.clone());
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let matches = counter.matches.iter().map(|stripe| read(&stripe.0)).sum();
        let labels = RuleLabels { site: site(), rule: name() };
        self.matches.get_or_create(&labels).inc_by(matches);
        let kinds = rule.kinds();
        let can_cause = |error: &RuleError| match error {
            RuleError::Transform => transform::is_rule(&rule.name),
            error => error.causes().iter().any(|kind| kinds.has(*kind)),
        };
        for error in RuleError::ALL.into_iter().filter(can_cause) {
            let labels = ErrorLabels { site: site(), rule: name(), kind: error.as_str() };
            self.errors.get_or_create(&labels).inc_by(read(&counter.errors[error as usize]));
        }
        let Some(Setting::UnsafeIgnore(words)) = rule.setting(Kind::UnsafeIgnore) else { return };
        for word in words {
            let labels = WordLabels { site: site(), rule: name(), word: word.as_str() };
            let stored = read(&counter.unsafe_stored[*word as usize]);
            // A list may have a word twice.
            let known = self.unsafe_stored.get_or_create(&labels);
            known.inc_by(stored.saturating_sub(known.get()));
        }
    }
}
