//! History of the last 15 minutes by second and of the last day by minute, for the dashboard.
//!
//! It is in memory, survives a reload, and has a bound of 8 MiB: the 32 busiest sites have a history
//! of their own, further ones share one.

mod global;
mod point;
mod series;
mod shown;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use forebay_http::metrics::SiteTotals;

pub(super) use global::GlobalTotals;
use global::{GLOBAL_BYTES, Global};
use point::Step;
use series::{MINUTES, SERIES_BYTES, Series};
pub(super) use shown::Span;

/// Maximum number of sites with a history of their own.
const SITES_MAX: usize = 32;

/// Name of the history that further sites share.
const OTHERS: &str = "other";

/// Id of requests that match no site.
const NO_SITE: &str = "-";

/// Maximum number of bytes of all series: of each site, of the others, and of all together.
const HISTORY_BYTES_MAX: usize = 8 << 20;

const _: () = assert!((SITES_MAX + 2) * SERIES_BYTES + GLOBAL_BYTES <= HISTORY_BYTES_MAX);

/// History of the process.
#[derive(Debug)]
pub(super) struct History {
    /// Newest second, counted since 1970.
    now: u64,
    all: Series,
    sites: Vec<SiteSeries>,
    others: Series,
    global: Global,
    last: HashMap<Box<str>, SiteTotals>,
    /// Recent numbers of responses of the sites without a history of their own.
    recent: HashMap<Box<str>, u64>,
}

#[derive(Debug)]
struct SiteSeries {
    site: Box<str>,
    series: Series,
    /// Number of responses; halved each minute.
    recent: u64,
}

impl History {
    /// Creates an empty history that begins after the second `now`.
    pub(super) fn new(now: u64) -> Self {
        Self {
            now,
            all: Series::default(),
            sites: Vec::new(),
            others: Series::default(),
            global: Global::default(),
            last: HashMap::new(),
            recent: HashMap::new(),
        }
    }

    /// Adds the totals at the second `now`. Seconds since the last call are gaps.
    pub(super) fn add(&mut self, now: u64, totals: Vec<SiteTotals>, global: GlobalTotals) {
        if now <= self.now {
            return;
        }
        let oldest = now.saturating_sub(MINUTES as u64 * 60);
        for second in (self.now + 1).max(oldest)..now {
            self.skip(second);
        }
        self.now = now;
        let (mut all, mut others) = (Step::default(), Step::default());
        let mut seen = vec![false; self.sites.len()];
        for total in totals {
            let before = self.last.entry(total.site.clone()).or_default();
            let step = Step::between(before, &total);
            *before = total;
            let site = before.site.clone();
            all.merge(&step);
            if &*site == NO_SITE {
                continue;
            }
            match self.place_of(&site, &step) {
                Some(place) => {
                    self.sites[place].series.push(now, Some(&step));
                    self.sites[place].recent += step.responses();
                    seen.resize(self.sites.len(), false);
                    seen[place] = true;
                }
                None => {
                    *self.recent.entry(site).or_default() += step.responses();
                    others.merge(&step);
                }
            }
        }
        for (site, _) in self.sites.iter_mut().zip(seen).filter(|(_, seen)| !seen) {
            site.series.push(now, None);
        }
        self.all.push(now, Some(&all));
        self.others.push(now, Some(&others));
        self.global.push(now, Some(global));
        if now.is_multiple_of(60) {
            self.exchange();
        }
    }

    fn skip(&mut self, second: u64) {
        self.all.push(second, None);
        self.others.push(second, None);
        self.global.push(second, None);
        self.sites.iter_mut().for_each(|site| site.series.push(second, None));
    }

    /// Returns the place of the history of a site. A site with responses gets one below the maximum
    /// number.
    fn place_of(&mut self, site: &str, step: &Step) -> Option<usize> {
        let place = self.sites.iter().position(|known| *known.site == *site);
        if place.is_some() || self.sites.len() >= SITES_MAX || step.responses() == 0 {
            return place;
        }
        let series = Series::default();
        self.sites.push(SiteSeries { site: site.into(), series, recent: 0 });
        Some(self.sites.len() - 1)
    }

    /// Gives the history of the least busy site to a site that is more than twice as busy.
    fn exchange(&mut self) {
        let least = self.sites.iter().enumerate().min_by_key(|(_, site)| site.recent);
        let least = least.map(|(place, site)| (place, site.recent));
        let busiest = self.recent.iter().max_by_key(|(_, recent)| **recent);
        let busiest = busiest.map(|(site, recent)| (site.clone(), *recent));
        if let (Some((place, least)), Some((site, recent))) = (least, busiest)
            && self.sites.len() >= SITES_MAX
            && recent > least * 2
        {
            self.recent.remove(&site);
            self.sites[place] = SiteSeries { site, series: Series::default(), recent };
        }
        self.sites.iter_mut().for_each(|site| site.recent /= 2);
        self.recent.values_mut().for_each(|recent| *recent /= 2);
        self.recent.retain(|_, recent| *recent > 0);
    }

    /// Returns the series of a site, of [`OTHERS`], or of all without a site.
    fn series(&self, site: Option<&str>) -> Option<&Series> {
        match site {
            None => Some(&self.all),
            Some(OTHERS) => Some(&self.others),
            Some(site) => self.sites.iter().find(|s| *s.site == *site).map(|site| &site.series),
        }
    }
}
