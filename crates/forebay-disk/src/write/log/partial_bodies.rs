//! Separate body files on the writing thread: partial ones, and their renaming.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use crate::files::io::{Mode, OpenFile, write_all};
use crate::format::layout::{Location, RecordId};
use crate::write::log::Log;

/// A partial body file.
pub(crate) struct PartialBody {
    file: Arc<dyn OpenFile>,
    len: u64,
}

impl Log {
    /// Appends a piece; the first one creates the file.
    pub(crate) fn append_piece(
        &mut self,
        part: u64,
        piece: &[u8],
    ) -> io::Result<Arc<dyn OpenFile>> {
        self.evict_for(piece.len() as u64)?;
        if !self.parts.contains_key(&part) {
            let file = self.shared.dir.io.open(&self.shared.dir.part(part), Mode::New)?;
            self.parts.insert(part, PartialBody { file, len: 0 });
        }
        let growing = self.parts.get_mut(&part).ok_or(ErrorKind::NotFound)?;
        write_all(&*growing.file, piece, growing.len)?;
        growing.len += piece.len() as u64;
        let file = growing.file.clone();
        self.add_bytes(piece.len() as u64);
        Ok(file)
    }

    pub(crate) fn abandon(&mut self, part: u64) {
        let Some(growing) = self.parts.remove(&part) else { return };
        match self.shared.dir.unlink(&self.shared.dir.part(part)) {
            Ok(()) => self.subtract_bytes(growing.len),
            Err(_) => self.shared.failed(),
        }
    }

    /// Renames a partial body to the name of its record.
    pub(crate) fn finish_partial_body(&mut self, part: u64, location: Location) -> io::Result<()> {
        let name = location.record();
        let dir = &self.shared.dir;
        dir.io.rename(&dir.part(part), &dir.body(name))?;
        let len = self.parts.remove(&part).map_or(0, |part| part.len);
        self.add_body(name, len);
        Ok(())
    }

    /// Registers a body and adds its bytes to its segment.
    pub(crate) fn add_body(&mut self, name: RecordId, len: u64) {
        self.bodies.insert(name, len);
        if let Some(open) = self.open.as_mut().filter(|open| open.number == name.segment) {
            open.weight += len;
        }
    }

    /// Deletes the body of an outdated record.
    pub(crate) fn drop_body(&mut self, location: Location) {
        if location.has_body() {
            self.unlink_body(location.record());
        }
    }

    pub(crate) fn unlink_body(&mut self, name: RecordId) {
        let Some(len) = self.bodies.remove(&name) else { return };
        match self.shared.dir.unlink(&self.shared.dir.body(name)) {
            Ok(()) => self.subtract_bytes(len),
            Err(_) => {
                self.shared.failed();
                // Deletion is tried again with its segment.
                self.bodies.insert(name, len);
            }
        }
    }
}
