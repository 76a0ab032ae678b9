//! Values as trees.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::transfer::Findings;
use super::{AnyValue, ArmTable, read_count};
use crate::cdr::{Cdr, CdrError, Decoder, Encoder, Octets};
use crate::ior::Ior;
use crate::typecode::{TypeCode, TypeCodeKind, View, label_fits, read_label, write_label};

/// A value of any type, as a tree without names; the names are in the TypeCode.
///
/// ```
/// use corelane_wire::{AnyValue, TypeCode, Value};
/// let point = TypeCode::structure("IDL:Point:1.0", "Point", [("x", TypeCode::LONG), ("y", TypeCode::LONG)]).unwrap();
/// let any = AnyValue::from_value(&point, &Value::Struct(vec![Value::Long(1), Value::Long(2)]))?;
/// assert_eq!(any.value()?, Value::Struct(vec![Value::Long(1), Value::Long(2)]));
/// # Ok::<(), corelane_wire::CdrError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The absence of a value: null, void, or the null value of a value type.
    Null,
    /// `boolean`.
    Boolean(bool),
    /// `octet`.
    Octet(u8),
    /// `short`.
    Short(i16),
    /// `unsigned short`.
    UShort(u16),
    /// `long`.
    Long(i32),
    /// `unsigned long`.
    ULong(u32),
    /// `long long`.
    LongLong(i64),
    /// `unsigned long long`.
    ULongLong(u64),
    /// `float`.
    Float(f32),
    /// `double`.
    Double(f64),
    /// `long double` (IEEE 754 binary128), the most significant byte first.
    LongDouble([u8; 16]),
    /// `char`.
    Char(char),
    /// `wchar`.
    WChar(char),
    /// `string`.
    String(String),
    /// `wstring`.
    WString(String),
    /// `fixed`: the number times ten to the power of its scale.
    Fixed(i128),
    /// The number of an enumerator.
    Enum(u32),
    /// `CORBA::TypeCode`.
    TypeCode(TypeCode),
    /// `any`.
    Any(Box<AnyValue>),
    /// An object reference; nil is [`Ior::NIL`].
    Object(Ior),
    /// The members of a structure or exception.
    Struct(Vec<Value>),
    /// A union.
    Union(Box<UnionValue>),
    /// The elements of a sequence or an array.
    List(Vec<Value>),
    /// The elements of a sequence or array of octets.
    Octets(Octets),
    /// A value (IDL `valuetype`); null is [`Value::Null`].
    Instance(Box<ValueInstance>),
    /// Another occurrence of the value with this number, which comes earlier in the tree or
    /// contains this occurrence.
    InstanceRef(u32),
}

/// A union: the discriminator, and the selected member, if any.
#[derive(Clone, Debug, PartialEq)]
pub struct UnionValue {
    /// The discriminator as a number: the code of a character, the number of an enumerator, 0
    /// (FALSE) or 1 (TRUE).
    pub discriminator: i128,
    /// The selected member.
    pub member: Option<Value>,
}

/// A value (IDL `valuetype`) with its state.
#[derive(Clone, Debug)]
pub struct ValueInstance {
    /// The number of the value in its tree.
    pub number: u32,
    /// The actual type, which may inherit from the expected type.
    pub type_code: TypeCode,
    /// The state, the bases' state first; for a value box, its content.
    pub state: Vec<Value>,
}

impl PartialEq for ValueInstance {
    fn eq(&self, other: &ValueInstance) -> bool {
        self.number == other.number && self.state == other.state && self.type_code.equivalent(&other.type_code)
    }
}

const MAX_PARTS: usize = 1 << 20;

impl Value {
    /// Reads a value of a type.
    ///
    /// # Errors
    /// [`CdrError`] if the bytes are not such a value; [`CdrError::LimitExceeded`] for more than
    /// 2^20 parts; [`CdrError::CustomValueNotConvertible`] for a custom value (IDL `valuetype`).
    pub fn decode(type_code: &TypeCode, d: &mut Decoder<'_>) -> Result<Value, CdrError> {
        TreeReader::default().value(type_code.view(), d)
    }

    /// Writes the value as a value of the type `type_code`.
    ///
    /// # Errors
    /// [`CdrError::TypeMismatch`] if the value is not of the type. Other errors if text has no form
    /// in the code sets, or a part exceeds its bound.
    pub fn encode(&self, type_code: &TypeCode, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        TreeWriter::default().value(self, type_code.view(), e)
    }

    pub(super) fn encode_with_types(
        &self,
        type_code: &TypeCode,
        e: &mut Encoder<'_>,
    ) -> Result<Vec<(Box<str>, TypeCode)>, CdrError> {
        let mut writer = TreeWriter::default();
        writer.value(self, type_code.view(), e)?;
        Ok(writer.findings.types)
    }

    /// Returns the specification's initial value of a type: zero, empty, nil, null, the first
    /// enumerator, the first arm.
    ///
    /// # Errors
    /// [`CdrError::LimitExceeded`] for more than 2^20 parts, or more than 256 levels of types, as
    /// in a structure that contains itself; [`CdrError::UnsupportedForm`] for types without an
    /// initial value; [`CdrError::BadTypeCode`] if no discriminator selects the first arm of a
    /// union.
    pub fn default_of_type(type_code: &TypeCode) -> Result<Value, CdrError> {
        initial(type_code.view(), &mut 0, 0)
    }
}

#[derive(Default)]
pub(super) struct TreeReader {
    parts: usize,
    pub(super) arms: ArmTable,
    /// The number in the tree and the type of each value, by its number in the message.
    pub(super) numbers: HashMap<u32, (u32, TypeCode)>,
}

impl TreeReader {
    pub(super) fn value(&mut self, view: View<'_>, d: &mut Decoder<'_>) -> Result<Value, CdrError> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(CdrError::LimitExceeded);
        }
        d.charge_elements::<Value>(1)?;
        let view = view.unaliased();
        match view.kind() {
            TypeCodeKind::Struct | TypeCodeKind::Except => d.read_nested(|d| {
                if view.kind() == TypeCodeKind::Except {
                    d.read_str_octets()?;
                }
                let members = view.members().map(|member| self.value(member.ty, d));
                members.collect::<Result<_, _>>().map(Value::Struct)
            }),
            TypeCodeKind::Union => d.read_nested(|d| self.union(view, d)),
            TypeCodeKind::Sequence => {
                let len = read_count(view.content().ok_or(CdrError::BadTypeCode)?, d)?;
                if view.length() > 0 && len > view.length() as usize {
                    return Err(CdrError::SequenceOverBound);
                }
                self.elements(len, view, d)
            }
            TypeCodeKind::Array => self.elements(view.length() as usize, view, d),
            TypeCodeKind::Any => {
                d.charge_block(size_of::<AnyValue>())?;
                AnyValue::decode(d).map(|any| Value::Any(Box::new(any)))
            }
            TypeCodeKind::Value | TypeCodeKind::ValueBox | TypeCodeKind::Event => {
                d.read_nested(|d| self.instance(view, d))
            }
            TypeCodeKind::AbstractInterface if !d.read_bool()? => d.read_nested(|d| self.instance(view, d)),
            TypeCodeKind::AbstractInterface => Ior::decode(d).map(Value::Object),
            kind => read_leaf(kind, view, d),
        }
    }

    fn union(&mut self, view: View<'_>, d: &mut Decoder<'_>) -> Result<Value, CdrError> {
        let kind = view.content().ok_or(CdrError::BadTypeCode)?.unaliased().kind();
        let discriminator = match kind {
            TypeCodeKind::Char => u32::from(d.read_char()?).into(),
            _ => read_label(kind, d)?,
        };
        d.charge_block(size_of::<UnionValue>())?;
        let arm = self.arms.select(view, discriminator).and_then(|arm| view.member(arm));
        let member = arm.map(|arm| self.value(arm.ty, d)).transpose()?;
        Ok(Value::Union(Box::new(UnionValue { discriminator, member })))
    }

    fn elements(&mut self, len: usize, view: View<'_>, d: &mut Decoder<'_>) -> Result<Value, CdrError> {
        let element = view.content().ok_or(CdrError::BadTypeCode)?;
        if element.unaliased().kind() == TypeCodeKind::Octet {
            let octets = d.read_bytes(len)?;
            return Ok(Value::Octets(d.share_or_copy(octets)?));
        }
        d.read_nested(|d| {
            let mut list = Vec::with_capacity(len.min(1024));
            for _ in 0..len {
                list.push(self.value(element, d)?);
            }
            Ok(Value::List(list))
        })
    }
}

fn read_leaf(kind: TypeCodeKind, view: View<'_>, d: &mut Decoder<'_>) -> Result<Value, CdrError> {
    let bound = if view.length() == 0 { u32::MAX } else { view.length() };
    Ok(match kind {
        TypeCodeKind::Null if matches!(view, View::Missing) => return Err(CdrError::BadTypeCode),
        TypeCodeKind::Null | TypeCodeKind::Void => Value::Null,
        TypeCodeKind::Boolean => Value::Boolean(d.read_bool()?),
        TypeCodeKind::Octet => Value::Octet(d.read_u8()?),
        TypeCodeKind::Short => Value::Short(d.read_i16()?),
        TypeCodeKind::UShort => Value::UShort(d.read_u16()?),
        TypeCodeKind::Long => Value::Long(d.read_i32()?),
        TypeCodeKind::ULong => Value::ULong(d.read_u32()?),
        TypeCodeKind::LongLong => Value::LongLong(d.read_i64()?),
        TypeCodeKind::ULongLong => Value::ULongLong(d.read_u64()?),
        TypeCodeKind::Float => Value::Float(d.read_f32()?),
        TypeCodeKind::Double => Value::Double(d.read_f64()?),
        TypeCodeKind::LongDouble => Value::LongDouble(d.read_long_double()?),
        TypeCodeKind::Char => Value::Char(d.read_char()?),
        TypeCodeKind::WChar => Value::WChar(d.read_wchar()?),
        TypeCodeKind::String => Value::String(d.read_bounded_string(bound)?),
        TypeCodeKind::WString => Value::WString(d.read_bounded_wstring(bound)?),
        TypeCodeKind::Fixed => {
            Value::Fixed(d.read_fixed(u16::try_from(view.length()).map_err(|_| CdrError::MalformedFixed)?)?)
        }
        TypeCodeKind::Enum => Value::Enum(d.read_enum(u32::try_from(view.member_count()).unwrap_or(u32::MAX))?),
        TypeCodeKind::TypeCode => Value::TypeCode(TypeCode::decode(d)?),
        TypeCodeKind::ObjRef | TypeCodeKind::Component | TypeCodeKind::Home => Value::Object(Ior::decode(d)?),
        TypeCodeKind::Principal => Value::Octets(d.read_octet_sequence_owned()?),
        TypeCodeKind::LocalInterface => return Err(CdrError::LocalObjectNotSendable),
        _ => return Err(CdrError::UnsupportedForm),
    })
}

#[derive(Default)]
pub(super) struct TreeWriter<'v> {
    arms: ArmTable,
    pub(super) started_instances: HashMap<u32, View<'v>>,
    pub(super) identity: Option<Arc<u8>>,
    pub(super) findings: Findings,
}

impl<'v> TreeWriter<'v> {
    pub(super) fn value(&mut self, value: &'v Value, view: View<'_>, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        let view = view.unaliased();
        match (view.kind(), value) {
            (TypeCodeKind::Struct | TypeCodeKind::Except, Value::Struct(members))
                if members.len() == view.member_count() =>
            {
                if view.kind() == TypeCodeKind::Except {
                    e.write_latin1_str(view.id())?;
                }
                members.iter().zip(view.members()).try_for_each(|(value, member)| self.value(value, member.ty, e))
            }
            (TypeCodeKind::Union, Value::Union(union)) => self.union(union, view, e),
            (TypeCodeKind::Sequence, Value::List(list)) => {
                length(list.len(), view, e)?;
                self.elements(list, view, e)
            }
            (TypeCodeKind::Array, Value::List(list)) if list.len() == view.length() as usize => {
                self.elements(list, view, e)
            }
            (TypeCodeKind::Sequence | TypeCodeKind::Array, Value::Octets(octets)) => {
                let element = view.content().ok_or(CdrError::BadTypeCode)?;
                match view.kind() {
                    _ if element.unaliased().kind() != TypeCodeKind::Octet => return Err(CdrError::TypeMismatch),
                    TypeCodeKind::Sequence => length(octets.len(), view, e)?,
                    _ if octets.len() != view.length() as usize => return Err(CdrError::TypeMismatch),
                    _ => {}
                }
                e.write_bytes(octets);
                Ok(())
            }
            (TypeCodeKind::Value | TypeCodeKind::ValueBox | TypeCodeKind::Event, value) => {
                self.instance(value, view, e)
            }
            (TypeCodeKind::AbstractInterface, Value::Null | Value::Instance(_) | Value::InstanceRef(_)) => {
                e.write_bool(false);
                self.instance(value, view, e)
            }
            (TypeCodeKind::Any, Value::Any(any)) => {
                any.value_types().for_each(|(id, type_code)| self.findings.add(id, type_code));
                any.encode(e)
            }
            (_, value) => write_leaf(value, view, e),
        }
    }

    fn union(&mut self, union: &'v UnionValue, view: View<'_>, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        let kind = view.content().ok_or(CdrError::BadTypeCode)?.unaliased().kind();
        match kind {
            TypeCodeKind::Char => e.write_char(label_char(union.discriminator)?)?,
            _ => write_label(kind, union.discriminator, e)?,
        }
        let arm = self.arms.select(view, union.discriminator).and_then(|arm| view.member(arm));
        match (arm, &union.member) {
            (Some(arm), Some(member)) => self.value(member, arm.ty, e),
            (None, None) => Ok(()),
            _ => Err(CdrError::TypeMismatch),
        }
    }

    fn elements(&mut self, list: &'v [Value], view: View<'_>, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        let element = view.content().ok_or(CdrError::BadTypeCode)?;
        list.iter().try_for_each(|value| self.value(value, element, e))
    }
}

fn length(len: usize, view: View<'_>, e: &mut Encoder<'_>) -> Result<(), CdrError> {
    if view.length() == 0 { e.write_len(len) } else { e.write_len_bounded(len, view.length()) }
}

fn write_leaf(value: &Value, view: View<'_>, e: &mut Encoder<'_>) -> Result<(), CdrError> {
    let bound = if view.length() == 0 { u32::MAX } else { view.length() };
    match (view.kind(), value) {
        (TypeCodeKind::Null | TypeCodeKind::Void, Value::Null) => {}
        (TypeCodeKind::Boolean, Value::Boolean(value)) => e.write_bool(*value),
        (TypeCodeKind::Octet, Value::Octet(value)) => e.write_u8(*value),
        (TypeCodeKind::Short, Value::Short(value)) => e.write_i16(*value),
        (TypeCodeKind::UShort, Value::UShort(value)) => e.write_u16(*value),
        (TypeCodeKind::Long, Value::Long(value)) => e.write_i32(*value),
        (TypeCodeKind::ULong, Value::ULong(value)) => e.write_u32(*value),
        (TypeCodeKind::LongLong, Value::LongLong(value)) => e.write_i64(*value),
        (TypeCodeKind::ULongLong, Value::ULongLong(value)) => e.write_u64(*value),
        (TypeCodeKind::Float, Value::Float(value)) => e.write_f32(*value),
        (TypeCodeKind::Double, Value::Double(value)) => e.write_f64(*value),
        (TypeCodeKind::LongDouble, Value::LongDouble(value)) => e.write_long_double(*value),
        (TypeCodeKind::Char, Value::Char(value)) => return e.write_char(*value),
        (TypeCodeKind::WChar, Value::WChar(value)) => return e.write_wchar(*value),
        (TypeCodeKind::String, Value::String(value)) => return e.write_bounded_str(value, bound),
        (TypeCodeKind::WString, Value::WString(value)) => return e.write_bounded_wstr(value, bound),
        (TypeCodeKind::Fixed, Value::Fixed(value)) => {
            return e.write_fixed(u16::try_from(view.length()).map_err(|_| CdrError::MalformedFixed)?, *value);
        }
        (TypeCodeKind::Enum, Value::Enum(value)) if (*value as usize) < view.member_count() => e.write_u32(*value),
        (TypeCodeKind::Enum, Value::Enum(_)) => return Err(CdrError::EnumOutOfRange),
        (TypeCodeKind::TypeCode, Value::TypeCode(value)) => return value.encode(e),
        (TypeCodeKind::ObjRef | TypeCodeKind::Component | TypeCodeKind::Home, Value::Object(value)) => {
            return value.encode(e);
        }
        (TypeCodeKind::AbstractInterface, Value::Object(value)) => {
            e.write_bool(true);
            return value.encode(e);
        }
        (TypeCodeKind::Principal, Value::Octets(value)) => return e.write_octet_sequence_copied(value),
        (TypeCodeKind::LocalInterface, _) => return Err(CdrError::LocalObjectNotSendable),
        _ => return Err(CdrError::TypeMismatch),
    }
    Ok(())
}

fn label_char(label: i128) -> Result<char, CdrError> {
    u8::try_from(label).map(char::from).map_err(|_| CdrError::BadDiscriminator)
}

/// Returns the smallest non-negative value of a union's discriminator that has no label.
fn unused_label(union: View<'_>) -> Result<i128, CdrError> {
    let default = usize::try_from(union.default()).ok();
    let labels = (0..).zip(union.members()).filter(|(index, _)| default != Some(*index)).map(|(_, arm)| arm.label);
    let labels: HashSet<i128> = labels.collect();
    let discriminator = union.content().ok_or(CdrError::BadTypeCode)?.unaliased();
    let free = (0..).find(|number| !labels.contains(number)).unwrap_or_default();
    if label_fits(discriminator, free) { Ok(free) } else { Err(CdrError::BadTypeCode) }
}

const MAX_DEPTH: u32 = 256;

fn initial(view: View<'_>, parts: &mut usize, depth: u32) -> Result<Value, CdrError> {
    *parts += 1;
    if *parts > MAX_PARTS || depth > MAX_DEPTH {
        return Err(CdrError::LimitExceeded);
    }
    let view = view.unaliased();
    Ok(match view.kind() {
        TypeCodeKind::Null if matches!(view, View::Missing) => return Err(CdrError::BadTypeCode),
        TypeCodeKind::Null | TypeCodeKind::Void => Value::Null,
        TypeCodeKind::Boolean => Value::Boolean(false),
        TypeCodeKind::Octet => Value::Octet(0),
        TypeCodeKind::Short => Value::Short(0),
        TypeCodeKind::UShort => Value::UShort(0),
        TypeCodeKind::Long => Value::Long(0),
        TypeCodeKind::ULong => Value::ULong(0),
        TypeCodeKind::LongLong => Value::LongLong(0),
        TypeCodeKind::ULongLong => Value::ULongLong(0),
        TypeCodeKind::Float => Value::Float(0.0),
        TypeCodeKind::Double => Value::Double(0.0),
        TypeCodeKind::LongDouble => Value::LongDouble([0; 16]),
        TypeCodeKind::Char => Value::Char('\0'),
        TypeCodeKind::WChar => Value::WChar('\0'),
        TypeCodeKind::String => Value::String(String::new()),
        TypeCodeKind::WString => Value::WString(String::new()),
        TypeCodeKind::Fixed => Value::Fixed(0),
        TypeCodeKind::Enum => Value::Enum(0),
        TypeCodeKind::TypeCode => Value::TypeCode(TypeCode::NULL),
        TypeCodeKind::Any => Value::Any(Box::default()),
        TypeCodeKind::ObjRef | TypeCodeKind::Component | TypeCodeKind::Home | TypeCodeKind::AbstractInterface => {
            Value::Object(Ior::NIL)
        }
        TypeCodeKind::Struct | TypeCodeKind::Except => {
            let members = view.members().map(|member| initial(member.ty, parts, depth + 1));
            Value::Struct(members.collect::<Result<_, _>>()?)
        }
        TypeCodeKind::Union => {
            let arm = view.member(0).ok_or(CdrError::BadTypeCode)?;
            let discriminator = if view.default() == 0 { unused_label(view)? } else { arm.label };
            let member = Some(initial(arm.ty, parts, depth + 1)?);
            Value::Union(Box::new(UnionValue { discriminator, member }))
        }
        TypeCodeKind::Value | TypeCodeKind::ValueBox | TypeCodeKind::Event => Value::Null,
        TypeCodeKind::Sequence | TypeCodeKind::Array => {
            let element = view.content().ok_or(CdrError::BadTypeCode)?;
            let len = if view.kind() == TypeCodeKind::Array { view.length() as usize } else { 0 };
            if element.unaliased().kind() == TypeCodeKind::Octet && len <= MAX_PARTS {
                return Ok(Value::Octets(Octets::from(vec![0; len])));
            }
            Value::List((0..len).map(|_| initial(element, parts, depth + 1)).collect::<Result<_, _>>()?)
        }
        TypeCodeKind::Principal => Value::Octets(Octets::new()),
        _ => return Err(CdrError::UnsupportedForm),
    })
}
