//! Listeners for operators: opened at the start, and replaced by a reload.
//!
//! A listener answers until it is removed or the process exits.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use forebay_http::Service;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::admin::{Admin, AdminState};
use crate::admin_token::Token;
use crate::config::ListenAddress;
use crate::config::resolved::{ResolvedConfig, ResolvedListener};
use crate::listener::inherited::InheritedSockets;
use crate::listener::tls::Tls;
use crate::probe::Probe;
use crate::reload::Commit;

/// Parts that all listeners for operators use.
pub(super) struct Operators {
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) token: Arc<Token>,
    pub(super) inherited: Arc<InheritedSockets>,
}

/// Listener for operators, as configured. Equal ones are the same listener.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Admin(SocketAddr),
    FurtherAdmin(ResolvedListener),
    Probe(ListenAddress),
}

/// Sockets of one listener that are bound and not yet running.
enum Bound {
    Admins(Vec<Admin>),
    Probe(Probe),
}

/// Listeners that are bound and not yet running; there is one admin listener at least.
pub(super) struct BoundOperators(Vec<(Wanted, Bound)>);

/// Running listeners.
pub(super) struct RunningOperators {
    operators: Operators,
    state: Arc<AdminState>,
    service: Arc<Service>,
    open: Mutex<Vec<(Wanted, Vec<AbortHandle>)>>,
}

impl Wanted {
    fn all(config: &ResolvedConfig) -> impl Iterator<Item = Self> {
        let further = config.admins.iter().cloned().map(Self::FurtherAdmin);
        let probes = config.probes.iter().cloned().map(Self::Probe);
        std::iter::once(Self::Admin(config.admin)).chain(further).chain(probes)
    }

    fn address(&self) -> ListenAddress {
        match self {
            Self::Admin(address) => ListenAddress::Tcp(*address),
            Self::FurtherAdmin(listener) => listener.address.clone(),
            Self::Probe(address) => address.clone(),
        }
    }

    const fn has_tls(&self) -> bool {
        matches!(self, Self::FurtherAdmin(listener) if listener.tls)
    }
}

impl Operators {
    /// Binds the listeners of the configuration of the start.
    ///
    /// # Errors
    /// A message with the address, the cause and the option to change.
    pub(super) fn bind(&self, config: &ResolvedConfig) -> anyhow::Result<BoundOperators> {
        let bound = Wanted::all(config).map(|wanted| Ok((wanted.clone(), self.bind_one(&wanted)?)));
        Ok(BoundOperators(bound.collect::<anyhow::Result<_>>()?))
    }

    fn bind_one(&self, wanted: &Wanted) -> anyhow::Result<Bound> {
        let Self { tls, token, inherited } = self;
        Ok(match wanted {
            Wanted::Admin(address) => Bound::Admins(vec![Admin::bind(*address, token.clone())?]),
            Wanted::FurtherAdmin(listener) => {
                Bound::Admins(Admin::bind_further(listener, tls.as_deref(), token, inherited)?)
            }
            Wanted::Probe(address) => Bound::Probe(Probe::bind(address, inherited)?),
        })
    }
}

impl BoundOperators {
    /// Returns the address of the first admin listener, with the port that the system chose.
    pub(super) fn admin(&self) -> anyhow::Result<SocketAddr> {
        let mut admins = self.admins();
        let address = admins.next().and_then(Admin::address);
        address.context("the admin listener has no address")
    }

    /// Returns the URLs of the further admin listeners.
    pub(super) fn further_admins(&self) -> Vec<String> {
        self.admins().skip(1).filter_map(Admin::url).collect()
    }

    /// Returns the addresses of the probe listeners, with the ports that the system chose.
    pub(super) fn probes(&self) -> Vec<ListenAddress> {
        let probes = self.0.iter().filter_map(|(_, bound)| match bound {
            Bound::Probe(probe) => Some(probe),
            Bound::Admins(_) => None,
        });
        probes.flat_map(Probe::addresses).collect()
    }

    fn admins(&self) -> impl Iterator<Item = &Admin> {
        self.0.iter().flat_map(|(_, bound)| match bound {
            Bound::Admins(admins) => admins.as_slice(),
            Bound::Probe(_) => &[],
        })
    }

    /// Answers in tasks of their own.
    pub(super) fn run(
        self,
        operators: Operators,
        state: Arc<AdminState>,
        service: Arc<Service>,
    ) -> Arc<RunningOperators> {
        let running = RunningOperators { operators, state, service, open: Mutex::default() };
        let open = self.0.into_iter().map(|(wanted, bound)| (wanted, running.start(bound)));
        *running.open.lock() = open.collect();
        Arc::new(running)
    }
}

impl RunningOperators {
    fn start(&self, bound: Bound) -> Vec<AbortHandle> {
        match bound {
            Bound::Admins(admins) => admins
                .into_iter()
                .map(|admin| tokio::spawn(admin.run(self.state.clone())).abort_handle())
                .collect(),
            Bound::Probe(probe) => {
                vec![tokio::spawn(probe.run(self.service.clone())).abort_handle()]
            }
        }
    }

    /// Binds the listeners that a configuration adds. The step that is returned starts them, and closes
    /// those that the configuration removes; their open connections stay. `None` if that needs a
    /// restart: a listener changes without another address, or needs the first certificate.
    ///
    /// # Errors
    /// As [`Operators::bind`]. The listeners in use are unchanged.
    pub(super) fn prepare(
        self: &Arc<Self>,
        config: &ResolvedConfig,
    ) -> anyhow::Result<Option<Commit>> {
        let open: Vec<Wanted> = self.open.lock().iter().map(|(wanted, _)| wanted.clone()).collect();
        let wanted: Vec<Wanted> = Wanted::all(config).collect();
        let added: Vec<&Wanted> = wanted.iter().filter(|one| !open.contains(one)).collect();
        let is_taken = |one: &&&Wanted| open.iter().any(|known| known.address() == one.address());
        let needs_certificate = |one: &&Wanted| one.has_tls() && self.operators.tls.is_none();
        if added.iter().any(|one| is_taken(&one) || needs_certificate(one)) {
            return Ok(None);
        }
        let bound = added.into_iter().map(|one| Ok((one.clone(), self.operators.bind_one(one)?)));
        let bound = bound.collect::<anyhow::Result<Vec<_>>>()?;
        let running = self.clone();
        Ok(Some(Box::new(move || {
            let mut open = running.open.lock();
            open.extend(bound.into_iter().map(|(wanted, bound)| (wanted, running.start(bound))));
            for (_, tasks) in open.extract_if(.., |(known, _)| !wanted.contains(known)) {
                tasks.iter().for_each(AbortHandle::abort);
            }
        })))
    }
}
