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

use forebay_core::judge::NoDice;
use forebay_core::key::Name;
use forebay_core::{
    Demand, Key, KeyRef, Meta, OriginFailure, PurgeState, Stale, Timestamp, Vary, Verdict, Why,
    judge, key, may_fall_back,
};

use crate::Engine;
use crate::clock::ThreadDice;
use crate::entry::Entry;
use crate::load::{Load, LoadError, Select, selected};
use crate::tier::memory::Found;

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

/// Whether a request carried something that may make its answer personal. One private answer to
/// somebody must not keep anonymous callers from sharing theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Nobody in particular asks.
    Anonymous,
    /// The request carries credentials.
    Presented,
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

/// How an answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// It was at hand, and fresh or stale within what the caller accepts.
    Hit,
    /// It was at hand, and is being refreshed behind this answer.
    Refreshing,
    /// It was not in memory, but in this lower tier.
    Tier(&'static str),
    /// Another instance has loaded it meanwhile.
    Elsewhere,
    /// This caller's load brought it.
    Led {
        /// Whether it is kept.
        stored: bool,
        /// Whether the origin said that what was stored is still good.
        unchanged: bool,
    },
    /// Somebody else's load brought it.
    Followed,
    /// It was loaded for this caller alone.
    Passed,
    /// The load failed, and this was at hand.
    Fallback,
}

impl Engine {
    /// Obtains an answer: looks, and loads what is wanting.
    ///
    /// # Errors
    /// If nothing usable is at hand and the load fails.
    pub async fn obtain<L: Load>(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        load: L,
    ) -> Result<Obtained, LoadError> {
        match self.look(ask) {
            Look::Served(obtained) => Ok(obtained),
            Look::Wanting(wanting) => self.fetch(ask, wanting, load).await,
        }
    }

    /// What is at hand. Synchronous: the hit path.
    #[inline]
    #[must_use]
    pub fn look(&self, ask: &Ask<'_>) -> Look {
        let entry = match self.memory.find(ask.key, ask.select) {
            Found::Entry(entry) => entry,
            missing => return Look::missing(ask, missing),
        };
        let now = self.clock.now();
        if ask.demand.is_plain() && entry.is_plain(now, self.trusted()) {
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
            if entry.is_plain(now, self.trusted()) {
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
        let standing = self.standing(ask.key, &entry);
        match judge(&entry.meta, ask.demand, standing, now, &mut ThreadDice) {
            Verdict::Serve => {
                // Nothing stale is served as it is to callers that do not say so.
                let may_be_stale = ask.demand.max_stale.is_some();
                let why = if may_be_stale && !entry.meta.is_fresh(now) {
                    Some(Why::Stale)
                } else if entry.meta.position < self.trusted() {
                    self.doubts(entry.meta.position).then_some(Why::Suspect)
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

    #[inline]
    pub(crate) fn standing(&self, key: KeyRef<'_>, entry: &Entry) -> PurgeState {
        if entry.meta.position >= self.trusted() {
            return entry.unpurged();
        }
        self.standing_of_old(key, entry)
    }

    /// Of an entry that something may have happened to since it departed.
    #[inline(never)]
    fn standing_of_old(&self, key: KeyRef<'_>, entry: &Entry) -> PurgeState {
        let now = self.clock.now();
        self.watch_silence(now);
        self.standing_at(key, entry, now)
    }

    /// What purges have made of an entry by now, and whether it was suspect at `when`.
    pub(crate) fn standing_at(
        &self,
        key: KeyRef<'_>,
        entry: &Entry,
        when: Timestamp,
    ) -> PurgeState {
        let reached = self.purges.read().standing(key, &entry.meta);
        let suspect = self.suspects(entry.meta.position, when);
        let bus_trust = if suspect { PurgeState::Unverified } else { PurgeState::Valid };
        reached.max(entry.unpurged()).max(bus_trust)
    }

    /// Returns the entry of a plain hit: one that is fresh for a demand without conditions. Returns
    /// `None` for every other request, which [`look`](Self::look) decides. It never starts an early
    /// refresh, and makes no random choice.
    #[must_use]
    pub fn hit(&self, ask: &Ask<'_>) -> Option<Obtained> {
        let Found::Entry(entry) = self.memory.find(ask.key, ask.select) else { return None };
        let is_plain = ask.demand.is_plain() && entry.is_plain(self.clock.now(), self.trusted());
        is_plain.then_some(Obtained { entry, via: Via::Hit, why: None })
    }

    /// Loads what a look found wanting; at once, or behind an answer that may be served meanwhile.
    ///
    /// # Errors
    /// If nothing usable is at hand and the load fails.
    pub async fn fetch<L: Load>(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        wanting: Wanting,
        load: L,
    ) -> Result<Obtained, LoadError> {
        match (wanting.verdict, wanting.prior.clone()) {
            (Verdict::ServeThenRefresh(why), Some(entry)) => {
                // A refresh is of use to others only; where nothing may be kept, it is of none.
                if !ask.demand.only_if_cached && !ask.demand.no_store {
                    self.refresh(ask, wanting, load);
                }
                Ok(Obtained { entry, via: Via::Refreshing, why: Some(why) })
            }
            // RFC 9111 section 5.2.1.7.
            _ if ask.demand.only_if_cached => Err(LoadError::NotCached),
            _ => self.board_or_go_alone(ask, wanting, load).await,
        }
    }
}

// What is not a hit is kept out of the function that hits go through, which is small so.
impl Look {
    #[inline(never)]
    fn missing(ask: &Ask<'_>, found: Found) -> Self {
        match found {
            Found::NoVariant(vary) => {
                let key = boarded_by(ask.key, ask.select, &vary);
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

/// See [`selection_of`].
pub(crate) fn selection(key: KeyRef<'_>, select: &dyn Select, entry: &Entry) -> Option<Key> {
    entry.meta.vary().map(|vary| boarded_by(key, select, vary))
}

/// What the flights of one variant are boarded by. It does not depend on the generation that is
/// stored: those who learn of the variants from an answer that is still on its way, and those who
/// find them stored, must meet.
fn boarded_by(primary: KeyRef<'_>, select: &dyn Select, vary: &Vary) -> Key {
    key::variant(primary, 0, selected(vary, select)).borrowed().to_key()
}

/// Whether an entry may be given to somebody with this demand who has waited for it.
pub(crate) fn suits(
    (meta, standing): (&Meta, PurgeState),
    demand: &Demand,
    now: Timestamp,
) -> bool {
    let verdict = judge(meta, demand, standing, now, &mut NoDice);
    matches!(verdict, Verdict::Serve | Verdict::ServeThenRefresh(_))
}
