//! Bulk encoding and decoding of sequences and arrays whose elements are numbers, booleans, enums,
//! or structures and arrays of these.
//!
//! The first element can have less or more padding than the others. All elements after the first
//! have one layout, because a structure's end position modulo its strictest alignment does not
//! depend on its start.

use super::{Cdr, CdrError, Decoder, Encoder};

/// The strictest alignment of a value, and its size in bytes, padding included, for each start
/// position modulo 8.
#[derive(Clone, Copy, Debug)]
pub struct BulkLayout {
    align: usize,
    sizes: [usize; 8],
}

impl BulkLayout {
    /// The layout of an empty value.
    pub const EMPTY: BulkLayout = BulkLayout { align: 1, sizes: [0; 8] };

    /// Returns the layout of a number of `size` bytes: 1, 2, 4 or 8.
    #[must_use]
    pub const fn of_number(size: usize) -> BulkLayout {
        let mut from = [size; 8];
        let mut position = 0;
        while position < 8 {
            from[position] += position.wrapping_neg() & (size - 1);
            position += 1;
        }
        BulkLayout { align: size, sizes: from }
    }

    /// Returns the layout of this value followed by `next`.
    #[must_use]
    pub const fn followed_by(self, next: BulkLayout) -> BulkLayout {
        let mut from = self.sizes;
        let mut position = 0;
        while position < 8 {
            from[position] += next.sizes[(position + from[position]) % 8];
            position += 1;
        }
        BulkLayout { align: if self.align > next.align { self.align } else { next.align }, sizes: from }
    }

    /// Returns the layout of `count` consecutive values of this type.
    #[must_use]
    pub const fn repeated(self, count: usize) -> BulkLayout {
        let mut all = BulkLayout::EMPTY;
        let mut index = 0;
        while index < count {
            all = all.followed_by(self);
            index += 1;
        }
        all
    }

    const fn phase(&self) -> usize {
        self.sizes[0] % self.align
    }

    /// Returns the distance in bytes of two elements of a sequence.
    pub(super) const fn stride(&self) -> usize {
        self.sizes[self.phase()]
    }

    /// Returns true if consecutive elements take as many bytes on the wire as in memory.
    pub(super) const fn is_size_in_memory<T>(&self) -> bool {
        self.phase() == 0 && self.sizes[0] == size_of::<T>()
    }
}

/// A value whose sequences are written and read in bulk.
pub trait BulkCdr: Cdr + Copy {
    /// The layout of the value.
    const LAYOUT: BulkLayout;

    /// Writes the value.
    fn put(&self, to: &mut BulkWriter<'_>);

    /// Reads a value.
    fn take(from: &mut BulkReader<'_>) -> Self;

    /// Calls `visit` with the memory of each number of the value, in IDL's order. Leaves out parts
    /// that are not numbers, such as booleans.
    #[inline]
    fn each_number<'v>(&'v mut self, visit: &mut impl FnMut(&'v mut [u8])) {
        let _ = visit;
    }

    /// Returns the memory of the values if it consists of numbers in IDL's order, without padding.
    #[inline]
    fn octets_mut(values: &mut [Self]) -> Option<&mut [u8]> {
        let _ = values;
        None
    }
}

/// The buffer into which one element is written. Its bytes are initially 0, so the writer skips
/// padding.
#[derive(Debug)]
pub struct BulkWriter<'o> {
    octets: &'o mut [u8],
    at: usize,
    phase: usize,
    foreign: bool,
}

/// The bytes from which one element is read.
#[derive(Debug)]
pub struct BulkReader<'o> {
    octets: &'o [u8],
    at: usize,
    phase: usize,
    foreign: bool,
    out_of_range: bool,
}

impl BulkReader<'_> {
    /// Records that a number is not a member of its enumeration, so that the decoder refuses the
    /// sequence.
    #[inline]
    pub fn set_out_of_range(&mut self) {
        self.out_of_range = true;
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl BulkCdr for $number {
            const LAYOUT: BulkLayout = BulkLayout::of_number(size_of::<$number>());

            #[inline]
            fn put(&self, to: &mut BulkWriter<'_>) {
                const SIZE: usize = size_of::<$number>();
                let start = to.at + ((to.phase + to.at).wrapping_neg() & (SIZE - 1));
                to.at = start + SIZE;
                let mut octets = self.to_ne_bytes();
                if to.foreign {
                    octets.reverse();
                }
                if let Some(place) = to.octets.get_mut(start..start + SIZE) {
                    place.copy_from_slice(&octets);
                }
            }

            #[inline]
            fn take(from: &mut BulkReader<'_>) -> $number {
                const SIZE: usize = size_of::<$number>();
                let start = from.at + ((from.phase + from.at).wrapping_neg() & (SIZE - 1));
                from.at = start + SIZE;
                let place = from.octets.get(start..).and_then(<[u8]>::first_chunk);
                let mut octets: [u8; SIZE] = place.copied().unwrap_or_default();
                if from.foreign {
                    octets.reverse();
                }
                <$number>::from_ne_bytes(octets)
            }

            #[inline]
            fn each_number<'v>(&'v mut self, visit: &mut impl FnMut(&'v mut [u8])) {
                visit(bytemuck::bytes_of_mut(self));
            }

            #[inline]
            fn octets_mut(values: &mut [Self]) -> Option<&mut [u8]> {
                Some(bytemuck::cast_slice_mut(values))
            }
        }
    )*};
}

numbers! { u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 }

impl BulkCdr for bool {
    const LAYOUT: BulkLayout = BulkLayout::of_number(1);

    #[inline]
    fn put(&self, to: &mut BulkWriter<'_>) {
        u8::from(*self).put(to);
    }

    #[inline]
    fn take(from: &mut BulkReader<'_>) -> bool {
        u8::take(from) != 0
    }
}

impl<T: BulkCdr, const N: usize> BulkCdr for [T; N] {
    const LAYOUT: BulkLayout = {
        assert!(N > 0, "IDL has no empty arrays, and an element of size 0 has no layout");
        T::LAYOUT.repeated(N)
    };

    #[inline]
    fn put(&self, to: &mut BulkWriter<'_>) {
        self.iter().for_each(|element| element.put(to));
    }

    #[inline]
    fn take(from: &mut BulkReader<'_>) -> [T; N] {
        std::array::from_fn(|_| T::take(from))
    }

    #[inline]
    fn each_number<'v>(&'v mut self, visit: &mut impl FnMut(&'v mut [u8])) {
        self.iter_mut().for_each(|element| element.each_number(visit));
    }

    #[inline]
    fn octets_mut(values: &mut [Self]) -> Option<&mut [u8]> {
        T::octets_mut(values.as_flattened_mut())
    }
}

#[inline]
pub(super) fn read_element<T: BulkCdr>(octets: &[u8], foreign: bool, out_of_range: &mut bool) -> T {
    let mut view = BulkReader { octets, at: 0, phase: T::LAYOUT.phase(), foreign, out_of_range: false };
    let value = T::take(&mut view);
    *out_of_range |= view.out_of_range;
    value
}

impl Encoder<'_> {
    /// Writes elements of a sequence or an array, without a count.
    ///
    /// # Errors
    /// The errors of [`Cdr::encode`].
    pub fn write_bulk<T: BulkCdr>(&mut self, values: &[T]) -> Result<(), CdrError> {
        let Some((first, rest)) = values.split_first() else { return Ok(()) };
        first.encode(self)?;
        let (stride, phase, foreign) = (T::LAYOUT.stride(), T::LAYOUT.phase(), self.swaps_bytes());
        let room = self.extend_zeroed(rest.len() * stride);
        for (value, octets) in rest.iter().zip(room.chunks_exact_mut(stride)) {
            value.put(&mut BulkWriter { octets, at: 0, phase, foreign });
        }
        Ok(())
    }
}

impl<'m> Decoder<'m> {
    #[inline]
    fn plain_octets<T: BulkCdr>(&mut self, len: usize) -> Result<(T, &'m [u8]), CdrError> {
        let first = T::decode(self)?;
        let octets = len.saturating_sub(1).checked_mul(T::LAYOUT.stride()).ok_or(CdrError::Truncated)?;
        Ok((first, self.read_bytes(octets)?))
    }

    /// Skips `len` elements of this layout. Returns false, and skips nothing, if fragments or
    /// chunks may separate the elements.
    pub(crate) fn skip_bulk(&mut self, layout: BulkLayout, len: usize) -> Result<bool, CdrError> {
        if self.may_be_split() {
            return Ok(false);
        }
        let Some(rest) = len.checked_sub(1) else { return Ok(true) };
        let octets =
            rest.checked_mul(layout.stride()).and_then(|rest| rest.checked_add(layout.sizes[self.position() % 8]));
        self.skip(octets.ok_or(CdrError::Truncated)?)?;
        Ok(true)
    }

    /// Reads `len` elements into a vector. The caller has read `len` with
    /// [`read_len`](Decoder::read_len).
    ///
    /// # Errors
    /// The errors of [`Cdr::decode`] and of [`charge`](Decoder::charge).
    pub fn read_bulk_vec<T: BulkCdr>(&mut self, len: usize) -> Result<Vec<T>, CdrError> {
        if len == 0 {
            return Ok(Vec::new());
        }
        self.charge_elements::<T>(len)?;
        if self.may_be_split() {
            return (0..len).map(|_| T::decode(self)).collect();
        }
        let (first, octets) = self.plain_octets::<T>(len)?;
        let (foreign, mut out_of_range) = (self.swaps_bytes(), false);
        let mut values = Vec::with_capacity(len);
        values.push(first);
        let rest = octets.chunks_exact(T::LAYOUT.stride());
        values.extend(rest.map(|octets| read_element::<T>(octets, foreign, &mut out_of_range)));
        if out_of_range { Err(CdrError::EnumOutOfRange) } else { Ok(values) }
    }

    /// Reads `len` elements into the arena ([`Scratch`](crate::Scratch)). The caller has read `len`
    /// with [`read_len`](Decoder::read_len).
    ///
    /// # Errors
    /// The errors of [`Cdr::decode`] and of [`charge`](Decoder::charge);
    /// [`CdrError::MissingScratch`] if the decoder has no arena.
    pub fn read_bulk<T: BulkCdr>(&mut self, len: usize) -> Result<&'m [T], CdrError> {
        if len == 0 || self.may_be_split() {
            return self.read_slice_with(len, T::decode);
        }
        self.charge_elements::<T>(len)?;
        let bump = self.scratch().ok_or(CdrError::MissingScratch)?.bump();
        let (first, octets) = self.plain_octets::<T>(len)?;
        let (foreign, mut out_of_range) = (self.swaps_bytes(), false);
        let mut rest = octets.chunks_exact(T::LAYOUT.stride());
        let values = bump.alloc_slice_fill_with(len, |index| {
            let octets = if index == 0 { None } else { rest.next() };
            octets.map_or(first, |octets| read_element(octets, foreign, &mut out_of_range))
        });
        if out_of_range { Err(CdrError::EnumOutOfRange) } else { Ok(values) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Endian, Scratch};
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Inner {
        flag: bool,
        wide: f64,
        octets: [u8; 3],
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Mixed {
        octet: u8,
        long: i32,
        short: i16,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Outer {
        short: i16,
        inner: [Inner; 2],
        octet: u8,
        mixed: Mixed,
    }

    macro_rules! plain {
        ($name:ident: $($field:ident: $ty:ty),*) => {
            impl Cdr for $name {
                const MIN_SIZE: usize = 0 $(+ <$ty as Cdr>::MIN_SIZE)*;
                fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
                    $(self.$field.encode(e)?;)*
                    Ok(())
                }
                fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
                    Ok(Self { $($field: Cdr::decode(d)?),* })
                }
            }
            impl BulkCdr for $name {
                const LAYOUT: BulkLayout = BulkLayout::EMPTY $(.followed_by(<$ty as BulkCdr>::LAYOUT))*;
                fn put(&self, to: &mut BulkWriter<'_>) {
                    $(self.$field.put(to);)*
                }
                fn take(from: &mut BulkReader<'_>) -> Self {
                    Self { $($field: BulkCdr::take(from)),* }
                }
            }
        };
    }
    plain! { Inner: flag: bool, wide: f64, octets: [u8; 3] }
    plain! { Mixed: octet: u8, long: i32, short: i16 }
    plain! { Outer: short: i16, inner: [Inner; 2], octet: u8, mixed: Mixed }

    fn outer(n: u8) -> Outer {
        let inner = |n: u8| Inner { flag: n & 1 == 1, wide: f64::from(n) / 3.0, octets: [n, n + 1, n + 2] };
        let mixed = Mixed { octet: n, long: -i32::from(n), short: i16::from(n) - 7 };
        Outer { short: i16::from(n), inner: [inner(n), inner(n + 1)], octet: n, mixed }
    }

    fn same_as_one_by_one<T: BulkCdr + PartialEq + std::fmt::Debug>(values: &[T]) {
        for endian in [Endian::Big, Endian::Little] {
            for start in 0..8u8 {
                let (mut single, mut bulk) = (Encoder::new(), Encoder::new());
                for e in [&mut single, &mut bulk] {
                    e.set_endian(endian);
                    (0..start).for_each(|octet| e.write_u8(octet));
                }
                values.iter().try_for_each(|value| value.encode(&mut single)).unwrap();
                bulk.write_bulk(values).unwrap();
                let octets = single.into_reusable_buffer();
                assert_eq!(bulk.into_reusable_buffer(), octets);
                let scratch = Scratch::new();
                let decoder = |end: usize| {
                    Decoder::new(&octets[..end], endian).at_position(usize::from(start)).with_scratch(&scratch)
                };
                let mut d = decoder(octets.len());
                assert_eq!(d.read_bulk_vec::<T>(values.len()).unwrap(), values);
                assert_eq!(d.remaining_len(), 0);
                assert_eq!(decoder(octets.len()).read_bulk::<T>(values.len()).unwrap(), values);
                for end in usize::from(start)..octets.len() {
                    assert_eq!(decoder(end).read_bulk_vec::<T>(values.len()), Err(CdrError::Truncated));
                    assert_eq!(decoder(end).read_bulk::<T>(values.len()), Err(CdrError::Truncated));
                }
            }
        }
    }

    #[test]
    fn elements_have_the_same_bytes_in_bulk_and_one_by_one() {
        for len in 0..5u8 {
            let outers: Vec<Outer> = (0..len).map(outer).collect();
            same_as_one_by_one(&outers);
            same_as_one_by_one(&outers.iter().map(|outer| outer.mixed).collect::<Vec<_>>());
            same_as_one_by_one(&outers.iter().map(|outer| outer.inner[1]).collect::<Vec<_>>());
            same_as_one_by_one(&outers.iter().map(|outer| outer.inner[0].octets).collect::<Vec<_>>());
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Colour(u32);

    impl Cdr for Colour {
        const MIN_SIZE: usize = 4;
        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            self.0.encode(e)
        }
        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            d.read_enum(3).map(Colour)
        }
    }

    impl BulkCdr for Colour {
        const LAYOUT: BulkLayout = BulkLayout::of_number(4);
        fn put(&self, to: &mut BulkWriter<'_>) {
            self.0.put(to);
        }
        fn take(from: &mut BulkReader<'_>) -> Self {
            let position = u32::take(from);
            if position >= 3 {
                from.set_out_of_range();
            }
            Colour(position)
        }
    }

    #[test]
    fn sequence_with_an_undefined_enumerator_is_refused() {
        let scratch = Scratch::new();
        for wrong in 0..3 {
            let mut colours = [Colour(0), Colour(1), Colour(2)];
            same_as_one_by_one(&colours);
            colours[wrong] = Colour(3);
            let mut e = Encoder::new();
            e.write_bulk(&colours).unwrap();
            let octets = e.into_reusable_buffer();
            let d = Decoder::new(&octets, Endian::NATIVE).with_scratch(&scratch);
            assert_eq!(d.clone().read_bulk_vec::<Colour>(3), Err(CdrError::EnumOutOfRange));
            assert_eq!(d.clone().read_bulk::<Colour>(3), Err(CdrError::EnumOutOfRange));
        }
    }

    #[test]
    fn elements_in_fragments_of_giop_1_1_are_read_one_by_one() {
        // The second fragment has the second element. Positions in it count from the fragment's
        // header.
        let mut message = vec![0; 12];
        message.extend([1, 0, 0, 0, 0, 0, 0, 2, 0, 3]);
        let cut = message.len();
        message.extend([4, 0, 0, 0, 0, 0, 0, 5, 0, 6]);
        let breaks = [cut];
        let mut d = Decoder::new(&message, Endian::Big).at_position(12).with_fragment_starts(&breaks);
        let read = d.read_bulk_vec::<Mixed>(2).unwrap();
        assert_eq!(read, [Mixed { octet: 1, long: 2, short: 3 }, Mixed { octet: 4, long: 5, short: 6 }]);
    }
}
