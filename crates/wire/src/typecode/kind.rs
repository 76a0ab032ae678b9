//! The kinds of types.

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal $text:literal,)*) => {
        /// What a TypeCode describes (CORBA 3.0.3 section 15.3.5, table 15-2), with its number on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Kind {
            $($(#[$doc])* $name = $number,)*
        }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Kind] = &[$(Kind::$name,)*];

            /// The kind with a number.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Kind> {
                match number {
                    $($number => Some(Kind::$name),)*
                    _ => None,
                }
            }

            /// The name in IDL (`unsigned long`), or of what the kind is about (`struct`).
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Kind::$name => $text,)*
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
    /// `Principal`, long gone.
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
    /// One dimension of an array.
    Array = 20 "array",
    /// Another name for a type.
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
    /// A native type: never in a message.
    Native = 31 "native",
    /// An abstract interface.
    AbstractInterface = 32 "abstract interface",
    /// A local interface: never in a message as a value.
    LocalInterface = 33 "local interface",
    /// A component.
    Component = 34 "component",
    /// A home.
    Home = 35 "home",
    /// An event type.
    Event = 36 "eventtype",
}

impl Kind {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Whether the kind alone says everything: no parameters.
    #[must_use]
    pub const fn is_basic(self) -> bool {
        (self as u32) < 14 || matches!(self, Kind::LongLong | Kind::ULongLong | Kind::LongDouble | Kind::WChar)
    }

    /// Whether types of this kind have a repository id and a name.
    #[must_use]
    pub const fn has_id(self) -> bool {
        match self {
            Kind::Alias | Kind::ValueBox | Kind::Native => true,
            _ => self.has_members() || self.is_interface(),
        }
    }

    /// Whether it is an interface of some sort, with nothing but an id and a name.
    #[must_use]
    pub const fn is_interface(self) -> bool {
        matches!(self, Kind::ObjRef | Kind::AbstractInterface | Kind::LocalInterface | Kind::Component | Kind::Home)
    }

    /// Whether it has members.
    #[must_use]
    pub const fn has_members(self) -> bool {
        matches!(self, Kind::Struct | Kind::Union | Kind::Enum | Kind::Except | Kind::Value | Kind::Event)
    }

    /// Whether it has a content type: the elements, what an alias names, what a box holds.
    #[must_use]
    pub const fn has_content(self) -> bool {
        matches!(self, Kind::Sequence | Kind::Array | Kind::Alias | Kind::ValueBox)
    }

    /// Whether it can be the type of a member, an element or a parameter.
    #[must_use]
    pub const fn is_legitimate(self) -> bool {
        !matches!(self, Kind::Null | Kind::Void | Kind::Except)
    }

    /// Whether it can be the discriminator of a union, aliases aside.
    #[must_use]
    pub const fn is_discriminator(self) -> bool {
        match self {
            Kind::Boolean | Kind::Char | Kind::WChar | Kind::Octet | Kind::Enum => true,
            _ => self.is_integer(),
        }
    }

    /// Whether it is an integer type of IDL, octet aside.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        matches!(self, Kind::Short | Kind::Long | Kind::LongLong | Kind::UShort | Kind::ULong | Kind::ULongLong)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn numbers_have_no_holes() {
        for (index, kind) in (0u32..).zip(Kind::ALL) {
            assert_eq!((kind.number(), Kind::from_number(index)), (index, Some(*kind)));
        }
        assert_eq!(Kind::from_number(37), None);
        assert_eq!(Kind::from_number(u32::MAX), None);
    }
}
