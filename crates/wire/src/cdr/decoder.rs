//! The decoder: reads values from one message, borrowed where possible.

mod fragments;

use std::any::Any;

use super::valuetype::Chunks;
use super::{BORROW_THRESHOLD, CdrError, Endian, MemoryMeter, MessageTail, Octets, Primitive, Scratch};
use super::{PathRecorder, PathStep, ValuePath, ValueReadState, truncated};
use crate::codeset::CodeSets;
use crate::giop::Version;
use crate::limits::Limits;
use fragments::FragmentMap;

const BLOCK_OVERHEAD: usize = 24;

static DEFAULT_LIMITS: Limits = Limits::DEFAULT;

/// Reads CDR from one whole message or encapsulation. The alignment origin is its first byte, or in
/// GIOP 1.1 fragments the header of the current fragment.
///
/// Borrowed results point into the message or, if the data must be converted or collected, into the
/// [`Scratch`]. Inside a chunked value (IDL `valuetype`), a reading method also returns
/// [`CdrError::MalformedValuetype`] if the value has ended or if its chunks are malformed.
#[derive(Clone)]
pub struct Decoder<'m> {
    bytes_from_origin: &'m [u8],
    /// A slice and not an index, so that one comparison checks the bounds of a primitive.
    remaining_bytes: &'m [u8],
    limits: &'m Limits,
    scratch: Option<&'m Scratch>,
    owner: Option<&'m Octets>,
    env: Option<&'m (dyn Any + Sync)>,
    values: Option<&'m ValueReadState>,
    meter: Option<&'m MemoryMeter<'m>>,
    tail: Option<&'m MessageTail<'m>>,
    chunks: Chunks<'m>,
    fragments: FragmentMap<'m>,
    charged: usize,
    depth: u32,
    endian: Endian,
    swap_bytes: bool,
    from_server: bool,
    version: Version,
    code_sets: CodeSets,
}

impl PathRecorder for Decoder<'_> {
    #[cold]
    #[inline(never)]
    fn record_step(&mut self, step: PathStep) {
        if let Some(values) = self.values {
            values.record_step(step, self.remaining_bytes.as_ptr().addr());
        }
    }

    #[cold]
    fn value_path(&self) -> Option<ValuePath> {
        self.values?.value_path()
    }
}

impl<'m> Decoder<'m> {
    /// Creates a decoder at the first byte, with GIOP 1.2, the default limits, and the code sets
    /// that apply without negotiation.
    #[must_use]
    #[inline]
    pub fn new(bytes: &'m [u8], endian: Endian) -> Decoder<'m> {
        Decoder {
            bytes_from_origin: bytes,
            remaining_bytes: bytes,
            limits: &DEFAULT_LIMITS,
            scratch: None,
            owner: None,
            env: None,
            values: None,
            meter: None,
            tail: None,
            chunks: Chunks::NONE,
            fragments: FragmentMap { message: &[], starts: &[] },
            charged: 0,
            depth: 0,
            endian,
            swap_bytes: endian.needs_swap(),
            from_server: false,
            version: Version::GIOP_1_2,
            code_sets: CodeSets::DEFAULT,
        }
    }

    /// Creates a decoder of an encapsulation, whose first octet is the byte order.
    ///
    /// # Errors
    /// [`CdrError::EmptyEncapsulation`].
    pub fn for_encapsulation(bytes: &'m [u8]) -> Result<Decoder<'m>, CdrError> {
        let order = bytes.first().ok_or(CdrError::EmptyEncapsulation)?;
        Ok(Decoder::new(bytes, Endian::from_flag(*order)).at_position(1))
    }

    /// Moves to a position, counted in bytes from the alignment origin. Call this method before
    /// [`with_fragment_starts`](Decoder::with_fragment_starts).
    #[must_use]
    #[inline]
    pub fn at_position(mut self, position: usize) -> Decoder<'m> {
        self.remaining_bytes = self.bytes_from_origin.get(position..).unwrap_or_default();
        self
    }

    /// Sets the GIOP version, which determines the form of wide characters.
    #[must_use]
    #[inline]
    pub fn with_version(mut self, version: Version) -> Decoder<'m> {
        self.version = version;
        self
    }

    /// Sets the transmission code sets of the connection.
    #[must_use]
    #[inline]
    pub fn with_code_sets(mut self, code_sets: CodeSets) -> Decoder<'m> {
        self.code_sets = code_sets;
        self
    }

    /// Sets the bounds on the data that is read.
    #[must_use]
    #[inline]
    pub fn with_limits(mut self, limits: &'m Limits) -> Decoder<'m> {
        self.limits = limits;
        self
    }

    /// Sets the arena for converted data.
    #[must_use]
    #[inline]
    pub fn with_scratch(mut self, scratch: &'m Scratch) -> Decoder<'m> {
        self.scratch = Some(scratch);
        self
    }

    /// Sets the owner of the message's bytes.
    /// [`read_octet_sequence_owned`](Decoder::read_octet_sequence_owned) then shares the owner's
    /// memory instead of copying large sequences.
    #[must_use]
    #[inline]
    pub fn with_shared_message(mut self, owner: &'m Octets) -> Decoder<'m> {
        self.owner = Some(owner);
        self
    }

    /// Sets a value that [`decoding_context`](Decoder::decoding_context) returns to decoding code.
    #[must_use]
    #[inline]
    pub fn with_decoding_context(mut self, env: &'m (dyn Any + Sync)) -> Decoder<'m> {
        self.env = Some(env);
        self
    }

    /// Sets the state that the values (IDL `valuetype`) of the message share. Without a state no
    /// value can be read.
    #[must_use]
    #[inline]
    pub fn with_value_read_state(mut self, values: &'m ValueReadState) -> Decoder<'m> {
        self.values = Some(values);
        self
    }

    /// Sets the meter of the memory that is allocated for the message. Without a meter, each
    /// decoder counts its own memory.
    #[must_use]
    #[inline]
    pub fn with_memory_meter(mut self, meter: &'m MemoryMeter<'m>) -> Decoder<'m> {
        self.meter = Some(meter);
        self
    }

    /// Sets the source of the bytes that follow the decoder's bytes in the message.
    /// [`read_into`](Decoder::read_into) reads from this source.
    #[must_use]
    pub fn with_tail(mut self, tail: &'m MessageTail<'m>) -> Decoder<'m> {
        self.tail = Some(tail);
        self
    }

    pub(super) fn tail(&self) -> Option<MessageTail<'m>> {
        self.tail.copied()
    }

    pub(super) fn meter(&self) -> Option<&'m MemoryMeter<'m>> {
        self.meter
    }

    /// Sets whether a server wrote the message, as in a reply. By default a client wrote the
    /// message.
    #[must_use]
    #[inline]
    pub fn with_written_by_server(mut self, from_server: bool) -> Decoder<'m> {
        self.from_server = from_server;
        self
    }

    /// Returns the state of the message's values. Returns `None` if the decoder has no state, and
    /// in GIOP 1.1 fragments, where positions differ from the positions that the sender counted.
    pub(super) fn usable_value_read_state(&self) -> Option<&'m ValueReadState> {
        self.values.filter(|_| self.fragments.starts.is_empty())
    }

    /// Returns the state that the values of the message share.
    #[must_use]
    pub fn value_read_state(&self) -> Option<&'m ValueReadState> {
        self.values
    }

    pub(super) fn chunks(&self) -> &Chunks<'m> {
        &self.chunks
    }

    pub(super) fn chunks_mut(&mut self) -> &mut Chunks<'m> {
        &mut self.chunks
    }

    pub(super) fn set_window(&mut self, octets: &'m [u8], from: usize, to: usize) {
        self.bytes_from_origin = octets.get(..to).unwrap_or_default();
        self.remaining_bytes = octets.get(from..to).unwrap_or_default();
    }

    /// Returns the value that [`with_decoding_context`](Decoder::with_decoding_context) set.
    #[must_use]
    pub fn decoding_context(&self) -> Option<&'m (dyn Any + Sync)> {
        self.env
    }

    /// Returns the byte order.
    #[must_use]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Returns the GIOP version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the transmission code sets.
    #[must_use]
    #[inline]
    pub fn code_sets(&self) -> CodeSets {
        self.code_sets
    }

    /// Returns the bounds on the data that is read.
    #[must_use]
    pub fn limits(&self) -> &'m Limits {
        self.limits
    }

    /// Returns the arena for converted data.
    #[must_use]
    pub fn scratch(&self) -> Option<&'m Scratch> {
        self.scratch
    }

    /// Returns true if a server wrote the message.
    #[must_use]
    pub fn is_written_by_server(&self) -> bool {
        self.from_server
    }

    /// Returns the position in bytes from the alignment origin.
    #[must_use]
    #[inline]
    pub fn position(&self) -> usize {
        self.bytes_from_origin.len() - self.remaining_bytes.len()
    }

    /// Returns the number of unread bytes, including the bytes of later fragments and chunks.
    #[must_use]
    #[inline]
    pub fn remaining_len(&self) -> usize {
        self.total_remaining()
    }

    /// Returns the unread bytes up to the end of the current fragment or chunk. Without fragments
    /// and chunks, these are all unread bytes.
    #[must_use]
    pub fn remaining_bytes(&self) -> &'m [u8] {
        self.remaining_bytes
    }

    /// Returns the bytes from the alignment origin to the end of
    /// [`remaining_bytes`](Decoder::remaining_bytes).
    #[must_use]
    pub fn bytes_from_origin(&self) -> &'m [u8] {
        self.bytes_from_origin
    }

    #[inline]
    fn gap(&self, alignment: usize) -> usize {
        self.remaining_bytes.len().wrapping_sub(self.bytes_from_origin.len()) & (alignment - 1)
    }

    /// Skips to a multiple of `alignment`, which is 1, 2, 4 or 8.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn align(&mut self, alignment: usize) -> Result<(), CdrError> {
        debug_assert!(matches!(alignment, 1 | 2 | 4 | 8));
        if !self.fragments.starts.is_empty() && self.gap(alignment) >= self.remaining_bytes.len() {
            self.seek_in_message(self.message_position() + self.remaining_bytes.len());
        } else if self.chunks.level > 0 && self.remaining_bytes.is_empty() {
            self.open_chunk()?;
        }
        self.skip(self.gap(alignment))
    }

    /// Skips bytes.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn skip(&mut self, octets: usize) -> Result<(), CdrError> {
        self.read_bytes(octets).map(|_| ())
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], CdrError> {
        let gap = self.gap(N);
        if self.remaining_bytes.len() < gap + N {
            let (octets, next) = self.clone().take_across()?;
            *self = next;
            return Ok(octets);
        }
        let (value, rest) = self.remaining_bytes.split_at(gap + N);
        self.remaining_bytes = rest;
        let mut octets = [0; N];
        octets.copy_from_slice(&value[gap..]);
        Ok(octets)
    }

    /// Reads an octet.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn read_u8(&mut self) -> Result<u8, CdrError> {
        let [octet] = self.take()?;
        Ok(octet)
    }

    /// Reads an int8.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn read_i8(&mut self) -> Result<i8, CdrError> {
        self.read_u8().map(u8::cast_signed)
    }

    /// Reads a boolean: every octet other than 0 is true.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn read_bool(&mut self) -> Result<bool, CdrError> {
        self.read_u8().map(|octet| octet != 0)
    }

    /// Reads an unsigned short.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn read_u16(&mut self) -> Result<u16, CdrError> {
        let value = u16::from_ne_bytes(self.take()?);
        Ok(if self.swap_bytes { value.swap_bytes() } else { value })
    }

    /// Reads a short.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn read_i16(&mut self) -> Result<i16, CdrError> {
        self.read_u16().map(u16::cast_signed)
    }

    /// Reads an unsigned long.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn read_u32(&mut self) -> Result<u32, CdrError> {
        let value = u32::from_ne_bytes(self.take()?);
        Ok(if self.swap_bytes { value.swap_bytes() } else { value })
    }

    /// Reads a long.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn read_i32(&mut self) -> Result<i32, CdrError> {
        self.read_u32().map(u32::cast_signed)
    }

    /// Reads an unsigned long long.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn read_u64(&mut self) -> Result<u64, CdrError> {
        let value = u64::from_ne_bytes(self.take()?);
        Ok(if self.swap_bytes { value.swap_bytes() } else { value })
    }

    /// Reads a long long.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn read_i64(&mut self) -> Result<i64, CdrError> {
        self.read_u64().map(u64::cast_signed)
    }

    /// Reads a float.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn read_f32(&mut self) -> Result<f32, CdrError> {
        self.read_u32().map(f32::from_bits)
    }

    /// Reads a double.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn read_f64(&mut self) -> Result<f64, CdrError> {
        self.read_u64().map(f64::from_bits)
    }

    /// Reads a long double (IEEE 754 binary128). Returns its most significant byte first.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    pub fn read_long_double(&mut self) -> Result<[u8; 16], CdrError> {
        self.align(8)?;
        let mut quad = self.read_byte_array::<16>()?;
        if self.endian == Endian::Little {
            quad.reverse();
        }
        Ok(quad)
    }

    /// Reads a value of an enum with `members` members. Returns the position of the member, from 0.
    ///
    /// # Errors
    /// [`CdrError::EnumOutOfRange`], [`CdrError::Truncated`].
    #[inline]
    pub fn read_enum(&mut self, members: u32) -> Result<u32, CdrError> {
        let position = self.read_u32()?;
        if position < members { Ok(position) } else { Err(CdrError::EnumOutOfRange) }
    }

    /// Reads `len` octets unchanged.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn read_bytes(&mut self, len: usize) -> Result<&'m [u8], CdrError> {
        match self.remaining_bytes.split_at_checked(len) {
            Some((octets, rest)) => {
                self.remaining_bytes = rest;
                Ok(octets)
            }
            None => {
                let (octets, next) = self.clone().read_raw_across(len)?;
                *self = next;
                Ok(octets)
            }
        }
    }

    /// Reads an array of octets.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn read_byte_array<const N: usize>(&mut self) -> Result<[u8; N], CdrError> {
        let mut octets = [0; N];
        octets.copy_from_slice(self.read_bytes(N)?);
        Ok(octets)
    }

    /// Reads the count of a sequence whose elements have at least `min_element_size` bytes each.
    /// Refuses a count of elements that do not fit in the unread bytes, before any memory is
    /// allocated. If `min_element_size` is 0, 64 bytes are charged for each element instead.
    ///
    /// # Errors
    /// [`CdrError::CountExceedsInput`], [`CdrError::LimitExceeded`],
    /// [`CdrError::MemoryBudgetExceeded`], [`CdrError::Truncated`].
    #[inline]
    pub fn read_len(&mut self, min_element_size: usize) -> Result<usize, CdrError> {
        self.read_len_with_tail(min_element_size, 0)
    }

    /// Reads a count as [`read_len`](Decoder::read_len) does. `tail_len` further bytes follow the
    /// unread bytes.
    #[inline]
    pub(super) fn read_len_with_tail(&mut self, min_element_size: usize, tail_len: usize) -> Result<usize, CdrError> {
        let count = self.read_u32()?;
        let len = count as usize;
        match len.checked_mul(min_element_size) {
            _ if min_element_size == 0 => self.charge_elements::<[u8; 64]>(len)?,
            Some(octets) if octets <= self.total_remaining() + tail_len => {}
            _ => return Err(CdrError::CountExceedsInput),
        }
        if count > self.limits.max_sequence_length { Err(CdrError::LimitExceeded) } else { Ok(len) }
    }

    /// Reads the count of a bounded sequence.
    ///
    /// # Errors
    /// [`CdrError::SequenceOverBound`], and the errors of [`read_len`](Decoder::read_len).
    #[inline]
    pub fn read_len_bounded(&mut self, min_element_size: usize, bound: u32) -> Result<usize, CdrError> {
        let len = self.read_len(min_element_size)?;
        if len > bound as usize { Err(CdrError::SequenceOverBound) } else { Ok(len) }
    }

    /// Reads a `sequence<octet>`, borrowed from the message.
    ///
    /// # Errors
    /// The errors of [`read_len`](Decoder::read_len).
    #[inline]
    pub fn read_octet_sequence(&mut self) -> Result<&'m [u8], CdrError> {
        let len = self.read_len(1)?;
        self.read_bytes(len)
    }

    /// Reads a `sequence<octet>` as an owned value. If
    /// [`with_shared_message`](Decoder::with_shared_message) set an owner, a sequence of at least
    /// [`BORROW_THRESHOLD`] bytes shares the owner's memory.
    ///
    /// # Errors
    /// The errors of [`read_len`](Decoder::read_len) and of [`charge`](Decoder::charge).
    pub fn read_octet_sequence_owned(&mut self) -> Result<Octets, CdrError> {
        let octets = self.read_octet_sequence()?;
        self.share_or_copy(octets)
    }

    pub(crate) fn share_or_copy(&mut self, octets: &[u8]) -> Result<Octets, CdrError> {
        let shared = match self.owner {
            Some(owner) if octets.len() >= BORROW_THRESHOLD => owner.share(octets),
            _ => None,
        };
        if let Some(shared) = shared {
            return Ok(shared);
        }
        self.charge_block(octets.len())?;
        Ok(Octets::copy_from(octets))
    }

    pub(super) fn swaps_bytes(&self) -> bool {
        self.swap_bytes
    }

    fn raw_numbers<T: Primitive>(&mut self, len: usize) -> Result<&'m [u8], CdrError> {
        if len == 0 {
            return Ok(&[]);
        }
        self.align(T::SIZE)?;
        self.read_bytes(len.checked_mul(T::SIZE).ok_or_else(truncated)?)
    }

    /// Reads `len` numbers. Numbers in this machine's byte order that are aligned in memory are
    /// borrowed. Other numbers are converted into the arena ([`Scratch`]).
    ///
    /// # Errors
    /// [`CdrError::Truncated`]; if conversion is needed, [`CdrError::MissingScratch`] without an
    /// arena, and the errors of [`charge`](Decoder::charge).
    pub fn read_slice<T: Primitive>(&mut self, len: usize) -> Result<&'m [T], CdrError> {
        let raw = self.raw_numbers::<T>(len)?;
        if raw.is_empty() {
            return Ok(&[]);
        }
        if (!self.swap_bytes || T::SIZE == 1)
            && let Ok(numbers) = bytemuck::try_cast_slice(raw)
        {
            return Ok(numbers);
        }
        self.charge(raw.len())?;
        let bump = self.scratch.ok_or(CdrError::MissingScratch)?.bump();
        let foreign = self.swap_bytes;
        Ok(bump.alloc_slice_fill_iter(raw.chunks_exact(T::SIZE).map(|octets| number(octets, foreign))))
    }

    /// Reads `len` numbers into a vector.
    ///
    /// # Errors
    /// [`CdrError::Truncated`], and the errors of [`charge`](Decoder::charge).
    pub fn read_vec<T: Primitive>(&mut self, len: usize) -> Result<Vec<T>, CdrError> {
        let raw = self.raw_numbers::<T>(len)?;
        self.charge(raw.len())?;
        if !self.swap_bytes || T::SIZE == 1 {
            if let Ok(numbers) = bytemuck::try_cast_slice::<u8, T>(raw) {
                return Ok(numbers.to_vec());
            }
            let mut numbers = vec![T::zeroed(); len];
            bytemuck::cast_slice_mut(&mut numbers).copy_from_slice(raw);
            return Ok(numbers);
        }
        Ok(raw.chunks_exact(T::SIZE).map(|octets| number(octets, true)).collect())
    }

    /// Reads an array of numbers.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    pub fn read_number_array<T: Primitive, const N: usize>(&mut self) -> Result<[T; N], CdrError> {
        let raw = self.raw_numbers::<T>(N)?;
        let mut numbers = [T::zeroed(); N];
        bytemuck::cast_slice_mut(&mut numbers).copy_from_slice(raw);
        if self.swap_bytes && T::SIZE > 1 {
            numbers.iter_mut().for_each(|number| *number = number.with_swapped_bytes());
        }
        Ok(numbers)
    }

    /// Charges the memory of `len` elements of type `T`, which the caller then allocates.
    ///
    /// # Errors
    /// The errors of [`charge`](Decoder::charge).
    #[doc(hidden)]
    pub fn charge_elements<T>(&mut self, len: usize) -> Result<(), CdrError> {
        self.charge(len.saturating_mul(size_of::<T>()))
    }

    /// Charges memory in bytes that is about to be allocated for the message.
    ///
    /// # Errors
    /// [`CdrError::LimitExceeded`] above [`Limits::max_decoded_bytes`] for this message;
    /// [`CdrError::MemoryBudgetExceeded`] if the budget of all messages together is exhausted.
    #[doc(hidden)]
    #[inline]
    pub fn charge(&mut self, octets: usize) -> Result<(), CdrError> {
        let limit = self.limits.max_decoded_bytes;
        if let Some(meter) = self.meter {
            return meter.charge(octets, limit);
        }
        self.charged = self.charged.saturating_add(octets);
        if self.charged > limit { Err(CdrError::LimitExceeded) } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn charge_block(&mut self, octets: usize) -> Result<(), CdrError> {
        if octets == 0 { Ok(()) } else { self.charge(octets.saturating_add(BLOCK_OVERHEAD)) }
    }

    /// Reads `len` elements into the arena ([`Scratch`]). The caller has read `len` with
    /// [`read_len`](Decoder::read_len).
    ///
    /// # Errors
    /// The errors of `element` and of [`charge`](Decoder::charge); [`CdrError::MissingScratch`] if
    /// the decoder has no arena.
    pub fn read_slice_with<T: Copy>(
        &mut self,
        len: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, CdrError>,
    ) -> Result<&'m [T], CdrError> {
        if len == 0 {
            return Ok(&[]);
        }
        self.charge_elements::<T>(len)?;
        let bump = self.scratch.ok_or(CdrError::MissingScratch)?.bump();
        let element = |index| element(self).inspect_err(|_| self.record_step(PathStep::Element(index)));
        bump.alloc_slice_try_fill_with(len, element).map(|elements| &*elements)
    }

    /// Reads an encapsulation and returns a decoder of its contents. The new decoder has the
    /// encapsulation's byte order and alignment origin, and this decoder's other settings.
    ///
    /// # Errors
    /// [`CdrError::EmptyEncapsulation`], and the errors of [`read_len`](Decoder::read_len).
    pub fn read_encapsulation(&mut self) -> Result<Decoder<'m>, CdrError> {
        let bytes = self.read_octet_sequence()?;
        let inner = Decoder::for_encapsulation(bytes)?;
        let more = FragmentMap { message: &[], starts: &[] };
        let chunks = Chunks::NONE;
        let (endian, foreign) = (inner.endian, inner.swap_bytes);
        Ok(Decoder {
            bytes_from_origin: bytes,
            tail: None,
            fragments: more,
            remaining_bytes: inner.remaining_bytes,
            chunks,
            endian,
            swap_bytes: foreign,
            ..self.clone()
        })
    }

    /// Calls `value` one nesting level deeper.
    ///
    /// # Errors
    /// [`CdrError::NestingTooDeep`] at the limit, else the errors of `value`.
    #[inline]
    pub fn read_nested<T>(&mut self, value: impl FnOnce(&mut Self) -> Result<T, CdrError>) -> Result<T, CdrError> {
        self.enter_nesting()?;
        let result = value(self);
        self.leave_nesting();
        result
    }

    /// Enters one nesting level; [`leave_nesting`](Decoder::leave_nesting) leaves it.
    ///
    /// # Errors
    /// [`CdrError::NestingTooDeep`] at the limit.
    #[inline]
    pub fn enter_nesting(&mut self) -> Result<(), CdrError> {
        if self.depth >= self.limits.max_nesting {
            return Err(CdrError::NestingTooDeep);
        }
        self.depth += 1;
        Ok(())
    }

    pub(crate) fn levels_left(&self) -> u32 {
        self.limits.max_nesting.saturating_sub(self.depth)
    }

    /// Leaves a level that [`enter_nesting`](Decoder::enter_nesting) entered.
    #[inline]
    pub fn leave_nesting(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}

#[inline]
fn number<T: Primitive>(octets: &[u8], foreign: bool) -> T {
    let number: T = bytemuck::pod_read_unaligned(octets);
    if foreign { number.with_swapped_bytes() } else { number }
}

impl std::fmt::Debug for Decoder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder")
            .field("position", &self.position())
            .field("len", &self.bytes_from_origin.len())
            .field("endian", &self.endian)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primitives_in_both_orders() {
        let big = [1, 0xff, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0, 9];
        let mut d = Decoder::new(&big, Endian::Big);
        assert_eq!((d.read_bool(), d.read_u16(), d.read_u32()), (Ok(true), Ok(0x0203), Ok(0x0405_0607)));
        assert_eq!((d.read_u64(), d.remaining_len()), (Ok(9), 0));
        assert_eq!((d.read_u8(), d.read_u64()), (Err(CdrError::Truncated), Err(CdrError::Truncated)));
        let mut d = Decoder::new(&[0xfe, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff], Endian::Little);
        assert_eq!((d.read_i16(), d.read_i32()), (Ok(-2), Ok(-1)));
    }

    #[test]
    fn a_primitive_whose_padding_runs_past_the_end_is_truncated() {
        for len in 1..8 {
            let bytes = vec![1; len];
            let mut d = Decoder::new(&bytes, Endian::Big).at_position(1);
            assert_eq!(d.read_u64(), Err(CdrError::Truncated));
            assert_eq!(d.position(), 1);
        }
        assert_eq!(Decoder::new(&[1], Endian::Big).at_position(9).remaining_len(), 0);
    }

    #[test]
    fn count_beyond_the_unread_bytes_is_refused_before_an_allocation() {
        let bytes = [0, 0, 0, 3, 1, 2, 3];
        assert_eq!(Decoder::new(&bytes, Endian::Big).read_octet_sequence(), Ok([1, 2, 3].as_slice()));
        assert_eq!(Decoder::new(&bytes, Endian::Big).read_len(2), Err(CdrError::CountExceedsInput));
        let huge = [0xff; 8];
        assert_eq!(Decoder::new(&huge, Endian::Big).read_len(usize::MAX), Err(CdrError::CountExceedsInput));
        assert_eq!(Decoder::new(&bytes, Endian::Big).read_len_bounded(1, 2), Err(CdrError::SequenceOverBound));
        let limits = Limits { max_sequence_length: 2, ..Limits::default() };
        assert_eq!(Decoder::new(&bytes, Endian::Big).with_limits(&limits).read_len(1), Err(CdrError::LimitExceeded));
    }

    #[test]
    fn aligned_native_numbers_are_borrowed_and_others_converted() {
        let source = vec![0x0102_0304u32, 5];
        let bytes: &[u8] = bytemuck::cast_slice(&source);
        let mut d = Decoder::new(bytes, Endian::NATIVE);
        assert_eq!(d.read_slice::<u32>(2).unwrap().as_ptr(), source.as_ptr());
        let other = if Endian::NATIVE == Endian::Big { Endian::Little } else { Endian::Big };
        assert_eq!(Decoder::new(bytes, other).read_slice::<u32>(2), Err(CdrError::MissingScratch));
        let scratch = Scratch::new();
        let swapped = [0x0403_0201u32, 0x0500_0000];
        assert_eq!(Decoder::new(bytes, other).with_scratch(&scratch).read_slice::<u32>(2), Ok(swapped.as_slice()));
        assert_eq!(Decoder::new(bytes, other).read_vec::<u32>(2).unwrap(), swapped);
        assert_eq!(Decoder::new(bytes, other).read_number_array::<u32, 2>().unwrap(), swapped);
        assert_eq!(Decoder::new(bytes, other).read_vec::<u32>(usize::MAX / 2), Err(CdrError::Truncated));
        assert_eq!(Decoder::new(bytes, other).read_slice::<u8>(2).unwrap(), &bytes[..2]);
    }

    #[test]
    fn fixed_size_elements_go_into_the_arena() {
        let scratch = Scratch::new();
        let mut d = Decoder::new(&[1, 2, 3], Endian::Big).with_scratch(&scratch);
        assert_eq!(d.read_slice_with(2, |d| d.read_u8()), Ok([1, 2].as_slice()));
        assert_eq!(d.read_slice_with(2, |d| d.read_u8()), Err(CdrError::Truncated));
    }

    #[test]
    fn decoder_of_an_encapsulation_has_its_own_byte_order_and_the_outer_settings() {
        let bytes = [0, 0, 0, 8, 1, 9, 9, 9, 7, 0, 0, 0, 5];
        let limits = Limits { max_nesting: 1, ..Limits::default() };
        let mut d = Decoder::new(&bytes, Endian::Big).with_limits(&limits).with_version(Version::GIOP_1_1);
        let mut inner = d.read_encapsulation().unwrap();
        assert_eq!((inner.read_u32(), inner.version(), inner.limits().max_nesting), (Ok(7), Version::GIOP_1_1, 1));
        assert_eq!(d.read_u8(), Ok(5));
        assert_eq!(Decoder::new(&[0; 4], Endian::Big).read_encapsulation().err(), Some(CdrError::EmptyEncapsulation));
    }

    #[test]
    fn nesting_is_bounded_and_left_levels_can_be_entered_again() {
        fn deep(d: &mut Decoder<'_>) -> Result<(), CdrError> {
            d.read_nested(deep)
        }
        let mut d = Decoder::new(&[], Endian::Big);
        assert_eq!(deep(&mut d), Err(CdrError::NestingTooDeep));
        assert_eq!(d.read_nested(|_| Ok(1)), Ok(1));
    }

    #[test]
    fn large_octets_share_the_memory_of_the_owner() {
        let mut message = vec![0, 0, 0x40, 0];
        message.resize(4 + BORROW_THRESHOLD, 7);
        let owner = Octets::from(message);
        let octets = Decoder::new(&owner, Endian::Big).with_shared_message(&owner).read_octet_sequence_owned().unwrap();
        assert_eq!(octets.as_ptr(), owner[4..].as_ptr());
        let copy = Decoder::new(&owner, Endian::Big).read_octet_sequence_owned().unwrap();
        assert_ne!(copy.as_ptr(), owner[4..].as_ptr());
        assert_eq!(copy, octets);
    }
}
