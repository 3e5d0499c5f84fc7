//! Tunnels: a client and an origin connection that carry another protocol than HTTP.
//!
//! Each direction has one buffer and runs at the speed of its receiver. The end of one side is
//! passed on to the other, which may still send.
//!
//! `upgrade.rs` decides about protocol upgrades. This folder uses `metrics`.

pub(crate) mod upgrade;

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use crate::metrics::OpenTunnel;

/// Time after which a tunnel is closed if no byte moved in either direction: longer than the
/// keep-alive interval of common protocols.
pub const IDLE_MAX: Duration = Duration::from_secs(600);

/// Idle time after which a tunnel is closed once one side has ended: the rest from the other side
/// is already in transit.
pub(crate) const ENDING_IDLE_MAX: Duration = Duration::from_secs(10);

/// Size of the buffer of each direction, in bytes. When it is full, the sender waits.
const BUFFER: usize = 16 << 10;

/// Origin connection of a tunnel, with one permit of the origin's requests and one of its tunnels,
/// released when it ends.
pub struct Tunnel {
    origin: Box<dyn OriginIo>,
    permits: TunnelPermits,
    open: Option<OpenTunnel>,
}

/// Stream of bytes to the origin of a tunnel.
pub(crate) trait OriginIo: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> OriginIo for T {}

/// Permits of a tunnel: one of all requests to the origin, and one of its tunnels.
#[derive(Debug)]
pub(crate) struct TunnelPermits {
    /// Permit of the request to the origin.
    pub(crate) _request: Box<dyn Debug + Send + Sync>,
    pub(crate) _tunnel: OwnedSemaphorePermit,
    /// Count at one of several endpoints.
    pub(crate) _in_flight: Option<Box<dyn Debug + Send + Sync>>,
}

impl Tunnel {
    pub(crate) fn new(origin: Box<dyn OriginIo>, permits: TunnelPermits) -> Self {
        Self { origin, permits, open: None }
    }

    /// Counts the tunnel in the metrics until it is dropped.
    pub(crate) fn counted(mut self, open: OpenTunnel) -> Self {
        self.open = Some(open);
        self
    }

    /// Connects the tunnel to a client. Returns when one side fails, both sides have ended, or no
    /// byte has moved for [`IDLE_MAX`].
    pub(crate) async fn join<C>(self, client: C) -> TunnelEnd
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { origin, permits, mut open } = self;
        open.iter_mut().for_each(OpenTunnel::begin);
        let joined = splice(client, origin).await;
        open.iter_mut().for_each(OpenTunnel::end);
        drop((permits, open));
        joined
    }
}

/// Reason for which a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TunnelEnd {
    /// Both sides ended, or one side failed.
    Closed,
    /// No byte moved within the idle time.
    Idle,
}

async fn splice<C, O>(client: C, origin: O) -> TunnelEnd
where
    C: AsyncRead + AsyncWrite + Unpin,
    O: AsyncRead + AsyncWrite + Unpin,
{
    let activity = Activity::begin();
    let mut client = Tracked { inner: client, activity: activity.clone() };
    let mut origin = Tracked { inner: origin, activity: activity.clone() };
    let copied = copy_bidirectional_with_sizes(&mut client, &mut origin, BUFFER, BUFFER);
    let mut copied = pin!(copied);
    let mut sleep = pin!(sleep_until(activity.due()));
    poll_fn(|cx| {
        // A failing side is not an error of forebay; the close is passed on to the other side.
        if copied.as_mut().poll(cx).is_ready() {
            return Poll::Ready(TunnelEnd::Closed);
        }
        loop {
            let due = activity.due();
            if sleep.deadline() > due {
                sleep.as_mut().reset(due);
            }
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if due <= Instant::now() {
                return Poll::Ready(TunnelEnd::Idle);
            }
            // The timer fires at an old deadline; only then is the current one computed.
            sleep.as_mut().reset(due);
        }
    })
    .await
}

/// Time of the last transfer, and whether one side has ended.
#[derive(Clone, Debug)]
struct Activity(Arc<Mutex<(Instant, Sides)>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sides {
    Both,
    One,
}

impl Activity {
    fn begin() -> Self {
        Self(Arc::new(Mutex::new((Instant::now(), Sides::Both))))
    }

    fn due(&self) -> Instant {
        let (moved, sides) = *self.0.lock();
        moved + if sides == Sides::Both { IDLE_MAX } else { ENDING_IDLE_MAX }
    }

    fn moved(&self) {
        self.0.lock().0 = Instant::now();
    }

    fn ended(&self) {
        *self.0.lock() = (Instant::now(), Sides::One);
    }
}

/// Sides of a tunnel that records its transfers.
struct Tracked<S> {
    inner: S,
    activity: Activity,
}

impl<S: AsyncRead + Unpin> AsyncRead for Tracked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if matches!(read, Poll::Ready(Ok(()))) {
            if buf.filled().len() == before { self.activity.ended() } else { self.activity.moved() }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tracked<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        if matches!(written, Poll::Ready(Ok(_))) {
            self.activity.moved();
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
            self.activity.moved();
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
    async fn a_tunnel_is_closed_at_its_idle_timeout_and_not_before() {
        let (mut client, here) = duplex(64);
        let (there, mut origin) = duplex(64);
        let begun = Instant::now();
        let joined = tokio::spawn(splice(here, there));
        let mut buffer = [0; 4];
        for _ in 0..3 {
            tokio::time::advance(IDLE_MAX - Duration::from_secs(1)).await;
            client.write_all(b"ping").await.unwrap();
            origin.read_exact(&mut buffer).await.unwrap();
            assert_eq!(&buffer, b"ping");
        }
        assert_eq!(joined.await.unwrap(), TunnelEnd::Idle);
        let lasted = begun.elapsed();
        let expected = 3 * (IDLE_MAX - Duration::from_secs(1)) + IDLE_MAX;
        assert!(lasted >= expected && lasted < expected + Duration::from_secs(1), "{lasted:?}");
        assert_eq!(origin.read(&mut buffer).await.unwrap(), 0);
        assert_eq!(client.read(&mut buffer).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_half_closed_tunnel_has_a_short_idle_timeout() {
        let (mut client, here) = duplex(64);
        let (there, mut origin) = duplex(64);
        let joined = tokio::spawn(splice(here, there));
        origin.shutdown().await.unwrap();
        let mut buffer = [0; 4];
        assert_eq!(client.read(&mut buffer).await.unwrap(), 0);
        client.write_all(b"last").await.unwrap();
        origin.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"last");
        let begun = Instant::now();
        assert_eq!(joined.await.unwrap(), TunnelEnd::Idle);
        assert!(begun.elapsed() <= ENDING_IDLE_MAX + Duration::from_secs(1));
    }
}
