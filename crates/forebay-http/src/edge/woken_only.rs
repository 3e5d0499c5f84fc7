//! Future that is polled only after it was woken itself.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Future in a task that is often woken for other reasons, which then costs no poll of it. A poll of
/// the stop signal takes a lock that the connections of all workers share.
pub(super) struct WokenOnly<F> {
    future: Pin<Box<F>>,
    wake_up: Arc<WakeUp>,
    /// Waker for the future: it sets `wake_up`.
    own: Waker,
    /// Waker of the task at the last poll.
    task: Option<Waker>,
}

#[derive(Default)]
struct WakeUp {
    is_due: AtomicBool,
    task: AtomicWaker,
}

impl Wake for WakeUp {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_due.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl<F> WokenOnly<F> {
    pub(super) fn new(future: F) -> Self {
        let wake_up = Arc::new(WakeUp { is_due: AtomicBool::new(true), ..WakeUp::default() });
        let own = Waker::from(wake_up.clone());
        Self { future: Box::pin(future), wake_up, own, task: None }
    }
}

impl<F: Future> Future for WokenOnly<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        if !this.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            this.task = Some(cx.waker().clone());
            this.wake_up.task.register(cx.waker());
        }
        if !this.wake_up.is_due.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // The wake-up has taken the waker of the task.
        this.wake_up.task.register(cx.waker());
        this.wake_up.is_due.store(false, Ordering::Release);
        this.future.as_mut().poll(&mut Context::from_waker(&this.own))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_future_is_polled_when_it_was_woken_and_only_then() {
        let (polls, first, second) = (AtomicUsize::new(0), Notify::new(), Notify::new());
        let mut inner = Box::pin(async {
            first.notified().await;
            second.notified().await;
        });
        let mut future = WokenOnly::new(poll_fn(|cx| {
            polls.fetch_add(1, Ordering::Relaxed);
            inner.as_mut().poll(cx)
        }));
        let mut poll = async || poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx))).await;
        for _ in 0..3 {
            assert!(poll().await.is_pending());
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        first.notify_one();
        for _ in 0..3 {
            assert!(poll().await.is_pending());
        }
        assert_eq!(polls.load(Ordering::Relaxed), 2);
        second.notify_one();
        assert!(poll().await.is_ready());
    }

    #[tokio::test]
    async fn a_woken_future_wakes_its_task() {
        let (started, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begun, ended) = (started.clone(), end.clone());
        let task = tokio::spawn(WokenOnly::new(async move {
            begun.notify_one();
            ended.notified().await;
            tokio::task::yield_now().await;
        }));
        started.notified().await;
        tokio::task::yield_now().await;
        end.notify_one();
        task.await.unwrap();
    }
}
