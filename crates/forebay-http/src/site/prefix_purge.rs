//! Purges by URL prefix and by regular expression, translated for each site.

use std::sync::Arc;

use forebay_core::{KeyPattern, Purge};
use forebay_semantics::Scheme;

use crate::authority::normalise_authority;
use crate::site::{Site, Sites};

/// Maximum number of sites for one prefix. Each site uses one of the few prefix records of every
/// instance.
pub(crate) const SITES_MAX: usize = 16;

/// Maximum length of a prefix in bytes. Instances compare every lookup with the prefixes that they
/// remember.
pub(crate) const PREFIX_MAX: usize = 1_024;

/// Reason why a prefix or an expression cannot be purged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// The prefix is malformed.
    #[error("The prefix must be `/path`, for every host, or `host/path`, as clients request it.")]
    Malformed,
    /// The prefix is longer than the limit.
    #[error("The prefix is longer than {PREFIX_MAX} bytes.")]
    TooLong,
    /// No site matches the prefix.
    #[error("No site is configured for the host and path of this prefix.")]
    NoSite,
    /// Too many sites match the prefix.
    #[error("More than {SITES_MAX} sites match this prefix; add a host to it, or purge each site.")]
    TooManySites,
    /// The regular expression cannot be used, for the reason given.
    #[error("The expression {0}.")]
    Expression(String),
    /// There are too many sites for one expression.
    #[error("There are more than {SITES_MAX} sites; name the site of the expression.")]
    ExpressionForManySites,
    /// No site has the given id.
    #[error("No site has the id \"{0}\".")]
    UnknownSite(Box<str>),
}

/// Returns the purges for all sites that match a prefix.
pub(crate) fn prefix_purges(sites: &Sites, prefix: &str) -> Result<Vec<Purge>, PrefixError> {
    if prefix.len() > PREFIX_MAX {
        return Err(PrefixError::TooLong);
    }
    let (host, _) = prefix.split_once('/').ok_or(PrefixError::Malformed)?;
    let path = &prefix[host.len()..];
    let host = match host {
        "" => None,
        // The prefix covers both schemes; the default port of only one can be removed.
        host => Some(normalise_authority(Scheme::Http, host).ok_or(PrefixError::Malformed)?),
    };
    let host = host.as_deref();
    let can = |site: &&Arc<Site>| host.is_none_or(|host| site.has_host(host));
    let purge = |site: &Arc<Site>| prefix_purge_of_site(site, host, path);
    let purges: Vec<_> = sites.all().iter().filter(can).filter_map(purge).collect();
    match purges.len() {
        0 => Err(PrefixError::NoSite),
        count if count > SITES_MAX => Err(PrefixError::TooManySites),
        _ => Ok(purges),
    }
}

/// Returns the purges of all entries of one site, or of every site, in whose path an expression is
/// found.
pub(crate) fn regex_purges(
    sites: &Sites,
    expression: &str,
    site: Option<&str>,
) -> Result<Vec<Purge>, PrefixError> {
    let pattern = KeyPattern::path_regex(expression).map_err(PrefixError::Expression)?;
    let is_meant = |known: &&Arc<Site>| site.is_none_or(|id| *known.settings.id == *id);
    let purge = |known: &Arc<Site>| Purge::Prefix {
        site: known.settings.id.clone(),
        prefix: pattern.clone(),
    };
    let purges: Vec<_> = sites.all().iter().filter(is_meant).map(purge).collect();
    match (purges.len(), site) {
        (0, Some(id)) => Err(PrefixError::UnknownSite(id.into())),
        (count, _) if count > SITES_MAX => Err(PrefixError::ExpressionForManySites),
        _ => Ok(purges),
    }
}

/// Returns the purge for one site, or `None` if it does not match. Keys have the host, and the path
/// without the site's prefix.
fn prefix_purge_of_site(site: &Site, host: Option<&str>, path: &str) -> Option<Purge> {
    let own = site.settings.prefix.as_deref().unwrap_or_default();
    let within = match site.strip_prefix(path) {
        Some(within) => within,
        // The site's own prefix begins with the path.
        None if own.starts_with(path) => "",
        None => return None,
    };
    let id = site.settings.id.clone();
    match (host, within) {
        (None, "" | "/") => Some(Purge::Site(id)),
        (None, within) => Some(Purge::Prefix { site: id, prefix: within.into() }),
        (Some(host), within) => {
            let slash = if within.starts_with('/') { "" } else { "/" };
            Some(Purge::Prefix { site: id, prefix: format!("{host}{slash}{within}").into() })
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::{KeyBuf, KeyRef};

    use super::*;
    use crate::settings::HostPattern;
    use crate::site::key::{primary, target};
    use crate::site::tests::site;

    fn sites() -> Sites {
        let shop = HostPattern::Exact("shop.example".into());
        Sites::new(vec![
            site("shop", std::slice::from_ref(&shop), None),
            site("cart", &[shop], Some("/cart")),
            site("every", &[], None),
        ])
    }

    fn key(sites: &Sites, host: &str, path: &str) -> KeyBuf {
        let site = sites.find(host, path).unwrap();
        primary(site, Scheme::Http, host, &target(site, path).unwrap())
    }

    /// Returns for each host and path if a prefix purge matches it.
    fn reached(prefix: &str, places: &[(&str, &str)]) -> Vec<bool> {
        let sites = sites();
        let purges = prefix_purges(&sites, prefix).unwrap();
        let is = |key: KeyRef<'_>| purges.iter().any(|purge| purge.is_about(key));
        places.iter().map(|(host, path)| is(key(&sites, host, path).borrowed())).collect()
    }

    #[test]
    fn a_path_prefix_purges_all_hosts_and_a_host_prefix_one() {
        let places = [
            ("shop.example", "/items/1"),
            ("shop.example", "/item"),
            ("other.example", "/items/2"),
            ("shop.example", "/cart/items/3"),
            ("shop.example:8080", "/items/1"),
        ];
        assert_eq!(reached("/items/", &places), [true, false, true, false, true]);
        assert_eq!(reached("/item", &places), [true, true, true, false, true]);
        let host = reached("Shop.Example/items", &places);
        assert_eq!(host, [true, false, false, false, false]);
        assert_eq!(reached("shop.example:8080/", &places), [false, false, false, false, true]);
        assert_eq!(reached("/", &places), [true; 5]);
    }

    #[test]
    fn the_prefix_of_a_site_is_part_of_the_path() {
        let places = [
            ("shop.example", "/cart/items/3"),
            ("shop.example", "/cart"),
            ("shop.example", "/carts"),
            ("shop.example", "/items"),
        ];
        assert_eq!(reached("/cart/items", &places), [true, false, false, false]);
        assert_eq!(reached("/car", &places), [true, true, true, false]);
        assert_eq!(reached("shop.example/cart", &places), [true, true, true, false]);
    }

    #[test]
    fn an_expression_purges_the_paths_of_one_site_or_of_all() {
        let places =
            [("shop.example", "/items/1"), ("shop.example", "/a"), ("b.example", "/items/2")];
        let sites = sites();
        let reached = |expression: &str, site: Option<&str>| {
            let purges = regex_purges(&sites, expression, site).unwrap();
            let is = |key: KeyRef<'_>| purges.iter().any(|purge| purge.is_about(key));
            places.map(|(host, path)| is(key(&sites, host, path).borrowed()))
        };
        assert_eq!(reached(r"^/items/\d+$", None), [true, false, true]);
        assert_eq!(reached(r"^/items/\d+$", Some("every")), [false, false, true]);
        let refused = |expression, site| regex_purges(&sites, expression, site).unwrap_err();
        let unknown = PrefixError::UnknownSite("other".into());
        assert_eq!(refused("a", Some("other")), unknown);
        assert_eq!(refused("(", None).to_string(), "The expression is not a regular expression.");
    }

    #[test]
    fn malformed_and_unmatched_and_too_broad_prefixes_are_rejected() {
        let refused = |sites: &Sites, prefix: &str| prefix_purges(sites, prefix).unwrap_err();
        let one = HostPattern::Exact("shop.example".into());
        let only = Sites::new(vec![site("shop", &[one], Some("/shop"))]);
        assert_eq!(refused(&only, "items"), PrefixError::Malformed);
        assert_eq!(refused(&only, "me@shop.example/a"), PrefixError::Malformed);
        assert_eq!(refused(&only, "/items"), PrefixError::NoSite);
        assert_eq!(refused(&only, "other.example/"), PrefixError::NoSite);
        assert_eq!(refused(&only, &format!("/{}", "a".repeat(PREFIX_MAX))), PrefixError::TooLong);
        let ids = (0..=SITES_MAX).map(|n| format!("s{n}"));
        let many = Sites::new(ids.map(|id| site(&id, &[], None)).collect());
        assert_eq!(refused(&many, "/items"), PrefixError::TooManySites);
    }
}
