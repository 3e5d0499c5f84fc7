//! Read-only connections, one for each runtime that reads.
//!
//! A hit is one small command whose main cost is waking threads. A driver on another thread would
//! be woken by each caller and wake it in turn. Reads therefore have a connection that is driven on
//! the caller's runtime. Its driver lets all runnable tasks add their commands, sends them
//! together, and wakes callers whose replies arrived together.
//!
//! The first read of a runtime opens its connection in the background. Until then, and whenever it
//! fails, the main connection is used, so a failure costs no reply. A read-only connection leads to
//! the same server as the main connection and ends with it.

mod queue;
mod replies;
mod stream;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::{RedisConnectionInfo, cmd};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::runtime::{Handle, Id};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{Instant, Sleep, sleep, timeout};

pub(crate) use queue::{NoReply, PendingReply};
use queue::{Phase, Queue};
pub(crate) use replies::Reply;
use replies::{Malformed, Replies};
pub(crate) use stream::{Peer, Stream};

use crate::connection::{CONNECT_MAX, SILENCE_MAX};
use crate::counts::{Counters, count};

/// Maximum number of read-only connections to one server: one per core and some more. Other
/// runtimes use the main connection.
const READ_CONNECTIONS_MAX: usize = 256;

/// Pause before a broken connection is opened again.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// Settings for opening a read-only connection.
pub(crate) struct ServerAddress {
    pub(crate) peer: Peer,
    /// User, password and database.
    pub(crate) login: RedisConnectionInfo,
    /// Timeout of a read.
    pub(crate) wait_max: Duration,
    pub(crate) counters: Arc<Counters>,
}

/// All read-only connections to one server.
pub(crate) struct ReadConnections {
    address: Arc<ServerAddress>,
    all: ArcSwap<Vec<(Id, Arc<Queue>)>>,
    /// Held while the list is changed.
    changing: Mutex<()>,
    /// Driver of the main connection.
    driver: AbortHandle,
}

impl ReadConnections {
    pub(crate) fn new(address: ServerAddress, driver: AbortHandle) -> Self {
        let (all, changing) = (ArcSwap::default(), Mutex::default());
        Self { address: Arc::new(address), all, changing, driver }
    }

    /// Requests up to `bytes_max` bytes of a value. `None` if this runtime has no open connection.
    pub(crate) fn start_read(&self, name: &str, bytes_max: u64) -> Option<PendingReply> {
        let runtime = Handle::try_current().ok()?;
        let all = self.all.load();
        let own = all.iter().find(|(id, _)| *id == runtime.id()).map(|(_, queue)| queue);
        if let Some(queue) = own.filter(|queue| queue.bytes_max() == bytes_max)
            && let Some(waiting) = queue.start_read(name)
        {
            return Some(waiting);
        }
        if own.is_none_or(|queue| may_reopen(queue.phase())) {
            self.begin(&runtime, bytes_max);
        }
        None
    }

    fn begin(&self, runtime: &Handle, bytes_max: u64) {
        let _changing = self.changing.lock();
        let all = self.all.load();
        // Another thread may have added it. Connections that cannot be reopened are removed.
        let is_kept = |queue: &Queue| match queue.phase() {
            Phase::Opening | Phase::Open => true,
            Phase::Closed(_) => false,
        };
        let kept = all.iter().filter(|(id, queue)| *id != runtime.id() && is_kept(queue));
        let mut kept: Vec<_> = kept.cloned().collect();
        let own = all.iter().find(|(id, _)| *id == runtime.id());
        let has_own = own.is_some_and(|(_, queue)| !may_reopen(queue.phase()));
        if has_own || kept.len() >= READ_CONNECTIONS_MAX {
            return;
        }
        let queue = Arc::new(Queue::new(self.address.wait_max, bytes_max));
        kept.push((runtime.id(), queue.clone()));
        self.all.store(Arc::new(kept));
        runtime.spawn(run(self.address.clone(), queue));
    }
}

/// Closes the main connection and all read-only ones to its server.
impl Drop for ReadConnections {
    fn drop(&mut self) {
        self.driver.abort();
        self.all.load().iter().for_each(|(_, queue)| queue.close(None));
    }
}

fn may_reopen(phase: Phase) -> bool {
    matches!(phase, Phase::Closed(Some(again)) if again <= Instant::now())
}

/// Opens a connection and drives it until it fails.
async fn run(address: Arc<ServerAddress>, queue: Arc<Queue>) {
    // If the runtime ends or the task panics, the connection is not reopened.
    let mut closing = CloseOnDrop { queue, again: None };
    let opened = timeout(CONNECT_MAX, open(&address, closing.queue.bytes_max())).await;
    if let Ok(Ok((stream, replies))) = opened {
        count(&address.counters.read_connections);
        closing.queue.open();
        Driver::new(stream, replies, closing.queue.clone()).drive().await;
    }
    closing.again = Some(Instant::now() + REOPEN_PAUSE);
}

/// Closes the queue when the driver ends, so that no caller waits any longer.
struct CloseOnDrop {
    queue: Arc<Queue>,
    again: Option<Instant>,
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.queue.close(self.again);
    }
}

/// Authenticates, selects the database, and waits for the replies.
async fn open(address: &ServerAddress, bytes_max: u64) -> io::Result<(Stream, Replies)> {
    let mut stream = address.peer.connect().await?;
    let mut commands = Vec::new();
    if let Some(password) = address.login.password() {
        let mut auth = cmd("AUTH");
        auth.arg(address.login.username()).arg(password);
        commands.push(auth);
    }
    if address.login.db() != 0 {
        commands.push(cmd("SELECT").arg(address.login.db()).clone());
    }
    commands.push(cmd("PING"));
    let packed: Vec<u8> = commands.iter().flat_map(redis::Cmd::get_packed_command).collect();
    stream.write_all(&packed).await?;
    let mut replies = Replies::new(bytes_max);
    for _ in commands {
        match next(&mut stream, &mut replies).await? {
            Reply::Done => {}
            Reply::Refused(error) => return Err(io::Error::other(error)),
            Reply::Value(_) | Reply::Nothing => return Err(malformed(Malformed)),
        }
    }
    Ok((stream, replies))
}

async fn next(stream: &mut Stream, replies: &mut Replies) -> io::Result<Reply> {
    loop {
        if let Some(reply) = replies.next().map_err(malformed)? {
            return Ok(reply);
        }
        let count = stream.read(replies.free_space()).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        replies.received(count);
    }
}

fn malformed(_: Malformed) -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Sends requests and delivers replies.
struct Driver {
    stream: Stream,
    replies: Replies,
    queue: Arc<Queue>,
    sending: Vec<u8>,
    sent: usize,
    /// Replies that arrived together.
    answers: Vec<Reply>,
    /// Time of the last received bytes.
    last_received: Instant,
    /// Timer of the next timeout, armed while a caller waits.
    alarm: Pin<Box<Sleep>>,
    is_armed: bool,
}

impl Driver {
    fn new(stream: Stream, replies: Replies, queue: Arc<Queue>) -> Self {
        let (sending, answers, last_received) = (Vec::new(), Vec::new(), Instant::now());
        let alarm = Box::pin(sleep(Duration::ZERO));
        let (sent, is_armed) = (0, false);
        Self { stream, replies, queue, sending, sent, answers, last_received, alarm, is_armed }
    }

    /// Runs until the connection fails or is silent for too long.
    async fn drive(mut self) {
        while poll_fn(|task| self.poll(task)).await.is_ok() {
            // Runnable tasks add their commands first, so that one write sends them all.
            yield_now().await;
            self.queue.take_unsent(&mut self.sending);
            if !self.is_armed {
                self.arm(Instant::now());
            }
        }
    }

    /// Resolves when there are requests to send, or the connection failed.
    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<(), NoReply>> {
        let broken = |_| NoReply::Broken;
        if let Poll::Ready(Err(error)) = self.poll_send(task) {
            return Poll::Ready(Err(broken(error)));
        }
        while let Poll::Ready(count) = self.poll_receive(task) {
            let count = count.map_err(broken)?;
            self.deliver(count).map_err(|_| NoReply::Broken)?;
        }
        while self.is_armed && self.alarm.as_mut().poll(task).is_ready() {
            let now = Instant::now();
            self.arm(now);
            if self.is_armed && self.alarm.deadline() <= now {
                return Poll::Ready(Err(NoReply::Broken));
            }
        }
        self.queue.poll_unsent(task)
    }

    fn poll_send(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.sending.len() {
            let rest = &self.sending[self.sent..];
            let count = ready!(Pin::new(&mut self.stream).poll_write(task, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
        }
        self.sending.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_receive(&mut self, task: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut free_space = ReadBuf::new(self.replies.free_space());
        ready!(Pin::new(&mut self.stream).poll_read(task, &mut free_space))?;
        match free_space.filled().len() {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            count => Poll::Ready(Ok(count)),
        }
    }

    fn deliver(&mut self, count: usize) -> Result<(), Malformed> {
        self.last_received = Instant::now();
        self.replies.received(count);
        while let Some(reply) = self.replies.next()? {
            self.answers.push(reply);
        }
        self.queue.answer(&mut self.answers)
    }

    /// Expires overdue requests and sets the timer for the next one, or for the end of the maximum
    /// silence.
    fn arm(&mut self, now: Instant) {
        let due = self.queue.expire(now);
        self.is_armed = due.is_some();
        let Some((next, oldest)) = due else { return };
        let silent_until = oldest.max(self.last_received) + SILENCE_MAX;
        self.alarm.as_mut().reset(next.min(silent_until));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::net::UnixStream;

    use super::*;

    const WAIT_MAX: Duration = Duration::from_millis(50);

    /// Returns a connection and the server's end of it.
    fn connection() -> (Arc<Queue>, UnixStream) {
        let (ours, server) = UnixStream::pair().unwrap();
        let queue = Arc::new(Queue::new(WAIT_MAX, 1_000));
        queue.open();
        let closing = CloseOnDrop { queue: queue.clone(), again: None };
        let driver = Driver::new(Stream::Unix(ours), Replies::new(1_000), queue.clone());
        tokio::spawn(async move {
            driver.drive().await;
            drop(closing);
        });
        (queue, server)
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_reads_are_sent_together() {
        let (queue, mut server) = connection();
        let all: Vec<_> = (0..10).map(|_| queue.start_read("name").unwrap()).collect();
        let mut buffer = vec![0; 1 << 16];
        let count = server.read(&mut buffer).await.unwrap();
        let asked = buffer[..count].windows(8).filter(|it| it == b"GETRANGE").count();
        assert_eq!(asked, 10, "in one piece");
        server.write_all(&b"$1\r\nx\r\n".repeat(10)).await.unwrap();
        for waiting in all {
            assert!(matches!(waiting.await, Ok(Reply::Value(value)) if &value[..] == b"x"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_server_is_disconnected() {
        let (queue, mut server) = connection();
        let began = Instant::now();
        assert_eq!(queue.start_read("one").unwrap().await.unwrap_err(), NoReply::TimedOut);
        assert!((WAIT_MAX..WAIT_MAX * 2).contains(&began.elapsed()), "{:?}", began.elapsed());
        // A late reply keeps the connection open.
        server.write_all(b"_\r\n").await.unwrap();
        let two = queue.start_read("two").unwrap();
        let asked = Instant::now();
        assert_eq!(two.await.unwrap_err(), NoReply::TimedOut);
        while queue.phase() == Phase::Open {
            sleep(WAIT_MAX).await;
        }
        let took = asked.elapsed();
        assert!((SILENCE_MAX..SILENCE_MAX + 2 * WAIT_MAX).contains(&took), "{took:?}");
        assert!(queue.start_read("three").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn unexpected_reply_closes_the_connection() {
        let (queue, mut server) = connection();
        let waiting = queue.start_read("one").unwrap();
        server.write_all(b"_\r\n_\r\n").await.unwrap();
        assert_eq!(waiting.await.unwrap_err(), NoReply::Broken);
        assert_eq!(queue.phase(), Phase::Closed(None));
    }

    #[tokio::test(start_paused = true)]
    async fn closed_connection_fails_pending_reads() {
        let (queue, server) = connection();
        let mut waiting = queue.start_read("one").unwrap();
        assert!((&mut waiting).now_or_never().is_none());
        drop(server);
        assert_eq!(waiting.await.unwrap_err(), NoReply::Broken);
        assert!(queue.start_read("two").is_none());
    }
}
