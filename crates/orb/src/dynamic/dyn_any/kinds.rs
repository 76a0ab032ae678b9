//! Operations of [`DynAny`] on particular kinds of types.

use std::collections::HashMap;

use corelane_wire::Decimal;

use super::parts::{PartContent, state_of};
use super::{Component, DynAny, DynAnyError};
use crate::any::{TypeCode, TypeCodeKind, Value};

impl DynAny {
    /// Returns the name of an enumeration's value (`DynEnum::get_as_string`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type.
    pub fn enumerator(&self) -> Result<String, DynAnyError> {
        let name = self.type_code().unaliased();
        let name = name.member_name(self.enumerator_number()? as usize);
        name.map(str::to_owned).ok_or(DynAnyError::InvalidValue)
    }

    /// Returns the number of an enumeration's value (`DynEnum::get_as_ulong`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type.
    pub fn enumerator_number(&self) -> Result<u32, DynAnyError> {
        match self.part().content {
            PartContent::Leaf(Value::Enum(number)) => Ok(number),
            _ => Err(DynAnyError::TypeMismatch),
        }
    }

    /// Sets the value of an enumeration by the name of the enumerator.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type; [`DynAnyError::InvalidValue`] for
    /// an unknown name.
    pub fn set_enumerator(&mut self, name: &str) -> Result<(), DynAnyError> {
        self.check_kind(&[TypeCodeKind::Enum])?;
        let resolved = self.type_code().unaliased();
        let found = (0..resolved.member_count()).find(|index| resolved.member_name(*index) == Some(name));
        self.set_enumerator_number(found.and_then(|found| u32::try_from(found).ok()).unwrap_or(u32::MAX))
    }

    /// Sets the value of an enumeration by the number of the enumerator.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type; [`DynAnyError::InvalidValue`] for
    /// an unknown number.
    pub fn set_enumerator_number(&mut self, number: u32) -> Result<(), DynAnyError> {
        self.check_kind(&[TypeCodeKind::Enum])?;
        if number as usize >= self.type_code().unaliased().member_count() {
            return Err(DynAnyError::InvalidValue);
        }
        self.part_mut()?.content = PartContent::Leaf(Value::Enum(number));
        Ok(())
    }

    /// Returns the digits of a `fixed` as an integer: its value times ten to the power of its scale
    /// (`DynFixed`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type.
    pub fn fixed(&self) -> Result<i128, DynAnyError> {
        match self.part().content {
            PartContent::Leaf(Value::Fixed(unscaled)) => Ok(unscaled),
            _ => Err(DynAnyError::TypeMismatch),
        }
    }

    /// Sets the digits of a `fixed`, as an integer.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type; [`DynAnyError::InvalidValue`] for
    /// more digits than the type has.
    pub fn set_fixed(&mut self, unscaled: i128) -> Result<(), DynAnyError> {
        let digits = self.type_code().unaliased().digits_and_scale().ok_or(DynAnyError::TypeMismatch)?.0;
        if unscaled.unsigned_abs() >= 10u128.pow(digits.into()) {
            return Err(DynAnyError::InvalidValue);
        }
        self.part_mut()?.content = PartContent::Leaf(Value::Fixed(unscaled));
        Ok(())
    }

    /// Returns the value of a `fixed` (`DynFixed::get_value`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type; [`DynAnyError::InvalidValue`] for
    /// more than 31 digits, the maximum of IDL.
    pub fn decimal(&self) -> Result<Decimal, DynAnyError> {
        let scale = self.type_code().unaliased().digits_and_scale().ok_or(DynAnyError::TypeMismatch)?.1;
        let whole = || self.fixed().ok()?.checked_mul(10i128.checked_pow(scale.unsigned_abs().into())?);
        let number = match u8::try_from(scale) {
            Ok(scale) => Decimal::new(self.fixed()?, scale),
            Err(_) => Decimal::new(whole().ok_or(DynAnyError::InvalidValue)?, 0),
        };
        number.map_err(|_| DynAnyError::InvalidValue)
    }

    /// Sets the value of a `fixed` (`DynFixed::set_value`), and returns false if the type cannot
    /// represent all digits after the point.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type; [`DynAnyError::InvalidValue`] for
    /// more digits before the point than the type has.
    pub fn set_decimal(&mut self, value: Decimal) -> Result<bool, DynAnyError> {
        let scale = self.type_code().unaliased().digits_and_scale().ok_or(DynAnyError::TypeMismatch)?.1;
        let shift = i32::from(scale) - i32::from(value.scale());
        let unit = 10i128.checked_pow(shift.unsigned_abs()).ok_or(DynAnyError::InvalidValue)?;
        let raised = if shift < 0 { Some(value.unscaled() / unit) } else { value.unscaled().checked_mul(unit) };
        self.set_fixed(raised.ok_or(DynAnyError::InvalidValue)?)?;
        Ok(shift >= 0 || value.unscaled() % unit == 0)
    }

    fn described_members(&self) -> Result<Vec<(String, TypeCode)>, DynAnyError> {
        self.check_kind(&[TypeCodeKind::Struct, TypeCodeKind::Except, TypeCodeKind::Value, TypeCodeKind::Event])?;
        let resolved = self.type_code().unaliased();
        if self.part().is_value() {
            return Ok(state_of(&resolved));
        }
        let member = |index| {
            let name = resolved.member_name(index).unwrap_or_default().to_owned();
            Some((name, resolved.member_type(index)?))
        };
        Ok((0..resolved.member_count()).filter_map(member).collect())
    }

    /// Returns the name of the current member of a structure, an exception or a value (IDL
    /// `valuetype`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type; [`DynAnyError::InvalidValue`] if
    /// no member is current.
    pub fn current_member_name(&self) -> Result<String, DynAnyError> {
        let members = self.described_members()?;
        let member = self.part().position.and_then(|position| members.into_iter().nth(position));
        member.map(|(name, _)| name).ok_or(DynAnyError::InvalidValue)
    }

    /// Returns the kind of the current member's type in a structure, an exception or a value (IDL
    /// `valuetype`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type; [`DynAnyError::InvalidValue`] if
    /// no member is current.
    pub fn current_member_kind(&self) -> Result<TypeCodeKind, DynAnyError> {
        let members = self.described_members()?;
        let member = self.part().position.and_then(|position| members.into_iter().nth(position));
        member.map(|(_, ty)| ty.kind()).ok_or(DynAnyError::InvalidValue)
    }

    /// Returns the members of a structure, an exception or a value (IDL `valuetype`) with their
    /// names. The members of a value's bases come first.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type; [`DynAnyError::InvalidValue`] for
    /// null.
    pub fn members(&self) -> Result<Vec<(String, DynAny)>, DynAnyError> {
        let members = self.described_members()?;
        if self.part().is_value() && self.is_null()? {
            return Err(DynAnyError::InvalidValue);
        }
        Ok(members.into_iter().map(|(name, _)| name).zip(self.components()).collect())
    }

    /// Replaces all members. An empty name matches any member. Null becomes a value with these
    /// members.
    ///
    /// # Errors
    /// [`DynAnyError::InvalidValue`] for another number of members; [`DynAnyError::TypeMismatch`]
    /// for other names or types, and for an abstract value type; [`DynAnyError::System`] for a
    /// custom value type.
    pub fn set_members(&mut self, members: &[(&str, DynAny)]) -> Result<(), DynAnyError> {
        let described = self.described_members()?;
        self.check_concrete()?;
        if members.len() != described.len() {
            return Err(DynAnyError::InvalidValue);
        }
        for ((name, value), (wanted, ty)) in members.iter().zip(&described) {
            if !(name.is_empty() || name == wanted) || !value.type_code().is_substitutable_for(ty) {
                return Err(DynAnyError::TypeMismatch);
            }
        }
        self.set_parts(members.iter().map(|(_, value)| value))
    }

    /// Sets the length of a sequence. New elements have initial values.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type; [`DynAnyError::InvalidValue`] for
    /// a length above the bound of the sequence; [`DynAnyError::System`] if the element type has no
    /// initial value.
    pub fn set_length(&mut self, length: usize) -> Result<(), DynAnyError> {
        self.check_kind(&[TypeCodeKind::Sequence])?;
        let resolved = self.type_code().unaliased();
        if resolved.length().is_some_and(|bound| bound > 0 && length > bound as usize) {
            return Err(DynAnyError::InvalidValue);
        }
        let element = resolved.content_type().ok_or(DynAnyError::TypeMismatch)?;
        let fresh = Value::default_of_type(&element)?;
        let (top, before) = (self.top, self.component_count());
        let table = self.table();
        let mut places = table.get(top).parts().to_vec();
        places.truncate(length);
        while places.len() < length {
            places.push(table.add_value(&element, fresh.clone(), &mut HashMap::new())?);
        }
        let part = table.get_mut(top)?;
        part.content = PartContent::Parts(places);
        // The specification requires: if no element was current, the first new element becomes
        // current.
        part.position = match part.position {
            position if length > before => position.or(Some(before)),
            position => position.filter(|position| *position < length),
        };
        self.compact();
        Ok(())
    }

    /// Returns the elements of a sequence or an array.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type.
    pub fn elements(&self) -> Result<Vec<DynAny>, DynAnyError> {
        self.check_kind(&[TypeCodeKind::Sequence, TypeCodeKind::Array])?;
        Ok(self.components().collect())
    }

    /// Replaces all elements. The length of a sequence becomes the number of elements.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for elements of another type; [`DynAnyError::InvalidValue`]
    /// for an invalid length.
    pub fn set_elements(&mut self, elements: &[DynAny]) -> Result<(), DynAnyError> {
        self.check_kind(&[TypeCodeKind::Sequence, TypeCodeKind::Array])?;
        let resolved = self.type_code().unaliased();
        let bound = resolved.length().unwrap_or(0) as usize;
        let fits = match resolved.kind() {
            TypeCodeKind::Array => elements.len() == bound,
            _ => bound == 0 || elements.len() <= bound,
        };
        if !fits {
            return Err(DynAnyError::InvalidValue);
        }
        let element = resolved.content_type().ok_or(DynAnyError::TypeMismatch)?;
        if !elements.iter().all(|one| one.type_code().is_substitutable_for(&element)) {
            return Err(DynAnyError::TypeMismatch);
        }
        self.set_parts(elements.iter())
    }

    fn label(&self) -> Result<i128, DynAnyError> {
        self.check_kind(&[TypeCodeKind::Union])?;
        self.parts.label(self.top)
    }

    /// Returns the discriminator of a union.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type.
    pub fn discriminator(&self) -> Result<DynAny, DynAnyError> {
        self.check_kind(&[TypeCodeKind::Union])?;
        self.components().next().ok_or(DynAnyError::TypeMismatch)
    }

    /// Sets the discriminator of a union. If the discriminator selects another member, this member
    /// becomes active with its initial value. If it selects no member, no member is active.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a discriminator of another type; [`DynAnyError::System`]
    /// if the selected member has no initial value.
    pub fn set_discriminator(&mut self, discriminator: &DynAny) -> Result<(), DynAnyError> {
        let resolved = self.type_code().unaliased();
        let before = chosen(&resolved, self.label()?);
        let (top, place) = (self.top, *self.part().parts().first().ok_or(DynAnyError::TypeMismatch)?);
        self.borrow_component(place).assign(discriminator)?;
        let after = chosen(&resolved, self.label()?);
        if before != after {
            let fresh = match after.and_then(|arm| resolved.member_type(arm)) {
                Some(ty) => Some((Value::default_of_type(&ty)?, ty)),
                None => None,
            };
            let table = self.table();
            let mut places = vec![place];
            if let Some((value, ty)) = fresh {
                places.push(table.add_value(&ty, value, &mut HashMap::new())?);
            }
            table.get_mut(top)?.content = PartContent::Parts(places);
        }
        self.part_mut()?.position = Some(usize::from(after.is_some()));
        self.compact();
        Ok(())
    }

    /// Makes the default member of a union active.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type, and for a union without a default
    /// member.
    pub fn set_to_default_member(&mut self) -> Result<(), DynAnyError> {
        self.check_kind(&[TypeCodeKind::Union])?;
        self.type_code().unaliased().default_index().ok_or(DynAnyError::TypeMismatch)?;
        self.set_to_unlabelled()
    }

    /// Makes no member of a union active.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type, for a union with a default
    /// member, and for a union with a label for every value of the discriminator.
    pub fn set_to_no_active_member(&mut self) -> Result<(), DynAnyError> {
        self.check_kind(&[TypeCodeKind::Union])?;
        if self.type_code().unaliased().default_index().is_some() {
            return Err(DynAnyError::TypeMismatch);
        }
        self.set_to_unlabelled()
    }

    fn set_to_unlabelled(&mut self) -> Result<(), DynAnyError> {
        let resolved = self.type_code().unaliased();
        let discriminator = resolved.discriminator_type().ok_or(DynAnyError::TypeMismatch)?;
        let labels: Vec<Option<i128>> = (0..resolved.member_count()).map(|arm| resolved.member_label(arm)).collect();
        let free = (0..).find(|number| !labels.contains(&Some(*number))).unwrap_or_default();
        let value = label_value(&discriminator.unaliased(), free).map_err(|_| DynAnyError::TypeMismatch)?;
        self.set_discriminator(&DynAny::from_value(&discriminator, value)?)?;
        self.rewind();
        Ok(())
    }

    /// Returns true if a union has no active member.
    ///
    /// # Errors
    ///
    /// [`DynAnyError::TypeMismatch`] for a value of another type.
    pub fn has_no_active_member(&self) -> Result<bool, DynAnyError> {
        self.check_kind(&[TypeCodeKind::Union])?;
        Ok(self.component_count() < 2)
    }

    /// Returns the active member of a union.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type; [`DynAnyError::InvalidValue`] if
    /// no member is active.
    pub fn member(&mut self) -> Result<Component<'_>, DynAnyError> {
        self.check_kind(&[TypeCodeKind::Union])?;
        let place = *self.part().parts().get(1).ok_or(DynAnyError::InvalidValue)?;
        Ok(self.borrow_component(place))
    }

    /// Returns the name of the active member of a union.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for a value of another type; [`DynAnyError::InvalidValue`] if
    /// no member is active.
    pub fn member_name(&self) -> Result<String, DynAnyError> {
        let resolved = self.type_code().unaliased();
        let arm = chosen(&resolved, self.label()?).ok_or(DynAnyError::InvalidValue)?;
        Ok(resolved.member_name(arm).unwrap_or_default().to_owned())
    }
}

pub(super) fn chosen(union: &TypeCode, discriminator: i128) -> Option<usize> {
    let labelled = (0..union.member_count()).find(|arm| union.member_label(*arm) == Some(discriminator));
    labelled.or(union.default_index())
}

pub(super) fn label_value(discriminator: &TypeCode, number: i128) -> Result<Value, DynAnyError> {
    let wrong = |_| DynAnyError::InvalidValue;
    let character = || u32::try_from(number).ok().and_then(char::from_u32).ok_or(DynAnyError::InvalidValue);
    Ok(match discriminator.kind() {
        TypeCodeKind::Boolean if number < 2 => Value::Boolean(number == 1),
        TypeCodeKind::Octet => Value::Octet(number.try_into().map_err(wrong)?),
        TypeCodeKind::Short => Value::Short(number.try_into().map_err(wrong)?),
        TypeCodeKind::UShort => Value::UShort(number.try_into().map_err(wrong)?),
        TypeCodeKind::Long => Value::Long(number.try_into().map_err(wrong)?),
        TypeCodeKind::ULong => Value::ULong(number.try_into().map_err(wrong)?),
        TypeCodeKind::LongLong => Value::LongLong(number.try_into().map_err(wrong)?),
        TypeCodeKind::ULongLong => Value::ULongLong(number.try_into().map_err(wrong)?),
        TypeCodeKind::Char => Value::Char(character()?),
        TypeCodeKind::WChar => Value::WChar(character()?),
        TypeCodeKind::Enum if usize::try_from(number).is_ok_and(|number| number < discriminator.member_count()) => {
            Value::Enum(number.try_into().map_err(wrong)?)
        }
        _ => return Err(DynAnyError::InvalidValue),
    })
}

pub(super) fn label_number(value: &Value) -> Option<i128> {
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
