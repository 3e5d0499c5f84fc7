//! Bodies: complete or streaming, in memory or in a lower tier.

mod draft;
mod flow;
pub(crate) mod gather;
mod long;
mod parts;
mod piece;
pub(crate) mod segments;
mod watch;
mod whole;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use forebay_core::heap;
use futures_util::StreamExt;

pub(crate) use flow::{DraftWriter, Flow, FlowWriter, Pushed};
pub use long::LongReader;
pub use parts::Parts;
pub(crate) use parts::bounded;
pub use piece::{BrokenBody, Content, PieceStream};
pub use watch::ReaderWatch;

use crate::entry::in_flight::{Charged, InFlight};
use crate::entry::shared::{Contents, Shared};
use crate::runtime::sync::Mutex;
use long::Long;
use parts::PartsReader;
use segments::SEGMENT;
use whole::Whole;

/// Largest body that is copied into one allocation with its count. The two allocations that this
/// saves are a tenth of it.
const COPIED_MAX: usize = 1 << 10;

/// Reference count of a body that was cloned, which is an allocation of its own.
const COUNT: usize = 24;

/// Body of an entry: complete in memory, streaming from an origin, or in a lower tier. Clones share
/// the bytes. The default is complete and empty.
#[derive(Clone, Debug, Default)]
pub struct Body(Option<Shared<Repr>>);

struct Once(Mutex<Option<PieceStream>>);

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Once")
    }
}

struct Below(Arc<dyn Parts>);

impl fmt::Debug for Below {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Below({} bytes)", self.0.length())
    }
}

#[derive(Debug)]
enum Repr {
    /// Complete, in one piece of more than [`COPIED_MAX`] bytes and one segment at most.
    Whole(Bytes),
    /// Complete, in several segments.
    Long(Arc<Long>),
    Flowing(Flowing),
    Once(Once),
    /// Complete, in a lower tier.
    Below(Below),
}

/// Streaming body, with the reader at its first byte that is reserved for the receiver.
#[derive(Debug)]
struct Flowing {
    flow: Arc<Flow>,
    place: Mutex<Option<flow::Reader>>,
}

impl Body {
    /// Creates a complete body in memory. A body of more than 256 KiB is copied into segments.
    #[must_use]
    pub fn whole(bytes: Bytes) -> Self {
        match bytes.len() {
            0 => Self::default(),
            1..=COPIED_MAX => Self(Some(Shared::bytes(&bytes))),
            length if length <= SEGMENT => Self::of(Repr::Whole(bytes)),
            _ => Self::of(Repr::Long(Long::of(bytes))),
        }
    }

    fn of(repr: Repr) -> Self {
        Self(Some(Shared::value(repr)))
    }

    #[inline]
    fn contents(&self) -> Contents<'_, Repr> {
        self.0.as_ref().map_or(Contents::Bytes(&[]), Shared::contents)
    }

    /// Returns the representation of a body that is not copied.
    #[inline]
    fn repr(&self) -> Option<&Repr> {
        match self.contents() {
            Contents::Bytes(_) => None,
            Contents::Value(repr) => Some(repr),
        }
    }

    pub(crate) fn flowing(flow: Arc<Flow>) -> Self {
        Self::of(Repr::Flowing(Flowing { flow, place: Mutex::default() }))
    }

    /// Returns the body for one caller, with a reader at the first byte. `None` if that byte has
    /// left the window. Complete bodies need no reader.
    pub(crate) fn for_reader(&self, promised: bool) -> Option<Self> {
        let Some(Repr::Flowing(flowing)) = self.repr() else { return Some(self.clone()) };
        let reader = flow::Reader::at_start(&flowing.flow, promised)?;
        let (flow, place) = (flowing.flow.clone(), Mutex::new(Some(reader)));
        Some(Self::of(Repr::Flowing(Flowing { flow, place })))
    }

    /// Returns the flow of a streaming body.
    pub(crate) fn flow(&self) -> Option<&Flow> {
        match self.repr()? {
            Repr::Flowing(flowing) => Some(&flowing.flow),
            Repr::Whole(_) | Repr::Long(_) | Repr::Once(_) | Repr::Below(_) => None,
        }
    }

    /// Creates a body that stays in a lower tier, where every reader reads it. It is not stored.
    pub(crate) fn below(parts: Arc<dyn Parts>) -> Self {
        Self::of(Repr::Below(Below(parts)))
    }

    /// Creates a body for one reader, which reads directly from the source.
    pub(crate) fn once(stream: PieceStream) -> Self {
        Self::of(Repr::Once(Once(Mutex::new(Some(stream)))))
    }

    /// Returns the bytes of a complete body of up to 256 KiB in memory. `None` for a larger body, a
    /// streaming one, or one in a lower tier: use [`reader`](Self::reader) or [`part`](Self::part).
    #[inline]
    #[must_use]
    pub fn slice(&self) -> Option<&[u8]> {
        match self.contents() {
            Contents::Bytes(bytes) => Some(bytes),
            Contents::Value(Repr::Whole(bytes)) => Some(bytes),
            Contents::Value(_) => None,
        }
    }

    /// Returns the bytes of a complete body of up to 256 KiB in memory, shared. `None` for a larger
    /// body, a streaming one, or one in a lower tier.
    #[must_use]
    pub fn bytes(&self) -> Option<Bytes> {
        let Some(shared) = &self.0 else { return Some(Bytes::new()) };
        match shared.contents() {
            Contents::Bytes(_) => Some(shared.to_bytes()),
            Contents::Value(Repr::Whole(bytes)) => Some(bytes.clone()),
            Contents::Value(_) => None,
        }
    }

    /// Returns the length of a complete body in bytes; `None` for a body that was still streaming
    /// when its entry was returned, also after its end.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match self.contents() {
            Contents::Bytes(bytes) => Some(bytes.len() as u64),
            Contents::Value(Repr::Whole(bytes)) => Some(bytes.len() as u64),
            Contents::Value(Repr::Long(long)) => Some(long.length()),
            Contents::Value(Repr::Below(below)) => Some(below.0.length()),
            Contents::Value(Repr::Flowing(_) | Repr::Once(_)) => None,
        }
    }

    /// Returns `true` if the body is complete, in memory or in a lower tier. `false` for a body
    /// that was still streaming when its entry was returned, also after its end.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(self.repr(), None | Some(Repr::Whole(_) | Repr::Long(_) | Repr::Below(_)))
    }

    /// Returns the bytes of the body that its entry holds in memory. 0 for a body in a lower tier,
    /// and for a streaming body, which is charged as a body in flight.
    #[must_use]
    pub fn retained(&self) -> usize {
        match self.contents() {
            Contents::Bytes(bytes) => bytes.len(),
            Contents::Value(Repr::Whole(bytes)) => bytes.len(),
            Contents::Value(Repr::Long(long)) => usize::try_from(long.size()).unwrap_or(usize::MAX),
            Contents::Value(Repr::Flowing(_) | Repr::Once(_) | Repr::Below(_)) => 0,
        }
    }

    /// Memory that the body takes in the cache, in bytes.
    pub(crate) fn kept(&self) -> usize {
        let own = self.0.as_ref().map_or(0, Shared::size);
        own + match self.repr() {
            None => 0,
            Some(Repr::Whole(bytes)) => heap::allocated(bytes.len()) + heap::allocated(COUNT),
            Some(_) => self.retained(),
        }
    }

    /// Creates a reader that starts at the first byte and reads at its own speed. The body of an
    /// answer for one caller can be read once: a second reader gets [`BrokenBody::FellBehind`].
    #[must_use]
    pub fn reader(&self) -> BodyReader {
        let Some(repr) = self.repr() else { return BodyReader(Reading::Whole(self.bytes())) };
        BodyReader(match repr {
            Repr::Whole(bytes) => Reading::Whole(Some(bytes.clone())),
            Repr::Long(long) => Reading::Long(LongReader::new(long.clone(), 0..long.length())),
            Repr::Flowing(flowing) => Reading::Flowing(flowing.reader()),
            Repr::Once(once) => Reading::Once(once.0.lock().take()),
            Repr::Below(below) => {
                let length = below.0.length();
                Reading::Below(Box::new(PartsReader::new(below.0.clone(), 0..length)))
            }
        })
    }

    /// Creates a reader of a complete body of more than 256 KiB in memory; `None` for other bodies.
    #[must_use]
    pub fn long_reader(&self) -> Option<LongReader> {
        match self.repr()? {
            Repr::Long(long) => Some(LongReader::new(long.clone(), 0..long.length())),
            Repr::Whole(_) | Repr::Flowing(_) | Repr::Once(_) | Repr::Below(_) => None,
        }
    }

    /// Creates a reader of a range of a complete body, in bytes; the range is limited to the body.
    /// `None` if the body is streaming.
    #[must_use]
    pub fn part(&self, range: Range<u64>) -> Option<BodyReader> {
        match self.repr() {
            None | Some(Repr::Whole(_)) => {
                let bytes = self.bytes()?;
                let end = usize::try_from(range.end).unwrap_or(usize::MAX).min(bytes.len());
                let start = usize::try_from(range.start).unwrap_or(usize::MAX).min(end);
                Some(BodyReader(Reading::Whole(Some(bytes.slice(start..end)))))
            }
            Some(Repr::Long(long)) => {
                Some(BodyReader(Reading::Long(LongReader::new(long.clone(), range))))
            }
            Some(Repr::Below(below)) => {
                let reader = PartsReader::new(below.0.clone(), range);
                Some(BodyReader(Reading::Below(Box::new(reader))))
            }
            Some(Repr::Flowing(_) | Repr::Once(_)) => None,
        }
    }

    /// Charges the body to a slot of memory, and returns the previous charge.
    pub(crate) fn settle(&self) -> Option<Charged> {
        match self.repr()? {
            Repr::Long(long) => long.settle(),
            Repr::Whole(_) | Repr::Flowing(_) | Repr::Once(_) | Repr::Below(_) => None,
        }
    }

    /// Notes that a slot of memory has released the body. `shared`: other holders of the entry
    /// exist.
    pub(crate) fn unsettle(&self, in_flight: &Arc<InFlight>, shared: bool) {
        if let Some(Repr::Long(long)) = self.repr() {
            let others = self.0.as_ref().is_some_and(Shared::is_held_elsewhere);
            long.unsettle(in_flight, shared || others || Arc::strong_count(long) > 1);
        }
    }
}

impl From<Whole> for Body {
    fn from(whole: Whole) -> Self {
        match whole {
            Whole::One(bytes) => Self::whole(bytes),
            Whole::Long(long) => Self::of(Repr::Long(long)),
        }
    }
}

impl Flowing {
    fn reader(&self) -> flow::Reader {
        let place = self.place.lock().take();
        place.unwrap_or_else(|| flow::Reader::new(self.flow.clone()))
    }
}

/// Reader of one body, from its first byte or of a range. Each reader has its own position.
pub struct BodyReader(Reading);

enum Reading {
    Whole(Option<Bytes>),
    Long(LongReader),
    Flowing(flow::Reader),
    /// `None` if it was read already: that is no complete body.
    Once(Option<PieceStream>),
    Below(Box<PartsReader>),
}

impl BodyReader {
    /// Polls for the next piece, which is never empty. `None` is the end of a complete body; a body
    /// that ends early returns a [`BrokenBody`] instead.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenBody>>> {
        match &mut self.0 {
            Reading::Whole(bytes) => {
                Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty()).map(Ok))
            }
            Reading::Long(reader) => Poll::Ready(reader.next_piece()),
            Reading::Flowing(reader) => reader.poll_next(cx),
            Reading::Below(reader) => reader.poll_next(cx),
            Reading::Once(Some(stream)) => stream.poll_next_unpin(cx),
            Reading::Once(None) => Poll::Ready(Some(Err(BrokenBody::FellBehind))),
        }
    }

    /// Returns the number of bytes of a complete body that are not read yet; `None` for a streaming
    /// body.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        match &self.0 {
            Reading::Whole(bytes) => Some(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Reading::Long(reader) => Some(reader.left()),
            Reading::Below(reader) => Some(reader.left()),
            Reading::Flowing(_) | Reading::Once(_) => None,
        }
    }

    /// Returns a watch that tells whether this reader has fallen behind. `None` for a body that is
    /// not dropped while it is read.
    #[must_use]
    pub fn watch(&self) -> Option<ReaderWatch> {
        match &self.0 {
            Reading::Long(reader) => Some(ReaderWatch::long(reader.downgrade())),
            Reading::Flowing(reader) => {
                let (body, reader) = reader.downgrade();
                Some(ReaderWatch::flowing(body, reader))
            }
            Reading::Whole(_) | Reading::Below(_) | Reading::Once(_) => None,
        }
    }

    /// Skips the next `bytes` bytes of a streaming body, without waiting for them or keeping them.
    /// Returns `bytes`, or 0 if nothing was skipped. It skips nothing in a complete body (use
    /// [`Body::part`]), in a body for one caller, or if the reader has fallen behind.
    pub fn skip(&mut self, bytes: u64) -> u64 {
        match &mut self.0 {
            Reading::Flowing(reader) if reader.skip(bytes) => bytes,
            _ => 0,
        }
    }

    /// Returns the next piece, which is never empty. `None` is the end of a complete body; a body
    /// that ends early returns a [`BrokenBody`] instead.
    pub async fn next(&mut self) -> Option<Result<Bytes, BrokenBody>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Reads all bytes that are not read yet.
    ///
    /// # Errors
    /// [`BrokenBody`] if the body ends early; the bytes read until then are dropped.
    pub async fn collect(mut self) -> Result<Bytes, BrokenBody> {
        let Some(first) = self.next().await.transpose()? else { return Ok(Bytes::new()) };
        let Some(second) = self.next().await.transpose()? else { return Ok(first) };
        let mut all = Vec::with_capacity(first.len() + second.len());
        all.extend_from_slice(&first);
        all.extend_from_slice(&second);
        while let Some(piece) = self.next().await {
            all.extend_from_slice(&piece?);
        }
        Ok(all.into())
    }
}
