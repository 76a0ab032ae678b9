//! The traits of value types, which generated code implements.

use std::any::{Any, TypeId};
use std::fmt;
use std::marker::PhantomData;

use corelane_wire::{CdrError, Decoder, Encoder};

use super::region::ValueRegion;
use super::{RegionLink, ValueRef};

/// The base of all value types, `CORBA::ValueBase`, for use as `ValueRef<ValueBase>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueBase {}

/// A value type, concrete or abstract.
pub trait ValueKind: 'static {
    /// Repository id of the type.
    const REPOSITORY_ID: &'static str;
    /// Description of this value type; `None` for an abstract type, which has no state.
    const INFO: Option<&'static ValueInfo>;
}

impl ValueKind for ValueBase {
    const REPOSITORY_ID: &'static str = "IDL:omg.org/CORBA/ValueBase:1.0";
    const INFO: Option<&'static ValueInfo> = None;
}

/// A concrete value type, implemented by the structure with its state.
pub trait ValueType: ValueKind + ValueObject + Clone + Sized {
    /// Writes the state, beginning with the state of the base.
    ///
    /// # Errors
    /// The errors of the members.
    fn encode_state(&self, e: &mut Encoder<'_>) -> Result<(), CdrError>;

    /// Reads the state.
    ///
    /// # Errors
    /// The errors of the members.
    fn decode_state(d: &mut Decoder<'_>) -> Result<Self, CdrError>;

    /// Returns the description of the type.
    #[doc(hidden)]
    fn description() -> &'static ValueInfo {
        const { Self::INFO.expect("a concrete value type has its description") }
    }
}

/// Implemented by value types that inherit from or support `Base`.
pub trait Inherits<Base: ?Sized> {}

impl<T: ?Sized> Inherits<ValueBase> for T {}

/// The description of a concrete value type, in a `static` of generated code.
#[derive(Debug)]
pub struct ValueInfo {
    /// Repository ids of the type and its bases. The id of the type is first, then follow the ids
    /// of the types to which it can be truncated.
    pub ids: &'static [&'static str],
    /// Number of types to which the type can be truncated.
    pub truncatable_count: usize,
    /// True for a custom value type: code of the program writes the state, which is encoded in
    /// chunks.
    pub is_custom: bool,
    /// Function that returns the type's TypeCode.
    #[cfg(feature = "any")]
    pub type_code: fn() -> crate::TypeCode,
    /// Placeholder for the TypeCode, which needs the feature `any`.
    #[cfg(not(feature = "any"))]
    pub type_code: (),
    /// Function that reads a state.
    pub decode: fn(&mut Decoder<'_>) -> Result<Box<dyn ValueObject>, CdrError>,
}

impl ValueInfo {
    pub(crate) fn repository_id(&self) -> &'static str {
        self.ids.first().copied().unwrap_or_default()
    }

    pub(crate) fn is_a(&self, repository_id: &str) -> bool {
        repository_id == ValueBase::REPOSITORY_ID || self.ids.contains(&repository_id)
    }
}

/// The object behind a [`ValueRef`]: a state, or an implementation with a state.
pub trait ValueObject: Any + fmt::Debug + Send + Sync {
    /// Returns the description of the value's type.
    fn info(&self) -> &'static ValueInfo;

    /// Writes the state.
    ///
    /// # Errors
    /// The errors of the members.
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError>;

    /// Returns the state as the type `wanted`: the state itself, or the state of one of its bases.
    /// Returns `None` for another type, and for an implementation.
    fn part(&self, wanted: TypeId) -> Option<&dyn Any>;

    /// Returns a copy of an implementation's present state. Returns `None` for a state without
    /// operations.
    fn snapshot(&self) -> Option<Box<dyn ValueObject>> {
        None
    }

    /// Stores the implementation in `slot`, if `slot` is an `Option<Arc<dyn I>>` of a trait that
    /// the implementation implements.
    fn cast(&self, slot: &mut dyn Any) {
        let _ = slot;
    }
}

/// An implementation of the value type `T`. Generated code makes it from an implementor of the
/// type's operations, for [`value`](ValueImplementation::value) or a value factory.
pub struct ValueImplementation<T> {
    pub(crate) object: Box<dyn ValueObject>,
    kind: PhantomData<fn() -> T>,
}

impl<T: ValueType> ValueImplementation<T> {
    /// For generated code: wraps an implementor of the operations.
    #[doc(hidden)]
    pub fn new(object: impl ValueObject) -> Self {
        ValueImplementation { object: Box::new(object), kind: PhantomData }
    }

    /// Creates a value whose operations this implementation runs.
    #[must_use]
    pub fn value(self) -> ValueRef<T> {
        ValueRef::from_parts(RegionLink::Owner(ValueRegion::of(T::description(), self.object)), 0)
    }
}

/// Makes an implementation of a state without operations.
impl<T: ValueType> From<T> for ValueImplementation<T> {
    fn from(state: T) -> Self {
        ValueImplementation::new(state)
    }
}

impl<T> fmt::Debug for ValueImplementation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}
