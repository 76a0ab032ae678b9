//! DynAny: values that are walked through and changed without their types (CORBA 3.0.3 chapter 9).

use std::fmt;

use corelane_wire::dynamic::UnionValue;
use corelane_wire::{AnyValue, Octets};

use crate::any::{Any, Kind, TypeCode, Typed, Value};
use crate::exception::SystemException;

/// A value of any type that can be taken apart and put together, part by part.
///
/// It is all interfaces of the module `DynamicAny` in one: what a value's type does not have is a
/// [`TypeMismatch`](DynAnyError::TypeMismatch). Parts are owned by the whole, so [`current_component`](DynAny::current_component)
/// lends one, and a change of it is a change of the whole; copying is `clone`, comparing `==`, destroying dropping.
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
#[derive(Clone, Debug)]
pub struct DynAny {
    type_code: TypeCode,
    node: Node,
    /// The current component; `None` is the position -1.
    position: Option<usize>,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    /// A value without components.
    Leaf(Value),
    /// Members, elements; of a union the discriminator and the active member, if there is one.
    Parts(Vec<DynAny>),
}

/// Why something cannot be done with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DynAnyError {
    /// The value's type does not have that.
    TypeMismatch,
    /// The value cannot be that; or there is no current component.
    InvalidValue,
    /// There is no value of this type, or it cannot be marshalled.
    System(SystemException),
}

impl fmt::Display for DynAnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DynAnyError::TypeMismatch => f.write_str("the value is of another type"),
            DynAnyError::InvalidValue => f.write_str("the value cannot be that"),
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

/// Compares types and values; positions do not matter.
impl PartialEq for DynAny {
    fn eq(&self, other: &DynAny) -> bool {
        self.type_code.equivalent(&other.type_code) && self.node == other.node
    }
}

impl DynAny {
    /// A value (`create_dyn_any`).
    ///
    /// # Errors
    /// [`DynAnyError::System`] for a value that has too many parts, or is of a type that cannot be taken apart.
    pub fn new(any: &Any) -> Result<DynAny, DynAnyError> {
        DynAny::of_value(any.type_code(), any.value()?)
    }

    /// The initial value of a type (`create_dyn_any_from_type_code`): zero, empty, nil, the first enumerator, the first arm.
    ///
    /// # Errors
    /// [`DynAnyError::System`] for a type without values.
    pub fn of_type(type_code: &TypeCode) -> Result<DynAny, DynAnyError> {
        DynAny::of_value(type_code, Value::initial(type_code)?)
    }

    fn of_value(type_code: &TypeCode, value: Value) -> Result<DynAny, DynAnyError> {
        let resolved = type_code.resolved();
        let element = || resolved.content_type().ok_or(DynAnyError::TypeMismatch);
        let parts = match value {
            Value::Struct(members) => {
                let part = |(index, value)| {
                    let ty = resolved.member_type(index).ok_or(DynAnyError::TypeMismatch)?;
                    DynAny::of_value(&ty, value)
                };
                members.into_iter().enumerate().map(part).collect::<Result<Vec<_>, _>>()?
            }
            Value::List(list) => {
                let element = element()?;
                list.into_iter().map(|value| DynAny::of_value(&element, value)).collect::<Result<Vec<_>, _>>()?
            }
            Value::Octets(octets) if resolved.kind() != Kind::Principal => {
                let element = element()?;
                octets.iter().map(|octet| DynAny::leaf(&element, Value::Octet(*octet))).collect()
            }
            Value::Union(union) => DynAny::of_union(&resolved, *union)?,
            leaf => return Ok(DynAny::leaf(type_code, leaf)),
        };
        let position = (!parts.is_empty()).then_some(0);
        Ok(DynAny { type_code: type_code.clone(), node: Node::Parts(parts), position })
    }

    fn of_union(type_code: &TypeCode, union: UnionValue) -> Result<Vec<DynAny>, DynAnyError> {
        let discriminator = type_code.discriminator_type().ok_or(DynAnyError::TypeMismatch)?;
        let label = label_value(&discriminator.resolved(), union.discriminator)?;
        let mut parts = vec![DynAny::leaf(&discriminator, label)];
        let arm = chosen(type_code, union.discriminator).and_then(|arm| type_code.member_type(arm));
        if let (Some(member), Some(ty)) = (union.member, arm) {
            parts.push(DynAny::of_value(&ty, member)?);
        }
        Ok(parts)
    }

    fn leaf(type_code: &TypeCode, value: Value) -> DynAny {
        DynAny { type_code: type_code.clone(), node: Node::Leaf(value), position: None }
    }

    /// The type.
    #[must_use]
    pub fn type_code(&self) -> &TypeCode {
        &self.type_code
    }

    fn kind(&self) -> Kind {
        self.type_code.resolved().kind()
    }

    fn parts(&self) -> &[DynAny] {
        match &self.node {
            Node::Parts(parts) => parts,
            Node::Leaf(_) => &[],
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
        if !self.type_code.equivalent(&other.type_code) {
            return Err(DynAnyError::TypeMismatch);
        }
        self.node = other.node.clone();
        self.position = (!self.parts().is_empty()).then_some(0);
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
        Ok(Any::from_wire(AnyValue::from_value(&self.type_code, &self.value()?)?, None))
    }

    fn value(&self) -> Result<Value, DynAnyError> {
        let parts = match &self.node {
            Node::Leaf(value) => return Ok(value.clone()),
            Node::Parts(parts) => parts,
        };
        let values = || parts.iter().map(DynAny::value).collect::<Result<Vec<_>, _>>();
        let resolved = self.type_code.resolved();
        let is_octet = resolved.content_type().is_some_and(|element| element.resolved().kind() == Kind::Octet);
        Ok(match resolved.kind() {
            Kind::Struct | Kind::Except => Value::Struct(values()?),
            Kind::Union => {
                let discriminator = self.label()?;
                let member = parts.get(1).map(DynAny::value).transpose()?;
                Value::Union(Box::new(UnionValue { discriminator, member }))
            }
            _ if is_octet => {
                let octet = |part: &DynAny| if let Node::Leaf(Value::Octet(octet)) = part.node { octet } else { 0 };
                Value::Octets(parts.iter().map(octet).collect::<Octets>())
            }
            _ => Value::List(values()?),
        })
    }

    // ---- components --------------------------------------------------------------------------------

    /// How many components there are: members, elements; of a union 2, or 1 without an active member; else 0.
    #[must_use]
    pub fn component_count(&self) -> usize {
        self.parts().len()
    }

    /// Makes a component the current one; false, and none is current, where there is no such component.
    pub fn seek(&mut self, index: usize) -> bool {
        self.position = (index < self.component_count()).then_some(index);
        self.position.is_some()
    }

    /// Makes the first component the current one.
    pub fn rewind(&mut self) -> bool {
        self.seek(0)
    }

    /// Makes the next component the current one (`next`); false, and none is current, behind the last.
    pub fn advance(&mut self) -> bool {
        self.seek(self.position.map_or(0, |position| position + 1))
    }

    /// The current component, if there is one.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for values that have no components.
    pub fn current_component(&mut self) -> Result<Option<&mut DynAny>, DynAnyError> {
        match &mut self.node {
            Node::Parts(parts) => Ok(self.position.and_then(|position| parts.get_mut(position))),
            Node::Leaf(_) => Err(DynAnyError::TypeMismatch),
        }
    }

    /// Changes the value, or where it has components the current one.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] where the Rust type does not stand for the type; [`DynAnyError::InvalidValue`] where there is
    /// no current component, or the value is over a bound.
    pub fn insert<T: Typed>(&mut self, value: &T) -> Result<(), DynAnyError> {
        if !T::stands_for(&self.type_code)
            && let Node::Parts(_) = self.node
        {
            return self.current_component()?.ok_or(DynAnyError::InvalidValue)?.insert(value);
        }
        if !T::stands_for(&self.type_code) {
            return Err(DynAnyError::TypeMismatch);
        }
        let any = Any::with_type(&self.type_code, value).map_err(|_| DynAnyError::InvalidValue)?;
        *self = DynAny::new(&any)?;
        Ok(())
    }

    /// The value, or where it has components the current one.
    ///
    /// # Errors
    /// As for [`insert`](DynAny::insert).
    pub fn get<T: Typed>(&self) -> Result<T, DynAnyError> {
        if T::stands_for(&self.type_code) {
            return Ok(self.to_any()?.extract()?);
        }
        match &self.node {
            Node::Parts(parts) => {
                let current = self.position.and_then(|position| parts.get(position));
                current.ok_or(DynAnyError::InvalidValue)?.get()
            }
            Node::Leaf(_) => Err(DynAnyError::TypeMismatch),
        }
    }

    // ---- enumerations and fixed ----------------------------------------------------------------------

    /// The name of the enumerator (`DynEnum::get_as_string`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`].
    pub fn enumerator(&self) -> Result<String, DynAnyError> {
        let name = self.type_code.resolved();
        let name = name.member_name(self.enumerator_number()? as usize);
        name.map(str::to_owned).ok_or(DynAnyError::InvalidValue)
    }

    /// The number of the enumerator (`DynEnum::get_as_ulong`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`].
    pub fn enumerator_number(&self) -> Result<u32, DynAnyError> {
        match self.node {
            Node::Leaf(Value::Enum(number)) => Ok(number),
            _ => Err(DynAnyError::TypeMismatch),
        }
    }

    /// Chooses an enumerator by its name.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`]; [`DynAnyError::InvalidValue`] for a name that there is not.
    pub fn set_enumerator(&mut self, name: &str) -> Result<(), DynAnyError> {
        self.check(&[Kind::Enum])?;
        let resolved = self.type_code.resolved();
        let found = (0..resolved.member_count()).find(|index| resolved.member_name(*index) == Some(name));
        self.set_enumerator_number(found.and_then(|found| u32::try_from(found).ok()).unwrap_or(u32::MAX))
    }

    /// Chooses an enumerator by its number.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`]; [`DynAnyError::InvalidValue`] for a number that there is not.
    pub fn set_enumerator_number(&mut self, number: u32) -> Result<(), DynAnyError> {
        self.check(&[Kind::Enum])?;
        if number as usize >= self.type_code.resolved().member_count() {
            return Err(DynAnyError::InvalidValue);
        }
        self.node = Node::Leaf(Value::Enum(number));
        Ok(())
    }

    /// The digits of a fixed, times ten to the power of its scale (`DynFixed`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`].
    pub fn fixed(&self) -> Result<i128, DynAnyError> {
        match self.node {
            Node::Leaf(Value::Fixed(unscaled)) => Ok(unscaled),
            _ => Err(DynAnyError::TypeMismatch),
        }
    }

    /// Changes a fixed.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`]; [`DynAnyError::InvalidValue`] for more digits than the type has.
    pub fn set_fixed(&mut self, unscaled: i128) -> Result<(), DynAnyError> {
        let digits = self.type_code.resolved().digits_and_scale().ok_or(DynAnyError::TypeMismatch)?.0;
        if unscaled.unsigned_abs() >= 10u128.pow(digits.into()) {
            return Err(DynAnyError::InvalidValue);
        }
        self.node = Node::Leaf(Value::Fixed(unscaled));
        Ok(())
    }

    // ---- structures ----------------------------------------------------------------------------------

    /// The name of the current member of a structure or exception.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`]; [`DynAnyError::InvalidValue`] if none is current.
    pub fn current_member_name(&self) -> Result<String, DynAnyError> {
        self.check(&[Kind::Struct, Kind::Except])?;
        let position = self.position.ok_or(DynAnyError::InvalidValue)?;
        let resolved = self.type_code.resolved();
        resolved.member_name(position).map(str::to_owned).ok_or(DynAnyError::InvalidValue)
    }

    /// The members of a structure or exception with their names.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`].
    pub fn members(&self) -> Result<Vec<(String, DynAny)>, DynAnyError> {
        self.check(&[Kind::Struct, Kind::Except])?;
        let resolved = self.type_code.resolved();
        let name = |index| resolved.member_name(index).unwrap_or_default().to_owned();
        Ok(self.parts().iter().enumerate().map(|(index, part)| (name(index), part.clone())).collect())
    }

    /// Changes all members; names that are empty are not compared.
    ///
    /// # Errors
    /// [`DynAnyError::InvalidValue`] for another number of members, [`DynAnyError::TypeMismatch`] for other names or types.
    pub fn set_members(&mut self, members: &[(&str, DynAny)]) -> Result<(), DynAnyError> {
        self.check(&[Kind::Struct, Kind::Except])?;
        if members.len() != self.component_count() {
            return Err(DynAnyError::InvalidValue);
        }
        let resolved = self.type_code.resolved();
        for (index, (name, value)) in members.iter().enumerate() {
            let named = name.is_empty() || resolved.member_name(index) == Some(name);
            let typed = resolved.member_type(index).is_some_and(|ty| ty.equivalent(&value.type_code));
            if !named || !typed {
                return Err(DynAnyError::TypeMismatch);
            }
        }
        self.set_parts(members.iter().map(|(_, value)| value.clone()).collect());
        Ok(())
    }

    fn set_parts(&mut self, parts: Vec<DynAny>) {
        self.position = (!parts.is_empty()).then_some(0);
        self.node = Node::Parts(parts);
    }

    // ---- sequences and arrays --------------------------------------------------------------------------

    /// Makes a sequence longer, with initial values, or shorter.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`]; [`DynAnyError::InvalidValue`] over the bound.
    pub fn set_length(&mut self, length: usize) -> Result<(), DynAnyError> {
        self.check(&[Kind::Sequence])?;
        let resolved = self.type_code.resolved();
        if resolved.length().is_some_and(|bound| bound > 0 && length > bound as usize) {
            return Err(DynAnyError::InvalidValue);
        }
        let element = resolved.content_type().ok_or(DynAnyError::TypeMismatch)?;
        let fresh = DynAny::of_type(&element)?;
        let Node::Parts(parts) = &mut self.node else { return Err(DynAnyError::TypeMismatch) };
        let before = parts.len();
        parts.resize(length, fresh);
        // The specification's rule: the first new element becomes current; one that was cut off is current no more.
        self.position = match self.position {
            _ if length > before => self.position.or(Some(before)),
            position => position.filter(|position| *position < length),
        };
        Ok(())
    }

    /// The elements of a sequence or an array.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`].
    pub fn elements(&self) -> Result<&[DynAny], DynAnyError> {
        self.check(&[Kind::Sequence, Kind::Array])?;
        Ok(self.parts())
    }

    /// Changes all elements, and the length of a sequence.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for elements of another type; [`DynAnyError::InvalidValue`] for a length that cannot be.
    pub fn set_elements(&mut self, elements: &[DynAny]) -> Result<(), DynAnyError> {
        self.check(&[Kind::Sequence, Kind::Array])?;
        let resolved = self.type_code.resolved();
        let bound = resolved.length().unwrap_or(0) as usize;
        let fits = match resolved.kind() {
            Kind::Array => elements.len() == bound,
            _ => bound == 0 || elements.len() <= bound,
        };
        if !fits {
            return Err(DynAnyError::InvalidValue);
        }
        let element = resolved.content_type().ok_or(DynAnyError::TypeMismatch)?;
        if !elements.iter().all(|one| one.type_code.equivalent(&element)) {
            return Err(DynAnyError::TypeMismatch);
        }
        self.set_parts(elements.to_vec());
        Ok(())
    }

    // ---- unions ------------------------------------------------------------------------------------------

    /// The discriminator of a union as a number.
    fn label(&self) -> Result<i128, DynAnyError> {
        self.check(&[Kind::Union])?;
        match self.parts().first().map(|part| &part.node) {
            Some(Node::Leaf(value)) => label_number(value).ok_or(DynAnyError::TypeMismatch),
            _ => Err(DynAnyError::TypeMismatch),
        }
    }

    /// The discriminator of a union.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`].
    pub fn discriminator(&self) -> Result<DynAny, DynAnyError> {
        self.check(&[Kind::Union])?;
        self.parts().first().cloned().ok_or(DynAnyError::TypeMismatch)
    }

    /// Changes the discriminator. If it chooses another member, that one becomes active with its initial value; if it chooses
    /// none, no member is active.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for one of another type.
    pub fn set_discriminator(&mut self, discriminator: &DynAny) -> Result<(), DynAnyError> {
        let before = chosen(&self.type_code.resolved(), self.label()?);
        let Node::Parts(parts) = &mut self.node else { return Err(DynAnyError::TypeMismatch) };
        parts.first_mut().ok_or(DynAnyError::TypeMismatch)?.assign(discriminator)?;
        let resolved = self.type_code.resolved();
        let after = chosen(&resolved, self.label()?);
        if before != after {
            let member = after.and_then(|arm| resolved.member_type(arm)).map(|ty| DynAny::of_type(&ty)).transpose()?;
            let Node::Parts(parts) = &mut self.node else { return Err(DynAnyError::TypeMismatch) };
            parts.truncate(1);
            parts.extend(member);
        }
        self.position = Some(usize::from(after.is_some()));
        Ok(())
    }

    /// Makes the default member active.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a union without one.
    pub fn set_to_default_member(&mut self) -> Result<(), DynAnyError> {
        self.check(&[Kind::Union])?;
        self.type_code.resolved().default_index().ok_or(DynAnyError::TypeMismatch)?;
        self.set_to_unlabelled()
    }

    /// Makes no member active.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a union with a default, or of which every value of the discriminator has a label.
    pub fn set_to_no_active_member(&mut self) -> Result<(), DynAnyError> {
        self.check(&[Kind::Union])?;
        if self.type_code.resolved().default_index().is_some() {
            return Err(DynAnyError::TypeMismatch);
        }
        self.set_to_unlabelled()
    }

    /// Gives the discriminator the least value from 0 on that has no label.
    fn set_to_unlabelled(&mut self) -> Result<(), DynAnyError> {
        let resolved = self.type_code.resolved();
        let discriminator = resolved.discriminator_type().ok_or(DynAnyError::TypeMismatch)?;
        let labels: Vec<Option<i128>> = (0..resolved.member_count()).map(|arm| resolved.member_label(arm)).collect();
        let free = (0..).find(|number| !labels.contains(&Some(*number))).unwrap_or_default();
        let value = label_value(&discriminator.resolved(), free).map_err(|_| DynAnyError::TypeMismatch)?;
        self.set_discriminator(&DynAny::leaf(&discriminator, value))?;
        self.position = Some(0);
        Ok(())
    }

    /// Whether a union has no active member.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`].
    pub fn has_no_active_member(&self) -> Result<bool, DynAnyError> {
        self.check(&[Kind::Union])?;
        Ok(self.component_count() < 2)
    }

    /// The active member of a union.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`]; [`DynAnyError::InvalidValue`] if there is none.
    pub fn member(&mut self) -> Result<&mut DynAny, DynAnyError> {
        self.check(&[Kind::Union])?;
        match &mut self.node {
            Node::Parts(parts) => parts.get_mut(1).ok_or(DynAnyError::InvalidValue),
            Node::Leaf(_) => Err(DynAnyError::TypeMismatch),
        }
    }

    /// The name of the active member of a union.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`]; [`DynAnyError::InvalidValue`] if there is none.
    pub fn member_name(&self) -> Result<String, DynAnyError> {
        let resolved = self.type_code.resolved();
        let arm = chosen(&resolved, self.label()?).ok_or(DynAnyError::InvalidValue)?;
        Ok(resolved.member_name(arm).unwrap_or_default().to_owned())
    }
}

/// The arm of a union that a discriminator chooses.
fn chosen(union: &TypeCode, discriminator: i128) -> Option<usize> {
    let labelled = (0..union.member_count()).find(|arm| union.member_label(*arm) == Some(discriminator));
    labelled.or(union.default_index())
}

/// A number as a value of the type of a discriminator.
fn label_value(discriminator: &TypeCode, number: i128) -> Result<Value, DynAnyError> {
    let wrong = |_| DynAnyError::InvalidValue;
    let character = || u32::try_from(number).ok().and_then(char::from_u32).ok_or(DynAnyError::InvalidValue);
    Ok(match discriminator.kind() {
        Kind::Boolean if number < 2 => Value::Boolean(number == 1),
        Kind::Octet => Value::Octet(number.try_into().map_err(wrong)?),
        Kind::Short => Value::Short(number.try_into().map_err(wrong)?),
        Kind::UShort => Value::UShort(number.try_into().map_err(wrong)?),
        Kind::Long => Value::Long(number.try_into().map_err(wrong)?),
        Kind::ULong => Value::ULong(number.try_into().map_err(wrong)?),
        Kind::LongLong => Value::LongLong(number.try_into().map_err(wrong)?),
        Kind::ULongLong => Value::ULongLong(number.try_into().map_err(wrong)?),
        Kind::Char => Value::Char(character()?),
        Kind::WChar => Value::WChar(character()?),
        Kind::Enum if usize::try_from(number).is_ok_and(|number| number < discriminator.member_count()) => {
            Value::Enum(number.try_into().map_err(wrong)?)
        }
        _ => return Err(DynAnyError::InvalidValue),
    })
}

/// A value of the type of a discriminator as a number.
fn label_number(value: &Value) -> Option<i128> {
    Some(match value {
        Value::Boolean(value) => (*value).into(),
        Value::Octet(value) => (*value).into(),
        Value::Short(value) => (*value).into(),
        Value::UShort(value) => (*value).into(),
        Value::Long(value) => (*value).into(),
        Value::ULong(value) => (*value).into(),
        Value::LongLong(value) => (*value).into(),
        Value::ULongLong(value) => (*value).into(),
        Value::Char(value) | Value::WChar(value) => u32::from(*value).into(),
        Value::Enum(value) => (*value).into(),
        _ => return None,
    })
}
