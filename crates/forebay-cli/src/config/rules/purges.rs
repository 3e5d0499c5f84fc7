//! `purge` of a rule.

use std::path::Path;

use forebay_rules::PurgeRule;
use forebay_rules::purge::{Secret, TagFormat};
use http::header::AUTHORIZATION;

use super::super::bounded_file::read_bounded;
use super::super::problem::Problems;
use super::super::reader;
use super::super::typed::{Raw, Typed};
use super::keys::field;
use super::members::Members;

/// Maximum size of a file with a token, in bytes.
const TOKEN_MAX: u64 = 4 << 10;

/// Reads the table `purge`, which may be empty.
pub(super) fn purge(typed: &Typed, folder: &Path, problems: &mut Problems) -> Option<PurgeRule> {
    let mut members = Members::of(typed, problems)?;
    let mut take = |name| members.take(name);
    let (hard, token, token_header) = (take("hard"), take("token_file"), take("token_header"));
    let (tags, format) = (take("tags"), take("format"));
    members.finish(&["hard", "token_file", "token_header", "tags", "format"], problems)?;
    let hard = hard.map(|typed| (reader::TRUTH.read)(typed, problems));
    let token = token.map(|typed| secret(typed, folder, problems));
    let token_header = token_header.map(|typed| field(typed, problems));
    let tags = tags.map(|typed| field(typed, problems));
    let format = format.map(|typed| format_of(typed, problems));
    Some(PurgeRule {
        hard: hard.unwrap_or(Some(false))?,
        token: match token {
            Some(token) => Some(token?),
            None => None,
        },
        token_header: token_header.unwrap_or(Some(AUTHORIZATION))?,
        tags: match tags {
            Some(tags) => Some(tags?),
            None => None,
        },
        format: format.unwrap_or(Some(TagFormat::List))?,
    })
}

fn format_of(typed: &Typed, problems: &mut Problems) -> Option<TagFormat> {
    match &typed.raw {
        Raw::Text(word) if word == "list" => Some(TagFormat::List),
        Raw::Text(word) if word == "magento" => Some(TagFormat::Magento),
        _ => {
            problems.report(typed.place, &typed.path, "must be \"list\" or \"magento\"");
            None
        }
    }
}

/// Reads the file with a token. A relative path starts at the configuration file.
fn secret(typed: &Typed, folder: &Path, problems: &mut Problems) -> Option<Secret> {
    let Raw::Text(file) = &typed.raw else {
        problems.report(typed.place, &typed.path, "must be the path of a file");
        return None;
    };
    let read = read_bounded(&folder.join(file), TOKEN_MAX);
    let text = read.and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other));
    match text {
        Ok(text) if !text.trim().is_empty() => Some(Secret(text.trim().into())),
        Ok(_) => {
            problems.report(typed.place, &typed.path, format!("\"{file}\" is empty"));
            None
        }
        Err(error) => {
            problems.report(
                typed.place,
                &typed.path,
                format!("\"{file}\" cannot be read: {error}"),
            );
            None
        }
    }
}
