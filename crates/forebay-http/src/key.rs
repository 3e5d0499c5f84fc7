//! Primary key of a request, and the target that is forwarded.
//!
//! The key has the site, the scheme, the normalised authority and *exactly the target bytes that
//! the origin gets*. Normalisation applies to the forwarded target too: otherwise two targets that
//! differ for the origin could share an entry.

use std::borrow::Cow;

use forebay_core::KeyBuf;
use forebay_semantics::Scheme;
use http::uri::Authority;

use crate::site::{Site, SiteSettings};

/// Returns the normalised authority: lower case, without the default port of the scheme. `None` if
/// it is malformed or has user information (RFC 9110 section 4.2.4).
#[must_use]
pub fn normalise_authority(scheme: Scheme, text: &str) -> Option<Cow<'_, str>> {
    if !text.is_empty() && text.bytes().all(is_of_host) {
        return Some(Cow::Borrowed(text));
    }
    if !has_sound_port(text) {
        return None;
    }
    if is_plain(text) {
        return Some(Cow::Borrowed(without_default_port(scheme, text)));
    }
    let authority: Authority = text.parse().ok()?;
    if authority.as_str().contains('@') || authority.host().is_empty() {
        return None;
    }
    Some(Cow::Owned(without_default_port(scheme, text).to_ascii_lowercase()))
}

/// Returns true if the port is absent, empty or a valid number. In an IPv6 address it follows the
/// bracket.
fn has_sound_port(text: &str) -> bool {
    match text.rsplit_once(':') {
        Some((_, port)) if !port.contains(']') => port.is_empty() || port.parse::<u16>().is_ok(),
        _ => true,
    }
}

const fn is_of_host(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_')
}

/// Returns true for a lower-case host name or IPv4 address with at most one port, which needs no
/// parser.
fn is_plain(text: &str) -> bool {
    let (host, port) = text.split_once(':').unwrap_or((text, ""));
    !host.is_empty() && host.bytes().all(is_of_host) && port.bytes().all(|b| b.is_ascii_digit())
}

fn without_default_port(scheme: Scheme, text: &str) -> &str {
    // Two constant suffixes compare faster than a variable one.
    let without = match scheme {
        Scheme::Http => text.strip_suffix(":80"),
        Scheme::Https => text.strip_suffix(":443"),
    };
    let text = without.unwrap_or(text);
    text.strip_suffix(':').unwrap_or(text)
}

/// Returns the primary key, shared by all variants, of a target at a site. The scheme is a part of it,
/// unless the site ignores it: a stored redirect to https must never answer a request over https.
#[must_use]
pub fn primary(site: &Site, scheme: Scheme, authority: &str, target: &str) -> KeyBuf {
    let mut key = KeyBuf::new(&site.settings.id);
    let scheme = if site.settings.ignore_scheme { Scheme::Http } else { scheme };
    key.part(scheme.as_str().as_bytes()).part(authority.as_bytes()).part(target.as_bytes());
    key
}

/// Returns the target of a public path: without the site's prefix, with a normalised query. `None`
/// if the path does not belong to the site.
#[must_use]
pub fn target<'t>(site: &Site, path_and_query: &'t str) -> Option<Cow<'t, str>> {
    let stripped = site.strip_prefix(path_and_query)?;
    let target = match stripped.as_bytes().first() {
        Some(b'/' | b'*') => Cow::Borrowed(stripped),
        // `/shop` and `/shop?x` are the site's root, as `http://shop.example?x` is the root of the
        // host.
        _ => Cow::Owned(format!("/{stripped}")),
    };
    Some(normalise_query(&site.settings, target))
}

/// Returns the normalised target of a path that the origin named.
#[must_use]
pub fn inner_target<'t>(site: &Site, path_and_query: &'t str) -> Cow<'t, str> {
    normalise_query(&site.settings, Cow::Borrowed(path_and_query))
}

fn normalise_query<'t>(settings: &SiteSettings, target: Cow<'t, str>) -> Cow<'t, str> {
    if settings.ignore_query.is_empty() && !settings.sort_query {
        return target;
    }
    let Some((path, query)) = target.split_once('?') else { return target };
    let ignored = |parameter: &&str| {
        let name = parameter.split_once('=').map_or(*parameter, |(name, _)| name);
        settings.ignore_query.iter().any(|pattern| matches_name(pattern, name))
    };
    let mut parameters: Vec<&str> = query.split('&').filter(|p| !ignored(p)).collect();
    if settings.sort_query {
        parameters.sort_unstable();
    }
    if parameters.is_empty() {
        return Cow::Owned(path.to_owned());
    }
    Cow::Owned(format!("{path}?{}", parameters.join("&")))
}

fn matches_name(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn authorities_are_normalised() {
        let rows = [
            ("shop.example", Some("shop.example")),
            ("Shop.Example:80", Some("shop.example")),
            ("shop.example:8080", Some("shop.example:8080")),
            ("shop.example:", Some("shop.example")),
            ("[::1]:80", Some("[::1]")),
            (":80", None),
            ("a:99999", None),
            ("a:b:c", None),
            ("[::1]:99999", None),
            (":80:80", None),
            ("shop.example:80:80", None),
            ("shop.example:80:", None),
            ("shop.example::", None),
            ("user@shop.example", None),
            ("", None),
            ("a b", None),
            ("shop.example/x", None),
        ];
        for (text, expected) in rows {
            assert_eq!(normalise_authority(Scheme::Http, text).as_deref(), expected, "{text}");
        }
        let rows = [
            ("Shop.Example:443", Some("shop.example")),
            ("[::1]:443", Some("[::1]")),
            ("shop.example:80", Some("shop.example:80")),
        ];
        for (text, expected) in rows {
            assert_eq!(normalise_authority(Scheme::Https, text).as_deref(), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn the_scheme_is_part_of_the_key_unless_the_site_ignores_it() {
        let keys = |ignore_scheme| {
            let settings = SiteSettings { ignore_scheme, ..settings(&[], false) };
            let site = Site::new(settings);
            [Scheme::Http, Scheme::Https]
                .map(|scheme| primary(&site, scheme, "a", "/").borrowed().to_key())
        };
        let [http, https] = keys(false);
        assert_ne!(http, https);
        assert_eq!(keys(true), [http.clone(), http]);
    }

    fn settings(ignore: &[&str], sort: bool) -> SiteSettings {
        SiteSettings {
            prefix: Some("/shop".into()),
            ignore_query: ignore.iter().map(|name| (*name).into()).collect(),
            sort_query: sort,
            ..SiteSettings::new("t", Authority::from_static("127.0.0.1:1"))
        }
    }

    #[tokio::test]
    async fn targets_lose_prefix_and_ignored_parameters() {
        let rows = [
            (&[][..], false, "/shop/a?b=2&a=1", Some("/a?b=2&a=1")),
            (&[][..], true, "/shop/a?b=2&a=1&a=0", Some("/a?a=0&a=1&b=2")),
            (&["utm_*", "fbclid"][..], false, "/shop/a?utm_x=1&q=2&fbclid=3", Some("/a?q=2")),
            (&["utm_*"][..], false, "/shop/a?utm_x", Some("/a")),
            (&[][..], false, "/shop", Some("/")),
            (&[][..], false, "/shop?x", Some("/?x")),
            (&[][..], false, "/shopping", None),
        ];
        for (ignore, sort, path, expected) in rows {
            let site = Site::new(settings(ignore, sort));
            assert_eq!(target(&site, path).as_deref(), expected, "{path}");
        }
    }
}
