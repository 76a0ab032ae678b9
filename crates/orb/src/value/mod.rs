//! Values of IDL `valuetype`s.
//!
//! A [`ValueRef<T>`] is a handle to a value whose type is `T` or inherits from `T`.
//!
//! The values of a received message may refer to each other in cycles. A [region](region) owns all
//! of them. References between its values do not own the region, so the drop of the last handle
//! frees all values.

mod abstract_interface;
mod codec;
mod factories;
mod graph;
mod macros;
mod object;
mod region;
#[cfg(feature = "any")]
mod typed;

pub use abstract_interface::{ObjectOrValue, read_abstract, write_abstract};
#[cfg(feature = "any")]
pub(crate) use codec::FUNCTIONS;
pub use codec::{read_value, write_value};
pub use factories::ValueFactories;
pub use graph::ValueGraph;
pub use object::{Inherits, ValueBase, ValueImplementation, ValueInfo, ValueKind, ValueObject, ValueType};
#[cfg(feature = "any")]
pub use typed::TypedValue;

use std::any::TypeId;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use region::ValueRegion;

/// A handle to a value whose type is `T` or inherits from `T`. A null value is `None` of
/// `Option<ValueRef<T>>`.
///
/// `T` is the structure that the IDL compiler generates for a value type, `dyn Trait` for an
/// abstract value type, or [`ValueBase`] for values of any type.
///
/// # Examples
/// ```
/// use corelane::{CdrError, ValueRef, mapping};
/// #[derive(Clone, Debug)]
/// struct Name(String);
/// # impl mapping::ValueType for Name {
/// #     fn encode_state(&self, e: &mut mapping::Encoder<'_>) -> Result<(), CdrError> { e.write_str(&self.0) }
/// #     fn decode_state(d: &mut mapping::Decoder<'_>) -> Result<Self, CdrError> { d.read_string().map(Name) }
/// # }
/// # corelane::value_type! { Name = ["IDL:Name:1.0"] }
/// # corelane::describe! { pub static NAME_TYPE for value Name = value_box("IDL:Name:1.0", "Name", STRING) }
/// let name = ValueRef::new(Name("Ada".to_owned()));
/// assert_eq!(name.get().0, "Ada");
/// let (same, other) = (name.clone(), ValueRef::new(Name("Ada".to_owned())));
/// assert!(name == same && name != other);
/// ```
pub struct ValueRef<T: ?Sized> {
    link: RegionLink,
    index: u32,
    kind: PhantomData<fn() -> Box<T>>,
}

#[derive(Clone)]
pub(crate) enum RegionLink {
    /// A handle outside the region owns the region.
    Owner(Arc<ValueRegion>),
    /// A handle in the state of one of the region's values does not own the region.
    Inside(Weak<ValueRegion>),
}

impl RegionLink {
    pub(crate) fn region(&self) -> Option<Arc<ValueRegion>> {
        match self {
            RegionLink::Owner(region) => Some(Arc::clone(region)),
            RegionLink::Inside(region) => region.upgrade(),
        }
    }

    fn address(&self) -> *const ValueRegion {
        match self {
            RegionLink::Owner(region) => Arc::as_ptr(region),
            RegionLink::Inside(region) => region.as_ptr(),
        }
    }
}

impl<T: ?Sized> ValueRef<T> {
    pub(crate) fn from_parts(link: RegionLink, index: u32) -> Self {
        ValueRef { link, index, kind: PhantomData }
    }

    pub(crate) fn region(&self) -> Option<Arc<ValueRegion>> {
        self.link.region()
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn info(&self) -> Option<&'static ValueInfo> {
        self.region().and_then(|region| region.info(self.index))
    }

    /// Returns the repository id of the value's type, which may inherit from `T`; empty if the
    /// value's graph no longer exists.
    #[must_use]
    pub fn repository_id(&self) -> &'static str {
        self.info().map_or("", ValueInfo::repository_id)
    }

    /// Returns true if the value's type has this repository id, or inherits from or supports the
    /// type that has it.
    #[must_use]
    pub fn is_a(&self, repository_id: &str) -> bool {
        self.info().is_some_and(|info| info.is_a(repository_id))
    }

    /// Returns a handle of the type `U` to the value, or `None` if the value does not have this
    /// type.
    #[must_use]
    pub fn narrow<U: ValueKind + ?Sized>(&self) -> Option<ValueRef<U>> {
        self.is_a(U::REPOSITORY_ID).then(|| self.cast())
    }

    /// Returns a handle to the value as a base type `U` of `T`.
    #[must_use]
    pub fn widen<U: ?Sized>(&self) -> ValueRef<U>
    where
        T: Inherits<U>,
    {
        self.cast()
    }

    fn cast<U: ?Sized>(&self) -> ValueRef<U> {
        let ValueRef { link, index, .. } = self.clone();
        ValueRef::from_parts(link, index)
    }

    /// Returns the object that implements the value's operations: `circle.implementation::<dyn
    /// Shape>()`. Returns `None` for a state without operations. A received value is such a state
    /// unless a factory that makes implementations is registered for its type.
    #[must_use]
    pub fn implementation<I: ?Sized + 'static>(&self) -> Option<Arc<I>> {
        let mut slot: Option<Arc<I>> = None;
        self.region()?.get(self.index)?.cast(&mut slot);
        slot
    }
}

impl<T: ValueType> ValueRef<T> {
    /// Creates a value with this state.
    #[must_use]
    pub fn new(state: T) -> Self {
        Self::from_parts(RegionLink::Owner(ValueRegion::of(T::description(), Box::new(state))), 0)
    }

    /// Returns the value's state. For a value with an implementation the result is a snapshot of
    /// its state.
    ///
    /// # Panics
    /// If [`try_get`](Self::try_get) returns `None`.
    #[must_use]
    pub fn get(&self) -> ValueState<T> {
        self.try_get().expect("the value has a state: its graph has defined it and still exists")
    }

    /// Returns the value's state as [`get`](Self::get) does, or `None` for a value without a state.
    /// A value has no state if its [`ValueGraph`] has not defined it or no longer exists, or if
    /// custom code is reading it.
    #[must_use]
    pub fn try_get(&self) -> Option<ValueState<T>> {
        let region = self.region()?;
        let place = match region.get(self.index)?.snapshot() {
            Some(snapshot) => StateSource::Snapshot(snapshot),
            None => StateSource::Region(region, self.index),
        };
        // Handles of the type `T` exist for values whose state has the type `T` or contains it as a
        // base.
        place.part(TypeId::of::<T>())?.is::<T>().then_some(ValueState { place, kind: PhantomData })
    }
}

/// A handle to a value of any type.
pub type AnyValueRef = ValueRef<ValueBase>;

/// The state of a value, borrowed from a [`ValueRef`] and kept alive while it is read.
pub struct ValueState<T> {
    place: StateSource,
    kind: PhantomData<fn() -> T>,
}

enum StateSource {
    Region(Arc<ValueRegion>, u32),
    Snapshot(Box<dyn ValueObject>),
}

impl StateSource {
    fn part(&self, wanted: TypeId) -> Option<&dyn std::any::Any> {
        match self {
            StateSource::Region(region, index) => region.get(*index)?.part(wanted),
            StateSource::Snapshot(object) => object.part(wanted),
        }
    }
}

impl<T: 'static> Deref for ValueState<T> {
    type Target = T;

    fn deref(&self) -> &T {
        let part = self.place.part(TypeId::of::<T>()).and_then(|part| part.downcast_ref());
        part.expect("a state keeps the part with which it was made")
    }
}

impl<T: fmt::Debug + 'static> fmt::Debug for ValueState<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized> Clone for ValueRef<T> {
    fn clone(&self) -> Self {
        let link = match &self.link {
            RegionLink::Inside(region) => match region.upgrade() {
                // While the region is open, the clone may become part of another value of the
                // region, so it does not own the region.
                Some(region) if !region.is_open() => RegionLink::Owner(region),
                _ => RegionLink::Inside(Weak::clone(region)),
            },
            RegionLink::Owner(region) => RegionLink::Owner(Arc::clone(region)),
        };
        Self::from_parts(link, self.index)
    }
}

impl<T: ?Sized, U: ?Sized> PartialEq<ValueRef<U>> for ValueRef<T> {
    fn eq(&self, other: &ValueRef<U>) -> bool {
        std::ptr::eq(self.link.address(), other.link.address()) && self.index == other.index
    }
}

impl<T: ?Sized> Eq for ValueRef<T> {}

impl<T: ?Sized> Hash for ValueRef<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.link.address(), self.index).hash(state);
    }
}

impl<T: ?Sized> fmt::Debug for ValueRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueRef({} at {:p}.{})", self.repository_id(), self.link.address(), self.index)
    }
}
