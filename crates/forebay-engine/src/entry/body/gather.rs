//! The beginning of a body: what is there with its head is announced with it.

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};

use super::piece::{BrokenBody, Content, PieceStream};

/// A body up to this size that is there with its head is announced whole: its followers wake
/// once, not twice.
const READY_MAX: usize = 64 << 10;

/// In how many pieces it may come: a source of empty pieces must not keep anybody waiting.
const READY_PIECES_MAX: usize = 64;

/// What is there of a body.
pub(crate) enum Gathered {
    Whole(Bytes),
    Broken(Bytes, BrokenBody),
    Flowing(Bytes, PieceStream),
}

/// Takes what of a body is there already, without waiting for more.
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

/// Takes the beginning of a body and waits for it. One that breaks off in here can still be had
/// from somewhere else.
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

/// Without the slack that a growing buffer leaves, which nobody would be charged for.
pub(crate) fn exact(bytes: Vec<u8>) -> Bytes {
    Bytes::from(bytes.into_boxed_slice())
}
