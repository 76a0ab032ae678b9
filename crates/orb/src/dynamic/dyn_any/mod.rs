//! DynAny: values that are traversed and changed without their static types (CORBA 3.0.3 chapter
//! 9).

mod kinds;
mod parts;
mod values;

use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use corelane_wire::AnyValue;

use crate::any::{Any, Kind, TypeCode, Typed, Value};
use crate::client::context::ClientContext;
use crate::exception::SystemException;
use parts::{DynPart, PartContent, PartTable};

/// A value of any type that can be taken apart and assembled, part by part.
///
/// It combines all interfaces of the module `DynamicAny`. An operation that the value's type does
/// not have is a [`TypeMismatch`](DynAnyError::TypeMismatch). A part belongs to the whole:
/// [`current_component`](DynAny::current_component) lends one, and a change of it changes the
/// whole. The operations `copy`, `equal` and `destroy` are `clone`, `==` and drop.
///
/// Values of IDL `valuetype` may occur in several places of the whole and form cycles. These places
/// share one component, so a change shows in all of them. Parts that are taken out and put in again
/// remain shared.
///
/// ```
/// use corelane::dynamic::DynAny;
/// use corelane::TypeCode;
/// let point = TypeCode::structure("IDL:Point:1.0", "Point", [("x", TypeCode::LONG), ("y", TypeCode::LONG)])?;
/// let mut value = DynAny::from_type_code(&point)?;
/// value.insert(&1i32)?;                  // into the current component, x
/// assert!(value.advance());
/// value.insert(&2i32)?;
/// assert_eq!(value.current_member_name()?, "y");
/// let any = value.to_any()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DynAny {
    /// Table of parts; copied on change if another `DynAny` shares it.
    parts: Arc<PartTable>,
    /// Slot of the part that this value is. While a component is lent, this is the component's
    /// slot.
    top: u32,
    /// Number of components that are lent, nested in each other.
    borrow_depth: u32,
    /// The ORB of the contained references.
    client: Option<Arc<ClientContext>>,
}

/// The reason why an operation on a `DynAny` failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DynAnyError {
    /// The value's type does not have the operation or member.
    TypeMismatch,
    /// The value is out of range for the type, or there is no current component.
    InvalidValue,
    /// A contained value was of an unknown type and was truncated.
    MustTruncate,
    /// The type has no values, or the value cannot be marshalled.
    System(SystemException),
}

impl fmt::Display for DynAnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DynAnyError::TypeMismatch => f.write_str("the value is of another type"),
            DynAnyError::InvalidValue => f.write_str("the value cannot be that"),
            DynAnyError::MustTruncate => {
                f.write_str("a value in it was of an unknown type, and was cut down to a known one")
            }
            DynAnyError::System(exception) => fmt::Display::fmt(exception, f),
        }
    }
}

impl std::error::Error for DynAnyError {}

impl From<SystemException> for DynAnyError {
    fn from(exception: SystemException) -> Self {
        DynAnyError::System(exception)
    }
}

impl From<corelane_wire::CdrError> for DynAnyError {
    fn from(error: corelane_wire::CdrError) -> Self {
        DynAnyError::System(error.into())
    }
}

/// Compares types and values. Ignores positions, and ignores which equal values are shared.
impl PartialEq for DynAny {
    fn eq(&self, other: &DynAny) -> bool {
        self.parts.is_equal(self.top, &other.parts, other.top)
    }
}

/// Copies the value (`copy`).
impl Clone for DynAny {
    fn clone(&self) -> Self {
        self.part_at(self.top)
    }
}

impl fmt::Debug for DynAny {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("DynAny");
        shown.field("type", &format_args!("{}", self.type_code()));
        match self.value() {
            Ok(value) => shown.field("value", &value).finish(),
            Err(error) => shown.field("error", &error).finish(),
        }
    }
}

/// A component of a [`DynAny`], lent for reading and changing.
///
/// Change it with its own operations, such as [`assign`](DynAny::assign). A `DynAny` that is stored
/// through `DerefMut` replaces the whole, not only the component.
pub struct Component<'d> {
    whole: &'d mut DynAny,
    /// Slot of the whole, restored when the component is returned.
    outer: u32,
    /// Identity of the table that the component belongs to.
    identity: Arc<u8>,
}

impl Deref for Component<'_> {
    type Target = DynAny;

    fn deref(&self) -> &DynAny {
        self.whole
    }
}

impl DerefMut for Component<'_> {
    fn deref_mut(&mut self) -> &mut DynAny {
        self.whole
    }
}

impl Drop for Component<'_> {
    fn drop(&mut self) {
        if Arc::ptr_eq(&self.identity, &self.whole.parts.identity) {
            self.whole.top = self.outer;
            self.whole.borrow_depth = self.whole.borrow_depth.saturating_sub(1);
        }
    }
}

impl fmt::Debug for Component<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.whole.fmt(f)
    }
}

impl DynAny {
    /// Creates a `DynAny` from an `any` (`create_dyn_any`).
    ///
    /// # Errors
    /// [`DynAnyError::System`] for a value that has too many parts, or whose type cannot be taken
    /// apart.
    pub fn new(any: &Any) -> Result<DynAny, DynAnyError> {
        let made = DynAny::from_value(any.type_code(), any.value()?)?;
        Ok(DynAny { client: any.client().cloned(), ..made })
    }

    /// Creates a `DynAny` from an `any` that was not truncated
    /// (`create_dyn_any_without_truncation`).
    ///
    /// # Errors
    /// [`DynAnyError::MustTruncate`] if [`Any::is_truncated`], and the errors of
    /// [`new`](DynAny::new).
    pub fn without_truncation(any: &Any) -> Result<DynAny, DynAnyError> {
        if any.is_truncated() { Err(DynAnyError::MustTruncate) } else { DynAny::new(any) }
    }

    /// Creates the initial value of a type (`create_dyn_any_from_type_code`): zero, empty, nil,
    /// null, the first enumerator or the first arm.
    ///
    /// # Errors
    /// [`DynAnyError::System`] for a type without values.
    pub fn from_type_code(type_code: &TypeCode) -> Result<DynAny, DynAnyError> {
        DynAny::from_value(type_code, Value::initial(type_code)?)
    }

    fn from_value(type_code: &TypeCode, value: Value) -> Result<DynAny, DynAnyError> {
        let mut parts = PartTable::new();
        let top = parts.add_value(type_code, value, &mut HashMap::new())?;
        Ok(DynAny { parts: Arc::new(parts), top, borrow_depth: 0, client: None })
    }

    /// Returns the type. For a value of IDL `valuetype` it is the value's own, which may inherit
    /// from the type expected in its place.
    #[must_use]
    pub fn type_code(&self) -> &TypeCode {
        &self.part().type_code
    }

    fn kind(&self) -> Kind {
        self.type_code().unaliased().kind()
    }

    fn part(&self) -> &DynPart {
        self.parts.get(self.top)
    }

    fn part_mut(&mut self) -> Result<&mut DynPart, DynAnyError> {
        let top = self.top;
        self.table().get_mut(top)
    }

    fn table(&mut self) -> &mut PartTable {
        Arc::make_mut(&mut self.parts)
    }

    /// Returns a part as a separate value.
    fn part_at(&self, top: u32) -> DynAny {
        DynAny { parts: Arc::clone(&self.parts), top, borrow_depth: 0, client: self.client.clone() }
    }

    fn components(&self) -> impl Iterator<Item = DynAny> {
        self.part().parts().iter().map(|place| self.part_at(*place))
    }

    /// Lends a part.
    fn borrow_component(&mut self, place: u32) -> Component<'_> {
        self.compact();
        let outer = std::mem::replace(&mut self.top, place);
        self.borrow_depth += 1;
        let identity = Arc::clone(&self.parts.identity);
        Component { whole: self, outer, identity }
    }

    /// Copies the table without its detached parts if there are many.
    fn compact(&mut self) {
        if self.borrow_depth == 0 && self.parts.needs_compaction() {
            let (parts, top) = self.parts.extract(self.top);
            (self.parts, self.top) = (Arc::new(parts), top);
        }
    }

    fn check_kind(&self, kinds: &[Kind]) -> Result<(), DynAnyError> {
        if kinds.contains(&self.kind()) { Ok(()) } else { Err(DynAnyError::TypeMismatch) }
    }

    /// Takes the value of another `DynAny` of an equivalent type.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`].
    pub fn assign(&mut self, other: &DynAny) -> Result<(), DynAnyError> {
        if !self.type_code().equivalent(other.type_code()) {
            return Err(DynAnyError::TypeMismatch);
        }
        self.replace(other)
    }

    fn replace(&mut self, other: &DynAny) -> Result<(), DynAnyError> {
        self.client = self.client.take().or_else(|| other.client.clone());
        let top = self.top;
        self.table().copy_part_to(top, &other.parts, other.top);
        self.rewind();
        self.compact();
        Ok(())
    }

    /// Takes the value of an `any` of an equivalent type (`from_any`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`], and the errors of [`new`](DynAny::new).
    pub fn assign_any(&mut self, any: &Any) -> Result<(), DynAnyError> {
        self.assign(&DynAny::new(any)?)
    }

    /// Returns the value as an `any`.
    ///
    /// # Errors
    /// [`DynAnyError::System`] for text that cannot be marshalled.
    pub fn to_any(&self) -> Result<Any, DynAnyError> {
        Ok(Any::from_wire(AnyValue::from_value(self.type_code(), &self.value()?)?, self.client.clone()))
    }

    fn value(&self) -> Result<Value, DynAnyError> {
        self.parts.value(self.top, &mut HashMap::new(), 0)
    }

    // ---- components
    // --------------------------------------------------------------------------------

    /// Returns the number of components: members or elements. A union has 2, or 1 without an active
    /// member; a value box has 1. All other types, and null, have 0.
    #[must_use]
    pub fn component_count(&self) -> usize {
        self.part().parts().len()
    }

    /// Makes the component at `index` current. Without such a component, returns false and makes no
    /// component current.
    pub fn seek(&mut self, index: usize) -> bool {
        let position = (index < self.component_count()).then_some(index);
        self.part_mut().is_ok_and(|part| {
            part.position = position;
            position.is_some()
        })
    }

    /// Makes the first component current.
    pub fn rewind(&mut self) -> bool {
        self.seek(0)
    }

    /// Makes the next component current (`next`). After the last one, returns false and makes no
    /// component current.
    pub fn advance(&mut self) -> bool {
        self.seek(self.part().position.map_or(0, |position| position + 1))
    }

    fn current(&self) -> Option<u32> {
        let part = self.part();
        part.position.and_then(|position| part.parts().get(position)).copied()
    }

    /// Returns the current component, if there is one.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for values that cannot have components.
    pub fn current_component(&mut self) -> Result<Option<Component<'_>>, DynAnyError> {
        self.compact();
        match self.part().content {
            PartContent::Leaf(_) if !self.part().is_value() => Err(DynAnyError::TypeMismatch),
            _ => Ok(self.current().map(|place| self.borrow_component(place))),
        }
    }

    /// Changes the value, or the current component if the value has components.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] if the Rust type does not represent the type;
    /// [`DynAnyError::InvalidValue`] if there is no current component, or the value exceeds a
    /// bound.
    pub fn insert<T: Typed>(&mut self, value: &T) -> Result<(), DynAnyError> {
        if T::matches_type(self.type_code()) {
            let any = Any::with_type(self.type_code(), value).map_err(|_| DynAnyError::InvalidValue)?;
            return self.replace(&DynAny::new(&any)?);
        }
        self.current_component()?.ok_or(DynAnyError::InvalidValue)?.insert(value)
    }

    /// Returns the value, or the current component if the value has components.
    ///
    /// # Errors
    /// The errors of [`insert`](DynAny::insert).
    pub fn get<T: Typed>(&self) -> Result<T, DynAnyError> {
        if T::matches_type(self.type_code()) {
            return Ok(self.to_any()?.extract()?);
        }
        match self.part().content {
            PartContent::Parts(_) => self.part_at(self.current().ok_or(DynAnyError::InvalidValue)?).get(),
            PartContent::Leaf(_) => Err(DynAnyError::TypeMismatch),
        }
    }

    /// Replaces all components.
    fn set_parts<'i>(&mut self, items: impl Iterator<Item = &'i DynAny> + Clone) -> Result<(), DynAnyError> {
        // Items of this `DynAny` tree keep their identity. Items of another tree are copied, and
        // values that are shared there stay shared in the copy.
        let own: Vec<bool> = items.clone().map(|item| Arc::ptr_eq(&item.parts, &self.parts)).collect();
        let mut copied: HashMap<*const PartTable, HashMap<u32, u32>> = HashMap::new();
        let top = self.top;
        let table = self.table();
        let mut places = Vec::with_capacity(own.len());
        for (item, own) in items.zip(own) {
            let known = copied.entry(Arc::as_ptr(&item.parts)).or_default();
            places.push(table.copy_part((!own).then_some(&*item.parts), item.top, known));
        }
        table.get_mut(top)?.set(PartContent::Parts(places));
        self.compact();
        Ok(())
    }
}
