//! The receive buffer of a connection.
//!
//! A large buffer is a reservation of addresses of the size that the message's header announces.
//! Memory is committed only as bytes arrive, so a header costs no memory until its bytes arrive.

use std::sync::Arc;

use corelane_sys::buffer::{Buffer, MAX_HEAP_BYTES, RegionCache};
use corelane_wire::Octets;

const MIN_READ_BYTES: usize = 16 * 1024;
const TAIL_ROOM: usize = 64;

/// Maximum size in bytes of each buffer that is kept for reuse.
pub(crate) const MAX_RETAINED_BYTES: usize = 256 << 10;

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

    /// Returns the room for further bytes. `wanted` is the expected number of bytes, counted from
    /// the first unread byte. The room may be smaller, or empty, if the process has no addresses
    /// left.
    #[inline]
    pub(crate) fn room(&mut self, wanted: usize, spares: &RegionCache) -> &mut [u8] {
        let _ = self.0.reserve_from_cache(self.min_capacity(wanted), spares);
        self.0.spare_capacity()
    }

    /// Returns the capacity for which the buffer must have memory or addresses. The room is larger
    /// than the missing part of the message, so that a read that does not fill the room shows that
    /// no more bytes have arrived.
    #[inline]
    fn min_capacity(&self, wanted: usize) -> usize {
        (wanted.max(self.0.len() + 1) + TAIL_ROOM).max(MIN_READ_BYTES)
    }

    #[inline]
    pub(crate) fn filled(&mut self, count: usize) {
        self.0.mark_filled(count);
    }

    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        self.0.consume(count.min(self.0.len()));
    }

    /// Appends octets. If the process has no addresses left, changes nothing and returns false.
    #[must_use]
    pub(crate) fn append(&mut self, octets: &[u8]) -> bool {
        let min_capacity = self.min_capacity(self.0.len() + octets.len());
        if self.0.reserve(min_capacity).is_err() {
            return false;
        }
        let Some(room) = self.0.spare_capacity().get_mut(..octets.len()) else { return false };
        room.copy_from_slice(octets);
        self.0.mark_filled(octets.len());
        true
    }

    /// Moves the bytes behind the first `count` bytes to `rest`, and returns `rest`. Returns `None`
    /// if the process has no addresses left; the moved bytes are then lost.
    #[cold]
    pub(crate) fn split_after(&mut self, count: usize, mut rest: ReceiveBuffer) -> Option<ReceiveBuffer> {
        let at = count.min(self.0.len());
        self.0.split_off_into(at, &mut rest.0).ok()?;
        Some(rest)
    }

    #[cold]
    pub(crate) fn into_octets(self) -> Octets {
        Octets::shared(Arc::new(self.0))
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the number of bytes that count as used memory. Addresses above [`MAX_HEAP_BYTES`]
    /// count once memory is committed for them.
    pub(crate) fn held(&self) -> usize {
        self.0.capacity().min(MAX_HEAP_BYTES).max(self.0.committed_bytes())
    }

    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

impl From<Buffer> for ReceiveBuffer {
    fn from(buffer: Buffer) -> Self {
        ReceiveBuffer(buffer)
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
