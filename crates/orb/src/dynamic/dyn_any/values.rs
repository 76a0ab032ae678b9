//! Operations of [`DynAny`] on values of IDL `valuetype`s, and on null (`DynValueCommon`,
//! `DynValue`, `DynValueBox`).

use std::collections::HashMap;

use corelane_wire::CdrError;

use super::parts::{PartContent, state_of};
use super::{Component, DynAny, DynAnyError};
use crate::any::{TypeCode, TypeCodeKind, Value};

/// Modifier of custom value types, whose state cannot be built from the TypeCode.
const CUSTOM: i16 = 1;
const ABSTRACT: i16 = 2;

const VALUES: [TypeCodeKind; 3] = [TypeCodeKind::Value, TypeCodeKind::ValueBox, TypeCodeKind::Event];

impl DynAny {
    /// Returns true if the value is null.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] unless the type is an IDL `valuetype`.
    pub fn is_null(&self) -> Result<bool, DynAnyError> {
        self.check_kind(&VALUES)?;
        Ok(matches!(self.part().content, PartContent::Leaf(_)))
    }

    /// Makes the value null. A shared value becomes null wherever it occurs.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] unless the type is an IDL `valuetype`.
    pub fn set_to_null(&mut self) -> Result<(), DynAnyError> {
        self.check_kind(&VALUES)?;
        self.part_mut()?.set(PartContent::Leaf(Value::Null));
        self.compact();
        Ok(())
    }

    /// Replaces null by a value with initial members. A value that is not null stays unchanged.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] unless the type is a concrete IDL `valuetype`;
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
            places.push(table.add_value(&ty, Value::default_of_type(&ty)?, &mut HashMap::new())?);
        }
        table.get_mut(top)?.set(PartContent::Parts(places));
        self.compact();
        Ok(())
    }

    /// Returns the content of a value box (`get_boxed_value_as_dyn_any`).
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] unless the type is a value box; [`DynAnyError::InvalidValue`]
    /// for null.
    pub fn boxed_value(&mut self) -> Result<Component<'_>, DynAnyError> {
        self.check_kind(&[TypeCodeKind::ValueBox])?;
        let place = *self.part().parts().first().ok_or(DynAnyError::InvalidValue)?;
        Ok(self.borrow_component(place))
    }

    /// Sets the content of a value box (`set_boxed_value_as_dyn_any`). Null becomes a box with the
    /// content.
    ///
    /// # Errors
    /// [`DynAnyError::TypeMismatch`] unless the type is a value box, and `value` has the type of
    /// the box's content.
    pub fn set_boxed_value(&mut self, value: &DynAny) -> Result<(), DynAnyError> {
        self.check_kind(&[TypeCodeKind::ValueBox])?;
        let held = self.type_code().unaliased().content_type().ok_or(DynAnyError::TypeMismatch)?;
        if !value.type_code().is_substitutable_for(&held) {
            return Err(DynAnyError::TypeMismatch);
        }
        self.set_parts(std::iter::once(value))
    }

    pub(super) fn check_concrete(&self) -> Result<(), DynAnyError> {
        let resolved = self.type_code().unaliased();
        match resolved.type_modifier() {
            _ if resolved.id() == TypeCode::VALUE_BASE.id() => Err(DynAnyError::TypeMismatch),
            Some(CUSTOM) => Err(CdrError::CustomValueNotConvertible.into()),
            Some(ABSTRACT) => Err(DynAnyError::TypeMismatch),
            _ => Ok(()),
        }
    }
}
