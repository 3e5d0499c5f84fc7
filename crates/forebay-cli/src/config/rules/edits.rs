//! Edits of header fields, values and placeholders.

use std::path::Path;

use forebay_rules::{Edits, Value};
use http::{HeaderName, HeaderValue};

use super::super::bounded_file::read_bounded;
use super::super::problem::Problems;
use super::super::typed::{Raw, Typed};
use super::conditions::name;
use super::members::{Members, list};

/// Maximum size of a file with a secret, in bytes.
const SECRET_MAX: u64 = 8 << 10;

/// Names of the edits.
pub(super) const NAMES: [&str; 5] = ["keep", "remove", "default", "set", "add"];

/// Reads edits from the members of a table, and leaves other members.
pub(super) fn edits(
    members: &mut Members<'_>,
    folder: &Path,
    problems: &mut Problems,
) -> Option<Edits> {
    let mut names = |key, problems: &mut Problems| {
        members
            .take(key)
            .map(|typed| list(typed, problems, |typed, problems| name(typed, true, problems)))
    };
    let (keep, remove) = (names("keep", problems), names("remove", problems));
    let mut values = |key, problems: &mut Problems| match members.take(key) {
        Some(typed) => values(typed, folder, problems),
        None => Some(Vec::new()),
    };
    let default = values("default", problems);
    let set = values("set", problems);
    let add = values("add", problems);
    Some(Edits {
        keep: match keep {
            Some(keep) => Some(keep?),
            None => None,
        },
        remove: remove.unwrap_or(Some(Vec::new()))?,
        default: default?,
        set: set?,
        add: add?,
    })
}

fn values(
    typed: &Typed,
    folder: &Path,
    problems: &mut Problems,
) -> Option<Vec<(HeaderName, Value)>> {
    let members = Members::of(typed, problems)?.rest();
    let read: Vec<Option<(HeaderName, Value)>> = members
        .into_iter()
        .map(|member| {
            let name = HeaderName::from_bytes(member.name.as_bytes()).ok();
            if name.is_none() {
                let message = format!("\"{}\" is not the name of a header field", member.name);
                problems.report(member.place, &member.value.path, message);
            }
            let value = value(&member.value, folder, problems);
            Some((name?, value?))
        })
        .collect();
    read.into_iter().collect()
}

fn value(typed: &Typed, folder: &Path, problems: &mut Problems) -> Option<Value> {
    match &typed.raw {
        Raw::Text(text) => match Value::parse(text) {
            Ok(value) => Some(value),
            Err(error) => {
                problems.report(typed.place, &typed.path, format!("\"{text}\" {error}"));
                None
            }
        },
        Raw::Table(_) => {
            let secret = secret(typed, folder, problems)?;
            let mut value = HeaderValue::from_str(&secret).ok();
            if let Some(value) = &mut value {
                value.set_sensitive(true);
            } else {
                problems.report(typed.place, &typed.path, "the file does not hold a field value");
            }
            value.map(Value::Secret)
        }
        other => {
            let shape = other.shape();
            let message = format!("must be a string or {{ file = \"…\" }}, not {shape}");
            problems.report(typed.place, &typed.path, message);
            None
        }
    }
}

/// Reads `{ file = "…" }`: the text of the file, without white space around it. A relative path
/// starts at the configuration file.
pub(super) fn secret(typed: &Typed, folder: &Path, problems: &mut Problems) -> Option<String> {
    let mut members = Members::of(typed, problems)?;
    let file = members.take("file");
    members.finish(&["file"], problems)?;
    let Some(Typed { raw: Raw::Text(file), place, path }) = file else {
        problems.report(typed.place, &typed.path, "must be { file = \"…\" }");
        return None;
    };
    let read = read_bounded(&folder.join(file), SECRET_MAX);
    let text = read.and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other));
    match text {
        Ok(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
        Ok(_) => {
            problems.report(*place, path, format!("\"{file}\" is empty"));
            None
        }
        Err(error) => {
            problems.report(*place, path, format!("\"{file}\" cannot be read: {error}"));
            None
        }
    }
}
