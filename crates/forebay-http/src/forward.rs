//! What never touches the cache, and what it invalidates.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Demand, Key, Purge, Reach, Why};
use forebay_engine::{Ask, Coalesce, Company, Engine, LoadError, Look, Obtained, Watch};
use forebay_semantics::status::{CacheStatus, Fate, Forward as Hop};
use forebay_semantics::storable::Answered;
use forebay_semantics::unsafe_methods::{self, Target, stands_for_get};
use futures_util::future::join_all;
use http::header::MAX_FORWARDS;
use http::{HeaderMap, HeaderValue, Method, Response};
use http_body_util::BodyExt;

use crate::deliver::deliver_as_it_is;
use crate::key::{self, SCHEME};
use crate::load::{Asking, StandIn, tidy_fields};
use crate::origin::{OriginBody, Question, RequestBody};
use crate::outgoing::Outgoing;
use crate::partial;
use crate::service::credentials;

/// One request on its way past the cache.
pub(crate) struct Forward {
    pub(crate) asking: Asking,
    pub(crate) method: Method,
    pub(crate) body: RequestBody,
    pub(crate) why: Why,
}

impl Forward {
    /// Sends it on, streaming both ways, and drops what its success makes invalid before the
    /// client learns of it.
    pub(crate) async fn send(self, engine: &Arc<Engine>) -> Result<Response<Outgoing>, LoadError> {
        let Self { asking, method, body, why } = self;
        let headers = asking.outgoing_fields();
        let target = asking.target.clone();
        let interims = asking.interims.clone();
        let question = Question { method: method.clone(), target, headers, body, interims };
        let key = key_of(&asking, asking.target.as_str());
        let watch = (method == Method::POST).then(|| engine.watch(key.clone()));
        let sent = engine.clock().exact();
        let response = asking.site.origin.ask(question, Company::Alone).await?;
        let delay = engine.clock().exact().saturating_sub(sent);
        let (mut parts, body) = response.into_parts();
        tidy_fields(&mut parts.headers, engine.clock().wall());
        if unsafe_methods::invalidates(&method, parts.status) {
            invalidate(engine, &asking, &parts.headers).await;
            let answered = Answered { status: parts.status, headers: &parts.headers };
            if let Some(watch) = watch.filter(|_| stands_for_get(target_of(&asking), answered)) {
                let response = Response::from_parts(parts, body);
                return store(engine, (asking, key), ((response, delay), watch)).await;
            }
        }
        let mut status = CacheStatus::forward(why);
        let status_code = Some(parts.status.as_u16());
        status.fate =
            Fate::Forward(Hop { why, status: status_code, stored: false, collapsed: false });
        status.append_to(&mut parts.headers);
        Ok(Response::from_parts(parts, Outgoing::origin(body)))
    }
}

/// Counts a request down that says how often it may be forwarded (RFC 9110 section 7.6.2).
/// `true` if that is not even once more.
pub(crate) fn is_last_hop(method: &Method, headers: &mut HeaderMap) -> bool {
    if *method != Method::OPTIONS && *method != Method::TRACE {
        return false;
    }
    let left = headers.get(MAX_FORWARDS).and_then(|left| left.to_str().ok());
    let Some(left) = left.and_then(|left| left.parse::<u32>().ok()) else { return false };
    let Some(fewer) = left.checked_sub(1) else { return true };
    headers.insert(MAX_FORWARDS, HeaderValue::from(fewer));
    false
}

/// RFC 9111 section 4.4: the target, and what Location and Content-Location name of the same
/// origin.
///
/// All purges begin at once, and the engine ends what it has begun: it is of no help to a client to
/// go away meanwhile.
async fn invalidate(engine: &Arc<Engine>, asking: &Asking, headers: &HeaderMap) {
    let mut keys = invalid_keys(asking, headers);
    let parts: Vec<Key> = keys.iter().map(|key| partial::key_of(key.borrowed())).collect();
    keys.extend(parts);
    let purges = keys.iter().map(|key| async move {
        engine.purge(&Purge::Key(key.clone()), Reach::Hard).await;
    });
    join_all(purges).await;
}

/// RFC 9110 section 9.3.3: what came in answer to a POST is what a GET would bring.
async fn store(
    engine: &Arc<Engine>,
    (asking, key): (Asking, Key),
    answer: ((Response<OriginBody>, Duration), Watch),
) -> Result<Response<Outgoing>, LoadError> {
    let credentials = credentials(&asking.headers);
    let demand = Demand::default();
    let load = StandIn::new(asking, (engine.clone(), key.clone()), answer);
    let ask = Ask {
        key: key.borrowed(),
        demand: &demand,
        select: &load,
        credentials,
        // Nobody has asked for a POST but this one.
        coalesce: Coalesce::Nowhere,
    };
    let wanting = match engine.look(&ask) {
        Look::Served(obtained) => engine.lacking(&ask, obtained),
        Look::Wanting(wanting) => wanting.lacking(),
    };
    let obtained = engine.fetch(&ask, wanting, load.clone()).await?;
    let obtained = Obtained { why: Some(Why::Method), ..obtained };
    let now = engine.clock().now();
    deliver_as_it_is(&obtained, now).ok_or_else(|| LoadError::origin("an unreadable answer"))
}

fn invalid_keys(asking: &Asking, headers: &HeaderMap) -> Vec<Key> {
    let target = asking.target.as_str();
    let here = target_of(asking);
    let mut keys = vec![key_of(asking, target)];
    for named in &unsafe_methods::also_invalidated(here, headers) {
        let inner = key::inner_target(&asking.site, named);
        keys.push(key_of(asking, &inner));
        // Of a site with a prefix, the origin may name its targets as clients do.
        match key::target(&asking.site, named) {
            Some(outer) if outer != inner => keys.push(key_of(asking, &outer)),
            _ => {}
        }
    }
    keys
}

fn target_of(asking: &Asking) -> Target<'_> {
    let path_and_query = asking.target.as_str();
    Target { scheme: SCHEME, authority: &asking.authority, path_and_query }
}

fn key_of(asking: &Asking, target: &str) -> Key {
    key::primary(&asking.site, &asking.authority, target).borrowed().to_key()
}

/// A request body as the origin client takes it.
pub(crate) fn request_body<B>(body: B) -> RequestBody
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    body.map_err(Into::into).boxed_unsync()
}
