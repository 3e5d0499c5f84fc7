//! What the answer to an unsafe request makes invalid (RFC 9111 section 4.4, RFC 9875 section 3).

use std::sync::Arc;

use forebay_core::{Key, Purge, Reach};
use forebay_engine::Engine;
use forebay_semantics::groups::invalidated_groups;
use forebay_semantics::unsafe_methods::{self, Target};
use futures_util::future::join_all;
use http::{HeaderMap, Method};

use crate::key::{self, SCHEME};
use crate::load::Asking;
use crate::{partial, tags};

/// The target, what `Location` and `Content-Location` name of the same origin, and the groups
/// that are named. Gives back how many of the purges name no key.
///
/// All purges begin at once, and the engine ends what it has begun: it is of no help to a client to
/// go away meanwhile.
pub(crate) async fn all(
    engine: &Arc<Engine>,
    asking: &Asking,
    (method, answer): (&Method, &HeaderMap),
) -> u64 {
    let targets = invalid_targets(asking, answer);
    let keys = targets.iter().flat_map(|target| {
        let whole = key_of(asking, target);
        let parts = partial::key_of(whole.borrowed());
        [Purge::Key(whole), Purge::Key(parts)]
    });
    let is_by_body = !asking.site.settings.opt_ins.methods.is_empty();
    let bodies = targets
        .iter()
        .filter(|_| is_by_body)
        .map(|target| Purge::Tag(tags::of_bodies(&asking.site, &asking.authority, target).into()));
    purge(engine, keys.chain(bodies).chain(groups_of(asking, (method, answer)))).await
}

/// The groups alone. Gives back how many there are.
pub(crate) async fn groups(
    engine: &Arc<Engine>,
    asking: &Asking,
    exchange: (&Method, &HeaderMap),
) -> u64 {
    purge(engine, groups_of(asking, exchange)).await
}

async fn purge(engine: &Arc<Engine>, purges: impl Iterator<Item = Purge>) -> u64 {
    let purges: Vec<Purge> = purges.collect();
    join_all(purges.iter().map(|purge| engine.purge(purge, Reach::Hard))).await;
    purges.iter().filter(|purge| !matches!(purge, Purge::Key(_))).count() as u64
}

fn groups_of<'a>(
    asking: &'a Asking,
    (method, answer): (&Method, &HeaderMap),
) -> impl Iterator<Item = Purge> + 'a {
    let limits = asking.site.settings.opt_ins.groups;
    let named = limits.map(|limits| invalidated_groups(method, answer, limits));
    named
        .into_iter()
        .flatten()
        .map(|group| Purge::Tag(tags::of_group(&asking.site, &asking.authority, &group).into()))
}

fn invalid_targets(asking: &Asking, answer: &HeaderMap) -> Vec<String> {
    let mut targets = vec![asking.target.as_str().to_owned()];
    for named in unsafe_methods::also_invalidated(target_of(asking), answer) {
        let inner = key::inner_target(&asking.site, &named).into_owned();
        // Of a site with a prefix, the origin may name its targets as clients do.
        let outer = key::target(&asking.site, &named).filter(|outer| **outer != *inner);
        targets.extend(outer.map(Into::into));
        targets.push(inner);
    }
    targets
}

/// Where a request goes, as references in its answer are resolved.
pub(crate) fn target_of(asking: &Asking) -> Target<'_> {
    let path_and_query = asking.target.as_str();
    Target { scheme: SCHEME, authority: &asking.authority, path_and_query }
}

/// What a GET of this target is stored under.
pub(crate) fn key_of(asking: &Asking, target: &str) -> Key {
    key::primary(&asking.site, &asking.authority, target).borrowed().to_key()
}
