//! Causes and objections, with the field that decided and advice.

use std::borrow::Cow;

use forebay_core::{Presence, Why};
use forebay_engine::{LoadError, Lookup, LookupResult};
use forebay_semantics::advice::{self, Advice};
use forebay_semantics::{Directives, Unstorable};
use http::Method;
use http::header::VARY;

use super::forecast::Course;
use super::key::{name, names};
use super::report::millis;
use super::{LiveResponse, Subject};
use crate::explanation::{Finding, StorableReport, Text};
use crate::record::decisions::{Decided, Decision};
use crate::site::key;
use crate::stored::head::Answer;

/// Query parameters that name a campaign or a click, or keep caches from answering. A `*` matches
/// any suffix.
const NOISE: [&str; 22] = [
    "utm_*",
    "gclid",
    "gclsrc",
    "dclid",
    "gbraid",
    "wbraid",
    "fbclid",
    "msclkid",
    "yclid",
    "twclid",
    "ttclid",
    "igshid",
    "mc_cid",
    "mc_eid",
    "_ga",
    "_gl",
    "srsltid",
    "_hsenc",
    "_hsmi",
    "_",
    "cb",
    "cachebuster",
];

fn finding(code: &'static str, because: impl Into<Text>, advice: Advice) -> Finding {
    let Advice { rule, action } = advice;
    Finding { code: code.into(), because: because.into(), rule: rule.into(), advice: action.into() }
}

fn objection(reason: Unstorable, because: impl Into<Text>) -> Finding {
    finding(reason.code(), because, advice::of_unstorable(reason))
}

impl Subject<'_> {
    /// Returns the reasons against storing the response: of the live response, of the stored one, or
    /// of the last load.
    pub(super) fn storable(
        &self,
        decisions: &[Decision],
        live: Option<&LiveResponse>,
    ) -> StorableReport {
        if let Some(LiveResponse(Ok(answer))) = live {
            return self.judged("live", answer);
        }
        if let Some(answer) = self.selected_answer() {
            return self.judged("stored", &answer);
        }
        let judged = decisions.iter().find(|it| it.decided != Decided::Unanswered);
        let (judged_from, objections) = match judged {
            Some(decision) => ("decision", self.objections_of(decision)),
            None => ("request", self.objections_of_request()),
        };
        StorableReport { judged_from: judged_from.into(), objections }
    }

    /// Returns the stored response that the request selects.
    fn selected_answer(&self) -> Option<Answer> {
        let variants = self.engine.stored_variants(&self.lookup());
        match variants.iter().find(|variant| variant.is_selected) {
            Some(variant) => Answer::of(&variant.entry),
            None => {
                let below = self.tiers.iter().find_map(|report| report.entry.as_ref())?;
                Answer::decode(below.head.clone())
            }
        }
    }

    fn judged(&self, judged_from: &'static str, answer: &Answer) -> StorableReport {
        let objections = self.request.objections(answer).into_iter();
        let objections = objections.map(|it| objection(it, self.request.because(it, answer)));
        StorableReport { judged_from: judged_from.into(), objections: objections.collect() }
    }

    fn objections_of(&self, decision: &Decision) -> Vec<Finding> {
        let line = decision.line.as_str();
        let because = |reason| {
            let general = advice::because_in_general(reason);
            // The line is that of the first reason. It may be the line of others, too.
            let is_same_field = line.starts_with(general.split(':').next().unwrap_or_default());
            let is_of_line = decision.first == Some(reason) || is_same_field;
            if is_of_line { Cow::Owned(line.to_owned()) } else { Cow::Borrowed(general) }
        };
        let mut reasons: Vec<Unstorable> = decision.objections.iter().collect();
        reasons.sort_by_key(|reason| decision.first != Some(*reason));
        let mut found: Vec<Finding> =
            reasons.into_iter().map(|it| objection(it, because(it))).collect();
        found.extend(self.is_too_large(decision).then(|| self.too_large(decision)));
        let of_request = self.objections_of_request().into_iter();
        let known: Vec<Text> = found.iter().map(|finding| finding.code.clone()).collect();
        found.extend(of_request.filter(|finding| !known.contains(&finding.code)));
        found
    }

    fn objections_of_request(&self) -> Vec<Finding> {
        let headers = self.request.headers();
        if !Directives::of_request(headers).no_store {
            return Vec::new();
        }
        vec![objection(Unstorable::RequestNoStore, advice::of_request(headers))]
    }

    fn too_large(&self, decision: &Decision) -> Finding {
        let limit = self.engine.memory().object_max(Presence::Present);
        let because = match decision.length {
            Some(length) => {
                format!("Content-Length: {length}, and memory stores up to {limit} bytes")
            }
            None => format!("a body of more than {limit} bytes, the limit of memory"),
        };
        let action = "Raise `memory.object_max` (and `memory.size`), or add a disk tier.";
        finding("too-large", because, Advice { rule: "memory.object_max", action })
    }

    /// Returns the causes for which the request is no fresh hit, the deciding one first.
    pub(super) fn causes(
        &self,
        course: &Course,
        decisions: &[Decision],
        objections: &[Finding],
    ) -> Vec<Finding> {
        let Some(why) = course.why() else { return Vec::new() };
        let mut causes: Vec<Finding> = self.breaker_cause().into_iter().collect();
        if causes.is_empty() && needs_origin(course) {
            causes.extend(self.admission_cause());
        }
        if let Course::Refused(refused) = course
            && causes.is_empty()
        {
            let action = "See docs/errors.md for this code.";
            let advice = Advice { rule: "error response", action };
            causes.push(finding(refused.code, refused.sentence.clone(), advice));
        }
        causes.push(finding(why.code(), self.because(why, decisions), advice::of_why(why)));
        if matches!(why, Why::Stale | Why::PassMarked) {
            causes.extend(self.zero_lifetime());
        }
        if matches!(why, Why::UriMiss | Why::PassMarked | Why::NotShareable) {
            causes.extend(objections.iter().cloned());
        }
        if why == Why::UriMiss {
            causes.extend(self.noise());
        }
        causes
    }

    /// Returns the field or state that is the reason.
    fn because(&self, why: Why, decisions: &[Decision]) -> Text {
        match why {
            Why::RequestRevalidate
            | Why::RequestMaxAge
            | Why::RequestMinFresh
            | Why::RequestNoStore
            | Why::ReloadLimited => advice::of_request(self.request.headers()),
            Why::UriMiss => self.not_stored(decisions),
            Why::VaryMiss => self.other_variants(),
            Why::Stale | Why::EarlyRefresh | Why::LoadFailed | Why::SoftTimeout | Why::BackOff => {
                self.lifetime_line().into()
            }
            Why::Purged => "a hard purge of a tag, a prefix, the site or everything".into(),
            Why::SoftPurged => "a soft purge".into(),
            Why::PassMarked | Why::NotShareable => match decisions.first() {
                Some(last) => last.line.as_str().to_owned().into(),
                None => "a response that may not be shared".into(),
            },
            Why::Method => "the method of the request".into(),
            Why::Bypass => "the form of the request, or coalesce = false".into(),
            Why::Rule => "a rule of the site".into(),
            Why::Partial => "the requested range is not stored".into(),
            _ => "the invalidation bus".into(),
        }
    }

    fn not_stored(&self, decisions: &[Decision]) -> Text {
        let Some(last) = decisions.first() else {
            return "no recent load of this URL".into();
        };
        let ago = self.engine.clock().now().since(last.at).as_secs();
        let (status, line) = (last.status, last.line.as_str());
        match last.decided {
            Decided::Unanswered => format!("the last load, {ago} s ago, failed: {line}"),
            Decided::Failed => format!("the origin answered {status}, {ago} s ago"),
            Decided::Passed => format!("the last response, {ago} s ago, was not stored: {line}"),
            Decided::Stored | Decided::Confirmed if self.is_too_large(last) => {
                format!("the last response, {ago} s ago, was too large to store")
            }
            Decided::Stored | Decided::Confirmed => format!(
                "the last response, {ago} s ago, was storable, and is not in memory: purged by its \
                 URL, evicted, or its body was not complete"
            ),
        }
        .into()
    }

    fn other_variants(&self) -> Text {
        let variants = self.engine.stored_variants(&self.lookup());
        let Some(first) = variants.first() else { return "Vary".into() };
        let line = Answer::of(&first.entry).and_then(|it| advice::line(&it.headers, &VARY));
        let fields = || {
            let names = first.fields.iter().map(|(name, _)| &**name);
            format!("Vary: {}", names.collect::<Vec<_>>().join(", "))
        };
        let count = variants.len();
        format!("{}; stored variants: {count}", line.unwrap_or_else(fields)).into()
    }

    fn lifetime_line(&self) -> String {
        match self.selected_answer() {
            Some(answer) => self.request.lifetime_by(&answer).line,
            None => "the lifetime of the stored response".to_owned(),
        }
    }

    /// Returns the field that gives the stored response a lifetime of zero.
    fn zero_lifetime(&self) -> Option<Finding> {
        let answer = self.selected_answer()?;
        if !self.request.lifetime_of(&answer).is_zero() {
            return None;
        }
        let because = self.request.lifetime_by(&answer).line;
        let action = "Let the origin send a `max-age` above 0, or set `ttl` in a rule: each request \
                      is validated, and none waits for another.";
        Some(finding("zero-lifetime", because, Advice { rule: "RFC 9111 §4.2", action }))
    }

    fn breaker_cause(&self) -> Option<Finding> {
        let error = self.site.origin.rejects(&Method::GET)?;
        let left = millis(self.site.origin.breaker_time_left()).div_ceil(1_000);
        let because = format!("{error}; the next trial follows within {left} s");
        let action = "Repair the origin; a successful trial closes the circuit breaker. \
                      `stale-if-error` lets stored responses answer meanwhile.";
        Some(finding("breaker-open", because, Advice { rule: "site.breaker", action }))
    }

    /// Returns the limit or budget for which a request would not be sent to the origin now.
    fn admission_cause(&self) -> Option<Finding> {
        let error = self.site.origin.obstacle()?;
        let load = self.site.origin.load();
        let (in_flight, limit, waiting) = (load.in_flight, load.limit, load.waiting);
        let finding_of = |code, state: String, rule, action| {
            let because = format!("{state}; {in_flight} requests are in flight, {waiting} wait");
            finding(code, because, Advice { rule, action })
        };
        let is_over_budget = matches!(error, LoadError::OverBudget);
        let held = self.site.origin.budget_status().filter(|_| is_over_budget);
        let Some(budget) = held else {
            let action = "The request waits, for half of `fetch_timeout` at most. Raise `in_flight_max` \
                          or `connections_max` if the origin allows it.";
            let state =
                format!("the limit of {limit} concurrent requests to the origin is reached");
            return Some(finding_of("overloaded", state, "site.origin.in_flight_max", action));
        };
        let action = "A stale response is served at once where that is allowed; other requests wait, \
                      for half of `fetch_timeout` at most. Raise `budget` if the origin allows it.";
        let state =
            format!("the budget of the origin is used up: this instance holds {}", budget.held);
        Some(finding_of("over-budget", state, "site.origin.budget", action))
    }

    /// Returns the query parameters that split the URL without changing the response.
    fn noise(&self) -> Option<Finding> {
        let (path, query) = self.request.target.as_str().split_once('?')?;
        let (noisy, others): (Vec<&str>, Vec<&str>) =
            query.split('&').partition(|parameter| pattern_of(parameter).is_some());
        if noisy.is_empty() {
            return None;
        }
        let bare = match others.is_empty() {
            true => path.to_owned(),
            false => format!("{path}?{}", others.join("&")),
        };
        let stored = if self.has(&bare) { "; the URL without them is stored" } else { "" };
        let because = format!("query parameters {}{stored}", names(&noisy));
        let patterns = noisy.iter().filter_map(|parameter| pattern_of(parameter));
        let mut patterns: Vec<String> = patterns.map(|it| format!("\"{it}\"")).collect();
        patterns.dedup();
        let advice = format!(
            "Set `ignore_query = [{}]` for the site: these parameters rarely change a response.",
            patterns.join(", ")
        );
        Some(Finding {
            code: "query-noise".into(),
            because: because.into(),
            rule: "RFC 9111 §2".into(),
            advice: advice.into(),
        })
    }

    /// Returns true if memory has an entry for another target of the same host.
    fn has(&self, target: &str) -> bool {
        let request = self.request;
        let mut key = key::primary(self.site, request.peer.scheme, &request.authority, target);
        request.rules.add_key_parts(self.site, request.headers(), &mut key);
        let Lookup { demand, select, credentials, coalesce, .. } = self.lookup();
        let lookup = Lookup { key: key.borrowed(), demand, select, credentials, coalesce };
        match self.engine.peek(&lookup) {
            LookupResult::Hit(_) => true,
            LookupResult::Miss(miss) => miss.has_prior(),
        }
    }
}

/// Returns true if the course depends on a request to the origin: one that is sent, or one for which a
/// stale response is served instead.
fn needs_origin(course: &Course) -> bool {
    match course {
        Course::Loads(_) | Course::Forwarded(_) => true,
        Course::Served(served) => served.why == Some(Why::LoadFailed),
        _ => false,
    }
}

/// Returns the pattern of [`NOISE`] that matches a parameter.
fn pattern_of(parameter: &str) -> Option<&'static str> {
    let name = name(parameter);
    NOISE.into_iter().find(|pattern| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => *pattern == name,
    })
}
