//! Load that its caller drives.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot;

use crate::runtime::sync::spawn;

/// Future of a load, and of its result for the caller that leads. Dropping it ends the load.
pub(super) struct DrivenLoad<R, T> {
    /// `None` once the load has ended.
    running: Option<Pin<Box<R>>>,
    result: oneshot::Receiver<T>,
}

impl<R: Future<Output = ()> + Send + 'static, T> DrivenLoad<R, T> {
    pub(super) fn new(running: R, result: oneshot::Receiver<T>) -> Self {
        Self { running: Some(Box::pin(running)), result }
    }

    /// Lets a load that has not ended continue in a task of its own.
    pub(super) fn continue_alone(self) {
        if let Some(running) = self.running {
            spawn(running);
        }
    }
}

impl<R: Future<Output = ()>, T> Future for DrivenLoad<R, T> {
    type Output = Result<T, oneshot::error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(running) = &mut this.running
            && running.as_mut().poll(cx).is_ready()
        {
            this.running = None;
        }
        // The load alone sends the result, and it has just been polled.
        Pin::new(&mut this.result).poll(&mut Context::from_waker(Waker::noop()))
    }
}
