//! Resolved listeners: `listen`, and each `[[listener]]`.

use super::LISTEN_MAX;
use crate::config::file::{File, Section};
use crate::config::listen_address::ListenAddress;
use crate::config::options;
use crate::config::provenance::Provenance;
use forebay_semantics::Networks;
use std::net::SocketAddr;

/// One listening socket for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedListener {
    /// Address to listen on.
    pub(crate) address: ListenAddress,
    /// True if each connection begins with a PROXY protocol header.
    pub(crate) proxy_protocol: bool,
}

/// All listeners; at least one. Addresses are unique.
pub(super) fn listeners(
    file: &File,
    trusted: Option<&Networks>,
    provenance: &mut Provenance<'_>,
) -> Option<Vec<ResolvedListener>> {
    let plain = plain(file, provenance);
    let tables: Vec<_> =
        file.listeners.iter().map(|section| listener(section, trusted, provenance)).collect();
    let tables: Vec<ResolvedListener> = tables.into_iter().collect::<Option<_>>()?;
    let plain = plain?;
    for (n, (section, table)) in file.listeners.iter().zip(&tables).enumerate() {
        let is_taken = |other: &ListenAddress| *other == table.address && !takes_any_port(other);
        let mut before = plain.iter().chain(&tables[..n]).map(|listener| &listener.address);
        if before.any(is_taken) {
            let name = options::LISTENER_ADDRESS.spec.name;
            provenance.refuse(
                section,
                name,
                format!("\"{}\" is listened on already", table.address),
            );
        }
    }
    if plain.len() + tables.len() > LISTEN_MAX {
        let message = format!("there are more than {LISTEN_MAX} listeners");
        provenance.refuse(&file.top, options::LISTEN.spec.name, message);
    }
    Some(plain.into_iter().chain(tables).collect())
}

fn takes_any_port(address: &ListenAddress) -> bool {
    address.tcp().is_some_and(|address| address.port() == 0)
}

/// Listeners of the short form `listen`. Its default applies if there is no `[[listener]]`.
fn plain(file: &File, provenance: &mut Provenance<'_>) -> Option<Vec<ResolvedListener>> {
    let name = options::LISTEN.spec.name;
    if file.top.value(name).is_none() && !file.listeners.is_empty() {
        provenance.derived(file.top.path_of(name), "none");
        return Some(Vec::new());
    }
    let addresses: Vec<SocketAddr> = provenance.read(&file.top, &options::LISTEN)?;
    if addresses.is_empty() && file.listeners.is_empty() {
        provenance.refuse(&file.top, name, "must name at least one address");
    }
    for (n, address) in addresses.iter().enumerate() {
        if address.port() != 0 && addresses[..n].contains(address) {
            provenance.refuse(&file.top, name, format!("names {address} twice"));
        }
    }
    let listener =
        |address| ResolvedListener { address: ListenAddress::Tcp(address), proxy_protocol: false };
    Some(addresses.into_iter().map(listener).collect())
}

fn listener(
    section: &Section,
    trusted: Option<&Networks>,
    provenance: &mut Provenance<'_>,
) -> Option<ResolvedListener> {
    let address = provenance.read(section, &options::LISTENER_ADDRESS);
    let proxy_protocol = provenance.read(section, &options::LISTENER_PROXY_PROTOCOL);
    if proxy_protocol == Some(true) && trusted.is_some_and(Networks::is_empty) {
        let message = "needs `trusted_proxies`: the proxies that may send the header";
        provenance.refuse(section, options::LISTENER_PROXY_PROTOCOL.spec.name, message);
    }
    Some(ResolvedListener { address: address?, proxy_protocol: proxy_protocol? })
}
