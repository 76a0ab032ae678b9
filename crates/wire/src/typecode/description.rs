//! Descriptions of types as constants, which generated code stores in statics.

use super::TypeCodeKind;

/// A type as constant data. Descriptions in statics can refer to each other, even in cycles.
///
/// ```
/// use corelane_wire::typecode::description::{LONG, member, sequence, structure};
/// use corelane_wire::typecode::{StaticTypeCode, TypeCode};
/// static NODE: StaticTypeCode = structure("IDL:Node:1.0", "Node", &[
///     member("value", LONG),
///     member("next", &sequence(&NODE, 1)),
/// ]);
/// assert_eq!(TypeCode::from_description(&NODE).member_name(1).unwrap(), "next");
/// ```
#[derive(Debug)]
pub struct StaticTypeCode {
    pub(super) kind: TypeCodeKind,
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    pub(super) length: u32,
    pub(super) scale: i16,
    pub(super) modifier: i16,
    pub(super) default: i32,
    pub(super) content: Option<&'static StaticTypeCode>,
    pub(super) members: &'static [MemberDescription],
}

/// A member of a described type.
#[derive(Debug)]
pub struct MemberDescription {
    pub(super) name: &'static str,
    pub(super) ty: &'static StaticTypeCode,
    pub(super) label: i128,
    pub(super) visibility: i16,
}

const fn basic(kind: TypeCodeKind) -> StaticTypeCode {
    StaticTypeCode {
        kind,
        id: "",
        name: "",
        length: 0,
        scale: 0,
        modifier: 0,
        default: -1,
        content: None,
        members: &[],
    }
}

macro_rules! basics {
    ($($name:ident $kind:ident,)*) => {$(
        #[doc = concat!("`", stringify!($kind), "`.")]
        pub const $name: &StaticTypeCode = &basic(TypeCodeKind::$kind);
    )*};
}

basics! {
    NULL Null,
    VOID Void,
    SHORT Short,
    LONG Long,
    USHORT UShort,
    ULONG ULong,
    FLOAT Float,
    DOUBLE Double,
    BOOLEAN Boolean,
    CHAR Char,
    OCTET Octet,
    ANY Any,
    TYPE_CODE TypeCode,
    PRINCIPAL Principal,
    LONG_LONG LongLong,
    ULONG_LONG ULongLong,
    LONG_DOUBLE LongDouble,
    WCHAR WChar,
}

/// An unbounded `string`.
pub const STRING: &StaticTypeCode = &string(0);
/// An unbounded `wstring`.
pub const WSTRING: &StaticTypeCode = &wstring(0);
/// `CORBA::Object`.
pub const OBJECT: &StaticTypeCode = &interface("IDL:omg.org/CORBA/Object:1.0", "Object");
pub(crate) const VALUE_BASE_ID: &str = "IDL:omg.org/CORBA/ValueBase:1.0";
/// `ValueBase`.
pub const VALUE_BASE: &StaticTypeCode = &value(VALUE_BASE_ID, "ValueBase", 0, None, &[]);

pub(super) const fn for_kind(kind: TypeCodeKind) -> &'static StaticTypeCode {
    match kind {
        TypeCodeKind::Void => VOID,
        TypeCodeKind::Short => SHORT,
        TypeCodeKind::Long => LONG,
        TypeCodeKind::UShort => USHORT,
        TypeCodeKind::ULong => ULONG,
        TypeCodeKind::Float => FLOAT,
        TypeCodeKind::Double => DOUBLE,
        TypeCodeKind::Boolean => BOOLEAN,
        TypeCodeKind::Char => CHAR,
        TypeCodeKind::Octet => OCTET,
        TypeCodeKind::Any => ANY,
        TypeCodeKind::TypeCode => TYPE_CODE,
        TypeCodeKind::Principal => PRINCIPAL,
        TypeCodeKind::LongLong => LONG_LONG,
        TypeCodeKind::ULongLong => ULONG_LONG,
        TypeCodeKind::LongDouble => LONG_DOUBLE,
        TypeCodeKind::WChar => WCHAR,
        _ => NULL,
    }
}

/// A string of at most `bound` characters; 0 is unbounded.
#[must_use]
pub const fn string(bound: u32) -> StaticTypeCode {
    StaticTypeCode { length: bound, ..basic(TypeCodeKind::String) }
}

/// A wstring of at most `bound` characters; 0 is unbounded.
#[must_use]
pub const fn wstring(bound: u32) -> StaticTypeCode {
    StaticTypeCode { length: bound, ..basic(TypeCodeKind::WString) }
}

/// `fixed<digits, scale>`.
#[must_use]
pub const fn fixed(digits: u16, scale: i16) -> StaticTypeCode {
    StaticTypeCode { length: digits as u32, scale, ..basic(TypeCodeKind::Fixed) }
}

/// A sequence of at most `bound` elements; 0 is unbounded.
#[must_use]
pub const fn sequence(element: &'static StaticTypeCode, bound: u32) -> StaticTypeCode {
    StaticTypeCode { length: bound, content: Some(element), ..basic(TypeCodeKind::Sequence) }
}

/// An array of one dimension.
#[must_use]
pub const fn array(element: &'static StaticTypeCode, length: u32) -> StaticTypeCode {
    StaticTypeCode { length, content: Some(element), ..basic(TypeCodeKind::Array) }
}

const fn named(kind: TypeCodeKind, id: &'static str, name: &'static str) -> StaticTypeCode {
    StaticTypeCode { id, name, ..basic(kind) }
}

/// A structure.
#[must_use]
pub const fn structure(id: &'static str, name: &'static str, members: &'static [MemberDescription]) -> StaticTypeCode {
    StaticTypeCode { members, ..named(TypeCodeKind::Struct, id, name) }
}

/// An exception.
#[must_use]
pub const fn exception(id: &'static str, name: &'static str, members: &'static [MemberDescription]) -> StaticTypeCode {
    StaticTypeCode { members, ..named(TypeCodeKind::Except, id, name) }
}

/// A union; `default` is the index of the default arm, -1 for none.
#[must_use]
pub const fn union(
    id: &'static str,
    name: &'static str,
    discriminator: &'static StaticTypeCode,
    default: i32,
    arms: &'static [MemberDescription],
) -> StaticTypeCode {
    StaticTypeCode { content: Some(discriminator), default, members: arms, ..named(TypeCodeKind::Union, id, name) }
}

/// An enumeration.
#[must_use]
pub const fn enumeration(
    id: &'static str,
    name: &'static str,
    enumerators: &'static [MemberDescription],
) -> StaticTypeCode {
    StaticTypeCode { members: enumerators, ..named(TypeCodeKind::Enum, id, name) }
}

/// An alias of a type.
#[must_use]
pub const fn alias(id: &'static str, name: &'static str, of: &'static StaticTypeCode) -> StaticTypeCode {
    StaticTypeCode { content: Some(of), ..named(TypeCodeKind::Alias, id, name) }
}

/// An interface.
#[must_use]
pub const fn interface(id: &'static str, name: &'static str) -> StaticTypeCode {
    named(TypeCodeKind::ObjRef, id, name)
}

/// An abstract interface.
#[must_use]
pub const fn abstract_interface(id: &'static str, name: &'static str) -> StaticTypeCode {
    named(TypeCodeKind::AbstractInterface, id, name)
}

/// A local interface.
#[must_use]
pub const fn local_interface(id: &'static str, name: &'static str) -> StaticTypeCode {
    named(TypeCodeKind::LocalInterface, id, name)
}

/// A native type.
#[must_use]
pub const fn native(id: &'static str, name: &'static str) -> StaticTypeCode {
    named(TypeCodeKind::Native, id, name)
}

/// A value type. `members` is its state without the state of the base; `modifier` is 0 none, 1
/// custom, 2 abstract, 3 truncatable.
#[must_use]
pub const fn value(
    id: &'static str,
    name: &'static str,
    modifier: i16,
    base: Option<&'static StaticTypeCode>,
    members: &'static [MemberDescription],
) -> StaticTypeCode {
    StaticTypeCode { modifier, content: base, members, ..named(TypeCodeKind::Value, id, name) }
}

/// A boxed value.
#[must_use]
pub const fn value_box(id: &'static str, name: &'static str, of: &'static StaticTypeCode) -> StaticTypeCode {
    StaticTypeCode { content: Some(of), ..named(TypeCodeKind::ValueBox, id, name) }
}

/// A member of a structure or exception, or the default arm of a union.
#[must_use]
pub const fn member(name: &'static str, ty: &'static StaticTypeCode) -> MemberDescription {
    MemberDescription { name, ty, label: 0, visibility: 0 }
}

/// An arm of a union with one label. An arm with several labels needs one entry for each label.
#[must_use]
pub const fn arm(label: i128, name: &'static str, ty: &'static StaticTypeCode) -> MemberDescription {
    MemberDescription { name, ty, label, visibility: 0 }
}

/// An enumerator.
#[must_use]
pub const fn enumerator(name: &'static str) -> MemberDescription {
    MemberDescription { name, ty: NULL, label: 0, visibility: 0 }
}

/// A public state member of a value.
#[must_use]
pub const fn public_member(name: &'static str, ty: &'static StaticTypeCode) -> MemberDescription {
    MemberDescription { name, ty, label: 0, visibility: 1 }
}

/// A private state member of a value.
#[must_use]
pub const fn private_member(name: &'static str, ty: &'static StaticTypeCode) -> MemberDescription {
    MemberDescription { name, ty, label: 0, visibility: 0 }
}
