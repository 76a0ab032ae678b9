//! Value types and abstract interfaces in an `any`.

use corelane_wire::typecode::description;
use corelane_wire::{CdrError, Decoder, Encoder};

use super::ValueRef;
use super::abstract_interface::{ObjectOrValue, read_abstract, write_abstract};
use super::codec::{read_value, write_value};
use super::object::{ValueBase, ValueKind};
use crate::any::{TypeCode, TypeCodeKind, Typed};
use crate::object::{Reference, read_reference, write_reference};

/// A value type or abstract interface that has a TypeCode. Generated code implements the trait.
pub trait TypedValue: 'static {
    /// Returns the TypeCode of the value type or abstract interface.
    fn value_type() -> TypeCode;
}

impl TypedValue for ValueBase {
    fn value_type() -> TypeCode {
        TypeCode::from_description(description::VALUE_BASE)
    }
}

fn is_value(type_code: &TypeCode) -> bool {
    matches!(type_code.kind(), TypeCodeKind::Value | TypeCodeKind::ValueBox | TypeCodeKind::Event)
}

/// `Option<ValueRef<T>>` represents the type `T` and the types that inherit state from `T`. For an
/// abstract `T` or [`ValueBase`], it represents every value type. A value is inserted with its most
/// derived TypeCode.
impl<T: TypedValue + ValueKind + ?Sized> Typed for Option<ValueRef<T>> {
    fn type_code() -> TypeCode {
        T::value_type()
    }

    fn dynamic_type_code(&self) -> TypeCode {
        let info = self.as_ref().and_then(ValueRef::info);
        info.map_or_else(T::value_type, |info| (info.type_code)())
    }

    fn matches_type(type_code: &TypeCode) -> bool {
        let resolved = type_code.unaliased();
        if T::INFO.is_none() {
            return is_value(&resolved);
        }
        // A hostile TypeCode may have an endless chain of bases, so at most 64 of them are
        // compared.
        let bases = std::iter::successors(Some(resolved), |at| at.concrete_base_type().map(|base| base.unaliased()));
        bases.take(64).take_while(is_value).any(|base| base.id() == T::REPOSITORY_ID)
            || type_code.equivalent(&T::value_type())
    }

    fn write(&self, e: &mut Encoder<'_>, _: &TypeCode) -> Result<(), CdrError> {
        write_value(e, self.as_ref())
    }

    fn read(d: &mut Decoder<'_>, _: &TypeCode) -> Result<Self, CdrError> {
        read_value(d)
    }
}

/// An object is inserted with the TypeCode of the interface, a value with the TypeCode of the
/// value's type. An object or value can be extracted from an `any` with the TypeCode of a value
/// type, of an object (as JacORB inserts it) or of the interface. Extraction does not check that
/// the object has the interface.
impl<R: Reference, I: TypedValue + ValueKind + ?Sized> Typed for Option<ObjectOrValue<R, I>> {
    fn type_code() -> TypeCode {
        I::value_type()
    }

    fn dynamic_type_code(&self) -> TypeCode {
        match self {
            Some(ObjectOrValue::Value(value)) => value.info().map_or_else(I::value_type, |info| (info.type_code)()),
            _ => I::value_type(),
        }
    }

    fn matches_type(type_code: &TypeCode) -> bool {
        let resolved = type_code.unaliased();
        is_value(&resolved) || resolved.kind() == TypeCodeKind::ObjRef || type_code.equivalent(&I::value_type())
    }

    fn write(&self, e: &mut Encoder<'_>, type_code: &TypeCode) -> Result<(), CdrError> {
        let resolved = type_code.unaliased();
        match (resolved.kind(), self) {
            (TypeCodeKind::ObjRef, Some(ObjectOrValue::Object(object))) => write_reference(e, Some(object)),
            (TypeCodeKind::ObjRef, None) => write_reference::<R>(e, None),
            (_, Some(ObjectOrValue::Value(value))) if is_value(&resolved) => write_value(e, Some(value)),
            (_, None) if is_value(&resolved) => {
                e.write_null_value();
                Ok(())
            }
            (kind, _) if kind == TypeCodeKind::ObjRef || is_value(&resolved) => Err(CdrError::TypeMismatch),
            (_, either) => write_abstract(e, either.as_ref()),
        }
    }

    fn read(d: &mut Decoder<'_>, type_code: &TypeCode) -> Result<Self, CdrError> {
        let resolved = type_code.unaliased();
        if is_value(&resolved) {
            return Ok(read_value(d)?.map(ObjectOrValue::Value));
        }
        if resolved.kind() == TypeCodeKind::ObjRef {
            return Ok(read_reference(d)?.map(ObjectOrValue::Object));
        }
        read_abstract(d)
    }
}
