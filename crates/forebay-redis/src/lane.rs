//! Connections that are only read over: one for each runtime that reads.
//!
//! A hit is one small command, and what it costs is being woken: a driver on another thread wakes
//! who asks and is woken by them, for a few commands at a time. So readings have a connection that
//! is driven where they are asked. Its driver lets everybody ask who is awake, sends it all at
//! once, and wakes together whose answers have come together.
//!
//! A lane is opened by the first reading of a runtime, behind its back. Whatever a lane cannot do,
//! the connection for everything else does: a lane that breaks costs nobody an answer. It leads to
//! the very server that the other connection leads to, and ends with it.

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

pub(crate) use queue::{Lost, Waiting};
use queue::{Queue, Standing};
pub(crate) use replies::Reply;
use replies::{Malformed, Replies};
pub(crate) use stream::{Peer, Stream};

use crate::counts::{Counters, count};
use crate::target::CONNECT_MAX;
use crate::watch::SILENCE_MAX;

/// How many runtimes have a lane of their own to one server. A process has a thread for each core
/// and a few more; runtimes beyond that share the connection for everything else.
const LANES_MAX: usize = 256;

/// How long after a lane has broken another one is tried.
const LANE_PAUSE: Duration = Duration::from_secs(1);

/// How a lane is opened.
pub(crate) struct Way {
    pub(crate) peer: Peer,
    /// Who we are, and in which database.
    pub(crate) login: RedisConnectionInfo,
    /// How long an answer is waited for.
    pub(crate) patience: Duration,
    pub(crate) counters: Arc<Counters>,
}

/// All lanes to one server.
pub(crate) struct Lanes {
    way: Arc<Way>,
    all: ArcSwap<Vec<(Id, Arc<Queue>)>>,
    /// Held while the list is changed.
    changing: Mutex<()>,
    /// Of the connection that they belong to.
    driver: AbortHandle,
}

impl Lanes {
    pub(crate) fn new(way: Way, driver: AbortHandle) -> Self {
        let (all, changing) = (ArcSwap::default(), Mutex::default());
        Self { way: Arc::new(way), all, changing, driver }
    }

    /// Asks for the value of this name, up to so many bytes of it. Nothing if there is no lane in
    /// this runtime, or none yet.
    pub(crate) fn ask(&self, (name, bytes_max): (&str, u64)) -> Option<Waiting> {
        let runtime = Handle::try_current().ok()?;
        let all = self.all.load();
        let own = all.iter().find(|(id, _)| *id == runtime.id()).map(|(_, queue)| queue);
        if let Some(queue) = own.filter(|queue| queue.bytes_max() == bytes_max)
            && let Some(waiting) = queue.ask(name)
        {
            return Some(waiting);
        }
        if own.is_none_or(|queue| may_reopen(queue.standing())) {
            self.begin(&runtime, bytes_max);
        }
        None
    }

    fn begin(&self, runtime: &Handle, bytes_max: u64) {
        let _changing = self.changing.lock();
        let all = self.all.load();
        // Somebody else may have begun meanwhile. What cannot be opened again is not needed.
        let is_kept = |queue: &Queue| match queue.standing() {
            Standing::Opening | Standing::Open => true,
            Standing::Closed(_) => false,
        };
        let kept = all.iter().filter(|(id, queue)| *id != runtime.id() && is_kept(queue));
        let mut kept: Vec<_> = kept.cloned().collect();
        let own = all.iter().find(|(id, _)| *id == runtime.id());
        let has_own = own.is_some_and(|(_, queue)| !may_reopen(queue.standing()));
        if has_own || kept.len() >= LANES_MAX {
            return;
        }
        let queue = Arc::new(Queue::new(self.way.patience, bytes_max));
        kept.push((runtime.id(), queue.clone()));
        self.all.store(Arc::new(kept));
        runtime.spawn(run(self.way.clone(), queue));
    }
}

/// The connection has been given up, and with it all that leads to the same server.
impl Drop for Lanes {
    fn drop(&mut self) {
        self.driver.abort();
        self.all.load().iter().for_each(|(_, queue)| queue.close(None));
    }
}

fn may_reopen(standing: Standing) -> bool {
    matches!(standing, Standing::Closed(Some(again)) if again <= Instant::now())
}

/// Opens a lane, and drives it until it breaks.
async fn run(way: Arc<Way>, queue: Arc<Queue>) {
    // It may also end with its runtime, or by a panic: then there is no other one.
    let mut ending = Ending { queue, again: None };
    let opened = timeout(CONNECT_MAX, open(&way, ending.queue.bytes_max())).await;
    if let Ok(Ok((stream, replies))) = opened {
        count(&way.counters.lanes);
        ending.queue.open();
        Driver::new(stream, replies, ending.queue.clone()).drive().await;
    }
    ending.again = Some(Instant::now() + LANE_PAUSE);
}

/// However a lane ends, nobody waits on.
struct Ending {
    queue: Arc<Queue>,
    again: Option<Instant>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.queue.close(self.again);
    }
}

/// Says who we are, and waits until it was heard.
async fn open(way: &Way, bytes_max: u64) -> io::Result<(Stream, Replies)> {
    let mut stream = way.peer.connect().await?;
    let mut commands = Vec::new();
    if let Some(password) = way.login.password() {
        let mut auth = cmd("AUTH");
        auth.arg(way.login.username()).arg(password);
        commands.push(auth);
    }
    if way.login.db() != 0 {
        commands.push(cmd("SELECT").arg(way.login.db()).clone());
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
        let count = stream.read(replies.room()).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        replies.came(count);
    }
}

fn malformed(_: Malformed) -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Sends what is asked, and hands out what is answered.
struct Driver {
    stream: Stream,
    replies: Replies,
    queue: Arc<Queue>,
    sending: Vec<u8>,
    sent: usize,
    /// Those that have come together.
    answers: Vec<Reply>,
    /// When something came for the last time.
    heard: Instant,
    /// When the next one has waited long enough, while anybody waits.
    alarm: Pin<Box<Sleep>>,
    is_armed: bool,
}

impl Driver {
    fn new(stream: Stream, replies: Replies, queue: Arc<Queue>) -> Self {
        let (sending, answers, heard) = (Vec::new(), Vec::new(), Instant::now());
        let alarm = Box::pin(sleep(Duration::ZERO));
        let (sent, is_armed) = (0, false);
        Self { stream, replies, queue, sending, sent, answers, heard, alarm, is_armed }
    }

    /// Until it breaks, or is silent for too long.
    async fn drive(mut self) {
        while poll_fn(|task| self.poll(task)).await.is_ok() {
            // Whoever is awake now asks first: then it is one command more to send, and not one
            // sending more.
            yield_now().await;
            self.queue.take_unsent(&mut self.sending);
            if !self.is_armed {
                self.arm(Instant::now());
            }
        }
    }

    /// Resolves when there is more to be sent, or no more to be done.
    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        let broken = |_| Lost::Broken;
        if let Poll::Ready(Err(error)) = self.poll_send(task) {
            return Poll::Ready(Err(broken(error)));
        }
        while let Poll::Ready(count) = self.poll_receive(task) {
            let count = count.map_err(broken)?;
            self.hand_out(count).map_err(|_| Lost::Broken)?;
        }
        while self.is_armed && self.alarm.as_mut().poll(task).is_ready() {
            let now = Instant::now();
            self.arm(now);
            if self.is_armed && self.alarm.deadline() <= now {
                return Poll::Ready(Err(Lost::Broken));
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
        let mut room = ReadBuf::new(self.replies.room());
        ready!(Pin::new(&mut self.stream).poll_read(task, &mut room))?;
        match room.filled().len() {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            count => Poll::Ready(Ok(count)),
        }
    }

    fn hand_out(&mut self, count: usize) -> Result<(), Malformed> {
        self.heard = Instant::now();
        self.replies.came(count);
        while let Some(reply) = self.replies.next()? {
            self.answers.push(reply);
        }
        self.queue.answer(&mut self.answers)
    }

    /// Tells those whose time is over, and sets the alarm for the next one, or for the end of all
    /// patience with the server. In the past if that is over.
    fn arm(&mut self, now: Instant) {
        let due = self.queue.expire(now);
        self.is_armed = due.is_some();
        let Some((next, oldest)) = due else { return };
        let silent_until = oldest.max(self.heard) + SILENCE_MAX;
        self.alarm.as_mut().reset(next.min(silent_until));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::net::UnixStream;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(50);

    /// A lane, and the server at its other end.
    fn lane() -> (Arc<Queue>, UnixStream) {
        let (ours, server) = UnixStream::pair().unwrap();
        let queue = Arc::new(Queue::new(PATIENCE, 1_000));
        queue.open();
        let ending = Ending { queue: queue.clone(), again: None };
        let driver = Driver::new(Stream::Unix(ours), Replies::new(1_000), queue.clone());
        tokio::spawn(async move {
            driver.drive().await;
            drop(ending);
        });
        (queue, server)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_asked_together_is_sent_together() {
        let (queue, mut server) = lane();
        let all: Vec<_> = (0..10).map(|_| queue.ask("name").unwrap()).collect();
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
    async fn a_server_that_says_nothing_is_given_up() {
        let (queue, mut server) = lane();
        let began = Instant::now();
        assert_eq!(queue.ask("one").unwrap().await.unwrap_err(), Lost::TimedOut);
        assert!((PATIENCE..PATIENCE * 2).contains(&began.elapsed()), "{:?}", began.elapsed());
        // It answers, late: so it is not given up.
        server.write_all(b"_\r\n").await.unwrap();
        let two = queue.ask("two").unwrap();
        let asked = Instant::now();
        assert_eq!(two.await.unwrap_err(), Lost::TimedOut);
        while queue.standing() == Standing::Open {
            sleep(PATIENCE).await;
        }
        let took = asked.elapsed();
        assert!((SILENCE_MAX..SILENCE_MAX + 2 * PATIENCE).contains(&took), "{took:?}");
        assert!(queue.ask("three").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_what_nobody_has_asked_is_given_up() {
        let (queue, mut server) = lane();
        let waiting = queue.ask("one").unwrap();
        server.write_all(b"_\r\n_\r\n").await.unwrap();
        assert_eq!(waiting.await.unwrap_err(), Lost::Broken);
        assert_eq!(queue.standing(), Standing::Closed(None));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_lane_that_has_ended() {
        let (queue, server) = lane();
        let mut waiting = queue.ask("one").unwrap();
        assert!((&mut waiting).now_or_never().is_none());
        drop(server);
        assert_eq!(waiting.await.unwrap_err(), Lost::Broken);
        assert!(queue.ask("two").is_none());
    }
}
