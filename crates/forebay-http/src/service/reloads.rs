//! Clients that reload: requests whose directives demand another response than the fresh one.

use forebay_core::{Demand, Why};
use forebay_engine::{Engine, Entry, Lookup, LookupResult, Miss, Outcome};
use forebay_semantics::Directives;

use crate::site::Site;
use crate::stored::head::StoredHead;

/// Purpose of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A response.
    Respond,
    /// A report, which counts nothing.
    Report,
}

impl Purpose {
    /// Looks an entry up in memory.
    pub(crate) fn look(self, engine: &Engine, lookup: &Lookup<'_>) -> LookupResult {
        match self {
            Self::Respond => engine.lookup(lookup),
            Self::Report => engine.peek(lookup),
        }
    }
}

/// Returns the fresh entry for a request whose directives demand another one, if it is immutable or
/// the site limits such requests.
pub(crate) fn fresh_entry(
    engine: &Engine,
    miss: &Miss,
    lookup: &Lookup<'_>,
    site: &Site,
    purpose: Purpose,
) -> Option<Outcome> {
    let now = engine.clock().now();
    let prior = miss.prior().filter(|prior| prior.meta.is_fresh(now))?;
    let is_limited = || {
        let most = site.settings.client_reloads_max;
        most.is_some_and(|most| match purpose {
            Purpose::Respond => site.reloads.exceeds(most, now),
            Purpose::Report => site.reloads.would_exceed(most, now),
        })
    };
    let why = match miss.why() {
        // RFC 8246 section 2: a reload sends max-age=0; only no-cache demands validation.
        Why::RequestMaxAge if is_immutable(prior) => None,
        Why::RequestRevalidate | Why::RequestMaxAge | Why::RequestMinFresh if is_limited() => {
            Some(Why::ReloadLimited)
        }
        _ => return None,
    };
    let demand =
        Demand { max_age: None, min_fresh: None, revalidate: false, ..lookup.demand.clone() };
    let Lookup { key, select, credentials, coalesce, .. } = *lookup;
    let lookup = Lookup { key, demand: &demand, select, credentials, coalesce };
    match purpose.look(engine, &lookup) {
        LookupResult::Hit(outcome) => Some(Outcome { why: why.or(outcome.why), ..outcome }),
        LookupResult::Miss(_) => None,
    }
}

fn is_immutable(entry: &Entry) -> bool {
    let Some(bytes) = entry.head.bytes() else { return false };
    StoredHead::parse(&bytes).is_some_and(|head| Directives::of_response(&head).immutable)
}
