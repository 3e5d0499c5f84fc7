//! Rules of a site, applied to a request and to its responses.
//!
//! | file | contents |
//! |---|---|
//! | `rules.rs` | evaluation; request edits, demand and key parts |
//! | `users.rs` | key part of a user |
//! | `values.rs` | values of placeholders |
//! | `storing.rs` | edits of responses of the origin; options for storing one response |
//! | `response.rs` | edits of responses to clients |
//!
//! Transforms of the site run after the rules of each phase.

mod response;
mod storing;
mod users;
mod values;

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::key::MEMORY_ONLY;
use forebay_core::{Demand, KeyBuf};
use forebay_engine::Coalesce;
use forebay_rules::apply::{self, InvalidTarget};
use forebay_rules::key::X_DEVICE;
use forebay_rules::{KeyedFields, Kind, Matched, Operation, Outcome, Request, Setting};
use forebay_semantics::demand::demand;
use forebay_semantics::{FieldLines, PeerAddress, Scheme};
use http::header::{CACHE_CONTROL, COOKIE, PRAGMA};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response};

use crate::authority::without_port;
use crate::client::peer::Peer;
use crate::metrics::rules::RuleError;
use crate::site::{Site, key};
use crate::transform::{Next, TransformFailed, safe};

pub(crate) use response::{Served, finish};
pub(crate) use storing::RuleChanges;
pub(crate) use values::Values;

/// Settings that the path for direct hits cannot apply, because they change the request or the
/// response of a hit.
const NOT_DIRECT: &[Kind] = &[
    Kind::ClientRequest,
    Kind::Redirect,
    Kind::Respond,
    Kind::CacheRequest,
    Kind::CacheResponse,
    Kind::BrowserTtl,
    Kind::ClientResponse,
    Kind::Host,
    Kind::Key,
    Kind::PerUser,
    Kind::Purge,
    Kind::TargetedFields,
];

/// Rules that match one request, with the results of their edits. Without rules it is empty.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestRules {
    matched: Matched,
    /// True if errors and matches of responses are counted: not for a forecast, the target of a purge,
    /// or an attempt at a direct hit.
    is_counted: bool,
    /// True if the method is neither GET nor HEAD: only rules about GraphQL queries give its response
    /// a lifetime.
    is_unsafe: bool,
    /// True if the body of the request has a GraphQL query, which reads data.
    is_query: bool,
    /// True if a rule changed path or host.
    is_rewritten: bool,
    /// True if an edit failed: nothing is stored.
    edit_failed: bool,
    /// True if cookies of the client were removed.
    dropped_cookies: bool,
    /// Credentials of the request that are in the key.
    keyed: KeyedCredentials,
}

/// Credentials of a request that are in the key, so that only requests with the same ones get the
/// response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum KeyedCredentials {
    /// Some credentials are not in the key.
    #[default]
    Some,
    /// All cookies, but not `Authorization`.
    Cookies,
    /// All credentials, and with them the user.
    User,
}

/// Result of the edits of a request.
#[derive(Default)]
pub(crate) struct EditedRequest {
    /// Header fields for key and origin; absent if no rule changes them.
    pub(crate) headers: Option<HeaderMap>,
    /// True if a part of the key is too long for a lookup.
    pub(crate) is_too_long: bool,
    /// Next step that transforms choose; absent if the request goes on.
    pub(crate) next: Option<TransformNext>,
}

/// Next step of a request that transforms choose.
pub(crate) enum TransformNext {
    Bypass,
    Respond(Box<Response<Bytes>>),
    /// A transform failed.
    Fail,
}

/// Request as it is routed.
pub(crate) struct RoutedRequest<'a, H> {
    pub(crate) method: &'a Method,
    pub(crate) authority: &'a str,
    /// Target without the prefix of the site, before any edit.
    pub(crate) target: &'a str,
    pub(crate) headers: &'a H,
    pub(crate) peer: &'a Peer,
    /// GraphQL operation in the body, if it was read and has one.
    pub(crate) operation: Option<Operation>,
    /// True if errors of rules, and matches of responses, are counted.
    pub(crate) is_counted: bool,
}

impl RequestRules {
    /// Matches the rules of a site.
    pub(crate) fn new<H: FieldLines>(site: &Site, request: &RoutedRequest<'_, H>) -> Self {
        let matched = site.settings.rule_set.evaluate(&Request {
            method: request.method,
            scheme: request.peer.scheme,
            host: without_port(request.authority),
            target: request.target,
            headers: request.headers,
            client: request.peer.client,
            operation: request.operation,
        });
        let is_read = matches!(*request.method, Method::GET | Method::HEAD);
        let is_query = request.operation == Some(Operation::Query);
        let is_counted = request.is_counted;
        Self { matched, is_counted, is_unsafe: !is_read, is_query, ..Self::default() }
    }

    /// Returns the rules that match the request.
    pub(crate) const fn matched(&self) -> &Matched {
        &self.matched
    }

    /// Counts the rules that match the request.
    pub(crate) fn count_matches(&self, site: &Site) {
        site.rule_counters.count_matches(self.outcome(site).rules());
    }

    /// Counts an error that a rule caused.
    pub(crate) fn count_error(&self, site: &Site, rule: usize, error: RuleError) {
        if self.is_counted {
            site.rule_counters.count_error(rule, error);
        }
    }

    /// Counts an error of the last rule with a setting.
    pub(crate) fn count_error_of(&self, site: &Site, kind: Kind, error: RuleError) {
        if let Some(rule) = self.outcome(site).numbers(kind).last() {
            self.count_error(site, rule, error);
        }
    }

    /// Returns true if the body of the request has a GraphQL query.
    pub(crate) fn is_query(&self) -> bool {
        self.is_query
    }

    /// Returns the methods other than GET and HEAD that are looked up by the request body.
    pub(crate) fn cache_methods<'s>(&self, site: &'s Site) -> &'s [Method] {
        let of_site = &site.settings.opt_ins.methods;
        if !site.settings.rule_set.uses(Kind::CacheMethods) {
            return of_site;
        }
        match self.outcome(site).last(Kind::CacheMethods) {
            Some(Setting::CacheMethods(methods)) => methods,
            _ => of_site,
        }
    }

    /// Returns true if cookies of the client were removed.
    pub(crate) fn dropped_cookies(&self) -> bool {
        self.dropped_cookies
    }

    /// Returns the rules that apply to the request.
    pub(crate) fn outcome<'s>(&self, site: &'s Site) -> Outcome<'s> {
        site.settings.rule_set.outcome(&self.matched)
    }

    /// Returns the target for key and origin.
    pub(crate) fn target<'t>(
        &mut self,
        site: &Site,
        target: Cow<'t, str>,
    ) -> Result<Cow<'t, str>, InvalidTarget> {
        let outcome = self.outcome(site);
        let before = target.clone();
        let after = apply::target(&site.facts, &outcome, target)
            .inspect_err(|_| self.count_error_of(site, Kind::Rewrite, RuleError::Target))?;
        self.is_rewritten = apply::is_rewritten(&outcome, &before, &after);
        Ok(after)
    }

    /// Returns a target with the path of the last rule that rewrites it; the query stays.
    pub(crate) fn rewritten<'t>(
        &self,
        site: &Site,
        target: &'t str,
    ) -> Result<Cow<'t, str>, InvalidTarget> {
        apply::rewritten_target(&self.outcome(site), target)
    }

    /// Returns the host that a rule sets.
    pub(crate) fn host(&self, site: &Site) -> Option<String> {
        match self.outcome(site).last(Kind::Host) {
            Some(Setting::Host(host)) => Some(host.to_string()),
            _ => None,
        }
    }

    /// Returns true if a rule of the request prevents a direct hit.
    pub(crate) fn prevents_direct_hit<H: FieldLines>(&self, site: &Site, headers: &H) -> bool {
        let outcome = self.outcome(site);
        let filters = || outcome.has_any(&[Kind::KeepCookies, Kind::DropCookies]);
        outcome.bypasses()
            || outcome.has_any(NOT_DIRECT)
            || headers.has(&COOKIE) && filters()
            || site.settings.rule_set.may_apply(&self.matched, NOT_DIRECT)
    }

    /// Adds the key parts of the rules. `headers` are those after all edits.
    pub(crate) fn add_key_parts<H: FieldLines>(&self, site: &Site, headers: &H, key: &mut KeyBuf) {
        let set = &site.settings.rule_set;
        if set.is_empty() || !set.splits_keys() {
            return;
        }
        // A name in front keeps the parts apart from those that other lookups add.
        set.key_parts(&self.matched, self.is_rewritten, |part| {
            key.part(b"rule").part(part);
        });
        if let Some(keyed) = self.keyed_fields(site) {
            keyed.parts(headers, |part| {
                key.part(b"key").part(part);
            });
            if let Some(user) = keyed.user(headers) {
                key.part(MEMORY_ONLY).part(users::digest(&user).as_ref());
            }
        }
    }

    /// Returns the header fields and cookies in the key; `None` if no rule adds any.
    pub(crate) fn keyed_fields<'s>(&self, site: &'s Site) -> Option<KeyedFields<'s>> {
        let set = &site.settings.rule_set;
        let is_used = set.uses(Kind::Key) || set.uses(Kind::PerUser);
        is_used.then(|| KeyedFields::of(&self.outcome(site))).flatten()
    }

    /// Returns the field that selects a variant if a response names `name` in `Vary`: with the device
    /// in the key, `User-Agent` means its class.
    pub(crate) fn selecting_name<'n>(&self, site: &Site, name: &'n str) -> &'n str {
        let is_class = |keyed: KeyedFields<'_>| keyed.has_device();
        if name == "user-agent" && self.keyed_fields(site).is_some_and(is_class) {
            return X_DEVICE;
        }
        name
    }

    /// Returns the demand of the request.
    pub(crate) fn demand<H: FieldLines>(&self, site: &Site, headers: &H) -> Demand {
        let settings = &site.settings;
        if settings.rule_set.is_empty() {
            return demand(headers, &settings.demand);
        }
        let outcome = self.outcome(site);
        let mut base = settings.demand.clone();
        if let Some(Setting::SoftTimeout(timeout)) = outcome.last(Kind::SoftTimeout) {
            base.soft_timeout = Some(*timeout);
        }
        if let Some(Setting::EarlyRefreshBeta(beta)) = outcome.last(Kind::EarlyRefreshBeta) {
            base.beta = *beta;
        }
        if let Some(Setting::StaleOnDisconnectMax(most)) = outcome.last(Kind::StaleOnDisconnectMax)
        {
            base.stale_if_unreachable = *most;
        }
        if outcome.has_any(&[Kind::PerUser]) {
            // An entry for one user is not served for longer than `per_user_ttl_max`.
            base.stale_if_unreachable = Duration::ZERO;
        }
        let asked = if outcome.has_any(&[Kind::CacheRequest]) {
            let mut seen = directives(headers);
            for (rule, edits) in outcome.edits(Kind::CacheRequest) {
                // A skipped edit leaves the directive of the client, which narrows.
                if edits.apply(&mut seen, &Values::default()).is_err() {
                    self.count_error(site, rule, RuleError::Value);
                }
            }
            demand(&seen, &base)
        } else {
            demand(headers, &base)
        };
        match outcome.last(Kind::ClientCacheControl) {
            // no-store and only-if-cached are about this client's own response.
            Some(Setting::ClientCacheControl(false)) => Demand {
                no_store: asked.no_store,
                only_if_cached: asked.only_if_cached,
                max_stale: asked.max_stale,
                ..base
            },
            _ => asked,
        }
    }

    /// Returns which requests share a load.
    pub(crate) fn coalesce(&self, site: &Site) -> Coalesce {
        let of_site = site.settings.coalesce;
        if site.settings.rule_set.is_empty() {
            return of_site;
        }
        let outcome = self.outcome(site);
        if outcome.is_empty() {
            return of_site;
        }
        // No other instance has the key of a user.
        let is_local = outcome.has_any(&[Kind::PerUser]);
        let shares = match outcome.last(Kind::Coalesce) {
            Some(Setting::Coalesce(shares)) => *shares,
            _ => of_site != Coalesce::Never,
        };
        let is_clustered = match outcome.last(Kind::CoalesceCluster) {
            Some(Setting::CoalesceCluster(shares)) => *shares,
            _ => of_site != Coalesce::Instance,
        } && !is_local;
        match (shares, is_clustered) {
            (false, _) => Coalesce::Never,
            (true, false) => Coalesce::Instance,
            (true, true) => Coalesce::Cluster,
        }
    }

    /// Returns the header fields for key and origin. Only a request that is looked up loses cookies and
    /// has key parts.
    pub(crate) fn edited(
        &mut self,
        site: &Site,
        method: &Method,
        headers: &HeaderMap,
        values: &Values<'_>,
        is_looked_up: bool,
    ) -> EditedRequest {
        let outcome = self.outcome(site);
        let is_edited = outcome.has_any(&[Kind::ClientRequest]);
        let filters = is_looked_up
            && headers.contains_key(COOKIE)
            && outcome.has_any(&[Kind::KeepCookies, Kind::DropCookies]);
        let keyed = if is_looked_up { self.keyed_fields(site) } else { None };
        if !is_edited && !filters && keyed.is_none() && site.settings.transforms.is_empty() {
            return EditedRequest::default();
        }
        let mut edited = headers.clone();
        for (rule, edits) in outcome.edits(Kind::ClientRequest) {
            if edits.apply(&mut edited, values).is_err() {
                self.edit_failed = true;
                self.count_error(site, rule, RuleError::Value);
            }
        }
        let next = self.transformed(site, method, &mut edited, values);
        if let Some(keyed) = &keyed {
            let before = edited.clone();
            if keyed.normalise(&mut edited).is_err() {
                self.count_error_of(site, Kind::Key, RuleError::Key);
                return EditedRequest { headers: Some(before), is_too_long: true, next };
            }
        }
        if filters {
            self.dropped_cookies = apply::filter_cookies(&outcome, &mut edited);
        }
        self.keyed = match keyed {
            Some(keyed) if keyed.covers_credentials(&edited) => KeyedCredentials::User,
            Some(keyed) if keyed.covers_cookies(&edited) => KeyedCredentials::Cookies,
            _ => KeyedCredentials::Some,
        };
        EditedRequest { headers: Some(edited), is_too_long: false, next }
    }

    /// Runs the transforms of the request.
    fn transformed(
        &self,
        site: &Site,
        method: &Method,
        headers: &mut HeaderMap,
        values: &Values<'_>,
    ) -> Option<TransformNext> {
        let transforms = &site.settings.transforms;
        if transforms.is_empty() {
            return None;
        }
        match transforms.client_request(values.asked(), method, headers) {
            Ok(Next::Continue) => None,
            Ok(Next::Bypass) => Some(TransformNext::Bypass),
            Ok(Next::Respond(response)) => Some(TransformNext::Respond(Box::new(safe(response)))),
            Err(failed) => {
                self.count_failed_transform(site, failed);
                Some(TransformNext::Fail)
            }
        }
    }

    /// Counts the failure of a transform. The rules of transforms are the last ones of the site.
    pub(crate) fn count_failed_transform(&self, site: &Site, failed: TransformFailed) {
        let (set, transforms) = (&site.settings.rule_set, &site.settings.transforms);
        let first = set.rules().len().saturating_sub(transforms.len());
        self.count_error(site, first + failed.0, RuleError::Transform);
    }

    /// Returns the demand of the request after the transforms. One that fails changes nothing.
    pub(crate) fn transformed_demand(
        &self,
        site: &Site,
        headers: &HeaderMap,
        values: &Values<'_>,
    ) -> Demand {
        let mut demand = self.demand(site, headers);
        let transforms = &site.settings.transforms;
        if !transforms.is_empty() {
            let (asked, of_site) = (values.asked(), &site.settings.demand);
            let set = transforms.cache_request(asked, headers, &mut demand, of_site);
            if let Err(failed) = set {
                self.count_failed_transform(site, failed);
            }
        }
        demand
    }

    /// Returns the time limit of a load: that of the site, or a shorter one of a rule.
    pub(crate) fn fetch_timeout(&self, site: &Site) -> Duration {
        match self.outcome(site).last(Kind::FetchTimeout) {
            Some(Setting::FetchTimeout(timeout)) => site.settings.fetch_timeout.min(*timeout),
            _ => site.settings.fetch_timeout,
        }
    }

    /// Returns the target for the origin, if it has parameters that only the origin gets.
    pub(crate) fn origin_target(&self, site: &Site, target: &str) -> Option<PathAndQuery> {
        if !site.settings.rule_set.uses(Kind::OriginQuery) {
            return None;
        }
        let target = apply::origin_target(&self.outcome(site), target)?;
        PathAndQuery::try_from(target).ok()
    }

    /// Applies the edits of requests to the origin. Returns false if one failed.
    pub(crate) fn edit_origin_request(
        &self,
        site: &Site,
        headers: &mut HeaderMap,
        values: &Values<'_>,
    ) -> bool {
        let outcome = self.outcome(site);
        let mut applied = true;
        for (rule, edits) in outcome.edits(Kind::OriginRequest) {
            if edits.apply(headers, values).is_err() {
                applied = false;
                self.count_error(site, rule, RuleError::Value);
            }
        }
        applied
    }

    /// Runs the transforms of a request to the origin. `seen` has the fields of the client's request.
    /// Returns false if one failed.
    pub(crate) fn transform_origin_request(
        &self,
        site: &Site,
        seen: &HeaderMap,
        headers: &mut HeaderMap,
        values: &Values<'_>,
    ) -> bool {
        let run = site.settings.transforms.origin_request(values.asked(), seen, headers);
        run.inspect_err(|failed| self.count_failed_transform(site, *failed)).is_ok()
    }
}

/// Returns authority and target of the entry of a URL: those of a GET without fields. The target has
/// no prefix of the site.
pub(crate) fn purge_target<'t>(
    site: &Site,
    scheme: Scheme,
    authority: Cow<'t, str>,
    target: Cow<'t, str>,
) -> Option<(Cow<'t, str>, Cow<'t, str>)> {
    if site.settings.rule_set.is_empty() {
        return Some((authority, key::normalise_query(&site.settings, target)));
    }
    let matched = site.settings.rule_set.evaluate(&Request {
        method: &Method::GET,
        scheme,
        host: without_port(&authority),
        target: &target,
        headers: &HeaderMap::new(),
        client: PeerAddress::Unix,
        operation: None,
    });
    let mut rules = RequestRules { matched, ..RequestRules::default() };
    let target = rules.target(site, target).ok()?;
    let authority = rules.host(site).map_or(authority, Cow::Owned);
    Some((authority, target))
}

/// Returns the cache directives of a request.
fn directives(headers: &impl FieldLines) -> HeaderMap {
    let mut seen = HeaderMap::new();
    for name in [CACHE_CONTROL, PRAGMA] {
        for line in headers.lines(&name) {
            if let Ok(line) = http::HeaderValue::from_bytes(line) {
                seen.append(name.clone(), line);
            }
        }
    }
    seen
}
