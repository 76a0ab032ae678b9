//! Numbers that are the same in memory and on the wire, but for the order of their octets.

use bytemuck::Pod;

mod sealed {
    /// Only the numbers below are primitives.
    pub trait Sealed {}
}

/// Numbers in a vector of their own, by their size.
#[derive(Debug)]
pub enum Numbers {
    /// Of one octet.
    Octets(Vec<u8>),
    /// Of two.
    Shorts(Vec<u16>),
    /// Of four.
    Longs(Vec<u32>),
    /// Of eight.
    LongLongs(Vec<u64>),
}

impl Numbers {
    pub(super) fn as_octets(&self) -> &[u8] {
        match self {
            Numbers::Octets(octets) => octets,
            Numbers::Shorts(numbers) => bytemuck::cast_slice(numbers),
            Numbers::Longs(numbers) => bytemuck::cast_slice(numbers),
            Numbers::LongLongs(numbers) => bytemuck::cast_slice(numbers),
        }
    }
}

/// A number whose sequences are written and read in bulk.
pub trait Primitive: Pod + sealed::Sealed {
    /// Octets, and the alignment on the wire.
    const SIZE: usize = size_of::<Self>();

    /// The vector as it is, whatever its numbers.
    #[doc(hidden)]
    fn keep(numbers: Vec<Self>) -> Numbers;

    /// The number with its octets in the other order.
    #[must_use]
    fn swapped(self) -> Self;
}

macro_rules! integers {
    ($($integer:ty as $kept:ident)*) => {$(
        impl sealed::Sealed for $integer {}
        impl Primitive for $integer {
            #[inline]
            fn keep(numbers: Vec<$integer>) -> Numbers {
                Numbers::$kept(bytemuck::cast_vec(numbers))
            }

            #[inline]
            fn swapped(self) -> $integer {
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
            fn keep(numbers: Vec<$float>) -> Numbers {
                Numbers::$kept(bytemuck::cast_vec(numbers))
            }

            #[inline]
            fn swapped(self) -> $float {
                <$float>::from_bits(self.to_bits().swap_bytes())
            }
        }
    )*};
}

floats! { f32 as Longs f64 as LongLongs }
