//! The story of one demand: look, judge, board, wait or lead, and go.
//!
//! ```text
//! ask ──► look ──► verdict ─┬─ serve ─────────────────────────────► obtained
//!                           ├─ serve, and let one flight refresh ──► obtained
//!                           └─ load ──► board ─┬─ follow ──► landed ──► obtained, or look again
//!                                              └─ lead ──► a task of its own ──► obtained
//! ```
//!
//! What comes behind `load` is in `wait.rs`, and what goes on behind an answer in `refresh.rs`.
//! The way back from `landed` to `look` is the only loop. It is bounded; then the caller goes
//! alone.

use std::cell::Cell;
use std::sync::Arc;

use forebay_core::key::Name;
use forebay_core::{
    Demand, Key, KeyRef, OriginFailure, Position, PurgeState, Stale, Timestamp, Verdict, Why,
    judge, key, may_fall_back,
};

use crate::engine::Engine;
use crate::entry::select::{Credentials, Select, flight_key, selection};
use crate::entry::{Entry, suits};
use crate::flight::pass_markers::Marked;
use crate::flight::via::Via;
use crate::memory::Found;
use crate::runtime::clock::ThreadDice;

/// What one caller wants. Nothing in it is owned: most callers need only a look.
pub struct Ask<'a> {
    /// The primary key.
    pub key: KeyRef<'a>,
    /// What will do.
    pub demand: &'a Demand,
    /// The fields that choose among variants.
    pub select: &'a dyn Select,
    /// Whether the caller is somebody.
    pub credentials: Credentials,
    /// With whom it may share a load.
    pub coalesce: Coalesce,
}

/// With whom a load may be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Coalesce {
    /// With nobody: the caller goes alone.
    Nowhere,
    /// With callers of this instance: no other one is waited for.
    Here,
    /// With those of other instances, too, where there are any.
    #[default]
    Everywhere,
}

impl Coalesce {
    /// Everywhere or nowhere.
    #[must_use]
    pub const fn whether(it_may: bool) -> Self {
        if it_may { Self::Everywhere } else { Self::Nowhere }
    }

    /// The callers of this instance among those it may be shared with.
    #[must_use]
    pub const fn within_instance(self) -> Self {
        match self {
            Self::Nowhere => Self::Nowhere,
            Self::Here | Self::Everywhere => Self::Here,
        }
    }
}

/// The moment when a caller came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The flight that had departed last.
    pub(crate) newest: u64,
    /// Where the log of purges stood.
    pub(crate) position: Position,
    /// The time.
    pub(crate) at: Timestamp,
}

/// What a look found.
pub enum Look {
    /// Good enough as it is.
    Served(Obtained),
    /// Something has to be loaded, now or behind the answer.
    Wanting(Wanting),
}

/// What a look found wanting.
#[derive(Debug)]
pub struct Wanting {
    pub(crate) verdict: Verdict,
    pub(crate) prior: Option<Arc<Entry>>,
    /// What to board by, where it is known that the key has variants.
    pub(crate) key: Option<Key>,
}

impl Wanting {
    /// Why what is stored does not do.
    #[must_use]
    pub const fn why(&self) -> Why {
        match self.verdict {
            // A verdict to serve is not wanting; the reason is never asked for.
            Verdict::Serve => Why::UriMiss,
            Verdict::ServeThenRefresh(why) | Verdict::Load { why, .. } => why,
        }
    }

    /// Whether what is stored will do for now: then nobody waits, whatever the load brings.
    #[must_use]
    pub const fn is_served(&self) -> bool {
        matches!(self.verdict, Verdict::ServeThenRefresh(_))
    }

    /// Whether something is stored that a load may confirm, or may be answered with if it fails.
    #[must_use]
    pub const fn has_prior(&self) -> bool {
        self.prior.is_some()
    }

    /// The same for a caller whom what is stored does not help, although it is good enough: it
    /// lacks what this one wants of it.
    #[must_use]
    pub fn lacking(mut self) -> Self {
        self.verdict = Verdict::Load { why: Why::Partial, may_fall_back: false };
        self
    }

    /// Whether this entry is known not to help.
    pub(crate) fn is_lacking(&self, entry: &Arc<Entry>) -> bool {
        self.why() == Why::Partial && self.is_about(entry)
    }

    /// Whether the caller is answered before anything is loaded: the load is for others.
    #[must_use]
    pub const fn is_served_first(&self) -> bool {
        matches!(self.verdict, Verdict::ServeThenRefresh(_))
    }

    /// What is stored and does not do, unless it was purged.
    #[must_use]
    pub const fn prior(&self) -> Option<&Arc<Entry>> {
        self.prior.as_ref()
    }

    /// The same, for one of several questions that can be asked about one entry: only those who
    /// ask the same one wait for each other. `question` becomes a part of what they board by.
    #[must_use]
    pub fn about(mut self, key: KeyRef<'_>, question: &[u8]) -> Self {
        let key = self.key.as_ref().map_or(key, Key::borrowed);
        self.key = Some(key::question(key, question).borrowed().to_key());
        self
    }

    /// Whether something is stored that its origin lets nobody have without it.
    #[must_use]
    pub fn must_not_be_stale(&self) -> bool {
        let forbids = |prior: &Arc<Entry>| prior.meta.lifetime().stale == Stale::Forbidden;
        self.prior.as_ref().is_some_and(forbids)
    }

    /// The window may have closed while the load was failing.
    pub(crate) fn fallback(&self, trouble: OriginFailure, now: Timestamp) -> Option<Arc<Entry>> {
        let prior = self.prior.clone();
        match self.verdict {
            Verdict::Load { may_fall_back: allowed, .. } => {
                prior.filter(|entry| allowed && may_fall_back(&entry.meta, trouble, now))
            }
            Verdict::Serve | Verdict::ServeThenRefresh(_) => prior,
        }
    }

    pub(crate) fn is_about(&self, entry: &Arc<Entry>) -> bool {
        self.prior.as_ref().is_some_and(|prior| Arc::ptr_eq(prior, entry))
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Obtained {
    /// The entry; its body may still flow.
    pub entry: Arc<Entry>,
    /// How it came.
    pub via: Via,
    /// Why it was not a fresh hit.
    pub why: Option<Why>,
}

impl Engine {
    /// What is at hand. Synchronous: the hit path.
    #[inline]
    #[must_use]
    pub fn look(&self, ask: &Ask<'_>) -> Look {
        let entry = match self.memory.find(ask.key, ask.select) {
            Found::Entry(entry) => entry,
            missing => return Look::missing(ask, missing),
        };
        let now = self.clock.now();
        if ask.demand.is_plain() && entry.is_plain(now, self.log.trusted()) {
            return Look::Served(Obtained { entry, via: Via::Hit, why: None });
        }
        self.judged(ask, entry, now)
    }

    /// What is needed of an entry that is good for everybody, which nearly every hit finds:
    /// `read` sees it within the lock of the store, so that not even the entry's own pointer is
    /// cloned. It must be quick, and must not ask any cache. Nothing if there is no such entry;
    /// then there is everything left to do, and [`look`](Self::look) begins anew.
    #[inline]
    #[must_use]
    pub fn glance<T>(
        &self,
        name: Name<'_>,
        demand: &Demand,
        read: impl Fn(&Entry) -> T,
    ) -> Option<T> {
        if !demand.is_plain() {
            return None;
        }
        let (now, seen) = (self.clock.now(), Cell::new(None));
        self.memory.see(name, |entry| {
            if entry.is_plain(now, self.log.trusted()) {
                let before = seen.replace(Some(read(entry)));
                // There is one entry under a name, and nothing here to be let go of with each hit.
                debug_assert!(before.is_none(), "an entry is seen once");
                std::mem::forget(before);
            }
        });
        seen.into_inner()
    }

    #[inline(never)]
    fn judged(&self, ask: &Ask<'_>, entry: Arc<Entry>, now: Timestamp) -> Look {
        let standing = self.log.state_of(ask.key, &entry);
        match judge(&entry.meta, ask.demand, standing, now, &mut ThreadDice) {
            Verdict::Serve => {
                // Nothing stale is served as it is to callers that do not say so.
                let may_be_stale = ask.demand.max_stale.is_some();
                let why = if may_be_stale && !entry.meta.is_fresh(now) {
                    Some(Why::Stale)
                } else if entry.meta.position < self.log.trusted() {
                    self.log.doubts(entry.meta.position).then_some(Why::Suspect)
                } else {
                    None
                };
                Look::Served(Obtained { entry, via: Via::Hit, why })
            }
            verdict => Look::judged(ask, (entry, standing), verdict),
        }
    }

    /// Wants more of an answer than there is to it: see [`Wanting::lacking`].
    #[must_use]
    pub fn lacking(&self, ask: &Ask<'_>, obtained: Obtained) -> Wanting {
        let key = selection_of(ask, &obtained.entry);
        let verdict = Verdict::Load { why: Why::Partial, may_fall_back: false };
        Wanting { verdict, prior: Some(obtained.entry), key }
    }

    /// Returns the entry that memory holds for a request, usable or not.
    pub(crate) fn current(&self, ask: &Ask<'_>) -> Option<Arc<Entry>> {
        match self.memory.find(ask.key, ask.select) {
            Found::Entry(entry) => Some(entry),
            Found::NoVariant(_) | Found::Nothing => None,
        }
    }

    /// Returns the moment at which a request arrives.
    pub(crate) fn arrival(&self) -> Arrival {
        let (newest, position) = (self.flights.newest(), self.log.position());
        Arrival { newest, position, at: self.clock.now() }
    }

    /// Returns `true` while requests for this key with such credentials go alone because an answer
    /// to one of them could not be shared.
    #[must_use]
    pub fn is_known_private(&self, key: KeyRef<'_>, credentials: Credentials) -> bool {
        let markers = &self.passes[credentials as usize];
        markers.standing(key, self.clock.now()) == Some(Marked::Private)
    }

    /// Whether an entry will do that was brought while the caller waited. If its flight departed
    /// after the caller had come, it is as good as a load of its own, whatever age or validation
    /// is demanded. If it departed before a purge, it is not for those who came after the purge.
    pub(crate) fn is_for(&self, ask: &Ask<'_>, entry: &Entry, arrival: Arrival) -> bool {
        let relaxed = Demand::default();
        let demand = if entry.flight > arrival.newest { &relaxed } else { ask.demand };
        let standing = if entry.meta.position >= arrival.position {
            entry.unpurged()
        } else {
            // What was good when the caller came is good enough for it.
            self.log.state_at(ask.key, entry, arrival.at)
        };
        suits(&entry.meta, standing, demand, self.clock.now())
    }
}

// What is not a hit is kept out of the function that hits go through, which is small so.
impl Look {
    #[inline(never)]
    fn missing(ask: &Ask<'_>, found: Found) -> Self {
        match found {
            Found::NoVariant(vary) => {
                let key = flight_key(ask.key, ask.select, &vary);
                Self::wanting(Why::VaryMiss, Some(key))
            }
            Found::Nothing | Found::Entry(_) => Self::wanting(Why::UriMiss, None),
        }
    }

    #[inline(never)]
    fn judged(
        ask: &Ask<'_>,
        (entry, standing): (Arc<Entry>, PurgeState),
        verdict: Verdict,
    ) -> Self {
        // What a purge has removed is gone: it is not asked about, and not revived.
        let key = selection_of(ask, &entry);
        let prior = (standing != PurgeState::Removed).then_some(entry);
        Self::Wanting(Wanting { verdict, prior, key })
    }

    const fn wanting(why: Why, key: Option<Key>) -> Self {
        let verdict = Verdict::Load { why, may_fall_back: false };
        Self::Wanting(Wanting { verdict, prior: None, key })
    }
}

/// The values of an entry's selecting fields in this request, as a key; nothing if it has no
/// variants.
pub(crate) fn selection_of(ask: &Ask<'_>, entry: &Entry) -> Option<Key> {
    selection(ask.key, ask.select, entry)
}
