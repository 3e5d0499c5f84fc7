//! Writing to the lower tiers: each of them is one more reader of a body, and makes an entry visible
//! only when it is complete and no purge came in between.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Meta, key};
use futures_util::future::join_all;
use smallvec::SmallVec;

use super::Fill;
use super::cluster_lease::WritePermission;
use super::lower_lookup::Family;
use super::store::StoreResult;
use crate::entry::Entry;
use crate::entry::body::{BodyReader, DraftWriter, Flow};
use crate::entry::select::{selected, selection};
use crate::flight::load::Load;
use crate::runtime::event::{Event, LeaseEvent};
use crate::tiers::error::TierError;
use crate::tiers::lease::Release;
use crate::tiers::lower::{Deadline, LowerTier};
use crate::tiers::tier::{LeasedWrite, WriteMode, Writer};

/// Maximum difference between the creation times of two entries that count as one: an entry read
/// from a tier seems older by the delay of the read.
const SAME_ENTRY: Duration = Duration::from_millis(100);

/// Record of an entry in lower tiers.
pub(super) struct Record {
    key: Key,
    /// Family of which the entry is a variant. One record under the primary key describes it.
    family: Option<Family>,
    /// Key of the lease that the write releases.
    lease_key: Key,
}

/// Entry with its record and its head as tiers store it.
#[derive(Clone, Copy)]
struct Written<'a> {
    record: &'a Record,
    entry: &'a Entry,
    /// `None` if the front end could not encode the head.
    head: Option<&'a Bytes>,
}

/// One record to be begun: key, metadata and head.
#[derive(Clone, Copy)]
struct Row<'a> {
    key: KeyRef<'a>,
    meta: &'a Meta,
    head: &'a Bytes,
    /// `true` if its commit releases the lease.
    is_last: bool,
}

/// Reason why a tier has not stored an entry.
enum NotWritten {
    /// The entry was purged, or a newer one is stored, or the lease was withdrawn.
    Refused,
    /// The tier failed, or takes no more.
    Failed,
}

/// Reader of one tier.
pub(super) struct TierReader {
    reader: BodyReader,
    /// Reports how much of a streaming body the tier can return.
    draft: Option<DraftWriter>,
}

impl<L: Load> Fill<L> {
    /// Returns the lower tiers that are to store the entry: those above the one where it was found,
    /// or all if it was loaded.
    fn targets(&self) -> SmallVec<[&LowerTier; 2]> {
        let all = self.leading.engine.lower.all();
        let above = self.found.as_ref().map_or(all, |found| &all[..found.position.tier_index]);
        let primary = self.leading.primary();
        let may = |lower: &&LowerTier| {
            lower.takes(primary) && self.permission.includes(lower.is_shared())
        };
        above.iter().filter(may).collect()
    }

    pub(super) fn has_targets(&self) -> bool {
        !self.targets().is_empty()
    }

    /// Creates the readers of all tiers that are to store a streaming body. The uppermost tier that
    /// can returns the written part to slow readers.
    pub(super) fn tier_readers(&self, entry: &Entry, flow: &Arc<Flow>) -> Vec<TierReader> {
        let drafting = self.targets().iter().position(|lower| lower.tier().has_drafts());
        let reader = |index| TierReader {
            reader: entry.body.reader(),
            draft: (drafting == Some(index)).then(|| DraftWriter::begin(flow)),
        };
        (0..self.targets().len()).map(reader).collect()
    }

    /// Returns the record of an entry. `None` if the generation of its family is not known yet:
    /// another entry is in memory, and stays until the body is complete.
    pub(super) fn record_of(&self, meta: &Meta) -> Option<Record> {
        let flight = self.leading.flight();
        let (primary, lease_key) = (flight.primary(), flight.key().clone());
        let Some(vary) = meta.vary() else {
            return Some(Record { key: primary.clone(), family: None, lease_key });
        };
        let generation = self.leading.engine.memory.generation(primary.borrowed(), vary)?;
        let fields = selected(vary, &self.leading.load);
        let key = key::variant(primary.borrowed(), generation, fields).borrowed().to_key();
        let family = Some(Family { vary: vary.clone(), generation });
        Some(Record { key, family, lease_key })
    }

    /// Writes a complete entry, unless it was refused. If memory has stored it, the flight is
    /// closed; if not, later requests join it until a tier has stored the entry.
    pub(super) async fn write_whole(&self, entry: &Entry, stored: StoreResult) {
        if stored == StoreResult::Refused || !self.has_targets() {
            return;
        }
        if stored == StoreResult::Stored {
            self.leading.leader.close();
        }
        let Some(record) = self.record_of(&entry.meta) else { return };
        let reader = || TierReader { reader: entry.body.reader(), draft: None };
        let readers = self.targets().iter().map(|_| reader()).collect();
        self.write_to_tiers(record, entry, readers).await;
    }

    /// Writes an entry to all tiers that are to store it, with a reader of its body for each.
    pub(super) async fn write_to_tiers(
        &self,
        mut record: Record,
        entry: &Entry,
        readers: Vec<TierReader>,
    ) {
        self.narrow_lease(&mut record, entry).await;
        let head = self.encoded_head(entry);
        let written = Written { record: &record, entry, head: head.as_ref() };
        let targets = self.targets();
        let pairs = targets.iter().zip(readers);
        join_all(pairs.map(|(lower, reader)| self.write_one(lower, written, reader))).await;
    }

    /// Returns the bytes of a head. A head in memory may have to be encoded by the front end, which
    /// may panic.
    fn encoded_head(&self, entry: &Entry) -> Option<Bytes> {
        if let Some(bytes) = entry.head.bytes() {
            return Some(bytes);
        }
        let encoding = AssertUnwindSafe(|| self.leading.load.encode_head(&entry.head));
        catch_unwind(encoding).ok().flatten()
    }

    /// Narrows the lease of a primary key to the loaded variant before the write, because the
    /// leader learns of the variants from the answer. Other instances learn of them, too.
    async fn narrow_lease(&self, record: &mut Record, entry: &Entry) {
        let primary = self.leading.flight().primary();
        if record.lease_key == *primary
            && let Some(family) = &record.family
            && let Some(selection) = selection(primary.borrowed(), &self.leading.load, entry)
        {
            if let WritePermission::Leased(permit) = &self.permission
                && !permit.narrow(selection.borrowed(), &family.vary).await
            {
                self.leading.observe_lease(LeaseEvent::Withdrawn);
            }
            record.lease_key = selection;
        }
    }

    /// Writes an entry to one tier. If the shared tier does not store it, the lease is released
    /// at once, so that waiting instances continue.
    async fn write_one(&self, lower: &LowerTier, written: Written<'_>, mut reader: TierReader) {
        let result = self.write(lower, written, &mut reader).await;
        if lower.is_shared() {
            match result {
                // The tier has released the lease.
                Ok(()) => _ = self.leading.flight().take_release(),
                Err(NotWritten::Refused) => self.release(Release::Abandoned).await,
                Err(NotWritten::Failed) => self.release(Release::Failed).await,
            }
        }
        // Later requests must not rely on a draft that the tier has given up.
        if reader.draft.is_some_and(|draft| !draft.end()) {
            self.leading.leader.close();
        }
    }

    async fn write(
        &self,
        lower: &LowerTier,
        Written { record, entry, head }: Written<'_>,
        reader: &mut TierReader,
    ) -> Result<(), NotWritten> {
        let engine = &self.leading.engine;
        let complete = entry.body.slice();
        let bytes = complete.map_or(0, |bytes| bytes.len() as u64);
        let turn = head.and_then(|head| Some((head, engine.lower.turn(bytes)?)));
        let Some((head, _turn)) = turn else {
            engine.observer.observe(Event::TierSkipped(lower.name()));
            return Err(NotWritten::Failed);
        };
        // A streaming body does not wait for a tier that is bypassed: its readers would wait, too.
        let is_late = match complete {
            Some(_) => lower.awaited().await,
            None => Some(false),
        };
        let is_late = is_late.ok_or(NotWritten::Failed)?;
        let mut deadline = Deadline::within(lower.budget().write);
        if !lower.is_clear(self.leading.primary(), &mut deadline).await {
            return Err(NotWritten::Failed);
        }
        let row = Row { key: record.key.borrowed(), meta: &entry.meta, head, is_last: true };
        let writer = self.begin(lower, row, record).await.ok_or(NotWritten::Failed)?;
        // Checked after the begin: a write that begins later is not overtaken by this one.
        if is_late && self.is_outrun_in(lower, row).await {
            return Err(NotWritten::Refused);
        }
        let (writer, taken) = reader.copy(lower, writer).await.ok_or(NotWritten::Failed)?;
        let parts = writer.draft();
        let committed = self.commit(lower, record, &entry.meta, writer).await;
        // All of it is written now, the last piece as well.
        if let Some(draft) = &reader.draft {
            draft.grew(taken, parts.as_ref());
        }
        committed
    }

    async fn begin(
        &self,
        lower: &LowerTier,
        Row { key, meta, head, is_last }: Row<'_>,
        record: &Record,
    ) -> Option<Box<dyn Writer>> {
        let mode = match &self.permission {
            WritePermission::Leased(permit) if lower.is_shared() => {
                let (primary, flight_key) = (self.leading.primary(), record.lease_key.borrowed());
                let token = permit.token();
                WriteMode::Leased(LeasedWrite { primary, flight_key, token, is_last })
            }
            WritePermission::Put => WriteMode::Put,
            _ => WriteMode::Loaded,
        };
        run(lower, "begin", || lower.begin(key, meta, head, mode)).await
    }

    /// Returns `true` if the tier has an entry that is not older, or cannot be distinguished.
    async fn is_outrun_in(&self, lower: &LowerTier, row: Row<'_>) -> bool {
        let mut deadline = Deadline::within(lower.budget().read);
        let stored = lower.run("open", &mut deadline, || lower.tier().open(row.key)).await;
        stored.is_none_or(|stored| {
            stored.is_some_and(|stored| stored.meta.born.plus(SAME_ENTRY) >= row.meta.born)
        })
    }

    /// Commits a write. After a purge nothing is committed; a purge that comes later waits until the
    /// commit has ended, and removes the entry.
    async fn commit(
        &self,
        lower: &LowerTier,
        record: &Record,
        meta: &Meta,
        writer: Box<dyn Writer>,
    ) -> Result<(), NotWritten> {
        let (engine, leader) = (&self.leading.engine, &self.leading.leader);
        let _committing = self.leading.flight().committing.lock().await;
        if leader.unless_purged(|| self.may_store(meta)) != Some(true) {
            return Err(NotWritten::Refused);
        }
        if let Some(family) = &record.family {
            let written = self.write_family(lower, record, family, meta).await;
            written.ok_or(NotWritten::Failed)?;
        }
        let mut deadline = Deadline::within(lower.budget().write);
        let committed = lower.attempt("commit", &mut deadline, || writer.commit()).await;
        if matches!(committed, Err(TierError::Outdated)) {
            leader.unless_purged(|| engine.forget_outdated(self.leading.primary(), meta));
            return Err(NotWritten::Refused);
        }
        committed.map_err(|_| NotWritten::Failed)
    }

    /// Writes the record under the primary key that names the selecting fields and the generation.
    async fn write_family(
        &self,
        lower: &LowerTier,
        record: &Record,
        family: &Family,
        member: &Meta,
    ) -> Option<()> {
        let mut meta = Meta::new(member.load_started_at, member.lifetime());
        meta.born = member.born;
        meta.set_vary(Some(family.vary.clone()));
        // The record is kept for as long as the variant.
        meta.set_validator(member.validator().cloned());
        let head = Bytes::copy_from_slice(&family.generation.to_le_bytes());
        let key = self.leading.primary();
        let row = Row { key, meta: &meta, head: &head, is_last: false };
        let writer = self.begin(lower, row, record).await?;
        run(lower, "commit", || writer.commit()).await
    }
}

impl TierReader {
    /// Copies a body into a tier. Returns the writer and the length. `None` if the body broke off,
    /// or the tier failed: then nothing becomes visible.
    async fn copy(
        &mut self,
        lower: &LowerTier,
        mut writer: Box<dyn Writer>,
    ) -> Option<(Box<dyn Writer>, u64)> {
        let mut taken = 0;
        while let Some(piece) = self.reader.next().await {
            let piece = piece.ok()?;
            taken += piece.len() as u64;
            run(lower, "write", || writer.write(piece)).await?;
            if let Some(draft) = &self.draft {
                draft.grew(taken, writer.draft().as_ref());
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
