//! The encoder: writes values into a reusable buffer, with large octet slices as separate segments.

use std::ops::Range;

use super::primitive::NumberVec;
use super::valuetype::ValueWriter;
use super::{
    BORROW_THRESHOLD, CdrError, Endian, MAX_ENCODER_SEGMENTS, MAX_ENCODER_SLICES, Octets, PathRecorder, PathStep,
    Primitive, ValuePath,
};
use crate::codeset::CodeSets;
use crate::giop::Version;

/// Writes CDR into a reusable buffer. Some methods borrow or take over slices of at least
/// [`BORROW_THRESHOLD`] bytes instead of copying them: these slices become segments between parts
/// of the buffer. [`slices`](Encoder::slices) returns all parts in order for a vectored write.
#[derive(Debug)]
pub struct Encoder<'a> {
    buffer: Vec<u8>,
    /// The position minus the length of the buffer, wrapping.
    bias: usize,
    segment_bytes: usize,
    endian: Endian,
    swap_bytes: bool,
    version: Version,
    code_sets: CodeSets,
    from_server: bool,
    segment_count: u8,
    /// The buffer's length before and after the padding in front of a GIOP body.
    body_padding: (usize, usize),
    first_segment: Segment<'a>,
    /// State that few messages need, behind one pointer, so that an encoder is cheap to create and
    /// drop.
    cold: Option<Box<ColdState<'a>>>,
}

#[derive(Debug, Default)]
struct ColdState<'a> {
    more_segments: Vec<Segment<'a>>,
    values: Option<ValueWriter>,
    value_path: Option<ValuePath>,
}

#[derive(Debug)]
struct Segment<'a> {
    buffer_offset: usize,
    octets: SegmentBytes<'a>,
}

#[derive(Debug)]
enum SegmentBytes<'a> {
    None,
    Borrowed(&'a [u8]),
    Owned(Octets),
    Numbers(NumberVec),
}

impl Segment<'_> {
    const UNUSED: Self = Segment { buffer_offset: 0, octets: SegmentBytes::None };

    fn as_slice(&self) -> &[u8] {
        match &self.octets {
            SegmentBytes::None => &[],
            SegmentBytes::Borrowed(octets) => octets,
            SegmentBytes::Owned(octets) => octets.as_slice(),
            SegmentBytes::Numbers(numbers) => numbers.as_octets(),
        }
    }
}

/// A position to which [`Encoder::truncate`] can truncate an encoder.
#[derive(Clone, Copy, Debug)]
pub struct TruncationPoint {
    len: usize,
    bias: usize,
    segment_bytes: usize,
    segment_count: u8,
}

impl<'a> Encoder<'a> {
    /// Creates an encoder with an empty buffer, this machine's byte order, GIOP 1.2, and the code
    /// sets that apply without negotiation.
    #[must_use]
    pub const fn new() -> Encoder<'a> {
        Encoder::over_buffer(Vec::new())
    }

    /// Creates an encoder that reuses the capacity of `buffer` and drops its contents.
    #[must_use]
    #[inline]
    pub fn with_buffer(mut buffer: Vec<u8>) -> Encoder<'a> {
        buffer.clear();
        Encoder::over_buffer(buffer)
    }

    #[inline]
    const fn over_buffer(buffer: Vec<u8>) -> Encoder<'a> {
        Encoder {
            buffer,
            bias: 0,
            segment_bytes: 0,
            endian: Endian::NATIVE,
            swap_bytes: false,
            version: Version::GIOP_1_2,
            code_sets: CodeSets::DEFAULT,
            from_server: false,
            segment_count: 0,
            body_padding: (0, 0),
            first_segment: Segment::UNUSED,
            cold: None,
        }
    }

    /// Returns the buffer without the segments, for use by the next encoder.
    #[must_use]
    #[inline]
    pub fn into_reusable_buffer(self) -> Vec<u8> {
        self.buffer
    }

    /// Takes the buffer out, for use by the next encoder. This encoder must not be used again.
    #[must_use]
    #[inline]
    pub fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Drops the written bytes; keeps the buffer and the settings.
    pub fn clear(&mut self) {
        self.truncate(TruncationPoint { len: 0, bias: 0, segment_bytes: 0, segment_count: 0 });
    }

    /// Sets the byte order of the following numbers.
    #[inline]
    pub fn set_endian(&mut self, endian: Endian) {
        self.endian = endian;
        self.swap_bytes = endian.needs_swap();
    }

    /// Sets the GIOP version, which determines the form of the following wide characters.
    #[inline]
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Sets the transmission code sets of the connection.
    #[inline]
    pub fn set_code_sets(&mut self, code_sets: CodeSets) {
        self.code_sets = code_sets;
    }

    /// Sets whether a server writes the message, as in a reply. By default a client writes the
    /// message.
    #[inline]
    pub fn set_written_by_server(&mut self, from_server: bool) {
        self.from_server = from_server;
    }

    pub(super) fn swaps_bytes(&self) -> bool {
        self.swap_bytes
    }

    /// Returns the byte order.
    #[must_use]
    #[inline]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Returns the GIOP version.
    #[must_use]
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the transmission code sets.
    #[must_use]
    #[inline]
    pub fn code_sets(&self) -> CodeSets {
        self.code_sets
    }

    /// Returns true if a server writes the message.
    #[must_use]
    #[inline]
    pub fn is_written_by_server(&self) -> bool {
        self.from_server
    }

    /// Returns the number of bytes since the alignment origin, segments included.
    #[must_use]
    #[inline]
    pub fn position(&self) -> usize {
        self.buffer.len().wrapping_add(self.bias)
    }

    /// Returns the number of bytes since the encoder was created or cleared, segments included.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.buffer.len() + self.segment_bytes
    }

    /// Returns true if nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the current position the alignment origin of a message that begins here. Bytes written
    /// earlier stay in front of the message.
    #[inline]
    pub fn set_alignment_origin(&mut self) {
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
        self.put(if self.swap_bytes { value.swap_bytes() } else { value }.to_ne_bytes());
    }

    /// Writes a short.
    #[inline]
    pub fn write_i16(&mut self, value: i16) {
        self.write_u16(value.cast_unsigned());
    }

    /// Writes an unsigned long (or an enum).
    #[inline]
    pub fn write_u32(&mut self, value: u32) {
        self.put(if self.swap_bytes { value.swap_bytes() } else { value }.to_ne_bytes());
    }

    /// Writes a long.
    #[inline]
    pub fn write_i32(&mut self, value: i32) {
        self.write_u32(value.cast_unsigned());
    }

    /// Writes an unsigned long long.
    #[inline]
    pub fn write_u64(&mut self, value: u64) {
        self.put(if self.swap_bytes { value.swap_bytes() } else { value }.to_ne_bytes());
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

    /// Writes a long double (IEEE 754 binary128), given with its most significant byte first.
    pub fn write_long_double(&mut self, mut quad: [u8; 16]) {
        if self.endian == Endian::Little {
            quad.reverse();
        }
        self.align(8);
        self.buffer.extend_from_slice(&quad);
    }

    /// Writes octets without a count: an array of octets, or data that is already encoded.
    #[inline]
    pub fn write_bytes(&mut self, octets: &[u8]) {
        self.buffer.extend_from_slice(octets);
    }

    #[inline]
    pub(crate) fn extend_zeroed(&mut self, octets: usize) -> &mut [u8] {
        let start = self.buffer.len();
        self.buffer.resize(start + octets, 0);
        self.buffer.get_mut(start..).unwrap_or_default()
    }

    /// Writes the count of a sequence.
    ///
    /// # Errors
    /// [`CdrError::LengthOverflow`] above 32 bits.
    #[inline]
    pub fn write_len(&mut self, len: usize) -> Result<(), CdrError> {
        self.write_u32(u32::try_from(len).map_err(|_| CdrError::LengthOverflow)?);
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

    /// Writes a `sequence<octet>`: count and octets. A slice of at least [`BORROW_THRESHOLD`] bytes
    /// is borrowed, and copied only if the encoder has [`MAX_ENCODER_SEGMENTS`] segments.
    ///
    /// # Errors
    /// [`CdrError::LengthOverflow`] if the count does not fit in 32 bits.
    #[inline]
    pub fn write_octet_sequence(&mut self, octets: &'a [u8]) -> Result<(), CdrError> {
        self.write_len(octets.len())?;
        if octets.len() >= BORROW_THRESHOLD {
            self.push_segment(SegmentBytes::Borrowed(octets));
        } else {
            self.buffer.extend_from_slice(octets);
        }
        Ok(())
    }

    /// Writes a `sequence<octet>`: count and octets. The encoder takes over octets of at least
    /// [`BORROW_THRESHOLD`] bytes, and copies them only if it has [`MAX_ENCODER_SEGMENTS`] segments.
    ///
    /// # Errors
    /// [`CdrError::LengthOverflow`] if the count does not fit in 32 bits.
    pub fn write_octet_sequence_owned(&mut self, octets: Octets) -> Result<(), CdrError> {
        self.write_len(octets.len())?;
        if octets.len() >= BORROW_THRESHOLD {
            #[cfg(feature = "charged-octets")]
            let octets = octets.without_charge();
            self.push_segment(SegmentBytes::Owned(octets));
        } else {
            self.buffer.extend_from_slice(&octets);
        }
        Ok(())
    }

    /// Writes a `sequence<octet>` as a copy, regardless of its size.
    ///
    /// # Errors
    /// [`CdrError::LengthOverflow`] if the count does not fit in 32 bits.
    #[inline]
    pub fn write_octet_sequence_copied(&mut self, octets: &[u8]) -> Result<(), CdrError> {
        self.write_len(octets.len())?;
        self.buffer.extend_from_slice(octets);
        Ok(())
    }

    #[cold]
    fn push_segment(&mut self, octets: SegmentBytes<'a>) {
        let segment = Segment { buffer_offset: self.buffer.len(), octets };
        let len = segment.as_slice().len();
        match usize::from(self.segment_count) {
            0 => self.first_segment = segment,
            used if used < MAX_ENCODER_SEGMENTS => self.cold_state().more_segments.push(segment),
            _ => {
                self.buffer.extend_from_slice(segment.as_slice());
                return;
            }
        }
        self.segment_count += 1;
        self.segment_bytes += len;
        self.bias = self.bias.wrapping_add(len);
    }

    fn cold_state(&mut self) -> &mut ColdState<'a> {
        self.cold.get_or_insert_default()
    }

    #[inline]
    fn segments(&self) -> impl Iterator<Item = &Segment<'a>> {
        let others = self.cold.iter().flat_map(|rare| &rare.more_segments);
        std::iter::once(&self.first_segment).chain(others).take(usize::from(self.segment_count))
    }

    /// Aligns and writes numbers in bulk, without a count.
    pub fn write_slice<T: Primitive>(&mut self, numbers: &[T]) {
        if numbers.is_empty() {
            return;
        }
        self.align(T::SIZE);
        if self.swap_bytes && T::SIZE > 1 {
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

    /// Aligns and writes numbers in bulk, without a count. A slice of at least
    /// [`BORROW_THRESHOLD`] bytes in the message's byte order is borrowed, and copied only if the
    /// encoder has [`MAX_ENCODER_SEGMENTS`] segments.
    #[inline]
    pub fn write_slice_borrowed<T: Primitive>(&mut self, numbers: &'a [T]) {
        if size_of_val(numbers) < BORROW_THRESHOLD || self.swap_bytes && T::SIZE > 1 {
            return self.write_slice(numbers);
        }
        self.align(T::SIZE);
        self.push_segment(SegmentBytes::Borrowed(bytemuck::cast_slice(numbers)));
    }

    /// Aligns and writes numbers in bulk, without a count. The encoder takes over a vector of at
    /// least [`BORROW_THRESHOLD`] bytes in the message's byte order, and copies it only if it has
    /// [`MAX_ENCODER_SEGMENTS`] segments.
    #[inline]
    pub fn write_slice_owned<T: Primitive>(&mut self, numbers: Vec<T>) {
        let len = size_of_val(numbers.as_slice());
        if len < BORROW_THRESHOLD || self.swap_bytes && T::SIZE > 1 {
            return self.write_slice(&numbers);
        }
        self.align(T::SIZE);
        self.push_segment(SegmentBytes::Numbers(T::into_numbers(numbers)));
    }

    /// Writes booleans in bulk, without a count.
    pub fn write_bools(&mut self, values: &[bool]) {
        self.buffer.extend(values.iter().map(|value| u8::from(*value)));
    }

    /// Writes an encapsulation: its length, its byte-order octet, and the output of `contents`,
    /// aligned from that octet.
    ///
    /// # Errors
    /// The errors of `contents`; [`CdrError::LengthOverflow`] if the encapsulation's length does
    /// not fit in 32 bits.
    pub fn write_encapsulation(
        &mut self,
        contents: impl FnOnce(&mut Self) -> Result<(), CdrError>,
    ) -> Result<(), CdrError> {
        self.write_u32(0);
        let (start, beside_before, origin) =
            (self.buffer.len(), self.segment_bytes, self.bias.wrapping_sub(self.segment_bytes));
        let (version, code_sets) = (self.version, self.code_sets);
        // An indirection cannot lead out of an encapsulation, so the encapsulation does not know
        // the values that were written before it.
        let values = self.cold.as_mut().and_then(|rare| rare.values.take());
        self.set_alignment_origin();
        self.write_u8(self.endian.to_flag());
        let result = contents(self);
        let len = self.buffer.len() - start + self.segment_bytes - beside_before;
        self.bias = origin.wrapping_add(self.segment_bytes);
        self.version = version;
        self.code_sets = code_sets;
        if let Some(rare) = &mut self.cold {
            rare.values = values;
        }
        result?;
        self.patch_buffer(start - 4, u32::try_from(len).map_err(|_| CdrError::LengthOverflow)?);
        Ok(())
    }

    /// Returns the current position, for [`truncate`](Encoder::truncate).
    #[must_use]
    pub fn truncation_point(&self) -> TruncationPoint {
        TruncationPoint {
            len: self.buffer.len(),
            bias: self.bias,
            segment_bytes: self.segment_bytes,
            segment_count: self.segment_count,
        }
    }

    /// Removes everything written since the truncation point, which must not be inside a value (IDL
    /// `valuetype`).
    pub fn truncate(&mut self, mark: TruncationPoint) {
        self.buffer.truncate(mark.len);
        if mark.segment_count == 0 {
            self.first_segment = Segment::UNUSED;
        }
        if let Some(rare) = &mut self.cold {
            rare.more_segments.truncate(usize::from(mark.segment_count).saturating_sub(1));
            rare.values = None;
            rare.value_path = None;
        }
        (self.bias, self.segment_bytes, self.segment_count) = (mark.bias, mark.segment_bytes, mark.segment_count);
    }

    /// Overwrites four bytes at an earlier position with an unsigned long. Does nothing if the
    /// position was not written or is in a segment.
    #[inline]
    pub fn patch_u32(&mut self, position: usize, value: u32) {
        if self.segment_count == 0 {
            return self.patch_buffer(position.wrapping_sub(self.bias), value);
        }
        self.patch_with_segments(position, value);
    }

    #[cold]
    fn patch_with_segments(&mut self, position: usize, value: u32) {
        // A position counts the segments in front of it; an index into the buffer does not.
        let mut at = position.wrapping_sub(self.bias.wrapping_sub(self.segment_bytes));
        for segment in self.segments() {
            let len = segment.as_slice().len();
            if at < segment.buffer_offset {
                break;
            } else if at < segment.buffer_offset + len {
                return;
            }
            at -= len;
        }
        self.patch_buffer(at, value);
    }

    #[inline]
    fn patch_buffer(&mut self, at: usize, value: u32) {
        let octets = if self.swap_bytes { value.swap_bytes() } else { value }.to_ne_bytes();
        if let Some(place) = self.buffer.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *place = octets;
        }
    }

    /// Returns true if the contents begin with the four bytes `GIOP`.
    #[must_use]
    pub fn begins_with_giop_header(&self) -> bool {
        self.buffer.starts_with(b"GIOP")
    }

    /// Ends the header of a message with padding to a multiple of `alignment`, where the body
    /// begins.
    #[inline]
    pub(crate) fn begin_body(&mut self, alignment: usize) {
        let end = self.buffer.len();
        self.align(alignment);
        self.body_padding = (end, self.buffer.len());
    }

    #[inline]
    pub(crate) fn finish_message(&mut self, header: usize, size_at: usize) -> Result<(), CdrError> {
        if self.buffer.len() == self.body_padding.1
            && self.body_padding.0 < self.body_padding.1
            && self.segment_count == 0
        {
            self.buffer.truncate(self.body_padding.0);
        }
        self.body_padding = (0, 0);
        let size = self.position().wrapping_sub(header);
        let size = u32::try_from(size).map_err(|_| CdrError::LengthOverflow)?;
        self.patch_u32(size_at, size);
        Ok(())
    }

    /// Returns all bytes in order: the parts of the buffer and the segments between them. No slice
    /// is empty, and there are at most [`MAX_ENCODER_SLICES`].
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        let pairs = self.segments().flat_map(move |segment| {
            let part = self.buffer.get(start..segment.buffer_offset).unwrap_or_default();
            start = segment.buffer_offset;
            [part, segment.as_slice()]
        });
        let tail_from = self.segments().last().map_or(0, |last| last.buffer_offset);
        let tail = self.buffer.get(tail_from..).unwrap_or_default();
        pairs.chain(std::iter::once(tail)).filter(|slice| !slice.is_empty())
    }

    /// Converts each of the [`slices`](Encoder::slices) with `make` into an entry of the caller's
    /// list. Returns the entries that were filled.
    pub fn gather_slices<'e, 'l, T>(
        &'e self,
        list: &'l mut [T; MAX_ENCODER_SLICES],
        make: impl Fn(&'e [u8]) -> T,
    ) -> &'l mut [T] {
        let mut count = 0;
        let mut add = |slice: &'e [u8]| {
            if let Some(place) = list.get_mut(count).filter(|_| !slice.is_empty()) {
                *place = make(slice);
                count += 1;
            }
        };
        let mut start = 0;
        for segment in self.segments() {
            add(self.buffer.get(start..segment.buffer_offset).unwrap_or_default());
            add(segment.as_slice());
            start = segment.buffer_offset;
        }
        add(self.buffer.get(start..).unwrap_or_default());
        list.get_mut(..count).unwrap_or_default()
    }

    /// Returns a range of the contents, such as one fragment, as slices in order. Offset 0 is the
    /// first byte of the first slice of [`slices`](Encoder::slices).
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

    /// Returns all bytes as one slice; `None` if there are segments.
    #[must_use]
    #[inline]
    pub fn as_contiguous_slice(&self) -> Option<&[u8]> {
        (self.segment_count == 0).then_some(&self.buffer)
    }

    /// Returns a part of one of the [`slices`](Encoder::slices) as an owned value. Octets that the
    /// encoder owns ([`write_octet_sequence_owned`](Encoder::write_octet_sequence_owned)) are
    /// shared, other octets are copied.
    #[must_use]
    pub fn share_or_copy(&self, part: &[u8]) -> Octets {
        let shared = self.segments().find_map(|segment| match &segment.octets {
            SegmentBytes::Owned(octets) => octets.share(part),
            SegmentBytes::None | SegmentBytes::Borrowed(_) | SegmentBytes::Numbers(_) => None,
        });
        shared.unwrap_or_else(|| Octets::copy_from(part))
    }

    /// Returns a copy of all bytes, in order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        self.slices().for_each(|slice| all.extend_from_slice(slice));
        all
    }

    #[inline]
    pub(crate) fn buffer_mut(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    pub(super) fn values(&mut self) -> &mut ValueWriter {
        self.cold_state().values.get_or_insert_default()
    }

    #[inline]
    pub(crate) fn patch_at_buffer(&mut self, at: usize, value: u32) {
        self.patch_buffer(at, value);
    }
}

impl PathRecorder for Encoder<'_> {
    #[cold]
    #[inline(never)]
    fn record_step(&mut self, step: PathStep) {
        let place = self.len();
        self.cold_state().value_path.get_or_insert_default().add(step, place);
    }

    #[cold]
    fn value_path(&self) -> Option<ValuePath> {
        self.cold.as_ref()?.value_path.clone()
    }
}

/// The constant size of a number lets the compiler vectorize the loop.
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
