//! Queue of log lines and the thread that writes them, so that a slow disk or pipe delays no request.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::destination::Destination;
use crate::output::describe;

/// Maximum number of bytes of lines that wait. Above it, lines are dropped and counted.
const BYTES_MAX: usize = 4 << 20;

/// Maximum number of destinations that wait. Above it, the newest one is replaced.
const DESTINATIONS_MAX: usize = 16;

/// Number of bytes that wait from which on the thread writes without a pause.
const BATCH: usize = 512 << 10;

/// Number of bytes that are written at once, and the rest of a line.
const PIECE: usize = 64 << 10;

/// Pause between writes, so that a busy log is written in few large pieces. A line that comes to an
/// idle queue does not wait for it.
const PAUSE: Duration = Duration::from_millis(5);

/// Maximum time to write the lines that wait when the process exits.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Minimum interval between warnings about lines that cannot be written.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Queue of the lines of one log. The thread that writes ends with its last clone.
#[derive(Clone)]
pub(crate) struct LogQueue(Arc<Sender>);

struct Sender(Arc<Shared>);

#[derive(Default)]
struct Shared {
    dropped: AtomicU64,
    waiting: Mutex<Waiting>,
    /// Notified when a part comes to an idle thread, and when a pause must end.
    changed: Condvar,
}

/// Parts that wait for the thread.
#[derive(Default)]
struct Waiting {
    parts: VecDeque<Part>,
    /// Bytes and destinations in `parts`.
    bytes: usize,
    destinations: usize,
    /// True while the thread waits for a part.
    is_idle: bool,
    /// True if the thread must not pause.
    is_urgent: bool,
    is_closed: bool,
    /// Buffer that has been written, for further lines.
    spare: Vec<u8>,
}

enum Part {
    Lines(Vec<u8>),
    /// Destination of the lines that follow.
    Redirect(Destination),
    Flush(SyncSender<()>),
}

impl LogQueue {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(destination: Destination) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let writer = Writer { shared: shared.clone(), destination, warned: None };
        std::thread::Builder::new().name("forebay-log".to_owned()).spawn(move || writer.run())?;
        Ok(Self(Arc::new(Sender(shared))))
    }

    fn shared(&self) -> &Shared {
        &self.0.0
    }

    /// Number of lines that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared().dropped.load(Ordering::Relaxed)
    }

    /// Replaces the destination for lines that are added from now on. Lines that wait go to the
    /// previous destination.
    pub(crate) fn redirect(&self, destination: Destination) {
        let mut waiting = self.shared().waiting.lock();
        let is_full = waiting.destinations >= DESTINATIONS_MAX;
        let newest = waiting.parts.iter_mut().rev().find_map(|part| match part {
            Part::Redirect(waiting) => Some(waiting),
            Part::Lines(_) | Part::Flush(_) => None,
        });
        match newest {
            Some(newest) if is_full => *newest = destination,
            _ => {
                waiting.destinations += 1;
                waiting.parts.push_back(Part::Redirect(destination));
                self.shared().wake(&mut waiting, false);
            }
        }
    }

    /// Waits until all lines so far are written, for a second at most.
    pub(crate) fn flush(&self) {
        let (done, flushed) = sync_channel(1);
        {
            let mut waiting = self.shared().waiting.lock();
            waiting.parts.push_back(Part::Flush(done));
            self.shared().wake(&mut waiting, true);
        }
        let _ = flushed.recv_timeout(FLUSH_MAX);
    }
}

impl Write for &LogQueue {
    /// Adds a line. The formatter writes each line at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let shared = self.shared();
        let mut waiting = shared.waiting.lock();
        if waiting.bytes + line.len() > BYTES_MAX {
            drop(waiting);
            shared.dropped.fetch_add(1, Ordering::Relaxed);
            return Ok(line.len());
        }
        waiting.add(line);
        let is_urgent = waiting.bytes >= BATCH;
        shared.wake(&mut waiting, is_urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock();
        waiting.is_closed = true;
        self.0.wake(&mut waiting, true);
    }
}

impl Waiting {
    fn add(&mut self, line: &[u8]) {
        self.bytes += line.len();
        if let Some(Part::Lines(lines)) = self.parts.back_mut() {
            return lines.extend_from_slice(line);
        }
        let mut lines = std::mem::take(&mut self.spare);
        lines.extend_from_slice(line);
        self.parts.push_back(Part::Lines(lines));
    }
}

impl Shared {
    /// Wakes the thread if it waits for a part, or pauses although it must not.
    fn wake(&self, waiting: &mut Waiting, is_urgent: bool) {
        let ends_pause = is_urgent && !waiting.is_urgent;
        waiting.is_urgent |= is_urgent;
        if waiting.is_idle || ends_pause {
            waiting.is_idle = false;
            self.changed.notify_one();
        }
    }

    /// Waits for parts, and takes all of them. `None` after the end of the queue.
    fn take(&self) -> Option<VecDeque<Part>> {
        let mut waiting = self.waiting.lock();
        if !waiting.is_urgent {
            self.changed.wait_for(&mut waiting, PAUSE);
        }
        while waiting.parts.is_empty() {
            if waiting.is_closed {
                return None;
            }
            waiting.is_idle = true;
            self.changed.wait(&mut waiting);
        }
        (waiting.is_idle, waiting.is_urgent) = (false, waiting.is_closed);
        (waiting.bytes, waiting.destinations) = (0, 0);
        Some(std::mem::take(&mut waiting.parts))
    }
}

/// State of the thread that writes.
struct Writer {
    shared: Arc<Shared>,
    destination: Destination,
    warned: Option<Instant>,
}

impl Writer {
    fn run(mut self) {
        while let Some(parts) = self.shared.take() {
            for part in parts {
                match part {
                    Part::Lines(lines) => self.write(lines),
                    Part::Redirect(destination) => self.destination = destination,
                    Part::Flush(done) => _ = done.try_send(()),
                }
            }
        }
    }

    fn write(&mut self, mut lines: Vec<u8>) {
        let mut rest = &lines[..];
        while !rest.is_empty() {
            // A file that is renamed when it is large is checked after each piece.
            let least = rest.len().min(PIECE);
            let end = rest[least..].iter().position(|byte| *byte == b'\n');
            let (piece, further) = rest.split_at(end.map_or(rest.len(), |end| least + end + 1));
            self.write_piece(piece);
            rest = further;
        }
        lines.clear();
        self.shared.waiting.lock().spare = lines;
    }

    fn write_piece(&mut self, piece: &[u8]) {
        if let Err(error) = self.destination.write_all(piece) {
            let lines = piece.iter().filter(|byte| **byte == b'\n').count();
            self.shared.dropped.fetch_add(lines as u64, Ordering::Relaxed);
            if self.warned.is_none_or(|warned| warned.elapsed() >= WARNING_INTERVAL) {
                self.warned = Some(Instant::now());
                tracing::error!(%error, lines, "access log lines dropped, because they cannot be \
                    written; `lines` is their number in this write, forebay_log_dropped_total has \
                    the total, and this message appears at most once a minute");
            }
        }
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
    use std::io::Read as _;
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
        let (writing, mut reading) = UnixStream::pair().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writing));
        let queue = LogQueue::start(Destination::of_file(file)).unwrap();
        // More than a socket buffer holds. Once the first byte has come, the thread has taken this
        // and waits for the socket, so that it takes none of the lines that follow.
        (&mut &queue).write_all("x".repeat(BYTES_MAX / 2).as_bytes()).unwrap();
        reading.read_exact(&mut [0]).unwrap();
        let line = [&[b'x'; 1 << 10][..], b"\n"].concat();
        for _ in 0..=BYTES_MAX / line.len() {
            (&mut &queue).write_all(&line).unwrap();
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
        assert_eq!(queue.shared().waiting.lock().destinations, DESTINATIONS_MAX);
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
