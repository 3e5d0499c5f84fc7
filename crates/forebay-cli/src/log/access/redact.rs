//! Removal of secrets from the targets and referers of the access log.

use std::borrow::Cow;

/// Words of parameter names whose values are secret. `session` covers `session_id`, and `key` covers
/// `api-key`.
const SECRETS: [&str; 9] =
    ["token", "key", "sig", "password", "code", "session", "jwt", "auth", "secret"];

/// Value in place of a secret one.
const REDACTED: &str = "REDACTED";

/// Returns a target whose secret parameters are redacted, without user information.
pub(crate) fn target(target: &str) -> Cow<'_, str> {
    let target = without_user(target);
    let Some((path, query)) = target.split_once('?') else { return target };
    if !query.split('&').any(|parameter| is_secret(name_of(parameter))) {
        return target;
    }
    let redacted = |parameter: &str| match name_of(parameter) {
        name if is_secret(name) => format!("{name}={REDACTED}"),
        _ => parameter.to_owned(),
    };
    let query: Vec<_> = query.split('&').map(redacted).collect();
    Cow::Owned(format!("{path}?{}", query.join("&")))
}

/// Returns a referer without its query, fragment and user information.
pub(super) fn referer(referer: &str) -> Cow<'_, str> {
    without_user(referer.split(['?', '#']).next().unwrap_or_default())
}

fn name_of(parameter: &str) -> &str {
    parameter.split('=').next().unwrap_or_default()
}

/// Returns `true` if a word of the name is secret. A name with escapes may hide any word.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_secret = |word| SECRETS.contains(&word);
    name.contains('%')
        || name.split(|c: char| !c.is_ascii_alphabetic()).any(is_secret)
        || SECRETS.iter().any(|secret| name.ends_with(secret))
}

/// Removes `user:password@` of a URL.
fn without_user(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once("://") else { return Cow::Borrowed(url) };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.rsplit_once('@') {
        Some((_, host)) => Cow::Owned(format!("{scheme}://{host}{path}")),
        None => Cow::Borrowed(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_parameters_are_redacted() {
        for (shown, expected) in [
            ("/a", "/a"),
            ("/a?b=1&page=2", "/a?b=1&page=2"),
            ("/a?token=x&b=1", "/a?token=REDACTED&b=1"),
            ("/a?b=1&API-Key=x", "/a?b=1&API-Key=REDACTED"),
            ("/a?access_token=x", "/a?access_token=REDACTED"),
            ("/a?session_id=x&X-Amz-Sig=y", "/a?session_id=REDACTED&X-Amz-Sig=REDACTED"),
            ("/a?authToken=x", "/a?authToken=REDACTED"),
            ("/a?%74oken=x", "/a?%74oken=REDACTED"),
            ("/a?monkeys=2", "/a?monkeys=2"),
            ("http://me:pw@shop.example/a?jwt=x", "http://shop.example/a?jwt=REDACTED"),
        ] {
            assert_eq!(target(shown), expected);
        }
    }

    #[test]
    fn a_referer_has_no_query_and_no_user() {
        assert_eq!(referer("https://me:pw@a.example/b?token=x#y"), "https://a.example/b");
        assert_eq!(referer("https://a.example/b@c"), "https://a.example/b@c");
    }
}
