//! Reusable buffers for reading records.
//!
//! Allocating and zeroing 1 MiB takes as long as reading it from the page cache. Copying is a fifth
//! faster if source and destination have the same offset within a page.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Maximum bytes of a buffer: the longest record that is read with one call.
pub(crate) const BUFFER_MAX: usize = (1 << 20) + (64 << 10);

/// Maximum number of idle buffers: about the number of concurrent readers.
const IDLE_MAX: usize = 8;

/// Page size of the page cache; other page sizes are multiples of it.
const PAGE: usize = 4 << 10;

/// Allocated bytes: the longest record at any offset within a page.
const MEMORY: usize = BUFFER_MAX + 2 * PAGE;

/// Idle buffers.
#[derive(Default)]
pub(crate) struct Buffers(Mutex<Vec<Box<[u8]>>>);

/// A buffer in use, returned to the pool when its last reference is dropped.
pub(crate) struct Buffer {
    /// Memory of `MEMORY` bytes.
    memory: Box<[u8]>,
    start: usize,
    len: usize,
    buffers: Arc<Buffers>,
}

impl Buffers {
    /// Returns a buffer for `len` bytes at file offset `at`, with undefined content; `None` if
    /// `len` exceeds the maximum.
    pub(crate) fn take(self: &Arc<Self>, at: u32, len: usize) -> Option<Buffer> {
        if len > BUFFER_MAX {
            return None;
        }
        let idle = self.0.lock().pop();
        let memory = idle.unwrap_or_else(|| vec![0; MEMORY].into());
        // Without a possible alignment the offset is still within the memory.
        let page = memory.as_ptr().align_offset(PAGE) % PAGE;
        let start = page + at as usize % PAGE;
        Some(Buffer { memory, start, len, buffers: self.clone() })
    }
}

impl Buffer {
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl From<Buffer> for Bytes {
    fn from(buffer: Buffer) -> Self {
        Self::from_owner(buffer)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut idle = self.buffers.0.lock();
        if idle.len() < IDLE_MAX {
            idle.push(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returned_buffer_is_reused_with_any_length() {
        let buffers = Arc::<Buffers>::default();
        assert!(buffers.take(0, BUFFER_MAX + 1).is_none());
        let mut first = buffers.take(40, 3).unwrap();
        first.bytes_mut().copy_from_slice(b"one");
        let (position, bytes) = (first.as_ref().as_ptr(), Bytes::from(first));
        let part = bytes.slice(1..);
        drop(bytes);
        assert_ne!(
            buffers.take(40, 3).unwrap().as_ref().as_ptr(),
            position,
            "a part is still in use"
        );
        assert_eq!(part, "ne");
        drop(part);
        let again = [buffers.take(40, 5).unwrap(), buffers.take(40, 5).unwrap()];
        assert!(again.iter().any(|buffer| buffer.as_ref().as_ptr() == position));
        drop(again);
        let many: Vec<_> = (0..2 * IDLE_MAX).map(|_| buffers.take(0, 1).unwrap()).collect();
        drop(many);
        assert_eq!(buffers.0.lock().len(), IDLE_MAX);
    }

    #[test]
    fn the_longest_record_fits_wherever_it_begins() {
        let buffers = Arc::<Buffers>::default();
        for at in [0, 8, 4_088, 4_096, u32::MAX - 7] {
            let mut buffer = buffers.take(at, BUFFER_MAX).unwrap();
            assert_eq!(buffer.bytes_mut().len(), BUFFER_MAX);
            assert_eq!(buffer.as_ref().as_ptr() as usize % PAGE, at as usize % PAGE);
        }
    }
}
