//! Addresses of peers, and sets of networks.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// Address of the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerAddress {
    /// IP address; IPv4 is never written as IPv6.
    Ip(IpAddr),
    /// Local process, connected through a Unix socket.
    Unix,
}

impl PeerAddress {
    /// Returns the IP address, or `None` for a Unix socket.
    #[must_use]
    pub const fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(ip),
            Self::Unix => None,
        }
    }

    /// Returns the address as the unit of per-client limits: IPv6 by /64, because one client
    /// usually has a whole /64.
    #[must_use]
    pub fn for_limits(self) -> Self {
        match self {
            Self::Ip(IpAddr::V6(address)) => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                Self::Ip(IpAddr::V6(network.into()))
            }
            other => other,
        }
    }
}

impl From<IpAddr> for PeerAddress {
    fn from(address: IpAddr) -> Self {
        Self::Ip(address.to_canonical())
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

/// Set of networks, and optionally of local processes connected through Unix sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    networks: Vec<IpNet>,
    unix: bool,
}

/// Loopback networks (RFC 1122 section 3.2.1.3, RFC 4291 section 2.5.3).
const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1/128"];

/// Private networks (RFC 1918, RFC 4193).
const PRIVATE: [&str; 4] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"];

impl Networks {
    /// Returns `true` if the set has no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.unix
    }

    /// Returns `true` if the address is in the set.
    #[must_use]
    pub fn contains(&self, address: PeerAddress) -> bool {
        match address {
            PeerAddress::Ip(ip) => self.networks.iter().any(|network| network.contains(&ip)),
            PeerAddress::Unix => self.unix,
        }
    }

    /// Adds a network in CIDR notation, an address, or one of `loopback`, `private` and `unix`.
    ///
    /// # Errors
    /// The rest of a sentence that begins with the text, if it is none of these, has bits set after
    /// the prefix length, or is an IPv4-mapped network.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        match text {
            "unix" => self.unix = true,
            "loopback" => self.add_known(&LOOPBACK),
            "private" => self.add_known(&PRIVATE),
            _ => self.networks.push(parse_network(text)?),
        }
        Ok(())
    }

    /// Adds all members of another set.
    pub fn extend(&mut self, other: &Self) {
        self.networks.extend(&other.networks);
        self.unix |= other.unix;
    }

    /// Returns the members in the notation that [`Networks::add`] reads.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        let unix = self.unix.then(|| "unix".to_owned());
        self.networks.iter().map(IpNet::to_string).chain(unix)
    }

    fn add_known(&mut self, known: &[&str]) {
        self.networks.extend(known.iter().filter_map(|network| network.parse::<IpNet>().ok()));
    }
}

fn parse_network(text: &str) -> Result<IpNet, String> {
    let network = match text.split_once('/') {
        None => match text.parse::<IpAddr>() {
            Ok(address) => Ok(IpNet::from(address)),
            Err(_) => Err(()),
        },
        Some(_) => text.parse::<IpNet>().map_err(|_| ()),
    };
    let Ok(network) = network else {
        return Err("is not a network such as \"10.0.0.0/8\", an address, \"loopback\", \
                    \"private\" or \"unix\""
            .to_owned());
    };
    if network != network.trunc() {
        return Err(format!(
            "has bits set after the prefix length; write \"{}\" for the network, or \"{}\" for \
             the address",
            network.trunc(),
            network.addr()
        ));
    }
    match network {
        // Addresses are compared in their canonical form, which is IPv4 for these.
        IpNet::V6(v6) if v6.addr().to_ipv4_mapped().is_some() && v6.prefix_len() >= 96 => {
            Err("is an IPv4-mapped network; write it as IPv4".to_owned())
        }
        other => Ok(other),
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.texts().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Networks {
        let mut networks = Networks::default();
        texts.iter().for_each(|text| networks.add(text).unwrap());
        networks
    }

    fn ip(text: &str) -> PeerAddress {
        PeerAddress::from(text.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn addresses_are_in_their_networks_only() {
        let set = networks(&["10.1.0.0/16", "192.0.2.7", "2001:db8::/32", "loopback"]);
        for inside in
            ["10.1.2.3", "192.0.2.7", "2001:db8::9", "127.9.9.9", "::1", "::ffff:10.1.0.1"]
        {
            assert!(set.contains(ip(inside)), "{inside}");
        }
        for outside in ["10.2.0.1", "192.0.2.8", "2001:db9::", "8.8.8.8", "fd00::1"] {
            assert!(!set.contains(ip(outside)), "{outside}");
        }
        assert!(!set.contains(PeerAddress::Unix));
        assert!(networks(&["unix"]).contains(PeerAddress::Unix));
        for inside in ["10.0.0.1", "172.31.0.1", "192.168.1.1", "fd12::1"] {
            assert!(networks(&["private"]).contains(ip(inside)), "{inside}");
        }
        for outside in ["172.32.0.1", "127.0.0.1", "11.0.0.1", "fe80::1"] {
            assert!(!networks(&["private"]).contains(ip(outside)), "{outside}");
        }
        assert!(!Networks::default().contains(ip("10.0.0.1")));
        assert!(networks(&["0.0.0.0/0"]).contains(ip("::ffff:8.8.8.8")));
    }

    #[test]
    fn malformed_networks_are_errors_that_say_what_to_write() {
        let rows = [
            ("10.0.0.0/33", "is not a network"),
            ("10.0.0/8", "is not a network"),
            ("localhost", "is not a network"),
            ("10.0.0.1/8", "write \"10.0.0.0/8\" for the network, or \"10.0.0.1\""),
            ("::ffff:10.0.0.0/104", "write it as IPv4"),
            ("", "is not a network"),
        ];
        for (text, expected) in rows {
            let error = Networks::default().add(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn limits_join_the_addresses_of_one_ipv6_network() {
        assert_eq!(ip("2001:db8:1:2:3::4").for_limits(), ip("2001:db8:1:2::"));
        assert_eq!(ip("::ffff:192.0.2.7").for_limits(), ip("192.0.2.7"));
        assert_eq!(PeerAddress::Unix.for_limits(), PeerAddress::Unix);
    }
}
