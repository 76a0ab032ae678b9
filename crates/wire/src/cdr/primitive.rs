//! Numbers that are the same in memory and on the wire, but for the order of their octets.

use bytemuck::Pod;

mod sealed {
    /// Only the numbers below are primitives.
    pub trait Sealed {}
}

/// A number whose sequences are written and read in bulk.
pub trait Primitive: Pod + sealed::Sealed {
    /// Octets, and the alignment on the wire.
    const SIZE: usize = size_of::<Self>();

    /// The number with its octets in the other order.
    #[must_use]
    fn swapped(self) -> Self;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl sealed::Sealed for $integer {}
        impl Primitive for $integer {
            #[inline]
            fn swapped(self) -> $integer {
                self.swap_bytes()
            }
        }
    )*};
}

integers! { u8 i8 u16 i16 u32 i32 u64 i64 }

macro_rules! floats {
    ($($float:ty)*) => {$(
        impl sealed::Sealed for $float {}
        impl Primitive for $float {
            #[inline]
            fn swapped(self) -> $float {
                <$float>::from_bits(self.to_bits().swap_bytes())
            }
        }
    )*};
}

floats! { f32 f64 }
