//! The methods that the published text compares, each as small as its description.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use forebay_testkit::traffic::LIFETIME;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::database::Listing;
use crate::rivals::Rival;

/// Way in which a cache treats an entry that expires.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// Each miss loads.
    Uncoalesced,
    /// One miss loads, others wait for it and look again.
    Lock,
    /// The published rule: some hits before the expiry load and wait for it, without a lock.
    XFetch,
    /// The first hit in the last tenth of the lifetime causes a load in the background; misses
    /// take the lock.
    Threshold,
}

/// Names in tables.
pub(super) const METHODS: &[(&str, Method)] = &[
    ("uncoalesced", Method::Uncoalesced),
    ("lock", Method::Lock),
    ("XFetch as printed", Method::XFetch),
    ("fixed threshold, 90 %", Method::Threshold),
];

/// Share of the lifetime after which the fixed threshold refreshes.
const THRESHOLD: f64 = 0.9;

impl Method {
    pub(super) fn described(self, name: &str) -> Rival {
        let (why, documentation) = match self {
            Self::Uncoalesced => {
                ("a lifetime and nothing else", "the state before, in the article")
            }
            Self::Lock => ("the article's second alternative", "the article, section on locks"),
            Self::XFetch => (
                "-delta * beta * ln(rand) >= remaining lifetime, beta 1; the elected caller loads and \
                 waits",
                "the article's perGet; Vattani, Chierichetti, Lowenstein: Optimal Probabilistic Cache \
                 Stampede Prevention, VLDB 2015",
            ),
            Self::Threshold => (
                "a background load by the first hit in the last tenth of the lifetime, as FusionCache's \
                 EagerRefreshThreshold of 0.9",
                "https://github.com/ZiggyCreatures/FusionCache/blob/main/docs/EagerRefresh.md",
            ),
        };
        Rival {
            name: name.to_owned(),
            version: "implemented in this benchmark".to_owned(),
            settings: format!("lifetime {LIFETIME:?}"),
            why,
            documentation,
            missing: None,
        }
    }
}

/// A stored page.
#[derive(Clone, Copy)]
struct Stored {
    expires_at: Instant,
    /// Duration of its load.
    delta: Duration,
}

#[derive(Default)]
struct Counts {
    hits: u64,
    misses: u64,
    foreground: u64,
    loads: u64,
}

/// A cache of pages with one method.
pub(super) struct Policy {
    method: Method,
    pages: Mutex<HashMap<i64, Stored>>,
    /// Locks of the pages, for [`Method::Lock`] and [`Method::Threshold`].
    locks: Mutex<HashMap<i64, Arc<tokio::sync::Mutex<()>>>>,
    counts: Mutex<Counts>,
}

impl Policy {
    pub(super) fn new(method: Method) -> Self {
        let (pages, locks) = (Mutex::default(), Mutex::default());
        Self { method, pages, locks, counts: Mutex::default() }
    }

    pub(super) fn start_over(&self) {
        *self.counts.lock() = Counts::default();
    }

    /// Hits, misses, foreground loads, and all loads.
    pub(super) fn counts(&self) -> [u64; 4] {
        let counts = self.counts.lock();
        [counts.hits, counts.misses, counts.foreground, counts.loads]
    }

    pub(super) async fn ask<F, Fut>(self: Arc<Self>, page: i64, query: F) -> Result<()>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<Listing>> + Send,
    {
        let fresh = self.fresh(page);
        let refreshes = fresh.is_some_and(|stored| self.refreshes(stored));
        match (self.method, fresh.is_some()) {
            (Method::Threshold, true) => {
                self.counts.lock().hits += 1;
                if refreshes {
                    tokio::spawn(async move { self.refresh(page, query).await });
                }
                Ok(())
            }
            (_, true) if !refreshes => {
                self.counts.lock().hits += 1;
                Ok(())
            }
            (Method::Lock | Method::Threshold, _) => {
                self.counts.lock().misses += 1;
                let lock = self.lock(page);
                let _held = lock.lock().await;
                match self.fresh(page) {
                    Some(_) => Ok(()),
                    None => self.load(page, query).await,
                }
            }
            (Method::Uncoalesced | Method::XFetch, _) => {
                self.counts.lock().misses += 1;
                self.load(page, query).await
            }
        }
    }

    fn fresh(&self, page: i64) -> Option<Stored> {
        let stored = self.pages.lock().get(&page).copied();
        stored.filter(|stored| Instant::now() < stored.expires_at)
    }

    fn refreshes(&self, stored: Stored) -> bool {
        let remaining = stored.expires_at.saturating_duration_since(Instant::now()).as_secs_f64();
        match self.method {
            Method::XFetch => {
                let drawn = (1.0 - fastrand::f64()).ln();
                -stored.delta.as_secs_f64() * drawn >= remaining
            }
            Method::Threshold => remaining <= LIFETIME.as_secs_f64() * (1.0 - THRESHOLD),
            Method::Uncoalesced | Method::Lock => false,
        }
    }

    fn lock(&self, page: i64) -> Arc<tokio::sync::Mutex<()>> {
        self.locks.lock().entry(page).or_default().clone()
    }

    /// Loads in the background, unless that happens already.
    async fn refresh<F, Fut>(&self, page: i64, query: F) -> Result<()>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<Listing>>,
    {
        let lock = self.lock(page);
        let Ok(_held) = lock.try_lock() else { return Ok(()) };
        if self.fresh(page).is_some_and(|stored| !self.refreshes(stored)) {
            return Ok(());
        }
        self.counts.lock().loads += 1;
        self.query(page, query).await
    }

    async fn load<F, Fut>(&self, page: i64, query: F) -> Result<()>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<Listing>>,
    {
        {
            let mut counts = self.counts.lock();
            counts.loads += 1;
            counts.foreground += 1;
        }
        self.query(page, query).await
    }

    async fn query<F, Fut>(&self, page: i64, query: F) -> Result<()>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<Listing>>,
    {
        let begun = Instant::now();
        query().await?;
        let stored = Stored { expires_at: Instant::now() + LIFETIME, delta: begun.elapsed() };
        self.pages.lock().insert(page, stored);
        Ok(())
    }
}
