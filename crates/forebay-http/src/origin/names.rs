//! Addresses of an endpoint: a fixed one, or those of a name, which are looked up again from time to
//! time.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::uri::Authority;
use parking_lot::Mutex;
use tokio::net::lookup_host;
use tokio::time::{Instant, timeout};

use super::fault::ConnectError;

/// Maximum number of addresses of one name that are used.
const ADDRESSES_MAX: usize = 16;

/// Maximum time of one lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Part of the interval by which lookups vary, so that instances do not ask at once: one tenth.
const SPREAD: u32 = 10;

/// Addresses of one endpoint.
#[derive(Debug)]
pub(super) struct Names {
    host: String,
    port: u16,
    every: Duration,
    /// Set if the host is an IP address.
    is_fixed: bool,
    state: Mutex<State>,
    /// Held during a lookup, so that there is one at a time.
    lookup: tokio::sync::Mutex<()>,
    pub(super) counts: LookupCounts,
}

#[derive(Debug)]
struct State {
    /// Empty until the first lookup.
    addresses: Arc<[SocketAddr]>,
    /// Time of the next lookup.
    due: Instant,
}

/// Numbers of lookups.
#[derive(Debug, Default)]
pub(super) struct LookupCounts {
    pub(super) resolved: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// Effect of a lookup on the known addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// They are the same, or the lookup failed.
    Unchanged,
    /// There are other ones.
    Changed,
}

impl Names {
    pub(super) fn new(authority: &Authority, default_port: u16, every: Duration) -> Self {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(default_port);
        let fixed = host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port));
        let state = State { addresses: fixed.into_iter().collect(), due: Instant::now() };
        Self {
            host,
            port,
            every,
            is_fixed: fixed.is_some(),
            state: Mutex::new(state),
            lookup: tokio::sync::Mutex::new(()),
            counts: LookupCounts::default(),
        }
    }

    /// Returns `true` if the addresses are known, and so old that they should be looked up again.
    pub(super) fn is_due(&self) -> bool {
        if self.is_fixed {
            return false;
        }
        let state = self.state.lock();
        !state.addresses.is_empty() && state.due <= Instant::now()
    }

    /// Returns the addresses, and looks them up if none is known.
    pub(super) async fn addresses(&self) -> Result<Arc<[SocketAddr]>, ConnectError> {
        let known = self.known();
        if !known.is_empty() {
            return Ok(known);
        }
        let _lookup = self.lookup.lock().await;
        let known = self.known();
        if !known.is_empty() {
            return Ok(known);
        }
        let found = self.look_up().await?;
        self.set(&found);
        Ok(found)
    }

    /// Looks the name up again. A failure keeps the known addresses.
    pub(super) async fn refresh(&self) -> Change {
        let Ok(_lookup) = self.lookup.try_lock() else { return Change::Unchanged };
        // A failed lookup is repeated after the interval, too.
        let known = self.known();
        self.set(&known);
        match self.look_up().await {
            Ok(found) if found != known => {
                self.set(&found);
                Change::Changed
            }
            Ok(_) => Change::Unchanged,
            Err(error) => {
                tracing::warn!(%error, "name lookup failed: the last addresses are kept");
                Change::Unchanged
            }
        }
    }

    fn known(&self) -> Arc<[SocketAddr]> {
        self.state.lock().addresses.clone()
    }

    fn set(&self, addresses: &Arc<[SocketAddr]>) {
        let spread = self.every / SPREAD;
        let due = Instant::now() + self.every - spread + spread.mul_f64(2.0 * fastrand::f64());
        *self.state.lock() = State { addresses: addresses.clone(), due };
    }

    async fn look_up(&self) -> Result<Arc<[SocketAddr]>, ConnectError> {
        let looked_up = timeout(LOOKUP_TIMEOUT, lookup_host((&*self.host, self.port))).await;
        let found = match looked_up {
            Err(_) => Err(ConnectError::NameTimeout(self.host.clone(), LOOKUP_TIMEOUT)),
            Ok(Err(error)) => Err(ConnectError::Name(self.host.clone(), error.to_string())),
            Ok(Ok(found)) => {
                let mut found: Vec<_> = found.take(ADDRESSES_MAX).collect();
                found.sort_unstable();
                found.dedup();
                if found.is_empty() {
                    Err(ConnectError::Name(self.host.clone(), "it has no address".into()))
                } else {
                    Ok(found.into())
                }
            }
        };
        let count = if found.is_ok() { &self.counts.resolved } else { &self.counts.failed };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(authority: &'static str) -> Names {
        Names::new(&Authority::from_static(authority), 80, Duration::from_secs(30))
    }

    #[tokio::test(start_paused = true)]
    async fn a_literal_address_is_never_looked_up() {
        for (authority, expected) in
            [("127.0.0.1:81", "127.0.0.1:81"), ("[::1]:81", "[::1]:81"), ("[::1]", "[::1]:80")]
        {
            let names = names(authority);
            assert_eq!(*names.addresses().await.unwrap(), [expected.parse().unwrap()]);
            tokio::time::advance(Duration::from_secs(3_600)).await;
            assert!(!names.is_due(), "{authority}");
            assert_eq!(names.counts.resolved.load(Ordering::Relaxed), 0);
        }
    }

    #[tokio::test]
    async fn a_name_is_looked_up_once_and_again_when_it_is_due() {
        let names = names("localhost:81");
        let found = names.addresses().await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 81));
        assert_eq!(names.addresses().await.unwrap(), found);
        assert_eq!(names.counts.resolved.load(Ordering::Relaxed), 1);
        assert!(!names.is_due());
        names.state.lock().due = Instant::now();
        assert!(names.is_due());
        assert_eq!(names.refresh().await, Change::Unchanged);
        assert_eq!(names.counts.resolved.load(Ordering::Relaxed), 2);
        assert!(!names.is_due());
        names.state.lock().addresses = Arc::new(["192.0.2.1:81".parse().unwrap()]);
        assert_eq!(names.refresh().await, Change::Changed);
        assert_eq!(names.addresses().await.unwrap(), found);
    }

    #[tokio::test]
    async fn a_failed_lookup_keeps_the_known_addresses() {
        let names = names("name.invalid:81");
        let error = names.addresses().await.unwrap_err().to_string();
        assert!(error.starts_with("the name name.invalid was not resolved"), "{error}");
        let known: Arc<[SocketAddr]> = Arc::new(["192.0.2.1:81".parse().unwrap()]);
        names.set(&known);
        assert_eq!(names.refresh().await, Change::Unchanged);
        assert_eq!(names.addresses().await.unwrap(), known);
        assert_eq!(names.counts.failed.load(Ordering::Relaxed), 2);
    }
}
