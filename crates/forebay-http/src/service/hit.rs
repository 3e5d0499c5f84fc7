//! Hit path: lookup in memory, and the response from the stored entry.

use std::borrow::Cow;

use forebay_core::{Demand, KeyBuf, Why};
use forebay_engine::{Lookup, LookupResult, Miss, Outcome, Select};
use forebay_semantics::SearchVariance;
use http::{HeaderMap, Response};

use super::reloads::{self, Purpose};
use super::route::Routed;
use super::{Service, secure, server_timing};
use crate::client::credentials;
use crate::load::selecting;
use crate::record::{CacheResult, KeyHash, Labels, key_hash};
use crate::response::body::ResponseBody;
use crate::response::deliver::RequestHead;
use crate::rules::{Served, finish};
use crate::site::equal_queries::{self, MatchedTarget};
use crate::site::key;
use crate::site::tags::HostOrigin;
use crate::stored::head::Answer;

/// Lookup that needs a load, with the reason.
pub(crate) struct PendingFetch {
    pub(crate) key: KeyBuf,
    pub(crate) demand: Demand,
    pub(crate) wanting: Miss,
}

/// Result of a lookup in memory.
pub(super) enum CacheLookup {
    Hit(Response<ResponseBody>),
    Miss(Box<PendingFetch>),
}

impl Service {
    /// Looks the request up in memory. This is the hit path: it does not wait, and copies nothing
    /// of the request.
    pub(super) fn look(&self, head: RequestHead<'_>, routed: &Routed<'_>) -> CacheLookup {
        let (rules, site) = (&routed.rules, routed.site);
        let demand = match site.settings.transforms.is_empty() {
            true => rules.demand(site, head.headers),
            false => rules.transformed_demand(site, head.headers, &routed.values(head.headers)),
        };
        let mut key =
            key::primary(routed.site, routed.peer.scheme, &routed.authority, &routed.target);
        routed.rules.add_key_parts(routed.site, head.headers, &mut key);
        let select = Fields { headers: head.headers, routed };
        let ask = Lookup {
            key: key.borrowed(),
            demand: &demand,
            select: &select,
            credentials: credentials(head.headers),
            coalesce: routed.rules.coalesce(routed.site),
        };
        let obtained = match self.engine.lookup(&ask) {
            LookupResult::Hit(obtained) => obtained,
            LookupResult::Miss(wanting) => {
                if wanting.why() == Why::UriMiss
                    && let Some(response) = self.look_for_equal_query(head, routed, &ask)
                {
                    return CacheLookup::Hit(response);
                }
                let (engine, purpose) = (&self.engine, Purpose::Respond);
                match reloads::fresh_entry(engine, &wanting, &ask, routed.site, purpose) {
                    Some(obtained) => obtained,
                    None => {
                        self.metrics.count_lookup(wanting.why());
                        return CacheLookup::Miss(Box::new(PendingFetch { key, demand, wanting }));
                    }
                }
            }
        };
        CacheLookup::Hit(self.respond_from(head, routed, &ask, &obtained))
    }

    /// Returns the response of a hit.
    fn respond_from(
        &self,
        head: RequestHead<'_>,
        routed: &Routed<'_>,
        ask: &Lookup<'_>,
        obtained: &Outcome,
    ) -> Response<ResponseBody> {
        let chosen = self.choose(routed.site, ask, head.headers, obtained);
        let mut response = self.deliver(routed.logged(head), obtained, chosen);
        if !routed.site.settings.rule_set.is_empty() {
            let values = routed.values(head.headers);
            finish(&routed.rules, routed.site, &mut response, &values, Served::Stored);
        }
        secure::add_hsts(&mut response, routed.site, routed.peer.scheme);
        self.metrics.count_found();
        let now = self.engine.clock().now();
        self.metrics.sample(ask.key, &obtained.entry, now);
        response.body_mut().set_labels(Labels::of(routed.slot, CacheResult::Hit));
        if self.may_need_fields() {
            response.extensions_mut().insert(KeyHash(key_hash(ask.key)));
        }
        server_timing::note(&mut response, routed.site, None);
        response
    }

    /// Returns the response of a hit on a stored response to another query, which says by
    /// `No-Vary-Search` that it answers this one, too.
    #[inline(never)]
    fn look_for_equal_query(
        &self,
        head: RequestHead<'_>,
        routed: &Routed<'_>,
        ask: &Lookup<'_>,
    ) -> Option<Response<ResponseBody>> {
        let equal = EqualQuery::find(routed, head.headers)?;
        let ask = Lookup { key: equal.key.borrowed(), ..*ask };
        let obtained = equal.answer(self.engine.lookup(&ask), &routed.target)?;
        Some(self.respond_from(head, routed, &ask, &obtained))
    }
}

/// Stored response to another query, which may answer a request.
pub(super) struct EqualQuery {
    pub(super) key: KeyBuf,
    target: Box<str>,
}

impl EqualQuery {
    /// Finds a stored response that may answer a request. `headers` are those after all edits.
    pub(super) fn find(routed: &Routed<'_>, headers: &HeaderMap) -> Option<Self> {
        let Routed { site, peer, authority, target, rules, .. } = routed;
        let known = site.equal_queries.as_ref()?;
        let host = HostOrigin { scheme: peer.scheme, authority };
        let other = known.find(site, host, MatchedTarget { target, matched: rules.matched() })?;
        let mut key = key::primary(site, peer.scheme, authority, &other);
        rules.add_key_parts(site, headers, &mut key);
        Some(Self { key, target: other })
    }

    /// Returns the stored response if its own field says that it answers the request.
    pub(super) fn answer(&self, found: LookupResult, asked: &str) -> Option<Outcome> {
        let LookupResult::Hit(obtained) = found else { return None };
        let variance = SearchVariance::of(&Answer::of(&obtained.entry)?.headers)?;
        equal_queries::answers(&variance, &self.target, asked).then_some(obtained)
    }
}

/// Selecting fields of the client's request, borrowed.
pub(super) struct Fields<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) routed: &'a Routed<'a>,
}

impl Select for Fields<'_> {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let Routed { rules, site, peer, .. } = self.routed;
        selecting(self.headers, peer, site, rules.selecting_name(site, name))
    }
}
