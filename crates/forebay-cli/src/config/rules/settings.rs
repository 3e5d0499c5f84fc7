//! Settings of a rule, by name.

use std::path::Path;
use std::time::Duration;

use forebay_rules::setting::{
    BrowserTtl, ByStatus, OriginParameter, Redirect, Respond, Rewrite, Setting, StatusTest,
    StripSetCookie, UnsafeWord,
};
use forebay_rules::{Kind, Template};
use forebay_semantics::ProductField;
use http::{HeaderValue, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::super::bounded_file::read_bounded;
use super::super::problem::{Place, Problems};
use super::super::reader::{self, text};
use super::super::typed::{Member, Raw, Typed};
use super::conditions::{names, pattern, status};
use super::edits::{NAMES, edits, secret};
use super::json::json;
use super::keys::{credential, field, key, tag};
use super::members::{Members, list, one_or_more, unknown};
use super::purges::purge;

/// Maximum size of a file that a rule answers with, in bytes.
const BODY_MAX: u64 = 64 << 10;

/// Reads the settings of one rule.
pub(super) struct SettingReader<'a> {
    pub(super) folder: &'a Path,
    pub(super) problems: &'a mut Problems,
    pub(super) settings: Vec<(Setting, Place)>,
    /// False if a setting is invalid.
    pub(super) is_whole: bool,
}

impl SettingReader<'_> {
    /// Reads one member of a rule.
    pub(super) fn read(&mut self, member: &Member) {
        match self.settings_of(member) {
            Some(settings) => {
                self.settings.extend(settings.into_iter().map(|setting| (setting, member.place)));
            }
            None => self.is_whole = false,
        }
    }

    #[expect(clippy::too_many_lines, reason = "one table, a row per setting")]
    fn settings_of(&mut self, member: &Member) -> Option<Vec<Setting>> {
        let (typed, problems) = (&member.value, &mut *self.problems);
        let truth = |problems: &mut Problems| (reader::TRUTH.read)(typed, problems);
        let duration = |problems: &mut Problems| (reader::DURATION.read)(typed, problems);
        let setting = match member.name.as_str() {
            "ignore_query" => Setting::IgnoreQuery(names(typed, problems)?),
            "keep_query" => Setting::KeepQuery(names(typed, problems)?),
            "sort_query" => Setting::SortQuery(truth(problems)?),
            "rewrite" => Setting::Rewrite(rewrite(typed, problems)?),
            "host" => Setting::Host(
                (reader::ORIGIN_HOST.read)(typed, problems)?.to_ascii_lowercase().into(),
            ),
            "redirect" => Setting::Redirect(redirect(typed, problems)?),
            "respond" => Setting::Respond(respond(typed, self.folder, problems)?),
            "purge" => Setting::Purge(purge(typed, self.folder, problems)?),
            "bypass" => Setting::Bypass(truth(problems)?),
            "keep_cookies" => Setting::KeepCookies(names(typed, problems)?),
            "drop_cookies" => Setting::DropCookies(names(typed, problems)?),
            "key" => Setting::Key(key(typed, problems)?),
            "require_echo" => Setting::RequireEcho(one_or_more(typed, problems, field)?),
            "per_user" => Setting::PerUser(credential(typed, problems)?),
            "per_user_ttl_max" => Setting::PerUserTtlMax(duration(problems)?),
            "targeted_fields" => {
                let words = ProductField::ALL.map(|field| (field.name(), field));
                let one = |typed: &Typed, problems: &mut Problems| word(typed, problems, &words);
                Setting::TargetedFields(one_or_more(typed, problems, one)?)
            }
            "tag_fields" => Setting::TagFields(one_or_more(typed, problems, field)?),
            "tags" => Setting::Tags(one_or_more(typed, problems, tag)?),
            "client_cache_control" => Setting::ClientCacheControl(word(
                typed,
                problems,
                &[("obey", true), ("ignore", false)],
            )?),
            "coalesce" => Setting::Coalesce(truth(problems)?),
            "coalesce_cluster" => Setting::CoalesceCluster(truth(problems)?),
            "cache_methods" => Setting::CacheMethods((reader::METHODS.read)(typed, problems)?),
            "soft_timeout" => Setting::SoftTimeout(duration(problems)?),
            "early_refresh_beta" => Setting::EarlyRefreshBeta(beta(typed, problems)?),
            "fetch_timeout" => Setting::FetchTimeout(duration(problems)?),
            "ttl" => Setting::Ttl(by_status(typed, problems)?),
            "default_ttl" => Setting::DefaultTtl(by_status(typed, problems)?),
            "negative_ttl" => Setting::NegativeTtl(by_status(typed, problems)?),
            "min_ttl" => Setting::MinTtl(duration(problems)?),
            "max_ttl" => Setting::MaxTtl(duration(problems)?),
            "stale_while_revalidate" => Setting::StaleWhileRevalidate(duration(problems)?),
            "stale_if_error" => Setting::StaleIfError(duration(problems)?),
            "stale_on_disconnect_max" => Setting::StaleOnDisconnectMax(duration(problems)?),
            "failure_status" => Setting::FailureStatus(list(typed, problems, status)?),
            "store" => Setting::Store(store(typed, problems)?),
            "strip_set_cookie" => {
                let words =
                    [("always", StripSetCookie::Always), ("stored", StripSetCookie::Stored)];
                Setting::StripSetCookie(word(typed, problems, &words)?)
            }
            "unsafe_ignore" => {
                let words = UnsafeWord::ALL.map(|word| (word.as_str(), word));
                let one = |typed: &Typed, problems: &mut Problems| word(typed, problems, &words);
                Setting::UnsafeIgnore(one_or_more(typed, problems, one)?)
            }
            "json" => Setting::Json(json(typed, problems)?),
            "browser_ttl" => Setting::BrowserTtl(match &typed.raw {
                Raw::Text(text) if text == "no-store" => BrowserTtl::NoStore,
                _ => BrowserTtl::Fresh(duration(problems)?),
            }),
            "client_request" | "cache_request" | "origin_request" | "origin_response"
            | "cache_response" | "client_response" => return self.edits(member),
            _ => {
                self.refuse(member);
                return None;
            }
        };
        Some(vec![setting])
    }

    fn refuse(&mut self, member: &Member) {
        let kinds = Kind::ALL.iter().map(|kind| kind.name()).filter(|name| !name.contains('.'));
        let known: Vec<&'static str> =
            ["name", "when", "unless"].into_iter().chain(kinds).collect();
        unknown(member, &known, self.problems);
    }

    fn edits(&mut self, member: &Member) -> Option<Vec<Setting>> {
        let mut members = Members::of(&member.value, self.problems)?;
        let query = members.take("query").filter(|_| member.name == "origin_request");
        let query = query.map(|query| parameters(query, self.folder, self.problems));
        let edits = edits(&mut members, self.folder, self.problems);
        members.finish(&NAMES, self.problems)?;
        let edits = edits?;
        let is_empty = edits.is_empty();
        let setting = match member.name.as_str() {
            "client_request" => Setting::ClientRequest(edits),
            "cache_request" => Setting::CacheRequest(edits),
            "origin_request" => Setting::OriginRequest(edits),
            "origin_response" => Setting::OriginResponse(edits),
            "cache_response" => Setting::CacheResponse(edits),
            _ => Setting::ClientResponse(edits),
        };
        let mut settings = if is_empty { Vec::new() } else { vec![setting] };
        if let Some(parameters) = query {
            settings.push(Setting::OriginQuery(parameters?));
        }
        if settings.is_empty() {
            let message = "must have an edit, such as { remove = [\"x-debug\"] }";
            self.problems.report(member.place, &member.value.path, message);
            return None;
        }
        Some(settings)
    }
}

fn beta(typed: &Typed, problems: &mut Problems) -> Option<f64> {
    let beta = (reader::NUMBER.read)(typed, problems)?;
    if (0.0..=10.0).contains(&beta) {
        return Some(beta);
    }
    problems.report(typed.place, &typed.path, "must be at least 0 and at most 10");
    None
}

/// Reads `store`, which can only forbid storing.
fn store(typed: &Typed, problems: &mut Problems) -> Option<bool> {
    if !(reader::TRUTH.read)(typed, problems)? {
        return Some(false);
    }
    let message = "can only be false: every storable response is stored; use `unsafe_ignore` or \
                   `default_ttl` for others";
    problems.report(typed.place, &typed.path, message);
    None
}

fn word<T: Copy>(typed: &Typed, problems: &mut Problems, words: &[(&str, T)]) -> Option<T> {
    text(typed, problems, |text| {
        let found = words.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        let names: Vec<String> = words.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        found.ok_or_else(|| format!("\"{text}\" must be one of {}", names.join(", ")))
    })
}

/// Reads a duration, or a table of durations by status.
fn by_status(typed: &Typed, problems: &mut Problems) -> Option<ByStatus> {
    let Raw::Table(members) = &typed.raw else {
        return (reader::DURATION.read)(typed, problems).map(ByStatus::Plain);
    };
    let mut any = None;
    let mut statuses: Vec<Option<(StatusTest, Duration)>> = Vec::new();
    for member in members {
        let duration = (reader::DURATION.read)(&member.value, problems);
        if member.name == "any" {
            any = Some(duration?);
            continue;
        }
        let test = StatusTest::parse(&member.name);
        if test.is_none() {
            let message = format!(
                "\"{}\" must be a status from 200 to 599, a class such as \"4xx\", or any",
                member.name
            );
            problems.report(member.place, &member.value.path, message);
        }
        statuses.push(test.zip(duration));
    }
    if members.is_empty() {
        problems.report(
            typed.place,
            &typed.path,
            "must have a status, such as { \"200\" = \"10m\" }",
        );
        return None;
    }
    Some(ByStatus::Table { statuses: statuses.into_iter().collect::<Option<_>>()?, any })
}

/// Reads `{ from, to }`; `None` if `from` is absent.
fn moved(
    members: &mut Members<'_>,
    typed: &Typed,
    problems: &mut Problems,
) -> Option<(Option<forebay_rules::Pattern>, String)> {
    let from = members.take("from").map(|from| pattern(from, problems));
    let Some(to) = members.take("to") else {
        let message = "needs `to`, such as { from = \"^/old/(.*)\", to = \"/new/$1\" }";
        problems.report(typed.place, &typed.path, message);
        return None;
    };
    let to = text(to, problems, |text| Ok(text.to_owned()));
    let from = match from {
        Some(from) => Some(from?),
        None => None,
    };
    Some((from, to?))
}

fn rewrite(typed: &Typed, problems: &mut Problems) -> Option<Rewrite> {
    let mut members = Members::of(typed, problems)?;
    let moved = moved(&mut members, typed, problems);
    members.finish(&["from", "to"], problems)?;
    let (from, to) = moved?;
    let is_path = to.starts_with('/') || from.is_some() && to.starts_with('$');
    if !is_path || to.contains(['?', '#', '{', ' ']) {
        let message = "`to` must be a path without a query, such as \"/index.html\"";
        problems.report(typed.place, &typed.path, message);
        return None;
    }
    Some(Rewrite { from, to: to.into() })
}

fn redirect(typed: &Typed, problems: &mut Problems) -> Option<Redirect> {
    let mut members = Members::of(typed, problems)?;
    let moved = moved(&mut members, typed, problems);
    let status = match members.take("status") {
        Some(status) => status_in(status, &[301, 302, 303, 307, 308], problems),
        None => Some(StatusCode::FOUND),
    };
    members.finish(&["from", "to", "status"], problems)?;
    let (from, to) = moved?;
    match Template::parse(&to) {
        Ok(to) => Some(Redirect { from, to, status: status? }),
        Err(error) => {
            problems.report(typed.place, &typed.path, format!("\"{to}\" {error}"));
            None
        }
    }
}

fn status_in(typed: &Typed, allowed: &[u16], problems: &mut Problems) -> Option<StatusCode> {
    let status = match &typed.raw {
        Raw::Integer(_, Some(status)) => u16::try_from(*status).ok(),
        _ => None,
    };
    let status = status.filter(|status| allowed.contains(status));
    let Some(status) = status.and_then(|status| StatusCode::from_u16(status).ok()) else {
        let names: Vec<String> = allowed.iter().map(u16::to_string).collect();
        let message = format!("must be one of {}", names.join(", "));
        problems.report(typed.place, &typed.path, message);
        return None;
    };
    Some(status)
}

fn respond(typed: &Typed, folder: &Path, problems: &mut Problems) -> Option<Respond> {
    let mut members = Members::of(typed, problems)?;
    let status = match members.take("status") {
        Some(status) => {
            let allowed: Vec<u16> = (200..600).filter(|s| !matches!(s, 206 | 304)).collect();
            status_in(status, &allowed, problems)
        }
        None => Some(StatusCode::OK),
    };
    let (body, file) = (members.take("body"), members.take("file"));
    let content_type = members.take("content_type").map(|typed| {
        text(typed, problems, |value| {
            HeaderValue::from_str(value).map_err(|_| format!("\"{value}\" is not a media type"))
        })
    });
    members.finish(&["status", "body", "file", "content_type"], problems)?;
    let body = match (body, file) {
        (Some(_), Some(_)) => {
            problems.report(typed.place, &typed.path, "has `body` and `file`; keep one of them");
            return None;
        }
        (Some(body), None) => text(body, problems, |text| Ok(text.as_bytes().to_vec()))?,
        (None, Some(file)) => text(file, problems, |name| {
            let read = read_bounded(&folder.join(name), BODY_MAX);
            read.map_err(|error| format!("\"{name}\" cannot be read: {error}"))
        })?,
        (None, None) => Vec::new(),
    };
    let content_type = match content_type {
        Some(content_type) => Some(content_type?),
        None if body.is_empty() => None,
        None => Some(HeaderValue::from_static("text/plain; charset=utf-8")),
    };
    Some(Respond { status: status?, body: body.into(), content_type })
}

fn parameters(
    typed: &Typed,
    folder: &Path,
    problems: &mut Problems,
) -> Option<Vec<OriginParameter>> {
    let members = Members::of(typed, problems)?.rest();
    let read: Vec<Option<OriginParameter>> = members
        .into_iter()
        .map(|member| {
            let is_secret = matches!(member.value.raw, Raw::Table(_));
            let value = if is_secret {
                secret(&member.value, folder, problems)
            } else {
                text(&member.value, problems, |text| Ok(text.to_owned()))
            };
            let is_name = !member.name.is_empty() && !member.name.contains(['&', '=', '#', ' ']);
            if !is_name {
                let message = format!("\"{}\" is not the name of a parameter", member.name);
                problems.report(member.place, &member.value.path, message);
            }
            let value = utf8_percent_encode(&value?, NON_ALPHANUMERIC).to_string().into();
            let name = member.name.as_str().into();
            is_name.then_some(OriginParameter { name, value, is_secret })
        })
        .collect();
    read.into_iter().collect()
}
