//! Conditions and settings as text.

use std::fmt::Display;

use forebay_rules::rule::{Condition, Extension, HostName, Tests};
use forebay_rules::setting::{BrowserTtl, ByStatus, Setting, StatusTest, UserCredential};
use forebay_rules::{KeyParts, Keyed, NamePattern, PathGlob, Pattern, Rule, TextGlob};

use super::super::units::ShortDuration;

/// Returns the conditions of a rule.
pub(super) fn conditions(rule: &Rule) -> String {
    let all =
        |conditions: &[Condition]| conditions.iter().map(condition).collect::<Vec<_>>().join(", ");
    let when: Vec<String> = rule.when.iter().map(|conditions| all(conditions)).collect();
    let when = if when.is_empty() { "every request".to_owned() } else { when.join("; or ") };
    match &*rule.unless {
        [] => when,
        unless => format!("{when}, unless {}", all(unless)),
    }
}

fn condition(condition: &Condition) -> String {
    let values = match condition {
        Condition::Path(globs) => joined(globs.iter().map(PathGlob::as_str)),
        Condition::PathRegex(patterns) | Condition::UrlRegex(patterns) => {
            joined(patterns.iter().map(Pattern::as_str))
        }
        Condition::Extension(extensions) => joined(extensions.iter().map(|one| match one {
            Extension::Exact(name) => name,
            Extension::Any => "*",
        })),
        Condition::Host(hosts) => joined(hosts.iter().map(|host| match host {
            HostName::Exact(host) => host.to_string(),
            HostName::Below(domain) => format!("*.{domain}"),
        })),
        Condition::Scheme(schemes) => joined(schemes),
        Condition::Method(methods) => joined(methods),
        Condition::Query(tests)
        | Condition::Cookie(tests)
        | Condition::Header(tests)
        | Condition::ResponseHeader(tests) => names(tests),
        Condition::Client(networks) => joined(networks.texts()),
        Condition::Device(devices) => joined(devices),
        Condition::GraphQl(kinds) => joined(kinds.iter().map(|kind| kind.as_str())),
        Condition::Status(tests) => joined(tests.iter().map(status)),
        Condition::ContentType(globs) => joined(globs.iter().map(TextGlob::as_str)),
    };
    format!("{} {values}", condition.name())
}

fn joined<T: Display>(values: impl IntoIterator<Item = T>) -> String {
    joined_by(" or ", values)
}

fn joined_by<T: Display>(between: &str, values: impl IntoIterator<Item = T>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(between)
}

fn names(tests: &Tests) -> String {
    match tests {
        Tests::Any(names) => joined(names),
        Tests::All(tests) => {
            tests.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>().join(" and ")
        }
    }
}

fn status(test: &StatusTest) -> String {
    match test {
        StatusTest::Exact(status) => status.to_string(),
        StatusTest::Class(digit) => format!("{digit}xx"),
    }
}

/// Returns the value of a setting.
pub(super) fn value(setting: &Setting) -> String {
    match setting {
        Setting::Ttl(table) | Setting::DefaultTtl(table) | Setting::NegativeTtl(table) => {
            by_status(table)
        }
        Setting::SoftTimeout(duration)
        | Setting::FetchTimeout(duration)
        | Setting::MinTtl(duration)
        | Setting::MaxTtl(duration)
        | Setting::StaleWhileRevalidate(duration)
        | Setting::StaleIfError(duration)
        | Setting::StaleOnDisconnectMax(duration)
        | Setting::PerUserTtlMax(duration)
        | Setting::BrowserTtl(BrowserTtl::Fresh(duration)) => ShortDuration(*duration).to_string(),
        Setting::BrowserTtl(BrowserTtl::NoStore) => "no-store".to_owned(),
        Setting::IgnoreQuery(names)
        | Setting::KeepQuery(names)
        | Setting::KeepCookies(names)
        | Setting::DropCookies(names) => list(names),
        Setting::Key(parts) => key_parts(parts).join(", "),
        Setting::RequireEcho(names) | Setting::TagFields(names) => joined(names),
        Setting::TargetedFields(fields) => joined(fields.iter().map(|field| field.name())),
        Setting::Purge(purge) => if purge.hard { "hard" } else { "soft" }.to_owned(),
        Setting::CacheMethods(methods) => joined(methods),
        Setting::Json(cut) => {
            let all = [("remove", &cut.remove), ("keep", &cut.keep)];
            let used = all.into_iter().filter(|(_, pointers)| !pointers.is_empty());
            joined_by(" and ", used.map(|(name, all)| format!("{name} {}", joined_by(" ", all))))
        }
        Setting::Tags(tags) => joined(tags),
        Setting::PerUser(UserCredential::Authorization) => "authorization".to_owned(),
        Setting::PerUser(UserCredential::Cookie(name)) => format!("cookie {name}"),
        Setting::SortQuery(on)
        | Setting::Bypass(on)
        | Setting::Coalesce(on)
        | Setting::CoalesceCluster(on)
        | Setting::Store(on) => on.to_string(),
        Setting::ClientCacheControl(obeyed) => if *obeyed { "obey" } else { "ignore" }.to_owned(),
        Setting::EarlyRefreshBeta(beta) => beta.to_string(),
        Setting::Host(host) => host.to_string(),
        Setting::Rewrite(rewrite) => rewrite.to.to_string(),
        Setting::Redirect(redirect) => redirect.to.as_str().to_owned(),
        Setting::Respond(respond) => respond.status.as_u16().to_string(),
        Setting::UnsafeIgnore(words) => joined(words.iter().map(|word| word.as_str())),
        Setting::FailureStatus(tests) => joined(tests.iter().map(status)),
        _ => "by".to_owned(),
    }
}

/// Returns the parts that a rule adds to the key.
fn key_parts(parts: &KeyParts) -> Vec<String> {
    let named = |kind: &str, all: &[Keyed]| {
        all.iter().map(|keyed| format!("{kind} {}", keyed.name)).collect::<Vec<_>>()
    };
    let mut texts = named("header", &parts.headers);
    texts.extend(named("cookie", &parts.cookies));
    texts.extend(parts.device.then(|| "device".to_owned()));
    let chosen = [("language", &parts.language), ("accept", &parts.accept)];
    let used = chosen.into_iter().filter(|(_, values)| !values.is_empty());
    texts.extend(used.map(|(name, values)| format!("{name} {}", joined(values))));
    texts
}

fn list(names: &[NamePattern]) -> String {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    format!("[{}]", names.join(", "))
}

fn by_status(table: &ByStatus) -> String {
    match table {
        ByStatus::Plain(duration) => ShortDuration(*duration).to_string(),
        ByStatus::Table { statuses, any } => {
            let any = any.map(|duration| format!("any {}", ShortDuration(duration)));
            let named = statuses
                .iter()
                .map(|(test, duration)| format!("{} {}", status(test), ShortDuration(*duration)));
            named.chain(any).collect::<Vec<_>>().join(", ")
        }
    }
}
