//! Listeners for clients: opened at the start; added, changed and removed by a reload.

use std::sync::Arc;

use forebay_http::Role;
use forebay_http::edge::accept::AcceptRules;
use forebay_http::edge::address_limits::AddressLimits;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::config::resolved::{ResolvedConfig, ResolvedListener};
use crate::config::{ListenAddress, ListenerRole, Protocol};
use crate::listener::inherited::InheritedSockets;
use crate::listener::tls::Tls;
use crate::listener::{Listener, ListeningSocket};

/// Port of https in redirects, if no listener with TLS has another one.
const HTTPS_PORT: u16 = 443;

/// Maximum number of changes that wait for the acceptor. Reloads run one after another.
const CHANGES_MAX: usize = 1;

/// Opens the listeners of a configuration.
pub(crate) struct Opener {
    limits: Arc<AddressLimits>,
    tls: Option<Arc<Tls>>,
    inherited: Arc<InheritedSockets>,
    changes: mpsc::Sender<Change>,
    /// Listeners in use.
    open: Mutex<Vec<Listener>>,
}

/// Listeners that replace those in use.
pub(crate) struct Change {
    pub(crate) listeners: Vec<Listener>,
    /// Resolves when connections to the new listeners are accepted.
    pub(crate) done: oneshot::Sender<()>,
}

/// Listeners that are bound and not yet in use.
pub(crate) struct Prepared {
    listeners: Vec<Listener>,
    counts: ListenerCounts,
}

/// Numbers of listeners, by the effect of a reload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListenerCounts {
    pub(crate) unchanged: usize,
    /// The socket stays, with other rules.
    pub(crate) changed: usize,
    pub(crate) added: usize,
    pub(crate) removed: usize,
}

impl Opener {
    /// Opens the listeners of the configuration of the start, or none. The receiver gets the changes of
    /// reloads.
    ///
    /// # Errors
    /// A message with the address, the cause and the option to change if an address cannot be bound.
    pub(crate) fn open(
        config: &ResolvedConfig,
        limits: Arc<AddressLimits>,
        tls: Option<Arc<Tls>>,
        inherited: Arc<InheritedSockets>,
    ) -> anyhow::Result<(Self, mpsc::Receiver<Change>)> {
        let (changes, receiver) = mpsc::channel(CHANGES_MAX);
        let opener = Self { limits, tls, inherited, changes, open: Mutex::default() };
        let (listeners, _) = opener.bind(&config.listeners, Vec::new())?;
        *opener.open.lock() = listeners;
        opener.warn_of_unused(config);
        Ok((opener, receiver))
    }

    /// Listeners in use.
    pub(crate) fn listeners(&self) -> Vec<Listener> {
        self.open.lock().clone()
    }

    /// Binds the listeners that `config` adds. `None` if they need TLS, and the process was started
    /// without certificates.
    ///
    /// # Errors
    /// Like [`Self::open`]. The listeners in use are unchanged.
    pub(crate) fn prepare(&self, config: &ResolvedConfig) -> anyhow::Result<Option<Prepared>> {
        if self.tls.is_none() && config.listeners.iter().any(|listener| listener.tls) {
            return Ok(None);
        }
        let (listeners, counts) = self.bind(&config.listeners, self.listeners())?;
        self.warn_of_unused(config);
        Ok(Some(Prepared { listeners, counts }))
    }

    /// Replaces the listeners in use. Connections that wait at a removed listener are accepted before it
    /// closes. Blocks until the acceptor has taken the change, or the process stops.
    pub(crate) fn replace(&self, prepared: Prepared) -> ListenerCounts {
        let Prepared { listeners, counts } = prepared;
        (*self.open.lock()).clone_from(&listeners);
        let (done, taken) = oneshot::channel();
        // Both fail only while the process stops, when no listener is added any more.
        if self.changes.blocking_send(Change { listeners, done }).is_ok() {
            let _ = taken.blocking_recv();
        }
        counts
    }

    /// Lets the acceptor close the sockets in use.
    pub(crate) fn close(&self) {
        self.open.lock().clear();
    }

    fn bind(
        &self,
        wanted: &[ResolvedListener],
        mut open: Vec<Listener>,
    ) -> anyhow::Result<(Vec<Listener>, ListenerCounts)> {
        let mut counts = ListenerCounts::default();
        let mut sockets = Vec::new();
        for spec in wanted {
            // Several sockets may have the name of one inherited listener.
            let has_address = |listener: &mut Listener| listener.spec.address == spec.address;
            let mut kept: Vec<_> = open.extract_if(.., has_address).collect();
            if matches!(spec.address, ListenAddress::Tcp(_)) && kept.len() > 1 {
                // Listeners on port 0 have equal addresses.
                open.extend(kept.drain(1..));
            }
            match kept.first() {
                Some(listener) if listener.spec == *spec => counts.unchanged += 1,
                Some(_) => counts.changed += 1,
                None => counts.added += 1,
            }
            if kept.is_empty() {
                let opened = open_sockets(&spec.address, &self.inherited)?;
                sockets.extend(opened.into_iter().map(|socket| (spec, Arc::new(socket), None)));
            }
            sockets.extend(kept.into_iter().map(|one| (spec, one.socket.clone(), Some(one))));
        }
        counts.removed = open.len();
        let mut with_tls = sockets.iter().filter(|(spec, ..)| spec.tls);
        let https_port = with_tls.find_map(|(_, socket, _)| Some(socket.address()?.tcp()?.port()));
        let https_port = https_port.unwrap_or(HTTPS_PORT);
        let listeners = sockets.into_iter().map(|(spec, socket, before)| {
            let role = role(spec, https_port);
            let same = before.filter(|one| one.spec == *spec && one.rules.role == role);
            // The rules hold the keys of session tickets.
            let rules = match same {
                Some(one) => one.rules,
                None => Arc::new(self.rules(spec, role)?),
            };
            Ok(Listener { spec: spec.clone(), socket, rules })
        });
        Ok((listeners.collect::<anyhow::Result<_>>()?, counts))
    }

    fn rules(&self, spec: &ResolvedListener, role: Role) -> anyhow::Result<AcceptRules> {
        let tls = match &self.tls {
            Some(tls) if spec.tls => Some(tls.server(spec)?),
            _ => None,
        };
        let ids = spec.sites.iter().map(|id| id.as_str().into());
        Ok(AcceptRules {
            proxy_protocol: spec.proxy_protocol,
            tls,
            is_h2c: spec.protocols.contains(&Protocol::H2c),
            role,
            sites: (!spec.sites.is_empty()).then(|| ids.collect()),
            ..AcceptRules::cleartext(spec.address.to_string(), self.limits.clone())
        })
    }

    /// Warns of inherited sockets that no listener has: connections to them would wait for ever.
    fn warn_of_unused(&self, config: &ResolvedConfig) {
        let listeners = config.listeners.iter().chain(&config.admins).map(|one| &one.address);
        let used = listeners.chain(&config.probes).filter_map(|address| match address {
            ListenAddress::Inherited(name) => Some(name.as_str()),
            _ => None,
        });
        let used: Vec<&str> = used.collect();
        for name in self.inherited.unused(&used) {
            tracing::warn!(
                "inherited socket \"{name}\" is not used: add [[listener]] with address = \
                 \"fd:{name}\""
            );
        }
    }
}

fn role(spec: &ResolvedListener, https_port: u16) -> Role {
    match spec.role {
        ListenerRole::Redirect => Role::Redirect(https_port),
        // Listeners of the other roles are not for clients.
        ListenerRole::Serve | ListenerRole::Admin | ListenerRole::Probe => Role::Serve,
    }
}

fn open_sockets(
    address: &ListenAddress,
    inherited: &InheritedSockets,
) -> anyhow::Result<Vec<ListeningSocket>> {
    ListeningSocket::open(address, inherited).map_err(|error| {
        anyhow::anyhow!(
            "cannot listen on {address}: {error}; choose another address with --listen, or \
             `listen` or [[listener]] in the file"
        )
    })
}
