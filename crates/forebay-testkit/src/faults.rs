//! A proxy for TCP between two others, that does to their bytes what networks do.
//!
//! Everything is switched at run time, for all connections at once, and nothing is left to chance:
//! the same switches have the same effect each time.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use std::time::Duration;
//! use forebay_testkit::faults::{FaultProxy, Faults, Flow};
//!
//! let proxy = FaultProxy::start("127.0.0.1:6379".parse()?).await?;
//! proxy.set(Faults::delayed(Duration::from_millis(30)));
//! proxy.change(|faults| faults.to_client.flow = Flow::Frozen);
//! proxy.set(Faults::default());
//! proxy.reset_all();
//! # Ok(())
//! # }
//! ```

mod pump;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use pump::Pump;

/// What is wrong with the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// From the client to the server.
    pub to_server: Way,
    /// From the server to the client.
    pub to_client: Way,
    /// New connections are reset at once.
    pub refuses: bool,
}

impl Faults {
    /// Nothing, but that every answer comes this much later.
    pub fn delayed(latency: Duration) -> Self {
        Self { to_client: Way { latency, ..Way::default() }, ..Self::default() }
    }

    /// Nothing comes through in either direction.
    pub fn flow(flow: Flow) -> Self {
        let way = Way { flow, ..Way::default() };
        Self { to_server: way, to_client: way, refuses: false }
    }
}

/// What is wrong with one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// How much later every byte arrives. Bytes keep their order, and do not wait for each other.
    pub latency: Duration,
    /// How many bytes a second come through; all of them if nothing.
    pub bytes_per_second: Option<u64>,
    /// Whether bytes come through at all.
    pub flow: Flow,
}

/// Whether bytes come through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// They do.
    #[default]
    Open,
    /// They wait until it is open again, as while a machine stands still.
    Frozen,
    /// They are gone. A connection that has lost some never passes any again, as behind a router
    /// that has forgotten it.
    BlackHole,
}

/// One of the two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// A running proxy; dropping it ends its connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    server: watch::Sender<SocketAddr>,
    faults: watch::Sender<Faults>,
    cuts: watch::Sender<Cuts>,
    accepted: AtomicUsize,
    open: AtomicUsize,
    /// By direction, in the order of the enum.
    passed: [AtomicU64; 2],
}

/// How often connections were cut, each in its way: whoever sees a number grow is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cuts {
    resets: usize,
    half_closes: [usize; 2],
}

impl FaultProxy {
    /// Starts a proxy on a free loopback port.
    pub async fn start(server: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server: watch::Sender::new(server),
            faults: watch::Sender::default(),
            cuts: watch::Sender::default(),
            accepted: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            passed: [AtomicU64::new(0), AtomicU64::new(0)],
        });
        let task = tokio::spawn(accept(listener, shared.clone()));
        Ok(Self { address, shared, task })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, these are the faults.
    pub fn set(&self, faults: Faults) {
        self.shared.faults.send_replace(faults);
    }

    /// Changes some of the faults.
    pub fn change(&self, change: impl FnOnce(&mut Faults)) {
        self.shared.faults.send_modify(change);
    }

    /// From now on, new connections lead to this server.
    pub fn turn(&self, server: SocketAddr) {
        self.shared.server.send_replace(server);
    }

    /// Resets all connections there are (TCP RST to both ends).
    pub fn reset_all(&self) {
        self.shared.cuts.send_modify(|cuts| cuts.resets += 1);
    }

    /// Ends one direction of all connections there are; the other goes on.
    pub fn half_close_all(&self, direction: Direction) {
        self.shared.cuts.send_modify(|cuts| cuts.half_closes[direction as usize] += 1);
    }

    /// How many connections were accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How many connections there are.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// How many bytes have come through in one direction.
    pub fn passed(&self, direction: Direction) -> u64 {
        self.shared.passed[direction as usize].load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.reset_all();
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        if shared.faults.borrow().refuses {
            reset(&client);
            continue;
        }
        tokio::spawn(serve(client, shared.clone()));
    }
}

async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let cuts = shared.cuts.subscribe();
    let to = *shared.server.borrow();
    let Ok(server) = TcpStream::connect(to).await else { return reset(&client) };
    shared.open.fetch_add(1, Ordering::SeqCst);
    let (client, server) = (Arc::new(client), Arc::new(server));
    let ways = [
        Pump::new(Direction::ToServer, (&client, &server), &shared),
        Pump::new(Direction::ToClient, (&server, &client), &shared),
    ];
    let both = async { tokio::join!(ways[0].run(), ways[1].run()) };
    tokio::select! {
        _ = both => {}
        () = cut(cuts, [&server, &client]) => {
            reset(&client);
            reset(&server);
        }
    }
    shared.open.fetch_sub(1, Ordering::SeqCst);
}

/// Ends directions as told, and returns when the connection is to be reset.
async fn cut(mut cuts: watch::Receiver<Cuts>, ends: [&TcpStream; 2]) {
    let mut seen = *cuts.borrow_and_update();
    while cuts.changed().await.is_ok() {
        let now = *cuts.borrow_and_update();
        if now.resets > seen.resets {
            return;
        }
        for (direction, end) in ends.into_iter().enumerate() {
            if now.half_closes[direction] > seen.half_closes[direction] {
                // It may be closed already, and then so it is.
                let _ = SockRef::from(end).shutdown(std::net::Shutdown::Write);
            }
        }
        seen = now;
    }
}

/// Makes the end of a stream, when it is dropped, a reset.
fn reset(stream: &TcpStream) {
    // A stream that is broken already cannot be told, and need not be.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

#[cfg(test)]
mod tests;
