//! The resolved declarations, in which names are [`DefinitionId`]s and constants are values.

use crate::ast::{self, BasicType, Direction, InterfaceFlavor, ValueFlavor};
use crate::binary128::Binary128;
use crate::source::Span;
use crate::symbol::Symbol;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The index of a definition in a [`Model`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DefinitionId(pub(crate) u32);

/// All definitions of a compilation.
#[derive(Debug, Default)]
pub struct Model {
    pub(crate) definitions: Vec<Definition>,
    /// The definitions outside modules, in source order.
    pub roots: Vec<DefinitionId>,
    /// Structures, exceptions, unions and enumerations in the order in which their definitions
    /// ended.
    pub(crate) completed: Vec<DefinitionId>,
    /// The `typeprefix` of each file and its location, by the number of the file's inclusion.
    pub(crate) file_prefixes: HashMap<u32, (String, Span)>,
}

/// One definition.
#[derive(Debug)]
pub struct Definition {
    /// The definition's name.
    pub name: Symbol,
    /// The location of the definition's name, in the definition rather than in a forward
    /// declaration.
    pub span: Span,
    /// The enclosing definition.
    pub parent: Option<DefinitionId>,
    /// The kind of definition, with its content.
    pub kind: DefinitionKind,
    /// Index of the definition's first token, used to find the comments in front of it.
    pub first_token: usize,
    /// True if values cannot leave the process, as for a local interface and a type that contains a
    /// local interface.
    pub is_local: bool,
    pub(crate) last_alias: Option<DefinitionId>,
    /// Number of array elements in one value of this type. The sizes of nested arrays are
    /// multiplied.
    pub(crate) elements: u64,
    /// The definition's annotations.
    pub annotations: Vec<Annotation>,
    pub(crate) identity: Identity,
}

/// A checked annotation of a definition.
#[derive(Clone, Debug)]
pub struct Annotation {
    /// The last part of the annotation's name.
    pub name: Symbol,
    /// The name's location.
    pub span: Span,
    /// The annotation's arguments: the name, if written, and the location of the value.
    pub arguments: Vec<(Option<Symbol>, Span)>,
}

impl Annotation {
    pub(crate) fn list(annotations: &[ast::Annotation]) -> Vec<Self> {
        let named = annotations.iter().filter_map(|one| Some((one, one.name.parts.last()?)));
        let argument =
            |(name, value): &(Option<ast::Name>, ast::Expression)| (name.map(|name| name.symbol), value.span);
        named
            .map(|(one, name)| Self {
                name: name.symbol,
                span: name.span,
                arguments: one.arguments.iter().map(argument).collect(),
            })
            .collect()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// The effective `#pragma prefix`.
    pub(crate) prefix: Arc<str>,
    /// Number of the file inclusion that contains the definition; the first inclusion is 0.
    pub(crate) file: u32,
    pub(crate) given: Option<Box<ExplicitIdentity>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ExplicitIdentity {
    /// `#pragma ID` or `typeid`, with its location.
    pub(crate) id: Option<(String, Span)>,
    /// `#pragma version`, with its location.
    pub(crate) version: Option<(String, Span)>,
    /// `typeprefix`, with its location.
    pub(crate) type_prefix: Option<(String, Span)>,
}

impl Identity {
    pub(crate) fn given(&self) -> Option<&ExplicitIdentity> {
        self.given.as_deref()
    }

    pub(crate) fn given_mut(&mut self) -> &mut ExplicitIdentity {
        self.given.get_or_insert_default()
    }
}

/// The kinds of definitions.
#[derive(Debug)]
pub enum DefinitionKind {
    /// A module with the members from all places where it is opened.
    Module(Vec<DefinitionId>),
    /// An interface.
    Interface(Interface),
    /// A value type.
    Value(ValueDeclaration),
    /// A value box.
    ValueBox(Type),
    /// A structure.
    Struct(Struct),
    /// An exception.
    Exception(Struct),
    /// A union.
    Union(Union),
    /// An enumeration with its enumerators.
    Enum(Vec<DefinitionId>),
    /// An enumerator: its enumeration and its number.
    Enumerator(DefinitionId, u32),
    /// Another name for a type.
    Typedef(Type),
    /// A constant.
    Constant(Type, ConstantValue),
    /// A native type.
    Native,
    /// A set of flags (IDL 4).
    Bitmask(Bitmask),
    /// A set of bit fields (IDL 4).
    Bitset(Bitset),
    /// An operation.
    Operation(OperationDeclaration),
    /// An attribute.
    Attribute(Attribute),
    /// A user-defined annotation.
    Annotation,
}

/// A set of flags.
#[derive(Debug)]
pub struct Bitmask {
    /// The bitmask's size in bits, 1 to 64.
    pub bound: u32,
    /// The flags with their bit positions; 0 is the lowest bit.
    pub flags: Vec<(Symbol, u8)>,
}

/// A set of bit fields.
#[derive(Debug)]
pub struct Bitset {
    /// The base bit set, whose fields come first.
    pub base: Option<DefinitionId>,
    /// The bitset's fields without the fields of its base, the lowest first.
    pub fields: Vec<BitsetField>,
    /// The bitset's size in bits, including its base.
    pub bits: u32,
}

/// A field of a bit set.
#[derive(Debug)]
pub struct BitsetField {
    /// The field's name; `None` for unused bits.
    pub name: Option<Symbol>,
    /// The location of the field's name or, for unused bits, of its width.
    pub span: Span,
    /// The field's size in bits.
    pub width: u8,
    /// The type given in the source, if any.
    pub ty: Option<Type>,
}

/// An interface.
#[derive(Debug)]
pub struct Interface {
    /// `abstract`, `local` or neither.
    pub flavor: InterfaceFlavor,
    /// True if the definition has a body, false if there are only forward declarations.
    pub is_defined: bool,
    /// The interface's direct bases.
    pub bases: Vec<DefinitionId>,
    /// The definitions in the interface, in order, including operations and attributes.
    pub members: Vec<DefinitionId>,
}

/// A value type.
#[derive(Debug)]
pub struct ValueDeclaration {
    /// `abstract`, `custom` or neither.
    pub flavor: ValueFlavor,
    /// True if the definition has a body, false if there are only forward declarations.
    pub is_defined: bool,
    /// True if `truncatable`.
    pub is_truncatable: bool,
    /// The value type's direct bases. A base with state comes first.
    pub bases: Vec<DefinitionId>,
    /// The supported interfaces.
    pub supports: Vec<DefinitionId>,
    /// The definitions in the value type, in order.
    pub members: Vec<DefinitionId>,
    /// The value type's state members; the flag is true if public.
    pub state: Vec<(Member, bool)>,
    /// The value type's factories.
    pub factories: Vec<OperationDeclaration>,
}

/// A structure or exception.
#[derive(Debug)]
pub struct Struct {
    /// True if the definition has a body, false if there are only forward declarations.
    pub is_defined: bool,
    /// The struct's base (IDL 4).
    pub base: Option<DefinitionId>,
    /// The struct's members.
    pub members: Vec<Member>,
    /// Types defined within the struct.
    pub inner: Vec<DefinitionId>,
}

/// A member of a structure, exception or value type.
#[derive(Clone, Debug)]
pub struct Member {
    /// The member's name.
    pub name: Symbol,
    /// The member's location.
    pub span: Span,
    /// The member's type.
    pub ty: Type,
    /// Index of the member's first token.
    pub first_token: usize,
    /// The member's annotations.
    pub annotations: Vec<Annotation>,
}

/// A union.
#[derive(Debug)]
pub struct Union {
    /// True if the definition has a body, false if there are only forward declarations.
    pub is_defined: bool,
    /// The discriminator's type.
    pub discriminator: Type,
    /// The union's arms.
    pub arms: Vec<Arm>,
    /// Types defined within the union.
    pub inner: Vec<DefinitionId>,
}

/// An arm of a union.
#[derive(Clone, Debug)]
pub struct Arm {
    /// The discriminator values that select the arm.
    pub labels: Vec<ConstantValue>,
    /// True if the arm is the default arm.
    pub is_default: bool,
    /// The arm's member.
    pub member: Member,
}

/// An operation.
#[derive(Debug)]
pub struct OperationDeclaration {
    /// The operation's name.
    pub name: Symbol,
    /// True if the operation is `oneway`.
    pub is_oneway: bool,
    /// The operation's result, `None` for `void`.
    pub result: Option<Type>,
    /// The operation's parameters.
    pub parameters: Vec<Parameter>,
    /// The operation's exceptions.
    pub raises: Vec<DefinitionId>,
    /// The names of the operation's context properties.
    pub context: Vec<String>,
    /// `@wcet`: the operation's maximum processor time, in microseconds.
    pub wcet_microseconds: Option<u32>,
}

/// A parameter.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// The parameter's direction.
    pub direction: Direction,
    /// The parameter's name.
    pub name: Symbol,
    /// The parameter's type.
    pub ty: Type,
    /// The parameter's annotations.
    pub annotations: Vec<Annotation>,
}

/// An attribute.
#[derive(Debug)]
pub struct Attribute {
    /// True for `readonly`.
    pub is_readonly: bool,
    /// The attribute's type.
    pub ty: Type,
    /// The exceptions that reading the attribute may raise.
    pub get_raises: Vec<DefinitionId>,
    /// The exceptions that setting the attribute may raise.
    pub set_raises: Vec<DefinitionId>,
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A type without parameters.
    Basic(BasicType),
    /// A string: true if wide, and its bound, if any.
    String(bool, Option<u32>),
    /// A fixed-point type: digits and scale.
    Fixed(u8, u8),
    /// The type of a fixed-point constant.
    FixedConstant,
    /// A sequence with its bound, if any.
    Sequence(Box<Type>, Option<u32>),
    /// A map with its bound, if any.
    Map(Box<(Type, Type)>, Option<u32>),
    /// An array with its dimensions, outermost first.
    Array(Box<Type>, Vec<u32>),
    /// A reference to a definition: structure, union, enumeration, typedef, interface, value type
    /// or native type.
    Named(DefinitionId),
    /// No type: the type in the source has an error, which was reported.
    Faulty,
}

/// The value of a constant.
#[derive(Clone, Debug, PartialEq)]
pub enum ConstantValue {
    /// A value of an integer type or of `octet`.
    Integer(i128),
    /// A value of type `float` or `double`.
    Float(f64),
    /// A value of type `long double`.
    LongDouble(Binary128),
    /// A fixed-point value: its digits, and the number of digits after the point.
    Fixed(i128, u32),
    /// A character, narrow or wide.
    Character(char),
    /// A string, narrow or wide.
    String(String),
    /// A Boolean value.
    Boolean(bool),
    /// An enumerator.
    Enumerator(DefinitionId),
    /// No value: the constant's expression has an error, which was reported.
    Faulty,
}

impl Model {
    /// Returns the definition with this index.
    #[must_use]
    pub fn get(&self, id: DefinitionId) -> &Definition {
        &self.definitions[id.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, id: DefinitionId) -> &mut Definition {
        &mut self.definitions[id.0 as usize]
    }

    /// Iterates over all definitions in the order in which they were first declared.
    pub fn definition_ids(&self) -> impl Iterator<Item = DefinitionId> + use<> {
        (0..u32::try_from(self.definitions.len()).unwrap_or(u32::MAX)).map(DefinitionId)
    }

    /// Returns the enclosing definitions, outermost first, followed by the definition itself.
    #[must_use]
    pub fn path(&self, id: DefinitionId) -> Vec<DefinitionId> {
        let mut path = vec![id];
        let mut at = id;
        while let Some(parent) = self.get(at).parent {
            path.push(parent);
            at = parent;
        }
        path.reverse();
        path
    }

    /// Returns the type behind all typedefs.
    #[must_use]
    pub fn unaliased<'m>(&'m self, mut ty: &'m Type) -> &'m Type {
        while let Type::Named(id) = ty
            && let DefinitionKind::Typedef(of) = &self.get(*id).kind
        {
            ty = match self.get(*id).last_alias.map(|last| &self.get(last).kind) {
                Some(DefinitionKind::Typedef(of)) => of,
                _ => of,
            };
        }
        ty
    }

    /// Returns the definition that a type names, behind all typedefs.
    #[must_use]
    pub fn unaliased_definition(&self, ty: &Type) -> Option<DefinitionId> {
        match self.unaliased(ty) {
            Type::Named(id) => Some(*id),
            _ => None,
        }
    }

    /// Returns all members of a structure; members of its base come first.
    #[must_use]
    pub fn all_members(&self, structure: &Struct) -> Vec<Member> {
        let base = structure.base.and_then(|base| match &self.get(base).kind {
            DefinitionKind::Struct(base) => Some(self.all_members(base)),
            _ => None,
        });
        base.unwrap_or_default().into_iter().chain(structure.members.iter().cloned()).collect()
    }

    /// Returns all fields of a bit set; fields of its base come first.
    #[must_use]
    pub fn bit_fields(&self, id: DefinitionId) -> Vec<&BitsetField> {
        let DefinitionKind::Bitset(bitset) = &self.get(id).kind else { return Vec::new() };
        let base = bitset.base.map_or_else(Vec::new, |base| self.bit_fields(base));
        base.into_iter().chain(&bitset.fields).collect()
    }

    /// Returns all direct and indirect bases of an interface or value type. Each base appears once,
    /// nearer bases first.
    #[must_use]
    pub fn all_bases(&self, id: DefinitionId) -> Vec<DefinitionId> {
        let direct = match &self.get(id).kind {
            DefinitionKind::Interface(interface) => &interface.bases,
            DefinitionKind::Value(value) => &value.bases,
            _ => return Vec::new(),
        };
        let mut bases = Vec::new();
        if direct.is_empty() {
            return bases;
        }
        let mut seen = Seen::default();
        seen.insert(id);
        let mut next = vec![id];
        while !next.is_empty() {
            let mut further = Vec::new();
            for id in next {
                let direct = match &self.get(id).kind {
                    DefinitionKind::Interface(interface) => &interface.bases,
                    DefinitionKind::Value(value) => &value.bases,
                    _ => continue,
                };
                for base in direct {
                    if seen.insert(*base) {
                        bases.push(*base);
                        further.push(*base);
                    }
                }
            }
            next = further;
        }
        bases
    }
}

#[derive(Default)]
struct Seen {
    few: Vec<DefinitionId>,
    many: HashSet<DefinitionId>,
}

impl Seen {
    const FEW: usize = 32;

    fn insert(&mut self, id: DefinitionId) -> bool {
        if self.few.len() < Self::FEW {
            let new = !self.few.contains(&id);
            self.few.extend(new.then_some(id));
            return new;
        }
        if self.many.is_empty() {
            self.many.extend(&self.few);
        }
        self.many.insert(id)
    }
}
