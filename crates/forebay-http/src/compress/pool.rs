//! Threads that make derived forms, and their queue.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread;

use parking_lot::{Condvar, Mutex};

use super::job::FormJob;
use crate::metrics::CompressionQueue;

/// Maximum number of queued jobs: a second of work for one thread with bodies of 100 KB. Beyond it
/// clients get the unencoded response.
const JOBS_MAX: usize = 256;

/// Part of the worker threads, as a divisor, that may compress at the same time.
const WORKERS_PER_THREAD: usize = 4;

/// Number by which the nice value of the threads is above that of the process. While requests use a core
/// in full, such a thread gets about a tenth of it.
#[cfg(target_os = "linux")]
const NICE_ADDED: i32 = 10;

/// Largest nice value.
#[cfg(target_os = "linux")]
const NICE_MAX: i32 = 19;

/// Threads that make derived forms. They start with the first job, and end after it was dropped.
pub(crate) struct CompressPool {
    threads: usize,
    jobs: Arc<Jobs>,
    started: OnceLock<()>,
}

struct Jobs {
    waiting: Mutex<Waiting>,
    ready: Condvar,
    length: CompressionQueue,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<FormJob>,
    is_closed: bool,
}

impl CompressPool {
    /// Creates the pool of a process with `workers` threads that answer requests.
    pub(crate) fn new(workers: usize, length: CompressionQueue) -> Self {
        let jobs = Jobs { waiting: Mutex::default(), ready: Condvar::new(), length };
        let threads = (workers / WORKERS_PER_THREAD).max(1);
        Self { threads, jobs: Arc::new(jobs), started: OnceLock::new() }
    }

    /// Queues a job, or refuses it if the queue is full.
    pub(crate) fn submit(&self, job: FormJob) {
        self.started.get_or_init(|| self.start());
        self.jobs.push(job);
    }

    fn start(&self) {
        for number in 0..self.threads {
            let jobs = self.jobs.clone();
            let name = format!("compress-{number}");
            let started = thread::Builder::new().name(name).spawn(move || {
                if let Err(error) = lower_priority() {
                    tracing::info!(
                        cause = %error,
                        "priority of a compression thread not lowered (setpriority): it competes with \
                         requests; allow the system call"
                    );
                }
                jobs.work();
            });
            if let Err(error) = started {
                self.report(number, &error);
                break;
            }
        }
    }

    #[cold]
    fn report(&self, started: usize, error: &io::Error) {
        if started == 0 {
            self.jobs.close();
        }
        tracing::error!(
            started,
            expected = self.threads,
            cause = %error,
            "threads for compression not started: with `started` = 0, clients get unencoded responses; \
             raise the limit on threads of the process, then restart forebay"
        );
    }
}

impl Drop for CompressPool {
    fn drop(&mut self) {
        self.jobs.close();
    }
}

impl fmt::Debug for CompressPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompressPool({} threads)", self.threads)
    }
}

/// Raises the nice value of this thread, so that the threads that answer requests get most of a core that
/// both need. Other systems than Linux would change that of the whole process.
fn lower_priority() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let own = rustix::process::getpriority_process(None)?;
        rustix::process::setpriority_process(None, own.saturating_add(NICE_ADDED).min(NICE_MAX))?;
    }
    Ok(())
}

impl Jobs {
    fn push(&self, job: FormJob) {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed || waiting.jobs.len() >= JOBS_MAX {
            drop(waiting);
            return job.refuse();
        }
        waiting.jobs.push_back(job);
        self.length.set(waiting.jobs.len());
        drop(waiting);
        self.ready.notify_one();
    }

    fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        waiting.jobs.clear();
        self.ready.notify_all();
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            let counts = job.counts().clone();
            if catch_unwind(AssertUnwindSafe(|| job.run())).is_err() {
                counts.failed();
            }
        }
    }

    fn next(&self) -> Option<FormJob> {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.is_closed {
                return None;
            }
            if let Some(job) = waiting.jobs.pop_front() {
                self.length.set(waiting.jobs.len());
                return Some(job);
            }
            self.ready.wait(&mut waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use forebay_core::{KeyBuf, Lifetime, Meta, Timestamp};
    use forebay_engine::{Body, DerivedForms, Engine, Entry, Head, Limits, SystemClock};
    use forebay_semantics::coding::Coding;

    use super::*;
    use crate::metrics::{Metrics, MetricsFormat};
    use crate::request_guard::GuardCounters;

    #[test]
    fn a_full_queue_refuses_jobs_and_a_later_hit_tries_again() {
        let metrics = Arc::new(Metrics::new());
        let engine = Engine::new(Limits::of(1 << 20), Arc::new(SystemClock), metrics.clone());
        let pool = CompressPool::new(1, metrics.compression_queue());
        // No thread takes a job.
        pool.started.get_or_init(|| ());
        let meta = || Meta::new(Timestamp::default(), Lifetime::fresh(Duration::from_secs(60)));
        let entry = || {
            let head = Head::of_slice(b"head").with_forms(DerivedForms::default());
            Entry::new(meta(), head, Body::whole(Bytes::from_static(b"body")))
        };
        let wants = |entry: &Entry| {
            let forms: &DerivedForms = entry.head.view().expect("forms");
            forms.requests().note(Coding::Gzip.index())
        };
        let mut key = KeyBuf::new("site");
        key.part(b"path");
        let mut last = entry();
        for _ in 0..=JOBS_MAX {
            last = entry();
            assert_eq!([wants(&last), wants(&last), wants(&last)], [false, true, false]);
            let counts = metrics.compressions("shop", Coding::Gzip);
            let job = FormJob::new(&engine, key.borrowed(), &(), &last, Coding::Gzip, counts);
            pool.submit(job.expect("an entry with forms"));
        }
        assert!(wants(&last), "the refused form is wanted again");
        let (guard, format) = (GuardCounters::default(), MetricsFormat::Prometheus);
        let text = metrics.render(&engine, &guard, std::iter::empty(), std::iter::empty(), format);
        for line in [
            "forebay_compressions_total{site=\"shop\",coding=\"gzip\",result=\"busy\"} 1",
            "forebay_compress_queue 256",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}");
        }
    }

    #[test]
    fn a_quarter_of_the_workers_compress_and_one_thread_at_least() {
        for (workers, expected) in [(1, 1), (4, 1), (7, 1), (8, 2), (64, 16)] {
            let pool = CompressPool::new(workers, Metrics::new().compression_queue());
            assert_eq!(pool.threads, expected, "{workers}");
        }
    }
}
