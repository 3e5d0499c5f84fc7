//! Purges by URL and by prefix.

use forebay_core::{Key, Purge, Reach};
use forebay_engine::Purged;
use forebay_semantics::Scheme;
use futures_util::future::join;

use super::Service;
use crate::authority::normalise_authority;
use crate::rules;
use crate::site::key;
use crate::site::prefix_purge::PrefixError;
use crate::site::tags::{self, HostOrigin};
use crate::stored::partial;

impl Service {
    /// Returns the key of a GET of this URL without fields, and the tag purges for responses stored
    /// by request body or with key parts of rules. `None` if no site matches.
    fn stored_key(&self, host: HostOrigin<'_>, path: &str) -> Option<(Key, Vec<Purge>)> {
        let scheme = host.scheme;
        let authority = normalise_authority(scheme, host.authority)?;
        let site_table = self.site_table.load();
        let site = site_table.find(&authority, path)?;
        let (authority, target) = rules::purge_target(site, scheme, authority, path)?;
        let host = HostOrigin { scheme, authority: &authority };
        let tags = tags::of_other_keys(site, host, &target).map(|tag| Purge::Tag(tag.into()));
        let key = key::primary(site, scheme, &authority, &target).borrowed().to_key();
        Some((key, tags.collect()))
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
        let (key, tags) = self.stored_key(HostOrigin { scheme, authority }, path)?;
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
        Some(match tagged {
            Some(tagged) => tagged.and(purged),
            None => purged,
        })
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
        let mut purged: Option<Purged> = None;
        for purge in purges {
            let came = self.engine.purge(&purge, reach).await;
            purged = Some(match purged {
                Some(before) => before.and(came),
                None => came,
            });
        }
        purged.ok_or(PrefixError::NoSite)
    }
}
