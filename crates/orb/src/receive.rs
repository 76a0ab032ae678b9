//! The receive buffer of a connection, for bytes that have been received and not yet consumed.
//!
//! A buffer of up to 64 KiB is ordinary memory that is reused. A larger buffer is a reservation of
//! addresses, of the size that the message's header announces. Memory is committed only as bytes
//! arrive, so a header that announces 60 MiB costs no memory until the bytes arrive. The memory of
//! a large message is used again for the next message of about the same size
//! (`corelane_sys::buffer::RegionCache`), and then counts as held in full.

use std::sync::Arc;

use corelane_sys::buffer::{Buffer, MAX_HEAP_BYTES, RegionCache};
use corelane_wire::Octets;

/// Minimum number of bytes for which a new buffer has room.
const MIN_READ_BYTES: usize = 16 * 1024;
/// Number of bytes of room behind the expected message.
const TAIL_ROOM: usize = 64;

/// Maximum size in bytes of memory that is kept for reuse. Larger memory is returned to the kernel
/// after its message, or when no thread uses it.
pub(crate) const MAX_RETAINED_BYTES: usize = 256 << 10;

/// A contiguous buffer of bytes that were received and not yet consumed.
#[derive(Debug, Default)]
pub(crate) struct ReceiveBuffer(Buffer);

impl ReceiveBuffer {
    pub(crate) fn new() -> Self {
        ReceiveBuffer(Buffer::new())
    }

    #[inline]
    pub(crate) fn unread(&self) -> &[u8] {
        &self.0
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the room for the next read. `wanted` is the expected number of bytes, counted from
    /// the first unread byte. Large memory comes from the ORB's `spares`. The room is empty only if
    /// the process has no addresses left; the connection then ends.
    #[inline]
    pub(crate) fn room(&mut self, wanted: usize, spares: &RegionCache) -> &mut [u8] {
        // If the reservation fails, the method returns the room that remains in the present memory.
        let _ = self.0.reserve_from(self.min_capacity(wanted), spares);
        self.0.spare_capacity()
    }

    /// Returns the capacity for `wanted` bytes and a little more. A read that ends with the message
    /// then does not fill the room, which shows that no more bytes have arrived.
    #[inline]
    fn min_capacity(&self, wanted: usize) -> usize {
        (wanted.max(self.0.len() + 1) + TAIL_ROOM).max(MIN_READ_BYTES)
    }

    /// Marks the first `count` bytes of the room as received.
    #[inline]
    pub(crate) fn filled(&mut self, count: usize) {
        self.0.advance(count);
    }

    /// Removes the first `count` unread bytes.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        self.0.consume(count.min(self.0.len()));
    }

    /// Appends bytes to the unread bytes. If the process has no addresses left, changes nothing and
    /// returns false.
    #[must_use]
    pub(crate) fn append(&mut self, octets: &[u8]) -> bool {
        let min_capacity = self.min_capacity(self.0.len() + octets.len());
        if self.0.reserve(min_capacity).is_err() {
            return false;
        }
        let Some(room) = self.0.spare_capacity().get_mut(..octets.len()) else { return false };
        room.copy_from_slice(octets);
        self.0.advance(octets.len());
        true
    }

    /// Keeps the first `count` unread bytes and moves the remaining bytes to the buffer `rest`.
    /// Returns `None` if the process has no addresses left; the moved bytes are then lost.
    #[cold]
    pub(crate) fn split_after(&mut self, count: usize, mut rest: ReceiveBuffer) -> Option<ReceiveBuffer> {
        let at = count.min(self.0.len());
        self.0.split_off_into(at, &mut rest.0).ok()?;
        Some(rest)
    }

    /// Converts the unread bytes to an octet sequence that can be shared without a copy.
    #[cold]
    pub(crate) fn into_octets(self) -> Octets {
        Octets::shared(Arc::new(self.0))
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the number of bytes of memory that the buffer holds. Reserved addresses above the
    /// maximum heap size count only once a message has filled them.
    pub(crate) fn held(&self) -> usize {
        self.0.capacity().min(MAX_HEAP_BYTES).max(self.0.committed())
    }

    /// Returns the number of bytes for which the buffer has addresses, with or without memory.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(buffer: &mut ReceiveBuffer, octets: &[u8], wanted: usize) {
        buffer.room(wanted, &RegionCache::new())[..octets.len()].copy_from_slice(octets);
        buffer.filled(octets.len());
    }

    #[test]
    fn bytes_are_read_in_order() {
        let mut buffer = ReceiveBuffer::new();
        fill(&mut buffer, b"abcdef", 12);
        buffer.consume(2);
        assert_eq!(buffer.unread(), b"cdef");
        let rest = buffer.split_after(1, ReceiveBuffer::new()).unwrap();
        assert_eq!((buffer.unread(), rest.unread()), (&b"c"[..], &b"def"[..]));
        buffer.consume(1);
        assert!(buffer.is_empty());
    }

    #[test]
    fn bytes_after_a_split_message_are_kept() {
        let mut buffer = ReceiveBuffer::new();
        let octets: Vec<u8> = (0..200_000u32).map(|index| index.to_le_bytes()[0]).collect();
        assert!(buffer.append(&octets));
        buffer.consume(1000);
        let rest = buffer.split_after(150_000, ReceiveBuffer::new()).unwrap();
        assert_eq!(buffer.unread(), &octets[1000..151_000]);
        assert_eq!(rest.unread(), &octets[151_000..]);
        assert_eq!(&*buffer.into_octets(), &octets[1000..151_000]);
    }
}
