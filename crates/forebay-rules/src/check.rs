//! Warnings about rules that are valid and probably wrong.
//!
//! A warning about the requests that rules match is given only if it is proved: some problems are
//! not found. Warnings about settings (such as `wide` and `cookies`) depend on the rule itself and
//! on rules that bypass.

use std::fmt;

use crate::compile::RuleSet;
use crate::contain::{contains, intersect, never_matches};
use crate::edit::Value;
use crate::rule::{Condition, Rule};
use crate::setting::{Kind, Phase, Setting};
use crate::validate::is_limited;

/// Number of unanchored expressions above which each request pays much for them.
const SEARCHES_MAX: usize = 8;

/// Subject of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// A later rule matches at least the same requests and sets all values of this one.
    Shadowed,
    /// The conditions of the rule exclude each other, so that it cannot match.
    Never,
    /// The rule has no effect, because an earlier rule ends all its requests.
    AfterEnd,
    /// Two rules give one setting different values for some of the same requests, and neither
    /// matches all requests of the other.
    Overlap,
    /// The match result of the rule is a part of the key, so that URLs are stored twice.
    Splits,
    /// The rule has `ttl` or `strip_set_cookie` for all paths and types, and no rule bypasses.
    Wide,
    /// The rule has `ttl` above zero, and neither `keep_cookies` nor `drop_cookies`.
    Cookies,
    /// The rule sends a secret to the origin, so that every client gets responses that only the
    /// secret permits.
    Opens,
    /// More than eight rules have expressions that search the whole path.
    SearchRegex,
    /// The rule ignores a prohibition against storing (`unsafe_ignore`).
    Unsafe,
}

impl Topic {
    /// Returns the word that is printed.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shadowed => "shadowed",
            Self::Never => "never",
            Self::AfterEnd => "after-end",
            Self::Overlap => "overlap",
            Self::Splits => "splits",
            Self::Wide => "wide",
            Self::Cookies => "cookies",
            Self::Opens => "opens",
            Self::SearchRegex => "search-regex",
            Self::Unsafe => "unsafe",
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Warning about a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Number of the rule in file order, from 0.
    pub rule: usize,
    /// Subject of the warning.
    pub topic: Topic,
    /// Problem and remedy, as the rest of a sentence that begins with the rule.
    pub message: String,
}

/// Returns the warnings about all rules, in file order.
#[must_use]
pub fn warnings(set: &RuleSet) -> Vec<Warning> {
    let rules = set.rules();
    let mut found = Vec::new();
    let bypasses =
        rules.iter().any(|rule| rule.setting(Kind::Bypass) == Some(&Setting::Bypass(true)));
    for (number, rule) in rules.iter().enumerate() {
        let mut warn = |topic, message: String| {
            found.push(Warning { rule: number, topic, message });
        };
        if never_matches(rule) {
            warn(
                Topic::Never,
                "cannot match any request; its conditions exclude each other".into(),
            );
            continue;
        }
        of_pairs(rules, number, &mut warn);
        if set.splits.contains(number) {
            let names: Vec<&str> = unkeyed_names(rule);
            let message = format!(
                "depends on {}, which is not in the key; each URL is stored once for requests that \
                 match and once for others",
                names.join(" and ")
            );
            warn(Topic::Splits, message);
        }
        of_settings(rule, bypasses, &mut warn);
    }
    let searches: Vec<usize> = (0..rules.len()).filter(|n| searches(&rules[*n]) > 0).collect();
    if let Some(rule) = searches.get(SEARCHES_MAX) {
        let message = format!(
            "is one of {} rules with expressions that search the whole path; begin them with ^, or \
             use `path`",
            searches.len()
        );
        found.push(Warning { rule: *rule, topic: Topic::SearchRegex, message });
    }
    found
}

fn of_pairs(rules: &[Rule], number: usize, warn: &mut impl FnMut(Topic, String)) {
    let rule = &rules[number];
    let later = &rules[number + 1..];
    if let Some(over) = later.iter().find(|later| overrides(later, rule) && contains(later, rule)) {
        let message = format!(
            "has no effect: \"{}\" comes later, matches the same, and sets all of it",
            over.name
        );
        warn(Topic::Shadowed, message);
    }
    let is_ended = |earlier: &&Rule| ends(earlier) && contains(earlier, rule);
    let is_early = |setting: &Setting| setting.kind().phase() < Phase::ClientResponse;
    if let Some(end) = rules[..number].iter().find(is_ended)
        && rule.settings.iter().all(is_early)
    {
        warn(Topic::AfterEnd, format!("has no effect: \"{}\" ends these requests", end.name));
    }
    for other in later {
        let both = rule.settings.iter().find(|setting| {
            let theirs = other.setting(setting.kind());
            !adds_up(setting.kind()) && theirs.is_some_and(|theirs| theirs != *setting)
        });
        let Some(both) = both else { continue };
        if rule.unless.is_empty()
            && other.unless.is_empty()
            && intersect(rule, other)
            && !contains(rule, other)
            && !contains(other, rule)
        {
            let message = format!(
                "sets `{}` for requests that \"{}\" matches too; the later rule wins",
                both.kind().name(),
                other.name
            );
            warn(Topic::Overlap, message);
        }
    }
}

fn of_settings(rule: &Rule, bypasses: bool, warn: &mut impl FnMut(Topic, String)) {
    let has = |kind| rule.setting(kind).is_some();
    let widens = [Kind::Ttl, Kind::StripSetCookie].into_iter().find(|kind| has(*kind));
    if let Some(kind) = widens
        && !is_limited(rule)
        && !bypasses
    {
        let message = format!(
            "sets `{}` for every path; add `path`, `extension` or `content_type`, or a rule with \
             `bypass = true` for private pages",
            kind.name()
        );
        warn(Topic::Wide, message);
    }
    if has(Kind::Ttl) && !has(Kind::KeepCookies) && !has(Kind::DropCookies) && !is_removed(rule) {
        let message = "sets `ttl` while cookies reach the origin, so that requests with cookies are \
                       not stored; add `keep_cookies = []`";
        warn(Topic::Cookies, message.into());
    }
    if let Some(name) = own_credential(rule) {
        let message = format!(
            "sends the secret \"{name}\" to the origin, so that every client gets responses that \
             only this secret permits"
        );
        warn(Topic::Opens, message);
    }
    if let Some(Setting::UnsafeIgnore(words)) = rule.setting(Kind::UnsafeIgnore) {
        for word in words {
            let message = format!("stores responses despite \"{}\"", word.as_str());
            warn(Topic::Unsafe, message);
        }
    }
}

/// Returns true if the rule is about responses that a shared cache never stores.
fn is_removed(rule: &Rule) -> bool {
    let zero = |setting: &Setting| match setting {
        Setting::Ttl(crate::setting::ByStatus::Plain(duration)) => duration.is_zero(),
        _ => false,
    };
    rule.setting(Kind::Ttl).is_some_and(zero)
}

/// Returns the name of the field or parameter with a credential that was read from a file.
fn own_credential(rule: &Rule) -> Option<String> {
    rule.settings.iter().find_map(|setting| match setting {
        Setting::OriginRequest(edits) | Setting::ClientRequest(edits) => {
            let secret = edits.values().find(|(_, value)| matches!(value, Value::Secret(_)));
            secret.map(|(name, _)| name.to_string())
        }
        Setting::OriginQuery(parameters) => {
            parameters.iter().find(|one| one.is_secret).map(|one| one.name.to_string())
        }
        _ => None,
    })
}

fn unkeyed_names(rule: &Rule) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = rule
        .conditions()
        .filter(|condition| {
            matches!(
                condition,
                Condition::Header(_)
                    | Condition::Cookie(_)
                    | Condition::Client(_)
                    | Condition::Device(_)
                    | Condition::Query(_)
                    | Condition::UrlRegex(_)
                    | Condition::Scheme(_)
            )
        })
        .map(Condition::name)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns true if the later rule replaces every value of the earlier one.
fn overrides(later: &Rule, earlier: &Rule) -> bool {
    earlier.settings.iter().all(|setting| {
        let kind = setting.kind();
        let theirs = later.setting(kind);
        if adds_up(kind) { theirs == Some(setting) } else { theirs.is_some() && !is_first(kind) }
    })
}

/// Returns true if values of several rules add up, or the first one wins.
const fn adds_up(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::IgnoreQuery
            | Kind::KeepQuery
            | Kind::ClientRequest
            | Kind::KeepCookies
            | Kind::DropCookies
            | Kind::Key
            | Kind::RequireEcho
            | Kind::TagFields
            | Kind::Tags
            | Kind::TargetedFields
            | Kind::Json
            | Kind::CacheRequest
            | Kind::OriginRequest
            | Kind::OriginQuery
            | Kind::UnsafeIgnore
            | Kind::OriginResponse
            | Kind::CacheResponse
            | Kind::ClientResponse
    ) || is_first(kind)
}

const fn is_first(kind: Kind) -> bool {
    matches!(kind, Kind::Redirect | Kind::Respond | Kind::Purge)
}

/// Returns true if the rule ends every request that it matches.
fn ends(rule: &Rule) -> bool {
    rule.settings.iter().any(|setting| match setting {
        Setting::Respond(_) | Setting::Purge(_) => true,
        Setting::Redirect(redirect) => redirect.from.is_none(),
        _ => false,
    })
}

fn searches(rule: &Rule) -> usize {
    rule.conditions()
        .filter_map(|condition| match condition {
            Condition::PathRegex(patterns) | Condition::UrlRegex(patterns) => Some(patterns),
            _ => None,
        })
        .flatten()
        .filter(|pattern| !pattern.is_anchored())
        .count()
}
