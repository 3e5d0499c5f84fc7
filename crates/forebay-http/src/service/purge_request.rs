//! Requests of clients that purge, as a rule permits.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{Reach, Why};
use forebay_engine::{Propagation, Purged};
use forebay_rules::purge::PurgedTags;
use forebay_rules::{Kind, PurgeRule};
use forebay_semantics::{CacheStatus, Scheme};
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::route::{INVALID_HOST, INVALID_TARGET, authority};
use super::{Routed, Service};
use crate::failure::Failure;
use crate::metrics::rules::RuleError;
use crate::record::{CacheResult, Labels, RequestId, SiteSlot};
use crate::response::body::ResponseBody;
use crate::rules::{RequestRules, Served, Values, finish};
use crate::site::Site;

/// Purge that a request asks for, and that a rule permits.
pub(super) struct PurgeRequest {
    pub(super) site: Arc<Site>,
    pub(super) scheme: Scheme,
    /// Authority of the request, before a rule changes the host.
    pub(super) authority: String,
    /// Target without the prefix of the site.
    pub(super) target: String,
    pub(super) what: PurgedThings,
    pub(super) reach: Reach,
    slot: SiteSlot,
    id: RequestId,
    rules: RequestRules,
}

/// Entries that a request purges.
pub(super) enum PurgedThings {
    /// All entries of its URL.
    Url,
    /// Entries with these tags.
    Tags(PurgedTags),
}

impl PurgeRequest {
    /// Reads a purge from a request. `raw` is its target without the prefix of the site.
    ///
    /// # Errors
    /// If the request has not the token of the rule, or its tags are malformed.
    pub(super) fn read(
        routed: &Routed<'_>,
        parts: &Parts,
        rule: &PurgeRule,
        raw: &str,
    ) -> Result<Self, Failure> {
        if !has_token(rule, &parts.headers) {
            routed.rules.count_error_of(routed.site, Kind::Purge, RuleError::Purge);
            return Err(Failure::PurgeDenied);
        }
        let what = match &rule.tags {
            Some(field) if parts.headers.contains_key(field) => {
                let value = only(&parts.headers, field).and_then(|value| rule.format.read(value));
                PurgedThings::Tags(value.ok_or(INVALID_TAGS)?)
            }
            _ => PurgedThings::Url,
        };
        let scheme = routed.peer.scheme;
        let authority = match authority(parts, scheme)? {
            Some(authority) => authority,
            None => {
                let origin = &routed.site.settings.origin;
                origin.own_authority(scheme).ok_or(INVALID_HOST)?
            }
        };
        // A rule may move the URL out of a path such as /purge/….
        let target = routed.rules.rewritten(routed.site, raw).map_err(|_| INVALID_TARGET)?;
        Ok(Self {
            site: routed.site.clone(),
            scheme,
            authority: authority.into_owned(),
            target: target.into_owned(),
            what,
            reach: if rule.hard { Reach::Hard } else { Reach::Soft },
            slot: routed.slot,
            id: routed.id,
            rules: routed.rules,
        })
    }

    fn log(&self, Purged { found, propagation }: &Purged) {
        let (site, request) = (&*self.site.settings.id, self.id);
        let (kind, tags) = match &self.what {
            PurgedThings::Url => ("url", 0),
            PurgedThings::Tags(PurgedTags::All) => ("site", 0),
            PurgedThings::Tags(PurgedTags::Named(tags)) => ("tag", tags.len()),
        };
        let path = crate::client::logged_path(&self.target);
        let is_published = !matches!(propagation, Propagation::Pending(_));
        tracing::info!(
            site, kind, path, tags, found, is_published, %request,
            "purge of a client carried out"
        );
    }
}

/// Error for a field of tags that cannot be read.
const INVALID_TAGS: Failure = Failure::BadRequest(
    "The tags to purge cannot be read: name 1 to 256 tags, in the format of the rule.",
);

/// Returns true if the request has the token of the rule, or the rule has none.
fn has_token(rule: &PurgeRule, headers: &HeaderMap) -> bool {
    let Some(token) = &rule.token else { return true };
    let given = only(headers, &rule.token_header);
    let given = match rule.token_header {
        AUTHORIZATION => given.and_then(|value| value.strip_prefix("Bearer ")),
        _ => given,
    };
    given.is_some_and(|given| token.equals(given.trim().as_bytes()))
}

/// Returns the value of a field that occurs exactly once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok()
}

impl Service {
    /// Carries out the purge of a request.
    pub(super) async fn answer_purge(
        &self,
        purge: &PurgeRequest,
        parts: &Parts,
    ) -> Response<ResponseBody> {
        let Some(purged) = self.purge_by_request(purge).await else {
            return self.refuse(&INVALID_TARGET, parts, purge.id);
        };
        purge.log(&purged);
        let (status, text) = match &purged.propagation {
            Propagation::None => (StatusCode::OK, done(purged.found, 1)),
            Propagation::Published(published) => {
                (StatusCode::OK, done(purged.found, published.instances))
            }
            Propagation::Pending(_) => (StatusCode::SERVICE_UNAVAILABLE, NOT_PUBLISHED.to_owned()),
        };
        let mut response = Response::new(ResponseBody::whole(Bytes::from(text)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        CacheStatus::forward(Why::Rule).append_to(headers);
        let values = Values {
            id: &purge.site.settings.id,
            authority: &purge.authority,
            target: &purge.target,
            headers: Some(&parts.headers),
            peer: None,
            response: None,
        };
        finish(&purge.rules, &purge.site, &mut response, &values, Served::Other);
        response.body_mut().set_labels(Labels::of(purge.slot, CacheResult::Rule));
        response
    }
}

/// Body of a purge that other instances do not know.
const NOT_PUBLISHED: &str = "{\"error\":\"The purge is carried out here, but could not be sent to the \
                             other instances; it is sent when the shared tier works again.\"}\n";

fn done(found: bool, instances: impl std::fmt::Display) -> String {
    format!("{{\"purged\":{},\"instances\":{instances}}}\n", u8::from(found))
}
