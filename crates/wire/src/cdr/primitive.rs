//! Numbers that have the same form in memory and on the wire, except for their byte order.

use bytemuck::Pod;

mod sealed {
    pub trait Sealed {}
}

/// A vector of numbers, with one variant for each size of a number.
#[derive(Debug)]
pub enum NumberVec {
    Octets(Vec<u8>),
    Shorts(Vec<u16>),
    Longs(Vec<u32>),
    LongLongs(Vec<u64>),
}

impl NumberVec {
    pub(super) fn as_octets(&self) -> &[u8] {
        match self {
            NumberVec::Octets(octets) => octets,
            NumberVec::Shorts(numbers) => bytemuck::cast_slice(numbers),
            NumberVec::Longs(numbers) => bytemuck::cast_slice(numbers),
            NumberVec::LongLongs(numbers) => bytemuck::cast_slice(numbers),
        }
    }
}

/// A number whose sequences are written and read in bulk.
pub trait Primitive: Pod + sealed::Sealed {
    /// Size in bytes, which is also the alignment on the wire.
    const SIZE: usize = size_of::<Self>();

    /// Converts the vector, without a copy, to the `NumberVec` variant for numbers of this size.
    #[doc(hidden)]
    fn into_numbers(numbers: Vec<Self>) -> NumberVec;

    /// Returns the number in the other byte order.
    #[must_use]
    fn with_swapped_bytes(self) -> Self;
}

/// Returns the octets as numbers in this machine's byte order. Returns `None` if the octets are not
/// aligned for the numbers, or if their length is not a multiple of a number's size.
#[must_use]
pub fn numbers_in<T: Primitive>(octets: &[u8]) -> Option<&[T]> {
    bytemuck::try_cast_slice(octets).ok()
}

/// Returns the octets as mutable numbers in this machine's byte order. Returns `None` if the octets
/// are not aligned for the numbers, or if their length is not a multiple of a number's size.
#[must_use]
pub fn numbers_in_mut<T: Primitive>(octets: &mut [u8]) -> Option<&mut [T]> {
    bytemuck::try_cast_slice_mut(octets).ok()
}

macro_rules! integers {
    ($($integer:ty as $kept:ident)*) => {$(
        impl sealed::Sealed for $integer {}
        impl Primitive for $integer {
            #[inline]
            fn into_numbers(numbers: Vec<$integer>) -> NumberVec {
                NumberVec::$kept(bytemuck::cast_vec(numbers))
            }

            #[inline]
            fn with_swapped_bytes(self) -> $integer {
                self.swap_bytes()
            }
        }
    )*};
}

integers! {
    u8 as Octets i8 as Octets u16 as Shorts i16 as Shorts u32 as Longs i32 as Longs u64 as LongLongs i64 as LongLongs
}

macro_rules! floats {
    ($($float:ty as $kept:ident)*) => {$(
        impl sealed::Sealed for $float {}
        impl Primitive for $float {
            #[inline]
            fn into_numbers(numbers: Vec<$float>) -> NumberVec {
                NumberVec::$kept(bytemuck::cast_vec(numbers))
            }

            #[inline]
            fn with_swapped_bytes(self) -> $float {
                <$float>::from_bits(self.to_bits().swap_bytes())
            }
        }
    )*};
}

floats! { f32 as Longs f64 as LongLongs }
