//! TCP proxy that imitates network faults.
//!
//! Faults are switched at run time, for all connections at once. They are deterministic: equal
//! settings have equal effects.
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

/// Faults of the network, both directions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Client to server.
    pub to_server: Way,
    /// Server to client.
    pub to_client: Way,
    /// True if new connections are reset.
    pub refuses: bool,
}

impl Faults {
    /// Delay of every byte from the server to the client.
    pub fn delayed(latency: Duration) -> Self {
        Self { to_client: Way { latency, ..Way::default() }, ..Self::default() }
    }

    /// One flow setting for both directions.
    pub fn flow(flow: Flow) -> Self {
        let way = Way { flow, ..Way::default() };
        Self { to_server: way, to_client: way, refuses: false }
    }
}

/// Faults of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Delay of each byte; bytes keep their order, and delays do not add up.
    pub latency: Duration,
    /// Treatment of bytes: pass, wait or drop.
    pub flow: Flow,
}

/// Treatment of bytes in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// Bytes pass.
    #[default]
    Open,
    /// Bytes wait until the flow is open again, as if the machine were suspended.
    Frozen,
    /// Bytes are dropped. A connection that has lost bytes never passes any again, as behind a
    /// router that has lost its state.
    BlackHole,
}

/// Direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Client to server.
    ToServer,
    /// Server to client.
    ToClient,
}

/// Running proxy; dropping it resets its connections.
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
    /// Bytes passed, indexed by [`Direction`].
    passed: [AtomicU64; 2],
}

/// Counters of resets and half-closes. A connection that sees a counter grow executes the fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cuts {
    resets: usize,
    half_closes: [usize; 2],
}

impl FaultProxy {
    /// Starts a proxy on a free loopback port in front of `server`.
    ///
    /// # Errors
    /// If no port can be bound.
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

    /// Address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces all faults, for open and new connections.
    pub fn set(&self, faults: Faults) {
        self.shared.faults.send_replace(faults);
    }

    /// Changes some faults.
    pub fn change(&self, change: impl FnOnce(&mut Faults)) {
        self.shared.faults.send_modify(change);
    }

    /// Sends new connections to another server.
    pub fn turn(&self, server: SocketAddr) {
        self.shared.server.send_replace(server);
    }

    /// Resets all open connections (TCP RST to both ends).
    pub fn reset_all(&self) {
        self.shared.cuts.send_modify(|cuts| cuts.resets += 1);
    }

    /// Closes one direction of all open connections, as if its sender had shut down writing.
    pub fn half_close_all(&self, direction: Direction) {
        self.shared.cuts.send_modify(|cuts| cuts.half_closes[direction as usize] += 1);
    }

    /// Number of connections accepted so far, with those that were reset because of
    /// [`Faults::refuses`].
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Number of open connections to the server.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Number of bytes passed in one direction.
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
    for stream in [&client, &server] {
        // Otherwise the second of two small writes waits for the acknowledgement of the first one,
        // which the other end delays by 40 ms. Fails only on a broken stream.
        let _ = stream.set_nodelay(true);
    }
    shared.open.fetch_add(1, Ordering::SeqCst);
    let (client, server) = (Arc::new(client), Arc::new(server));
    let ways = [
        Pump::new(Direction::ToServer, &client, &server, &shared),
        Pump::new(Direction::ToClient, &server, &client, &shared),
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

/// Executes half-closes, and returns when the connection is to be reset.
async fn cut(mut cuts: watch::Receiver<Cuts>, ends: [&TcpStream; 2]) {
    let mut seen = *cuts.borrow_and_update();
    while cuts.changed().await.is_ok() {
        let now = *cuts.borrow_and_update();
        if now.resets > seen.resets {
            return;
        }
        for (direction, end) in ends.into_iter().enumerate() {
            if now.half_closes[direction] > seen.half_closes[direction] {
                // Fails if the direction is already closed, which has the wanted effect.
                let _ = SockRef::from(end).shutdown(std::net::Shutdown::Write);
            }
        }
        seen = now;
    }
}

/// Sets a stream to reset its connection when it is dropped.
fn reset(stream: &TcpStream) {
    // Fails only on a broken stream, which needs no reset.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
