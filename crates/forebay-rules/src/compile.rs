//! Compilation of the rules of a site into tables and automata.

use std::collections::HashMap;

use forebay_semantics::Scheme;
use http::Method;
use twox_hash::XxHash3_64;

use crate::bits::{BITS, Bits};
use crate::glob::{NamePattern, PathGlob};
use crate::pattern::{Pattern, PatternSet, PatternSetBuilder, Reading, whole};
use crate::reading::normalised;
use crate::rule::{Condition, Extension, HostName, Rule, Tests};
use crate::setting::{Class, Kind, Setting};

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
}

/// Alternative of `when`, or condition of `unless`.
#[derive(Clone, Debug)]
pub(crate) struct Clause {
    pub(crate) rule: usize,
    pub(crate) is_exception: bool,
    /// Conditions that no table answers.
    pub(crate) tests: Vec<Condition>,
    /// Conditions on the path that the automaton does not answer: one of each group must match.
    pub(crate) paths: Vec<Vec<PathTest>>,
    /// Conditions on the response.
    pub(crate) response: Vec<Condition>,
}

/// Expression that matches a whole path, for some of its readings.
#[derive(Clone, Debug)]
pub(crate) struct PathTest {
    pub(crate) pattern: Pattern,
    pub(crate) readings: Vec<Reading>,
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
    /// Clauses with tests of their own.
    pub(crate) tested: Bits,
    /// Clauses with conditions on the response.
    pub(crate) of_response: Bits,
    /// Clauses of `unless`.
    pub(crate) exceptions: Bits,
    /// Rules with conditions on the response.
    pub(crate) response_rules: Bits,
    /// Rules that have a setting, by kind.
    having: Vec<Bits>,
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

/// Clauses by method.
#[derive(Clone, Debug)]
pub(crate) struct MethodTable {
    named: Vec<(Method, Bits)>,
    others: Bits,
}

/// Clauses by host.
#[derive(Clone, Debug)]
pub(crate) struct HostTable {
    exact: HashMap<Box<str>, Bits>,
    below: Vec<(HostName, Bits)>,
    others: Bits,
}

/// Clauses by extension.
#[derive(Clone, Debug)]
pub(crate) struct ExtensionTable {
    named: HashMap<Box<str>, Bits>,
    any: Bits,
    none: Bits,
}

/// Longest extension that is looked up, in bytes.
const EXTENSION_MAX: usize = 16;

impl MethodTable {
    pub(crate) fn get(&self, method: &Method) -> Bits {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        let named = self.named.iter().find(|(named, _)| named == method);
        named.map_or(self.others, |(_, bits)| *bits)
    }
}

impl HostTable {
    pub(crate) fn get(&self, host: &str) -> Bits {
        let mut bits = self.others;
        if let Some(exact) = self.exact.get(host) {
            bits |= *exact;
        }
        for (pattern, below) in &self.below {
            if pattern.matches(host) {
                bits |= *below;
            }
        }
        bits
    }
}

impl ExtensionTable {
    pub(crate) fn get(&self, extension: Option<&str>) -> Bits {
        let Some(extension) = extension else { return self.none };
        let mut buffer = [0; EXTENSION_MAX];
        let named = buffer.get_mut(..extension.len()).and_then(|lower| {
            lower.copy_from_slice(extension.as_bytes());
            lower.make_ascii_lowercase();
            self.named.get(str::from_utf8(lower).ok()?)
        });
        named.map_or(self.any, |bits| *bits | self.any)
    }
}

/// Tables under construction.
struct Tables {
    clauses: Vec<Clause>,
    paths: Vec<(String, usize, Vec<Reading>)>,
    methods: Vec<(usize, Vec<Method>)>,
    schemes: Vec<(usize, Vec<Scheme>)>,
    hosts: Vec<(usize, Vec<HostName>)>,
    extensions: Vec<(usize, Vec<Extension>)>,
    is_scheme_keyed: bool,
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
    /// If there are too many rules, alternatives, or rules whose match result is a part of the key.
    pub fn new(rules: Vec<Rule>, facts: SiteFacts) -> Result<Self, CompileError> {
        if rules.len() > RULES_MAX {
            return Err(CompileError::TooMany);
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
        let is_unkeyed = |rule: &Rule| rule.conditions().any(|c| is_unkeyed(c, &rules, &facts));
        let splits = stored & members(&rules, is_unkeyed);
        if let Some(rule) = splits.iter().nth(SPLITS_MAX) {
            return Err(CompileError::TooManySplits { rule });
        }
        Ok(Self {
            all: members(&tables.clauses, |_| true),
            methods: tables.method_table(),
            schemes: tables.scheme_table(),
            hosts: tables.host_table(),
            extensions: tables.extension_table(),
            paths,
            tested,
            of_response,
            exceptions,
            response_rules: members(&rules, |rule| {
                rule.conditions().any(Condition::is_of_response)
            }),
            having: Kind::ALL.iter().map(|kind| has(*kind)).collect(),
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
    #[must_use]
    pub fn uses(&self, kind: Kind) -> bool {
        !self.having(kind).is_empty()
    }

    /// Returns true if entries of one URL may have different keys: by match results, or because a
    /// rule changes path or host.
    #[must_use]
    pub fn splits_keys(&self) -> bool {
        !self.splits.is_empty() || self.uses(Kind::Rewrite) || self.uses(Kind::Host)
    }

    /// Returns the size of the joint automaton of path conditions in bytes.
    #[must_use]
    pub fn automata_size(&self) -> usize {
        self.paths.size()
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

/// Returns the expressions of a glob. The second reading of a path is compared with the second
/// reading of the glob.
fn sources_of(glob: &PathGlob) -> Vec<(String, Vec<Reading>)> {
    let text = glob.as_str();
    let read = normalised(text.as_bytes());
    let second = PathGlob::parse(&read).ok().filter(|_| read != text);
    match second {
        Some(second) => vec![
            (glob.to_regex(), vec![Reading::First]),
            (second.to_regex(), vec![Reading::Second]),
        ],
        None => vec![(glob.to_regex(), vec![Reading::First, Reading::Second])],
    }
}

/// Compiles expressions that run alone. They were parsed before, so each is valid.
fn alone(sources: Vec<(String, Vec<Reading>)>) -> Vec<PathTest> {
    let test = |(source, readings): (String, Vec<Reading>)| {
        Some(PathTest { pattern: Pattern::compiled(&source).ok()?, readings })
    };
    sources.into_iter().filter_map(test).collect()
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
            let names: Vec<&NamePattern> = match tests {
                Tests::Any(names) => names.iter().collect(),
                Tests::All(tests) => tests.iter().map(|(name, _)| name).collect(),
            };
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

impl Tables {
    fn new(is_scheme_keyed: bool) -> Self {
        Self {
            clauses: Vec::new(),
            paths: Vec::new(),
            methods: Vec::new(),
            schemes: Vec::new(),
            hosts: Vec::new(),
            extensions: Vec::new(),
            is_scheme_keyed,
        }
    }

    fn add(&mut self, number: usize, rule: &Rule) {
        match &*rule.when {
            [] => self.clause(number, false, &[]),
            all => all.iter().for_each(|conditions| self.clause(number, false, conditions)),
        }
        for exception in &rule.unless {
            self.clause(number, true, std::slice::from_ref(exception));
        }
    }

    fn clause(&mut self, rule: usize, is_exception: bool, conditions: &[Condition]) {
        let n = self.clauses.len();
        let (tests, paths, response) = (Vec::new(), Vec::new(), Vec::new());
        let mut clause = Clause { rule, is_exception, tests, paths, response };
        let mut has_path = false;
        for condition in conditions {
            match condition {
                // One condition of a clause is answered by the automaton. Two, or expressions that
                // would make it too large, run alone.
                Condition::Path(globs) => {
                    let sources = globs.iter().flat_map(sources_of).collect::<Vec<_>>();
                    if has_path {
                        clause.paths.push(alone(sources));
                        continue;
                    }
                    has_path = true;
                    self.paths.extend(sources.into_iter().map(|(source, r)| (source, n, r)));
                }
                Condition::PathRegex(patterns)
                    if !has_path && patterns.iter().all(Pattern::is_anchored) =>
                {
                    has_path = true;
                    for pattern in patterns {
                        let readings = vec![Reading::First, Reading::Second];
                        self.paths.push((whole(pattern), n, readings));
                    }
                }
                Condition::Method(methods) => self.methods.push((n, methods.clone())),
                Condition::Scheme(schemes) if self.is_scheme_keyed => {
                    self.schemes.push((n, schemes.clone()));
                }
                Condition::Host(hosts) => self.hosts.push((n, hosts.clone())),
                Condition::Extension(extensions) => self.extensions.push((n, extensions.clone())),
                other if other.is_of_response() => clause.response.push(other.clone()),
                other => clause.tests.push(other.clone()),
            }
        }
        self.clauses.push(clause);
    }

    /// Compiles the paths. If they do not fit into one automaton, the conditions of the largest
    /// clauses run alone until they do.
    fn compile_paths(&mut self) -> PatternSet {
        loop {
            let mut builder = PatternSetBuilder::new();
            for (source, clause, readings) in &self.paths {
                builder.add(source.clone(), *clause, readings);
            }
            if let Some(set) = builder.build() {
                return set;
            }
            let largest = self.paths.iter().max_by_key(|(source, ..)| source.len());
            let Some(clause) = largest.map(|(_, clause, _)| *clause) else {
                return PatternSet::default();
            };
            self.run_alone(clause);
        }
    }

    fn run_alone(&mut self, clause: usize) {
        let (own, joint) = std::mem::take(&mut self.paths)
            .into_iter()
            .partition(|(_, its, _): &(String, usize, Vec<Reading>)| *its == clause);
        self.paths = joint;
        let sources: Vec<(String, usize, Vec<Reading>)> = own;
        let sources = sources.into_iter().map(|(source, _, readings)| (source, readings));
        self.clauses[clause].paths.push(alone(sources.collect()));
    }

    /// Returns the clauses that a table does not mention.
    fn others<T>(&self, mentioned: &[(usize, T)]) -> Bits {
        let mut others = Bits::NONE;
        (0..self.clauses.len()).for_each(|n| others.insert(n));
        mentioned.iter().for_each(|(n, _)| others.remove(*n));
        others
    }

    fn method_table(&self) -> Option<MethodTable> {
        let others = self.others(&self.methods);
        let mut named: Vec<(Method, Bits)> = Vec::new();
        for (n, method) in self.methods.iter().flat_map(|(n, all)| all.iter().map(move |m| (n, m)))
        {
            let method = if *method == Method::HEAD { &Method::GET } else { method };
            match named.iter_mut().find(|(known, _)| known == method) {
                Some((_, bits)) => bits.insert(*n),
                None => {
                    let mut bits = others;
                    bits.insert(*n);
                    named.push((method.clone(), bits));
                }
            }
        }
        (!self.methods.is_empty()).then_some(MethodTable { named, others })
    }

    fn scheme_table(&self) -> Option<[Bits; 2]> {
        let of = |scheme: Scheme| {
            let mut bits = self.others(&self.schemes);
            let with_it = self.schemes.iter().filter(|(_, all)| all.contains(&scheme));
            with_it.for_each(|(n, _)| bits.insert(*n));
            bits
        };
        (!self.schemes.is_empty()).then(|| [of(Scheme::Http), of(Scheme::Https)])
    }

    fn host_table(&self) -> Option<HostTable> {
        let others = self.others(&self.hosts);
        let mut table = HostTable { exact: HashMap::new(), below: Vec::new(), others };
        for (n, host) in self.hosts.iter().flat_map(|(n, all)| all.iter().map(move |h| (n, h))) {
            match host {
                HostName::Exact(name) => table.exact.entry(name.clone()).or_default().insert(*n),
                HostName::Below(_) => {
                    let mut bits = Bits::NONE;
                    bits.insert(*n);
                    table.below.push((host.clone(), bits));
                }
            }
        }
        (!self.hosts.is_empty()).then_some(table)
    }

    fn extension_table(&self) -> Option<ExtensionTable> {
        let none = self.others(&self.extensions);
        let mut table = ExtensionTable { named: HashMap::new(), any: none, none };
        let all = self.extensions.iter().flat_map(|(n, all)| all.iter().map(move |e| (n, e)));
        for (n, extension) in all {
            match extension {
                Extension::Any => table.any.insert(*n),
                Extension::Exact(name) => table.named.entry(name.clone()).or_default().insert(*n),
            }
        }
        (!self.extensions.is_empty()).then_some(table)
    }
}
