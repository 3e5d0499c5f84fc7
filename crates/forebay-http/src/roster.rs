//! The sites in service, and what a reload makes of them.
//!
//! A roster never changes: a reload makes a new one from the old and puts it in its place. A
//! request looks at one roster only, so it sees all of a reload or nothing of it.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_core::Purge;

use crate::metrics::{HitCounters, Metrics};
use crate::prefix_purge::{self, PrefixError};
use crate::site::{Site, SiteSettings, Sites};

/// All sites with the counters that belong to them.
pub(crate) struct Roster {
    sites: Sites,
    hits: Vec<Member>,
}

type Member = (Arc<Site>, Arc<HitCounters>);

/// What a reload did with the sites, in numbers of sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// They are told the same as before, and keep their connections.
    pub unchanged: usize,
    /// They are told something else.
    pub changed: usize,
    /// They were not there before.
    pub added: usize,
    /// They are not there any more. What is stored for them stays until it has to make room.
    pub removed: usize,
}

impl Roster {
    pub(crate) fn new(sites: Sites, metrics: &Metrics) -> Self {
        let member = |site: &Arc<Site>| fresh(site.clone(), metrics);
        Self { hits: sites.all().iter().map(member).collect(), sites }
    }

    /// What takes the place of this one: sites are the same where they are told the same, and keep
    /// their connections where those are told the same.
    pub(crate) fn succeeded_by(&self, settings: &[SiteSettings], metrics: &Metrics) -> Self {
        let known = self.by_id();
        let hits: Vec<Member> = settings
            .iter()
            .map(|settings| match known.get(&*settings.id) {
                Some((site, hits)) => (site.succeeded_by(settings), hits.clone()),
                None => fresh(Site::new(settings.clone()), metrics),
            })
            .collect();
        let sites = Sites::new(hits.iter().map(|(site, _)| site.clone()).collect());
        Self { sites, hits }
    }

    /// How this one differs from the one before it.
    pub(crate) fn since(&self, before: &Self) -> Reloaded {
        let known = before.by_id();
        let mut reloaded = Reloaded::default();
        for (site, _) in &self.hits {
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

    /// What a purge by prefix means for its sites.
    pub(crate) fn prefix_purges(&self, prefix: &str) -> Result<Vec<Purge>, PrefixError> {
        prefix_purge::prefix_purges(&self.sites, prefix)
    }

    /// The site that a request belongs to.
    pub(crate) fn find(&self, authority: &str, path: &str) -> Option<&Arc<Site>> {
        self.sites.find(authority, path)
    }

    /// The site that a request belongs to which names no host.
    pub(crate) fn find_without_host(&self, path: &str) -> Option<&Arc<Site>> {
        self.sites.find_without_host(path)
    }

    /// The counters of one of its sites.
    pub(crate) fn counters(&self, site: &Arc<Site>) -> Option<&HitCounters> {
        let member = self.hits.iter().find(|(known, _)| Arc::ptr_eq(known, site));
        member.map(|(_, counters)| &**counters)
    }

    pub(crate) fn all(&self) -> &[Arc<Site>] {
        self.sites.all()
    }

    fn by_id(&self) -> HashMap<&str, &Member> {
        self.hits.iter().map(|member| (&*member.0.settings.id, member)).collect()
    }
}

fn fresh(site: Arc<Site>, metrics: &Metrics) -> Member {
    let counters = Arc::new(metrics.hit_counters(&site.settings.id));
    (site, counters)
}
