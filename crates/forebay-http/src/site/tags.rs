//! Tags of a stored response, by which it can be purged.
//!
//! Tags from header fields have no line breaks. The internal tags of groups and request bodies
//! have, so that no origin can name them.

use forebay_core::TagSet;
use forebay_rules::Kind;
use forebay_semantics::Scheme;
use forebay_semantics::groups::groups;
use http::HeaderMap;

use crate::site::Site;

/// Response fields with tags.
const TAG_FIELDS: [&str; 2] = ["surrogate-key", "cache-tag"];

/// Scheme and normalised authority of a request.
#[derive(Clone, Copy)]
pub(crate) struct HostOrigin<'a> {
    pub(crate) scheme: Scheme,
    pub(crate) authority: &'a str,
}

impl HostOrigin<'_> {
    /// Returns the text in tags: the authority, with the scheme if it is a part of the key and is not
    /// `http`.
    fn of(self, site: &Site) -> String {
        let authority = self.authority;
        match self.scheme {
            Scheme::Https if !site.settings.ignore_scheme => format!("https://{authority}"),
            _ => authority.to_owned(),
        }
    }
}

/// Sources of tags that the rules of a site name.
#[derive(Debug, Default)]
pub(crate) struct TagSources<'s> {
    /// Response fields with tags. Empty means [`TAG_FIELDS`].
    pub(crate) fields: Vec<&'s str>,
    /// Tags that the response has besides those in its fields.
    pub(crate) tags: Vec<&'s str>,
}

/// Returns the tags of a response: those in its fields and of its rules, and its groups if the site
/// enables them.
pub(crate) fn of_answer(
    site: &Site,
    host: HostOrigin<'_>,
    answer: &HeaderMap,
    sources: &TagSources<'_>,
) -> TagSet {
    let fields = if sources.fields.is_empty() { &TAG_FIELDS[..] } else { &sources.fields };
    let values = fields.iter().flat_map(|name| answer.get_all(*name));
    let texts = values.filter_map(|value| value.to_str().ok());
    let named = texts.flat_map(|text| text.split([' ', ','])).filter(|tag| !tag.is_empty());
    let groups = site.settings.opt_ins.groups.map(|limits| groups(answer, limits));
    let groups: Vec<String> =
        groups.iter().flatten().map(|group| of_group(site, host, group)).collect();
    let own = sources.tags.iter().copied();
    TagSet::new(named.chain(own).chain(groups.iter().map(String::as_str)))
}

/// Returns the tags with another one added.
pub(crate) fn with(tags: &TagSet, another: &str) -> TagSet {
    TagSet::new(tags.iter().chain([another]))
}

/// Returns the tag of a group. RFC 9875 section 2.1: a group belongs to one origin (scheme, host
/// and port).
pub(crate) fn of_group(site: &Site, host: HostOrigin<'_>, group: &str) -> String {
    format!("group\n{}\n{}\n{group}", site.settings.id, host.of(site))
}

/// Returns the tags of responses that answer this target under other keys: those with a request body or
/// with results of rules in the key, and those of other queries.
pub(crate) fn of_other_keys<'a>(
    site: &'a Site,
    host: HostOrigin<'a>,
    target: &'a str,
) -> impl Iterator<Item = String> + 'a {
    let is_by_body = !site.settings.opt_ins.methods.is_empty()
        || site.settings.rule_set.uses(Kind::CacheMethods);
    let is_split = site.settings.rule_set.splits_keys();
    let bodies = is_by_body.then(|| of_bodies(site, host, target));
    let queries = site.settings.no_vary_search.then(|| of_queries(site, host, target));
    let parts = is_split.then(|| of_key_parts(site, host, target));
    bodies.into_iter().chain(parts).chain(queries)
}

/// Returns the tag of all responses for the path of this target that answer several queries.
pub(crate) fn of_queries(site: &Site, host: HostOrigin<'_>, target: &str) -> String {
    let path = target.split('?').next().unwrap_or_default();
    format!("queries\n{}\n{}\n{path}", site.settings.id, host.of(site))
}

/// Returns the tag of all responses for this target whose keys have results of rules.
pub(crate) fn of_key_parts(site: &Site, host: HostOrigin<'_>, target: &str) -> String {
    format!("parts\n{}\n{}\n{target}", site.settings.id, host.of(site))
}

/// Returns the tag of all responses stored by request body for this target.
pub(crate) fn of_bodies(site: &Site, host: HostOrigin<'_>, target: &str) -> String {
    format!("bodies\n{}\n{}\n{target}", site.settings.id, host.of(site))
}
