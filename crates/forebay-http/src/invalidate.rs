//! What the answer to an unsafe request makes invalid (RFC 9111 section 4.4, RFC 9875 section 3).

use std::sync::Arc;

use forebay_core::{Key, Purge, Reach};
use forebay_engine::Engine;
use forebay_semantics::groups::invalidated_groups;
use forebay_semantics::unsafe_methods::{self, Target};
use futures_util::future::join_all;
use http::{HeaderMap, Method};

use crate::key::{self, SCHEME};
use crate::load::ClientRequest;
use crate::{partial, tags};

/// The target, what `Location` and `Content-Location` name of the same origin, and the groups
/// that are named. Gives back how many of the purges name no key.
///
/// All purges begin at once, and the engine ends what it has begun: it is of no help to a client to
/// go away meanwhile.
pub(crate) async fn all(
    engine: &Arc<Engine>,
    request: &ClientRequest,
    (method, answer): (&Method, &HeaderMap),
) -> u64 {
    let targets = invalid_targets(request, answer);
    let keys = targets.iter().flat_map(|target| {
        let whole = key_of(request, target);
        let parts = partial::key_of(whole.borrowed());
        [Purge::Key(whole), Purge::Key(parts)]
    });
    let is_by_body = !request.site.settings.opt_ins.methods.is_empty();
    let bodies = targets.iter().filter(|_| is_by_body).map(|target| {
        Purge::Tag(tags::of_bodies(&request.site, &request.authority, target).into())
    });
    purge(engine, keys.chain(bodies).chain(groups_of(request, (method, answer)))).await
}

/// The groups alone. Gives back how many there are.
pub(crate) async fn groups(
    engine: &Arc<Engine>,
    request: &ClientRequest,
    exchange: (&Method, &HeaderMap),
) -> u64 {
    purge(engine, groups_of(request, exchange)).await
}

async fn purge(engine: &Arc<Engine>, purges: impl Iterator<Item = Purge>) -> u64 {
    let purges: Vec<Purge> = purges.collect();
    join_all(purges.iter().map(|purge| engine.purge(purge, Reach::Hard))).await;
    purges.iter().filter(|purge| !matches!(purge, Purge::Key(_))).count() as u64
}

fn groups_of<'a>(
    request: &'a ClientRequest,
    (method, answer): (&Method, &HeaderMap),
) -> impl Iterator<Item = Purge> + 'a {
    let limits = request.site.settings.opt_ins.groups;
    let named = limits.map(|limits| invalidated_groups(method, answer, limits));
    named
        .into_iter()
        .flatten()
        .map(|group| Purge::Tag(tags::of_group(&request.site, &request.authority, &group).into()))
}

fn invalid_targets(request: &ClientRequest, answer: &HeaderMap) -> Vec<String> {
    let mut targets = vec![request.target.as_str().to_owned()];
    for named in unsafe_methods::also_invalidated(target_of(request), answer) {
        let inner = key::inner_target(&request.site, &named).into_owned();
        // Of a site with a prefix, the origin may name its targets as clients do.
        let outer = key::target(&request.site, &named).filter(|outer| **outer != *inner);
        targets.extend(outer.map(Into::into));
        targets.push(inner);
    }
    targets
}

/// Where a request goes, as references in its answer are resolved.
pub(crate) fn target_of(request: &ClientRequest) -> Target<'_> {
    let path_and_query = request.target.as_str();
    Target { scheme: SCHEME, authority: &request.authority, path_and_query }
}

/// What a GET of this target is stored under.
pub(crate) fn key_of(request: &ClientRequest, target: &str) -> Key {
    key::primary(&request.site, &request.authority, target).borrowed().to_key()
}
