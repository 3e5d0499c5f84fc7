//! Tags of a stored response, by which it can be purged.
//!
//! Tags from header fields have no line breaks. The internal tags of groups and request bodies
//! have, so that no origin can name them.

use forebay_core::TagSet;
use forebay_semantics::groups::groups;
use http::HeaderMap;

use crate::site::Site;

/// Response fields with tags.
const TAG_FIELDS: [&str; 2] = ["surrogate-key", "cache-tag"];

/// Returns the tags of a response: those in its fields, and its groups if the site enables them.
pub(crate) fn of_answer(site: &Site, authority: &str, answer: &HeaderMap) -> TagSet {
    let values = TAG_FIELDS.iter().flat_map(|name| answer.get_all(*name));
    let texts = values.filter_map(|value| value.to_str().ok());
    let named = texts.flat_map(|text| text.split([' ', ','])).filter(|tag| !tag.is_empty());
    let groups = site.settings.opt_ins.groups.map(|limits| groups(answer, limits));
    let groups: Vec<String> =
        groups.iter().flatten().map(|group| of_group(site, authority, group)).collect();
    TagSet::new(named.chain(groups.iter().map(String::as_str)))
}

/// Returns the tags with another one added.
pub(crate) fn with(tags: &TagSet, another: &str) -> TagSet {
    TagSet::new(tags.iter().chain([another]))
}

/// Returns the tag of a group. RFC 9875 section 2.1: a group belongs to one origin (scheme, host
/// and port).
pub(crate) fn of_group(site: &Site, authority: &str, group: &str) -> String {
    format!("group\n{}\n{authority}\n{group}", site.settings.id)
}

/// Returns the tag of all responses stored by request body for this target.
pub(crate) fn of_bodies(site: &Site, authority: &str, target: &str) -> String {
    format!("bodies\n{}\n{authority}\n{target}", site.settings.id)
}
