//! A macro that defines the methods of typed references.

/// For generated code: defines the methods of [`Reference`](crate::Reference) as inherent methods
/// of `$name`, so that programs need no import: `reference_methods! { EchoRef }`.
///
/// If operations of the interface have some of these names, the macro gets a list of the remaining
/// methods: `reference_methods! { EchoRef: as_object from_object }`.
#[doc(hidden)]
#[macro_export]
macro_rules! reference_methods {
    ($name:ident) => {
        $crate::reference_methods! {
            $name: as_object from_object is_equivalent narrow unchecked_narrow with_canceller with_connect_timeout with_context with_policies
                with_timeout
        }
    };
    ($name:ident: $($method:ident)*) => {
        #[allow(dead_code, unreachable_pub)]
        impl $name {
            /// The repository id of the interface.
            pub const REPOSITORY_ID: &'static str = <Self as $crate::Reference>::REPOSITORY_ID;

            $($crate::reference_methods! { @$method })*
        }
    };
    (@as_object) => {
        /// Returns the untyped reference.
        #[must_use]
        #[inline]
        pub fn as_object(&self) -> &$crate::ObjectRef {
            <Self as $crate::Reference>::as_object(self)
        }
    };
    (@from_object) => {
        /// Converts an untyped reference without a check of the object's interface.
        #[must_use]
        #[inline]
        pub fn from_object(object: $crate::ObjectRef) -> Self {
            <Self as $crate::Reference>::from_object(object)
        }
    };
    (@is_equivalent) => {
        /// Returns true if both references certainly denote the same object. The method compares
        /// the references and makes no call.
        #[must_use]
        #[inline]
        pub fn is_equivalent(&self, other: &impl $crate::Reference) -> bool {
            <Self as $crate::Reference>::is_equivalent(self, other)
        }
    };
    (@narrow) => {
        /// Returns a typed reference if the object has this interface. Calls the object to check,
        /// unless the reference itself states the interface.
        ///
        /// # Errors
        /// The exceptions that the call of the object may raise.
        #[inline]
        pub fn narrow(
            object: &$crate::ObjectRef,
        ) -> ::std::result::Result<::std::option::Option<Self>, $crate::SystemException> {
            <Self as $crate::Reference>::narrow(object)
        }
    };
    (@unchecked_narrow) => {
        /// Returns a typed reference without a check of the object's interface. Calls of operations
        /// that the object does not have raise BAD_OPERATION.
        #[must_use]
        #[inline]
        pub fn unchecked_narrow(object: &$crate::ObjectRef) -> Self {
            <Self as $crate::Reference>::unchecked_narrow(object)
        }
    };
    (@with_canceller) => {
        /// Returns a copy whose calls `canceller` can cancel.
        #[must_use]
        #[inline]
        pub fn with_canceller(&self, canceller: &$crate::Canceller) -> Self {
            <Self as $crate::Reference>::with_canceller(self, canceller)
        }
    };
    (@with_connect_timeout) => {
        /// Returns a copy with the time-out `timeout` for connecting.
        #[must_use]
        #[inline]
        pub fn with_connect_timeout(&self, timeout: ::std::time::Duration) -> Self {
            <Self as $crate::Reference>::with_connect_timeout(self, timeout)
        }
    };
    (@with_context) => {
        /// Returns a copy that sends the properties of `context` with operations that have a
        /// context clause in their IDL.
        #[must_use]
        #[inline]
        pub fn with_context(&self, context: &$crate::Context) -> Self {
            <Self as $crate::Reference>::with_context(self, context)
        }
    };
    (@with_policies) => {
        /// Returns a copy on which `policies` are set. A policy that is not set in `policies` keeps
        /// its value.
        #[must_use]
        #[inline]
        pub fn with_policies(&self, policies: $crate::CallPolicies) -> Self {
            <Self as $crate::Reference>::with_policies(self, policies)
        }
    };
    (@with_timeout) => {
        /// Returns a copy whose calls have the time-out `timeout`.
        #[must_use]
        #[inline]
        pub fn with_timeout(&self, timeout: impl ::std::convert::Into<$crate::Timeout>) -> Self {
            <Self as $crate::Reference>::with_timeout(self, timeout)
        }
    };
}
