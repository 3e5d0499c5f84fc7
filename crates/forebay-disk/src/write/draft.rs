//! Writer of one entry. A small body is collected in memory, a large one is written to a separate
//! file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use forebay_core::frame::{self, Frame};
use forebay_core::{Key, Meta};
use forebay_engine::{Parts, TierError, Writer};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::counts::count;
use crate::error::Refusal;
use crate::files::io::OpenFile;
use crate::format::layout::{Digest, Kind, PIECE, Pointer, record_len};
use crate::format::root::random;
use crate::read::bodies::BodyFile;
use crate::shared::Shared;
use crate::shared::queue::{Op, Reply, Store, Ticket};

/// Maximum bytes of a body within a segment; a larger one is written to a separate file.
pub(crate) const INLINE_BODY_MAX: usize = 1 << 20;

/// Writer of one entry.
pub(crate) struct Draft {
    shared: Arc<Shared>,
    key: Key,
    meta: Meta,
    head: Bytes,
    body: Body,
    len: u64,
    /// Log position of the last purge before this write began.
    generation: u64,
}

enum Body {
    Inline(Vec<Bytes>),
    Separate(SeparateBody),
}

/// A body that is written to a separate file.
struct SeparateBody {
    part: PartFile,
    piece: BytesMut,
    salt: u64,
    /// Reader of the written part, if any.
    written: Option<Arc<BodyFile>>,
}

/// A partial body file, removed on drop unless it was finished.
struct PartFile {
    shared: Arc<Shared>,
    number: u64,
    is_finished: bool,
}

impl Draft {
    pub(crate) fn begin(shared: Arc<Shared>, key: Key, meta: Meta, head: Bytes) -> Self {
        let generation = shared.generation_of(meta.load_started_at);
        Self { shared, key, meta, head, body: Body::Inline(Vec::new()), len: 0, generation }
    }

    async fn take(&mut self, piece: Bytes) -> Result<(), TierError> {
        self.len += piece.len() as u64;
        if self.len > self.shared.limits.object_max {
            return Err(TierError::TooLarge);
        }
        if let Body::Inline(pieces) = &mut self.body {
            pieces.push(piece);
            if self.len <= INLINE_BODY_MAX as u64 {
                return Ok(());
            }
            let pieces = std::mem::take(pieces);
            let mut separate = SeparateBody::begin(&self.shared);
            for piece in pieces {
                separate.take(piece).await?;
            }
            self.body = Body::Separate(separate);
            return Ok(());
        }
        let Body::Separate(separate) = &mut self.body else { return Ok(()) };
        separate.take(piece).await
    }

    async fn finish(self) -> Result<(), TierError> {
        let Self { shared, key, meta, head, body, len, generation } = self;
        let (kind, pieces, part) = match body {
            Body::Inline(pieces) => (Kind::Entry, pieces, None),
            Body::Separate(separate) => {
                let (pointer, part) = separate.finish(len).await?;
                (Kind::EntryWithBody, vec![Bytes::from(pointer.encode())], Some(part))
            }
        };
        let now = shared.clock.now();
        let frame = Frame { key: key.borrowed(), meta: &meta, head: &head, body: &pieces };
        // A frame that cannot be encoded indicates no disk failure.
        let payload = frame::encode(&frame, now).map_err(|_| TierError::TooLarge)?;
        drop(pieces);
        if record_len(payload.len()).is_none_or(|len| len > shared.segment_max / 2) {
            return Err(TierError::TooLarge);
        }
        let ticket = Ticket::default();
        let _waiter = ticket.waiter();
        let store = |reply| {
            let part = part.as_ref().map(|part| part.number);
            let digest = Digest::of(key.borrowed().bytes(), shared.seed);
            let stored = shared.residence.moment(now);
            Op::Store(Store { digest, kind, payload, stored, generation, part, ticket, reply })
        };
        let stored = shared.ask(store).await;
        // From here on the writing thread keeps or removes the file.
        if let Some(mut part) = part {
            part.is_finished = stored.is_ok();
        }
        stored
    }
}

impl Writer for Draft {
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        self.take(piece).boxed()
    }

    fn draft(&self) -> Option<Arc<dyn Parts>> {
        match &self.body {
            Body::Inline(_) => None,
            Body::Separate(separate) => Some(separate.written.clone()?),
        }
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), TierError>> {
        self.finish().boxed()
    }
}

impl SeparateBody {
    fn begin(shared: &Arc<Shared>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Distinct from files of earlier sessions, which may not have been removed yet.
        let number = shared.residence.session().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let part = PartFile { shared: shared.clone(), number, is_finished: false };
        Self { part, piece: BytesMut::new(), salt: random(), written: None }
    }

    async fn take(&mut self, mut bytes: Bytes) -> Result<(), TierError> {
        while !bytes.is_empty() {
            let free = PIECE - self.piece.len();
            self.piece.extend_from_slice(&bytes.split_to(free.min(bytes.len())));
            if self.piece.len() == PIECE {
                self.write_piece().await?;
            }
        }
        Ok(())
    }

    async fn write_piece(&mut self) -> Result<(), TierError> {
        let piece = self.piece.split().freeze();
        let file = self.write(piece.clone()).await?;
        let begun = || Arc::new(BodyFile::begin(&self.part.shared, file, self.salt));
        self.written.get_or_insert_with(begun).add_piece(&piece);
        Ok(())
    }

    async fn write(&self, piece: Bytes) -> Result<Arc<dyn OpenFile>, TierError> {
        let part = self.part.number;
        self.part.shared.ask(|reply| Op::AppendPiece { part, piece, reply }).await
    }

    async fn finish(mut self, len: u64) -> Result<(Pointer, PartFile), TierError> {
        if !self.piece.is_empty() {
            self.write_piece().await?;
        }
        let digests = self.written.as_ref().map(|written| written.table()).unwrap_or_default();
        let table = Pointer::table_digest(&digests, self.salt);
        self.write(digests.into()).await?;
        Ok((Pointer { len, salt: self.salt, table }, self.part))
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // A stopped tier removes the file at its next opening.
            let _ = self.shared.queue.push(Op::Abandon { part: self.number });
        }
    }
}

impl Shared {
    /// Sends an operation to the writing thread and waits for the result.
    ///
    /// # Errors
    /// [`TierError`] if the queue refuses the operation or its execution fails.
    pub(crate) async fn ask<T>(&self, op: impl FnOnce(Reply<T>) -> Op) -> Result<T, TierError> {
        let (reply, answer) = oneshot::channel();
        self.queue.push(op(reply)).inspect_err(|_| count(&self.counters.refused))?;
        match answer.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::FileTooLarge => {
                Err(TierError::TooLarge)
            }
            Ok(Err(error)) => Err(TierError::failed(error)),
            Err(_) => Err(Refusal::Stopped.into()),
        }
    }
}
