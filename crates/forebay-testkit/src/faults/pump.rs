//! Transfer of one direction of a connection.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::{Direction, Faults, Flow, Shared, Way};

/// Maximum number of bytes per read.
const CHUNK: usize = 16 << 10;

/// Maximum number of chunks in transit. Above it, the sender is not read, so that its buffers fill
/// up as on a slow network.
const CHUNKS_MAX: usize = 256;

pub(super) struct Pump<'a> {
    direction: Direction,
    from: Arc<TcpStream>,
    to: Arc<TcpStream>,
    shared: &'a Shared,
}

struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

impl<'a> Pump<'a> {
    pub(super) fn new(
        direction: Direction,
        from: &Arc<TcpStream>,
        to: &Arc<TcpStream>,
        shared: &'a Shared,
    ) -> Self {
        Self { direction, from: from.clone(), to: to.clone(), shared }
    }

    /// Transfers bytes until one end closes.
    pub(super) async fn run(&self) {
        let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
        tokio::join!(self.read(sender), self.write(receiver));
    }

    fn way(&self, faults: &Faults) -> Way {
        match self.direction {
            Direction::ToServer => faults.to_server,
            Direction::ToClient => faults.to_client,
        }
    }

    async fn read(&self, chunks: mpsc::Sender<Chunk>) {
        let mut buffer = vec![0; CHUNK];
        // A read error counts as the end; bytes read before it are delivered.
        while let Ok(length @ 1..) = read(&self.from, &mut buffer).await {
            let latency = self.way(&self.shared.faults.borrow()).latency;
            let bytes = buffer[..length].to_vec();
            let chunk = Chunk { due: Instant::now() + latency, bytes };
            if chunks.send(chunk).await.is_err() {
                return;
            }
        }
    }

    async fn write(&self, mut chunks: mpsc::Receiver<Chunk>) {
        let mut faults = self.shared.faults.subscribe();
        while let Some(chunk) = chunks.recv().await {
            sleep_until(chunk.due).await;
            if !self.pass(&chunk.bytes, &mut faults).await {
                // Bytes behind a gap are read and dropped.
                while chunks.recv().await.is_some() {}
                return;
            }
        }
        let _ = SockRef::from(&*self.to).shutdown(Shutdown::Write);
    }

    /// Writes bytes as the faults allow; `false` if they were lost.
    async fn pass(&self, bytes: &[u8], faults: &mut watch::Receiver<Faults>) -> bool {
        let way = |faults: &Faults| self.way(faults).flow;
        let thawed = faults.wait_for(|faults| way(faults) != Flow::Frozen).await;
        if thawed.is_ok_and(|faults| way(&faults) == Flow::BlackHole) {
            return false;
        }
        let written = write_all(&self.to, bytes).await.is_ok();
        let length = bytes.len() as u64;
        self.shared.passed[self.direction as usize].fetch_add(length, Ordering::SeqCst);
        written
    }
}

async fn read(stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        match stream.try_read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
            Ok(length) => bytes = &bytes[length..],
        }
    }
    Ok(())
}
