//! The future of a call for one key: it answers a fresh hit inline, and boxes everything else.
//!
//! The future is written by hand so that the compiler can inline a hit into the polling code in
//! every build: the state machine of an equivalent `async fn` often stays a separate function, and
//! a hit then takes half as many instructions again.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

use crate::cache::Cache;
use crate::cache::shared::Found;

/// A pending call for one key.
pub(crate) struct GetFuture<'a, V, K, H, M, R> {
    cache: &'a Cache<V>,
    /// `None` once memory was asked for a fresh entry.
    request: Option<Request<K, H, M>>,
    /// The rest of the call, if memory had no fresh entry.
    missed: Option<BoxFuture<'a, R>>,
}

/// A key, with the closures that turn a hit or a miss into the call's result.
struct Request<K, H, M> {
    key: K,
    hit: H,
    miss: M,
}

/// No field is structurally pinned: the inner future is boxed.
impl<V, K, H, M, R> Unpin for GetFuture<'_, V, K, H, M, R> {}

impl<'a, V, K, H, M, R> GetFuture<'a, V, K, H, M, R>
where
    V: Send + Sync + 'static,
    K: AsRef<str>,
    H: FnOnce(Found<V>) -> R,
    M: FnOnce(String) -> BoxFuture<'a, R>,
{
    /// Creates a call for `key`: `hit` converts a fresh value, `miss` starts the rest of the call.
    #[inline]
    pub(crate) fn new(cache: &'a Cache<V>, key: K, hit: H, miss: M) -> Self {
        Self { cache, request: Some(Request { key, hit, miss }), missed: None }
    }

    #[cold]
    fn poll_missed(&mut self, cx: &mut Context<'_>) -> Poll<R> {
        let missed = self.missed.as_mut().expect("a completed call is not polled again");
        missed.as_mut().poll(cx)
    }
}

impl<'a, V, K, H, M, R> Future for GetFuture<'a, V, K, H, M, R>
where
    V: Send + Sync + 'static,
    K: AsRef<str>,
    H: FnOnce(Found<V>) -> R,
    M: FnOnce(String) -> BoxFuture<'a, R>,
{
    type Output = R;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        if let Some(Request { key, hit, miss }) = self.request.take() {
            let shared = &self.cache.shared;
            if let Some(found) = shared.get_fresh(key.as_ref(), &shared.demand) {
                return Poll::Ready(hit(found));
            }
            self.missed = Some(miss(key.as_ref().to_owned()));
        }
        self.poll_missed(cx)
    }
}
