//! Resolved listeners: `listen`, `tls.listen`, and each `[[listener]]`.

use super::tls::TlsTable;
use super::{LISTEN_MAX, ResolvedSite};
use crate::config::file::{File, Section};
use crate::config::host::HostPattern;
use crate::config::listen_address::ListenAddress;
use crate::config::options;
use crate::config::provenance::Provenance;
use crate::config::reader::{ListenerRole, Protocol};
use forebay_semantics::Networks;
use forebay_tls::server::ClientCertificates;
use forebay_tls::store::UnknownName;
use std::net::SocketAddr;

/// One listening socket for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedListener {
    /// Address to listen on.
    pub(crate) address: ListenAddress,
    /// Handling of requests.
    pub(crate) role: ListenerRole,
    /// True if clients use TLS. Then there is a `[tls]` table.
    pub(crate) tls: bool,
    /// Protocols in the order of preference; at least one.
    pub(crate) protocols: Vec<Protocol>,
    /// Client certificates that are asked for; `Off` without TLS.
    pub(crate) client_certificates: ClientCertificates,
    /// True if each connection begins with a PROXY protocol header.
    pub(crate) proxy_protocol: bool,
    /// Ids of the sites that are served; empty means all.
    pub(crate) sites: Vec<String>,
}

impl ResolvedListener {
    fn plain(address: SocketAddr, tls: bool) -> Self {
        Self {
            address: ListenAddress::Tcp(address),
            role: ListenerRole::Serve,
            tls,
            protocols: default_protocols(tls),
            client_certificates: ClientCertificates::Off,
            proxy_protocol: false,
            sites: Vec::new(),
        }
    }

    fn serves(&self, id: &str) -> bool {
        self.sites.is_empty() || self.sites.iter().any(|site| site == id)
    }
}

/// Protocols of a listener that names none.
fn default_protocols(tls: bool) -> Vec<Protocol> {
    if tls { vec![Protocol::H2, Protocol::Http1] } else { vec![Protocol::Http1, Protocol::H2c] }
}

/// Other parts of the configuration that listeners refer to.
pub(super) struct Surroundings<'a> {
    pub(super) trusted: Option<&'a Networks>,
    /// `None` if `[tls]` has an error; the inner `None` if there is no such table.
    pub(super) tls: Option<Option<&'a TlsTable>>,
    pub(super) sites: Option<&'a [ResolvedSite]>,
}

/// All listeners; at least one. Addresses are unique.
pub(super) fn listeners(
    file: &File,
    around: &Surroundings<'_>,
    provenance: &mut Provenance<'_>,
) -> Option<Vec<ResolvedListener>> {
    let plain = plain(file, provenance);
    let tables: Vec<_> =
        file.listeners.iter().map(|section| listener(section, around, provenance)).collect();
    let tables: Vec<ResolvedListener> = tables.into_iter().collect::<Option<_>>()?;
    let mut short = plain?;
    if let Some(table) = around.tls.flatten() {
        let with_tls = table.listen.iter().map(|address| ResolvedListener::plain(*address, true));
        short.extend(with_tls);
    }
    for (n, (section, table)) in file.listeners.iter().zip(&tables).enumerate() {
        let is_taken = |other: &ListenAddress| *other == table.address && !takes_any_port(other);
        let mut before = short.iter().chain(&tables[..n]).map(|listener| &listener.address);
        if before.any(is_taken) {
            let message =
                format!("\"{}\" is the address of another listener; remove one", table.address);
            provenance.refuse(section, options::LISTENER_ADDRESS.spec.name, message);
        }
    }
    let all: Vec<_> = short.into_iter().chain(tables).collect();
    if all.len() > LISTEN_MAX {
        let message = format!("there are {} listeners; the maximum is {LISTEN_MAX}", all.len());
        provenance.refuse(&file.top, options::LISTEN.spec.name, message);
    }
    certificates_for_names(file, &all, around, provenance);
    Some(all)
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
    if addresses.is_empty() && file.listeners.is_empty() && file.tls.is_none() {
        provenance.refuse(&file.top, name, "must name at least one address");
    }
    for (n, address) in addresses.iter().enumerate() {
        if address.port() != 0 && addresses[..n].contains(address) {
            provenance.refuse(&file.top, name, format!("names {address} twice; remove one"));
        }
    }
    Some(addresses.into_iter().map(|address| ResolvedListener::plain(address, false)).collect())
}

fn listener(
    section: &Section,
    around: &Surroundings<'_>,
    provenance: &mut Provenance<'_>,
) -> Option<ResolvedListener> {
    let address = provenance.read(section, &options::LISTENER_ADDRESS);
    let role = provenance.read(section, &options::LISTENER_ROLE);
    let tls = provenance.read(section, &options::LISTENER_TLS);
    let client_certificates = provenance.read(section, &options::LISTENER_CLIENT_CERTIFICATES);
    let proxy_protocol = provenance.read(section, &options::LISTENER_PROXY_PROTOCOL);
    let sites = provenance.read(section, &options::LISTENER_SITES);
    if proxy_protocol == Some(true) && around.trusted.is_some_and(Networks::is_empty) {
        let message = "needs `trusted_proxies`: the proxies that may send the header";
        provenance.refuse(section, options::LISTENER_PROXY_PROTOCOL.spec.name, message);
    }
    if tls == Some(true) && matches!(around.tls, Some(None)) {
        let message = "needs a [tls] table with a certificate";
        provenance.refuse(section, options::LISTENER_TLS.spec.name, message);
    }
    of_operators(section, role, proxy_protocol, sites.as_deref(), provenance);
    if role == Some(ListenerRole::Probe) && tls == Some(true) {
        let message = "\"probe\" cannot be combined with `tls`; remove `tls`";
        provenance.refuse(section, options::LISTENER_ROLE.spec.name, message);
    }
    if role == Some(ListenerRole::Redirect) && tls == Some(true) {
        let message = "\"redirect\" is for connections without TLS; remove `tls`";
        provenance.refuse(section, options::LISTENER_ROLE.spec.name, message);
    }
    let asks = client_certificates.is_some_and(|asked| asked != ClientCertificates::Off);
    let has_authority = |table: &TlsTable| table.tls.authority.is_some();
    let name = options::LISTENER_CLIENT_CERTIFICATES.spec.name;
    if asks && tls == Some(false) {
        provenance.refuse(section, name, "needs `tls = true`");
    } else if asks && around.tls.flatten().is_some_and(|table| !has_authority(table)) {
        provenance.refuse(section, name, "needs `client_ca` in [tls]");
    }
    let protocols = match role {
        Some(ListenerRole::Admin | ListenerRole::Probe) => Some(vec![Protocol::Http1]),
        _ => protocols(section, tls, provenance),
    };
    let sites = sites?;
    unknown_sites(section, &sites, around, provenance);
    Some(ResolvedListener {
        address: address?,
        role: role?,
        tls: tls?,
        protocols: protocols?,
        client_certificates: client_certificates?,
        proxy_protocol: proxy_protocol?,
        sites,
    })
}

/// Reports options that a listener for operators does not have.
fn of_operators(
    section: &Section,
    role: Option<ListenerRole>,
    proxy_protocol: Option<bool>,
    sites: Option<&[String]>,
    provenance: &mut Provenance<'_>,
) {
    if !matches!(role, Some(ListenerRole::Admin | ListenerRole::Probe)) {
        return;
    }
    let has_sites = sites.is_some_and(|sites| !sites.is_empty());
    let rows = [
        (options::LISTENER_PROXY_PROTOCOL.spec.name, proxy_protocol == Some(true)),
        (options::LISTENER_SITES.spec.name, has_sites),
        (
            options::LISTENER_PROTOCOLS.spec.name,
            section.value(options::LISTENER_PROTOCOLS.spec.name).is_some(),
        ),
    ];
    for (name, _) in rows.into_iter().filter(|(_, is_typed)| *is_typed) {
        let message = "is only for the roles \"serve\" and \"redirect\"; remove it";
        provenance.refuse(section, name, message);
    }
}

fn protocols(
    section: &Section,
    tls: Option<bool>,
    provenance: &mut Provenance<'_>,
) -> Option<Vec<Protocol>> {
    let (tls, name) = (tls?, options::LISTENER_PROTOCOLS.spec.name);
    if section.value(name).is_none() {
        let shown = if tls { "h2, http/1.1" } else { "http/1.1, h2c" };
        provenance.derived(section.path_of(name), shown);
        return Some(default_protocols(tls));
    }
    let protocols = provenance.read(section, &options::LISTENER_PROTOCOLS)?;
    let foreign = if tls { Protocol::H2c } else { Protocol::H2 };
    let message = if protocols.contains(&foreign) && tls {
        "cannot contain \"h2c\" with TLS; write \"h2\""
    } else if protocols.contains(&foreign) {
        "cannot contain \"h2\" without TLS; write \"h2c\""
    } else if !protocols.contains(&Protocol::Http1) && !tls {
        "must contain \"http/1.1\" without TLS"
    } else if protocols.is_empty() {
        "must name at least one protocol"
    } else {
        return Some(protocols);
    };
    provenance.refuse(section, name, message);
    None
}

fn unknown_sites(
    section: &Section,
    ids: &[String],
    around: &Surroundings<'_>,
    provenance: &mut Provenance<'_>,
) {
    let Some(known) = around.sites else { return };
    for id in ids.iter().filter(|id| !known.iter().any(|site| site.id == **id)) {
        let message = format!("no site has the id \"{id}\"");
        provenance.refuse(section, options::LISTENER_SITES.spec.name, message);
    }
}

/// Reports hosts of sites that no certificate covers, if their handshakes would be refused.
fn certificates_for_names(
    file: &File,
    listeners: &[ResolvedListener],
    around: &Surroundings<'_>,
    provenance: &mut Provenance<'_>,
) {
    let (Some(Some(table)), Some(sites)) = (around.tls, around.sites) else { return };
    if table.tls.certificates.unknown_name != UnknownName::Refuse {
        return;
    }
    for (typed, site) in file.sites.iter().zip(sites) {
        let is_served = |listener: &ResolvedListener| listener.tls && listener.serves(&site.id);
        if !listeners.iter().any(is_served) {
            continue;
        }
        for host in &site.hosts {
            if let HostPattern::Exact(name) = host
                && !table.covers(name)
            {
                let message = format!(
                    "no certificate of [tls] has the name \"{name}\", and `unknown_name` is \
                     \"refuse\": add a certificate"
                );
                provenance.refuse(&typed.site, options::SITE_HOSTS.spec.name, message);
            }
        }
    }
}
