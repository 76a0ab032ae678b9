//! Macros that implement the CDR encoding of enumerations and of structures of numbers.

/// For generated code: implements the encoding of a structure whose members have types that
/// implement `BulkCdr`, such as numbers. `bulk_cdr! { Point { x: f64, y: f64 } }`
#[doc(hidden)]
#[macro_export]
macro_rules! bulk_cdr {
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

            $crate::bulk_cdr! { sequences }
        }

        impl $crate::mapping::BulkCdr for $name {
            const LAYOUT: $crate::mapping::BulkLayout =
                $crate::mapping::BulkLayout::EMPTY$(.followed_by(<$type as $crate::mapping::BulkCdr>::LAYOUT))+;

            #[inline]
            fn put(&self, to: &mut $crate::mapping::BulkWriter<'_>) {
                $(<$type as $crate::mapping::BulkCdr>::put(&self.$field, to);)+
            }

            #[inline]
            fn take(from: &mut $crate::mapping::BulkReader<'_>) -> Self {
                Self { $($field: <$type as $crate::mapping::BulkCdr>::take(from)),+ }
            }

            #[inline]
            fn each_number<'v>(&'v mut self, visit: &mut impl ::std::ops::FnMut(&'v mut [u8])) {
                $(<$type as $crate::mapping::BulkCdr>::each_number(&mut self.$field, visit);)+
            }

            #[inline]
            fn octets_mut(values: &mut [Self]) -> ::std::option::Option<&mut [u8]> {
                $crate::mapping::plain_octets_mut(values, |value, parts| {
                    $crate::mapping::BulkCdr::each_number(value, &mut |octets| parts.add(octets));
                })
            }
        }
    };
    (sequences) => {
        fn encode_all(
            values: &[Self],
            e: &mut $crate::mapping::Encoder<'_>,
        ) -> ::std::result::Result<(), $crate::CdrError> {
            e.write_bulk(values)
        }

        fn decode_many(
            len: usize,
            d: &mut $crate::mapping::Decoder<'_>,
        ) -> ::std::result::Result<::std::vec::Vec<Self>, $crate::CdrError> {
            d.read_bulk_vec(len)
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

            $crate::bulk_cdr! { sequences }
        }

        impl $crate::mapping::BulkCdr for $name {
            const LAYOUT: $crate::mapping::BulkLayout = $crate::mapping::BulkLayout::of_number(4);

            #[inline]
            fn put(&self, to: &mut $crate::mapping::BulkWriter<'_>) {
                $crate::mapping::BulkCdr::put(&(*self as u32), to);
            }

            #[inline]
            fn take(from: &mut $crate::mapping::BulkReader<'_>) -> Self {
                const MEMBERS: &[$name] = &[$($name::$member),+];
                let position: u32 = $crate::mapping::BulkCdr::take(from);
                MEMBERS.get(position as usize).copied().unwrap_or_else(|| {
                    from.set_out_of_range();
                    MEMBERS[0]
                })
            }
        }
    };
}
