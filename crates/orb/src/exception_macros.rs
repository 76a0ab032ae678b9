//! Macros for the common parts of generated exceptions.

/// For generated code: makes a structure with a CDR form a user exception. `user_exception! { Bad =
/// "IDL:Bad:1.0" }`
#[doc(hidden)]
#[macro_export]
macro_rules! user_exception {
    ($exception:ident = $repository_id:literal) => {
        impl $crate::UserException for $exception {
            const REPOSITORY_ID: &'static str = $repository_id;
        }

        impl ::std::fmt::Display for $exception {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::write!(f, "{self:?}")
            }
        }

        impl ::std::error::Error for $exception {}
    };
}

/// For generated code: defines the error type of operations that raise user exceptions.
#[doc(hidden)]
#[macro_export]
macro_rules! raises {
    ($(#[$attribute:meta])* pub enum $name:ident { $($variant:ident($exception:ty)),+ $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $name {
            $($variant($exception),)+
            /// A system exception, which any call may raise.
            System($crate::SystemException),
        }

        impl $name {
            pub(super) fn raise(self, call: &mut $crate::ServerCall<'_>) -> ::std::result::Result<(), $crate::SystemException> {
                match self {
                    $(Self::$variant(exception) => call.raise(&exception),)+
                    Self::System(exception) => ::std::result::Result::Err(exception),
                }
            }
        }

        impl ::std::convert::From<$crate::Reply<'_>> for $name {
            fn from(mut reply: $crate::Reply<'_>) -> Self {
                $(
                    if reply.exception_id() == ::std::option::Option::Some(<$exception as $crate::UserException>::REPOSITORY_ID) {
                        return reply.read(<$exception as $crate::Cdr>::decode).map_or_else(Self::System, Self::$variant);
                    }
                )+
                Self::System(reply.unknown_user_exception())
            }
        }

        impl ::std::convert::From<$crate::SystemException> for $name {
            fn from(exception: $crate::SystemException) -> Self {
                Self::System(exception)
            }
        }

        impl ::std::convert::From<$crate::poa::PoaError> for $name {
            #[inline]
            fn from(error: $crate::poa::PoaError) -> Self {
                Self::System(::std::convert::From::from(error))
            }
        }

        $(impl ::std::convert::From<$exception> for $name {
            fn from(exception: $exception) -> Self {
                Self::$variant(exception)
            }
        })+

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self {
                    $(Self::$variant(exception) => ::std::fmt::Display::fmt(exception, f),)+
                    Self::System(exception) => ::std::fmt::Display::fmt(exception, f),
                }
            }
        }

        impl ::std::error::Error for $name {}
    };
}
