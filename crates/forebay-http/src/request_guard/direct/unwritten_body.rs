//! Body of a direct response, as far as it is not written: one piece, or a long body that is read
//! as the client takes it.

use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};
use forebay_engine::LongReader;

/// Maximum number of pieces of a long body in one write: 1 MiB, which a socket usually takes at
/// once. A connection whose client does not read keeps none of them.
const PIECES_MAX: usize = 4;

/// Parts of one write: the heads and small bodies before the body, and its pieces.
pub(super) type WriteParts<'a> = [IoSlice<'a>; PIECES_MAX + 2];

/// Unwritten rest of a body.
#[derive(Debug, Default)]
pub(super) struct UnwrittenBody {
    pieces: Vec<Bytes>,
    reader: Option<LongReader>,
    /// True if the client has taken nothing since the pieces of the reader were read.
    is_blocked: bool,
}

impl UnwrittenBody {
    /// Sets the body to one piece. The body before it is written.
    pub(super) fn set(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.pieces.push(piece);
        }
    }

    /// Sets the body to the bytes of a reader. The body before it is written.
    pub(super) fn set_reader(&mut self, reader: LongReader) {
        self.reader = Some(reader).filter(|reader| reader.left() > 0);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.reader.is_none()
    }

    /// Returns the number of unwritten bytes.
    pub(super) fn left(&self) -> usize {
        let unread = self.reader.as_ref().map_or(0, LongReader::left);
        self.pieces.iter().map(Bytes::len).sum::<usize>()
            + usize::try_from(unread).unwrap_or(usize::MAX)
    }

    /// Reads the pieces of the next write. It fails if the body was dropped from memory because the
    /// client reads it too slowly.
    pub(super) fn fill(&mut self) -> io::Result<()> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        while self.pieces.len() < PIECES_MAX {
            let next =
                if self.is_blocked { reader.next_piece_again() } else { reader.next_piece() };
            let Some(piece) = next else { break };
            self.pieces.push(piece.map_err(io::Error::other)?);
        }
        Ok(())
    }

    /// Gives the pieces of a long body back after a write that the client's socket did not accept, so
    /// that the connection keeps no memory of a body that may be dropped meanwhile.
    pub(super) fn give_back(&mut self) {
        let Some(reader) = &mut self.reader else { return };
        self.is_blocked = true;
        for piece in self.pieces.drain(..) {
            reader.unread(piece.len() as u64);
        }
    }

    /// Returns the parts of a write of `before` and the pieces, of which the first ones are filled, and
    /// their number.
    pub(super) fn parts<'a>(&'a self, before: &'a [u8]) -> (WriteParts<'a>, usize) {
        let mut parts = [IoSlice::new(&[]); PIECES_MAX + 2];
        let pieces = self.pieces.iter().map(|piece| &piece[..]);
        let all = std::iter::once(before).chain(pieces).filter(|part| !part.is_empty());
        let mut count = 0;
        for (slot, part) in parts.iter_mut().zip(all) {
            *slot = IoSlice::new(part);
            count += 1;
        }
        (parts, count)
    }

    /// Removes bytes that were written. Of a long body, only the piece that was begun is kept.
    pub(super) fn advance(&mut self, mut written: usize) {
        if self.is_empty() {
            return;
        }
        self.is_blocked &= written == 0;
        let mut done = 0;
        for piece in &mut self.pieces {
            let taken = written.min(piece.len());
            piece.advance(taken);
            written -= taken;
            if !piece.is_empty() {
                break;
            }
            done += 1;
        }
        self.pieces.drain(..done);
        let Some(reader) = &mut self.reader else { return };
        for piece in self.pieces.drain(self.pieces.len().min(1)..) {
            reader.unread(piece.len() as u64);
        }
        if self.pieces.is_empty() && reader.left() == 0 {
            self.reader = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_engine::Body;

    use super::*;

    #[test]
    fn a_long_body_is_written_whole_and_in_order_and_nothing_of_it_is_kept() {
        let bytes: Vec<u8> = (0_u32..2_000_000).map(|at| (at / 251).to_le_bytes()[0]).collect();
        let body = Body::whole(bytes.clone().into());
        for step in [1_500_000, 300_000, 7_777] {
            let mut unwritten = UnwrittenBody::default();
            unwritten.set_reader(body.long_reader().expect("it is long"));
            let mut written = Vec::new();
            while !unwritten.is_empty() {
                assert_eq!(unwritten.left(), bytes.len() - written.len());
                unwritten.fill().unwrap();
                let (parts, count) = unwritten.parts(b"");
                let parts: Vec<&[u8]> = parts[..count].iter().map(|part| &part[..]).collect();
                let all = parts.concat();
                let taken = step.min(all.len());
                assert!(taken > 0 && unwritten.pieces.len() <= PIECES_MAX);
                written.extend_from_slice(&all[..taken]);
                unwritten.advance(taken);
                assert!(unwritten.pieces.len() <= 1);
                unwritten.fill().unwrap();
                unwritten.give_back();
                assert!(unwritten.pieces.is_empty(), "a client that does not read keeps nothing");
            }
            assert!(written == bytes, "{step}");
        }
    }
}
