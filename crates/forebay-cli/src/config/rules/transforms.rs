//! `[[site.transform]]`: the short form of a rule with the edits of one phase.

use std::collections::HashMap;
use std::path::Path;

use forebay_rules::rule::Condition;
use forebay_rules::{Kind, Rule, Setting};

use super::super::problem::Problems;
use super::super::reader::text;
use super::super::typed::Typed;
use super::TypedRule;
use super::conditions::pattern;
use super::edits::edits;
use super::members::Members;

/// Phases as they are typed, with their settings.
const PHASES: [(&str, Kind); 6] = [
    ("client-request", Kind::ClientRequest),
    ("cache-request", Kind::CacheRequest),
    ("origin-request", Kind::OriginRequest),
    ("origin-response", Kind::OriginResponse),
    ("cache-response", Kind::CacheResponse),
    ("client-response", Kind::ClientResponse),
];

/// Reads one transformation, as the rule `transform-N`.
pub(super) fn rule(
    number: usize,
    typed: &Typed,
    folder: &Path,
    problems: &mut Problems,
) -> Option<TypedRule> {
    let mut members = Members::of(typed, problems)?;
    let url = members.take("url").map(|url| pattern(url, problems));
    let phase = members.take("phase");
    let edits = edits(&mut members, folder, problems);
    members.finish(&["url", "phase", "set", "remove", "default", "add", "keep"], problems)?;
    let Some(phase) = phase else {
        let message = "is required: such as \"client-response\"";
        problems.report(typed.place, &format!("{}.phase", typed.path), message);
        return None;
    };
    let kind = text(phase, problems, |name| {
        let found = PHASES.iter().find(|(phase, _)| *phase == name).map(|(_, kind)| *kind);
        let names: Vec<&str> = PHASES.iter().map(|(phase, _)| *phase).collect();
        found.ok_or_else(|| format!("\"{name}\" must be one of {}", names.join(", ")))
    })?;
    let edits = edits?;
    let setting = match kind {
        Kind::ClientRequest => Setting::ClientRequest(edits),
        Kind::CacheRequest => Setting::CacheRequest(edits),
        Kind::OriginRequest => Setting::OriginRequest(edits),
        Kind::OriginResponse => Setting::OriginResponse(edits),
        Kind::CacheResponse => Setting::CacheResponse(edits),
        _ => Setting::ClientResponse(edits),
    };
    let when = match url {
        Some(url) => vec![vec![Condition::UrlRegex(vec![url?])]],
        None => Vec::new(),
    };
    let name = format!("transform-{number}").into();
    Some(TypedRule {
        place: typed.place,
        settings: HashMap::from([(kind, phase.place)]),
        rule: Rule { name, when, unless: Vec::new(), settings: vec![setting] },
    })
}
