//! What a value is to the ORB. Generated code implements these.

use std::any::{Any, TypeId};
use std::fmt;
use std::marker::PhantomData;

use corelane_wire::{CdrError, Decoder, Encoder};

use super::region::Region;
use super::{Link, ValueRef};

/// Any value type, which IDL calls `ValueBase`: `ValueRef<ValueBase>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueBase {}

/// A type of values, concrete or abstract.
pub trait ValueKind: 'static {
    /// Its repository id.
    const REPOSITORY_ID: &'static str;
    /// How values of just this type are read; `None` for an abstract one.
    const INFO: Option<&'static ValueInfo>;
}

impl ValueKind for ValueBase {
    const REPOSITORY_ID: &'static str = "IDL:omg.org/CORBA/ValueBase:1.0";
    const INFO: Option<&'static ValueInfo> = None;
}

/// A concrete value type: a structure with the state.
pub trait ValueType: ValueKind + ValueObject + Clone + Sized {
    /// Writes the state, that of the base first.
    ///
    /// # Errors
    /// Those of its members.
    fn encode_state(&self, e: &mut Encoder<'_>) -> Result<(), CdrError>;

    /// Reads the state.
    ///
    /// # Errors
    /// Those of its members.
    fn decode_state(d: &mut Decoder<'_>) -> Result<Self, CdrError>;

    /// What the ORB knows of the type.
    #[doc(hidden)]
    fn description() -> &'static ValueInfo {
        const { Self::INFO.expect("a concrete value type has its description") }
    }
}

/// For types of values of which the one inherits from the other, or supports it.
pub trait Inherits<Base: ?Sized> {}

impl<T: ?Sized> Inherits<ValueBase> for T {}

/// How values of one concrete type are told, written and read. A static of generated code.
#[derive(Debug)]
pub struct ValueInfo {
    /// All that the type is, beginning with itself and the types to which it can be truncated.
    pub ids: &'static [&'static str],
    /// To how many types it can be truncated.
    pub truncatable: usize,
    /// Whether its state is written by code of the user, and so in chunks.
    pub custom: bool,
    /// Its TypeCode.
    #[cfg(feature = "any")]
    pub type_code: fn() -> crate::TypeCode,
    /// There are no TypeCodes.
    #[cfg(not(feature = "any"))]
    pub type_code: (),
    /// Reads a state.
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

/// What stands behind a [`ValueRef`]: a state, or an implementation that has one.
pub trait ValueObject: Any + fmt::Debug + Send + Sync {
    /// Its type.
    fn info(&self) -> &'static ValueInfo;

    /// Writes the state.
    ///
    /// # Errors
    /// Those of its members.
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError>;

    /// The state as the type asked for: itself, or the part that is its base.
    fn part(&self, wanted: TypeId) -> Option<&dyn Any>;

    /// The state at this moment, of an implementation.
    fn snapshot(&self) -> Option<Box<dyn ValueObject>> {
        None
    }

    /// If `slot` is an `Option<Arc<dyn I>>` of something that the implementation is, puts it there.
    fn cast(&self, slot: &mut dyn Any) {
        let _ = slot;
    }
}

/// An implementation of the value type `T`: what generated code makes of an implementor of its operations, for
/// [`value`](Implementation::value) or a value factory.
pub struct Implementation<T> {
    pub(crate) object: Box<dyn ValueObject>,
    kind: PhantomData<fn() -> T>,
}

impl<T: ValueType> Implementation<T> {
    /// For generated code.
    #[doc(hidden)]
    pub fn new(object: impl ValueObject) -> Self {
        Implementation { object: Box::new(object), kind: PhantomData }
    }

    /// A value whose operations it runs.
    #[must_use]
    pub fn value(self) -> ValueRef<T> {
        ValueRef::from_parts(Link::Owner(Region::of(T::description(), self.object)), 0)
    }
}

/// A state alone, without operations.
impl<T: ValueType> From<T> for Implementation<T> {
    fn from(state: T) -> Self {
        Implementation::new(state)
    }
}

impl<T> fmt::Debug for Implementation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}
