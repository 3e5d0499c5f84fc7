//! Baseline: the minimal server on hyper, for comparison with a hit.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use bytes::Bytes;
use http::header::{AGE, CACHE_CONTROL, CACHE_STATUS, CONTENT_TYPE, ETAG, VIA};
use http::{HeaderValue, Response};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use crate::front_end::{BODY, HEAD};
use crate::replay::Replay;
use crate::{Run, measured};

/// Case: a connection without guard, key or store. Every response has the fields and body of a hit.
pub(crate) fn connection(times: usize) -> Result<Run> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let body = Bytes::from(vec![b'x'; BODY]);
    let service = service_fn(move |_| {
        let response = answer(&body);
        async move { Ok::<_, Infallible>(response) }
    });
    let answers = Arc::new(AtomicUsize::new(0));
    let replay = Replay::new(Bytes::from_static(HEAD.as_bytes()), None, times, answers.clone());
    let mut served =
        Box::pin(http1::Builder::new().serve_connection(TokioIo::new(replay), service));
    Ok(Box::new(move || {
        let ended = measured(|| runtime.block_on(&mut served));
        if ended.is_ok() { answers.load(Ordering::Relaxed) } else { 0 }
    }))
}

fn answer(body: &Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.clone()));
    for (name, value) in [
        (CONTENT_TYPE, "application/octet-stream"),
        (CACHE_CONTROL, "max-age=3600"),
        (ETAG, "\"33a64df551425fcc\""),
        (VIA, "1.1 forebay"),
        (AGE, "1"),
        (CACHE_STATUS, "forebay; hit; ttl=3599"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
