//! Large messages: the writer and the reader copy different parts at the same time.
//!
//! If a message is copied as a whole, the two sides take turns: the writer fills the ring and
//! sleeps, then the reader empties the ring and sleeps. If the peer runs on another core, copying
//! in parts is faster: the writer publishes, and the reader frees, each part when it is copied.
//!
//! The writer announces whether more parts follow, so the reader does not poll after the last part.

use std::io::{self, IoSlice};

use corelane_sys::ring::{RingReader, RingWriter};
use corelane_sys::thread;

use super::stream::RingStream;

pub(super) const PART_BYTES: usize = 16 * 1024;
/// Number of bytes after which a call returns even if it could continue, so that its caller can
/// check the deadline.
const MAX_CALL_BYTES: usize = 1 << 20;

impl RingStream {
    /// Continues a read that has copied `count` bytes into `buffer`. Returns the total number of
    /// bytes, `count` included.
    #[inline(never)]
    pub(super) fn read_large(&self, reader: RingReader<'_>, buffer: &mut [u8], count: usize) -> io::Result<usize> {
        let own_core = thread::current_core();
        reader.publish_core(own_core);
        let is_parallel = is_elsewhere(reader.peer_core(), own_core);
        let part = if is_parallel { part_of(reader.capacity()) } else { reader.capacity() };
        let mut total = count;
        while total < buffer.len().min(MAX_CALL_BYTES) {
            let end = buffer.len().min(total + part);
            let count = self.read_ring(reader, &mut buffer[total..end])?;
            total += count;
            let is_over = count == 0
                && !(is_parallel
                    && reader.has_more_announced()
                    && self.large_spin.spin_until(|| !matches!(reader.is_empty(), Ok(true)) || self.is_shut_down()));
            if is_over || self.is_shut_down() {
                break;
            }
        }
        if let Some(lending) = &self.lending {
            lending.open_if_wanted();
        }
        Ok(total)
    }

    /// Writes bytes of a message of `total` bytes as far as there is room. A message that is copied
    /// in parts also gets room that appears during the call. Returns the number of bytes written.
    #[inline(never)]
    pub(super) fn write_large(&self, slices: &[IoSlice<'_>], total: usize) -> io::Result<usize> {
        let rings = &self.peer_state.rings;
        let writer = rings.writer();
        let peer_core = writer.peer_core().or_else(|| rings.reader().peer_core());
        if total <= writer.capacity() || !is_elsewhere(peer_core, thread::current_core()) {
            return self.write_ring_part(writer, slices, 0, total);
        }
        self.write_parts(writer, slices, total)
    }

    fn write_parts(&self, writer: RingWriter<'_>, slices: &[IoSlice<'_>], total: usize) -> io::Result<usize> {
        let part = part_of(writer.capacity());
        let end = total.min(MAX_CALL_BYTES);
        let mut sent = 0;
        while sent < end {
            let wanted = part.min(end - sent);
            let has_room = || !matches!(writer.has_room(wanted), Ok(false));
            if !has_room() && !self.large_spin.spin_until(has_room) {
                // Fills the remaining room, because a writer may sleep only after it has seen the
                // ring full.
                writer.announce_more(false);
                return Ok(sent + self.write_ring_part(writer, slices, sent, wanted)?);
            }
            writer.announce_more(sent + wanted < total);
            sent += self.write_ring_part(writer, slices, sent, wanted)?;
        }
        Ok(sent)
    }
}

/// Returns the size of a part in bytes, at most a quarter of the ring's `capacity`.
fn part_of(capacity: usize) -> usize {
    PART_BYTES.min(capacity / 4)
}

fn is_elsewhere(peer_core: Option<usize>, own_core: Option<usize>) -> bool {
    peer_core.is_some() && peer_core != own_core
}
