//! The decoder: values out of the octets of one message, borrowed where possible.

mod pieces;

use std::any::Any;

use super::valuetype::Chunks;
use super::{BORROW_THRESHOLD, CdrError, Endian, Octets, Primitive, Scratch, ValueSpace, truncated};
use crate::codeset::CodeSets;
use crate::giop::Version;
use crate::limits::Limits;
use pieces::More;

static DEFAULT_LIMITS: Limits = Limits::DEFAULT;

/// Reads CDR from one whole message or encapsulation, whose octet 0 is the alignment origin.
///
/// What is read borrows from the message for `'m`, or from the [`Scratch`] where octets have to be converted. A clone
/// reads on from the same place, independently.
#[derive(Clone)]
pub struct Decoder<'m> {
    bytes: &'m [u8],
    /// The end of `bytes` that is not read yet. Kept beside it, so that a primitive costs one comparison.
    rest: &'m [u8],
    limits: &'m Limits,
    scratch: Option<&'m Scratch>,
    owner: Option<&'m Octets>,
    env: Option<&'m (dyn Any + Sync)>,
    values: Option<&'m ValueSpace>,
    chunks: Chunks<'m>,
    /// What follows behind `bytes`, if a GIOP 1.1 message was put together from fragments.
    more: More<'m>,
    /// What the elements of sequences take in memory so far.
    memory: usize,
    depth: u32,
    endian: Endian,
    foreign: bool,
    from_server: bool,
    version: Version,
    code_sets: CodeSets,
}

impl<'m> Decoder<'m> {
    /// A decoder at octet 0, for GIOP 1.2, the default limits and the code sets that hold without negotiation.
    #[must_use]
    #[inline]
    pub fn new(bytes: &'m [u8], endian: Endian) -> Decoder<'m> {
        Decoder {
            bytes,
            rest: bytes,
            limits: &DEFAULT_LIMITS,
            scratch: None,
            owner: None,
            env: None,
            values: None,
            chunks: Chunks::NONE,
            more: More { octets: &[], breaks: &[] },
            memory: 0,
            depth: 0,
            endian,
            foreign: endian.is_foreign(),
            from_server: false,
            version: Version::GIOP_1_2,
            code_sets: CodeSets::DEFAULT,
        }
    }

    /// A decoder of an encapsulation: its first octet is the byte order.
    ///
    /// # Errors
    /// [`CdrError::EmptyEncapsulation`].
    pub fn for_encapsulation(bytes: &'m [u8]) -> Result<Decoder<'m>, CdrError> {
        let order = bytes.first().ok_or(CdrError::EmptyEncapsulation)?;
        Ok(Decoder::new(bytes, Endian::from_flag(*order)).at(1))
    }

    /// Goes to a position: octets from the alignment origin. Past the end is the end. Comes before
    /// [`with_breaks`](Decoder::with_breaks).
    #[must_use]
    #[inline]
    pub fn at(mut self, position: usize) -> Decoder<'m> {
        self.rest = self.bytes.get(position..).unwrap_or_default();
        self
    }

    /// The GIOP version whose rules wide characters follow.
    #[must_use]
    #[inline]
    pub fn with_version(mut self, version: Version) -> Decoder<'m> {
        self.version = version;
        self
    }

    /// The transmission code sets of the connection.
    #[must_use]
    #[inline]
    pub fn with_code_sets(mut self, code_sets: CodeSets) -> Decoder<'m> {
        self.code_sets = code_sets;
        self
    }

    /// The bounds on what is read.
    #[must_use]
    #[inline]
    pub fn with_limits(mut self, limits: &'m Limits) -> Decoder<'m> {
        self.limits = limits;
        self
    }

    /// The arena for what has to be converted.
    #[must_use]
    #[inline]
    pub fn with_scratch(mut self, scratch: &'m Scratch) -> Decoder<'m> {
        self.scratch = Some(scratch);
        self
    }

    /// The owner of the message's octets: large octet sequences are then read as parts of it, without a copy.
    #[must_use]
    #[inline]
    pub fn with_owner(mut self, owner: &'m Octets) -> Decoder<'m> {
        self.owner = Some(owner);
        self
    }

    /// Something that whoever decodes wants to find again: the ORB that a reference read here belongs to.
    #[must_use]
    #[inline]
    pub fn with_env(mut self, env: &'m (dyn Any + Sync)) -> Decoder<'m> {
        self.env = Some(env);
        self
    }

    /// What the values (IDL `valuetype`) of the message share; without it none can be read.
    #[must_use]
    #[inline]
    pub fn with_values(mut self, values: &'m ValueSpace) -> Decoder<'m> {
        self.values = Some(values);
        self
    }

    /// Whether a server wrote this (a reply); a client by default.
    #[must_use]
    #[inline]
    pub fn with_from_server(mut self, from_server: bool) -> Decoder<'m> {
        self.from_server = from_server;
        self
    }

    /// Where values can be read at all: not in fragments, whose positions differ from those that the sender counted.
    pub(super) fn value_space(&self) -> Option<&'m ValueSpace> {
        self.values.filter(|_| self.more.breaks.is_empty())
    }

    /// What the values of the message share.
    #[must_use]
    pub fn values(&self) -> Option<&'m ValueSpace> {
        self.values
    }

    pub(super) fn chunks(&self) -> &Chunks<'m> {
        &self.chunks
    }

    pub(super) fn chunks_mut(&mut self) -> &mut Chunks<'m> {
        &mut self.chunks
    }

    /// Looks at a part of `octets`, which begin where the message does.
    pub(super) fn see(&mut self, octets: &'m [u8], from: usize, to: usize) {
        self.bytes = octets.get(..to).unwrap_or_default();
        self.rest = octets.get(from..to).unwrap_or_default();
    }

    /// What [`with_env`](Decoder::with_env) gave.
    #[must_use]
    pub fn env(&self) -> Option<&'m (dyn Any + Sync)> {
        self.env
    }

    /// The order of numbers.
    #[must_use]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// The GIOP version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The transmission code sets.
    #[must_use]
    #[inline]
    pub fn code_sets(&self) -> CodeSets {
        self.code_sets
    }

    /// The bounds.
    #[must_use]
    pub fn limits(&self) -> &'m Limits {
        self.limits
    }

    /// The arena.
    #[must_use]
    pub fn scratch(&self) -> Option<&'m Scratch> {
        self.scratch
    }

    /// Whether a server wrote this.
    #[must_use]
    pub fn from_server(&self) -> bool {
        self.from_server
    }

    /// Octets from the alignment origin.
    #[must_use]
    #[inline]
    pub fn position(&self) -> usize {
        self.bytes.len() - self.rest.len()
    }

    /// Octets that are not read yet.
    #[must_use]
    #[inline]
    pub fn remaining(&self) -> usize {
        self.total_remaining()
    }

    /// The octets that are not read yet.
    #[must_use]
    pub fn rest(&self) -> &'m [u8] {
        self.rest
    }

    /// All octets, from the alignment origin.
    #[must_use]
    pub fn bytes(&self) -> &'m [u8] {
        self.bytes
    }

    #[inline]
    fn gap(&self, alignment: usize) -> usize {
        self.rest.len().wrapping_sub(self.bytes.len()) & (alignment - 1)
    }

    /// Skips to a multiple of `alignment`, which is 1, 2, 4 or 8.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn align(&mut self, alignment: usize) -> Result<(), CdrError> {
        debug_assert!(matches!(alignment, 1 | 2 | 4 | 8));
        if !self.more.breaks.is_empty() && self.gap(alignment) >= self.rest.len() {
            self.go_to(self.place() + self.rest.len());
        } else if self.chunks.level > 0 && self.rest.is_empty() {
            self.open_chunk()?;
        }
        self.skip(self.gap(alignment))
    }

    /// Skips octets.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn skip(&mut self, octets: usize) -> Result<(), CdrError> {
        self.read_raw(octets).map(|_| ())
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], CdrError> {
        let gap = self.gap(N);
        if self.rest.len() < gap + N {
            let (octets, next) = self.clone().take_from_next()?;
            *self = next;
            return Ok(octets);
        }
        let (value, rest) = self.rest.split_at(gap + N);
        self.rest = rest;
        let mut octets = [0; N];
        octets.copy_from_slice(&value[gap..]);
        Ok(octets)
    }

    /// Reads an octet.
    ///
    /// # Errors
    /// [`CdrError::Truncated`], as every read of a primitive.
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

    /// Reads a boolean: any octet but 0 is true.
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
        Ok(if self.foreign { value.swap_bytes() } else { value })
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
        Ok(if self.foreign { value.swap_bytes() } else { value })
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
        Ok(if self.foreign { value.swap_bytes() } else { value })
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

    /// Reads a long double: an IEEE quad with its most significant octet first.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    pub fn read_long_double(&mut self) -> Result<[u8; 16], CdrError> {
        self.align(8)?;
        let mut quad = self.read_array::<16>()?;
        if self.endian == Endian::Little {
            quad.reverse();
        }
        Ok(quad)
    }

    /// Reads an enum of `members` members: the position of one.
    ///
    /// # Errors
    /// [`CdrError::EnumRange`], [`CdrError::Truncated`].
    #[inline]
    pub fn read_enum(&mut self, members: u32) -> Result<u32, CdrError> {
        let position = self.read_u32()?;
        if position < members { Ok(position) } else { Err(CdrError::EnumRange) }
    }

    /// Reads `len` octets as they are.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    #[inline]
    pub fn read_raw(&mut self, len: usize) -> Result<&'m [u8], CdrError> {
        match self.rest.split_at_checked(len) {
            Some((octets, rest)) => {
                self.rest = rest;
                Ok(octets)
            }
            None => {
                let (octets, next) = self.clone().raw_from_next(len)?;
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
    pub fn read_array<const N: usize>(&mut self) -> Result<[u8; N], CdrError> {
        let mut octets = [0; N];
        octets.copy_from_slice(self.read_raw(N)?);
        Ok(octets)
    }

    /// Reads the count of a sequence whose elements have at least `min_element_size` octets each: a count that the rest
    /// of the message cannot hold is refused here, before anything is allocated for it. Elements without octets, with 0, count as
    /// memory instead ([`Limits::sequence_memory`]), 64 octets each.
    ///
    /// # Errors
    /// [`CdrError::CountOverRest`], [`CdrError::OverLimit`], [`CdrError::Truncated`].
    #[inline]
    pub fn read_len(&mut self, min_element_size: usize) -> Result<usize, CdrError> {
        let count = self.read_u32()?;
        let len = count as usize;
        match len.checked_mul(min_element_size) {
            _ if min_element_size == 0 => self.count_memory::<[u8; 64]>(len)?,
            Some(octets) if octets <= self.total_remaining() => {}
            _ => return Err(CdrError::CountOverRest),
        }
        if count > self.limits.sequence_length { Err(CdrError::OverLimit) } else { Ok(len) }
    }

    /// The same for a bounded sequence.
    ///
    /// # Errors
    /// [`CdrError::SequenceOverBound`], and those of [`read_len`](Decoder::read_len).
    #[inline]
    pub fn read_len_bounded(&mut self, min_element_size: usize, bound: u32) -> Result<usize, CdrError> {
        let len = self.read_len(min_element_size)?;
        if len > bound as usize { Err(CdrError::SequenceOverBound) } else { Ok(len) }
    }

    /// Reads a `sequence<octet>` in place.
    ///
    /// # Errors
    /// Those of [`read_len`](Decoder::read_len).
    #[inline]
    pub fn read_octets(&mut self) -> Result<&'m [u8], CdrError> {
        let len = self.read_len(1)?;
        self.read_raw(len)
    }

    /// Reads a `sequence<octet>` to keep: a large one as a part of the owner of the message's octets if there is one, else
    /// a copy.
    ///
    /// # Errors
    /// Those of [`read_len`](Decoder::read_len).
    pub fn read_octets_owned(&mut self) -> Result<Octets, CdrError> {
        let octets = self.read_octets()?;
        Ok(self.keep(octets))
    }

    /// Octets of this message to keep: as a part of the owner if there is one and they are large, else a copy.
    pub(crate) fn keep(&self, octets: &[u8]) -> Octets {
        let shared = match self.owner {
            Some(owner) if octets.len() >= BORROW_THRESHOLD => owner.share(octets),
            _ => None,
        };
        shared.unwrap_or_else(|| Octets::copy_from(octets))
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.foreign
    }

    fn raw_numbers<T: Primitive>(&mut self, len: usize) -> Result<&'m [u8], CdrError> {
        if len == 0 {
            return Ok(&[]);
        }
        self.align(T::SIZE)?;
        self.read_raw(len.checked_mul(T::SIZE).ok_or_else(truncated)?)
    }

    /// Reads `len` numbers: in place if their order is this machine's and they are aligned in memory, else converted into
    /// the arena.
    ///
    /// # Errors
    /// [`CdrError::Truncated`]; [`CdrError::NoScratch`] if conversion is needed and there is no arena.
    pub fn read_slice<T: Primitive>(&mut self, len: usize) -> Result<&'m [T], CdrError> {
        let raw = self.raw_numbers::<T>(len)?;
        if raw.is_empty() {
            return Ok(&[]);
        }
        if (!self.foreign || T::SIZE == 1)
            && let Ok(numbers) = bytemuck::try_cast_slice(raw)
        {
            return Ok(numbers);
        }
        let bump = self.scratch.ok_or(CdrError::NoScratch)?.bump();
        let foreign = self.foreign;
        Ok(bump.alloc_slice_fill_iter(raw.chunks_exact(T::SIZE).map(|octets| number(octets, foreign))))
    }

    /// Reads `len` numbers into a vector.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    pub fn read_vec<T: Primitive>(&mut self, len: usize) -> Result<Vec<T>, CdrError> {
        let raw = self.raw_numbers::<T>(len)?;
        if !self.foreign || T::SIZE == 1 {
            // Where memory is aligned as the message is, one copy does; else it is filled with zeros before.
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
    pub fn read_numbers<T: Primitive, const N: usize>(&mut self) -> Result<[T; N], CdrError> {
        let raw = self.raw_numbers::<T>(N)?;
        let mut numbers = [T::zeroed(); N];
        bytemuck::cast_slice_mut(&mut numbers).copy_from_slice(raw);
        if self.foreign && T::SIZE > 1 {
            numbers.iter_mut().for_each(|number| *number = number.swapped());
        }
        Ok(numbers)
    }

    /// Counts `len` elements of a sequence, before there is memory for them.
    ///
    /// # Errors
    /// [`CdrError::OverLimit`].
    #[doc(hidden)]
    pub fn count_memory<T>(&mut self, len: usize) -> Result<(), CdrError> {
        self.memory = self.memory.saturating_add(len.saturating_mul(size_of::<T>()));
        if self.memory > self.limits.sequence_memory { Err(CdrError::OverLimit) } else { Ok(()) }
    }

    /// Reads `len` elements of fixed size into the arena; `len` comes from [`read_len`](Decoder::read_len).
    ///
    /// # Errors
    /// Those of `element`, and [`CdrError::NoScratch`].
    pub fn read_slice_with<T: Copy>(
        &mut self,
        len: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, CdrError>,
    ) -> Result<&'m [T], CdrError> {
        if len == 0 {
            return Ok(&[]);
        }
        self.count_memory::<T>(len)?;
        let bump = self.scratch.ok_or(CdrError::NoScratch)?.bump();
        bump.alloc_slice_try_fill_with(len, |_| element(self)).map(|elements| &*elements)
    }

    /// Reads an encapsulation: a decoder of its contents, with its own byte order and alignment origin and the other
    /// settings of this one.
    ///
    /// # Errors
    /// [`CdrError::EmptyEncapsulation`], and those of [`read_len`](Decoder::read_len).
    pub fn read_encapsulation(&mut self) -> Result<Decoder<'m>, CdrError> {
        let bytes = self.read_octets()?;
        let inner = Decoder::for_encapsulation(bytes)?;
        let more = More { octets: &[], breaks: &[] };
        let chunks = Chunks::NONE;
        let (endian, foreign) = (inner.endian, inner.foreign);
        Ok(Decoder { bytes, more, rest: inner.rest, chunks, endian, foreign, ..self.clone() })
    }

    /// Reads a value that may contain values of its own type.
    ///
    /// # Errors
    /// [`CdrError::TooDeep`] at the limit, else those of `value`.
    #[inline]
    pub fn nested<T>(&mut self, value: impl FnOnce(&mut Self) -> Result<T, CdrError>) -> Result<T, CdrError> {
        self.enter()?;
        let result = value(self);
        self.leave();
        result
    }

    /// Goes one level deeper; [`leave`](Decoder::leave) comes back.
    ///
    /// # Errors
    /// [`CdrError::TooDeep`] at the limit.
    #[inline]
    pub fn enter(&mut self) -> Result<(), CdrError> {
        if self.depth >= self.limits.nesting {
            return Err(CdrError::TooDeep);
        }
        self.depth += 1;
        Ok(())
    }

    /// Levels that are left before [`enter`](Decoder::enter) refuses.
    pub(crate) fn levels_left(&self) -> u32 {
        self.limits.nesting.saturating_sub(self.depth)
    }

    /// Comes back from a level that [`enter`](Decoder::enter) opened.
    #[inline]
    pub fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}

#[inline]
fn number<T: Primitive>(octets: &[u8], foreign: bool) -> T {
    let number: T = bytemuck::pod_read_unaligned(octets);
    if foreign { number.swapped() } else { number }
}

impl std::fmt::Debug for Decoder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder")
            .field("position", &self.position())
            .field("len", &self.bytes.len())
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
        assert_eq!((d.read_u64(), d.remaining()), (Ok(9), 0));
        assert_eq!((d.read_u8(), d.read_u64()), (Err(CdrError::Truncated), Err(CdrError::Truncated)));
        let mut d = Decoder::new(&[0xfe, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff], Endian::Little);
        assert_eq!((d.read_i16(), d.read_i32()), (Ok(-2), Ok(-1)));
    }

    #[test]
    fn a_primitive_whose_padding_runs_past_the_end_is_truncated() {
        for len in 1..8 {
            let bytes = vec![1; len];
            let mut d = Decoder::new(&bytes, Endian::Big).at(1);
            assert_eq!(d.read_u64(), Err(CdrError::Truncated));
            assert_eq!(d.position(), 1);
        }
        assert_eq!(Decoder::new(&[1], Endian::Big).at(9).remaining(), 0);
    }

    #[test]
    fn a_count_is_compared_with_the_rest_before_anything_is_allocated() {
        let bytes = [0, 0, 0, 3, 1, 2, 3];
        assert_eq!(Decoder::new(&bytes, Endian::Big).read_octets(), Ok([1, 2, 3].as_slice()));
        assert_eq!(Decoder::new(&bytes, Endian::Big).read_len(2), Err(CdrError::CountOverRest));
        let huge = [0xff; 8];
        assert_eq!(Decoder::new(&huge, Endian::Big).read_len(usize::MAX), Err(CdrError::CountOverRest));
        assert_eq!(Decoder::new(&bytes, Endian::Big).read_len_bounded(1, 2), Err(CdrError::SequenceOverBound));
        let limits = Limits { sequence_length: 2, ..Limits::default() };
        assert_eq!(Decoder::new(&bytes, Endian::Big).with_limits(&limits).read_len(1), Err(CdrError::OverLimit));
    }

    #[test]
    fn numbers_are_borrowed_in_place_or_converted() {
        let source = vec![0x0102_0304u32, 5];
        let bytes: &[u8] = bytemuck::cast_slice(&source);
        let mut d = Decoder::new(bytes, Endian::NATIVE);
        assert_eq!(d.read_slice::<u32>(2).unwrap().as_ptr(), source.as_ptr());
        let other = if Endian::NATIVE == Endian::Big { Endian::Little } else { Endian::Big };
        assert_eq!(Decoder::new(bytes, other).read_slice::<u32>(2), Err(CdrError::NoScratch));
        let scratch = Scratch::new();
        let swapped = [0x0403_0201u32, 0x0500_0000];
        assert_eq!(Decoder::new(bytes, other).with_scratch(&scratch).read_slice::<u32>(2), Ok(swapped.as_slice()));
        assert_eq!(Decoder::new(bytes, other).read_vec::<u32>(2).unwrap(), swapped);
        assert_eq!(Decoder::new(bytes, other).read_numbers::<u32, 2>().unwrap(), swapped);
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
    fn an_encapsulation_keeps_its_own_order_and_the_settings() {
        let bytes = [0, 0, 0, 8, 1, 9, 9, 9, 7, 0, 0, 0, 5];
        let limits = Limits { nesting: 1, ..Limits::default() };
        let mut d = Decoder::new(&bytes, Endian::Big).with_limits(&limits).with_version(Version::GIOP_1_1);
        let mut inner = d.read_encapsulation().unwrap();
        assert_eq!((inner.read_u32(), inner.version(), inner.limits().nesting), (Ok(7), Version::GIOP_1_1, 1));
        assert_eq!(d.read_u8(), Ok(5));
        assert_eq!(Decoder::new(&[0; 4], Endian::Big).read_encapsulation().err(), Some(CdrError::EmptyEncapsulation));
    }

    #[test]
    fn nesting_is_bounded_and_comes_back() {
        fn deep(d: &mut Decoder<'_>) -> Result<(), CdrError> {
            d.nested(deep)
        }
        let mut d = Decoder::new(&[], Endian::Big);
        assert_eq!(deep(&mut d), Err(CdrError::TooDeep));
        assert_eq!(d.nested(|_| Ok(1)), Ok(1));
    }

    #[test]
    fn large_octets_share_the_owner() {
        let mut message = vec![0, 0, 0x40, 0];
        message.resize(4 + BORROW_THRESHOLD, 7);
        let owner = Octets::from(message);
        let octets = Decoder::new(&owner, Endian::Big).with_owner(&owner).read_octets_owned().unwrap();
        assert_eq!(octets.as_ptr(), owner[4..].as_ptr());
        let copy = Decoder::new(&owner, Endian::Big).read_octets_owned().unwrap();
        assert_ne!(copy.as_ptr(), owner[4..].as_ptr());
        assert_eq!(copy, octets);
    }
}
