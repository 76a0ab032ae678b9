//! DynAny: values that are walked through and changed without their types (CORBA 3.0.3 chapter 9).

mod kinds;
mod parts;
mod values;

use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use corelane_wire::AnyValue;

use crate::any::{Any, Kind, TypeCode, Typed, Value};
use crate::exception::SystemException;
use crate::orb::Core;
use parts::{Content, Part, Parts};

/// A value of any type that can be taken apart and put together, part by part.
///
/// It is all interfaces of the module `DynamicAny` in one: what a value's type does not have is a
/// [`TypeMismatch`](DynAnyError::TypeMismatch). Parts belong to the whole, so [`current_component`](DynAny::current_component)
/// lends one, and a change of it is a change of the whole; copying is `clone`, comparing `==`, destroying dropping.
///
/// Values of IDL `valuetype` may be in several places of the whole, and lead in circles: the components there are one component, and
/// a change of it is seen in all of them. Whatever takes parts out and puts them in again keeps that.
///
/// ```
/// use corelane::dynamic::DynAny;
/// use corelane::TypeCode;
/// let point = TypeCode::structure("IDL:Point:1.0", "Point", [("x", TypeCode::LONG), ("y", TypeCode::LONG)])?;
/// let mut value = DynAny::of_type(&point)?;
/// value.insert(&1i32)?;                  // into the current component, x
/// assert!(value.advance());
/// value.insert(&2i32)?;
/// assert_eq!(value.current_member_name()?, "y");
/// let any = value.to_any()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DynAny {
    /// Copied when it is changed and another `DynAny` has it too.
    parts: Arc<Parts>,
    /// The part that it is; while a component is lent, that component.
    top: u32,
    /// Components that are lent, one within the other.
    lent: u32,
    /// The ORB of the references in it.
    core: Option<Arc<Core>>,
}

/// Why something cannot be done with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DynAnyError {
    /// The value's type does not have that.
    TypeMismatch,
    /// The value cannot be that; or there is no current component.
    InvalidValue,
    /// A value in it was of an unknown type, and was cut down.
    MustTruncate,
    /// There is no value of this type, or it cannot be marshalled.
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

/// Compares types and values; positions do not matter, nor whether equal values are one.
impl PartialEq for DynAny {
    fn eq(&self, other: &DynAny) -> bool {
        self.parts.same(self.top, &other.parts, other.top)
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

/// A component of a [`DynAny`], lent to be looked at and changed.
///
/// It is changed by its own operations, [`assign`](DynAny::assign) among them. Another `DynAny` put in its place takes the place of
/// the whole.
pub struct Component<'d> {
    whole: &'d mut DynAny,
    /// What the whole is when the component is given back.
    outer: u32,
    /// Of which table.
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
            self.whole.lent = self.whole.lent.saturating_sub(1);
        }
    }
}

impl fmt::Debug for Component<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.whole.fmt(f)
    }
}

impl DynAny {
    /// A value (`create_dyn_any`).
    ///
    /// # Errors
    /// [`DynAnyError::System`] for a value that has too many parts, or is of a type that cannot be taken apart.
    pub fn new(any: &Any) -> Result<DynAny, DynAnyError> {
        let made = DynAny::of_value(any.type_code(), any.value()?)?;
        Ok(DynAny { core: any.core().cloned(), ..made })
    }

    /// A value of which nothing was left out (`create_dyn_any_without_truncation`).
    ///
    /// # Errors
    /// [`DynAnyError::MustTruncate`] where [`Any::is_truncated`], and those of [`new`](DynAny::new).
    pub fn without_truncation(any: &Any) -> Result<DynAny, DynAnyError> {
        if any.is_truncated() { Err(DynAnyError::MustTruncate) } else { DynAny::new(any) }
    }

    /// The initial value of a type (`create_dyn_any_from_type_code`): zero, empty, nil, null, the first enumerator, the first arm.
    ///
    /// # Errors
    /// [`DynAnyError::System`] for a type without values.
    pub fn of_type(type_code: &TypeCode) -> Result<DynAny, DynAnyError> {
        DynAny::of_value(type_code, Value::initial(type_code)?)
    }

    fn of_value(type_code: &TypeCode, value: Value) -> Result<DynAny, DynAnyError> {
        let mut parts = Parts::new();
        let top = parts.add_value(type_code, value, &mut HashMap::new())?;
        Ok(DynAny { parts: Arc::new(parts), top, lent: 0, core: None })
    }

    /// The type; of a value of IDL `valuetype` its own, which may inherit from the one that is expected where it is.
    #[must_use]
    pub fn type_code(&self) -> &TypeCode {
        &self.part().type_code
    }

    fn kind(&self) -> Kind {
        self.type_code().resolved().kind()
    }

    fn part(&self) -> &Part {
        self.parts.get(self.top)
    }

    fn part_mut(&mut self) -> Result<&mut Part, DynAnyError> {
        let top = self.top;
        self.table().get_mut(top)
    }

    fn table(&mut self) -> &mut Parts {
        Arc::make_mut(&mut self.parts)
    }

    /// A part as a value of its own.
    fn part_at(&self, top: u32) -> DynAny {
        DynAny { parts: Arc::clone(&self.parts), top, lent: 0, core: self.core.clone() }
    }

    fn copies(&self) -> impl Iterator<Item = DynAny> {
        self.part().parts().iter().map(|place| self.part_at(*place))
    }

    /// Lends a part.
    fn lend(&mut self, place: u32) -> Component<'_> {
        self.tidy();
        let outer = std::mem::replace(&mut self.top, place);
        self.lent += 1;
        let identity = Arc::clone(&self.parts.identity);
        Component { whole: self, outer, identity }
    }

    /// Forgets parts that were cut off, if there are many.
    fn tidy(&mut self) {
        if self.lent == 0 && self.parts.is_untidy() {
            let (parts, top) = self.parts.only(self.top);
            (self.parts, self.top) = (Arc::new(parts), top);
        }
    }

    fn check(&self, kinds: &[Kind]) -> Result<(), DynAnyError> {
        if kinds.contains(&self.kind()) { Ok(()) } else { Err(DynAnyError::TypeMismatch) }
    }

    /// Takes the value of another one of an equivalent type.
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
        self.core = self.core.take().or_else(|| other.core.clone());
        let top = self.top;
        self.table().take_to(top, &other.parts, other.top);
        self.rewind();
        self.tidy();
        Ok(())
    }

    /// Takes the value of an `any` of an equivalent type (`from_any`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`], and those of [`new`](DynAny::new).
    pub fn assign_any(&mut self, any: &Any) -> Result<(), DynAnyError> {
        self.assign(&DynAny::new(any)?)
    }

    /// The value as an `any`.
    ///
    /// # Errors
    /// [`DynAnyError::System`] for text that cannot be marshalled.
    pub fn to_any(&self) -> Result<Any, DynAnyError> {
        Ok(Any::from_wire(AnyValue::from_value(self.type_code(), &self.value()?)?, self.core.clone()))
    }

    fn value(&self) -> Result<Value, DynAnyError> {
        self.parts.value(self.top, &mut HashMap::new(), 0)
    }

    // ---- components --------------------------------------------------------------------------------

    /// How many components there are: members, elements; of a union 2, or 1 without an active member; of a value box 1; else 0, for
    /// null too.
    #[must_use]
    pub fn component_count(&self) -> usize {
        self.part().parts().len()
    }

    /// Makes a component the current one; false, and none is current, where there is no such component.
    pub fn seek(&mut self, index: usize) -> bool {
        let position = (index < self.component_count()).then_some(index);
        self.part_mut().is_ok_and(|part| {
            part.position = position;
            position.is_some()
        })
    }

    /// Makes the first component the current one.
    pub fn rewind(&mut self) -> bool {
        self.seek(0)
    }

    /// Makes the next component the current one (`next`); false, and none is current, behind the last.
    pub fn advance(&mut self) -> bool {
        self.seek(self.part().position.map_or(0, |position| position + 1))
    }

    /// The place of the current component.
    fn current(&self) -> Option<u32> {
        let part = self.part();
        part.position.and_then(|position| part.parts().get(position)).copied()
    }

    /// The current component, if there is one.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for values that cannot have components.
    pub fn current_component(&mut self) -> Result<Option<Component<'_>>, DynAnyError> {
        self.tidy();
        match self.part().content {
            Content::Leaf(_) if !self.part().is_value() => Err(DynAnyError::TypeMismatch),
            _ => Ok(self.current().map(|place| self.lend(place))),
        }
    }

    /// Changes the value, or where it has components the current one.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] where the Rust type does not stand for the type; [`DynAnyError::InvalidValue`] where there is
    /// no current component, or the value is over a bound.
    pub fn insert<T: Typed>(&mut self, value: &T) -> Result<(), DynAnyError> {
        if T::stands_for(self.type_code()) {
            let any = Any::with_type(self.type_code(), value).map_err(|_| DynAnyError::InvalidValue)?;
            return self.replace(&DynAny::new(&any)?);
        }
        self.current_component()?.ok_or(DynAnyError::InvalidValue)?.insert(value)
    }

    /// The value, or where it has components the current one.
    ///
    /// # Errors
    /// As for [`insert`](DynAny::insert).
    pub fn get<T: Typed>(&self) -> Result<T, DynAnyError> {
        if T::stands_for(self.type_code()) {
            return Ok(self.to_any()?.extract()?);
        }
        match self.part().content {
            Content::Parts(_) => self.part_at(self.current().ok_or(DynAnyError::InvalidValue)?).get(),
            Content::Leaf(_) => Err(DynAnyError::TypeMismatch),
        }
    }

    /// Puts other values in the place of all components.
    fn set_parts<'i>(&mut self, items: impl Iterator<Item = &'i DynAny> + Clone) -> Result<(), DynAnyError> {
        // Values that are part of this whole stay the same ones; those of another whole are copied with what they share.
        let own: Vec<bool> = items.clone().map(|item| Arc::ptr_eq(&item.parts, &self.parts)).collect();
        let mut copied: HashMap<*const Parts, HashMap<u32, u32>> = HashMap::new();
        let top = self.top;
        let table = self.table();
        let mut places = Vec::with_capacity(own.len());
        for (item, own) in items.zip(own) {
            let known = copied.entry(Arc::as_ptr(&item.parts)).or_default();
            places.push(table.take((!own).then_some(&*item.parts), item.top, known));
        }
        table.get_mut(top)?.set(Content::Parts(places));
        self.tidy();
        Ok(())
    }
}
