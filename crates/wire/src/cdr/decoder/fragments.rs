//! Reading across a boundary: into the next fragment of a GIOP 1.1 message, or the next chunk of a
//! value.

use super::Decoder;
use crate::cdr::CdrError;
use crate::giop::Header;

#[derive(Clone, Copy)]
pub(super) struct FragmentMap<'m> {
    pub(super) message: &'m [u8],
    pub(super) starts: &'m [usize],
}

impl<'m> Decoder<'m> {
    /// Sets the offsets of the later fragments in an assembled GIOP 1.1 message, from which their
    /// headers were removed. Values are aligned from the header of their fragment (CORBA 3.0.3
    /// section 15.4.9); octets and arrays of numbers may continue in the next fragment.
    #[must_use]
    pub fn with_fragment_starts(mut self, breaks: &'m [usize]) -> Decoder<'m> {
        self.set_fragment_starts(breaks);
        self
    }

    /// Does in place what [`with_fragment_starts`](Decoder::with_fragment_starts) does.
    #[inline]
    pub fn set_fragment_starts(&mut self, breaks: &'m [usize]) {
        if !breaks.is_empty() {
            let position = self.position();
            self.fragments = FragmentMap { message: self.bytes_from_origin, starts: breaks };
            self.seek_in_message(position);
        }
    }

    #[cold]
    pub(super) fn seek_in_message(&mut self, at: usize) {
        let FragmentMap { message: octets, starts: breaks } = self.fragments;
        let passed = breaks.partition_point(|start| *start <= at);
        let (before, after) = breaks.split_at_checked(passed).unwrap_or((breaks, &[]));
        let start = before.last().map_or(0, |start| start.saturating_sub(Header::LEN));
        let end = after.first().copied().unwrap_or(octets.len()).min(octets.len());
        self.bytes_from_origin = octets.get(start..end).unwrap_or_default();
        self.remaining_bytes = octets.get(at..end).unwrap_or_default();
    }

    #[inline]
    pub(super) fn message_position(&self) -> usize {
        self.remaining_bytes
            .as_ptr()
            .addr()
            .saturating_sub(self.fragments.message.as_ptr().addr())
            .min(self.fragments.message.len())
    }

    #[inline]
    pub(super) fn total_remaining(&self) -> usize {
        if self.chunks.level > 0 {
            self.chunks.remaining(self.position())
        } else if self.fragments.starts.is_empty() {
            self.remaining_bytes.len()
        } else {
            self.fragments.message.len() - self.message_position()
        }
    }

    /// Returns the offset in bytes from the start of the message, which
    /// [`at_position`](Decoder::at_position) accepts. In a message of GIOP 1.1 fragments,
    /// [`position`](Decoder::position) counts from the header of the current fragment instead.
    #[must_use]
    #[inline]
    pub fn message_offset(&self) -> usize {
        if self.fragments.starts.is_empty() { self.position() } else { self.message_position() }
    }

    #[inline]
    pub(crate) fn whole_message(&self) -> (&'m [u8], &'m [usize]) {
        if self.fragments.starts.is_empty() {
            (self.bytes_from_origin, &[])
        } else {
            (self.fragments.message, self.fragments.starts)
        }
    }

    pub(crate) fn is_fragmented(&self) -> bool {
        !self.fragments.starts.is_empty()
    }

    /// Returns true in GIOP 1.1 fragments and in chunks of values, where adjacent values may be
    /// apart on the wire.
    pub(in crate::cdr) fn may_be_split(&self) -> bool {
        self.is_fragmented() || self.chunks.level > 0
    }

    /// Reads a primitive that is not wholly in the current fragment or chunk. Takes and returns the
    /// decoder by value, because a decoder whose address is never taken can stay in registers.
    #[cold]
    #[inline(never)]
    pub(super) fn take_across<const N: usize>(mut self) -> Result<([u8; N], Decoder<'m>), CdrError> {
        if self.chunks.level > 0 {
            // A chunk cuts neither a primitive nor its padding.
            self.open_chunk()?;
            let gap = self.gap(N);
            let octets = self.remaining_bytes.get(gap..).and_then(<[u8]>::split_first_chunk);
            let (octets, rest) = octets.ok_or(CdrError::MalformedValuetype)?;
            self.remaining_bytes = rest;
            return Ok((*octets, self));
        }
        // No sender cuts a primitive. If the fragment ends within the padding, its last bytes are
        // only padding and are skipped.
        while !self.fragments.starts.is_empty() && self.remaining_bytes.len() <= self.gap(N) {
            let end = self.message_position() + self.remaining_bytes.len();
            if end >= self.fragments.message.len() {
                break;
            }
            self.seek_in_message(end);
            let gap = self.gap(N);
            if let Some((octets, rest)) = self.remaining_bytes.get(gap..).and_then(<[u8]>::split_first_chunk) {
                self.remaining_bytes = rest;
                return Ok((*octets, self));
            }
        }
        Err(CdrError::Truncated)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn read_raw_across(mut self, len: usize) -> Result<(&'m [u8], Decoder<'m>), CdrError> {
        if self.chunks.level > 0 {
            self.open_chunk()?;
            let (octets, rest) = self.remaining_bytes.split_at_checked(len).ok_or(CdrError::MalformedValuetype)?;
            self.remaining_bytes = rest;
            return Ok((octets, self));
        }
        let at = self.message_position();
        let end = at.checked_add(len).ok_or(CdrError::Truncated)?;
        let octets = self.fragments.message;
        let raw = octets.get(at..end).ok_or(CdrError::Truncated)?;
        self.seek_in_message(end);
        Ok((raw, self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cdr::Endian;

    #[test]
    fn values_of_giop_1_1_fragments_are_aligned_from_the_header_of_their_fragment() {
        // The second fragment ends after the first of two octets of a sequence.
        let mut message = vec![0; 24];
        message.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
        message.extend([0, 0, 0, 2, 0xaa]);
        message.extend([0xbb, 0, 0, 0, 0, 0, 0, 9]);
        let breaks = [24, 41];
        let mut d = Decoder::new(&message, Endian::Big).at_position(24).with_fragment_starts(&breaks);
        assert_eq!((d.position(), d.remaining_len()), (12, 25));
        assert_eq!(d.read_u64(), Ok(7));
        assert_eq!(d.read_octet_sequence(), Ok([0xaa, 0xbb].as_slice()));
        assert_eq!((d.position(), d.read_u32(), d.read_u8()), (13, Ok(9), Err(CdrError::Truncated)));
        let mut d = Decoder::new(&message, Endian::Big).at_position(20).with_fragment_starts(&breaks);
        assert_eq!((d.read_u32(), d.read_u64(), d.remaining_len()), (Ok(0), Ok(7), 13));
        let mut d = Decoder::new(&message, Endian::Big).at_position(20).with_fragment_starts(&breaks);
        assert_eq!(d.read_vec::<u64>(3), Err(CdrError::Truncated));
        let mut d = Decoder::new(&message, Endian::Big).at_position(22).with_fragment_starts(&breaks);
        assert_eq!(d.read_u64(), Ok(7));
    }
}
