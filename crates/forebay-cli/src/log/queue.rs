//! Queue of log lines and the thread that writes them, so that a slow disk or pipe delays no request.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::destination::Destination;
use crate::output::describe;

/// Maximum number of lines that wait. Above it, lines are dropped and counted.
const LINES_MAX: usize = 8_192;

/// Maximum number of destinations that wait. Above it, the newest one is replaced.
const DESTINATIONS_MAX: usize = 16;

/// Number of flushes that may wait; the process flushes once, at its exit.
const FLUSHES_MAX: usize = 1;

/// Number of bytes that are written at once.
const BATCH: usize = 64 << 10;

/// Maximum time to write the lines that wait when the process exits.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Pause between attempts to ask for a flush while the queue is full.
const FLUSH_PAUSE: Duration = Duration::from_millis(5);

/// Minimum interval between warnings about lines that cannot be written.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Queue of the lines of one log.
#[derive(Clone)]
pub(crate) struct LogQueue {
    items: SyncSender<Item>,
    shared: Arc<Shared>,
}

struct Shared {
    dropped: AtomicU64,
    /// Number of lines that wait.
    waiting: AtomicUsize,
    /// Destinations that wait; the queue has an [`Item::Redirect`] for each.
    destinations: Mutex<VecDeque<Destination>>,
}

enum Item {
    Line(Vec<u8>),
    /// Makes the thread use the first destination that waits.
    Redirect,
    Flush(SyncSender<()>),
}

impl LogQueue {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(destination: Destination) -> io::Result<Self> {
        let (items, queue) = sync_channel(LINES_MAX + DESTINATIONS_MAX + FLUSHES_MAX);
        let shared = Arc::new(Shared {
            dropped: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            destinations: Mutex::default(),
        });
        let writer = Writer {
            shared: shared.clone(),
            destination,
            batch: Vec::with_capacity(BATCH),
            lines: 0,
            warned: None,
        };
        std::thread::Builder::new()
            .name("forebay-log".to_owned())
            .spawn(move || writer.run(&queue))?;
        Ok(Self { items, shared })
    }

    /// Number of lines that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Replaces the destination for lines that are added from now on. Lines that wait go to the
    /// previous destination.
    pub(crate) fn redirect(&self, destination: Destination) {
        let mut waiting = self.shared.destinations.lock();
        if waiting.len() == DESTINATIONS_MAX {
            waiting.pop_back();
        } else if self.items.try_send(Item::Redirect).is_err() {
            // The thread has ended; the capacity of the queue includes all destinations.
            return;
        }
        waiting.push_back(destination);
    }

    /// Waits until all lines so far are written, for a second at most.
    pub(crate) fn flush(&self) {
        let (done, flushed) = sync_channel(1);
        let deadline = Instant::now() + FLUSH_MAX;
        while self.items.try_send(Item::Flush(done.clone())).is_err() {
            if Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(FLUSH_PAUSE);
        }
        let _ = flushed.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl Write for &LogQueue {
    /// Adds a line. The formatter writes each line at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let has_room = self.shared.waiting.fetch_add(1, Ordering::Relaxed) < LINES_MAX;
        if !has_room || self.items.try_send(Item::Line(line.to_vec())).is_err() {
            self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// State of the thread that writes.
struct Writer {
    shared: Arc<Shared>,
    destination: Destination,
    batch: Vec<u8>,
    /// Number of lines in `batch`.
    lines: u64,
    warned: Option<Instant>,
}

impl Writer {
    fn run(mut self, queue: &Receiver<Item>) {
        while let Ok(first) = queue.recv() {
            self.handle(first);
            while self.batch.len() < BATCH
                && let Ok(next) = queue.try_recv()
            {
                self.handle(next);
            }
            self.write();
        }
    }

    fn handle(&mut self, item: Item) {
        match item {
            Item::Line(line) => {
                self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
                self.batch.extend_from_slice(&line);
                self.lines += 1;
            }
            Item::Redirect => {
                self.write();
                if let Some(next) = self.shared.destinations.lock().pop_front() {
                    self.destination = next;
                }
            }
            Item::Flush(done) => {
                self.write();
                let _ = done.try_send(());
            }
        }
    }

    fn write(&mut self) {
        if self.lines == 0 {
            return;
        }
        if let Err(error) = self.destination.write_all(&self.batch) {
            self.shared.dropped.fetch_add(self.lines, Ordering::Relaxed);
            if self.warned.is_none_or(|warned| warned.elapsed() >= WARNING_INTERVAL) {
                self.warned = Some(Instant::now());
                tracing::error!(%error, lines = self.lines, "access log lines dropped, because they \
                    cannot be written; `lines` is their number in this write, \
                    forebay_log_dropped_total has the total, and this message appears at most once \
                    a minute");
            }
        }
        self.batch.clear();
        self.lines = 0;
        if let Err(error) = self.destination.rotate_if_large() {
            tracing::error!(
                "log file not rotated, its lines go to the same file until it has grown by \
                `access.rotate_size` again: {}",
                describe(&error)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use super::*;
    use crate::config::resolved::Rotation;

    const NEVER: Rotation = Rotation { size: 0, keep: 1 };

    fn open(path: &Path) -> Destination {
        Destination::open(Some(path), NEVER).unwrap()
    }

    /// Queue that writes to a file of this name.
    fn queue_to(path: &Path) -> LogQueue {
        LogQueue::start(open(path)).unwrap()
    }

    #[test]
    fn a_renamed_file_is_complete_and_a_new_one_follows() {
        const LINES: usize = 2_000;
        let folder = tempfile::tempdir().unwrap();
        let (current, old) = (folder.path().join("log"), folder.path().join("log.1"));
        let queue = queue_to(&current);
        for number in 0..LINES {
            if number == LINES / 2 {
                std::fs::rename(&current, &old).unwrap();
                queue.redirect(open(&current));
            }
            writeln!(&mut &queue, "{number}").unwrap();
        }
        queue.flush();
        let text = [&old, &current].map(|path| std::fs::read_to_string(path).unwrap());
        let half = |lines: std::ops::Range<usize>| lines.map(|n| format!("{n}\n")).collect();
        let expected: [String; 2] = [half(0..LINES / 2), half(LINES / 2..LINES)];
        assert_eq!((queue.dropped(), text), (0, expected));
    }

    /// Queue whose lines nothing reads, with the other end; the thread waits, and the queue is full.
    fn full_queue() -> (LogQueue, UnixStream) {
        let (writing, reading) = UnixStream::pair().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writing));
        let queue = LogQueue::start(Destination::of_file(file)).unwrap();
        let line = [b'x'; 128];
        for _ in 0..LINES_MAX * 3 {
            (&mut &queue).write_all(&line).unwrap();
            if queue.dropped() > 0 {
                break;
            }
        }
        (queue, reading)
    }

    #[test]
    fn lines_above_the_bound_are_dropped_and_counted() {
        let (queue, reading) = full_queue();
        assert!(queue.dropped() > 0);
        drop(reading);
    }

    #[test]
    fn lines_that_wait_go_to_the_previous_destination() {
        let folder = tempfile::tempdir().unwrap();
        let file = |number: usize| folder.path().join(number.to_string());
        let (queue, reading) = full_queue();
        // More than may wait: the newest one is replaced.
        for number in 0..DESTINATIONS_MAX + 2 {
            queue.redirect(open(&file(number)));
        }
        assert_eq!(queue.shared.destinations.lock().len(), DESTINATIONS_MAX);
        // The thread continues, and cannot write the lines that wait.
        let dropped = queue.dropped();
        drop(reading);
        queue.flush();
        assert!(queue.dropped() > dropped);
        (&mut &queue).write_all(b"line\n").unwrap();
        queue.flush();
        for number in 0..DESTINATIONS_MAX + 2 {
            let expected = if number == DESTINATIONS_MAX + 1 { "line\n" } else { "" };
            assert_eq!(std::fs::read_to_string(file(number)).unwrap(), expected, "{number}");
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let queue = LogQueue::start(Destination::of_file(full)).unwrap();
        (&mut &queue).write_all(b"line\n").unwrap();
        queue.flush();
        assert_eq!(queue.dropped(), 1);
    }
}
