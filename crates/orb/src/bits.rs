//! Bit masks and bit sets of IDL 4: integers whose bits have names.

/// A Rust type that a field of a bit set may have.
#[doc(hidden)]
pub trait BitField: Sized {
    fn from_bits(bits: u64, width: u32) -> Self;
    fn to_bits(self) -> u64;
}

impl BitField for bool {
    fn from_bits(bits: u64, _: u32) -> Self {
        bits != 0
    }

    fn to_bits(self) -> u64 {
        u64::from(self)
    }
}

macro_rules! fields {
    ($($number:ty)+) => {$(
        impl BitField for $number {
            fn from_bits(bits: u64, width: u32) -> Self {
                // The shifts extend the sign of a signed number.
                let unused = u64::BITS - width;
                let extended = ((bits << unused).cast_signed() >> unused).cast_unsigned();
                (if <$number>::MIN == 0 { bits } else { extended }) as $number
            }

            fn to_bits(self) -> u64 {
                self as u64
            }
        }
    )+};
}

fields! { u8 i8 u16 i16 u32 i32 u64 i64 }

/// For generated code: defines a set of flags. `bit_mask! { pub struct Rights(u8) { READ = 0, WRITE
/// = 1 } }`
#[doc(hidden)]
#[macro_export]
macro_rules! bit_mask {
    ($(#[$attribute:meta])* pub struct $mask:ident($number:ty) { $($flag:ident = $position:literal),* $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $mask(pub $number);

        impl $mask {
            $(
                #[doc = ::std::concat!("Bit ", $position, ".")]
                pub const $flag: Self = Self(1 << $position);
            )*

            /// Returns true if all flags of `flags` are set.
            pub const fn contains(self, flags: Self) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// Returns a copy in which the flags of `flags` are cleared.
            pub const fn without(self, flags: Self) -> Self {
                Self(self.0 & !flags.0)
            }
        }

        impl ::std::ops::BitOr for $mask {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl ::std::ops::BitAnd for $mask {
            type Output = Self;

            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        $crate::bit_set!(@cdr $mask, $number);
    };
}

/// For generated code: defines a set of bit fields. Each field is declared by its two accessors,
/// its type, the position of its lowest bit, and its width in bits.
/// `bit_set! { pub struct Word(u8) { low / with_low: u8 = 0, 3; high / with_high: bool = 7, 1; } }`
#[doc(hidden)]
#[macro_export]
macro_rules! bit_set {
    ($(#[$attribute:meta])* pub struct $set:ident($number:ty) { $($field:ident / $with:ident: $type:ty = $place:literal, $width:literal;)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $set(pub $number);

        impl $set {
            $(
                #[doc = ::std::concat!("The field of ", $width, " bits from bit ", $place, ".")]
                pub fn $field(self) -> $type {
                    const MASK: u64 = u64::MAX >> (64 - $width);
                    $crate::mapping::BitField::from_bits(u64::from(self.0) >> $place & MASK, $width)
                }

                #[doc = ::std::concat!("Returns a copy with another `", ::std::stringify!($field), "`; bits above the field's width are dropped.")]
                pub fn $with(self, value: $type) -> Self {
                    const MASK: u64 = u64::MAX >> (64 - $width);
                    let bits = ($crate::mapping::BitField::to_bits(value) & MASK) << $place;
                    Self((u64::from(self.0) & !(MASK << $place) | bits) as $number)
                }
            )*
        }

        $crate::bit_set!(@cdr $set, $number);
    };
    (@cdr $type:ident, $number:ty) => {
        impl $crate::Cdr for $type {
            const MIN_SIZE: usize = <$number as $crate::Cdr>::MIN_SIZE;

            fn encode(&self, e: &mut $crate::mapping::Encoder<'_>) -> ::std::result::Result<(), $crate::CdrError> {
                $crate::Cdr::encode(&self.0, e)
            }

            fn decode(d: &mut $crate::mapping::Decoder<'_>) -> ::std::result::Result<Self, $crate::CdrError> {
                $crate::Cdr::decode(d).map(Self)
            }
        }

        $crate::bit_type! { $type($number) }
    };
}

/// For generated code: implements [`Typed`](crate::Typed) for a bit mask or bit set, with the
/// TypeCode of its integer.
#[cfg(feature = "any")]
#[doc(hidden)]
#[macro_export]
macro_rules! bit_type {
    ($type:ident($number:ty)) => {
        impl $crate::Typed for $type {
            fn type_code() -> $crate::TypeCode {
                <$number as $crate::Typed>::type_code()
            }

            fn write(
                &self,
                e: &mut $crate::mapping::Encoder<'_>,
                _: &$crate::TypeCode,
            ) -> ::std::result::Result<(), $crate::CdrError> {
                $crate::Cdr::encode(self, e)
            }

            fn read(
                d: &mut $crate::mapping::Decoder<'_>,
                _: &$crate::TypeCode,
            ) -> ::std::result::Result<Self, $crate::CdrError> {
                $crate::Cdr::decode(d)
            }
        }
    };
}

/// For generated code: expands to nothing if the feature `any` is off.
#[cfg(not(feature = "any"))]
#[doc(hidden)]
#[macro_export]
macro_rules! bit_type {
    ($($bits:tt)*) => {};
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macros make public types")]
mod tests {
    crate::bit_mask! {
        pub struct Rights(u8) { READ = 0, WRITE = 1, ALL = 7 }
    }

    crate::bit_set! {
        pub struct Word(u16) {
            low / with_low: u8 = 0, 3;
            signed / with_signed: i16 = 3, 5;
            flag / with_flag: bool = 15, 1;
        }
    }

    #[test]
    fn bit_mask_flags_combine() {
        let both = Rights::READ | Rights::WRITE;
        assert!(both.contains(Rights::READ) && !Rights::READ.contains(both));
        assert_eq!(
            (both.without(Rights::READ), both & Rights::READ, Rights::ALL.0),
            (Rights::WRITE, Rights::READ, 128)
        );
    }

    #[test]
    fn bit_set_fields_do_not_change_other_bits() {
        let word = Word::default().with_low(0xff).with_signed(-3).with_flag(true);
        assert_eq!((word.low(), word.signed(), word.flag(), word.0), (7, -3, true, 0b1000_0000_1110_1111));
        assert_eq!((word.with_signed(15).signed(), word.with_signed(16).signed()), (15, -16));
        assert!(!word.with_flag(false).flag());
    }
}
