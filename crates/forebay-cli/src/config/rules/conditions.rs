//! `when` and `unless`.

use forebay_rules::glob::{NamePattern, PathGlob, TextGlob};
use forebay_rules::rule::{Condition, Device, Extension, HostName, Tests, ValueTest};
use forebay_rules::setting::StatusTest;
use forebay_rules::validate::condition_names;
use forebay_rules::{Operation, Pattern};
use forebay_semantics::{Networks, Scheme};
use http::Method;

use super::super::host::HostPattern;
use super::super::problem::Problems;
use super::super::reader::{joined, network, text};
use super::super::typed::{Member, Raw, Typed};
use super::members::{Members, list, one_or_more, unknown};

/// Reads a table of conditions, or a list of tables.
pub(super) fn alternatives(typed: &Typed, problems: &mut Problems) -> Option<Vec<Vec<Condition>>> {
    one_or_more(typed, problems, |table, problems| {
        let members = Members::of(table, problems)?.rest();
        if members.is_empty() {
            problems.report(
                table.place,
                &table.path,
                "must have a condition; remove the field instead",
            );
            return None;
        }
        // Every condition is read, so that all errors are found.
        let read: Vec<Option<Condition>> =
            members.iter().map(|member| condition(member, problems)).collect();
        read.into_iter().collect()
    })
}

fn condition(member: &Member, problems: &mut Problems) -> Option<Condition> {
    let Member { name, value, .. } = member;
    Some(match name.as_str() {
        "path" => Condition::Path(one_or_more(value, problems, |typed, problems| {
            text(typed, problems, |glob| {
                PathGlob::parse(glob).map_err(|e| format!("\"{glob}\" {e}"))
            })
        })?),
        "path_regex" => Condition::PathRegex(one_or_more(value, problems, pattern)?),
        "url_regex" => Condition::UrlRegex(one_or_more(value, problems, pattern)?),
        "extension" => Condition::Extension(one_or_more(value, problems, extension)?),
        "host" => Condition::Host(one_or_more(value, problems, |typed, problems| {
            let host = text(typed, problems, HostPattern::parse)?;
            Some(match host {
                HostPattern::Exact(host) => HostName::Exact(host.as_str().into()),
                HostPattern::Below(domain) => HostName::Below(domain.as_str().into()),
            })
        })?),
        "scheme" => Condition::Scheme(one_or_more(value, problems, |typed, problems| {
            text(typed, problems, |name| {
                let scheme = Scheme::parse(name).filter(|scheme| scheme.as_str() == name);
                scheme.ok_or_else(|| format!("\"{name}\" must be \"http\" or \"https\""))
            })
        })?),
        "method" => Condition::Method(one_or_more(value, problems, method)?),
        "query" => Condition::Query(tests(value, false, problems)?),
        "cookie" => Condition::Cookie(tests(value, false, problems)?),
        "header" => Condition::Header(tests(value, true, problems)?),
        "client" => Condition::Client(networks(value, problems)?),
        "device" => Condition::Device(one_or_more(value, problems, |typed, problems| {
            text(typed, problems, |name| {
                let device = Device::ALL.into_iter().find(|device| device.as_str() == name);
                device.ok_or_else(|| {
                    format!("\"{name}\" must be \"mobile\", \"tablet\", \"desktop\" or \"bot\"")
                })
            })
        })?),
        "status" => Condition::Status(one_or_more(value, problems, status)?),
        "content_type" => {
            Condition::ContentType(one_or_more(value, problems, |typed, problems| {
                text(typed, problems, |glob| Ok(TextGlob::new(glob)))
            })?)
        }
        "response_header" => Condition::ResponseHeader(tests(value, true, problems)?),
        "graphql" => Condition::GraphQl(one_or_more(value, problems, |typed, problems| {
            text(typed, problems, |name| {
                let kind = Operation::ALL.into_iter().find(|kind| kind.as_str() == name);
                kind.ok_or_else(|| {
                    format!("\"{name}\" must be \"query\", \"mutation\" or \"subscription\"")
                })
            })
        })?),
        _ => {
            unknown(member, condition_names(), problems);
            return None;
        }
    })
}

/// Reads a regular expression.
pub(super) fn pattern(typed: &Typed, problems: &mut Problems) -> Option<Pattern> {
    text(typed, problems, |text| Pattern::new(text).map_err(|error| format!("\"{text}\" {error}")))
}

fn extension(typed: &Typed, problems: &mut Problems) -> Option<Extension> {
    text(typed, problems, |name| match name {
        "*" => Ok(Extension::Any),
        name if name.len() <= 16
            && !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase()) =>
        {
            Ok(Extension::Exact(name.into()))
        }
        _ => {
            Err(format!("\"{name}\" must be lower case letters and digits without a dot, or \"*\""))
        }
    })
}

fn method(typed: &Typed, problems: &mut Problems) -> Option<Method> {
    text(typed, problems, |name| {
        let is_upper = name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
        let method = Method::from_bytes(name.as_bytes()).ok().filter(|_| is_upper);
        method.ok_or_else(|| format!("\"{name}\" is not a method such as \"GET\""))
    })
}

fn networks(typed: &Typed, problems: &mut Problems) -> Option<Networks> {
    one_or_more(typed, problems, network).map(joined)
}

/// Reads `404` or `"4xx"`.
pub(super) fn status(typed: &Typed, problems: &mut Problems) -> Option<StatusTest> {
    let message = "must be a status from 200 to 599, or a class such as \"4xx\"";
    let found = match &typed.raw {
        Raw::Integer(_, Some(status)) => u16::try_from(*status).ok().and_then(StatusTest::of),
        Raw::Text(text) => StatusTest::parse(text),
        _ => None,
    };
    if found.is_none() {
        problems.report(typed.place, &typed.path, message);
    }
    found
}

/// Reads a name, with `*` at its end for all names with that start.
pub(super) fn name(typed: &Typed, is_field: bool, problems: &mut Problems) -> Option<NamePattern> {
    text(typed, problems, |text| parse_name(text, is_field))
}

fn parse_name(text: &str, is_field: bool) -> Result<NamePattern, String> {
    let name = if is_field { text.to_ascii_lowercase() } else { text.to_owned() };
    let parsed = NamePattern::parse(&name).map_err(|error| format!("\"{text}\" {error}"))?;
    let is_token =
        |text: &str| text.is_empty() || http::HeaderName::from_bytes(text.as_bytes()).is_ok();
    if is_field && !is_token(parsed.as_str()) {
        return Err(format!("\"{text}\" is not the name of a header field"));
    }
    Ok(parsed)
}

/// Reads a list of names, or a table of tests.
fn tests(typed: &Typed, is_field: bool, problems: &mut Problems) -> Option<Tests> {
    let Raw::Table(members) = &typed.raw else {
        let names = one_or_more(typed, problems, |typed, problems| name(typed, is_field, problems));
        return names.map(Tests::Any);
    };
    let read: Vec<Option<(NamePattern, ValueTest)>> = members
        .iter()
        .map(|member| {
            let name = match parse_name(&member.name, is_field) {
                Ok(name) => Some(name),
                Err(message) => {
                    problems.report(member.place, &member.value.path, message);
                    None
                }
            };
            let test = test(&member.value, problems);
            Some((name?, test?))
        })
        .collect();
    if read.is_empty() {
        problems.report(typed.place, &typed.path, "must have a test, such as { name = true }");
        return None;
    }
    read.into_iter().collect::<Option<Vec<_>>>().map(Tests::All)
}

fn test(typed: &Typed, problems: &mut Problems) -> Option<ValueTest> {
    match &typed.raw {
        Raw::Truth(true) => Some(ValueTest::Present),
        Raw::Truth(false) => Some(ValueTest::Absent),
        Raw::Text(_) | Raw::List(_) => {
            let glob = |typed: &Typed, problems: &mut Problems| {
                text(typed, problems, |text| Ok(TextGlob::new(text)))
            };
            one_or_more(typed, problems, glob).map(ValueTest::Globs)
        }
        Raw::Table(_) => {
            let mut members = Members::of(typed, problems)?;
            let regex = members.take("regex").map(|regex| pattern(regex, problems));
            members.finish(&["regex"], problems)?;
            match regex {
                Some(regex) => regex.map(ValueTest::Regex),
                None => {
                    problems.report(typed.place, &typed.path, "must be { regex = \"…\" }");
                    None
                }
            }
        }
        other => {
            let message = format!(
                "must be true, false, a pattern, a list of patterns or {{ regex = \"…\" }}, not {}",
                other.shape()
            );
            problems.report(typed.place, &typed.path, message);
            None
        }
    }
}

/// Reads a list of names of parameters or cookies.
pub(super) fn names(typed: &Typed, problems: &mut Problems) -> Option<Vec<NamePattern>> {
    list(typed, problems, |typed, problems| name(typed, false, problems))
}
