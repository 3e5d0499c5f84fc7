//! Selection of one of several variants by the values of request fields.

use std::borrow::Cow;

use forebay_core::{Key, KeyRef, Vary, key};

use crate::entry::Entry;

/// Maximum number of variants per key, by default: more than languages and codings make together.
const VARIANTS_MAX: usize = 64;

/// Source of the request fields that select one of several variants of a key (HTTP: the fields that
/// `Vary` names).
pub trait Select: Send + Sync {
    /// Returns the value of a selecting field, or `None` if it is absent.
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>>;

    /// Returns the maximum number of variants that memory keeps under one key; 64 by default.
    /// Beyond it, the least recently used variant is removed.
    fn variants_max(&self) -> usize {
        VARIANTS_MAX
    }
}

/// Selection for front ends without variants.
impl Select for () {
    fn field(&self, _name: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
}

/// Presence of credentials (such as `Authorization` or `Cookie`) in a request. Pass markers and
/// failures are separate for both cases: a private answer to a request with credentials must not
/// keep anonymous requests from sharing theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// The request carries no credentials.
    Anonymous,
    /// The request carries credentials.
    Presented,
}

/// Returns the fields that `vary` names, with their values in this selection.
pub(crate) fn selected<'a>(
    vary: &'a Vary,
    select: &'a dyn Select,
) -> impl Iterator<Item = (&'a str, Option<Cow<'a, [u8]>>)> {
    vary.names().map(|name| (name, select.field(name)))
}

/// Returns the flight key of the variant that `select` chooses among the variants of `entry`, or
/// `None` if the entry has no variants.
pub(crate) fn selection(primary: KeyRef<'_>, select: &dyn Select, entry: &Entry) -> Option<Key> {
    entry.meta.vary().map(|vary| flight_key(primary, select, vary))
}

/// Returns the key under which the flights of one variant meet. It does not depend on the stored
/// generation: callers that learn of the variants from an answer in transfer, and callers that find
/// them stored, must join the same flight.
pub(crate) fn flight_key(primary: KeyRef<'_>, select: &dyn Select, vary: &Vary) -> Key {
    key::variant(primary, 0, selected(vary, select)).borrowed().to_key()
}
