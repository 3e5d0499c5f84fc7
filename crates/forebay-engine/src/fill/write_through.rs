//! Writing through to the lower tiers: each of them is one more reader of a body, and makes an
//! entry visible only when all of it is there and no purge has come in between.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Meta, Vary, key};
use futures_util::future::join_all;

use crate::entry::Entry;
use crate::entry::body::{BodyReader, DraftWriter, Flow};
use crate::entry::select::selected;
use crate::entry::select::selection;
use crate::fill::Landing;
use crate::fill::cluster_lease::Right;
use crate::flight::load::Load;
use crate::runtime::event::Event;
use crate::tiers::error::TierError;
use crate::tiers::lease::Outcome;
use crate::tiers::lower::{Deadline, LowerTier};
use crate::tiers::tier::{LeasedWrite, Writer};

/// Two entries whose births are closer than this count as one: what a tier gives back seems older
/// than it is by what its answer was under way.
const CLOSE: Duration = Duration::from_millis(100);

/// Where an entry belongs in a lower tier.
pub(crate) struct Place {
    key: Key,
    /// The family that it is a variant of: one record under the primary key tells of all.
    family: Option<(Vary, u64)>,
    /// What the lease is for when it is filled.
    boarded: Key,
}

/// An entry, and its head as tiers are to have it.
#[derive(Clone, Copy)]
struct Written<'a> {
    place: &'a Place,
    entry: &'a Entry,
    /// Nothing if it could not be written anew.
    head: Option<&'a Bytes>,
}

/// Why a tier has not got an entry.
enum Left {
    /// It was purged, outrun or withdrawn.
    Refused,
    /// The tier does not take it.
    Out,
}

/// What one tier reads, to write it.
pub(crate) struct Intake {
    reader: BodyReader,
    /// How others learn what the tier can give back of a body that still flows.
    drafting: Option<DraftWriter>,
}

impl<L: Load> Landing<L> {
    /// The readers of all tiers that are to have a body that flows. The uppermost that can gives
    /// back what it has written, for those who are behind.
    pub(crate) fn intakes(&self, (entry, flow): (&Entry, &Arc<Flow>)) -> Vec<Intake> {
        let drafts = self.targets().iter().position(|lower| lower.tier.has_drafts());
        let intake = |above| Intake {
            reader: entry.body.reader(),
            drafting: (drafts == Some(above)).then(|| DraftWriter::begin(flow)),
        };
        (0..self.targets().len()).map(intake).collect()
    }

    /// Nothing if the generation of its family is not known yet: something else stands in memory,
    /// and stays until the body is whole.
    pub(crate) fn place(&self, meta: &Meta) -> Option<Place> {
        let flight = self.seat.flight();
        let (primary, boarded) = (flight.primary(), flight.key().clone());
        let Some(vary) = meta.vary() else {
            return Some(Place { key: primary.clone(), family: None, boarded });
        };
        let generation = self.engine.memory.generation(primary.borrowed(), vary)?;
        let fields = selected(vary, &self.load);
        let key = key::variant(primary.borrowed(), generation, fields).borrowed().to_key();
        Some(Place { key, family: Some((vary.clone(), generation)), boarded })
    }

    /// Writes an entry that is whole.
    pub(crate) async fn write_whole(&self, entry: &Entry) {
        if !self.has_targets() {
            return;
        }
        let Some(place) = self.place(&entry.meta) else { return };
        let intake = || Intake { reader: entry.body.reader(), drafting: None };
        let intakes = self.targets().iter().map(|_| intake()).collect();
        self.write_all((place, entry), intakes).await;
    }

    /// Writes an entry to all tiers that are to have it, with a reader of its body for each.
    pub(crate) async fn write_all(&self, written: (Place, &Entry), intakes: Vec<Intake>) {
        let (mut place, entry) = written;
        self.narrow_to(&mut place, entry).await;
        let head = self.head_of(entry);
        let written = Written { place: &place, entry, head: head.as_ref() };
        let targets = self.targets();
        let pairs = targets.iter().zip(intakes);
        join_all(pairs.map(|(lower, intake)| self.write_one(lower, written, intake))).await;
    }

    /// What comes from memory may have to be written anew. A door that panics over it has failed.
    fn head_of(&self, entry: &Entry) -> Option<Bytes> {
        if let Some(bytes) = entry.head.bytes() {
            return Some(bytes.clone());
        }
        let writing = AssertUnwindSafe(|| self.load.written(&entry.head));
        catch_unwind(writing).ok().flatten()
    }

    /// Before it is filled, the lease of a key that turned out to have variants becomes that of
    /// the one that was loaded.
    async fn narrow_to(&self, place: &mut Place, entry: &Entry) {
        let flight = self.seat.flight();
        let primary = flight.primary();
        if place.boarded == *primary
            && let Some((vary, _)) = &place.family
            && let Some(selection) = selection(primary.borrowed(), &self.load, entry)
        {
            self.narrow(vary, selection.borrowed()).await;
            place.boarded = selection;
        }
    }

    /// Whoever waits in other instances is told as soon as it is known that nothing will be there.
    async fn write_one(&self, lower: &LowerTier, written: Written<'_>, mut intake: Intake) {
        let left = self.write(lower, written, &mut intake).await.err();
        if lower.is_shared() {
            match left {
                // The tier has given it back.
                None => _ = self.seat.flight().give_back(),
                Some(Left::Refused) => self.give_back(Outcome::Abandoned).await,
                Some(Left::Out) => self.give_back(Outcome::Failed).await,
            }
        }
        // Who comes now must not count on what the tier has given up.
        if intake.drafting.is_some_and(|drafting| !drafting.end()) {
            self.seat.close_boarding();
        }
    }

    async fn write(
        &self,
        lower: &LowerTier,
        Written { place, entry, head }: Written<'_>,
        intake: &mut Intake,
    ) -> Result<(), Left> {
        let whole = entry.body.bytes();
        let bytes = whole.map_or(0, |whole| whole.len() as u64);
        let turn = head.and_then(|head| Some((head, self.engine.lower.turn(bytes)?)));
        let Some((head, _turn)) = turn else {
            self.engine.observer.observe(Event::TierSkipped(lower.name()));
            return Err(Left::Out);
        };
        // A body that still flows waits for nobody: others read it at the pace of the slowest.
        let is_late = match whole {
            Some(_) => lower.awaited().await,
            None => Some(false),
        };
        let is_late = is_late.ok_or(Left::Out)?;
        let primary = self.seat.flight().primary().borrowed();
        if !lower.is_clear(primary, &mut Deadline::within(lower.budget().write)).await {
            return Err(Left::Out);
        }
        let key = place.key.borrowed();
        let writing = (key, &entry.meta, head);
        let writer = self.begin(lower, writing, (place, true)).await.ok_or(Left::Out)?;
        // Asked behind the beginning: who begins later than that is not overtaken by this.
        if is_late && self.is_outrun(lower, (key, &entry.meta)).await {
            return Err(Left::Refused);
        }
        let (writer, taken) = intake.fill(lower, writer).await.ok_or(Left::Out)?;
        let draft = writer.draft();
        let committed = self.commit(lower, (place, &entry.meta), writer).await;
        // All of it is written now, the last piece as well.
        if let Some(drafting) = &intake.drafting {
            drafting.grew(taken, draft.as_ref());
        }
        committed
    }

    async fn begin(
        &self,
        lower: &LowerTier,
        (key, meta, head): (KeyRef<'_>, &Meta, &Bytes),
        (place, is_last): (&Place, bool),
    ) -> Option<Box<dyn Writer>> {
        let primary = self.seat.flight().primary().borrowed();
        match &self.right {
            Right::Leased(permit) if lower.is_shared() => {
                let (boarded, token) = (place.boarded.borrowed(), permit.token());
                let lease = LeasedWrite { primary, boarded, token, is_last };
                run(lower, "begin", || lower.tier.begin_leased(key, (meta, head), lease)).await
            }
            Right::Put => run(lower, "begin", || lower.tier.begin_put(key, meta, head)).await,
            _ => run(lower, "begin", || lower.tier.begin(key, meta, head)).await,
        }
    }

    /// Whether there is something by now that is not older, or that cannot be told from it.
    async fn is_outrun(&self, lower: &LowerTier, (key, meta): (KeyRef<'_>, &Meta)) -> bool {
        let mut deadline = Deadline::within(lower.budget().read);
        let there = lower.run("open", &mut deadline, || lower.tier.open(key)).await;
        there.is_none_or(|stored| {
            stored.is_some_and(|stored| stored.meta.born.plus(CLOSE) >= meta.born)
        })
    }

    /// A purge that comes first finds nothing committed later; one that comes later waits until
    /// this is over, and removes it.
    async fn commit(
        &self,
        lower: &LowerTier,
        (place, meta): (&Place, &Meta),
        writer: Box<dyn Writer>,
    ) -> Result<(), Left> {
        let _committing = self.seat.flight().committing.lock().await;
        if self.seat.unless_cut(|| self.may_store(meta)) != Some(true) {
            return Err(Left::Refused);
        }
        if let Some(family) = &place.family {
            self.commit_family(lower, (place, family), meta).await.ok_or(Left::Out)?;
        }
        let mut deadline = Deadline::within(lower.budget().write);
        let committed = lower.attempt("commit", &mut deadline, || writer.commit()).await;
        if matches!(committed, Err(TierError::Outdated)) {
            let primary = self.seat.flight().primary().borrowed();
            self.seat.unless_cut(|| self.engine.forget_outdated(primary, meta));
            return Err(Left::Refused);
        }
        committed.map_err(|_| Left::Out)
    }

    /// The record under the primary key that tells which fields select, and the generation.
    async fn commit_family(
        &self,
        lower: &LowerTier,
        (place, (vary, generation)): (&Place, &(Vary, u64)),
        member: &Meta,
    ) -> Option<()> {
        let mut meta = Meta::new(member.departed, member.lifetime());
        meta.born = member.born;
        meta.set_vary(Some(vary.clone()));
        // It is kept for as long as what it leads to.
        meta.set_validator(member.validator().cloned());
        let head = Bytes::copy_from_slice(&generation.to_le_bytes());
        let primary = self.seat.flight().primary().borrowed();
        let writer = self.begin(lower, (primary, &meta, &head), (place, false)).await?;
        run(lower, "commit", || writer.commit()).await
    }
}

impl Intake {
    /// Writes a body, and tells how long it was. Nothing if it broke off, or the tier failed: then
    /// nothing is exposed.
    async fn fill(
        &mut self,
        lower: &LowerTier,
        mut writer: Box<dyn Writer>,
    ) -> Option<(Box<dyn Writer>, u64)> {
        let mut taken = 0;
        while let Some(piece) = self.reader.next().await {
            let piece = piece.ok()?;
            taken += piece.len() as u64;
            run(lower, "write", || writer.write(piece)).await?;
            if let Some(drafting) = &self.drafting {
                drafting.grew(taken, writer.draft().as_ref());
            }
        }
        Some((writer, taken))
    }
}

async fn run<T, F>(lower: &LowerTier, op: &'static str, begin: impl FnOnce() -> F) -> Option<T>
where
    F: Future<Output = Result<T, TierError>>,
{
    lower.run(op, &mut Deadline::within(lower.budget().write), begin).await
}
