//! Table of the active sites, and its replacement by a reload.
//!
//! A site table is immutable: a reload builds a new table from the old one and replaces it. A
//! request reads one table only, so it sees all of a reload or none of it.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_core::Purge;
use forebay_semantics::client_address::ProxyTrust;

use crate::metrics::Metrics;
use crate::record::SiteSlot;
use crate::settings::SiteSettings;
use crate::site::prefix_purge::{self, PrefixError};
use crate::site::{Site, Sites};

/// All active sites with their slots in the metrics.
pub(crate) struct SiteTable {
    sites: Sites,
    members: Vec<Member>,
    trust: Arc<ProxyTrust>,
}

type Member = (Arc<Site>, SiteSlot);

/// Result of a configuration reload, in numbers of sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Number of sites with unchanged settings, which keep their connections.
    pub unchanged: usize,
    /// Number of sites with changed settings and an id that existed before.
    pub changed: usize,
    /// Number of sites with a new id.
    pub added: usize,
    /// Number of sites whose id is gone. Their stored entries remain until they are evicted or
    /// purged.
    pub removed: usize,
}

impl SiteTable {
    pub(crate) fn new(sites: Sites, metrics: &Metrics) -> Self {
        let member = |site: &Arc<Site>| new_member(site.clone(), metrics);
        let trust = Arc::default();
        Self { members: sites.all().iter().map(member).collect(), sites, trust }
    }

    /// Returns the proxies that may name the client of a request.
    pub(crate) fn trust(&self) -> &ProxyTrust {
        &self.trust
    }

    /// Returns this table with other trusted proxies.
    pub(crate) fn with_trust(&self, trust: Arc<ProxyTrust>) -> Self {
        Self { sites: self.sites.clone(), members: self.members.clone(), trust }
    }

    /// Returns the table that replaces this one. A site with unchanged settings is reused. A
    /// changed site keeps its connections if its origin settings are unchanged.
    pub(crate) fn reconfigured(&self, settings: &[SiteSettings], metrics: &Metrics) -> Self {
        let known = self.by_id();
        let members: Vec<Member> = settings
            .iter()
            .map(|settings| match known.get(&*settings.id) {
                Some((site, slot)) => (site.reconfigured(settings), *slot),
                None => new_member(Site::new(settings.clone()), metrics),
            })
            .collect();
        let sites = Sites::new(members.iter().map(|(site, _)| site.clone()).collect());
        Self { sites, members, trust: self.trust.clone() }
    }

    /// Returns the differences from the table `before`.
    pub(crate) fn changes_since(&self, before: &Self) -> Reloaded {
        let known = before.by_id();
        let mut reloaded = Reloaded::default();
        for (site, _) in &self.members {
            match known.get(&*site.settings.id) {
                Some((old, _)) if Arc::ptr_eq(old, site) => reloaded.unchanged += 1,
                Some(_) => reloaded.changed += 1,
                None => reloaded.added += 1,
            }
        }
        let here = self.by_id();
        reloaded.removed = known.keys().filter(|id| !here.contains_key(*id)).count();
        reloaded
    }

    /// Returns the purges of its sites for a purge by prefix.
    pub(crate) fn prefix_purges(&self, prefix: &str) -> Result<Vec<Purge>, PrefixError> {
        prefix_purge::prefix_purges(&self.sites, prefix)
    }

    /// Returns the purges of one site, or of all, for a purge by a regular expression.
    pub(crate) fn regex_purges(
        &self,
        expression: &str,
        site: Option<&str>,
    ) -> Result<Vec<Purge>, PrefixError> {
        prefix_purge::regex_purges(&self.sites, expression, site)
    }

    /// Returns the site for a host and path.
    pub(crate) fn find(&self, authority: &str, path: &str) -> Option<&Arc<Site>> {
        self.sites.find(authority, path)
    }

    /// Returns the site for a request without a host.
    pub(crate) fn find_without_host(&self, path: &str) -> Option<&Arc<Site>> {
        self.sites.find_without_host(path)
    }

    /// Returns the slot of a site of this table.
    pub(crate) fn slot(&self, site: &Arc<Site>) -> SiteSlot {
        let member = self.members.iter().find(|(known, _)| Arc::ptr_eq(known, site));
        member.map_or(SiteSlot::NONE, |(_, slot)| *slot)
    }

    pub(crate) fn all(&self) -> &[Arc<Site>] {
        self.sites.all()
    }

    fn by_id(&self) -> HashMap<&str, &Member> {
        self.members.iter().map(|member| (&*member.0.settings.id, member)).collect()
    }
}

fn new_member(site: Arc<Site>, metrics: &Metrics) -> Member {
    let slot = metrics.slot(&site.settings.id);
    (site, slot)
}
