//! Requests that bypass the cache, with the invalidation that they cause.

use std::sync::Arc;

use forebay_core::{Demand, Key, Why};
use forebay_engine::{Audience, Coalesce, Engine, LoadError, Lookup, LookupResult, Outcome};
use forebay_semantics::ResponseRef;
use forebay_semantics::status::{CacheStatus, Forward as Hop, Handling};
use forebay_semantics::trailers;
use forebay_semantics::unsafe_methods::{self, stands_for_get};
use forebay_semantics::vary::is_encoded;
use http::header::{MAX_FORWARDS, TRAILER};
use http::{HeaderMap, HeaderValue, Method, Response};
use http_body::Body as _;
use http_body_util::BodyExt;

use crate::client::credentials;
use crate::compress::stored;
use crate::load::invalidate::{self, key_of, target_of};
use crate::load::{
    ClientRequest, FetchMode, HttpLoad, PurgeWatch, Received, ReceivedLoad, normalise_fields,
};
use crate::origin::{BuildRequest, FetchRequest, Outgoing, RequestBody, is_idle_close, no_body};
use crate::response::body::ResponseBody;
use crate::response::deliver::deliver_as_it_is;
use crate::rules::RoutedRequest;

/// Number of purges of its own key that a POST response causes.
const OWN_PURGES: u64 = 1;

/// Request that is forwarded past the cache.
pub(crate) struct Forward {
    pub(crate) request: ClientRequest,
    pub(crate) method: Method,
    pub(crate) body: RequestBody,
    pub(crate) why: Why,
}

impl Forward {
    /// Forwards the request, streaming both bodies. A success invalidates stored responses before
    /// the client gets the response.
    pub(crate) async fn send(
        self,
        engine: &Arc<Engine>,
    ) -> Result<Response<ResponseBody>, LoadError> {
        let Self { request, method, body, why } = self;
        let question = |body| FetchRequest {
            method: method.clone(),
            target: request.origin_target(),
            headers: fields(&request, &method),
            body,
            interims: request.interims.clone(),
            urgency: request.urgency.of(&request.fields),
        };
        // RFC 9110 section 9.2.2: only an idempotent request may be sent again.
        let may_repeat = method.is_idempotent() && body.is_end_stream();
        let again = || question(no_body());
        let again: Option<&BuildRequest<'_>> = if may_repeat { Some(&again) } else { None };
        let key = key_of(&request, request.target.as_str());
        let watch = (method == Method::POST).then(|| engine.watch(key.clone()));
        let sent = engine.clock().exact();
        let origin = &request.site.origin;
        // RFC 9112 section 9.3.1: a safe request may be sent again.
        let is_safe = method.is_safe() && body.is_end_stream();
        let asked = Outgoing::Built(Box::new(question(body)), again);
        request.check_request_transforms()?;
        let response = match origin.fetch(asked, Audience::Single).await {
            Err(error) if is_safe && is_idle_close(&error) => {
                let asked = Outgoing::Built(Box::new(question(no_body())), again);
                origin.fetch(asked, Audience::Single).await?
            }
            fetched => fetched?,
        };
        let delay = engine.clock().exact().saturating_sub(sent);
        let (mut parts, body) = response.into_http().into_parts();
        let announced = trailers::announced(&parts.headers);
        normalise_fields(&mut parts.headers, engine.clock().wall());
        request.edit_fields(parts.status, &mut parts.headers);
        request.check_response_transforms()?;
        let body = request.cut_json(&mut parts, body).await?;
        let compress = request.site.settings.compress.as_ref();
        stored::mark(compress, &mut parts.headers);
        if unsafe_methods::invalidates(&method, parts.status) {
            let logged = invalidate::all(engine, &request, &method, &parts.headers).await;
            let answered = ResponseRef { status: parts.status, headers: &parts.headers };
            // One response is stored for the clients of all codings.
            let may_store = !(compress.is_some() && is_encoded(&parts.headers))
                && stands_for_get(target_of(&request), answered);
            if let Some(watch) = watch.filter(|_| may_store && !is_shaped(&request)) {
                let response = Response::from_parts(parts, body);
                let received = Received { response, delay, purges_at_send: None };
                let watched = PurgeWatch { watch, own: OWN_PURGES, logged };
                return store(engine, request, key, received, watched).await;
            }
        }
        let mut status = CacheStatus::forward(why);
        let status_code = Some(parts.status.as_u16());
        status.handling =
            Handling::Forward(Hop { why, status: status_code, stored: false, collapsed: false });
        status.append_to(&mut parts.headers);
        if let Some(names) = announced.filter(|_| trailers::are_accepted(request.headers())) {
            parts.headers.insert(TRAILER, names);
        }
        Ok(Response::from_parts(parts, ResponseBody::origin(body)))
    }
}

/// Returns true if rules or transforms may shape the response to this POST, or a stored response to
/// a GET of its URL by any client. Then the one may not be stored as the other: equal keys have
/// equal policy.
fn is_shaped(request: &ClientRequest) -> bool {
    let get = RoutedRequest {
        method: &Method::GET,
        authority: &request.authority,
        target: request.target.as_str(),
        headers: request.headers(),
        peer: &request.peer,
        operation: None,
        is_counted: false,
    };
    request.rules.may_shape_entry(&request.site, &get)
}

/// Returns the header fields for the origin.
fn fields(request: &ClientRequest, method: &Method) -> HeaderMap {
    let mut headers = request.outgoing_fields();
    // Its response has the fields that the one to GET would have.
    if *method == Method::HEAD {
        request.site.ask_without_coding(&mut headers);
    }
    if trailers::are_accepted(request.headers()) {
        trailers::take(&mut headers);
    }
    headers
}

/// Decrements `Max-Forwards` (RFC 9110 section 7.6.2). Returns true if the request must not be
/// forwarded.
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

/// RFC 9110 section 9.3.3: stores the response to a POST for GET of the same target.
async fn store(
    engine: &Arc<Engine>,
    request: ClientRequest,
    key: Key,
    received: Received,
    watched: PurgeWatch,
) -> Result<Response<ResponseBody>, LoadError> {
    let credentials = credentials(request.headers());
    let demand = Demand::default();
    let load = HttpLoad::new(request, engine.clone(), key.clone(), FetchMode::Whole);
    let load = ReceivedLoad::new(load, received, watched);
    let ask = Lookup {
        key: key.borrowed(),
        demand: &demand,
        select: &load,
        credentials,
        // No other request waits for this response.
        coalesce: Coalesce::Never,
    };
    let wanting = match engine.lookup(&ask) {
        LookupResult::Hit(obtained) => engine.miss_for_part(&ask, obtained),
        LookupResult::Miss(wanting) => wanting.for_part(),
    };
    let obtained = wanting.load(engine, &ask, load.clone()).await?;
    let obtained = Outcome { why: Some(Why::Method), ..obtained };
    let now = engine.clock().now();
    deliver_as_it_is(&obtained, load.own(), now).ok_or_else(|| {
        LoadError::origin("status and fields of the loaded response cannot be decoded")
    })
}

/// Boxes a request body for the origin client.
pub(crate) fn request_body<B>(body: B) -> RequestBody
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    body.map_err(Into::into).boxed_unsync()
}
