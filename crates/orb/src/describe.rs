//! Macros with which generated code describes its IDL types.

/// For generated code: describes an IDL type, so that an `Any` can contain its values.
///
/// - `describe! { pub static POINT_TYPE for Point = structure(...) }` for a type with a CDR form;
/// - `... for exception Failed = exception(...)`: its repository id precedes its members;
/// - `... for reference ProbeRef = interface(...)`;
/// - `... for value Node = value(...)`, `... for value dyn Shape = value(...)`, `... for value dyn
///   Described = abstract_interface(...)`;
/// - without `for`, for an alias.
#[cfg(feature = "any")]
#[doc(hidden)]
#[macro_export]
macro_rules! describe {
    ($(#[$attribute:meta])* pub static $name:ident = $description:expr) => {
        $(#[$attribute])*
        pub static $name: $crate::mapping::StaticTypeCode = {
            #[allow(unused_imports)]
            use $crate::mapping::description::*;
            $description
        };
    };
    ($(#[$attribute:meta])* pub static $name:ident for reference $reference:ident = $description:expr) => {
        $crate::describe! { $(#[$attribute])* pub static $name = $description }

        impl $crate::mapping::ReferenceWithTypeCode for $reference {
            fn interface_type() -> $crate::TypeCode {
                $crate::TypeCode::from_description(&$name)
            }
        }
    };
    ($(#[$attribute:meta])* pub static $name:ident for value $value:ty = $description:expr) => {
        $crate::describe! { $(#[$attribute])* pub static $name = $description }

        impl $crate::mapping::TypedValue for $value {
            fn value_type() -> $crate::TypeCode {
                $crate::TypeCode::from_description(&$name)
            }
        }
    };
    ($(#[$attribute:meta])* pub static $name:ident for exception $exception:ident = $description:expr) => {
        $crate::describe! { $(#[$attribute])* pub static $name = $description }

        impl $crate::Typed for $exception {
            fn type_code() -> $crate::TypeCode {
                $crate::TypeCode::from_description(&$name)
            }

            fn write(
                &self,
                e: &mut $crate::mapping::Encoder<'_>,
                _: &$crate::TypeCode,
            ) -> ::std::result::Result<(), $crate::CdrError> {
                e.write_latin1_str(<$exception as $crate::UserException>::REPOSITORY_ID)?;
                $crate::Cdr::encode(self, e)
            }

            fn read(
                d: &mut $crate::mapping::Decoder<'_>,
                _: &$crate::TypeCode,
            ) -> ::std::result::Result<Self, $crate::CdrError> {
                d.read_str_octets()?;
                $crate::Cdr::decode(d)
            }
        }
    };
    ($(#[$attribute:meta])* pub static $name:ident for $type:ident = $description:expr) => {
        $crate::describe! { $(#[$attribute])* pub static $name = $description }

        impl $crate::Typed for $type {
            fn type_code() -> $crate::TypeCode {
                $crate::TypeCode::from_description(&$name)
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

            $crate::typed_sequences! {}
        }
    };
}

/// For generated code: implements the functions of `Typed` that write and read many values at once.
#[cfg(feature = "any")]
#[doc(hidden)]
#[macro_export]
macro_rules! typed_sequences {
    () => {
        fn write_all(
            values: &[Self],
            e: &mut $crate::mapping::Encoder<'_>,
            _: &$crate::TypeCode,
        ) -> ::std::result::Result<(), $crate::CdrError> {
            <Self as $crate::Cdr>::encode_all(values, e)
        }

        fn read_many(
            len: usize,
            d: &mut $crate::mapping::Decoder<'_>,
            _: &$crate::TypeCode,
        ) -> ::std::result::Result<::std::vec::Vec<Self>, $crate::CdrError> {
            <Self as $crate::Cdr>::decode_many(len, d)
        }
    };
}

/// For generated code: expands to nothing if the feature `any` is off.
#[cfg(not(feature = "any"))]
#[doc(hidden)]
#[macro_export]
macro_rules! describe {
    ($($description:tt)*) => {};
}
