//! By what a stored answer can be purged, beside its key.
//!
//! The tags that an origin names are its own affair. Those that stand for a group, or for a target
//! with all its bodies, have line breaks in them: no value of a field has one, so no origin can
//! name those of another.

use forebay_core::TagSet;
use forebay_semantics::groups::groups;
use http::HeaderMap;

use crate::site::Site;

/// The fields by which origins name the tags of an answer.
const TAG_FIELDS: [&str; 2] = ["surrogate-key", "cache-tag"];

/// The tags of an answer: those that it names, and its groups where the site heeds them.
pub(crate) fn of_answer(site: &Site, authority: &str, answer: &HeaderMap) -> TagSet {
    let values = TAG_FIELDS.iter().flat_map(|name| answer.get_all(*name));
    let texts = values.filter_map(|value| value.to_str().ok());
    let named = texts.flat_map(|text| text.split([' ', ','])).filter(|tag| !tag.is_empty());
    let groups = site.settings.opt_ins.groups.map(|limits| groups(answer, limits));
    let groups: Vec<String> =
        groups.iter().flatten().map(|group| of_group(site, authority, group)).collect();
    TagSet::new(named.chain(groups.iter().map(String::as_str)))
}

/// The same and one more.
pub(crate) fn with(tags: &TagSet, another: &str) -> TagSet {
    TagSet::new(tags.iter().chain([another]))
}

/// What all answers of a group have. RFC 9875 section 2.1: a group is one of an origin (scheme,
/// host and port).
pub(crate) fn of_group(site: &Site, authority: &str, group: &str) -> String {
    format!("group\n{}\n{authority}\n{group}", site.settings.id)
}

/// What all answers have that are stored for bodies sent to this target.
pub(crate) fn of_bodies(site: &Site, authority: &str, target: &str) -> String {
    format!("bodies\n{}\n{authority}\n{target}", site.settings.id)
}
