//! Threads for blocking reads, so that no request's thread waits for the disk.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::error::Refusal;

/// Number of threads: enough to keep a fast disk busy.
const THREADS: usize = 4;

/// Maximum number of queued reads. Beyond it the origin answers sooner than the disk.
const JOBS_MAX: usize = 1_024;

type Job = Box<dyn FnOnce() + Send>;

/// The thread pool. Clones share it.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Jobs>);

struct Jobs {
    waiting: Mutex<Waiting>,
    ready: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

impl Pool {
    pub(crate) fn start() -> io::Result<Self> {
        let pool = Self(Arc::new(Jobs { waiting: Mutex::default(), ready: Condvar::new() }));
        for number in 0..THREADS {
            let jobs = pool.0.clone();
            let name = format!("disk-read-{number}");
            let started = thread::Builder::new().name(name).spawn(move || jobs.work());
            if let Err(error) = started {
                pool.close();
                return Err(error);
            }
        }
        Ok(pool)
    }

    /// Runs a job on a thread. It is skipped if its caller gives up before it starts.
    ///
    /// # Errors
    /// [`Refusal`] if the queue is full, the pool is closed, or the job panics.
    pub(crate) async fn run<T, F>(&self, job: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        let job = Box::new(move || {
            if !reply.is_closed() {
                // The caller may be gone.
                let _ = reply.send(job());
            }
        });
        self.0.push(job)?;
        result.await.map_err(|_| Refusal::Stopped)
    }

    /// Ends the threads after the queued jobs.
    pub(crate) fn close(&self) {
        self.0.waiting.lock().is_closed = true;
        self.0.ready.notify_all();
    }
}

impl Jobs {
    fn push(&self, job: Job) -> Result<(), Refusal> {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return Err(Refusal::Stopped);
        }
        if waiting.jobs.len() >= JOBS_MAX {
            return Err(Refusal::TooManyReads);
        }
        waiting.jobs.push_back(job);
        drop(waiting);
        self.ready.notify_one();
        Ok(())
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            // The caller receives an error; the thread continues.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    fn next(&self) -> Option<Job> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                return Some(job);
            }
            if waiting.is_closed {
                return None;
            }
            self.ready.wait(&mut waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_fails_its_caller_only_and_closed_pool_refuses() {
        let pool = Pool::start().unwrap();
        for _ in 0..2 * THREADS {
            let panicked = pool.run(|| panic!("a job that panics")).await;
            assert!(matches!(panicked, Err::<(), _>(Refusal::Stopped)));
        }
        assert_eq!(pool.run(|| 7).await.ok(), Some(7));
        pool.close();
        assert!(matches!(pool.run(|| 7).await, Err(Refusal::Stopped)));
    }
}
