//! Compression of responses: derived forms of stored ones, and the coding of others.

use std::sync::Arc;

use forebay_engine::{Entry, Lookup, Outcome, Source};
use forebay_semantics::coding::Coding;
use http::{HeaderMap, Response};

use super::Service;
use crate::compress::choose::{Chosen, choose};
use crate::compress::job::FormJob;
use crate::response::body::ResponseBody;
use crate::response::deliver::RequestHead;
use crate::response::encoded;
use crate::site::Site;

impl Service {
    /// Chooses the form of a response for a client. A hit whose form is missing is noted, and the
    /// second one has it made.
    pub(crate) fn choose<'o>(
        &self,
        site: &Site,
        lookup: &Lookup<'_>,
        headers: &HeaderMap,
        obtained: &'o Outcome,
    ) -> Chosen<'o> {
        let chosen = choose(site.settings.compress.as_ref(), headers, &obtained.entry);
        let is_hit = matches!(
            obtained.source,
            Source::Hit | Source::Tier(_) | Source::Refreshing | Source::Fallback
        );
        if is_hit && let Some(coding) = chosen.request(&obtained.entry) {
            self.make_form(site, lookup, &obtained.entry, coding);
        }
        chosen
    }

    /// Has a form of an entry made, without waiting for it.
    #[cold]
    pub(crate) fn make_form(
        &self,
        site: &Site,
        lookup: &Lookup<'_>,
        entry: &Arc<Entry>,
        coding: Coding,
    ) {
        let counts = self.metrics.compressions(&site.settings.id, coding);
        let (key, select) = (lookup.key, lookup.select);
        if let Some(job) = FormJob::new(&self.engine, key, select, entry, coding, counts) {
            self.compress.submit(job);
        }
    }

    /// Compresses a response that is not stored, if its site does so.
    pub(crate) fn encode(
        &self,
        site: &Site,
        request: RequestHead<'_>,
        response: &mut Response<ResponseBody>,
    ) {
        let counts = |coding| self.metrics.compressions(&site.settings.id, coding);
        encoded::encode(site.settings.compress.as_ref(), request, response, counts);
    }
}
