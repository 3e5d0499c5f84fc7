//! Invalidation after an unsafe request (RFC 9111 section 4.4, RFC 9875 section 3).

use std::sync::Arc;

use forebay_core::{Key, Purge, Reach};
use forebay_engine::Engine;
use forebay_semantics::groups::invalidated_groups;
use forebay_semantics::unsafe_methods::{self, Target};
use futures_util::future::join_all;
use http::{HeaderMap, Method};

use crate::load::ClientRequest;
use crate::site::tags::HostOrigin;
use crate::site::{key, tags};
use crate::stored::partial;

/// Invalidates the target, the same-origin targets in `Location` and `Content-Location`, and the
/// named groups. Returns the number of purges by tag.
///
/// All purges start concurrently, and the engine completes them even if the client disconnects.
pub(crate) async fn all(
    engine: &Arc<Engine>,
    request: &ClientRequest,
    method: &Method,
    answer: &HeaderMap,
) -> u64 {
    let targets = invalid_targets(request, answer);
    let keys = targets.iter().flat_map(|target| {
        let whole = key_of(request, target);
        let parts = partial::key_of(whole.borrowed());
        [Purge::Key(whole), Purge::Key(parts)]
    });
    let is_by_body = !request.site.settings.opt_ins.methods.is_empty();
    let bodies = targets.iter().filter(|_| is_by_body).map(|target| {
        Purge::Tag(tags::of_bodies(&request.site, request.host_origin(), target).into())
    });
    purge(engine, keys.chain(bodies).chain(groups_of(request, method, answer))).await
}

/// Invalidates the named groups only. Returns their number.
pub(crate) async fn groups(
    engine: &Arc<Engine>,
    request: &ClientRequest,
    method: &Method,
    answer: &HeaderMap,
) -> u64 {
    purge(engine, groups_of(request, method, answer)).await
}

async fn purge(engine: &Arc<Engine>, purges: impl Iterator<Item = Purge>) -> u64 {
    let purges: Vec<Purge> = purges.collect();
    join_all(purges.iter().map(|purge| engine.purge(purge, Reach::Hard))).await;
    purges.iter().filter(|purge| !matches!(purge, Purge::Key(_))).count() as u64
}

fn groups_of<'a>(
    request: &'a ClientRequest,
    method: &Method,
    answer: &HeaderMap,
) -> impl Iterator<Item = Purge> + 'a {
    let limits = request.site.settings.opt_ins.groups;
    let named = limits.map(|limits| invalidated_groups(method, answer, limits));
    named.into_iter().flatten().map(|group| {
        Purge::Tag(tags::of_group(&request.site, request.host_origin(), &group).into())
    })
}

fn invalid_targets(request: &ClientRequest, answer: &HeaderMap) -> Vec<String> {
    let mut targets = vec![request.target.as_str().to_owned()];
    for named in unsafe_methods::also_invalidated(target_of(request), answer) {
        let inner = key::inner_target(&request.site, &named).into_owned();
        // In a site with a prefix, the origin may use public paths.
        let outer = key::target(&request.site, &named).filter(|outer| **outer != *inner);
        targets.extend(outer.map(Into::into));
        targets.push(inner);
    }
    targets
}

/// Returns the target URI against which references in the response are resolved.
pub(crate) fn target_of(request: &ClientRequest) -> Target<'_> {
    let path_and_query = request.target.as_str();
    Target { scheme: request.peer.scheme.as_str(), authority: &request.authority, path_and_query }
}

/// Returns the key of a GET of this target.
pub(crate) fn key_of(request: &ClientRequest, target: &str) -> Key {
    let HostOrigin { scheme, authority } = request.host_origin();
    key::primary(&request.site, scheme, authority, target).borrowed().to_key()
}
