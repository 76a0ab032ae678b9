//! Macros that implement the CDR encoding of enumerations and of structures of numbers. Generated
//! code lists only their members.

/// For generated code: implements the encoding of a structure whose members are numbers, booleans,
/// enumerations and other such structures. `plain! { Point { x: f64, y: f64 } }`
#[doc(hidden)]
#[macro_export]
macro_rules! plain {
    ($name:ident { $($field:ident: $type:ty),+ $(,)? }) => {
        impl $crate::Cdr for $name {
            const MIN_SIZE: usize = 0 $(+ <$type as $crate::Cdr>::MIN_SIZE)+;

            #[inline]
            fn encode(&self, e: &mut $crate::mapping::Encoder<'_>) -> ::std::result::Result<(), $crate::CdrError> {
                $(<$type as $crate::Cdr>::encode(&self.$field, e)?;)+
                ::std::result::Result::Ok(())
            }

            #[inline]
            fn decode(d: &mut $crate::mapping::Decoder<'_>) -> ::std::result::Result<Self, $crate::CdrError> {
                ::std::result::Result::Ok(Self { $($field: <$type as $crate::Cdr>::decode(d)?),+ })
            }

            $crate::plain! { sequences }
        }

        impl $crate::mapping::Plain for $name {
            const LAYOUT: $crate::mapping::PlainLayout =
                $crate::mapping::PlainLayout::EMPTY$(.then(<$type as $crate::mapping::Plain>::LAYOUT))+;

            #[inline]
            fn put(&self, to: &mut $crate::mapping::PlainWriter<'_>) {
                $(<$type as $crate::mapping::Plain>::put(&self.$field, to);)+
            }

            #[inline]
            fn take(from: &mut $crate::mapping::PlainReader<'_>) -> Self {
                Self { $($field: <$type as $crate::mapping::Plain>::take(from)),+ }
            }
        }
    };
    (sequences) => {
        fn encode_all(
            values: &[Self],
            e: &mut $crate::mapping::Encoder<'_>,
        ) -> ::std::result::Result<(), $crate::CdrError> {
            e.write_plain(values)
        }

        fn decode_many(
            len: usize,
            d: &mut $crate::mapping::Decoder<'_>,
        ) -> ::std::result::Result<::std::vec::Vec<Self>, $crate::CdrError> {
            d.read_plain_vec(len)
        }
    };
}

/// For generated code: implements the encoding of an enumeration. The macro takes the members in
/// order: `enumeration! { Color { Red, Green, Blue } }`
#[doc(hidden)]
#[macro_export]
macro_rules! enumeration {
    ($name:ident { $($member:ident),+ $(,)? }) => {
        impl $crate::Cdr for $name {
            const MIN_SIZE: usize = 4;

            #[inline]
            fn encode(&self, e: &mut $crate::mapping::Encoder<'_>) -> ::std::result::Result<(), $crate::CdrError> {
                e.write_u32(*self as u32);
                ::std::result::Result::Ok(())
            }

            #[inline]
            fn decode(d: &mut $crate::mapping::Decoder<'_>) -> ::std::result::Result<Self, $crate::CdrError> {
                const MEMBERS: &[$name] = &[$($name::$member),+];
                let position = d.read_u32()?;
                MEMBERS.get(position as usize).copied().ok_or($crate::CdrError::EnumOutOfRange)
            }

            $crate::plain! { sequences }
        }

        impl $crate::mapping::Plain for $name {
            const LAYOUT: $crate::mapping::PlainLayout = $crate::mapping::PlainLayout::number(4);

            #[inline]
            fn put(&self, to: &mut $crate::mapping::PlainWriter<'_>) {
                $crate::mapping::Plain::put(&(*self as u32), to);
            }

            #[inline]
            fn take(from: &mut $crate::mapping::PlainReader<'_>) -> Self {
                const MEMBERS: &[$name] = &[$($name::$member),+];
                let position: u32 = $crate::mapping::Plain::take(from);
                MEMBERS.get(position as usize).copied().unwrap_or_else(|| {
                    from.set_out_of_range();
                    MEMBERS[0]
                })
            }
        }
    };
}
