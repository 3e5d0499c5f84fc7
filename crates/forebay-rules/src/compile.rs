//! Compilation of the rules of a site into tables and automata.

mod needs;
mod tables;

use http::Method;
use twox_hash::XxHash3_64;

use self::needs::FieldNeeds;
use self::tables::Tables;
use crate::bits::{BITS, Bits};
use crate::glob::NamePattern;
use crate::key::Keyed;
use crate::pattern::PatternSet;
use crate::rule::{Condition, Rule};
use crate::setting::{Class, Kind, KindSet, Setting};
use crate::template::Placeholder;
use crate::validate::placeholders;

pub(crate) use tables::{Clause, ExtensionTable, HostTable, MethodTable, PathTest};

/// Maximum number of rules of a site, those for every site included.
pub const RULES_MAX: usize = 250;

/// Maximum number of rules whose match result is a part of the key.
pub const SPLITS_MAX: usize = 8;

/// Settings of the site that the meaning of its rules depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteFacts {
    /// Parameters that the site removes from key and fetch.
    pub ignore_query: Vec<NamePattern>,
    /// True if the site sorts the parameters for key and fetch.
    pub sort_query: bool,
    /// True if http and https have one key.
    pub ignore_scheme: bool,
}

/// Rules that cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// There are more than [`RULES_MAX`] rules.
    #[error("there are more than {RULES_MAX} rules")]
    TooMany,
    /// The rules of the site have more than 256 alternatives in `when` and conditions in `unless`.
    #[error(
        "the rules have more than {BITS} alternatives in `when` and conditions in `unless`; use \
         lists of values in place of lists of tables"
    )]
    TooManyAlternatives,
    /// More than [`SPLITS_MAX`] rules shape stored responses by values that are not in the key.
    #[error(
        "more than {SPLITS_MAX} rules shape stored responses by values that are not in the key; \
         test parts of the URL instead, or remove the parameter or field for all requests"
    )]
    TooManySplits {
        /// Number of the first rule above the maximum, in file order from 0.
        rule: usize,
    },
    /// A rule writes `{scheme}` into stored responses, although http and https have one key.
    #[error(
        "{{scheme}} would be stored for clients of http and https alike, because `ignore_scheme` \
         gives both one key; move the edit to `client_response`"
    )]
    UnkeyedScheme {
        /// Number of the rule, in file order from 0.
        rule: usize,
    },
}

/// Compiled rules of a site.
#[derive(Clone, Debug)]
pub struct RuleSet {
    pub(crate) rules: Vec<Rule>,
    facts: SiteFacts,
    pub(crate) clauses: Vec<Clause>,
    pub(crate) all: Bits,
    pub(crate) methods: Option<MethodTable>,
    pub(crate) schemes: Option<[Bits; 2]>,
    pub(crate) hosts: Option<HostTable>,
    pub(crate) extensions: Option<ExtensionTable>,
    pub(crate) paths: PatternSet,
    /// Request fields without which clauses cannot match.
    pub(crate) needs: FieldNeeds,
    /// Clauses with tests of their own.
    pub(crate) tested: Bits,
    /// Clauses with conditions on the response.
    pub(crate) of_response: Bits,
    /// Clauses of `unless`.
    pub(crate) exceptions: Bits,
    /// True if each rule is one clause, so that both have equal numbers.
    pub(crate) is_plain: bool,
    /// Rules with conditions on the response.
    pub(crate) response_rules: Bits,
    /// Rules with `bypass = true`.
    pub(crate) bypasses: Bits,
    /// True if a rule has a condition on the request body.
    reads_body: bool,
    /// Rules that have a setting, by kind.
    having: Vec<Bits>,
    /// Settings of each rule.
    kinds: Vec<KindSet>,
    /// Settings of all rules.
    all_kinds: KindSet,
    /// Rules with settings that shape stored responses.
    pub(crate) stored: Bits,
    /// Rules whose match result is a part of the key.
    pub(crate) splits: Bits,
    pub(crate) digests: Vec<[u8; 8]>,
}

impl PartialEq for RuleSet {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules && self.facts == other.facts
    }
}

impl Default for RuleSet {
    /// Returns a set without rules.
    fn default() -> Self {
        Self::empty()
    }
}

impl RuleSet {
    /// Returns a set without rules.
    #[must_use]
    pub fn empty() -> Self {
        match Self::new(Vec::new(), SiteFacts::default()) {
            Ok(set) => set,
            Err(_) => unreachable!("no rule, no error"),
        }
    }

    /// Compiles rules.
    ///
    /// # Errors
    /// If there are too many rules, alternatives, or rules whose match result is a part of the key,
    /// or a stored response would depend on a scheme that is not in the key.
    pub fn new(rules: Vec<Rule>, facts: SiteFacts) -> Result<Self, CompileError> {
        if rules.len() > RULES_MAX {
            return Err(CompileError::TooMany);
        }
        if facts.ignore_scheme
            && let Some(rule) = rules.iter().position(stores_scheme)
        {
            return Err(CompileError::UnkeyedScheme { rule });
        }
        let mut tables = Tables::new(!facts.ignore_scheme);
        for (number, rule) in rules.iter().enumerate() {
            tables.add(number, rule);
        }
        if tables.clauses.len() > BITS {
            return Err(CompileError::TooManyAlternatives);
        }
        let paths = tables.compile_paths();
        let select = |keeps: fn(&Clause) -> bool| members(&tables.clauses, keeps);
        let (tested, of_response) = (
            select(|clause| !clause.tests.is_empty() || !clause.paths.is_empty()),
            select(|clause| !clause.response.is_empty()),
        );
        let exceptions = select(|clause| clause.is_exception);
        let has = |kind| members(&rules, |rule| rule.setting(kind).is_some());
        let stored = members(&rules, |rule| {
            rule.settings.iter().any(|setting| setting.kind().class() == Class::Stored)
        });
        let is_unkeyed = |rule: &Rule| {
            rule.conditions().any(|c| is_unkeyed(c, &rules, &facts) && !keys(rule, c, &rules))
        };
        let splits = stored & members(&rules, is_unkeyed);
        if let Some(rule) = splits.iter().nth(SPLITS_MAX) {
            return Err(CompileError::TooManySplits { rule });
        }
        let kinds: Vec<KindSet> = rules.iter().map(Rule::kinds).collect();
        let reads_body = rules.iter().flat_map(Rule::conditions).any(Condition::is_of_body);
        Ok(Self {
            all: members(&tables.clauses, |_| true),
            methods: tables.method_table(),
            schemes: tables.scheme_table(),
            hosts: tables.host_table(),
            extensions: tables.extension_table(),
            paths,
            needs: FieldNeeds::of(&tables.clauses),
            tested,
            of_response,
            exceptions,
            is_plain: exceptions.is_empty() && tables.clauses.len() == rules.len(),
            bypasses: members(&rules, |rule| {
                rule.setting(Kind::Bypass) == Some(&Setting::Bypass(true))
            }),
            response_rules: members(&rules, |rule| {
                rule.conditions().any(Condition::is_of_response)
            }),
            reads_body,
            having: Kind::ALL.iter().map(|kind| has(*kind)).collect(),
            all_kinds: kinds.iter().fold(KindSet::default(), |all, kinds| all.union(*kinds)),
            kinds,
            stored,
            splits,
            digests: rules.iter().map(digest).collect(),
            clauses: tables.clauses,
            rules,
            facts,
        })
    }

    /// Returns the rules in file order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the settings of the site for which the rules were compiled.
    #[must_use]
    pub const fn facts(&self) -> &SiteFacts {
        &self.facts
    }

    /// Returns true if there are no rules.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the numbers (from 0) of the rules whose match result is a part of the key: they
    /// shape stored responses by values that the key does not contain.
    pub fn splits(&self) -> impl Iterator<Item = usize> {
        self.splits.iter()
    }

    /// Returns true if a rule has this setting.
    #[inline]
    #[must_use]
    pub fn uses(&self, kind: Kind) -> bool {
        self.all_kinds.has(kind)
    }

    /// Returns true if entries of one URL may have different keys: by match results or key parts, or
    /// because a rule changes path or host.
    #[must_use]
    pub fn splits_keys(&self) -> bool {
        let kinds = [Kind::Key, Kind::PerUser, Kind::Rewrite, Kind::Host];
        !self.splits.is_empty() || kinds.iter().any(|kind| self.uses(*kind))
    }

    /// Returns true if the rule with this number (from 0) has a condition on the response.
    #[must_use]
    pub fn is_of_response(&self, rule: usize) -> bool {
        self.response_rules.contains(rule)
    }

    /// Returns true if a rule has a condition on the request body.
    #[must_use]
    pub fn reads_body(&self) -> bool {
        self.reads_body
    }

    /// Returns true if a method exists for purges only: rules with `purge` name it, and HTTP does not
    /// define it. A request with such a method that no rule admits is refused.
    #[must_use]
    pub fn is_purge_method(&self, method: &Method) -> bool {
        const DEFINED: [&str; 10] = [
            "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY",
        ];
        let names_it = |n: usize| {
            let conditions = self.rules[n].when.iter().flatten();
            conditions.into_iter().any(|condition| {
                matches!(condition, Condition::Method(methods) if methods.contains(method))
            })
        };
        !DEFINED.contains(&method.as_str()) && self.having(Kind::Purge).iter().any(names_it)
    }

    /// Returns the size of the joint automaton of path conditions in bytes.
    #[must_use]
    pub fn automata_size(&self) -> usize {
        self.paths.size()
    }

    /// Returns the settings of these rules.
    pub(crate) fn kinds_of(&self, rules: Bits) -> KindSet {
        rules.iter().fold(KindSet::default(), |all, n| all.union(self.kinds[n]))
    }

    pub(crate) fn having(&self, kind: Kind) -> Bits {
        self.having[kind as usize]
    }
}

fn members<T>(all: &[T], keeps: impl Fn(&T) -> bool) -> Bits {
    let mut bits = Bits::NONE;
    all.iter().enumerate().filter(|(_, one)| keeps(one)).for_each(|(n, _)| bits.insert(n));
    bits
}

/// Digest of the name and the conditions of a rule; equal on all instances with this rule.
fn digest(rule: &Rule) -> [u8; 8] {
    let text = format!("{}\n{:?}\n{:?}", rule.name, rule.when, rule.unless);
    XxHash3_64::oneshot(text.as_bytes()).to_be_bytes()
}

/// Returns true if stored responses depend on the placeholder `{scheme}`.
fn stores_scheme(rule: &Rule) -> bool {
    let stored = rule.settings.iter().filter(|one| one.kind().class() == Class::Stored);
    stored.flat_map(placeholders).any(|one| *one == Placeholder::Scheme)
}

/// Returns true if the rule itself adds all values to the key that its condition reads. The condition
/// reads the request before its edits, and other rules may replace values that they do not list: then
/// it is not known.
fn keys(rule: &Rule, condition: &Condition, rules: &[Rule]) -> bool {
    let Some(Setting::Key(parts)) = rule.setting(Kind::Key) else { return false };
    if rules.iter().any(|rule| rule.setting(Kind::ClientRequest).is_some()) {
        return false;
    }
    match condition {
        Condition::Device(_) => parts.device,
        Condition::Header(tests) => tests.names().all(|name| {
            let is_it =
                |keyed: &&Keyed| matches!(name, NamePattern::Exact(exact) if *exact == keyed.name);
            let lists = |rule: &Rule| match rule.setting(Kind::Key) {
                Some(Setting::Key(parts)) => {
                    let mut named = parts.headers.iter().filter(is_it);
                    named.any(|keyed| !keyed.values.is_empty())
                }
                _ => false,
            };
            parts.headers.iter().any(|keyed| is_it(&keyed)) && !rules.iter().any(lists)
        }),
        _ => false,
    }
}

/// Returns true if two requests with equal keys may differ in this condition.
fn is_unkeyed(condition: &Condition, rules: &[Rule], facts: &SiteFacts) -> bool {
    match condition {
        Condition::Header(_)
        | Condition::Cookie(_)
        | Condition::Client(_)
        | Condition::Device(_) => true,
        Condition::Scheme(_) => facts.ignore_scheme,
        Condition::UrlRegex(_) => {
            let edits = [Kind::IgnoreQuery, Kind::KeepQuery, Kind::SortQuery];
            let is_edited = |rule: &Rule| edits.iter().any(|kind| rule.setting(*kind).is_some());
            facts.sort_query || !facts.ignore_query.is_empty() || rules.iter().any(is_edited)
        }
        Condition::Query(tests) => {
            let names: Vec<&NamePattern> = tests.names().collect();
            // Removal compares names as they are written, conditions compare them decoded: a pattern
            // with an escape may remove any name.
            let may_go = |removed: &[NamePattern]| {
                removed.iter().any(|removed| {
                    let is_escaped = removed.as_str().contains(['%', '+']);
                    is_escaped || names.iter().any(|name| name.overlaps(removed))
                })
            };
            let is_removed = |rule: &Rule| {
                rule.settings.iter().any(|setting| match setting {
                    Setting::IgnoreQuery(names) => may_go(names),
                    Setting::KeepQuery(_) => true,
                    _ => false,
                })
            };
            may_go(&facts.ignore_query) || rules.iter().any(is_removed)
        }
        _ => false,
    }
}
