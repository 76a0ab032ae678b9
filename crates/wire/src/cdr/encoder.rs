//! The encoder: values into a reusable buffer, large octet slices beside it.

use std::ops::Range;

use super::primitive::Numbers;
use super::valuetype::ValueWriter;
use super::{BORROW_THRESHOLD, CdrError, Endian, MAX_SEGMENTS, MAX_SLICES, Octets, Primitive};
use crate::codeset::CodeSets;
use crate::giop::Version;

/// Writes CDR into a reusable buffer. Octet slices from [`BORROW_THRESHOLD`] octets on are not copied: they become
/// segments, borrowed for `'a` or owned, between parts of the buffer, and [`slices`](Encoder::slices) gives all in order
/// for a vectored write.
///
/// A write that fails leaves the encoder somewhere inside the value: take a [`mark`](Encoder::mark) first and
/// [`truncate`](Encoder::truncate) to it.
#[derive(Debug)]
pub struct Encoder<'a> {
    buffer: Vec<u8>,
    /// What to add to the buffer's length to get the position: octets in segments less the alignment origin.
    bias: usize,
    /// Octets in segments.
    beside: usize,
    endian: Endian,
    foreign: bool,
    version: Version,
    code_sets: CodeSets,
    from_server: bool,
    used: u8,
    /// Buffer lengths before and after the padding in front of a GIOP body, so that an empty body loses it again.
    body: (usize, usize),
    /// Messages with one large octet sequence are the usual ones, and allocate nothing for it.
    first: Segment<'a>,
    /// Behind one pointer, so that an encoder without it is quickly made and dropped.
    rare: Option<Box<Rare<'a>>>,
}

/// What few messages have.
#[derive(Debug, Default)]
struct Rare<'a> {
    /// Segments after the first.
    others: Vec<Segment<'a>>,
    /// What was written of values, once there are any.
    values: Option<ValueWriter>,
}

/// Octets that go out between two parts of the buffer.
#[derive(Debug)]
struct Segment<'a> {
    /// Length of the buffer when the segment was put in.
    after: usize,
    octets: Piece<'a>,
}

#[derive(Debug)]
enum Piece<'a> {
    None,
    Borrowed(&'a [u8]),
    Owned(Octets),
    Numbers(Numbers),
}

impl Segment<'_> {
    const UNUSED: Self = Segment { after: 0, octets: Piece::None };

    fn as_slice(&self) -> &[u8] {
        match &self.octets {
            Piece::None => &[],
            Piece::Borrowed(octets) => octets,
            Piece::Owned(octets) => octets.as_slice(),
            Piece::Numbers(numbers) => numbers.as_octets(),
        }
    }
}

/// A place in an encoder to come back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    len: usize,
    bias: usize,
    beside: usize,
    used: u8,
}

impl<'a> Encoder<'a> {
    /// An encoder with an empty buffer, in the order of this machine, for GIOP 1.2 and the code sets that hold without
    /// negotiation.
    #[must_use]
    pub const fn new() -> Encoder<'a> {
        Encoder::over(Vec::new())
    }

    /// The same over a buffer, whose contents are dropped and whose capacity is used.
    #[must_use]
    #[inline]
    pub fn with_buffer(mut buffer: Vec<u8>) -> Encoder<'a> {
        buffer.clear();
        Encoder::over(buffer)
    }

    #[inline]
    const fn over(buffer: Vec<u8>) -> Encoder<'a> {
        Encoder {
            buffer,
            bias: 0,
            beside: 0,
            endian: Endian::NATIVE,
            foreign: false,
            version: Version::GIOP_1_2,
            code_sets: CodeSets::DEFAULT,
            from_server: false,
            used: 0,
            body: (0, 0),
            first: Segment::UNUSED,
            rare: None,
        }
    }

    /// The buffer back, for the next encoder. Segments are not part of it.
    #[must_use]
    #[inline]
    pub fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    /// The same where the encoder stays where it is; it is not used any more.
    #[must_use]
    #[inline]
    pub fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Forgets all that was written, and keeps the buffer and the settings.
    pub fn clear(&mut self) {
        self.truncate(Mark { len: 0, bias: 0, beside: 0, used: 0 });
    }

    /// The order of numbers from here on.
    #[inline]
    pub fn set_endian(&mut self, endian: Endian) {
        self.endian = endian;
        self.foreign = endian.is_foreign();
    }

    /// The GIOP version whose rules wide characters follow from here on.
    #[inline]
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// The transmission code sets of the connection.
    #[inline]
    pub fn set_code_sets(&mut self, code_sets: CodeSets) {
        self.code_sets = code_sets;
    }

    /// Whether a server writes (a reply) or a client (a request, the default): wide data that cannot be sent is another
    /// exception on either side.
    #[inline]
    pub fn set_from_server(&mut self, from_server: bool) {
        self.from_server = from_server;
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// The order of numbers.
    #[must_use]
    #[inline]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// The GIOP version.
    #[must_use]
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The transmission code sets.
    #[must_use]
    #[inline]
    pub fn code_sets(&self) -> CodeSets {
        self.code_sets
    }

    /// Whether a server writes.
    #[must_use]
    #[inline]
    pub fn from_server(&self) -> bool {
        self.from_server
    }

    /// Octets since the alignment origin, those in segments included.
    #[must_use]
    #[inline]
    pub fn position(&self) -> usize {
        self.buffer.len().wrapping_add(self.bias)
    }

    /// Octets since the encoder was made or cleared, those in segments included.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.buffer.len() + self.beside
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the current place the alignment origin: here a message begins. Octets written before stay in front of it.
    #[inline]
    pub fn set_origin(&mut self) {
        self.bias = self.buffer.len().wrapping_neg();
    }

    /// Writes zeros up to a multiple of `alignment`, which is 1, 2, 4 or 8.
    #[inline]
    pub fn align(&mut self, alignment: usize) {
        debug_assert!(matches!(alignment, 1 | 2 | 4 | 8));
        let gap = self.position().wrapping_neg() & (alignment - 1) & 7;
        if gap != 0 {
            let len = self.buffer.len();
            self.buffer.extend_from_slice(&[0; 8]);
            self.buffer.truncate(len + gap);
        }
    }

    #[inline]
    fn put<const N: usize>(&mut self, octets: [u8; N]) {
        self.align(N);
        self.buffer.extend_from_slice(&octets);
    }

    /// Writes an octet.
    #[inline]
    pub fn write_u8(&mut self, value: u8) {
        self.buffer.push(value);
    }

    /// Writes an int8.
    #[inline]
    pub fn write_i8(&mut self, value: i8) {
        self.buffer.push(value.cast_unsigned());
    }

    /// Writes a boolean.
    #[inline]
    pub fn write_bool(&mut self, value: bool) {
        self.buffer.push(u8::from(value));
    }

    /// Writes an unsigned short.
    #[inline]
    pub fn write_u16(&mut self, value: u16) {
        self.put(if self.foreign { value.swap_bytes() } else { value }.to_ne_bytes());
    }

    /// Writes a short.
    #[inline]
    pub fn write_i16(&mut self, value: i16) {
        self.write_u16(value.cast_unsigned());
    }

    /// Writes an unsigned long (or an enum).
    #[inline]
    pub fn write_u32(&mut self, value: u32) {
        self.put(if self.foreign { value.swap_bytes() } else { value }.to_ne_bytes());
    }

    /// Writes a long.
    #[inline]
    pub fn write_i32(&mut self, value: i32) {
        self.write_u32(value.cast_unsigned());
    }

    /// Writes an unsigned long long.
    #[inline]
    pub fn write_u64(&mut self, value: u64) {
        self.put(if self.foreign { value.swap_bytes() } else { value }.to_ne_bytes());
    }

    /// Writes a long long.
    #[inline]
    pub fn write_i64(&mut self, value: i64) {
        self.write_u64(value.cast_unsigned());
    }

    /// Writes a float.
    #[inline]
    pub fn write_f32(&mut self, value: f32) {
        self.write_u32(value.to_bits());
    }

    /// Writes a double.
    #[inline]
    pub fn write_f64(&mut self, value: f64) {
        self.write_u64(value.to_bits());
    }

    /// Writes a long double, given as an IEEE quad with its most significant octet first.
    pub fn write_long_double(&mut self, mut quad: [u8; 16]) {
        if self.endian == Endian::Little {
            quad.reverse();
        }
        self.align(8);
        self.buffer.extend_from_slice(&quad);
    }

    /// Writes octets without a count: an array of octets, or octets that are CDR already.
    #[inline]
    pub fn write_raw(&mut self, octets: &[u8]) {
        self.buffer.extend_from_slice(octets);
    }

    /// Zeros at the end, to be filled in.
    #[inline]
    pub(crate) fn room(&mut self, octets: usize) -> &mut [u8] {
        let start = self.buffer.len();
        self.buffer.resize(start + octets, 0);
        self.buffer.get_mut(start..).unwrap_or_default()
    }

    /// Writes the count of a sequence.
    ///
    /// # Errors
    /// [`CdrError::TooLong`] above 32 bits.
    #[inline]
    pub fn write_len(&mut self, len: usize) -> Result<(), CdrError> {
        self.write_u32(u32::try_from(len).map_err(|_| CdrError::TooLong)?);
        Ok(())
    }

    /// Writes the count of a bounded sequence.
    ///
    /// # Errors
    /// [`CdrError::SequenceOverBound`].
    #[inline]
    pub fn write_len_bounded(&mut self, len: usize, bound: u32) -> Result<(), CdrError> {
        match u32::try_from(len) {
            Ok(len) if len <= bound => {
                self.write_u32(len);
                Ok(())
            }
            _ => Err(CdrError::SequenceOverBound),
        }
    }

    /// Writes a `sequence<octet>`: count and octets. A large slice is borrowed, not copied.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    #[inline]
    pub fn write_octets(&mut self, octets: &'a [u8]) -> Result<(), CdrError> {
        self.write_len(octets.len())?;
        if octets.len() >= BORROW_THRESHOLD {
            self.put_beside(Piece::Borrowed(octets));
        } else {
            self.buffer.extend_from_slice(octets);
        }
        Ok(())
    }

    /// Writes a `sequence<octet>` and keeps large octets alive until the encoder is done with them.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn write_octets_owned(&mut self, octets: Octets) -> Result<(), CdrError> {
        self.write_len(octets.len())?;
        if octets.len() >= BORROW_THRESHOLD {
            self.put_beside(Piece::Owned(octets));
        } else {
            self.buffer.extend_from_slice(&octets);
        }
        Ok(())
    }

    /// Writes a `sequence<octet>` as a copy, whatever its size.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    #[inline]
    pub fn write_octets_copied(&mut self, octets: &[u8]) -> Result<(), CdrError> {
        self.write_len(octets.len())?;
        self.buffer.extend_from_slice(octets);
        Ok(())
    }

    #[cold]
    fn put_beside(&mut self, octets: Piece<'a>) {
        let segment = Segment { after: self.buffer.len(), octets };
        let len = segment.as_slice().len();
        match usize::from(self.used) {
            0 => self.first = segment,
            used if used < MAX_SEGMENTS => self.rare().others.push(segment),
            _ => {
                self.buffer.extend_from_slice(segment.as_slice());
                return;
            }
        }
        self.used += 1;
        self.beside += len;
        self.bias = self.bias.wrapping_add(len);
    }

    fn rare(&mut self) -> &mut Rare<'a> {
        self.rare.get_or_insert_default()
    }

    #[inline]
    fn segments(&self) -> impl Iterator<Item = &Segment<'a>> {
        let others = self.rare.iter().flat_map(|rare| &rare.others);
        std::iter::once(&self.first).chain(others).take(usize::from(self.used))
    }

    /// Writes numbers in bulk, aligned, without a count.
    pub fn write_slice<T: Primitive>(&mut self, numbers: &[T]) {
        if numbers.is_empty() {
            return;
        }
        self.align(T::SIZE);
        if self.foreign && T::SIZE > 1 {
            let start = self.buffer.len();
            self.buffer.extend_from_slice(bytemuck::cast_slice(numbers));
            let written = self.buffer.get_mut(start..).unwrap_or_default();
            match T::SIZE {
                2 => swap_all::<2>(written),
                4 => swap_all::<4>(written),
                _ => swap_all::<8>(written),
            }
        } else {
            self.buffer.extend_from_slice(bytemuck::cast_slice(numbers));
        }
    }

    /// Writes numbers as [`write_slice`](Encoder::write_slice) does, and borrows them where they are many and in the order
    /// of the message.
    #[inline]
    pub fn write_slice_lent<T: Primitive>(&mut self, numbers: &'a [T]) {
        if size_of_val(numbers) < BORROW_THRESHOLD || self.foreign && T::SIZE > 1 {
            return self.write_slice(numbers);
        }
        self.align(T::SIZE);
        self.put_beside(Piece::Borrowed(bytemuck::cast_slice(numbers)));
    }

    /// Writes numbers as [`write_slice`](Encoder::write_slice) does, and keeps them until the encoder is done with them where
    /// they are many and in the order of the message.
    #[inline]
    pub fn write_slice_owned<T: Primitive>(&mut self, numbers: Vec<T>) {
        let len = size_of_val(numbers.as_slice());
        if len < BORROW_THRESHOLD || self.foreign && T::SIZE > 1 {
            return self.write_slice(&numbers);
        }
        self.align(T::SIZE);
        self.put_beside(Piece::Numbers(T::keep(numbers)));
    }

    /// Writes booleans in bulk, without a count.
    pub fn write_bools(&mut self, values: &[bool]) {
        self.buffer.extend(values.iter().map(|value| u8::from(*value)));
    }

    /// Writes an encapsulation: its length, its byte-order octet, and what `contents` writes, aligned from that octet.
    /// Version and code sets that `contents` changes hold for the encapsulation only.
    ///
    /// # Errors
    /// Those of `contents`, and [`CdrError::TooLong`].
    pub fn write_encapsulation(
        &mut self,
        contents: impl FnOnce(&mut Self) -> Result<(), CdrError>,
    ) -> Result<(), CdrError> {
        self.write_u32(0);
        let (start, beside_before, origin) = (self.buffer.len(), self.beside, self.bias.wrapping_sub(self.beside));
        let (version, code_sets) = (self.version, self.code_sets);
        // Indirections do not lead out of an encapsulation.
        let values = self.rare.as_mut().and_then(|rare| rare.values.take());
        self.set_origin();
        self.write_u8(self.endian.flag());
        let result = contents(self);
        let len = self.buffer.len() - start + self.beside - beside_before;
        self.bias = origin.wrapping_add(self.beside);
        self.version = version;
        self.code_sets = code_sets;
        if let Some(rare) = &mut self.rare {
            rare.values = values;
        }
        result?;
        self.patch_buffer(start - 4, u32::try_from(len).map_err(|_| CdrError::TooLong)?);
        Ok(())
    }

    /// The current place, for [`truncate`](Encoder::truncate).
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { len: self.buffer.len(), bias: self.bias, beside: self.beside, used: self.used }
    }

    /// Takes back all that was written since the mark, which is not within a value (IDL `valuetype`).
    pub fn truncate(&mut self, mark: Mark) {
        self.buffer.truncate(mark.len);
        if mark.used == 0 {
            self.first = Segment::UNUSED;
        }
        if let Some(rare) = &mut self.rare {
            rare.others.truncate(usize::from(mark.used).saturating_sub(1));
            rare.values = None;
        }
        (self.bias, self.beside, self.used) = (mark.bias, mark.beside, mark.used);
    }

    /// Writes an unsigned long over the four octets at a position that was written before. A position that was not, or
    /// that lies in a segment, is left alone.
    #[inline]
    pub fn patch_u32(&mut self, position: usize, value: u32) {
        if self.used == 0 {
            return self.patch_buffer(position.wrapping_sub(self.bias), value);
        }
        self.patch_between(position, value);
    }

    #[cold]
    fn patch_between(&mut self, position: usize, value: u32) {
        // Positions count the segments in front of them; the buffer's indices do not.
        let mut at = position.wrapping_sub(self.bias.wrapping_sub(self.beside));
        for segment in self.segments() {
            let len = segment.as_slice().len();
            if at < segment.after {
                break;
            } else if at < segment.after + len {
                return;
            }
            at -= len;
        }
        self.patch_buffer(at, value);
    }

    #[inline]
    fn patch_buffer(&mut self, at: usize, value: u32) {
        let octets = if self.foreign { value.swap_bytes() } else { value }.to_ne_bytes();
        if let Some(place) = self.buffer.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *place = octets;
        }
    }

    /// Ends the header of a GIOP 1.2 message: a body, if there is one, begins at a multiple of 8.
    #[inline]
    pub(crate) fn begin_body(&mut self, alignment: usize) {
        let end = self.buffer.len();
        self.align(alignment);
        self.body = (end, self.buffer.len());
    }

    /// Ends a message that began at the alignment origin: takes the padding of an empty body back, and writes the size.
    #[inline]
    pub(crate) fn finish_message(&mut self, header: usize, size_at: usize) -> Result<(), CdrError> {
        if self.buffer.len() == self.body.1 && self.body.0 < self.body.1 && self.used == 0 {
            self.buffer.truncate(self.body.0);
        }
        self.body = (0, 0);
        let size = self.position().wrapping_sub(header);
        let size = u32::try_from(size).map_err(|_| CdrError::TooLong)?;
        self.patch_u32(size_at, size);
        Ok(())
    }

    /// All octets in order: the parts of the buffer and the segments between them, none of them empty, at most
    /// [`MAX_SLICES`].
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        let pairs = self.segments().flat_map(move |segment| {
            let part = self.buffer.get(start..segment.after).unwrap_or_default();
            start = segment.after;
            [part, segment.as_slice()]
        });
        let tail_from = self.segments().last().map_or(0, |last| last.after);
        let tail = self.buffer.get(tail_from..).unwrap_or_default();
        pairs.chain(std::iter::once(tail)).filter(|slice| !slice.is_empty())
    }

    /// The same slices, made into what the caller needs, in a list of its own: the part of it that they fill.
    pub fn gather<'e, 'l, T>(&'e self, list: &'l mut [T; MAX_SLICES], make: impl Fn(&'e [u8]) -> T) -> &'l mut [T] {
        let mut count = 0;
        let mut add = |slice: &'e [u8]| {
            if let Some(place) = list.get_mut(count).filter(|_| !slice.is_empty()) {
                *place = make(slice);
                count += 1;
            }
        };
        let mut start = 0;
        for segment in self.segments() {
            add(self.buffer.get(start..segment.after).unwrap_or_default());
            add(segment.as_slice());
            start = segment.after;
        }
        add(self.buffer.get(start..).unwrap_or_default());
        list.get_mut(..count).unwrap_or_default()
    }

    /// A part of all octets, in order: what a fragment holds.
    pub fn slices_in(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let mut start = 0usize;
        let parts = self.slices().map(move |slice| {
            let from = range.start.saturating_sub(start).min(slice.len());
            let to = range.end.saturating_sub(start).min(slice.len());
            start += slice.len();
            slice.get(from..to).unwrap_or_default()
        });
        parts.filter(|slice| !slice.is_empty())
    }

    /// All octets if they lie in the buffer alone, which they do unless a large octet sequence was written.
    #[must_use]
    #[inline]
    pub fn contiguous(&self) -> Option<&[u8]> {
        (self.used == 0).then_some(&self.buffer)
    }

    /// The octets of a part of one of the [`slices`](Encoder::slices), for longer than the encoder: shared where it owns them
    /// ([`write_octets_owned`](Encoder::write_octets_owned)), else a copy.
    #[must_use]
    pub fn keep(&self, part: &[u8]) -> Octets {
        let shared = self.segments().find_map(|segment| match &segment.octets {
            Piece::Owned(octets) => octets.share(part),
            Piece::None | Piece::Borrowed(_) | Piece::Numbers(_) => None,
        });
        shared.unwrap_or_else(|| Octets::copy_from(part))
    }

    /// A copy of all octets, in order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        self.slices().for_each(|slice| all.extend_from_slice(slice));
        all
    }

    /// Gives the buffer to code of this crate that converts text into it.
    #[inline]
    pub(crate) fn buffer_mut(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    pub(super) fn values(&mut self) -> &mut ValueWriter {
        self.rare().values.get_or_insert_default()
    }

    #[inline]
    pub(crate) fn patch_at_buffer(&mut self, at: usize, value: u32) {
        self.patch_buffer(at, value);
    }
}

/// Reverses the octets of each number; of a constant size, so that the compiler makes vector instructions of it.
fn swap_all<const N: usize>(octets: &mut [u8]) {
    octets.as_chunks_mut::<N>().0.iter_mut().for_each(|number| number.reverse());
}

impl Default for Encoder<'_> {
    fn default() -> Self {
        Encoder::new()
    }
}

#[cfg(test)]
mod tests;
