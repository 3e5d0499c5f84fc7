//! Evaluation of rules for a request, and for the response to it.

use forebay_semantics::FieldLines;
use http::StatusCode;
use http::header::CONTENT_TYPE;

use crate::bits::Bits;
use crate::compile::{Clause, PathTest, RuleSet};
use crate::outcome::{Applied, Outcome};
use crate::pattern::Reading;
use crate::reading::second_reading;
use crate::request::{Request, Target, extension, headers_hold, holds};
use crate::rule::{Condition, Rule};
use crate::setting::{Class, Kind, KindSet};

/// Rules that match a request. It owns nothing, so that a load can keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// Alternatives that match.
    first: Bits,
    /// Result for the second reading of the path; equal to the first if there is none.
    second: Bits,
    /// Alternatives of which all conditions on values in the key hold.
    candidates: Bits,
    /// Rules that apply to the request.
    applied: Applied,
}

/// One reading of a target.
#[derive(Clone, Copy)]
struct ReadText<'a> {
    path: &'a str,
    /// Path and query.
    url: &'a str,
    reading: Reading,
}

impl RuleSet {
    /// Matches all rules against a request. Allocates nothing, unless the path has a second reading.
    #[inline]
    #[must_use]
    pub fn evaluate<H: FieldLines>(&self, request: &Request<'_, H>) -> Matched {
        if self.is_empty() {
            return Matched::default();
        }
        self.evaluate_all(request)
    }

    fn evaluate_all<H: FieldLines>(&self, request: &Request<'_, H>) -> Matched {
        let target = Target::new(request.target);
        let base = self.by_tables(request);
        let candidates = self.by_path(base, target.path, Reading::First);
        let text = ReadText { path: target.path, url: request.target, reading: Reading::First };
        let first = self.by_tests(candidates, request, text);
        let Some(path) = second_reading(target.path) else {
            let rules = self.rules_of(first) & !self.response_rules;
            let applied = Applied::new(self, rules, rules);
            return Matched { first, second: first, candidates, applied };
        };
        let others = self.by_path(base, &path, Reading::Second);
        let whole = format!("{path}?{}", target.query);
        let url = if target.query.is_empty() { &*path } else { &*whole };
        let text = ReadText { path: &path, url, reading: Reading::Second };
        let second = self.by_tests(others, request, text);
        let rules = |clauses| self.rules_of(clauses) & !self.response_rules;
        let applied = Applied::new(self, rules(first), rules(second));
        Matched { first, second, candidates: candidates | others, applied }
    }

    fn by_tables<H: FieldLines>(&self, request: &Request<'_, H>) -> Bits {
        let mut bits = self.all;
        if let Some(methods) = &self.methods {
            bits &= methods.get(request.method);
        }
        if let Some(schemes) = &self.schemes {
            bits &= schemes[request.scheme as usize];
        }
        if let Some(hosts) = &self.hosts {
            bits &= hosts.get(request.host);
        }
        bits
    }

    fn by_path(&self, mut bits: Bits, path: &str, reading: Reading) -> Bits {
        if let Some(extensions) = &self.extensions {
            bits &= extensions.get(extension(path));
        }
        bits & self.paths.matches(path.as_bytes(), reading)
    }

    fn by_tests<H: FieldLines>(
        &self,
        candidates: Bits,
        request: &Request<'_, H>,
        text: ReadText<'_>,
    ) -> Bits {
        let (path, url) = (text.path.as_bytes(), text.url.as_bytes());
        let tested = candidates & self.tested;
        if tested.is_empty() {
            return candidates;
        }
        let absent = self.needs.unmet(tested, request.headers);
        let mut matched = candidates & !absent;
        for n in (tested & !absent).iter() {
            let holds = |condition: &Condition| match condition {
                Condition::PathRegex(patterns) => {
                    patterns.iter().any(|pattern| pattern.is_match(path))
                }
                Condition::UrlRegex(patterns) => {
                    patterns.iter().any(|pattern| pattern.is_match(url))
                }
                other => holds(other, request),
            };
            let clause = &self.clauses[n];
            let on_path = |group: &Vec<PathTest>| {
                group.iter().any(|t| t.readings.contains(&text.reading) && t.pattern.is_match(path))
            };
            if !clause.paths.iter().all(on_path) || !clause.tests.iter().all(holds) {
                matched.remove(n);
            }
        }
        matched
    }

    /// Returns the rules that apply to a request; those with conditions on the response do not.
    #[inline]
    #[must_use]
    pub fn outcome(&self, matched: &Matched) -> Outcome<'_> {
        Outcome::new(self, matched.applied)
    }

    /// Returns the rules that apply to a response: those that match the request, and whose
    /// conditions on the response hold, if they have any.
    #[must_use]
    pub fn response_outcome<H: FieldLines>(
        &self,
        matched: &Matched,
        status: StatusCode,
        headers: &H,
    ) -> Outcome<'_> {
        if self.of_response.is_empty() {
            return self.outcome(matched);
        }
        let holds = |clause: &Clause| {
            clause.response.iter().all(|condition| response_holds(condition, status, headers))
        };
        let mut failed = Bits::NONE;
        for n in ((matched.first | matched.second) & self.of_response).iter() {
            if !holds(&self.clauses[n]) {
                failed.insert(n);
            }
        }
        let first = self.rules_of(matched.first & !failed);
        let second = self.rules_of(matched.second & !failed);
        Outcome::new(self, Applied::new(self, first, second))
    }

    /// Returns true if a rule has one of these settings and matches the request, but has conditions
    /// on the response, which are not known yet.
    #[must_use]
    pub fn may_apply(&self, matched: &Matched, kinds: &[Kind]) -> bool {
        if self.response_rules.is_empty() {
            return false;
        }
        let open = self.exceptions & self.of_response;
        let rules = self.rules_of(matched.first & !open) | self.rules_of(matched.second & !open);
        let rules = rules & self.response_rules;
        !self.kinds_of(rules).common(KindSet::of(kinds)).is_empty()
    }

    /// Returns true if a rule may shape or prevent the stored response of a request that differs
    /// from this one only in values outside of the key: its conditions on path, method, host and
    /// scheme hold, and it has settings other than those of one response.
    #[must_use]
    pub fn may_shape(&self, matched: &Matched) -> bool {
        let shapes = |rule: &Rule| {
            rule.settings.iter().any(|setting| setting.kind().class() != Class::Response)
        };
        let candidates = matched.candidates & !self.exceptions;
        candidates.iter().any(|clause| shapes(&self.rules[self.clauses[clause].rule]))
    }

    /// Returns the rules of matching clauses.
    fn rules_of(&self, clauses: Bits) -> Bits {
        if self.is_plain {
            return clauses;
        }
        let mut rules = Bits::NONE;
        for n in (clauses & !self.exceptions).iter() {
            rules.insert(self.clauses[n].rule);
        }
        for n in (clauses & self.exceptions).iter() {
            rules.remove(self.clauses[n].rule);
        }
        rules
    }

    /// Calls `part` with each key part of a request: a digest of a rule, and its match result.
    ///
    /// Equal keys have equal results of all rules that shape stored responses. `is_rewritten` is true
    /// if a rule changed path or host, so that the key does not have the values that rules read.
    /// Then all these rules are parts, otherwise those with conditions outside of the key. A rule
    /// whose conditions on path, method, host or scheme do not hold is left out.
    pub fn key_parts(&self, matched: &Matched, is_rewritten: bool, mut part: impl FnMut(&[u8])) {
        let parts = if is_rewritten { self.stored } else { self.splits };
        if parts.is_empty() {
            return;
        }
        // Conditions on the response are the same for all requests of a key.
        let pending = self.exceptions & self.of_response;
        let first = self.rules_of(matched.first & !pending);
        let second = self.rules_of(matched.second & !pending);
        let mut present = Bits::NONE;
        for n in matched.candidates.iter() {
            present.insert(self.clauses[n].rule);
        }
        for rule in (parts & present).iter() {
            let result = u8::from(first.contains(rule)) | u8::from(second.contains(rule)) << 1;
            let mut bytes = [0; 9];
            bytes[..8].copy_from_slice(&self.digests[rule]);
            bytes[8] = result;
            part(&bytes);
        }
    }
}

fn response_holds(condition: &Condition, status: StatusCode, headers: &impl FieldLines) -> bool {
    match condition {
        Condition::Status(tests) => tests.iter().any(|test| test.includes(status)),
        Condition::ContentType(globs) => {
            let line = headers.lines(&CONTENT_TYPE).next().unwrap_or_default();
            let end = memchr::memchr(b';', line).unwrap_or(line.len());
            globs.iter().any(|glob| glob.matches(line[..end].trim_ascii(), true))
        }
        Condition::ResponseHeader(tests) => headers_hold(tests, headers),
        _ => true,
    }
}
