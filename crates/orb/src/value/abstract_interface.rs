//! Abstract interfaces, for which the sender passes an object or a value.

use corelane_wire::{CdrError, Decoder, Encoder};

use super::ValueRef;
use super::codec::{read_value, write_value};
use super::object::ValueKind;
use crate::object::{Reference, read_reference, write_reference};

/// An instance of an abstract interface `I`: a reference to an object, of the type `R`, or a value
/// that supports the interface. Nil is `None` of `Option<ObjectOrValue<R, I>>`.
pub enum ObjectOrValue<R, I: ?Sized> {
    /// An object, sent as a reference.
    Object(R),
    /// A value, sent as a copy.
    Value(ValueRef<I>),
}

impl<R: std::fmt::Debug, I: ?Sized> std::fmt::Debug for ObjectOrValue<R, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ObjectOrValue::Object(object) => object.fmt(f),
            ObjectOrValue::Value(value) => value.fmt(f),
        }
    }
}

impl<R: Clone, I: ?Sized> Clone for ObjectOrValue<R, I> {
    fn clone(&self) -> Self {
        match self {
            ObjectOrValue::Object(object) => ObjectOrValue::Object(object.clone()),
            ObjectOrValue::Value(value) => ObjectOrValue::Value(value.clone()),
        }
    }
}

impl<R: PartialEq, I: ?Sized> PartialEq for ObjectOrValue<R, I> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (ObjectOrValue::Object(one), ObjectOrValue::Object(two)) => one == two,
            (ObjectOrValue::Value(one), ObjectOrValue::Value(two)) => one == two,
            _ => false,
        }
    }
}

impl<R: Eq, I: ?Sized> Eq for ObjectOrValue<R, I> {}

impl<R: std::hash::Hash, I: ?Sized> std::hash::Hash for ObjectOrValue<R, I> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        match self {
            ObjectOrValue::Object(object) => object.hash(state),
            ObjectOrValue::Value(value) => value.hash(state),
        }
    }
}

/// For generated code: writes an object, a value or nil.
///
/// # Errors
/// The errors of writing the object or value.
pub fn write_abstract<R: Reference, I: ?Sized>(
    e: &mut Encoder<'_>,
    either: Option<&ObjectOrValue<R, I>>,
) -> Result<(), CdrError> {
    match either {
        Some(ObjectOrValue::Object(object)) => {
            e.write_bool(true);
            write_reference(e, Some(object))
        }
        Some(ObjectOrValue::Value(value)) => {
            e.write_bool(false);
            write_value(e, Some(value))
        }
        None => {
            e.write_bool(false);
            e.write_null_value();
            Ok(())
        }
    }
}

/// For generated code: reads an object, a value or nil.
///
/// # Errors
/// The errors of reading the object or value.
pub fn read_abstract<R: Reference, I: ValueKind + ?Sized>(
    d: &mut Decoder<'_>,
) -> Result<Option<ObjectOrValue<R, I>>, CdrError> {
    if d.read_bool()? {
        Ok(read_reference(d)?.map(ObjectOrValue::Object))
    } else {
        Ok(read_value(d)?.map(ObjectOrValue::Value))
    }
}
