//! An entry as the tiers hold it and the doors see it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use forebay_core::judge::plain_until;
use forebay_core::{Meta, Position, Standing, Timestamp};

use crate::body::Body;

/// What an entry costs beside its bytes: the entry, its slot in the store and the store's index.
const OVERHEAD: usize = size_of::<Entry>() + 160;

/// Meta, head and body under a key. Handed out as `Arc<Entry>`: a hit clones one pointer.
///
/// What a plain hit reads stands in front, so that it is one line of the processor's cache, or
/// two: of ten thousand entries, few are in those that are near.
#[derive(Debug)]
#[repr(C)]
pub struct Entry {
    pub(crate) plain: Plain,
    /// What the door wrote about it.
    pub head: Head,
    /// All that the judge needs.
    pub meta: Meta,
    /// The body, whole or still flowing.
    pub body: Body,
    /// The flight that brought it, by its place in the order of departures; 0 if none did.
    pub(crate) flight: u64,
    /// Whether a purge of its key has made it stale. Then no demand for stale answers reaches it.
    pub(crate) softened: bool,
    /// Of a variant: its family's turn when it was used last.
    pub(crate) used: AtomicU64,
}

/// For whom no verdict is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    until: Timestamp,
    position: Position,
}

impl Plain {
    /// Softened ones need a verdict always.
    const NEVER: Self = Self { until: Timestamp::MIN, position: Position::new(0) };

    fn of(meta: &Meta) -> Self {
        Self { until: plain_until(meta), position: meta.position }
    }
}

impl Entry {
    /// An entry that no flight has brought.
    #[must_use]
    pub fn new(meta: Meta, head: Head, body: Body) -> Self {
        let (plain, used) = (Plain::of(&meta), AtomicU64::new(0));
        Self { plain, meta, head, body, flight: 0, softened: false, used }
    }

    /// The same entry, after a purge of its key has made it stale.
    pub(crate) fn softened(self) -> Self {
        Self { plain: Plain::NEVER, softened: true, ..self }
    }

    /// Whether the verdict on it is known without the judge: it is good for every demand that
    /// [is plain](forebay_core::Demand::is_plain), at `now` and after the purges up to a position.
    #[inline]
    pub(crate) fn is_plain(&self, now: Timestamp, purged: Position) -> bool {
        now < self.plain.until && self.plain.position >= purged
    }

    /// How it stands as long as no purge by tag, site or the like has reached it.
    #[inline]
    pub(crate) const fn unpurged(&self) -> Standing {
        if self.softened { Standing::Softened } else { Standing::Good }
    }

    /// Bytes this entry is charged with in memory, its key not included.
    #[must_use]
    pub fn size(&self) -> usize {
        OVERHEAD + self.meta.heap_size() + self.head.size() + self.body.retained()
    }

    /// What this entry takes of the bound of memory, under a key of this many bytes.
    #[must_use]
    pub fn charge(&self, key: usize) -> u64 {
        if self.head.counted { 1 } else { (self.size() + key) as u64 }
    }

    /// The entry for one who is now told of it. A body that flows keeps a place for this one from
    /// here on; nothing if its first byte is gone.
    pub(crate) fn boarded(self: &Arc<Self>, promised: bool) -> Option<Arc<Self>> {
        if self.body.flow().is_none() {
            return Some(self.clone());
        }
        let body = self.body.boarded(promised)?;
        Some(Arc::new(Self { body, ..self.with_meta(self.meta.clone()) }))
    }

    /// The same entry with other metadata; head and body are shared.
    #[must_use]
    pub fn with_meta(&self, meta: Meta) -> Self {
        let (head, body) = (self.head.clone(), self.body.clone());
        let used = AtomicU64::new(self.used.load(Ordering::Relaxed));
        let plain = if self.softened { Plain::NEVER } else { Plain::of(&meta) };
        Self { plain, meta, head, body, flight: self.flight, softened: self.softened, used }
    }
}

/// Door-specific bytes (HTTP: status and fields) and their ready-made form.
///
/// The engine never looks into either; only the door that wrote them does.
#[derive(Clone, Default)]
#[repr(C)]
pub struct Head {
    /// In front, for a plain hit of a typed door reads nothing else; see [`Entry`].
    view: Option<View>,
    bytes: Bytes,
    counted: bool,
}

#[derive(Clone)]
#[repr(C)]
struct View {
    form: Arc<dyn Any + Send + Sync>,
    size: usize,
}

impl Head {
    /// A head of bytes alone.
    #[must_use]
    pub const fn new(bytes: Bytes) -> Self {
        Self { bytes, view: None, counted: false }
    }

    /// Adds the ready-made form, which occupies about `size` bytes.
    #[must_use]
    pub fn with_view(mut self, form: Arc<dyn Any + Send + Sync>, size: usize) -> Self {
        self.view = Some(View { form, size });
        self
    }

    /// Lets its entry be charged as one, and not by its bytes: for a door that bounds memory by a
    /// number of entries, and does so for all of them.
    #[must_use]
    pub const fn counted(mut self) -> Self {
        self.counted = true;
        self
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The ready-made form, if it is of this type.
    #[must_use]
    pub fn view<T: 'static>(&self) -> Option<&T> {
        self.view.as_ref()?.form.downcast_ref()
    }

    /// Whether there is a ready-made form.
    #[must_use]
    pub const fn has_view(&self) -> bool {
        self.view.is_some()
    }

    /// The ready-made form to be kept beyond the entry, if it is of this type.
    #[inline]
    #[must_use]
    pub fn shared_view<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.view.as_ref()?.form.clone().downcast().ok()
    }

    /// Bytes held.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len() + self.view.as_ref().map_or(0, |view| view.size)
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Head({} bytes)", self.size())
    }
}
