//! Effect of rules on the target and the cookies of a request.

use std::borrow::Cow;

use http::HeaderValue;
use http::header::{COOKIE, HeaderMap};

use crate::compile::SiteFacts;
use crate::glob::NamePattern;
use crate::key::KeyedFields;
use crate::outcome::Outcome;
use crate::request::Target;
use crate::setting::{Kind, OriginParameter, Setting};
use crate::template::EditFailed;

/// Settings that change the target.
const TARGET_KINDS: [Kind; 4] =
    [Kind::IgnoreQuery, Kind::KeepQuery, Kind::SortQuery, Kind::Rewrite];

/// Edits of a query: those of the site, then those of its rules.
struct QueryEdits<'a> {
    ignored: Vec<&'a [NamePattern]>,
    /// Absent if all parameters are kept.
    kept: Option<Vec<&'a [NamePattern]>>,
    sorts: bool,
}

impl<'a> QueryEdits<'a> {
    fn new(facts: &'a SiteFacts, outcome: &Outcome<'a>) -> Self {
        let mut edits =
            Self { ignored: vec![&facts.ignore_query], kept: None, sorts: facts.sort_query };
        for setting in outcome.all(Kind::IgnoreQuery) {
            if let Setting::IgnoreQuery(names) = setting {
                edits.ignored.push(names);
            }
        }
        for setting in outcome.all(Kind::KeepQuery) {
            if let Setting::KeepQuery(names) = setting {
                edits.kept.get_or_insert_default().push(names);
            }
        }
        if let Some(Setting::SortQuery(sorts)) = outcome.last(Kind::SortQuery) {
            edits.sorts = *sorts;
        }
        edits
    }

    fn keeps(&self, parameter: &str) -> bool {
        let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
        let is_in = |lists: &[&[NamePattern]]| {
            lists.iter().any(|names| names.iter().any(|pattern| pattern.matches(name)))
        };
        !is_in(&self.ignored) && self.kept.as_ref().is_none_or(|kept| is_in(kept))
    }

    fn apply(&self, query: &str) -> String {
        let mut parameters: Vec<&str> = query.split('&').filter(|part| self.keeps(part)).collect();
        if self.sorts {
            parameters.sort_unstable();
        }
        parameters.join("&")
    }
}

/// Returns the target for key and origin, after the edits of the site and of its rules. Borrowed if
/// nothing changes it.
///
/// # Errors
/// If a rewritten path does not begin with exactly one `/`, or has a character that a path cannot
/// have.
pub fn target<'t>(
    facts: &SiteFacts,
    outcome: &Outcome<'_>,
    target: Cow<'t, str>,
) -> Result<Cow<'t, str>, InvalidTarget> {
    let is_edited = !facts.ignore_query.is_empty() || facts.sort_query;
    if !is_edited && !outcome.has_any(&TARGET_KINDS) {
        return Ok(target);
    }
    let Target { path, query } = Target::new(&target);
    let query = match query {
        "" => String::new(),
        query => QueryEdits::new(facts, outcome).apply(query),
    };
    let path = rewritten(outcome, path)?;
    let edited = if query.is_empty() { path.into_owned() } else { format!("{path}?{query}") };
    Ok(if edited == *target { target } else { Cow::Owned(edited) })
}

/// Target of a rewrite or redirect that is not valid; the request is answered with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rule rewrites or redirects the request to an invalid target")]
pub struct InvalidTarget;

/// Returns a target with a rewritten path and its query as it is.
///
/// # Errors
/// If the rewritten path is not valid.
pub fn rewritten_target<'t>(
    outcome: &Outcome<'_>,
    target: &'t str,
) -> Result<Cow<'t, str>, InvalidTarget> {
    let path = Target::new(target).path;
    match rewritten(outcome, path)? {
        Cow::Borrowed(_) => Ok(Cow::Borrowed(target)),
        Cow::Owned(new) => Ok(Cow::Owned(format!("{new}{}", &target[path.len()..]))),
    }
}

fn rewritten<'p>(outcome: &Outcome<'_>, path: &'p str) -> Result<Cow<'p, str>, InvalidTarget> {
    let Some(Setting::Rewrite(rewrite)) = outcome.last(Kind::Rewrite) else {
        return Ok(Cow::Borrowed(path));
    };
    let new = match &rewrite.from {
        None => Some(rewrite.to.to_string()),
        Some(from) => from.expand(path, &rewrite.to),
    };
    let Some(new) = new else { return Ok(Cow::Borrowed(path)) };
    let is_path = new.starts_with('/')
        && !new.starts_with("//")
        && !new.bytes().any(|byte| byte <= b' ' || matches!(byte, b'?' | b'#' | b'\\' | 0x7f));
    if is_path { Ok(Cow::Owned(new)) } else { Err(InvalidTarget) }
}

/// Returns true if a rule changed the path or sets the host, so that the key does not contain the
/// one that conditions read.
#[must_use]
pub fn is_rewritten(outcome: &Outcome<'_>, before: &str, after: &str) -> bool {
    outcome.has_any(&[Kind::Host])
        || outcome.has_any(&[Kind::Rewrite]) && Target::new(before).path != Target::new(after).path
}

/// Returns the value of `Location` of a redirect; `path` is that of the request.
///
/// # Errors
/// If the target is invalid, too long, or another host by its first characters (`//`, `/\`), or if
/// `from` is not found in `path`.
pub fn redirect_target(
    redirect: &crate::setting::Redirect,
    path: &str,
    values: &impl crate::template::Placeholders,
) -> Result<HeaderValue, InvalidTarget> {
    let expanded = redirect.to.expand(values).map_err(|EditFailed| InvalidTarget)?;
    let expanded = match &redirect.from {
        None => expanded,
        Some(from) => {
            let text = String::from_utf8(expanded).map_err(|_| InvalidTarget)?;
            from.expand(path, &text).ok_or(InvalidTarget)?.into_bytes()
        }
    };
    let leaves_host = matches!(&*expanded, [b'/' | b'\\', b'/' | b'\\', ..] | [b'\\', ..]);
    let is_text = expanded.iter().all(|byte| (0x21..0x7f).contains(byte));
    if leaves_host || !is_text || expanded.is_empty() {
        return Err(InvalidTarget);
    }
    HeaderValue::from_maybe_shared(expanded).map_err(|_| InvalidTarget)
}

/// Removes the cookies that rules drop or do not keep; those in the key are kept. Returns true if one
/// was removed.
pub fn filter_cookies(outcome: &Outcome<'_>, headers: &mut HeaderMap) -> bool {
    if !headers.contains_key(COOKIE) || !outcome.has_any(&[Kind::KeepCookies, Kind::DropCookies]) {
        return false;
    }
    let list = |setting| match setting {
        &Setting::KeepCookies(ref names) | &Setting::DropCookies(ref names) => &**names,
        _ => &[],
    };
    let kept: Vec<&[NamePattern]> = outcome.all(Kind::KeepCookies).map(list).collect();
    let dropped: Vec<&[NamePattern]> = outcome.all(Kind::DropCookies).map(list).collect();
    let is_in = |lists: &[&[NamePattern]], name: &str| {
        lists.iter().any(|names| names.iter().any(|pattern| pattern.matches(name)))
    };
    let keyed = KeyedFields::of(outcome);
    let is_keyed = |name: &str| keyed.as_ref().is_some_and(|keyed| keyed.has_cookie(name));
    retain_cookies(headers, |name, _| {
        (kept.is_empty() || is_in(&kept, name) || is_keyed(name)) && !is_in(&dropped, name)
    })
}

/// Keeps the cookies for which `keeps` returns true by name and value. Returns true if one was removed.
pub(crate) fn retain_cookies(headers: &mut HeaderMap, keeps: impl Fn(&str, &[u8]) -> bool) -> bool {
    let is_kept = |part: &&[u8]| {
        let end = memchr::memchr(b'=', part);
        let name = part[..end.unwrap_or(part.len())].trim_ascii();
        let value = end.map_or(&b""[..], |end| part[end + 1..].trim_ascii());
        // A name that is not text matches no pattern.
        keeps(str::from_utf8(name).unwrap_or("\u{fffd}"), value)
    };
    let lines: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
    let mut is_removed = false;
    headers.remove(COOKIE);
    for line in lines {
        let parts = line.as_bytes().split(|byte| *byte == b';');
        let parts: Vec<&[u8]> = parts.map(<[u8]>::trim_ascii).filter(|p| !p.is_empty()).collect();
        let left: Vec<&[u8]> = parts.iter().copied().filter(is_kept).collect();
        if left.len() == parts.len() {
            headers.append(COOKIE, line);
            continue;
        }
        is_removed = true;
        let left = left.join(&b"; "[..]);
        if !left.is_empty()
            && let Ok(left) = HeaderValue::from_bytes(&left)
        {
            headers.append(COOKIE, left);
        }
    }
    is_removed
}

/// Returns the target with the parameters that only the origin gets, or `None` if no rule adds one.
/// They replace those of the client with equal names.
#[must_use]
pub fn origin_target(outcome: &Outcome<'_>, target: &str) -> Option<String> {
    let added: Vec<&OriginParameter> = outcome
        .all(Kind::OriginQuery)
        .flat_map(|setting| match setting {
            Setting::OriginQuery(parameters) => parameters.as_slice(),
            _ => &[],
        })
        .collect();
    if added.is_empty() {
        return None;
    }
    let Target { path, query } = Target::new(target);
    let is_replaced = |part: &&str| {
        let name = part.split_once('=').map_or(*part, |(name, _)| name);
        let name = crate::request::unescaped(name);
        added.iter().any(|parameter| *parameter.name == *name)
    };
    let kept = query.split('&').filter(|part| !part.is_empty() && !is_replaced(part));
    let mut parts: Vec<String> = kept.map(str::to_owned).collect();
    for (n, parameter) in added.iter().enumerate() {
        // Of two values the last applies.
        if !added[n + 1..].iter().any(|later| later.name == parameter.name) {
            parts.push(format!("{}={}", parameter.name, parameter.value));
        }
    }
    Some(format!("{path}?{}", parts.join("&")))
}
