//! Primary key of a request, and the target that is forwarded.
//!
//! The key has the site, the scheme, the normalised authority and *exactly the target bytes that
//! the origin gets*. Normalisation applies to the forwarded target too: otherwise two targets that
//! differ for the origin could share an entry.

use std::borrow::Cow;

use forebay_core::KeyBuf;
use forebay_semantics::Scheme;

use crate::settings::SiteSettings;
use crate::site::Site;

/// Returns the primary key, shared by all variants, of a target at a site. `authority` must be
/// normalised, and `target` be the one that is forwarded. The scheme is a part of the key, unless
/// the site ignores it: a stored redirect to https must never answer a request over https.
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
    stripped(site, path_and_query).map(|target| normalise_query(&site.settings, target))
}

/// Returns the target of a public path without the site's prefix, with its query as it is.
pub(crate) fn stripped<'t>(site: &Site, path_and_query: &'t str) -> Option<Cow<'t, str>> {
    let stripped = site.strip_prefix(path_and_query)?;
    Some(match stripped.as_bytes().first() {
        Some(b'/' | b'*') => Cow::Borrowed(stripped),
        // `/shop` and `/shop?x` are the site's root, as `http://shop.example?x` is the root of the
        // host.
        _ => Cow::Owned(format!("/{stripped}")),
    })
}

/// Returns the target of a path that the origin named, such as in `Location`, with a normalised
/// query. No site prefix is removed, because the origin does not know it.
#[must_use]
pub fn inner_target<'t>(site: &Site, path_and_query: &'t str) -> Cow<'t, str> {
    normalise_query(&site.settings, Cow::Borrowed(path_and_query))
}

pub(crate) fn normalise_query<'t>(settings: &SiteSettings, target: Cow<'t, str>) -> Cow<'t, str> {
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
    use http::uri::Authority;

    use super::*;

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
