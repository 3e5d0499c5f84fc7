//! Entries with their heads and bodies, and the memory bound for bodies in transfer.

pub(crate) mod body;
pub(crate) mod derived;
pub(crate) mod in_flight;
pub(crate) mod select;
pub(crate) mod shared;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use forebay_core::heap;
use forebay_core::judge::NoDice;
use forebay_core::{Demand, Lifetime, Meta, Position, PurgeState, Timestamp, Verdict, judge};

use body::Body;
use derived::DerivedForms;
use shared::{Contents, Shared};

/// Size of an entry besides its bytes: the entry, its slot in the store and the store's index.
const OVERHEAD: usize = heap::shared(size_of::<Entry>()) + SLOT_OVERHEAD;

/// Largest head that is copied into one allocation with its count. A larger one is kept as it came.
const COPIED_HEAD_MAX: usize = 4 << 10;

/// Size of a slot of the store, with its share of the index, of the remembered keys, and of the
/// spare capacity of tables.
pub(crate) const SLOT_OVERHEAD: usize = 64;

/// Entry: metadata, head and body. It is shared as `Arc<Entry>`: a hit clones one pointer.
///
/// With the two reference counts of its `Arc`, an entry is an allocation of 128 bytes, two cache
/// lines; one byte more would take 160. The head, and the fields that decide whether a hit is plain
/// if no purge is newer than the entry, are in the second line. Of ten thousand entries, few are in
/// the L1 and L2 caches, so each line costs a cache miss.
#[derive(Debug)]
#[repr(C)]
pub struct Entry {
    /// Body of the entry, complete or streaming.
    pub body: Body,
    /// Number of uses of its family at the last use, if it is a variant.
    pub(crate) used: AtomicU32,
    /// Newest position of the purge log at which the entry was compared with all recorded purges,
    /// and none applied to it. 0 if it was not compared.
    pub(crate) compared: AtomicU32,
    /// Metadata of the entry, from which [`judge`](forebay_core::judge()) decides whether it may be
    /// used.
    pub meta: Meta,
    /// Number of the load that brought it, and a mark of soft purges.
    pub(crate) brought: Brought,
    /// Head of the entry: bytes that only the front end interprets (HTTP: status and fields).
    pub head: Head,
}

/// Number of the load that brought an entry, in the order of starts; 0 if none did. The highest bit
/// is set after a soft purge of its key: then no demand for stale entries applies to it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Brought(u64);

/// Returns metadata whose entry is stale from `now` on, if it is not stale before.
pub(crate) fn stale_from(mut meta: Meta, now: Timestamp) -> Meta {
    let lifetime = meta.lifetime();
    let fresh = lifetime.fresh.min(meta.age(now));
    meta.set_lifetime(Lifetime { fresh, ..lifetime });
    meta
}

impl Brought {
    const SOFTENED: u64 = 1 << 63;
}

impl Entry {
    /// Creates an entry from its parts, without asking an origin and without storing it.
    #[must_use]
    pub fn new(meta: Meta, head: Head, body: Body) -> Self {
        let (brought, used) = (Brought::default(), AtomicU32::new(0));
        Self { meta, brought, head, body, used, compared: AtomicU32::default() }
    }

    /// Copies the entry as one that is stale from `now` on, after a soft purge of its key.
    pub(crate) fn softened_at(&self, now: Timestamp) -> Self {
        self.with_meta(stale_from(self.meta.clone(), now)).softened()
    }

    /// Marks the entry as stale after a soft purge of its key.
    pub(crate) fn softened(self) -> Self {
        let brought = Brought(self.brought.0 | Brought::SOFTENED);
        Self { brought, ..self }
    }

    /// Returns the number of the load that brought the entry, in the order of starts; 0 if none did.
    pub(crate) const fn flight(&self) -> u64 {
        self.brought.0 & !Brought::SOFTENED
    }

    /// Notes the load that brought the entry.
    pub(crate) fn brought_by(&mut self, flight: u64) {
        self.brought.0 = flight | self.brought.0 & Brought::SOFTENED;
    }

    /// Returns `true` after a soft purge of its key.
    const fn is_softened(&self) -> bool {
        self.brought.0 & Brought::SOFTENED != 0
    }

    /// Returns `true` if no recorded purge up to a position applies to the entry, as its own position
    /// or an earlier comparison shows.
    #[inline]
    pub(crate) fn is_unpurged_at(&self, purged: Position) -> bool {
        self.meta.position >= purged
            || u64::from(self.compared.load(Ordering::Relaxed)) >= purged.number()
    }

    /// Notes that no recorded purge up to a position applies to the entry.
    pub(crate) fn note_compared(&self, position: Position) {
        if let Ok(position) = u32::try_from(position.number()) {
            self.compared.fetch_max(position, Ordering::Relaxed);
        }
    }

    /// Returns `true` if the entry satisfies every demand that [is
    /// plain](forebay_core::Demand::is_plain), at `now` and after the purges up to a position,
    /// without a verdict.
    #[inline]
    pub(crate) fn is_plain(&self, now: Timestamp, purged: Position) -> bool {
        judge::is_plain(&self.meta, now) && !self.is_softened() && self.is_unpurged_at(purged)
    }

    /// Returns the purge state, apart from purges by tag, site, prefix and all.
    #[inline]
    pub(crate) const fn unpurged(&self) -> PurgeState {
        if self.is_softened() { PurgeState::SoftPurged } else { PurgeState::Valid }
    }

    /// Removes the bytes of the head that the front end can encode again, as memory keeps the
    /// entry.
    pub(crate) fn kept(mut self: Arc<Self>) -> Arc<Self> {
        if !self.head.has_spare_bytes() {
            return self;
        }
        let head = self.head.without_spare_bytes();
        if let Some(own) = Arc::get_mut(&mut self) {
            own.head = head;
            return self;
        }
        Arc::new(Self { head, ..self.with_meta(self.meta.clone()) })
    }

    /// Returns the size of the entry in memory, in bytes, without its key.
    #[must_use]
    pub fn size(&self) -> usize {
        OVERHEAD + self.meta.heap_size() + self.head.size() + self.body.kept()
    }

    /// Returns the bytes that memory is charged for the entry: its size, plus `key`, the bytes that
    /// its key takes on the heap. Returns 1 if the head is [counted](Head::counted).
    #[must_use]
    pub fn charge(&self, key: usize) -> u64 {
        if self.head.is_counted() { 1 } else { (self.size() + key) as u64 }
    }

    /// Returns the body, and the bodies of all derived forms.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &Body> {
        let forms = self.head.view::<DerivedForms>();
        std::iter::once(&self.body).chain(forms.into_iter().flat_map(DerivedForms::bodies))
    }

    /// Returns the entry for one caller. A streaming body gets a reader at its first byte. `None`
    /// if that byte has left the window.
    pub(crate) fn for_reader(self: &Arc<Self>, promised: bool) -> Option<Arc<Self>> {
        if self.body.flow().is_none() {
            return Some(self.clone());
        }
        let body = self.body.for_reader(promised)?;
        Some(Arc::new(Self { body, ..self.with_meta(self.meta.clone()) }))
    }

    /// Returns a copy of the entry with other metadata. The copy shares head and body.
    #[must_use]
    pub fn with_meta(&self, meta: Meta) -> Self {
        let (head, body) = (self.head.clone(), self.body.clone());
        let used = AtomicU32::new(self.used.load(Ordering::Relaxed));
        let brought = self.brought;
        Self { meta, brought, head, body, used, compared: AtomicU32::default() }
    }
}

/// Returns `true` if an entry with this metadata may be given to a caller with this demand that has
/// waited for it.
pub(crate) fn suits(meta: &Meta, state: PurgeState, demand: &Demand, now: Timestamp) -> bool {
    let verdict = judge(meta, demand, state, now, &mut NoDice);
    matches!(verdict, Verdict::Serve | Verdict::ServeThenRefresh(_))
}

/// Head of an entry: bytes that only the front end interprets (HTTP: status and fields), and
/// optionally their decoded form, the *view*.
///
/// If the [view is complete](Self::of_form), memory keeps the view without the bytes.
#[derive(Clone, Default)]
pub struct Head {
    form: Option<Arc<dyn Any + Send + Sync>>,
    /// `None` if there are none, or if the form is complete and they are not available.
    bytes: Option<Shared<Bytes>>,
    /// Size of the form, with two bits: the entry is counted, the form is complete.
    weight: Weight,
}

/// Size of a form, with two flags.
#[derive(Clone, Copy, Default)]
struct Weight(usize);

impl Weight {
    const COUNTED: usize = 1 << (usize::BITS - 1);
    const OF_FORM: usize = 1 << (usize::BITS - 2);
    const WORDS: usize = Self::COUNTED | Self::OF_FORM;

    const fn size(self) -> usize {
        self.0 & !Self::WORDS
    }

    const fn says(self, word: usize) -> bool {
        self.0 & word != 0
    }

    /// Replaces the size, and keeps the flags.
    fn sized(self, size: usize) -> Self {
        Self(size.min(!Self::WORDS) | self.0 & Self::WORDS)
    }
}

impl Head {
    /// Creates a head from encoded bytes, without a view.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        let bytes = (!bytes.is_empty()).then(|| match bytes.len() {
            ..=COPIED_HEAD_MAX => Shared::bytes(&bytes),
            _ => Shared::value(bytes),
        });
        Self { form: None, bytes, weight: Weight::default() }
    }

    /// Creates a head with a copy of bytes.
    #[must_use]
    pub fn of_slice(bytes: &[u8]) -> Self {
        match bytes.len() {
            1..=COPIED_HEAD_MAX => Self { bytes: Some(Shared::bytes(bytes)), ..Self::default() },
            _ => Self::new(Bytes::copy_from_slice(bytes)),
        }
    }

    /// Adds a view: the decoded form of the head, which occupies about `size` bytes. A hit then
    /// decodes nothing.
    #[must_use]
    pub fn with_view(mut self, form: Arc<dyn Any + Send + Sync>, size: usize) -> Self {
        self.form = Some(form);
        self.weight = self.weight.sized(size);
        self
    }

    /// Creates a head from a complete view, of about `size` bytes: the front end can encode the
    /// bytes again ([`HeadCodec`](crate::HeadCodec)), so memory keeps only the view.
    /// [`bytes`](Self::bytes) of such a head returns `None`.
    #[must_use]
    pub fn of_form(form: Arc<dyn Any + Send + Sync>, size: usize) -> Self {
        let weight = Weight(Weight::OF_FORM).sized(size);
        Self { form: Some(form), bytes: None, weight }
    }

    /// Adds the encoded bytes to a head that was created from a complete view, so that lower tiers
    /// can store it.
    #[must_use]
    pub fn written_as(self, bytes: Bytes) -> Self {
        Self { bytes: Some(Shared::value(bytes)), ..self }
    }

    /// Makes the entry of this head count as 1 instead of its bytes, for a front end that bounds
    /// memory by a number of entries. All entries of that engine must be counted.
    #[must_use]
    pub const fn counted(mut self) -> Self {
        self.weight = Weight(self.weight.0 | Weight::COUNTED);
        self
    }

    const fn is_counted(&self) -> bool {
        self.weight.says(Weight::COUNTED)
    }

    /// Returns the encoded bytes, which may be empty. `None` if the head has only a complete view,
    /// so that the front end would have to encode it.
    #[inline]
    #[must_use]
    pub fn slice(&self) -> Option<&[u8]> {
        match self.bytes.as_ref().map(Shared::contents) {
            None if self.weight.says(Weight::OF_FORM) => None,
            None => Some(&[]),
            Some(Contents::Bytes(bytes)) => Some(bytes),
            Some(Contents::Value(bytes)) => Some(bytes),
        }
    }

    /// Returns the encoded bytes, shared, which may be empty. `None` if the head has only a
    /// complete view.
    #[must_use]
    pub fn bytes(&self) -> Option<Bytes> {
        let Some(bytes) = &self.bytes else { return self.slice().map(|_| Bytes::new()) };
        Some(match bytes.contents() {
            Contents::Bytes(_) => bytes.to_bytes(),
            Contents::Value(bytes) => bytes.clone(),
        })
    }

    const fn has_spare_bytes(&self) -> bool {
        self.bytes.is_some() && self.weight.says(Weight::OF_FORM)
    }

    fn without_spare_bytes(&self) -> Self {
        let bytes = self.bytes.clone().filter(|_| !self.has_spare_bytes());
        Self { form: self.form.clone(), bytes, weight: self.weight }
    }

    /// Returns the view of the head. `None` if it has none, or one of another type.
    #[must_use]
    pub fn view<T: 'static>(&self) -> Option<&T> {
        self.form.as_ref()?.downcast_ref()
    }

    /// Returns `true` if the head has a view (a decoded form).
    #[must_use]
    pub const fn has_view(&self) -> bool {
        self.form.is_some()
    }

    /// Returns a shared pointer to the view of the head, its decoded form of the front end. `None` if
    /// the head has no view, or a view of another type.
    #[inline]
    #[must_use]
    pub fn shared_view<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.form.as_ref()?.clone().downcast().ok()
    }

    /// Returns the size of the head in memory, in bytes, with its view.
    #[must_use]
    pub fn size(&self) -> usize {
        let held = |bytes: &Shared<Bytes>| {
            let own = match bytes.contents() {
                Contents::Bytes(_) => 0,
                Contents::Value(bytes) => heap::allocated(bytes.len()),
            };
            bytes.size() + own
        };
        self.bytes.as_ref().map_or(0, held) + self.weight.size()
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Head({} bytes)", self.size())
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_entry_takes_two_lines_of_the_processors_cache() {
        let size = size_of::<Entry>() + heap::ARC_OVERHEAD;
        assert!(size <= 128, "{size} bytes");
    }

    #[test]
    fn an_entry_is_plain_before_the_last_tenth_of_its_lifetime_unless_it_is_soft_purged() {
        let [start, late] = [0, 9].map(|seconds| Timestamp::from_millis(seconds * 1_000));
        let meta = Meta::new(start, Lifetime::fresh(Duration::from_secs(10)));
        let purged = meta.position;
        let entry = Entry::new(meta.clone(), Head::default(), Body::default());
        assert_eq!([start, late].map(|now| entry.is_plain(now, purged)), [true, false]);
        let softened = entry.softened();
        assert!(!softened.is_plain(start, purged));
        assert!(!softened.with_meta(meta).is_plain(start, purged));
    }

    #[test]
    fn what_a_plain_hit_reads_is_in_the_second_cache_line() {
        let counts = heap::ARC_OVERHEAD;
        let line = 64..2 * 64;
        let ends = [offset_of!(Entry, brought), offset_of!(Entry, head) + size_of::<Head>()];
        assert!(ends.iter().all(|end| line.start < counts + end && counts + end <= line.end));
        let meta_end = counts + offset_of!(Entry, meta) + size_of::<Meta>();
        // The freshness lifetime, `born` and `position`.
        assert!(line.contains(&(meta_end - 2 * size_of::<u64>() - size_of::<u32>())));
    }

    #[test]
    fn a_head_says_how_it_counts_and_what_its_form_takes() {
        let sized = |size| Head::default().with_view(Arc::new(7_u8), size);
        assert_eq!((sized(9).size(), sized(9).is_counted()), (9, false));
        assert_eq!((sized(9).counted().size(), sized(9).counted().is_counted()), (9, true));
        assert_eq!(Head::default().counted().with_view(Arc::new(7_u8), 5).size(), 5);
        assert!(Head::default().counted().with_view(Arc::new(7_u8), 5).is_counted());
        assert!(!sized(usize::MAX).is_counted());
        assert!(sized(usize::MAX).bytes().is_some());
        assert_eq!(sized(9).view(), Some(&7_u8));
        let entry = |head| Entry::new(meta(), head, Body::default());
        assert_eq!(entry(sized(9).counted()).charge(10), 1);
        assert_eq!(entry(sized(9)).charge(10), (OVERHEAD + 19) as u64);
    }

    fn meta() -> Meta {
        Meta::new(Timestamp::default(), Lifetime::default())
    }

    #[test]
    fn what_is_empty_takes_nothing_on_the_heap() {
        let empty = Entry::new(meta(), Head::new(Bytes::new()), Body::whole(Bytes::new()));
        assert_eq!(empty.size(), OVERHEAD);
        assert_eq!(empty.head.slice().map(<[u8]>::len), Some(0));
        assert_eq!(empty.body.slice().map(<[u8]>::len), Some(0));
        let head = Head::new(Bytes::from_static(b"head"));
        assert_eq!(head.slice(), Some(&b"head"[..]));
        let full = Entry::new(meta(), head, Body::whole(Bytes::from_static(b"body")));
        // Each is one allocation of 4 bytes behind 24 of its own.
        assert_eq!(full.size(), OVERHEAD + 2 * 32);
        for length in [COPIED_HEAD_MAX, COPIED_HEAD_MAX + 1] {
            let bytes = vec![b'h'; length];
            for head in [Head::of_slice(&bytes), Head::new(bytes.clone().into())] {
                assert_eq!((head.slice(), head.bytes().as_deref()), (Some(&*bytes), Some(&*bytes)));
                assert!(head.size() > length);
            }
        }
    }

    fn of_form() -> Head {
        Head::of_form(Arc::new(7_u8), 9)
    }

    #[test]
    fn a_head_of_a_form_is_never_one_of_no_bytes() {
        assert_eq!(of_form().bytes(), None);
        assert_eq!(of_form().counted().bytes(), None);
        assert_eq!((of_form().size(), of_form().view()), (9, Some(&7_u8)));
        let written = of_form().written_as(Bytes::from_static(b"seven"));
        assert_eq!(written.slice(), Some(&b"seven"[..]));
        assert!(written.size() > 9 + 5, "on its way it has both");
    }

    #[test]
    fn memory_keeps_the_form_that_says_all_and_the_bytes_of_others() {
        let entry = |head| Arc::new(Entry::new(meta(), head, Body::default()));
        let written = || of_form().counted().written_as(Bytes::from_static(b"seven"));
        let (alone, shared) = (entry(written()).kept(), entry(written()));
        for kept in [alone, shared.clone().kept()] {
            assert_eq!((kept.head.bytes(), kept.head.view()), (None, Some(&7_u8)));
            assert_eq!((kept.size(), kept.charge(10)), (OVERHEAD + 9, 1));
            assert!(Arc::ptr_eq(&kept.clone().kept(), &kept), "nothing is left to let go of");
        }
        assert!(shared.head.bytes().is_some(), "what is on its way elsewhere keeps them");
        let others = Head::new(Bytes::from_static(b"head")).with_view(Arc::new(7_u8), 9);
        let others = entry(others);
        assert!(Arc::ptr_eq(&others.clone().kept(), &others));
    }
}
