//! The trait of typed references.

use std::time::Duration;

use corelane_wire::{CdrError, Decoder, Encoder};

use super::{OBJECT_REPOSITORY_ID, ObjectRef};
use crate::cancel::Canceller;
use crate::context::Context;
use crate::exception::SystemException;
use crate::policy::{CallPolicies, Timeout};

/// A typed reference to an object, such as the type `EchoRef` that the IDL compiler generates.
///
/// A program imports this trait in generic code, and for methods whose names are also names of
/// operations.
pub trait Reference: Clone + Sized {
    /// The repository id of the interface.
    const REPOSITORY_ID: &'static str;

    /// Converts an untyped reference without a check of the object's interface.
    fn from_object(object: ObjectRef) -> Self;

    /// Returns the untyped reference.
    fn as_object(&self) -> &ObjectRef;

    /// Returns true if both references certainly denote the same object
    /// ([`ObjectRef::is_equivalent`]).
    fn is_equivalent(&self, other: &impl Reference) -> bool {
        self.as_object().is_equivalent(other.as_object())
    }

    /// Returns a typed reference if the object has this interface. Calls the object to check,
    /// unless the reference itself states the interface.
    ///
    /// # Errors
    /// The errors of a call.
    fn narrow(object: &ObjectRef) -> Result<Option<Self>, SystemException> {
        Ok(object.is_a(Self::REPOSITORY_ID)?.then(|| Self::from_object(object.clone())))
    }

    /// Returns a typed reference without a check of the object's interface. Calls of operations
    /// that the object does not have raise BAD_OPERATION.
    #[must_use]
    fn unchecked_narrow(object: &ObjectRef) -> Self {
        Self::from_object(object.clone())
    }

    /// Returns a copy whose calls have the time-out `timeout`.
    #[must_use]
    fn with_timeout(&self, timeout: impl Into<Timeout>) -> Self {
        self.with_policies(CallPolicies { timeout: Some(timeout.into()), ..CallPolicies::NONE })
    }

    /// Returns a copy with the time-out `timeout` for connecting.
    #[must_use]
    fn with_connect_timeout(&self, timeout: Duration) -> Self {
        self.with_policies(CallPolicies { connect_timeout: Some(timeout), ..CallPolicies::NONE })
    }

    /// Returns a copy whose calls `canceller` can cancel.
    #[must_use]
    fn with_canceller(&self, canceller: &Canceller) -> Self {
        Self::from_object(self.as_object().with_canceller(canceller))
    }

    /// Returns a copy that sends the properties of `context` with operations that have a context
    /// clause in their IDL ([`ObjectRef::with_context`]).
    #[must_use]
    fn with_context(&self, context: &Context) -> Self {
        Self::from_object(self.as_object().with_context(context))
    }

    /// Returns a copy on which `policies` are set. A policy that is not set in `policies` keeps its
    /// value.
    #[must_use]
    fn with_policies(&self, policies: CallPolicies) -> Self {
        Self::from_object(self.as_object().with_policies(policies))
    }
}

crate::reference_methods! { ObjectRef: with_connect_timeout with_timeout }

impl Reference for ObjectRef {
    const REPOSITORY_ID: &'static str = OBJECT_REPOSITORY_ID;

    fn from_object(object: ObjectRef) -> Self {
        object
    }

    fn as_object(&self) -> &ObjectRef {
        self
    }
}

/// For generated code: writes a reference or nil.
///
/// # Errors
/// [`CdrError::ReferenceWithoutAddress`] for an object of an ORB that does not listen, and the
/// errors of the encoder.
pub fn write_reference<R: Reference>(encoder: &mut Encoder<'_>, reference: Option<&R>) -> Result<(), CdrError> {
    ObjectRef::encode(reference.map(Reference::as_object), encoder)
}

/// For generated code: reads a reference or nil.
///
/// # Errors
/// If the bytes do not encode a reference.
pub fn read_reference<R: Reference>(decoder: &mut Decoder<'_>) -> Result<Option<R>, CdrError> {
    Ok(ObjectRef::decode(decoder)?.map(R::from_object))
}
