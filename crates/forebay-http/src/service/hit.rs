//! Hit path: lookup in memory, and the response from the stored entry.

use std::borrow::Cow;

use forebay_core::{Demand, KeyBuf};
use forebay_engine::{Lookup, LookupResult, Miss, Select};
use http::{HeaderMap, Response};

use super::reloads::{self, Purpose};
use super::route::Routed;
use super::{Service, secure};
use crate::client::credentials;
use crate::load::selecting;
use crate::record::{CacheResult, Labels};
use crate::response::body::ResponseBody;
use crate::response::deliver::RequestHead;
use crate::rules::{Served, finish};
use crate::site::key;

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
        let demand = routed.rules.demand(routed.site, head.headers);
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
        let chosen = self.choose(routed.site, &ask, head.headers, &obtained);
        let mut response = self.deliver(routed.logged(head), &obtained, chosen);
        if !routed.site.settings.rule_set.is_empty() {
            let values = routed.values(head.headers);
            finish(&routed.rules, routed.site, &mut response, &values, Served::Stored);
        }
        secure::add_hsts(&mut response, routed.site, routed.peer.scheme);
        self.metrics.count_found();
        response.body_mut().set_labels(Labels::of(routed.slot, CacheResult::Hit));
        CacheLookup::Hit(response)
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
