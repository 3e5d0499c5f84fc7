//! Two connections joined, once both sides have agreed to speak something else than HTTP.
//!
//! Bytes go both ways as fast as the slower side takes them, through one buffer each way. The end
//! of one side is passed on to the other, which may finish what it is saying.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use crate::metrics::OpenTunnel;

/// A tunnel without a byte either way for this long is cut: longer than protocols that keep a
/// connection alive pause between two signs of life.
pub const IDLE_MAX: Duration = Duration::from_secs(600);

/// The same once one side has ended: what the other still says is under way already.
pub const ENDING_IDLE_MAX: Duration = Duration::from_secs(10);

/// Bytes held for each direction of a tunnel; with this many under way, the sender waits.
const BUFFER: usize = 16 << 10;

/// The origin's side of a tunnel, with its place among the origin's connections.
pub struct Tunnel {
    origin: Upgraded,
    places: Places,
    open: Option<OpenTunnel>,
}

/// What a tunnel takes: a place among all connections to an origin, and one among its tunnels.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) _connection: OwnedSemaphorePermit,
    pub(crate) _tunnel: OwnedSemaphorePermit,
}

impl Tunnel {
    pub(crate) const fn new(origin: Upgraded, places: Places) -> Self {
        Self { origin, places, open: None }
    }

    /// Counts it for as long as it is.
    pub(crate) fn counted(mut self, open: OpenTunnel) -> Self {
        self.open = Some(open);
        self
    }

    /// Joins it with a client, until either side breaks off, both have ended, or nothing has moved
    /// for [`IDLE_MAX`].
    pub(crate) async fn join<C>(self, client: C) -> Joined
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { origin, places, open } = self;
        let joined = splice(client, TokioIo::new(origin)).await;
        drop((places, open));
        joined
    }
}

/// How a tunnel came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// Both sides had ended, or one broke off.
    Over,
    /// Nothing moved for too long.
    Idle,
}

async fn splice<C, O>(client: C, origin: O) -> Joined
where
    C: AsyncRead + AsyncWrite + Unpin,
    O: AsyncRead + AsyncWrite + Unpin,
{
    let life = Life::begin();
    let mut client = Noted { inner: client, life: life.clone() };
    let mut origin = Noted { inner: origin, life: life.clone() };
    let copied = copy_bidirectional_with_sizes(&mut client, &mut origin, BUFFER, BUFFER);
    let mut copied = pin!(copied);
    let mut sleep = pin!(sleep_until(life.due()));
    poll_fn(|cx| {
        // A side that breaks off is no error of ours: the other one is told by the close.
        if copied.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Joined::Over);
        }
        loop {
            let due = life.due();
            if sleep.deadline() > due {
                sleep.as_mut().reset(due);
            }
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if due <= Instant::now() {
                return Poll::Ready(Joined::Idle);
            }
            // The timer is left to fire at an old deadline; only then is the true one looked at.
            sleep.as_mut().reset(due);
        }
    })
    .await
}

/// When a byte last moved, and whether one side has ended.
#[derive(Clone, Debug)]
struct Life(Arc<Mutex<(Instant, Side)>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Both,
    One,
}

impl Life {
    fn begin() -> Self {
        Self(Arc::new(Mutex::new((Instant::now(), Side::Both))))
    }

    fn due(&self) -> Instant {
        let (moved, sides) = *self.0.lock();
        moved + if sides == Side::Both { IDLE_MAX } else { ENDING_IDLE_MAX }
    }

    fn moved(&self) {
        self.0.lock().0 = Instant::now();
    }

    fn ended(&self) {
        *self.0.lock() = (Instant::now(), Side::One);
    }
}

/// A side whose bytes are noted as they come and as they are taken.
struct Noted<S> {
    inner: S,
    life: Life,
}

impl<S: AsyncRead + Unpin> AsyncRead for Noted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if matches!(read, Poll::Ready(Ok(()))) {
            if buf.filled().len() == before { self.life.ended() } else { self.life.moved() }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        if matches!(written, Poll::Ready(Ok(_))) {
            self.life.moved();
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        if matches!(written, Poll::Ready(Ok(_))) {
            self.life.moved();
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_is_cut_when_nothing_moves_and_not_before() {
        let (mut client, here) = duplex(64);
        let (there, mut origin) = duplex(64);
        let begun = Instant::now();
        let joined = tokio::spawn(splice(here, there));
        let mut room = [0; 4];
        for _ in 0..3 {
            tokio::time::advance(IDLE_MAX - Duration::from_secs(1)).await;
            client.write_all(b"ping").await.unwrap();
            origin.read_exact(&mut room).await.unwrap();
            assert_eq!(&room, b"ping");
        }
        assert_eq!(joined.await.unwrap(), Joined::Idle);
        let lasted = begun.elapsed();
        let expected = 3 * (IDLE_MAX - Duration::from_secs(1)) + IDLE_MAX;
        assert!(lasted >= expected && lasted < expected + Duration::from_secs(1), "{lasted:?}");
        assert_eq!(origin.read(&mut room).await.unwrap(), 0);
        assert_eq!(client.read(&mut room).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_has_ended_leaves_the_other_little_time() {
        let (mut client, here) = duplex(64);
        let (there, mut origin) = duplex(64);
        let joined = tokio::spawn(splice(here, there));
        origin.shutdown().await.unwrap();
        let mut room = [0; 4];
        assert_eq!(client.read(&mut room).await.unwrap(), 0);
        client.write_all(b"last").await.unwrap();
        origin.read_exact(&mut room).await.unwrap();
        assert_eq!(&room, b"last");
        let begun = Instant::now();
        assert_eq!(joined.await.unwrap(), Joined::Idle);
        assert!(begun.elapsed() <= ENDING_IDLE_MAX + Duration::from_secs(1));
    }
}
