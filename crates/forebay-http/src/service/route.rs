//! Site, authority and target of a request.

use std::borrow::Cow;
use std::sync::Arc;

use forebay_rules::Operation;
use forebay_rules::apply::InvalidTarget;
use forebay_semantics::Scheme;
use http::header::HOST;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Version};

use crate::authority::normalise_authority;
use crate::client::logged_path;
use crate::client::peer::Peer;
use crate::failure::Failure;
use crate::record::{RequestId, SiteSlot};
use crate::request_guard::TARGET_MAX;
use crate::response::deliver::RequestHead;
use crate::rules::{RequestRules, RoutedRequest, Values};
use crate::site::table::SiteTable;
use crate::site::{Site, key};

/// Request with its site, authority and target.
pub(crate) struct Routed<'r> {
    pub(crate) site: &'r Arc<Site>,
    pub(crate) peer: Peer,
    pub(crate) method: &'r Method,
    pub(crate) slot: SiteSlot,
    pub(crate) id: RequestId,
    pub(crate) authority: Cow<'r, str>,
    pub(crate) target: Cow<'r, str>,
    pub(crate) rules: RequestRules,
}

/// Request with the names that its log line contains.
#[derive(Clone, Copy)]
pub(crate) struct LoggedRequest<'a> {
    pub(crate) request: RequestHead<'a>,
    pub(crate) site: &'a Site,
    pub(crate) host: &'a str,
    pub(crate) id: RequestId,
    /// Path and query; only the path is logged, because a query may contain secrets.
    pub(crate) target: &'a str,
}

impl<'a> LoggedRequest<'a> {
    pub(super) fn path(self) -> &'a str {
        logged_path(self.target)
    }
}

impl Routed<'_> {
    pub(super) fn logged<'a>(&'a self, request: RequestHead<'a>) -> LoggedRequest<'a> {
        let (id, site, target) = (self.id, self.site, &self.target);
        LoggedRequest { request, site, host: &self.authority, id, target }
    }

    /// Returns the values of placeholders.
    pub(super) fn values<'a>(&'a self, headers: &'a HeaderMap) -> Values<'a> {
        Values {
            id: &self.site.settings.id,
            authority: &self.authority,
            target: &self.target,
            headers: Some(headers),
            peer: Some(&self.peer),
            response: None,
        }
    }
}

/// Finds the site of a request, and applies its rules to the target. Errors of rules are counted if
/// `is_counted`.
pub(super) fn route<'r>(
    site_table: &'r SiteTable,
    parts: &'r Parts,
    peer: Peer,
    id: RequestId,
    operation: Option<Operation>,
    is_counted: bool,
) -> Result<Routed<'r>, Failure> {
    if parts.method == Method::CONNECT {
        return Err(Failure::MethodNotAllowed);
    }
    let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    if path.len() > TARGET_MAX {
        return Err(Failure::TargetTooLong);
    }
    // RFC 9112 section 3.2.4: `*` is valid only for OPTIONS.
    if path == "*" && parts.method != Method::OPTIONS {
        return Err(Failure::BadRequest("Only OPTIONS may have the request target *."));
    }
    let (site, authority) = match authority(parts, peer.scheme)? {
        Some(authority) => (site_table.find(&authority, path).ok_or(Failure::NoSite)?, authority),
        None => {
            let site = site_table.find_without_host(path).ok_or(NO_HOST)?;
            (site, site.settings.origin.own_authority(peer.scheme).ok_or(INVALID_HOST)?)
        }
    };
    let slot = site_table.slot(site);
    let method = &parts.method;
    if site.settings.rule_set.is_empty() {
        let target = key::target(site, path).ok_or(Failure::NoSite)?;
        let rules = RequestRules::default();
        return Ok(Routed { site, peer, method, slot, id, authority, target, rules });
    }
    let target = key::stripped(site, path).ok_or(Failure::NoSite)?;
    let headers = &parts.headers;
    let request = RoutedRequest {
        method,
        authority: &authority,
        target: &target,
        headers,
        peer: &peer,
        operation,
        is_counted,
    };
    let mut rules = RequestRules::new(site, &request);
    let target = rules.target(site, target).map_err(|InvalidTarget| INVALID_TARGET)?;
    let authority = rules.host(site).map_or(authority, Cow::Owned);
    Ok(Routed { site, peer, method, slot, id, authority, target, rules })
}

/// Error for an HTTP/1.1 request without a usable Host field.
const NO_HOST: Failure = Failure::BadRequest("The request has no Host header.");

/// Error for a target that a rule made and that no request can have.
pub(super) const INVALID_TARGET: Failure =
    Failure::BadRequest("The request target is not valid for this site.");

pub(super) const INVALID_HOST: Failure =
    Failure::BadRequest("The Host header is not a host name with an optional port.");

/// RFC 9112 section 3.2.2: the authority of an absolute target overrides `Host`. `None` if both are
/// absent, which HTTP/1.0 permits and health checks of load balancers use.
pub(super) fn authority(parts: &Parts, scheme: Scheme) -> Result<Option<Cow<'_, str>>, Failure> {
    let text = match (parts.uri.authority(), parts.uri.scheme_str()) {
        (Some(authority), Some(own)) if own == scheme.as_str() => authority.as_str(),
        // An authority target is for CONNECT (section 3.2.3); other schemes are not served.
        (Some(_), _) => {
            return Err(Failure::BadRequest(
                "The request target must be a path, or a URL with the scheme of the connection.",
            ));
        }
        (None, _) => match parts.headers.get(HOST) {
            Some(host) => host.to_str().map_err(|_| NO_HOST)?,
            None if parts.version < Version::HTTP_11 => return Ok(None),
            None => return Err(NO_HOST),
        },
    };
    normalise_authority(scheme, text).map(Some).ok_or(INVALID_HOST)
}
