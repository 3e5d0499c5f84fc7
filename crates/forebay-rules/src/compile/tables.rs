//! Tables of the clauses by method, scheme, host, extension and path.

use std::collections::HashMap;

use forebay_semantics::Scheme;
use http::Method;

use crate::bits::Bits;
use crate::glob::PathGlob;
use crate::pattern::{Pattern, PatternSet, PatternSetBuilder, Reading, whole};
use crate::reading::normalised;
use crate::rule::{Condition, Extension, HostName, Rule};

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
pub(super) struct Tables {
    pub(super) clauses: Vec<Clause>,
    paths: Vec<(String, usize, Vec<Reading>)>,
    methods: Vec<(usize, Vec<Method>)>,
    schemes: Vec<(usize, Vec<Scheme>)>,
    hosts: Vec<(usize, Vec<HostName>)>,
    extensions: Vec<(usize, Vec<Extension>)>,
    is_scheme_keyed: bool,
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

impl Tables {
    pub(super) fn new(is_scheme_keyed: bool) -> Self {
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

    pub(super) fn add(&mut self, number: usize, rule: &Rule) {
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
    pub(super) fn compile_paths(&mut self) -> PatternSet {
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

    pub(super) fn method_table(&self) -> Option<MethodTable> {
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

    pub(super) fn scheme_table(&self) -> Option<[Bits; 2]> {
        let of = |scheme: Scheme| {
            let mut bits = self.others(&self.schemes);
            let with_it = self.schemes.iter().filter(|(_, all)| all.contains(&scheme));
            with_it.for_each(|(n, _)| bits.insert(*n));
            bits
        };
        (!self.schemes.is_empty()).then(|| [of(Scheme::Http), of(Scheme::Https)])
    }

    pub(super) fn host_table(&self) -> Option<HostTable> {
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

    pub(super) fn extension_table(&self) -> Option<ExtensionTable> {
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
