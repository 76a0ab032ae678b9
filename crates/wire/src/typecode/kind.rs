//! The kinds of TypeCodes.

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal $text:literal,)*) => {
        /// The kind of a TypeCode (CORBA 3.0.3 section 15.3.5, table 15-2), with its number on the
        /// wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum TypeCodeKind {
            $($(#[$doc])* $name = $number,)*
        }

        impl TypeCodeKind {
            /// All kinds.
            pub const ALL: &'static [TypeCodeKind] = &[$(TypeCodeKind::$name,)*];

            /// Returns the kind with this number.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<TypeCodeKind> {
                match number {
                    $($number => Some(TypeCodeKind::$name),)*
                    _ => None,
                }
            }

            /// Returns the IDL name of the type (`unsigned long`) or of the construct (`struct`).
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(TypeCodeKind::$name => $text,)*
                }
            }
        }
    };
}

kinds! {
    /// No type.
    Null = 0 "null",
    /// No value.
    Void = 1 "void",
    /// `short`.
    Short = 2 "short",
    /// `long`.
    Long = 3 "long",
    /// `unsigned short`.
    UShort = 4 "unsigned short",
    /// `unsigned long`.
    ULong = 5 "unsigned long",
    /// `float`.
    Float = 6 "float",
    /// `double`.
    Double = 7 "double",
    /// `boolean`.
    Boolean = 8 "boolean",
    /// `char`.
    Char = 9 "char",
    /// `octet`.
    Octet = 10 "octet",
    /// `any`.
    Any = 11 "any",
    /// `CORBA::TypeCode`.
    TypeCode = 12 "CORBA::TypeCode",
    /// `Principal`, obsolete.
    Principal = 13 "Principal",
    /// An object reference.
    ObjRef = 14 "interface",
    /// A structure.
    Struct = 15 "struct",
    /// A union.
    Union = 16 "union",
    /// An enumeration.
    Enum = 17 "enum",
    /// `string`.
    String = 18 "string",
    /// A sequence.
    Sequence = 19 "sequence",
    /// An array of one dimension.
    Array = 20 "array",
    /// An alias of a type.
    Alias = 21 "typedef",
    /// An exception.
    Except = 22 "exception",
    /// `long long`.
    LongLong = 23 "long long",
    /// `unsigned long long`.
    ULongLong = 24 "unsigned long long",
    /// `long double`.
    LongDouble = 25 "long double",
    /// `wchar`.
    WChar = 26 "wchar",
    /// `wstring`.
    WString = 27 "wstring",
    /// `fixed`.
    Fixed = 28 "fixed",
    /// A value type.
    Value = 29 "valuetype",
    /// A boxed value.
    ValueBox = 30 "value box",
    /// A native type, never in a message.
    Native = 31 "native",
    /// An abstract interface.
    AbstractInterface = 32 "abstract interface",
    /// A local interface; its references are never in a message.
    LocalInterface = 33 "local interface",
    /// A component of the CORBA Component Model.
    Component = 34 "component",
    /// A home of the CORBA Component Model.
    Home = 35 "home",
    /// An event type of the CORBA Component Model.
    Event = 36 "eventtype",
}

impl TypeCodeKind {
    /// Returns the number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Returns true if a TypeCode of this kind has no parameters.
    #[must_use]
    pub const fn is_basic(self) -> bool {
        (self as u32) < 14
            || matches!(
                self,
                TypeCodeKind::LongLong | TypeCodeKind::ULongLong | TypeCodeKind::LongDouble | TypeCodeKind::WChar
            )
    }

    /// Returns true if types of this kind have a repository id and a name.
    #[must_use]
    pub const fn has_id(self) -> bool {
        match self {
            TypeCodeKind::Alias | TypeCodeKind::ValueBox | TypeCodeKind::Native => true,
            _ => self.has_members() || self.is_interface(),
        }
    }

    /// Returns true for every kind of interface.
    #[must_use]
    pub const fn is_interface(self) -> bool {
        matches!(
            self,
            TypeCodeKind::ObjRef
                | TypeCodeKind::AbstractInterface
                | TypeCodeKind::LocalInterface
                | TypeCodeKind::Component
                | TypeCodeKind::Home
        )
    }

    /// Returns true if the encoder always writes a repeated type of this kind as an indirection.
    /// Descriptions of other kinds are repeated where possible, because TAO refuses indirections to
    /// them with MARSHAL.
    #[must_use]
    pub(crate) const fn is_sent_as_indirection(self) -> bool {
        matches!(
            self,
            TypeCodeKind::Struct
                | TypeCodeKind::Union
                | TypeCodeKind::Value
                | TypeCodeKind::Event
                | TypeCodeKind::Alias
        )
    }

    /// Returns true if types of this kind have members.
    #[must_use]
    pub const fn has_members(self) -> bool {
        matches!(
            self,
            TypeCodeKind::Struct
                | TypeCodeKind::Union
                | TypeCodeKind::Enum
                | TypeCodeKind::Except
                | TypeCodeKind::Value
                | TypeCodeKind::Event
        )
    }

    /// Returns true if types of this kind have a content type: the element, aliased or boxed type.
    #[must_use]
    pub const fn has_content(self) -> bool {
        matches!(self, TypeCodeKind::Sequence | TypeCodeKind::Array | TypeCodeKind::Alias | TypeCodeKind::ValueBox)
    }

    /// Returns true if a member, element or parameter can have a type of this kind.
    #[must_use]
    pub const fn can_be_member(self) -> bool {
        !matches!(self, TypeCodeKind::Null | TypeCodeKind::Void | TypeCodeKind::Except)
    }

    /// Returns true if a union's discriminator can have a type of this kind, not counting aliases.
    #[must_use]
    pub const fn is_discriminator(self) -> bool {
        match self {
            TypeCodeKind::Boolean
            | TypeCodeKind::Char
            | TypeCodeKind::WChar
            | TypeCodeKind::Octet
            | TypeCodeKind::Enum => true,
            _ => self.is_integer(),
        }
    }

    /// Returns true for an IDL integer type except octet.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        matches!(
            self,
            TypeCodeKind::Short
                | TypeCodeKind::Long
                | TypeCodeKind::LongLong
                | TypeCodeKind::UShort
                | TypeCodeKind::ULong
                | TypeCodeKind::ULongLong
        )
    }
}

impl std::fmt::Display for TypeCodeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::TypeCodeKind;

    #[test]
    fn numbers_have_no_holes() {
        for (index, kind) in (0u32..).zip(TypeCodeKind::ALL) {
            assert_eq!((kind.number(), TypeCodeKind::from_number(index)), (index, Some(*kind)));
        }
        assert_eq!(TypeCodeKind::from_number(37), None);
        assert_eq!(TypeCodeKind::from_number(u32::MAX), None);
    }
}
