//! The resolved text: every definition once, every name a [`DefinitionId`], every constant a value. Checks and
//! back ends work on this.

use crate::ast::{self, Basic, Direction, Flavor, ValueFlavor};
use crate::binary128::Binary128;
use crate::source::Span;
use crate::symbol::Symbol;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A definition of a [`Model`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DefinitionId(pub(crate) u32);

/// All definitions of a text.
#[derive(Debug, Default)]
pub struct Model {
    pub(crate) definitions: Vec<Definition>,
    /// What stands outside modules, in order.
    pub roots: Vec<DefinitionId>,
    /// Structures, exceptions, unions and enumerations in the order in which their definitions ended: what one
    /// contains directly stands before it.
    pub(crate) completed: Vec<DefinitionId>,
    /// `typeprefix` of files, by the number of the reading of the file, and where it stands.
    pub(crate) file_prefixes: HashMap<u32, (String, Span)>,
}

/// One definition.
#[derive(Debug)]
pub struct Definition {
    /// Its name.
    pub name: Symbol,
    /// Where its name stands, at the definition rather than at an announcement.
    pub span: Span,
    /// What it is defined in.
    pub parent: Option<DefinitionId>,
    /// What it is.
    pub kind: Kind,
    /// Index of its first token, by which comments are found.
    pub first_token: usize,
    /// Whether values of it cannot leave the process: a local interface, or something that holds one.
    pub local: bool,
    /// Of a type that only renames another renamed type: the last of them on the way to what it is.
    pub(crate) last_alias: Option<DefinitionId>,
    /// Elements that a value has which are always there, those of arrays and members multiplied out.
    pub(crate) elements: u64,
    /// Annotations in front of it.
    pub annotations: Vec<Annotation>,
    pub(crate) identity: Identity,
}

/// An annotation where it is used; what is checked of it is checked already.
#[derive(Clone, Debug)]
pub struct Annotation {
    /// The last part of its name.
    pub name: Symbol,
    /// Where the name stands.
    pub span: Span,
    /// Its arguments, with their names where named: where each is written.
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

/// What a repository id is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// `#pragma prefix` in force at the definition.
    pub(crate) prefix: Arc<str>,
    /// Which reading of a file it stands in: the first is 0.
    pub(crate) file: u32,
    /// What few definitions have.
    pub(crate) given: Option<Box<Given>>,
}

/// What is given to one definition rather than derived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// `#pragma ID` or `typeid`, and where.
    pub(crate) id: Option<(String, Span)>,
    /// `#pragma version`, and where.
    pub(crate) version: Option<(String, Span)>,
    /// `typeprefix`, and where.
    pub(crate) type_prefix: Option<(String, Span)>,
}

impl Identity {
    /// What is given to this definition, to be looked at.
    pub(crate) fn given(&self) -> Option<&Given> {
        self.given.as_deref()
    }

    /// The same, to be changed.
    pub(crate) fn given_mut(&mut self) -> &mut Given {
        self.given.get_or_insert_default()
    }
}

/// What a definition is.
#[derive(Debug)]
pub enum Kind {
    /// A module with all its parts, also of later openings.
    Module(Vec<DefinitionId>),
    /// An interface.
    Interface(Interface),
    /// A value type.
    Value(Value),
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
    /// An enumerator: of which enumeration, and its number.
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
    Operation(Operation),
    /// An attribute.
    Attribute(Attribute),
    /// A user-defined annotation.
    Annotation,
}

/// A set of flags.
#[derive(Debug)]
pub struct Bitmask {
    /// How many bits it takes: 1 to 64.
    pub bound: u32,
    /// The flags with the positions of their bits, 0 the lowest.
    pub flags: Vec<(Symbol, u8)>,
}

/// A set of bit fields.
#[derive(Debug)]
pub struct Bitset {
    /// The bit set it extends: its fields come first.
    pub base: Option<DefinitionId>,
    /// Its own fields, the lowest first.
    pub fields: Vec<BitField>,
    /// How many bits it takes, those of its base included.
    pub bits: u32,
}

/// A field of a bit set.
#[derive(Debug)]
pub struct BitField {
    /// Its name; none for bits that are left free.
    pub name: Option<Symbol>,
    /// Where its name or its width stands.
    pub span: Span,
    /// How many bits it has.
    pub width: u8,
    /// Its type in programs, where the text gives one.
    pub ty: Option<Type>,
}

/// An interface.
#[derive(Debug)]
pub struct Interface {
    /// `abstract`, `local` or neither.
    pub flavor: Flavor,
    /// Whether it has a body.
    pub defined: bool,
    /// Its direct bases.
    pub bases: Vec<DefinitionId>,
    /// What is defined in it, in order: operations and attributes too.
    pub members: Vec<DefinitionId>,
}

/// A value type.
#[derive(Debug)]
pub struct Value {
    /// `abstract`, `custom` or neither.
    pub flavor: ValueFlavor,
    /// Whether it has a body.
    pub defined: bool,
    /// `truncatable`.
    pub truncatable: bool,
    /// Its direct bases, a concrete one first.
    pub bases: Vec<DefinitionId>,
    /// The interfaces it supports.
    pub supports: Vec<DefinitionId>,
    /// What is defined in it, in order.
    pub members: Vec<DefinitionId>,
    /// Its state, with whether it is public.
    pub state: Vec<(Member, bool)>,
    /// Its factories.
    pub factories: Vec<Operation>,
}

/// A structure or exception.
#[derive(Debug)]
pub struct Struct {
    /// Whether it has a body.
    pub defined: bool,
    /// Its base (IDL 4).
    pub base: Option<DefinitionId>,
    /// Its members.
    pub members: Vec<Member>,
    /// Types defined within it.
    pub inner: Vec<DefinitionId>,
}

/// A member of a structure, exception or value type.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub name: Symbol,
    /// Where.
    pub span: Span,
    /// Its type.
    pub ty: Type,
    /// Index of its first token.
    pub first_token: usize,
    /// Annotations in front of it.
    pub annotations: Vec<Annotation>,
}

/// A union.
#[derive(Debug)]
pub struct Union {
    /// Whether it has a body.
    pub defined: bool,
    /// The type of its discriminator.
    pub discriminator: Type,
    /// Its arms.
    pub arms: Vec<Arm>,
    /// Types defined within it.
    pub inner: Vec<DefinitionId>,
}

/// An arm of a union.
#[derive(Clone, Debug)]
pub struct Arm {
    /// Values of the discriminator that choose it.
    pub labels: Vec<ConstantValue>,
    /// Whether it is the default.
    pub default: bool,
    /// Its member.
    pub member: Member,
}

/// An operation.
#[derive(Debug)]
pub struct Operation {
    /// Its name.
    pub name: Symbol,
    /// Whether nobody waits for it.
    pub oneway: bool,
    /// Its result, `None` for `void`.
    pub result: Option<Type>,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// The exceptions it may raise.
    pub raises: Vec<DefinitionId>,
    /// Context properties it asks for.
    pub context: Vec<String>,
    /// `@wcet`: microseconds of processor time that it takes at most.
    pub worst_case: Option<u32>,
}

/// A parameter.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Which way it goes.
    pub direction: Direction,
    /// Its name.
    pub name: Symbol,
    /// Its type.
    pub ty: Type,
    /// Annotations in front of it.
    pub annotations: Vec<Annotation>,
}

/// An attribute.
#[derive(Debug)]
pub struct Attribute {
    /// Whether it cannot be set.
    pub readonly: bool,
    /// Its type.
    pub ty: Type,
    /// What reading it may raise.
    pub get_raises: Vec<DefinitionId>,
    /// What setting it may raise.
    pub set_raises: Vec<DefinitionId>,
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A type without parts.
    Basic(Basic),
    /// A string, perhaps wide, perhaps bounded.
    String(bool, Option<u32>),
    /// A fixed-point number: digits and scale.
    Fixed(u8, u8),
    /// A fixed-point constant.
    FixedConstant,
    /// A sequence, perhaps bounded.
    Sequence(Box<Type>, Option<u32>),
    /// A map, perhaps bounded.
    Map(Box<(Type, Type)>, Option<u32>),
    /// An array with its dimensions, outermost first.
    Array(Box<Type>, Vec<u32>),
    /// A definition: structure, union, enumeration, typedef, interface, value type, native type.
    Named(DefinitionId),
    /// Something that was refused.
    Faulty,
}

/// The value of a constant.
#[derive(Clone, Debug, PartialEq)]
pub enum ConstantValue {
    /// Of an integer type, or octet.
    Integer(i128),
    /// Of type `float` or `double`.
    Float(f64),
    /// Of type `long double`.
    LongDouble(Binary128),
    /// A fixed-point number: digits, and how many of them are behind the point.
    Fixed(i128, u32),
    /// A character, narrow or wide.
    Character(char),
    /// A string, narrow or wide.
    String(String),
    /// A truth value.
    Boolean(bool),
    /// An enumerator.
    Enumerator(DefinitionId),
    /// Something that was refused.
    Faulty,
}

impl Model {
    /// A definition.
    #[must_use]
    pub fn get(&self, id: DefinitionId) -> &Definition {
        &self.definitions[id.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, id: DefinitionId) -> &mut Definition {
        &mut self.definitions[id.0 as usize]
    }

    /// All definitions in the order of their first mention.
    pub fn ids(&self) -> impl Iterator<Item = DefinitionId> + use<> {
        (0..u32::try_from(self.definitions.len()).unwrap_or(u32::MAX)).map(DefinitionId)
    }

    /// The definitions that enclose one, outermost first, with itself at the end.
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

    /// The type behind all typedefs.
    #[must_use]
    pub fn resolved<'m>(&'m self, mut ty: &'m Type) -> &'m Type {
        while let Type::Named(id) = ty
            && let Kind::Typedef(of) = &self.get(*id).kind
        {
            ty = match self.get(*id).last_alias.map(|last| &self.get(last).kind) {
                Some(Kind::Typedef(of)) => of,
                _ => of,
            };
        }
        ty
    }

    /// The definition that a type names behind all typedefs.
    #[must_use]
    pub fn resolved_definition(&self, ty: &Type) -> Option<DefinitionId> {
        match self.resolved(ty) {
            Type::Named(id) => Some(*id),
            _ => None,
        }
    }

    /// All members of a structure, those of its base first.
    #[must_use]
    pub fn all_members(&self, structure: &Struct) -> Vec<Member> {
        let base = structure.base.and_then(|base| match &self.get(base).kind {
            Kind::Struct(base) => Some(self.all_members(base)),
            _ => None,
        });
        base.unwrap_or_default().into_iter().chain(structure.members.iter().cloned()).collect()
    }

    /// All fields of a bit set, those of its base first.
    #[must_use]
    pub fn bit_fields(&self, id: DefinitionId) -> Vec<&BitField> {
        let Kind::Bitset(bitset) = &self.get(id).kind else { return Vec::new() };
        let base = bitset.base.map_or_else(Vec::new, |base| self.bit_fields(base));
        base.into_iter().chain(&bitset.fields).collect()
    }

    /// All bases of an interface or value type: each once, nearer ones first, without itself.
    #[must_use]
    pub fn all_bases(&self, id: DefinitionId) -> Vec<DefinitionId> {
        let direct = match &self.get(id).kind {
            Kind::Interface(interface) => &interface.bases,
            Kind::Value(value) => &value.bases,
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
                    Kind::Interface(interface) => &interface.bases,
                    Kind::Value(value) => &value.bases,
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

/// Definitions seen: few as a rule, and then a list is faster than a table.
#[derive(Default)]
struct Seen {
    few: Vec<DefinitionId>,
    many: HashSet<DefinitionId>,
}

impl Seen {
    /// Where a table becomes faster.
    const FEW: usize = 32;

    /// Whether it is the first time.
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
