//! Purges by URL, by prefix and by regular expression.

use std::borrow::Cow;

use forebay_core::{Key, Purge, Reach};
use forebay_engine::Purged;
use forebay_rules::purge::PurgedTags;
use forebay_semantics::Scheme;
use futures_util::future::join;

use super::Service;
use super::purge_request::{PurgeRequest, PurgedThings};
use crate::authority::normalise_authority;
use crate::rules;
use crate::site::prefix_purge::PrefixError;
use crate::site::tags::{self, HostOrigin};
use crate::site::{Site, key};
use crate::stored::partial;

/// Keys of the entries of one URL.
struct UrlKeys {
    /// Key of a GET without fields.
    key: Key,
    /// Tag purges for the keys that have a request body, or values of rules.
    tags: Vec<Purge>,
}

/// Returns the keys of a URL of a site. The target has no prefix of the site.
fn keys_of_url(site: &Site, host: HostOrigin<'_>, target: Cow<'_, str>) -> Option<UrlKeys> {
    let HostOrigin { scheme, authority } = host;
    let (authority, target) = rules::purge_target(site, scheme, authority.into(), target)?;
    let host = HostOrigin { scheme, authority: &authority };
    let tags = tags::of_other_keys(site, host, &target).map(|tag| Purge::Tag(tag.into()));
    let key = key::primary(site, scheme, &authority, &target).borrowed().to_key();
    Some(UrlKeys { key, tags: tags.collect() })
}

impl Service {
    /// Carries out a purge that a request of a client asks for. `None` if the URL cannot be stored.
    pub(super) async fn purge_by_request(&self, request: &PurgeRequest) -> Option<Purged> {
        let PurgeRequest { site, scheme, authority, target, what, reach, .. } = request;
        let purges: Vec<Purge> = match what {
            PurgedThings::Url => {
                let host = HostOrigin { scheme: *scheme, authority };
                let keys = keys_of_url(site, host, Cow::Borrowed(target))?;
                return Some(self.purge_keys(keys, *reach).await);
            }
            PurgedThings::Tags(PurgedTags::All) => vec![Purge::Site(site.settings.id.clone())],
            PurgedThings::Tags(PurgedTags::Named(tags)) => {
                tags.iter().cloned().map(Purge::Tag).collect()
            }
        };
        self.purge_all_of(&purges, *reach).await
    }

    /// Returns the key of a GET of this URL without fields, and the tag purges for responses stored
    /// by request body or with key parts of rules. `None` if no site matches.
    fn stored_key(&self, host: HostOrigin<'_>, path: &str) -> Option<UrlKeys> {
        let scheme = host.scheme;
        let authority = normalise_authority(scheme, host.authority)?;
        let site_table = self.site_table.load();
        let site = site_table.find(&authority, path)?;
        keys_of_url(site, HostOrigin { scheme, authority: &authority }, key::stripped(site, path)?)
    }

    /// Purges one URL, as clients request it: all its variants and parts, and its responses whose
    /// keys have a request body or results of rules. Returns `None` if no site matches, or the URL
    /// is malformed.
    pub async fn purge_url(
        &self,
        scheme: Scheme,
        authority: &str,
        path: &str,
        reach: Reach,
    ) -> Option<Purged> {
        let keys = self.stored_key(HostOrigin { scheme, authority }, path)?;
        Some(self.purge_keys(keys, reach).await)
    }

    /// Purges the keys of a URL.
    async fn purge_keys(&self, keys: UrlKeys, reach: Reach) -> Purged {
        let UrlKeys { key, tags } = keys;
        let mut tagged: Option<Purged> = None;
        for tag in tags {
            // The tag is purged without a lookup, because a lower tier may have matching entries.
            let purged = self.engine.purge(&tag, reach).await;
            tagged = Some(match tagged {
                Some(before) => before.and(purged),
                None => purged,
            });
        }
        let parts = Purge::Key(partial::key_of(key.borrowed()));
        let whole = Purge::Key(key);
        let (whole, parts) =
            join(self.engine.purge(&whole, reach), self.engine.purge(&parts, reach)).await;
        let purged = whole.and(parts);
        match tagged {
            Some(tagged) => tagged.and(purged),
            None => purged,
        }
    }

    /// Purges all URLs with this prefix in every matching site: `/path` for all hosts, `host/path`
    /// for one. The path is the public one, with the site's prefix.
    ///
    /// # Errors
    ///
    /// [`PrefixError`] if the prefix is invalid or longer than 1,024 bytes, or if no site or more than
    /// 16 sites match.
    pub async fn purge_prefix(&self, prefix: &str, reach: Reach) -> Result<Purged, PrefixError> {
        let purges = self.site_table.load().prefix_purges(prefix)?;
        self.purge_all_of(&purges, reach).await.ok_or(PrefixError::NoSite)
    }

    /// Purges all URLs of one site, or of every site, in whose path a regular expression is found. The
    /// path is without the site's prefix and without the query.
    ///
    /// # Errors
    ///
    /// [`PrefixError`] if the expression is invalid or longer than 1,024 bytes, or too large when
    /// compiled, or if the site is unknown or there are more than 16.
    pub async fn purge_path_regex(
        &self,
        expression: &str,
        site: Option<&str>,
        reach: Reach,
    ) -> Result<Purged, PrefixError> {
        let purges = self.site_table.load().regex_purges(expression, site)?;
        self.purge_all_of(&purges, reach).await.ok_or(PrefixError::NoSite)
    }

    /// Carries out purges, one after the other. `None` if there are none.
    async fn purge_all_of(&self, purges: &[Purge], reach: Reach) -> Option<Purged> {
        let mut purged: Option<Purged> = None;
        for purge in purges {
            let came = self.engine.purge(purge, reach).await;
            purged = Some(match purged {
                Some(before) => before.and(came),
                None => came,
            });
        }
        purged
    }
}
