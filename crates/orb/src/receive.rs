//! Where octets from a connection wait until they are a message.
//!
//! Up to 64 KiB it is ordinary memory that is reused. Beyond, it is a reservation of addresses of the size that the header announces,
//! whose memory is there only as far as octets have arrived: a header that announces 60 MiB costs nothing until the 60 MiB come. What a
//! large message leaves behind serves the next one of about its size (`corelane_sys::buffer::Spares`), and counts as held as soon as
//! it does.

use std::sync::Arc;

use corelane_sys::buffer::{Buffer, RESERVE_ABOVE, Spares};
use corelane_wire::Octets;

/// What a fresh buffer takes in one read.
const FIRST: usize = 16 * 1024;
/// Room behind the message that is expected.
const SLACK: usize = 64;

/// Memory larger than this is given back to the system after its message, or when nobody uses it.
pub(crate) const KEPT: usize = 1 << 20;

/// Octets received and not yet consumed, contiguous.
#[derive(Debug, Default)]
pub(crate) struct ReceiveBuffer(Buffer);

impl ReceiveBuffer {
    pub(crate) fn new() -> Self {
        ReceiveBuffer(Buffer::new())
    }

    /// What is there.
    #[inline]
    pub(crate) fn unread(&self) -> &[u8] {
        &self.0
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Room for the next read, large memory from the ORB's `spares`. `wanted` octets in all are expected from the first unread one.
    /// Empty only when the process has no addresses left, which ends the connection.
    #[inline]
    pub(crate) fn room(&mut self, wanted: usize, spares: &Spares) -> &mut [u8] {
        // Without more room, what is left of the old is what there is.
        let _ = self.0.reserve_from(self.least(wanted), spares);
        self.0.spare()
    }

    /// A little more than what is expected, so that a read which ends with the message is seen to be short.
    #[inline]
    fn least(&self, wanted: usize) -> usize {
        (wanted.max(self.0.len() + 1) + SLACK).max(FIRST)
    }

    /// The first `count` octets of the room now hold something.
    #[inline]
    pub(crate) fn filled(&mut self, count: usize) {
        self.0.filled(count);
    }

    /// Forgets the first `count` unread octets.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        self.0.consume(count.min(self.0.len()));
    }

    /// Puts octets behind those that are there. False, and nothing is done, when the process has no addresses left.
    #[must_use]
    pub(crate) fn append(&mut self, octets: &[u8]) -> bool {
        let least = self.least(self.0.len() + octets.len());
        if self.0.reserve(least).is_err() {
            return false;
        }
        let Some(room) = self.0.spare().get_mut(..octets.len()) else { return false };
        room.copy_from_slice(octets);
        self.0.filled(octets.len());
        true
    }

    /// Moves everything after the first `count` unread octets to a buffer of its own. `None` when the process has no addresses left: the
    /// stream has lost its place then.
    #[cold]
    pub(crate) fn split_after(&mut self, count: usize, mut rest: ReceiveBuffer) -> Option<ReceiveBuffer> {
        let at = count.min(self.0.len());
        self.0.split_off_into(at, &mut rest.0).ok()?;
        Some(rest)
    }

    /// Everything unread, as octets that can be shared without a copy.
    #[cold]
    pub(crate) fn into_octets(self) -> Octets {
        Octets::shared(Arc::new(self.0))
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Memory that is held however little has arrived: addresses above are none, until a message has filled them.
    pub(crate) fn held(&self) -> usize {
        self.0.capacity().min(RESERVE_ABOVE).max(self.0.committed())
    }

    /// Memory or addresses held.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(buffer: &mut ReceiveBuffer, octets: &[u8], wanted: usize) {
        buffer.room(wanted, &Spares::new())[..octets.len()].copy_from_slice(octets);
        buffer.filled(octets.len());
    }

    #[test]
    fn octets_come_out_in_order() {
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
    fn what_is_behind_a_message_survives_its_leaving() {
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
