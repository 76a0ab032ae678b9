//! Values of IDL `valuetype`, and null (`DynValueCommon`, `DynValue`, `DynValueBox`). Their members are those of structures.

use std::collections::HashMap;

use corelane_wire::CdrError;

use super::parts::{Content, state_of};
use super::{Component, DynAny, DynAnyError};
use crate::any::{Kind, TypeCode, Value};

/// Modifiers of value types whose state cannot be made from the TypeCode.
const CUSTOM: i16 = 1;
const ABSTRACT: i16 = 2;

const VALUES: [Kind; 3] = [Kind::Value, Kind::ValueBox, Kind::Event];

impl DynAny {
    /// Whether it is null.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for what is no value of IDL `valuetype`.
    pub fn is_null(&self) -> Result<bool, DynAnyError> {
        self.check(&VALUES)?;
        Ok(matches!(self.part().content, Content::Leaf(_)))
    }

    /// Makes it null, in all places where it is.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for what is no value of IDL `valuetype`.
    pub fn set_to_null(&mut self) -> Result<(), DynAnyError> {
        self.check(&VALUES)?;
        self.part_mut()?.set(Content::Leaf(Value::Null));
        self.tidy();
        Ok(())
    }

    /// Makes null a value with initial members; what is a value stays as it is.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for what is no value of IDL `valuetype`, and where its type is abstract;
    /// [`DynAnyError::System`] for a custom type, and for members that have no initial value.
    pub fn set_to_value(&mut self) -> Result<(), DynAnyError> {
        self.check_concrete()?;
        if !self.is_null()? {
            return Ok(());
        }
        let top = self.top;
        let members = state_of(self.type_code());
        let table = self.table();
        let mut places = Vec::with_capacity(members.len());
        for (_, ty) in members {
            places.push(table.add_value(&ty, Value::initial(&ty)?, &mut HashMap::new())?);
        }
        table.get_mut(top)?.set(Content::Parts(places));
        self.tidy();
        Ok(())
    }

    /// What is in a value box (`get_boxed_value_as_dyn_any`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for anything else; [`DynAnyError::InvalidValue`] for null.
    pub fn boxed_value(&mut self) -> Result<Component<'_>, DynAnyError> {
        self.check(&[Kind::ValueBox])?;
        let place = *self.part().parts().first().ok_or(DynAnyError::InvalidValue)?;
        Ok(self.lend(place))
    }

    /// Changes what is in a value box; null becomes a box (`set_boxed_value_as_dyn_any`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] for anything else, and for a value of another type.
    pub fn set_boxed_value(&mut self, value: &DynAny) -> Result<(), DynAnyError> {
        self.check(&[Kind::ValueBox])?;
        let held = self.type_code().resolved().content_type().ok_or(DynAnyError::TypeMismatch)?;
        if !value.type_code().can_stand_for(&held) {
            return Err(DynAnyError::TypeMismatch);
        }
        self.set_parts(std::iter::once(value))
    }

    /// Whether there can be values of just this type that are no null; structures pass.
    pub(super) fn check_concrete(&self) -> Result<(), DynAnyError> {
        let resolved = self.type_code().resolved();
        match resolved.type_modifier() {
            _ if resolved.id() == TypeCode::VALUE_BASE.id() => Err(DynAnyError::TypeMismatch),
            Some(CUSTOM) => Err(CdrError::CustomValue.into()),
            Some(ABSTRACT) => Err(DynAnyError::TypeMismatch),
            _ => Ok(()),
        }
    }
}
