//! The syntax tree: the declarations as written, before names are looked up.
//!
//! The parser refuses components, homes, event types, ports and template modules, so the tree has
//! no nodes for them.

use crate::binary128::Binary128;
use crate::lex::token::Token;
use crate::source::Span;
use crate::symbol::Symbol;

/// An identifier as written, without its escaping underscore.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// The name itself.
    pub symbol: Symbol,
    /// The name's location.
    pub span: Span,
}

/// `A::B` or `::A::B`.
#[derive(Clone, Debug)]
pub struct ScopedName {
    /// True if the name starts with `::`.
    pub is_absolute: bool,
    /// The identifiers, at least one.
    pub parts: Vec<Name>,
    /// The name's location.
    pub span: Span,
}

/// A declaration with its annotations.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// The declared item.
    pub kind: DeclarationKind,
    /// The declaration's annotations.
    pub annotations: Vec<Annotation>,
    /// Index of the declaration's first token, used to find the comments in front of it.
    pub first_token: usize,
}

/// The kinds of declarations.
#[derive(Clone, Debug)]
pub enum DeclarationKind {
    /// `module M { ... };`
    Module(Name, Vec<Declaration>, Span),
    /// `interface I : B { ... };`
    Interface(Interface),
    /// `interface I;`
    InterfaceForward(InterfaceFlavor, Name),
    /// `valuetype V ... { ... };`
    Value(ValueDeclaration),
    /// `valuetype V;`
    ValueForward(ValueFlavor, Name),
    /// `valuetype V long;`
    ValueBox(Name, Type),
    /// `struct S { ... };`
    Struct(Struct),
    /// `struct S;` or `union U;`
    Forward(Name, ForwardKind),
    /// `exception E { ... };`
    Exception(Struct),
    /// `union U switch (T) { ... };`
    Union(Union),
    /// `enum E { ... };`
    Enum(Enum),
    /// `typedef T A, B[3];`
    Typedef(Type, Vec<Declarator>),
    /// `const T C = 1;`
    Constant(Type, Name, Expression),
    /// `native N;`
    Native(Name),
    /// `bitset B { ... };`
    Bitset(Bitset),
    /// `bitmask B { ... };`
    Bitmask(Name, Vec<BitmaskFlag>),
    /// `@annotation N { ... };`
    AnnotationType(AnnotationType),
    /// An operation of an interface or value type.
    Operation(OperationDeclaration),
    /// `attribute T a, b;`
    Attribute(Attribute),
    /// `public T a;` in a value type.
    State(StateMember),
    /// `factory f (...);` in a value type.
    Factory(Name, Vec<Parameter>, Vec<ScopedName>),
    /// `typeid N "...";`
    TypeId(ScopedName, StringLiteral),
    /// `typeprefix N "...";`
    TypePrefix(ScopedName, StringLiteral),
    /// `import N;`
    Import(Span),
    /// An included file begins.
    EnterFile,
    /// An included file ends.
    LeaveFile,
    /// `#pragma ...`
    Pragma(Pragma),
}

/// The text of a pragma.
#[derive(Clone, Debug)]
pub struct Pragma {
    /// The pragma's location.
    pub span: Span,
    pub(crate) tokens: Vec<Token>,
}

/// One or more adjacent string literals after evaluation.
#[derive(Clone, Debug)]
pub struct StringLiteral {
    /// The characters, with escapes replaced.
    pub value: String,
    /// The text's location.
    pub span: Span,
}

/// `@name`, `@name(1)` or `@name(a = 1, b = 2)`.
#[derive(Clone, Debug)]
pub struct Annotation {
    /// The annotation's name.
    pub name: ScopedName,
    /// The annotation's arguments, each with its name if one is written.
    pub arguments: Vec<(Option<Name>, Expression)>,
}

/// `abstract`, `local` or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterfaceFlavor {
    /// Neither `abstract` nor `local`: objects of the interface may be remote.
    Remote,
    /// `local`.
    Local,
    /// `abstract`.
    Abstract,
}

/// An interface with its body.
#[derive(Clone, Debug)]
pub struct Interface {
    /// `abstract`, `local` or neither.
    pub flavor: InterfaceFlavor,
    /// The interface's name.
    pub name: Name,
    /// The interface's direct bases.
    pub bases: Vec<ScopedName>,
    /// The interface's declarations.
    pub body: Vec<Declaration>,
    /// The interface's closing brace.
    pub end: Span,
}

/// `abstract`, `custom` or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueFlavor {
    /// Neither `abstract` nor `custom`.
    Plain,
    /// `custom`.
    Custom,
    /// `abstract`.
    Abstract,
}

/// A value type with its body.
#[derive(Clone, Debug)]
pub struct ValueDeclaration {
    /// `abstract`, `custom` or neither.
    pub flavor: ValueFlavor,
    /// The value type's name.
    pub name: Name,
    /// The location of `truncatable`, if present.
    pub truncatable: Option<Span>,
    /// The direct bases.
    pub bases: Vec<ScopedName>,
    /// The supported interfaces.
    pub supports: Vec<ScopedName>,
    /// The value type's declarations.
    pub body: Vec<Declaration>,
    /// The value type's closing brace.
    pub end: Span,
}

/// One line of state members of a value type: `public T a, b;`.
#[derive(Clone, Debug)]
pub struct StateMember {
    /// True for `public`, false for `private`.
    pub is_public: bool,
    /// The state members' type.
    pub ty: Type,
    /// The state members' names.
    pub declarators: Vec<Declarator>,
}

/// A structure or an exception.
#[derive(Clone, Debug)]
pub struct Struct {
    /// The struct's name.
    pub name: Name,
    /// The struct's base (IDL 4).
    pub base: Option<ScopedName>,
    /// The struct's members.
    pub members: Vec<Member>,
    /// True if the parser refused some of the members.
    pub is_faulty: bool,
    /// The struct's closing brace.
    pub end: Span,
}

/// `T a, b[3];`
#[derive(Clone, Debug)]
pub struct Member {
    /// The type.
    pub ty: Type,
    /// The names.
    pub declarators: Vec<Declarator>,
    /// The member's annotations.
    pub annotations: Vec<Annotation>,
    /// Index of the member's first token.
    pub first_token: usize,
}

/// `a` or `a[2][3]`.
#[derive(Clone, Debug)]
pub struct Declarator {
    /// The name.
    pub name: Name,
    /// The dimensions, outermost first.
    pub dimensions: Vec<Expression>,
}

/// The kind of type that a forward declaration announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForwardKind {
    /// A structure.
    Struct,
    /// A union.
    Union,
}

/// A union.
#[derive(Clone, Debug)]
pub struct Union {
    /// The union's name.
    pub name: Name,
    /// The discriminator's type.
    pub discriminator: Box<Type>,
    /// The union's arms.
    pub arms: Vec<Arm>,
    /// The union's closing brace.
    pub end: Span,
}

/// `case 1: case 2: T a;`
#[derive(Clone, Debug)]
pub struct Arm {
    /// The arm's labels.
    pub labels: Vec<CaseLabel>,
    /// The member's type.
    pub ty: Type,
    /// The member's name.
    pub declarator: Declarator,
    /// Index of the first token of the member.
    pub first_token: usize,
}

/// `case X:` or `default:`.
#[derive(Clone, Debug)]
pub enum CaseLabel {
    /// `case X:`
    Case(Expression),
    /// `default:`
    Default(Span),
}

/// An enumeration.
#[derive(Clone, Debug)]
pub struct Enum {
    /// The enum's name.
    pub name: Name,
    /// The enum's enumerators, each with its token index and its annotations.
    pub enumerators: Vec<(Name, usize, Vec<Annotation>)>,
}

/// A bit set (IDL 4).
#[derive(Clone, Debug)]
pub struct Bitset {
    /// The bitset's name.
    pub name: Name,
    /// The bitset's base.
    pub base: Option<ScopedName>,
    /// The bitset's fields.
    pub fields: Vec<BitsetField>,
}

/// `bitfield<3, octet> a, b;`
#[derive(Clone, Debug)]
pub struct BitsetField {
    /// The number of bits.
    pub width: Expression,
    /// The type, if given.
    pub ty: Option<Type>,
    /// The names; empty for unused bits.
    pub names: Vec<Name>,
}

/// A flag of a bit mask (IDL 4).
#[derive(Clone, Debug)]
pub struct BitmaskFlag {
    /// The flag's name.
    pub name: Name,
    /// The annotations in front of the flag, such as `@position(...)`.
    pub annotations: Vec<Annotation>,
}

/// `@annotation N { ... };`
#[derive(Clone, Debug)]
pub struct AnnotationType {
    /// The annotation type's name.
    pub name: Name,
    /// Types and constants declared in the annotation type.
    pub body: Vec<Declaration>,
    /// The annotation type's members.
    pub members: Vec<AnnotationMember>,
}

/// `long level default 1;` in an annotation.
#[derive(Clone, Debug)]
pub struct AnnotationMember {
    /// The type.
    pub ty: Type,
    /// The name.
    pub name: Name,
    /// The default value.
    pub default: Option<Expression>,
}

/// `in`, `out` or `inout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The client passes the value to the server.
    In,
    /// The server passes the value to the client.
    Out,
    /// The client passes the value to the server, which passes it back.
    InOut,
}

/// A parameter of an operation.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// The direction, and the location of its keyword.
    pub direction: (Direction, Span),
    /// The parameter's type.
    pub ty: Type,
    /// The parameter's name.
    pub name: Name,
}

/// An operation.
#[derive(Clone, Debug)]
pub struct OperationDeclaration {
    /// The location of `oneway`, if present.
    pub oneway: Option<Span>,
    /// Type of the result.
    pub result: Type,
    /// The operation's name.
    pub name: Name,
    /// The operation's parameters.
    pub parameters: Vec<Parameter>,
    /// `raises (...)`.
    pub raises: Vec<ScopedName>,
    /// `context (...)`.
    pub context: Vec<StringLiteral>,
}

/// One or more attributes.
#[derive(Clone, Debug)]
pub struct Attribute {
    /// True if `readonly`.
    pub is_readonly: bool,
    /// The attribute's type.
    pub ty: Type,
    /// The attribute's names.
    pub names: Vec<Name>,
    /// `raises` of a read-only attribute, `getraises` of a writable one.
    pub get_raises: Vec<ScopedName>,
    /// `setraises`.
    pub set_raises: Vec<ScopedName>,
}

/// A type as written.
#[derive(Clone, Debug)]
pub struct Type {
    /// The type's annotations.
    pub annotations: Vec<Annotation>,
    /// The kind of type.
    pub kind: TypeKind,
    /// The type's location.
    pub span: Span,
}

/// The kinds of types as written.
#[derive(Clone, Debug)]
pub enum TypeKind {
    /// A type without parameters.
    Basic(BasicType),
    /// `string<n>` or `wstring<n>`; the flag is true for `wstring`.
    String(bool, Option<Box<Expression>>),
    /// `fixed<d,s>`; numbers are absent only in constant declarations.
    Fixed(Option<Box<(Expression, Expression)>>),
    /// `sequence<T,n>`.
    Sequence(Box<Type>, Option<Box<Expression>>),
    /// `map<K,V,n>` (IDL 4).
    Map(Box<(Type, Type)>, Option<Box<Expression>>),
    /// A name.
    Named(ScopedName),
    /// A structure, union or enumeration that is defined where it is used.
    Inline(Box<Declaration>),
}

/// A type without parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named as in IDL")]
pub enum BasicType {
    Void,
    Short,
    UShort,
    Long,
    ULong,
    LongLong,
    ULongLong,
    Int8,
    UInt8,
    Float,
    Double,
    LongDouble,
    Char,
    WChar,
    Boolean,
    Octet,
    Any,
    Object,
    ValueBase,
}

impl BasicType {
    /// Returns the IDL name.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Void => "void",
            Self::Short => "short",
            Self::UShort => "unsigned short",
            Self::Long => "long",
            Self::ULong => "unsigned long",
            Self::LongLong => "long long",
            Self::ULongLong => "unsigned long long",
            Self::Int8 => "int8",
            Self::UInt8 => "uint8",
            Self::Float => "float",
            Self::Double => "double",
            Self::LongDouble => "long double",
            Self::Char => "char",
            Self::WChar => "wchar",
            Self::Boolean => "boolean",
            Self::Octet => "octet",
            Self::Any => "any",
            Self::Object => "Object",
            Self::ValueBase => "ValueBase",
        }
    }
}

/// A constant expression.
#[derive(Clone, Debug)]
pub struct Expression {
    /// The kind of expression.
    pub kind: ExpressionKind,
    /// The expression's location.
    pub span: Span,
}

/// The kinds of constant expressions.
#[derive(Clone, Debug)]
pub enum ExpressionKind {
    /// An integer literal.
    Integer(u64),
    /// A floating-point literal: as a `double`, which may be infinite, and as a `long double`.
    Float(f64, Binary128),
    /// A fixed-point literal: its digits without the point, and the number of digits after the
    /// point.
    Fixed(u128, u32),
    /// A character literal; the flag is true if wide.
    Character(char, bool),
    /// A string literal; the flag is true if wide.
    String(String, bool),
    /// `TRUE` or `FALSE`.
    Boolean(bool),
    /// The name of a constant or an enumerator.
    Named(ScopedName),
    /// `-x`, `+x`, `~x`.
    Unary(UnaryOperator, Box<Expression>),
    /// `x + y` and so on.
    Binary(BinaryOperator, Box<(Expression, Expression)>),
    /// No expression: the source has an error, which was reported.
    Faulty,
}

/// An operator with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named as in arithmetic")]
pub enum UnaryOperator {
    Plus,
    Minus,
    Complement,
}

/// An operator with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named as in arithmetic")]
pub enum BinaryOperator {
    Or,
    Xor,
    And,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl BinaryOperator {
    /// Returns true if the operator also accepts fractional numbers.
    #[must_use]
    pub fn is_arithmetic(self) -> bool {
        matches!(self, Self::Add | Self::Subtract | Self::Multiply | Self::Divide)
    }
}
