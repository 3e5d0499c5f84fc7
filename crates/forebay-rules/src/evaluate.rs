//! Evaluation of rules for a request, and for the response to it.

use forebay_semantics::FieldLines;
use http::StatusCode;
use http::header::CONTENT_TYPE;

use crate::bits::Bits;
use crate::compile::{Clause, PathTest, RuleSet};
use crate::edit::Edits;
use crate::json::JsonCut;
use crate::pattern::Reading;
use crate::purge::PurgeRule;
use crate::reading::second_reading;
use crate::request::{Request, Target, extension, headers_hold, holds};
use crate::rule::{Condition, Rule};
use crate::setting::{Class, Kind, Redirect, Respond, Setting};

/// Alternatives of rules that match a request. It owns nothing, so that a load can keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    first: Bits,
    /// Result for the second reading of the path; equal to the first if there is none.
    second: Bits,
    /// Alternatives of which all conditions on values in the key hold.
    candidates: Bits,
}

/// Rules that apply to a request or response.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'r> {
    set: &'r RuleSet,
    /// Rules that match both readings of the path.
    both: Bits,
    /// Rules that match one of them.
    either: Bits,
}

/// Response that a rule makes in place of the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ended<'r> {
    /// A redirect.
    Redirect(&'r Redirect),
    /// A fixed response.
    Respond(&'r Respond),
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
            return Matched { first, second: first, candidates };
        };
        let others = self.by_path(base, &path, Reading::Second);
        let whole = format!("{path}?{}", target.query);
        let url = if target.query.is_empty() { &*path } else { &*whole };
        let text = ReadText { path: &path, url, reading: Reading::Second };
        let second = self.by_tests(others, request, text);
        Matched { first, second, candidates: candidates | others }
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
        let mut matched = candidates;
        for n in (candidates & self.tested).iter() {
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
    #[must_use]
    pub fn outcome(&self, matched: &Matched) -> Outcome<'_> {
        let first = self.rules_of(matched.first) & !self.response_rules;
        let second = if matched.first == matched.second {
            first
        } else {
            self.rules_of(matched.second) & !self.response_rules
        };
        Outcome { set: self, both: first & second, either: first | second }
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
        Outcome { set: self, both: first & second, either: first | second }
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
        kinds.iter().any(|kind| !(rules & self.having(*kind)).is_empty())
    }

    /// Returns the rules of matching clauses.
    fn rules_of(&self, clauses: Bits) -> Bits {
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

impl<'r> Outcome<'r> {
    /// Returns the outcome of no rules.
    #[must_use]
    pub const fn none(set: &'r RuleSet) -> Self {
        Self { set, both: Bits::NONE, either: Bits::NONE }
    }

    /// Returns true if no rule applies, not even with the settings that need only one reading of
    /// the path.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.either.is_empty()
    }

    /// Returns the numbers (from 0) of the rules that apply with all settings, because they match
    /// all readings of the path.
    pub fn rules(&self) -> impl Iterator<Item = usize> {
        self.both.iter()
    }

    /// Returns true if one of these settings applies.
    #[must_use]
    pub fn has_any(&self, kinds: &[Kind]) -> bool {
        kinds.iter().any(|kind| !self.with(*kind).is_empty())
    }

    fn with(&self, kind: Kind) -> Bits {
        let is_wide = kind.class() == Class::Narrows || kind == Kind::Json;
        let rules = if is_wide { self.either } else { self.both };
        rules & self.set.having(kind)
    }

    /// Returns the value of a setting in the last rule that applies and has it.
    #[must_use]
    pub fn last(&self, kind: Kind) -> Option<&'r Setting> {
        self.rule_of(kind).and_then(|rule| rule.setting(kind))
    }

    /// Returns the last rule that applies and has a setting.
    #[must_use]
    pub fn rule_of(&self, kind: Kind) -> Option<&'r Rule> {
        self.set.rules.get(self.with(kind).last()?)
    }

    /// Returns all values of a setting, in file order.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &'r Setting> {
        let set = self.set;
        self.with(kind).iter().filter_map(move |n| set.rules.get(n)?.setting(kind))
    }

    /// Returns the edits of a setting, in file order.
    pub fn edits(&self, kind: Kind) -> impl Iterator<Item = &'r Edits> {
        self.all(kind).filter_map(|setting| match setting {
            Setting::ClientRequest(edits)
            | Setting::CacheRequest(edits)
            | Setting::OriginRequest(edits)
            | Setting::OriginResponse(edits)
            | Setting::CacheResponse(edits)
            | Setting::ClientResponse(edits) => Some(edits),
            _ => None,
        })
    }

    /// Returns true if the request bypasses the cache. `bypass = true` applies if it matches one
    /// reading of the path, `bypass = false` only if it matches both.
    #[must_use]
    pub fn bypasses(&self) -> bool {
        let with = self.either & self.set.having(Kind::Bypass);
        let mut bypasses = false;
        for n in with.iter() {
            match self.set.rules[n].setting(Kind::Bypass) {
                Some(Setting::Bypass(true)) => bypasses = true,
                Some(Setting::Bypass(false)) if self.both.contains(n) => bypasses = false,
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
        let kinds = set.having(Kind::Redirect) | set.having(Kind::Respond);
        (self.either & kinds).iter().find_map(|n| {
            let rule = &set.rules[n];
            if let Some(Setting::Respond(respond)) = rule.setting(Kind::Respond)
                && (self.both.contains(n) || respond.status.is_client_error())
            {
                return Some(Ended::Respond(respond));
            }
            match rule.setting(Kind::Redirect) {
                Some(Setting::Redirect(redirect)) if self.both.contains(n) => {
                    let from = redirect.from.as_ref();
                    let is_meant = from.is_none_or(|from| from.is_match(path.as_bytes()));
                    is_meant.then_some(Ended::Redirect(redirect))
                }
                _ => None,
            }
        })
    }
}
