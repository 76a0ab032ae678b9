//! DynAny: access to the parts of values whose types are known only at run time (CORBA 3.0.3
//! chapter 9).

mod kinds;
mod parts;
mod values;

use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use corelane_wire::AnyValue;

use crate::any::{Any, TypeCode, TypeCodeKind, Typed, Value};
use crate::client::context::ClientContext;
use crate::exception::SystemException;
use parts::{DynPart, PartContent, PartTable};

/// A value of any type whose parts can be read and changed at run time.
///
/// An operation that the value's type does not have fails with
/// [`TypeMismatch`](DynAnyError::TypeMismatch). The operations `copy`, `equal` and `destroy` are
/// `clone`, `==` and drop.
///
/// All occurrences of a value of an IDL `valuetype` in the whole value are one shared component.
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
    /// A change copies the table if another `DynAny` shares it.
    parts: Arc<PartTable>,
    /// Slot of the whole value, or of the component that is borrowed.
    top: u32,
    borrow_depth: u32,
    client: Option<Arc<ClientContext>>,
}

/// The reason why an operation on a `DynAny` failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DynAnyError {
    /// The operation is not possible for the value's type, or a type does not match.
    TypeMismatch,
    /// The value is out of range for its type, or there is no current component.
    InvalidValue,
    /// A contained value (IDL `valuetype`) had an unknown type and was truncated.
    MustTruncate,
    /// A system exception, for example for a type without values.
    System(SystemException),
}

impl fmt::Display for DynAnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DynAnyError::TypeMismatch => f.write_str("the value has another type"),
            DynAnyError::InvalidValue => {
                f.write_str("the value is out of range for its type, or there is no current component")
            }
            DynAnyError::MustTruncate => {
                f.write_str("a contained value had an unknown type and was truncated to a known type")
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

/// The comparison ignores the current components, and ignores which equal values are shared.
impl PartialEq for DynAny {
    fn eq(&self, other: &DynAny) -> bool {
        self.parts.is_equal(self.top, &other.parts, other.top)
    }
}

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

/// A component of a [`DynAny`], borrowed for reading and changing with operations such as
/// [`assign`](DynAny::assign).
pub struct Component<'d> {
    whole: &'d mut DynAny,
    outer: u32,
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
    /// [`DynAnyError::System`] for a value with too many parts, and for a type whose parts are not
    /// accessible.
    pub fn new(any: &Any) -> Result<DynAny, DynAnyError> {
        let made = DynAny::from_value(any.type_code(), any.value()?)?;
        Ok(DynAny { client: any.client().cloned(), ..made })
    }

    /// Creates a `DynAny` from an `any` that was not truncated
    /// (`create_dyn_any_without_truncation`).
    ///
    /// # Errors
    /// [`DynAnyError::MustTruncate`] if [`Any::is_truncated`] is true, and the errors of
    /// [`new`](DynAny::new).
    pub fn without_truncation(any: &Any) -> Result<DynAny, DynAnyError> {
        if any.is_truncated() { Err(DynAnyError::MustTruncate) } else { DynAny::new(any) }
    }

    /// Creates the initial value of a type (`create_dyn_any_from_type_code`): zero, empty, nil,
    /// null, the first enumerator, or the first member of a union.
    ///
    /// # Errors
    /// [`DynAnyError::System`] for a type without values.
    pub fn from_type_code(type_code: &TypeCode) -> Result<DynAny, DynAnyError> {
        DynAny::from_value(type_code, Value::default_of_type(type_code)?)
    }

    fn from_value(type_code: &TypeCode, value: Value) -> Result<DynAny, DynAnyError> {
        let mut parts = PartTable::new();
        let top = parts.add_value(type_code, value, &mut HashMap::new())?;
        Ok(DynAny { parts: Arc::new(parts), top, borrow_depth: 0, client: None })
    }

    /// Returns the TypeCode of the value. For an IDL `valuetype` the result is the type of the
    /// value, which may inherit from the type that the member or element has.
    #[must_use]
    pub fn type_code(&self) -> &TypeCode {
        &self.part().type_code
    }

    fn kind(&self) -> TypeCodeKind {
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

    fn part_at(&self, top: u32) -> DynAny {
        DynAny { parts: Arc::clone(&self.parts), top, borrow_depth: 0, client: self.client.clone() }
    }

    fn components(&self) -> impl Iterator<Item = DynAny> {
        self.part().parts().iter().map(|place| self.part_at(*place))
    }

    fn borrow_component(&mut self, place: u32) -> Component<'_> {
        self.compact();
        let outer = std::mem::replace(&mut self.top, place);
        self.borrow_depth += 1;
        let identity = Arc::clone(&self.parts.identity);
        Component { whole: self, outer, identity }
    }

    fn compact(&mut self) {
        if self.borrow_depth == 0 && self.parts.needs_compaction() {
            let (parts, top) = self.parts.extract(self.top);
            (self.parts, self.top) = (Arc::new(parts), top);
        }
    }

    fn check_kind(&self, kinds: &[TypeCodeKind]) -> Result<(), DynAnyError> {
        if kinds.contains(&self.kind()) { Ok(()) } else { Err(DynAnyError::TypeMismatch) }
    }

    /// Replaces the value by the value of another `DynAny` with an equivalent type (`assign`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type.
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

    /// Replaces the value by the value of an `any` with an equivalent type (`from_any`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type, and the errors of
    /// [`new`](DynAny::new).
    pub fn assign_any(&mut self, any: &Any) -> Result<(), DynAnyError> {
        self.assign(&DynAny::new(any)?)
    }

    /// Returns the value as an `any`.
    ///
    /// # Errors
    /// [`DynAnyError::System`] if the value cannot be encoded.
    pub fn to_any(&self) -> Result<Any, DynAnyError> {
        Ok(Any::from_wire(AnyValue::from_value(self.type_code(), &self.value()?)?, self.client.clone()))
    }

    fn value(&self) -> Result<Value, DynAnyError> {
        self.parts.value(self.top, &mut HashMap::new(), 0)
    }

    /// Returns the number of components: members or elements. A union has 2, or 1 without an active
    /// member; a value box has 1. All other types, and null, have 0.
    #[must_use]
    pub fn component_count(&self) -> usize {
        self.part().parts().len()
    }

    /// Makes the component at `index` current. If there is none, returns false, and no component is
    /// current.
    pub fn seek(&mut self, index: usize) -> bool {
        let position = (index < self.component_count()).then_some(index);
        self.part_mut().is_ok_and(|part| {
            part.position = position;
            position.is_some()
        })
    }

    /// Makes the first component current. Returns false if the value has no components.
    pub fn rewind(&mut self) -> bool {
        self.seek(0)
    }

    /// Makes the next component current (`next`). After the last component, returns false, and no
    /// component is current.
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

    /// Sets the value if `T` represents its type; otherwise inserts into the current component, by
    /// the same rule.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] if the Rust type does not represent the IDL type;
    /// [`DynAnyError::InvalidValue`] if there is no current component, or if `value` exceeds a
    /// bound.
    pub fn insert<T: Typed>(&mut self, value: &T) -> Result<(), DynAnyError> {
        if T::matches_type(self.type_code()) {
            let any = Any::with_type(self.type_code(), value).map_err(|_| DynAnyError::InvalidValue)?;
            return self.replace(&DynAny::new(&any)?);
        }
        self.current_component()?.ok_or(DynAnyError::InvalidValue)?.insert(value)
    }

    /// Returns the value if `T` represents its type; otherwise gets from the current component, by
    /// the same rule.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] if the Rust type does not represent the IDL type;
    /// [`DynAnyError::InvalidValue`] if there is no current component; [`DynAnyError::System`] if
    /// the value cannot be converted.
    pub fn get<T: Typed>(&self) -> Result<T, DynAnyError> {
        if T::matches_type(self.type_code()) {
            return Ok(self.to_any()?.extract()?);
        }
        match self.part().content {
            PartContent::Parts(_) => self.part_at(self.current().ok_or(DynAnyError::InvalidValue)?).get(),
            PartContent::Leaf(_) => Err(DynAnyError::TypeMismatch),
        }
    }

    fn set_parts<'i>(&mut self, items: impl Iterator<Item = &'i DynAny> + Clone) -> Result<(), DynAnyError> {
        // Items that are already in the table of this value are not copied, and keep their
        // identity.
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
