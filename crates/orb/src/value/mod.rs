//! Values: what IDL's `valuetype` describes. They are sent by copy, with who is shared with whom.
//!
//! A [`ValueRef<T>`] is a handle to a value whose type is `T` or inherits from it, and never changes once it is made. Clones of the
//! handle are the same value, which equality and hashing compare, and which is sent once however often it comes in a message.
//!
//! The values of a received message may refer to each other in circles. They live in a [region](region) that owns them all: handles
//! own the region, references between its values do not, so a circle is freed with the last handle to any of its values. A
//! [`ValueGraph`] makes such values in the program.

mod codec;
mod either;
mod factories;
mod graph;
mod macros;
mod object;
mod region;
#[cfg(feature = "any")]
mod typed;

#[cfg(feature = "any")]
pub(crate) use codec::converting;
pub(crate) use codec::value_space;
pub use codec::{read_value, write_value};
pub use either::{Abstract, read_abstract, write_abstract};
pub use factories::ValueFactories;
pub use graph::ValueGraph;
pub use object::{Implementation, Inherits, ValueBase, ValueInfo, ValueKind, ValueObject, ValueType};
#[cfg(feature = "any")]
pub use typed::TypedValue;

use std::any::TypeId;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use region::Region;

/// A value of the type `T`, or of one that inherits from it. A null value is `None` of `Option<ValueRef<T>>`.
///
/// `T` is the structure that the IDL compiler makes for a value type, `dyn Trait` for an abstract one, or [`ValueBase`] for
/// values of any type.
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
    link: Link,
    index: u32,
    kind: PhantomData<fn() -> Box<T>>,
}

/// How a handle holds the region of its value.
#[derive(Clone)]
pub(crate) enum Link {
    /// Outside it.
    Owner(Arc<Region>),
    /// In the state of a value of the same region.
    Inside(Weak<Region>),
}

impl Link {
    pub(crate) fn region(&self) -> Option<Arc<Region>> {
        match self {
            Link::Owner(region) => Some(Arc::clone(region)),
            Link::Inside(region) => region.upgrade(),
        }
    }

    fn address(&self) -> *const Region {
        match self {
            Link::Owner(region) => Arc::as_ptr(region),
            Link::Inside(region) => region.as_ptr(),
        }
    }
}

impl<T: ?Sized> ValueRef<T> {
    pub(crate) fn from_parts(link: Link, index: u32) -> Self {
        ValueRef { link, index, kind: PhantomData }
    }

    pub(crate) fn region(&self) -> Option<Arc<Region>> {
        self.link.region()
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// What its type is; `None` for one that was announced to a [`ValueGraph`] and not defined.
    pub(crate) fn info(&self) -> Option<&'static ValueInfo> {
        self.region().and_then(|region| region.info(self.index))
    }

    /// The repository id of the value's own type, "" for a value whose graph is gone.
    #[must_use]
    pub fn repository_id(&self) -> &'static str {
        self.info().map_or("", ValueInfo::repository_id)
    }

    /// Whether the value's type is, inherits from or supports `repository_id`.
    #[must_use]
    pub fn is_a(&self, repository_id: &str) -> bool {
        self.info().is_some_and(|info| info.is_a(repository_id))
    }

    /// The same value as one of the type `U`, if it is one.
    #[must_use]
    pub fn narrow<U: ValueKind + ?Sized>(&self) -> Option<ValueRef<U>> {
        self.is_a(U::REPOSITORY_ID).then(|| self.cast())
    }

    /// The same value as one of a type that `T` inherits from.
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

    /// What runs the operations of the value: `circle.implementation::<dyn Shape>()`. `None` for a value that is state alone,
    /// because no factory with an implementation was registered where it came in.
    #[must_use]
    pub fn implementation<I: ?Sized + 'static>(&self) -> Option<Arc<I>> {
        let mut slot: Option<Arc<I>> = None;
        self.region()?.get(self.index)?.cast(&mut slot);
        slot
    }
}

impl<T: ValueType> ValueRef<T> {
    /// A value with this state.
    #[must_use]
    pub fn new(state: T) -> Self {
        Self::from_parts(Link::Owner(Region::of(T::description(), Box::new(state))), 0)
    }

    /// The state of the value; of a value that has an implementation, its state at this moment.
    ///
    /// # Panics
    /// Where [`try_get`](Self::try_get) has no answer.
    #[must_use]
    pub fn get(&self) -> State<T> {
        self.try_get().expect("a value of a graph is read when it is defined and before the graph is gone")
    }

    /// The same, or `None` for a value without a state yet: one announced to a [`ValueGraph`] and not defined, or one that custom
    /// code reads within which it is itself being read; and for one whose graph is gone.
    #[must_use]
    pub fn try_get(&self) -> Option<State<T>> {
        let region = self.region()?;
        let place = match region.get(self.index)?.snapshot() {
            Some(snapshot) => Place::Own(snapshot),
            None => Place::Region(region, self.index),
        };
        // A handle of this type is made only for a value that has such a part.
        place.part(TypeId::of::<T>())?.is::<T>().then_some(State { place, kind: PhantomData })
    }
}

/// A value of any type.
pub type AnyValueRef = ValueRef<ValueBase>;

/// The state of a [`ValueRef`], for as long as it is looked at.
pub struct State<T> {
    place: Place,
    kind: PhantomData<fn() -> T>,
}

enum Place {
    Region(Arc<Region>, u32),
    Own(Box<dyn ValueObject>),
}

impl Place {
    fn part(&self, wanted: TypeId) -> Option<&dyn std::any::Any> {
        match self {
            Place::Region(region, index) => region.get(*index)?.part(wanted),
            Place::Own(object) => object.part(wanted),
        }
    }
}

impl<T: 'static> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        let part = self.place.part(TypeId::of::<T>()).and_then(|part| part.downcast_ref());
        part.expect("the part was there when the state was made, and a state does not change")
    }
}

impl<T: fmt::Debug + 'static> fmt::Debug for State<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A handle taken out of the state of a value owns it too.
impl<T: ?Sized> Clone for ValueRef<T> {
    fn clone(&self) -> Self {
        let link = match &self.link {
            Link::Inside(region) => match region.upgrade() {
                // While its values are made, references between them stay such.
                Some(region) if !region.is_open() => Link::Owner(region),
                _ => Link::Inside(Weak::clone(region)),
            },
            Link::Owner(region) => Link::Owner(Arc::clone(region)),
        };
        Self::from_parts(link, self.index)
    }
}

/// Whether both are the same value.
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

/// The type and the identity, not the state: values may lead in circles.
impl<T: ?Sized> fmt::Debug for ValueRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueRef({} at {:p}.{})", self.repository_id(), self.link.address(), self.index)
    }
}
