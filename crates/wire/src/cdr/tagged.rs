//! Lists of numbered octet sequences, read in place.

use super::{CdrError, Decoder, Encoder, Endian};

/// A received list of pairs of number and octets: service contexts, tagged profiles, tagged
/// components and policy values have this form.
///
/// ```text
/// unsigned long count | count x { unsigned long number | sequence<octet> data }
/// ```
#[derive(Clone, Copy)]
pub struct TaggedList<'m> {
    bytes: &'m [u8],
    breaks: &'m [usize],
    at: usize,
    count: u32,
    endian: Endian,
}

impl<'m> TaggedList<'m> {
    /// The empty list.
    pub const EMPTY: TaggedList<'static> =
        TaggedList { bytes: &[], breaks: &[], at: 0, count: 0, endian: Endian::NATIVE };

    /// Parses and checks the list at the decoder's position.
    ///
    /// # Errors
    /// [`CdrError::LimitExceeded`] if there are more than `limit` pairs, [`CdrError::Truncated`].
    #[inline]
    pub fn parse(d: &mut Decoder<'m>, limit: u32) -> Result<TaggedList<'m>, CdrError> {
        let count = d.read_u32()?;
        if count == 0 {
            return Ok(TaggedList::EMPTY);
        }
        if count > limit {
            return Err(CdrError::LimitExceeded);
        }
        let at = d.message_offset();
        for _ in 0..count {
            d.read_u32()?;
            let len = d.read_u32()?;
            d.skip(len as usize)?;
        }
        let (whole, breaks) = d.whole_message();
        let bytes = whole.get(..d.message_offset()).unwrap_or_default();
        Ok(TaggedList { bytes, breaks, at, count, endian: d.endian() })
    }

    /// Returns the number of pairs.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns true if there are no pairs.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns an iterator over the pairs, in order.
    #[inline]
    #[must_use]
    pub fn iter(&self) -> TaggedIter<'m> {
        let d = Decoder::new(self.bytes, self.endian).at_position(self.at).with_fragment_starts(self.breaks);
        TaggedIter { d, left: self.count }
    }

    /// Returns the data of the first pair with this number.
    #[must_use]
    pub fn find(&self, number: u32) -> Option<&'m [u8]> {
        self.iter().find(|pair| pair.0 == number).map(|pair| pair.1)
    }
}

impl<'m> IntoIterator for TaggedList<'m> {
    type Item = (u32, &'m [u8]);
    type IntoIter = TaggedIter<'m>;

    fn into_iter(self) -> TaggedIter<'m> {
        self.iter()
    }
}

impl PartialEq for TaggedList<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for TaggedList<'_> {}

impl std::fmt::Debug for TaggedList<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// An iterator over the pairs of a [`TaggedList`].
#[derive(Clone, Debug)]
pub struct TaggedIter<'m> {
    d: Decoder<'m>,
    left: u32,
}

impl<'m> Iterator for TaggedIter<'m> {
    type Item = (u32, &'m [u8]);

    fn next(&mut self) -> Option<(u32, &'m [u8])> {
        self.left = self.left.checked_sub(1)?;
        let number = self.d.read_u32().ok()?;
        let len = self.d.read_u32().ok()?;
        Some((number, self.d.read_bytes(len as usize).ok()?))
    }
}

#[inline]
pub(crate) fn write_tagged<'p>(
    e: &mut Encoder<'_>,
    pairs: impl ExactSizeIterator<Item = (u32, &'p [u8])>,
) -> Result<(), CdrError> {
    e.write_len(pairs.len())?;
    for (number, data) in pairs {
        e.write_u32(number);
        e.write_octet_sequence_copied(data)?;
    }
    Ok(())
}
