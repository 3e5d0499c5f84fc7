//! `key` of a rule: header fields and cookies in the key.

use forebay_rules::setting::UserCredential;
use forebay_rules::{KeyParts, Keyed};
use http::HeaderName;

use super::super::problem::Problems;
use super::super::reader::{self, text};
use super::super::typed::{Member, Raw, Typed};
use super::members::{Members, one_or_more};

/// Maximum number of values of one field, and of names, in one list.
const LIST_MAX: usize = 64;

/// Reads the table `key`.
pub(super) fn key(typed: &Typed, problems: &mut Problems) -> Option<KeyParts> {
    let mut members = Members::of(typed, problems)?;
    let mut part = |name| members.take(name);
    let (headers, cookies) = (part("headers"), part("cookies"));
    let (device, language, accept) = (part("device"), part("language"), part("accept"));
    members.finish(&["headers", "cookies", "device", "language", "accept"], problems)?;
    let headers = headers.map(|typed| keyed(typed, field_name, problems));
    let cookies = cookies.map(|typed| keyed(typed, cookie_name, problems));
    let device = device.map(|typed| (reader::TRUTH.read)(typed, problems));
    let language = language.map(|typed| values(typed, is_language, problems));
    let accept = accept.map(|typed| values(typed, is_media_type, problems));
    let parts = KeyParts {
        headers: headers.unwrap_or_else(|| Some(Vec::new()))?,
        cookies: cookies.unwrap_or_else(|| Some(Vec::new()))?,
        device: device.unwrap_or(Some(false))?,
        language: language.unwrap_or_else(|| Some(Vec::new()))?,
        accept: accept.unwrap_or_else(|| Some(Vec::new()))?,
    };
    if parts == KeyParts::default() {
        let message = "must have a part, such as headers = [\"x-country\"]";
        problems.report(typed.place, &typed.path, message);
        return None;
    }
    Some(parts)
}

/// Reads a list of names, of which each may be a table `{ name = [values] }`, or one such table.
fn keyed(
    typed: &Typed,
    name: fn(&str) -> Result<Box<str>, String>,
    problems: &mut Problems,
) -> Option<Vec<Keyed>> {
    let lists = one_or_more(typed, problems, |typed, problems| match &typed.raw {
        Raw::Table(members) => {
            let read: Vec<Option<Keyed>> =
                members.iter().map(|member| with_values(member, name, problems)).collect();
            read.into_iter().collect()
        }
        _ => text(typed, problems, name).map(|name| vec![Keyed { name, values: Vec::new() }]),
    })?;
    let all: Vec<Keyed> = lists.into_iter().flatten().collect();
    is_short(all.len(), typed, problems).then_some(all)
}

fn with_values(
    member: &Member,
    name: fn(&str) -> Result<Box<str>, String>,
    problems: &mut Problems,
) -> Option<Keyed> {
    let name = match name(&member.name) {
        Ok(name) => Some(name),
        Err(message) => {
            problems.report(member.place, &member.value.path, message);
            None
        }
    };
    let values = values(&member.value, is_value, problems);
    Some(Keyed { name: name?, values: values? })
}

fn values(typed: &Typed, fits: fn(&str) -> bool, problems: &mut Problems) -> Option<Vec<Box<str>>> {
    let read = one_or_more(typed, problems, |typed, problems| {
        text(typed, problems, |text| match fits(text) {
            true => Ok(text.into()),
            false => Err(format!("\"{text}\" is not a value that a request can have there")),
        })
    })?;
    is_short(read.len(), typed, problems).then_some(read)
}

fn is_short(length: usize, typed: &Typed, problems: &mut Problems) -> bool {
    if length > LIST_MAX {
        let message = format!("has {length} members; the maximum is {LIST_MAX}");
        problems.report(typed.place, &typed.path, message);
    }
    length <= LIST_MAX
}

/// Reads `per_user`: `"authorization"` or `{ cookie = "sid" }`.
pub(super) fn credential(typed: &Typed, problems: &mut Problems) -> Option<UserCredential> {
    match &typed.raw {
        Raw::Text(word) if word == "authorization" => Some(UserCredential::Authorization),
        Raw::Table(_) => {
            let mut members = Members::of(typed, problems)?;
            let cookie = members.take("cookie").map(|typed| text(typed, problems, cookie_name));
            members.finish(&["cookie"], problems)?;
            if cookie.is_none() {
                problems.report(typed.place, &typed.path, "must be { cookie = \"…\" }");
            }
            cookie?.map(UserCredential::Cookie)
        }
        _ => {
            let message = "must be \"authorization\" or { cookie = \"…\" }";
            problems.report(typed.place, &typed.path, message);
            None
        }
    }
}

/// Reads the name of a header field.
pub(super) fn field(typed: &Typed, problems: &mut Problems) -> Option<HeaderName> {
    let name = text(typed, problems, field_name)?;
    HeaderName::from_bytes(name.as_bytes()).ok()
}

/// Reads a tag.
pub(super) fn tag(typed: &Typed, problems: &mut Problems) -> Option<Box<str>> {
    text(typed, problems, |tag| {
        let is_tag = !tag.is_empty()
            && tag.len() <= 256
            && tag.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
        let message = || format!("\"{tag}\" must be 1 to 256 characters without space and comma");
        is_tag.then(|| tag.into()).ok_or_else(message)
    })
}

/// Reads the name of a header field in lower case.
fn field_name(text: &str) -> Result<Box<str>, String> {
    match HeaderName::from_bytes(text.as_bytes()) {
        Ok(name) => Ok(name.as_str().into()),
        Err(_) => Err(format!("\"{text}\" is not the name of a header field")),
    }
}

fn cookie_name(text: &str) -> Result<Box<str>, String> {
    let is_name = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b';' | b'=' | b','));
    if is_name { Ok(text.into()) } else { Err(format!("\"{text}\" is not the name of a cookie")) }
}

fn is_value(text: &str) -> bool {
    !text.is_empty()
        && text.trim() == text
        && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

fn is_language(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphanumeric())
}

fn is_media_type(text: &str) -> bool {
    let is_token = |part: &str| HeaderName::from_bytes(part.as_bytes()).is_ok() && part != "*";
    text.split_once('/').is_some_and(|(kind, name)| is_token(kind) && is_token(name))
}
