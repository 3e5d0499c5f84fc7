//! The future of a call: a hit, or all else in a box.
//!
//! It is written by hand so that a hit is a few words on the stack of whoever polls it, and may
//! become a part of that, in whatever pieces a program is compiled. What an `async fn` makes of the
//! same lines is left a function of its own as often as not, and a hit is then half as long again.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

use crate::cache::Cache;
use crate::call::Found;

/// A call for one key that has not ended.
pub(crate) struct GetFuture<'a, V, K, H, M, R> {
    cache: &'a Cache<V>,
    /// Nothing once a get_fresh has been taken.
    asked: Option<(K, H, M)>,
    /// What a get_fresh did not find.
    missed: Option<BoxFuture<'a, R>>,
}

/// Nothing in it is pinned but what is in a box.
impl<V, K, H, M, R> Unpin for GetFuture<'_, V, K, H, M, R> {}

impl<'a, V, K, H, M, R> GetFuture<'a, V, K, H, M, R>
where
    V: Send + Sync + 'static,
    K: AsRef<str>,
    H: FnOnce(Found<V>) -> R,
    M: FnOnce(String) -> BoxFuture<'a, R>,
{
    /// For what was found at a get_fresh there is `hit`, and `miss` for a key of which nothing was.
    #[inline]
    pub(crate) fn new(cache: &'a Cache<V>, key: K, (hit, miss): (H, M)) -> Self {
        Self { cache, asked: Some((key, hit, miss)), missed: None }
    }

    #[cold]
    fn poll_missed(&mut self, cx: &mut Context<'_>) -> Poll<R> {
        let missed = self.missed.as_mut().expect("a call that has ended is not polled");
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
        if let Some((key, hit, miss)) = self.asked.take() {
            let shared = &self.cache.shared;
            if let Some(found) = shared.get_fresh(key.as_ref(), &shared.demand) {
                return Poll::Ready(hit(found));
            }
            self.missed = Some(miss(key.as_ref().to_owned()));
        }
        self.poll_missed(cx)
    }
}
