//! `json` of a rule: cuts of JSON bodies.

use forebay_rules::json::{JsonCut, OnError, POINTERS_MAX, Pointer};

use super::super::problem::Problems;
use super::super::reader::{self, text};
use super::super::typed::{Raw, Typed};
use super::members::{Members, one_or_more};

/// Maximum length of a body that is cut, unless the rule sets it, in bytes.
const BODY_MAX: u64 = 1 << 20;

/// Largest value of `max`, in bytes: each fetch holds the body twice.
const BODY_LIMIT: u64 = 64 << 20;

/// Reads the table `json`.
pub(super) fn json(typed: &Typed, problems: &mut Problems) -> Option<JsonCut> {
    let mut members = Members::of(typed, problems)?;
    let (remove, keep) = (members.take("remove"), members.take("keep"));
    let (max, on_error) = (members.take("max"), members.take("on_error"));
    members.finish(&["remove", "keep", "max", "on_error"], problems)?;
    let remove = remove.map(|typed| pointers(typed, problems));
    let keep = keep.map(|typed| pointers(typed, problems));
    let size = max.map(|typed| (reader::SIZE.read)(typed, problems));
    let size = size.unwrap_or(Some(BODY_MAX))?;
    if size > BODY_LIMIT {
        let place = max.map_or(typed.place, |typed| typed.place);
        problems.report(place, &format!("{}.max", typed.path), "must be at most 64MiB");
        return None;
    }
    let on_error = match on_error {
        None => Some(OnError::Fail),
        Some(Typed { raw: Raw::Text(word), .. }) if word == "fail" => Some(OnError::Fail),
        Some(Typed { raw: Raw::Text(word), .. }) if word == "pass" => Some(OnError::Pass),
        Some(typed) => {
            problems.report(typed.place, &typed.path, "must be \"fail\" or \"pass\"");
            None
        }
    };
    let cut = JsonCut {
        remove: remove.unwrap_or_else(|| Some(Vec::new()))?,
        keep: keep.unwrap_or_else(|| Some(Vec::new()))?,
        max: usize::try_from(size).ok()?,
        on_error: on_error?,
    };
    if cut.remove.is_empty() && cut.keep.is_empty() {
        problems.report(
            typed.place,
            &typed.path,
            "needs `remove` or `keep`, such as [\"/secret\"]",
        );
        return None;
    }
    Some(cut)
}

fn pointers(typed: &Typed, problems: &mut Problems) -> Option<Vec<Pointer>> {
    let read = one_or_more(typed, problems, |typed, problems| {
        text(typed, problems, |text| {
            Pointer::parse(text).map_err(|error| format!("\"{text}\" {error}"))
        })
    })?;
    if read.len() > POINTERS_MAX {
        let message = format!("has {} pointers; the maximum is {POINTERS_MAX}", read.len());
        problems.report(typed.place, &typed.path, message);
        return None;
    }
    Some(read)
}
