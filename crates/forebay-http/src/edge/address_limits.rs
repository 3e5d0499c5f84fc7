//! Maximum number of connections per client address.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_semantics::PeerAddress;
use parking_lot::Mutex;

/// Open connections by address; IPv6 by /64. The table has one row per address with an open
/// connection, so that the limit on client connections bounds it.
#[derive(Debug, Default)]
pub struct AddressLimits {
    max: AtomicUsize,
    open: Mutex<HashMap<PeerAddress, usize>>,
}

/// Counted connection; it is released when this is dropped.
#[derive(Debug)]
pub struct CountedConnection {
    limits: Arc<AddressLimits>,
    address: PeerAddress,
}

impl AddressLimits {
    /// Creates a table with a maximum per address; 0 means no limit.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max: AtomicUsize::new(max), open: Mutex::default() })
    }

    /// Changes the maximum. Connections that are open already are not closed.
    pub fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Returns `true` if there is a limit.
    #[must_use]
    pub(crate) fn is_on(&self) -> bool {
        self.max.load(Ordering::Relaxed) > 0
    }

    /// Counts a connection until the returned value is dropped. `None` if its address has the
    /// maximum number already.
    #[must_use]
    pub fn admit(self: &Arc<Self>, address: PeerAddress) -> Option<CountedConnection> {
        let max = self.max.load(Ordering::Relaxed);
        let address = address.for_limits();
        let mut open = self.open.lock();
        let count = open.entry(address).or_default();
        if max > 0 && *count >= max {
            return None;
        }
        *count += 1;
        Some(CountedConnection { limits: self.clone(), address })
    }

    /// Returns the number of addresses with an open connection.
    #[must_use]
    pub fn addresses(&self) -> usize {
        self.open.lock().len()
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut open = self.limits.open.lock();
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn address(text: &str) -> PeerAddress {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn an_address_has_at_most_the_maximum_of_connections() {
        let limits = AddressLimits::new(2);
        let one = limits.admit(address("192.0.2.1")).unwrap();
        let _two = limits.admit(address("::ffff:192.0.2.1")).unwrap();
        assert!(limits.admit(address("192.0.2.1")).is_none());
        let _other = limits.admit(address("192.0.2.2")).unwrap();
        drop(one);
        assert!(limits.admit(address("192.0.2.1")).is_some());
        limits.set_max(0);
        assert!(!limits.is_on());
    }

    #[test]
    fn ipv6_addresses_count_by_network_and_rows_are_removed() {
        let limits = AddressLimits::new(1);
        let first = limits.admit(address("2001:db8::1")).unwrap();
        assert!(limits.admit(address("2001:db8::2")).is_none());
        let second = limits.admit(address("2001:db8:0:1::1")).unwrap();
        assert_eq!(limits.addresses(), 2);
        drop((first, second));
        assert_eq!(limits.addresses(), 0);
    }
}
