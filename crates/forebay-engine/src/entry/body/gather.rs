//! Beginning of a body: the part that is available with its head is announced with it.

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};

use super::piece::{BrokenBody, Content, PieceStream};

/// Maximum size of a body that is announced complete: its followers wake once, not twice.
const READY_MAX: usize = 64 << 10;

/// Maximum number of its pieces: a source of empty pieces must not delay callers.
const READY_PIECES_MAX: usize = 64;

/// Beginning of a body.
pub(crate) enum Gathered {
    Whole(Bytes),
    Broken(Bytes, BrokenBody),
    Flowing(Bytes, PieceStream),
}

/// Reads the available part of a body, without waiting.
pub(crate) async fn gather_ready(source: Content) -> Gathered {
    let mut stream = match source {
        Content::Whole(bytes) => return Gathered::Whole(bytes),
        Content::Stream(stream) | Content::Sized(_, stream) => stream,
    };
    let mut ready = Vec::new();
    for _ in 0..READY_PIECES_MAX {
        if ready.len() >= READY_MAX {
            break;
        }
        match stream.next().now_or_never() {
            None => break,
            Some(None) => return Gathered::Whole(exact(ready)),
            Some(Some(Ok(piece))) => ready.extend_from_slice(&piece),
            Some(Some(Err(broken))) => return Gathered::Broken(ready.into(), broken),
        }
    }
    Gathered::Flowing(ready.into(), stream)
}

/// Reads the beginning of a body, and waits for it. After a failure here, the body can still be
/// read from elsewhere.
pub(crate) async fn gather_begun(mut stream: PieceStream) -> Gathered {
    let mut begun = Vec::new();
    for _ in 0..READY_PIECES_MAX {
        if begun.len() >= READY_MAX {
            break;
        }
        match stream.next().await {
            None => return Gathered::Whole(exact(begun)),
            Some(Ok(piece)) => begun.extend_from_slice(&piece),
            Some(Err(broken)) => return Gathered::Broken(begun.into(), broken),
        }
    }
    Gathered::Flowing(begun.into(), stream)
}

/// Drops the spare capacity of a buffer, which is not charged.
pub(crate) fn exact(bytes: Vec<u8>) -> Bytes {
    Bytes::from(bytes.into_boxed_slice())
}
