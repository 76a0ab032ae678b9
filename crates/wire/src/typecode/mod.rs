//! TypeCodes: types as values (CORBA 3.0.3 sections 4.11 and 15.3.5).
//!
//! ```text
//! basic kinds        unsigned long kind
//! string, fixed      kind | bound, or digits and scale
//! all others         kind | encapsulation: repository id, name, members...
//! earlier type       0xffffffff | long offset, from the offset itself back to the kind of the earlier type
//! ```
//!
//! Types may be recursive and may share parts, so a traversal remembers the types that it has
//! visited, or limits its depth.

mod build;
mod compare;
mod decode;
pub mod description;
mod encode;
mod graph;
mod kind;

use std::fmt;
use std::sync::Arc;

pub(crate) use build::label_fits;
pub use build::{TypeCodeError, UnionMember, ValueMember};
pub use description::StaticTypeCode;
pub(crate) use encode::{read_label, write_label};
use graph::Graph;
pub(crate) use graph::{ABSTRACT, View};
pub use kind::TypeCodeKind;

pub(crate) const INDIRECTION: u32 = 0xffff_ffff;

/// A type as a value.
///
/// `==` is the specification's `equal`: the types agree in every detail, names included.
/// [`equivalent`](TypeCode::equivalent) decides whether values can be exchanged.
///
/// ```
/// use corelane_wire::typecode::{TypeCodeKind, TypeCode};
/// let point = TypeCode::structure("IDL:Point:1.0", "Point", [("x", TypeCode::LONG), ("y", TypeCode::LONG)])?;
/// assert_eq!((point.kind(), point.member_count()), (TypeCodeKind::Struct, 2));
/// # Ok::<(), corelane_wire::typecode::TypeCodeError>(())
/// ```
#[derive(Clone)]
pub struct TypeCode(TypeCodeRepr);

#[derive(Clone)]
enum TypeCodeRepr {
    Static(&'static StaticTypeCode),
    Graph(Arc<Graph>, u32),
    Placeholder(Arc<str>),
}

macro_rules! constants {
    ($($name:ident,)*) => {$(
        #[doc = concat!("See [`", stringify!($name), "`](description::", stringify!($name), ").")]
        pub const $name: TypeCode = TypeCode::from_description(description::$name);
    )*};
}

impl TypeCode {
    constants! {
        NULL, VOID, SHORT, LONG, USHORT, ULONG, FLOAT, DOUBLE, BOOLEAN, CHAR, OCTET, ANY, TYPE_CODE, PRINCIPAL, LONG_LONG,
        ULONG_LONG, LONG_DOUBLE, WCHAR, STRING, WSTRING, OBJECT, VALUE_BASE,
    }

    /// Returns the type that a constant describes.
    #[must_use]
    pub const fn from_description(description: &'static StaticTypeCode) -> TypeCode {
        TypeCode(TypeCodeRepr::Static(description))
    }

    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        match &self.0 {
            TypeCodeRepr::Static(description) => View::Static(description),
            TypeCodeRepr::Graph(graph, index) => match graph.nodes.get(*index as usize) {
                Some(node) => View::Graph(graph, node, *index),
                None => View::Missing,
            },
            TypeCodeRepr::Placeholder(_) => View::Missing,
        }
    }

    /// Returns the kind of the type.
    #[must_use]
    pub fn kind(&self) -> TypeCodeKind {
        self.view().kind()
    }

    /// Returns the repository id, or "" if the kind has none or the id is unknown.
    #[must_use]
    pub fn id(&self) -> &str {
        match &self.0 {
            TypeCodeRepr::Placeholder(id) => id,
            _ => self.view().id(),
        }
    }

    /// Returns the name without scope, or "" if the kind has none or the name is unknown.
    #[must_use]
    pub fn name(&self) -> &str {
        self.view().name()
    }

    /// Returns the number of members of a structure, exception, union, enumeration or value. An arm
    /// with several labels counts once for each label.
    #[must_use]
    pub fn member_count(&self) -> usize {
        self.view().member_count()
    }

    /// Returns the name of a member.
    #[must_use]
    pub fn member_name(&self, index: usize) -> Option<&str> {
        self.view().member(index).map(|member| member.name)
    }

    /// Returns the type of a member; `None` for an enumerator.
    #[must_use]
    pub fn member_type(&self, index: usize) -> Option<TypeCode> {
        let view = self.view();
        view.member(index).filter(|_| view.kind() != TypeCodeKind::Enum).map(|member| member.ty.to_type_code())
    }

    /// Returns the label of an arm of a union: a number, the code of a character, the number of an
    /// enumerator, or 0 or 1 for a boolean. Returns `None` for the default arm and for other kinds
    /// of types.
    #[must_use]
    pub fn member_label(&self, index: usize) -> Option<i128> {
        let view = self.view();
        let member = view.member(index).filter(|_| view.kind() == TypeCodeKind::Union)?;
        (self.default_index() != Some(index)).then_some(member.label)
    }

    /// Returns true if a state member of a value is public; `None` if the type is not a value type.
    #[must_use]
    pub fn is_member_public(&self, index: usize) -> Option<bool> {
        let view = self.view();
        let is_value = matches!(view.kind(), TypeCodeKind::Value | TypeCodeKind::Event);
        view.member(index).filter(|_| is_value).map(|member| member.visibility == 1)
    }

    /// Returns the type of a union's discriminator.
    #[must_use]
    pub fn discriminator_type(&self) -> Option<TypeCode> {
        let view = self.view();
        view.content().filter(|_| view.kind() == TypeCodeKind::Union).map(View::to_type_code)
    }

    /// Returns the index of a union's default arm.
    #[must_use]
    pub fn default_index(&self) -> Option<usize> {
        let view = self.view();
        usize::try_from(view.default()).ok().filter(|_| view.kind() == TypeCodeKind::Union)
    }

    /// Returns the element type of a sequence or array, the aliased type, or the boxed type.
    #[must_use]
    pub fn content_type(&self) -> Option<TypeCode> {
        let view = self.view();
        view.content().filter(|_| view.kind().has_content()).map(View::to_type_code)
    }

    /// Returns the bound of a string or sequence, 0 for none, or the length of an array.
    #[must_use]
    pub fn length(&self) -> Option<u32> {
        let view = self.view();
        let has_length = matches!(
            view.kind(),
            TypeCodeKind::String | TypeCodeKind::WString | TypeCodeKind::Sequence | TypeCodeKind::Array
        );
        has_length.then(|| view.length())
    }

    /// Returns the digits and the scale of a fixed.
    #[must_use]
    pub fn digits_and_scale(&self) -> Option<(u16, i16)> {
        let view = self.view();
        let digits = u16::try_from(view.length()).ok()?;
        (view.kind() == TypeCodeKind::Fixed).then(|| (digits, view.scale()))
    }

    /// Returns the modifier of a value type: 0 none, 1 custom, 2 abstract, 3 truncatable.
    #[must_use]
    pub fn type_modifier(&self) -> Option<i16> {
        let view = self.view();
        matches!(view.kind(), TypeCodeKind::Value | TypeCodeKind::Event).then(|| view.modifier())
    }

    /// Returns the concrete base of a value type.
    #[must_use]
    pub fn concrete_base_type(&self) -> Option<TypeCode> {
        let view = self.view();
        view.content()
            .filter(|_| matches!(view.kind(), TypeCodeKind::Value | TypeCodeKind::Event))
            .map(View::to_type_code)
    }

    /// Returns the whole state of a value type, its bases' state first. The list is empty for other
    /// types, and if the chain of bases is endless or malformed.
    #[must_use]
    pub fn state_members(&self) -> Vec<ValueMember> {
        let view = self.view().unaliased();
        if !matches!(view.kind(), TypeCodeKind::Value | TypeCodeKind::Event) {
            return Vec::new();
        }
        let member = |member: graph::MemberView<'_>| ValueMember {
            name: member.name.to_owned(),
            ty: member.ty.to_type_code(),
            is_public: member.visibility == 1,
        };
        view.bases().unwrap_or_default().into_iter().rev().flat_map(View::members).map(member).collect()
    }

    /// Returns true if a value of this type can be used as a value of type `expected`: for
    /// equivalent types, and for a value type with state if `expected` is one of its bases.
    /// TypeCodes do not name abstract bases. So the result is also true for value types with state
    /// and for value boxes if `expected` is an abstract type or ValueBase.
    #[must_use]
    pub fn is_substitutable_for(&self, expected: &TypeCode) -> bool {
        let (own, expected) = (self.view().unaliased(), expected.view().unaliased());
        own.is_substitutable_for(expected) || compare::equivalent(own, expected)
    }

    /// Returns the type behind all aliases; the type null for a chain of 128 or more aliases.
    #[must_use]
    pub fn unaliased(&self) -> TypeCode {
        match self.kind() {
            TypeCodeKind::Alias => self.view().unaliased().to_type_code(),
            _ => self.clone(),
        }
    }

    /// Returns true if values of the two types are interchangeable. Aliases are resolved. Two types
    /// with repository ids are equivalent if the ids are equal; without ids everything except names
    /// is compared (CORBA 3.0.3 section 4.11.1).
    #[must_use]
    pub fn equivalent(&self, other: &TypeCode) -> bool {
        compare::equivalent(self.view(), other.view())
    }

    /// Returns true if the type is complete: no placeholder of [`recursive`](TypeCode::recursive)
    /// remains.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        match &self.0 {
            TypeCodeRepr::Static(_) => true,
            TypeCodeRepr::Graph(graph, _) => !graph.incomplete,
            TypeCodeRepr::Placeholder(_) => false,
        }
    }
}

impl Default for TypeCode {
    fn default() -> TypeCode {
        TypeCode::NULL
    }
}

impl PartialEq for TypeCode {
    fn eq(&self, other: &TypeCode) -> bool {
        match (&self.0, &other.0) {
            (TypeCodeRepr::Placeholder(a), TypeCodeRepr::Placeholder(b)) => a == b,
            _ => compare::equal(self.view(), other.view()),
        }
    }
}

impl Eq for TypeCode {}

impl std::hash::Hash for TypeCode {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.kind(), self.id(), self.name(), self.member_count()).hash(state);
    }
}

impl From<&'static StaticTypeCode> for TypeCode {
    fn from(description: &'static StaticTypeCode) -> TypeCode {
        TypeCode::from_description(description)
    }
}

impl fmt::Display for TypeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self.view(), f, 8)
    }
}

fn show(view: View<'_>, f: &mut fmt::Formatter<'_>, depth: u32) -> fmt::Result {
    let (kind, bound) = (view.kind(), view.length());
    let Some(depth) = depth.checked_sub(1) else { return f.write_str("...") };
    match (kind, view.content()) {
        (TypeCodeKind::Sequence, Some(element)) => {
            f.write_str("sequence<")?;
            show(element, f, depth)?;
            if bound == 0 { f.write_str(">") } else { write!(f, ", {bound}>") }
        }
        (TypeCodeKind::Array, Some(element)) => {
            show(element, f, depth)?;
            write!(f, "[{bound}]")
        }
        (TypeCodeKind::String | TypeCodeKind::WString, _) if bound > 0 => write!(f, "{kind}<{bound}>"),
        (TypeCodeKind::Fixed, _) => write!(f, "fixed<{bound}, {}>", view.scale()),
        _ if kind.has_id() && view.name().is_empty() => write!(f, "{kind} {}", view.id()),
        _ if kind.has_id() => write!(f, "{kind} {}", view.name()),
        _ => f.write_str(kind.name()),
    }
}

impl fmt::Debug for TypeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TypeCode({self}")?;
        if !self.id().is_empty() {
            write!(f, " {}", self.id())?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests;
