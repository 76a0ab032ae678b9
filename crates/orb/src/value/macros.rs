//! Macros with the common parts of all generated value types.

/// For generated code: implements a value type for the structure with its state. The repository ids
/// have this order: first the id of the type, then the ids of the types to which it can be
/// truncated, then the ids of its remaining bases.
#[doc(hidden)]
#[macro_export]
macro_rules! value_type {
    ($state:ident $(: $base:ty)? = [$($id:literal),+ $(,)?] $(, truncatable to $truncatable:literal)? $(, custom $custom:literal)? $(; $($ancestor:ty),+ $(,)?)?) => {
        impl $crate::mapping::ValueKind for $state {
            const REPOSITORY_ID: &'static str = $crate::value_type!(@first $($id),+);
            const INFO: ::std::option::Option<&'static $crate::mapping::ValueInfo> =
                ::std::option::Option::Some(&$crate::mapping::ValueInfo {
                    ids: &[$($id),+],
                    truncatable_count: 0 $(+ $truncatable)?,
                    is_custom: false $(|| $custom)?,
                    type_code: $crate::value_type_code!($state),
                    decode: |d| ::std::result::Result::Ok(::std::boxed::Box::new(
                        <$state as $crate::mapping::ValueType>::decode_state(d)?,
                    )),
                });
        }

        impl $crate::mapping::ValueObject for $state {
            fn info(&self) -> &'static $crate::mapping::ValueInfo {
                <$state as $crate::mapping::ValueType>::description()
            }

            fn encode(&self, e: &mut $crate::mapping::Encoder<'_>) -> ::std::result::Result<(), $crate::CdrError> {
                $crate::mapping::ValueType::encode_state(self, e)
            }

            fn part(&self, wanted: ::std::any::TypeId) -> ::std::option::Option<&dyn ::std::any::Any> {
                if wanted == ::std::any::TypeId::of::<Self>() {
                    return ::std::option::Option::Some(self);
                }
                $crate::value_type!(@base self, wanted $(, $base)?)
            }
        }

        $(
            impl ::std::ops::Deref for $state {
                type Target = $base;

                fn deref(&self) -> &$base {
                    &self.base
                }
            }

            impl ::std::ops::DerefMut for $state {
                fn deref_mut(&mut self) -> &mut $base {
                    &mut self.base
                }
            }
        )?

        $($(impl $crate::mapping::Inherits<$ancestor> for $state {})+)?
    };
    (@first $first:literal $(, $rest:literal)*) => { $first };
    (@base $this:ident, $wanted:ident) => { ::std::option::Option::None };
    (@base $this:ident, $wanted:ident, $base:ty) => { $crate::mapping::ValueObject::part(&$this.base, $wanted) };
}

/// For generated code: expands to the function that returns the TypeCode of a value type.
#[cfg(feature = "any")]
#[doc(hidden)]
#[macro_export]
macro_rules! value_type_code {
    ($state:ident) => {
        <$state as $crate::mapping::TypedValue>::value_type
    };
}

/// For generated code: expands to the placeholder for a TypeCode in a program without the feature
/// `any`.
#[cfg(not(feature = "any"))]
#[doc(hidden)]
#[macro_export]
macro_rules! value_type_code {
    ($state:ident) => {
        ()
    };
}

/// For generated code: implements `ValueKind` for the trait object of an abstract value type's
/// operations.
#[doc(hidden)]
#[macro_export]
macro_rules! abstract_value {
    ($operations:path = $id:literal) => {
        impl $crate::mapping::ValueKind for dyn $operations {
            const REPOSITORY_ID: &'static str = $id;
            const INFO: ::std::option::Option<&'static $crate::mapping::ValueInfo> = ::std::option::Option::None;
        }
    };
}

/// For generated code: defines the type that wraps an implementor of a value type's operations.
#[doc(hidden)]
#[macro_export]
macro_rules! value_implementation {
    ($name:ident of $state:ident runs $operations:ident [$($base:path),*]) => {
        $crate::value_implementation! { @holder $name of $state runs $operations [$($base),*] this, e => $crate::mapping::ValueType::encode_state(&$operations::state(this), e) }
    };
    (custom $name:ident of $state:ident runs $operations:ident [$($base:path),*]) => {
        $crate::value_implementation! { @holder $name of $state runs $operations [$($base),*] this, e => $operations::marshal(this, e) }
    };
    (@holder $name:ident of $state:ident runs $operations:ident [$($base:path),*] $this:ident, $e:ident => $write:expr) => {
        #[doc(hidden)]
        pub struct $name(::std::sync::Arc<dyn $operations>);

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Debug::fmt(&$operations::state(&*self.0), f)
            }
        }

        impl $crate::mapping::ValueObject for $name {
            fn info(&self) -> &'static $crate::mapping::ValueInfo {
                <$state as $crate::mapping::ValueType>::description()
            }

            fn encode(&self, $e: &mut $crate::mapping::Encoder<'_>) -> ::std::result::Result<(), $crate::CdrError> {
                let $this: &dyn $operations = &*self.0;
                $write
            }

            fn part(&self, _: ::std::any::TypeId) -> ::std::option::Option<&dyn ::std::any::Any> {
                ::std::option::Option::None
            }

            fn snapshot(&self) -> ::std::option::Option<::std::boxed::Box<dyn $crate::mapping::ValueObject>> {
                ::std::option::Option::Some(::std::boxed::Box::new($operations::state(&*self.0)))
            }

            fn cast(&self, slot: &mut dyn ::std::any::Any) {
                if let ::std::option::Option::Some(slot) = slot.downcast_mut() {
                    let this: ::std::sync::Arc<dyn $operations> = self.0.clone();
                    *slot = ::std::option::Option::Some(this);
                }
                $(
                    if let ::std::option::Option::Some(slot) = slot.downcast_mut() {
                        let this: ::std::sync::Arc<dyn $base> = self.0.clone();
                        *slot = ::std::option::Option::Some(this);
                    }
                )*
            }
        }
    };
}
