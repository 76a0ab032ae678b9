//! What a decoder reads goes on elsewhere: in the next fragment of a GIOP 1.1 message, or in the next chunk of a value.

use super::Decoder;
use crate::cdr::CdrError;
use crate::giop::Header;

/// The fragments that are not reached yet.
#[derive(Clone, Copy)]
pub(super) struct More<'m> {
    /// The whole message if there are any, else nothing.
    pub(super) octets: &'m [u8],
    /// Where they begin in it, in order.
    pub(super) breaks: &'m [usize],
}

impl<'m> Decoder<'m> {
    /// Where the fragments of a GIOP 1.1 message begin that was put together from them: each aligns its values from its own
    /// header (CORBA 3.0.3 section 15.4.9), except that octets and arrays of numbers run on over a cut.
    #[must_use]
    pub fn with_breaks(mut self, breaks: &'m [usize]) -> Decoder<'m> {
        self.set_breaks(breaks);
        self
    }

    /// The same for a decoder that stays where it is.
    #[inline]
    pub fn set_breaks(&mut self, breaks: &'m [usize]) {
        if !breaks.is_empty() {
            let position = self.position();
            self.more = More { octets: self.bytes, breaks };
            self.go_to(position);
        }
    }

    /// Goes to a position of the whole message: into the fragment that holds it.
    #[cold]
    pub(super) fn go_to(&mut self, at: usize) {
        let More { octets, breaks } = self.more;
        let passed = breaks.partition_point(|start| *start <= at);
        let (before, after) = breaks.split_at_checked(passed).unwrap_or((breaks, &[]));
        let start = before.last().map_or(0, |start| start.saturating_sub(Header::LEN));
        let end = after.first().copied().unwrap_or(octets.len()).min(octets.len());
        self.bytes = octets.get(start..end).unwrap_or_default();
        self.rest = octets.get(at..end).unwrap_or_default();
    }

    /// The position in the whole message.
    #[inline]
    pub(super) fn place(&self) -> usize {
        self.rest.as_ptr().addr().saturating_sub(self.more.octets.as_ptr().addr()).min(self.more.octets.len())
    }

    /// Octets that are not read yet, in this fragment and those behind it.
    #[inline]
    pub(super) fn total_remaining(&self) -> usize {
        if self.chunks.level > 0 {
            self.chunks.remaining(self.position())
        } else if self.more.breaks.is_empty() {
            self.rest.len()
        } else {
            self.more.octets.len() - self.place()
        }
    }

    /// Octets from the start of the message, also where that was put together from fragments of GIOP 1.1: where
    /// [`at`](Decoder::at) comes back to.
    #[must_use]
    #[inline]
    pub fn offset(&self) -> usize {
        if self.more.breaks.is_empty() { self.position() } else { self.place() }
    }

    /// All octets, those of every fragment, and where fragments begin in them.
    #[inline]
    pub(crate) fn whole(&self) -> (&'m [u8], &'m [usize]) {
        if self.more.breaks.is_empty() { (self.bytes, &[]) } else { (self.more.octets, self.more.breaks) }
    }

    /// Whether the message was put together from GIOP 1.1 fragments, so that alignment begins anew within it.
    pub(crate) fn is_fragmented(&self) -> bool {
        !self.more.breaks.is_empty()
    }

    /// Whether octets that lie side by side here need not on the wire: in fragments of GIOP 1.1, and in chunks of values.
    pub(in crate::cdr) fn is_in_pieces(&self) -> bool {
        self.is_fragmented() || self.chunks.level > 0
    }

    /// Reads a primitive that is not in this fragment. By value, as the next: a decoder of which nobody has the address can
    /// live in registers.
    #[cold]
    #[inline(never)]
    pub(super) fn take_from_next<const N: usize>(mut self) -> Result<([u8; N], Decoder<'m>), CdrError> {
        if self.chunks.level > 0 {
            // A primitive is never cut, and padding neither.
            self.open_chunk()?;
            let gap = self.gap(N);
            let octets = self.rest.get(gap..).and_then(<[u8]>::split_first_chunk);
            let (octets, rest) = octets.ok_or(CdrError::BadValue)?;
            self.rest = rest;
            return Ok((*octets, self));
        }
        // What is left here is a gap, if anything: a primitive is never cut.
        while !self.more.breaks.is_empty() && self.rest.len() <= self.gap(N) {
            let end = self.place() + self.rest.len();
            if end >= self.more.octets.len() {
                break;
            }
            self.go_to(end);
            let gap = self.gap(N);
            if let Some((octets, rest)) = self.rest.get(gap..).and_then(<[u8]>::split_first_chunk) {
                self.rest = rest;
                return Ok((*octets, self));
            }
        }
        Err(CdrError::Truncated)
    }

    /// Reads octets that run on into the next fragment.
    #[cold]
    #[inline(never)]
    pub(super) fn raw_from_next(mut self, len: usize) -> Result<(&'m [u8], Decoder<'m>), CdrError> {
        if self.chunks.level > 0 {
            self.open_chunk()?;
            let (octets, rest) = self.rest.split_at_checked(len).ok_or(CdrError::BadValue)?;
            self.rest = rest;
            return Ok((octets, self));
        }
        let at = self.place();
        let end = at.checked_add(len).ok_or(CdrError::Truncated)?;
        let octets = self.more.octets;
        let raw = octets.get(at..end).ok_or(CdrError::Truncated)?;
        self.go_to(end);
        Ok((raw, self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cdr::Endian;

    #[test]
    fn values_of_giop_1_1_fragments_are_aligned_from_their_own_header() {
        // A message of 24 octets; then a fragment whose data began at its octet 12: 4 octets of gap, a double; then one with
        // the end of an array that runs on over the cut, and a long.
        let mut message = vec![0; 24];
        message.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
        message.extend([0, 0, 0, 2, 0xaa]);
        message.extend([0xbb, 0, 0, 0, 0, 0, 0, 9]);
        let breaks = [24, 41];
        let mut d = Decoder::new(&message, Endian::Big).at(24).with_breaks(&breaks);
        assert_eq!((d.position(), d.remaining()), (12, 25));
        assert_eq!(d.read_u64(), Ok(7));
        assert_eq!(d.read_octets(), Ok([0xaa, 0xbb].as_slice()));
        assert_eq!((d.position(), d.read_u32(), d.read_u8()), (13, Ok(9), Err(CdrError::Truncated)));
        let mut d = Decoder::new(&message, Endian::Big).at(20).with_breaks(&breaks);
        assert_eq!((d.read_u32(), d.read_u64(), d.remaining()), (Ok(0), Ok(7), 13));
        let mut d = Decoder::new(&message, Endian::Big).at(20).with_breaks(&breaks);
        assert_eq!(d.read_vec::<u64>(3), Err(CdrError::Truncated));
        let mut d = Decoder::new(&message, Endian::Big).at(22).with_breaks(&breaks);
        assert_eq!(d.read_u64(), Ok(7));
    }
}
