//! Errors in a rule that its syntax does not show.

use http::Method;
use http::header::{HeaderName, SET_COOKIE, VARY};

use crate::edit::{Edits, Value, is_fixed, is_needed};
use crate::glob::NamePattern;
use crate::key::{KeyParts, Keyed};
use crate::purge::PurgeRule;
use crate::rule::{Condition, Rule};
use crate::setting::{Class, Kind, Phase, Setting};
use crate::template::{Placeholder, Template};

/// Error in a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Setting with the error; absent if it is in the rule as a whole.
    pub kind: Option<Kind>,
    /// Error and remedy, without the name of the rule.
    pub message: String,
}

/// Returns all errors of a rule that its syntax does not show, such as a field that cannot be
/// edited.
#[must_use]
pub fn faults(rule: &Rule) -> Vec<Fault> {
    let mut faults = Vec::new();
    if rule.settings.is_empty() {
        let message = "has no setting; add one, such as `ttl`".to_owned();
        faults.push(Fault { kind: None, message });
    }
    for setting in &rule.settings {
        let kind = setting.kind();
        let mut report = |message: String| faults.push(Fault { kind: Some(kind), message });
        of_response_rule(rule, kind, &mut report);
        match setting {
            Setting::ClientRequest(edits)
            | Setting::CacheRequest(edits)
            | Setting::OriginRequest(edits)
            | Setting::OriginResponse(edits)
            | Setting::CacheResponse(edits)
            | Setting::ClientResponse(edits) => of_edits(kind, edits, &mut report),
            Setting::Redirect(redirect) => of_template(kind, &redirect.to, &mut report),
            Setting::Key(parts) => of_key(parts, &mut report),
            Setting::Purge(purge) => of_purge(rule, purge, &mut report),
            _ => {}
        }
        for placeholder in placeholders(setting) {
            if let Some(message) = of_placeholder(rule, kind, placeholder) {
                report(message);
            }
        }
    }
    faults
}

/// A rule with a condition on the response is not known before the response.
fn of_response_rule(rule: &Rule, kind: Kind, report: &mut impl FnMut(String)) {
    let Some(condition) = rule.conditions().find(|condition| condition.is_of_response()) else {
        return;
    };
    if kind == Kind::Key {
        let name = condition.name();
        report(format!("the key is made before the response; move `key` to a rule without {name}"));
    } else if kind.phase() < Phase::OriginResponse {
        report(format!(
            "`{}` applies before the response; move it to a rule without {}",
            kind.name(),
            condition.name()
        ));
    }
}

fn of_key(parts: &KeyParts, report: &mut impl FnMut(String)) {
    for Keyed { name, .. } in &parts.headers {
        let reason = match &**name {
            "authorization" | "proxy-authorization" => "use `per_user`",
            "cookie" => "use `key.cookies`",
            "accept-encoding" => "the cache selects content codings by `Vary`",
            "accept" => "use `key.accept`",
            "accept-language" => "use `key.language`",
            "user-agent" => "use `key.device`",
            "x-device" => "`key.device` sets it",
            name if is_fixed(name) || is_needed(name) => "it belongs to one request",
            _ => continue,
        };
        report(format!("\"{name}\" cannot be a key part: {reason}"));
    }
}

/// A purge by everybody would let every client make the origin work.
fn of_purge(rule: &Rule, purge: &PurgeRule, report: &mut impl FnMut(String)) {
    let all = |holds: fn(&Condition) -> bool| {
        !rule.when.is_empty() && rule.when.iter().all(|when| when.iter().any(holds))
    };
    let is_safe = |method: &Method| matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let has_method = rule.when.iter().all(|when| {
        when.iter().any(|condition| {
            matches!(condition, Condition::Method(methods) if !methods.iter().any(is_safe))
        })
    });
    if rule.when.is_empty() || !has_method {
        report(
            "a GET could purge; add `when.method` with a method such as \"PURGE\" only".to_owned(),
        );
    }
    if purge.token.is_none() && !all(|condition| matches!(condition, Condition::Client(_))) {
        report("any client could purge; add `when.client` or `purge.token_file`".to_owned());
    }
}

/// Returns true if equal keys have equal values of the placeholder in an edit that runs after the key
/// is made, because the rule itself adds the value to the key.
fn keys(rule: &Rule, kind: Kind, placeholder: &Placeholder) -> bool {
    let Some(Setting::Key(parts)) = rule.setting(Kind::Key) else { return false };
    kind.phase() >= Phase::OriginRequest
        && match placeholder {
            Placeholder::Header(name) => {
                parts.headers.iter().any(|key| *key.name == *name.as_str())
            }
            Placeholder::Cookie(name) => parts.cookies.iter().any(|key| key.name == *name),
            Placeholder::Device => parts.device,
            _ => false,
        }
}

fn of_edits(kind: Kind, edits: &Edits, report: &mut impl FnMut(String)) {
    if edits.keep.is_some() && kind != Kind::ClientRequest {
        report("`keep` is for `client_request` only; use `remove`".into());
    }
    let named = edits.remove.iter().filter_map(|pattern| match pattern {
        NamePattern::Exact(name) => HeaderName::from_bytes(name.as_bytes()).ok(),
        NamePattern::Prefix(_) => None,
    });
    let written = edits.values().map(|(name, _)| name.clone());
    for name in named.chain(written) {
        if is_fixed(name.as_str()) {
            report(format!("\"{name}\" cannot be edited: {}", reason(name.as_str())));
        } else if name == SET_COOKIE && kind == Kind::OriginResponse {
            report("\"set-cookie\" cannot be edited before storing; use `strip_set_cookie`".into());
        } else if kind == Kind::CacheRequest && !matches!(name.as_str(), "cache-control" | "pragma")
        {
            report(format!(
                "\"{name}\" has no effect on a lookup; only \"cache-control\" and \"pragma\" have"
            ));
        }
    }
    let set = edits.default.iter().chain(&edits.set).any(|(name, _)| *name == VARY);
    let removed = edits.remove.iter().any(|pattern| pattern.matches(VARY.as_str()));
    if set || removed {
        report(
            "\"vary\" may only be added to: without it one client would get the response of another"
                .into(),
        );
    }
}

fn reason(name: &str) -> &'static str {
    match name {
        "cookie" => "use `keep_cookies` or `drop_cookies`",
        "host" => "use `host` of the rule or of `[site.origin]`",
        "age" | "date" | "cache-status" | "via" => "the cache computes it",
        "content-encoding" | "content-length" | "content-range" | "transfer-encoding" => {
            "it describes the bytes of the body"
        }
        "forwarded" | "x-forwarded-for" | "x-forwarded-host" | "x-forwarded-proto" => {
            "the cache writes it from the connection"
        }
        _ => "it belongs to one connection, or describes the client",
    }
}

fn of_template(kind: Kind, template: &Template, report: &mut impl FnMut(String)) {
    if template.as_str().is_empty() {
        report(format!("`{}` needs a target in `to`", kind.name()));
    }
}

/// Returns the placeholders in the texts of a setting.
pub(crate) fn placeholders(setting: &Setting) -> Vec<&Placeholder> {
    match setting {
        Setting::ClientRequest(edits)
        | Setting::CacheRequest(edits)
        | Setting::OriginRequest(edits)
        | Setting::OriginResponse(edits)
        | Setting::CacheResponse(edits)
        | Setting::ClientResponse(edits) => {
            edits.values().flat_map(|(_, value)| Value::placeholders(value)).collect()
        }
        Setting::Redirect(redirect) => redirect.to.placeholders().collect(),
        _ => Vec::new(),
    }
}

fn of_placeholder(rule: &Rule, kind: Kind, placeholder: &Placeholder) -> Option<String> {
    let is_of_response = matches!(placeholder, Placeholder::Status | Placeholder::Response(_));
    if is_of_response && kind.phase() < Phase::OriginResponse {
        return Some(format!(
            "{placeholder} is not known in `{}`, which applies before the response",
            kind.name()
        ));
    }
    if kind.class() == Class::Stored && !placeholder.is_keyed() && !keys(rule, kind, placeholder) {
        let key = match placeholder {
            _ if kind.phase() < Phase::OriginRequest => String::new(),
            Placeholder::Header(name) => format!(", or add \"{name}\" to `key.headers`"),
            Placeholder::Cookie(name) => format!(", or add \"{name}\" to `key.cookies`"),
            Placeholder::Device => ", or set `key.device`".to_owned(),
            _ => String::new(),
        };
        return Some(format!(
            "{placeholder} in `{}` would be stored for every client; move the edit to \
             `client_response`{key}",
            kind.name()
        ));
    }
    None
}

/// Returns the names of all conditions in the configuration.
#[must_use]
pub fn condition_names() -> &'static [&'static str] {
    &[
        "path",
        "path_regex",
        "url_regex",
        "extension",
        "host",
        "scheme",
        "method",
        "query",
        "cookie",
        "header",
        "client",
        "device",
        "graphql",
        "status",
        "content_type",
        "response_header",
    ]
}

/// Returns true if the rule has a condition that limits it to some paths or types.
pub(crate) fn is_limited(rule: &Rule) -> bool {
    rule.conditions().any(|condition| {
        matches!(
            condition,
            Condition::Path(_)
                | Condition::PathRegex(_)
                | Condition::UrlRegex(_)
                | Condition::Extension(_)
                | Condition::ContentType(_)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Tests;
    use crate::setting::{ByStatus, Redirect, StatusTest};
    use http::{HeaderValue, StatusCode};
    use std::time::Duration;

    fn rule(when: Vec<Condition>, settings: Vec<Setting>) -> Rule {
        let when = if when.is_empty() { Vec::new() } else { vec![when] };
        Rule { name: "r".into(), when, unless: Vec::new(), settings }
    }

    fn messages(rule: &Rule) -> Vec<String> {
        faults(rule).into_iter().map(|fault| fault.message).collect()
    }

    fn set(name: &'static str, value: &str) -> Edits {
        let value = Value::parse(value).unwrap();
        Edits { set: vec![(HeaderName::from_static(name), value)], ..Edits::default() }
    }

    #[test]
    fn errors_name_the_problem_and_the_remedy() {
        let by_status = || vec![Condition::Status(vec![StatusTest::Exact(404)])];
        let ttl = Setting::Ttl(ByStatus::Plain(Duration::from_secs(1)));
        let sorted = Setting::SortQuery(true);
        let offline = Setting::StaleOnDisconnectMax(Duration::from_secs(1));
        let moved = Redirect {
            from: None,
            to: Template::parse("/x{status}").unwrap(),
            status: StatusCode::FOUND,
        };
        let keep = Edits { keep: Some(Vec::new()), ..Edits::default() };
        let star = NamePattern::parse("va*").unwrap();
        let removed = Edits { remove: vec![star], ..Edits::default() };
        let rows = [
            (rule(vec![], vec![]), "has no setting"),
            (rule(by_status(), vec![sorted]), "move it to a rule without status"),
            (rule(by_status(), vec![offline]), "move it to a rule without status"),
            (rule(vec![], vec![Setting::OriginRequest(set("age", "1"))]), "cannot be edited"),
            (rule(vec![], vec![Setting::OriginRequest(set("cookie", "1"))]), "`keep_cookies`"),
            (rule(vec![], vec![Setting::OriginResponse(set("x", "{header.x}"))]), "every client"),
            (rule(vec![], vec![Setting::OriginRequest(set("x", "{client}"))]), "every client"),
            (rule(vec![], vec![Setting::ClientRequest(set("x", "{status}"))]), "before the resp"),
            (rule(vec![], vec![Setting::Redirect(moved)]), "{status} is not known"),
            (rule(vec![], vec![Setting::ClientResponse(keep)]), "`keep` is for"),
            (rule(vec![], vec![Setting::ClientResponse(set("vary", "x"))]), "only be added"),
            (rule(vec![], vec![Setting::ClientResponse(removed)]), "only be added"),
            (rule(vec![], vec![Setting::OriginResponse(set("set-cookie", "x"))]), "strip_set"),
            (rule(vec![], vec![Setting::CacheRequest(set("x-a", "1"))]), "no effect on a lookup"),
        ];
        for (rule, expected) in rows {
            let found = messages(&rule);
            assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
        }
        assert_eq!(messages(&rule(by_status(), vec![ttl])), [""; 0]);
        let fine = set("x", "{header.x} {client} {response.etag}");
        assert_eq!(messages(&rule(vec![], vec![Setting::ClientResponse(fine)])), [""; 0]);
        let _ = (HeaderValue::from_static("x"), Tests::Any(Vec::new()));
    }
}
