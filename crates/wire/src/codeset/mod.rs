//! Transmission code sets: the encoding of characters on a connection (CORBA 3.0.3 section 13.10).
//!
//! | | GIOP 1.0 | GIOP 1.1 | GIOP 1.2 |
//! |---|---|---|---|
//! | char | ISO 8859-1 | one octet of the set for char | as in GIOP 1.1 |
//! | string | ISO 8859-1 | unsigned long n, octets, NUL; n counts octets and the NUL | as in GIOP 1.1 |
//! | wchar | none | UTF-16: aligned unsigned short in the order of the message | octet n, n octets |
//! | wstring | none | unsigned long count of code units and the NUL, units, NUL | unsigned long n, n octets, no NUL |
//!
//! UTF-16 in GIOP 1.2 may begin with a byte-order mark (FE FF or FF FE), which gives its byte
//! order. Text without a mark is big-endian in a message of either byte order. Only text of a peer
//! that is known to break this rule may be little-endian without a mark
//! ([`WideByteOrder::MessageOrder`]). If the first character of the text looks like a mark (U+FEFF,
//! U+FFFE), the encoder adds a mark, because a reader removes the first mark.

mod context;
mod negotiate;

pub use context::CodeSetContext;
pub use negotiate::{CodeSetComponent, CodeSetInfo, NoCommonCodeSet, negotiate};

/// The numbers of code sets in the OSF registry.
pub mod id {
    /// ISO 8859-1.
    pub const ISO_8859_1: u32 = 0x0001_0001;
    /// ISO 646 IRV: ASCII.
    pub const ISO_646: u32 = 0x0001_0020;
    /// UCS-2, level 1.
    pub const UCS_2: u32 = 0x0001_0100;
    /// UTF-16.
    pub const UTF_16: u32 = 0x0001_0109;
    /// UTF-8.
    pub const UTF_8: u32 = 0x0501_0001;
}

/// A transmission code set for char and string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CharSet {
    /// ISO 8859-1, which a connection uses if no code set was negotiated.
    #[default]
    Latin1,
    /// UTF-8.
    Utf8,
}

impl CharSet {
    /// Returns the code set's number in the OSF registry.
    #[must_use]
    pub const fn id(self) -> u32 {
        match self {
            CharSet::Latin1 => id::ISO_8859_1,
            CharSet::Utf8 => id::UTF_8,
        }
    }

    /// Returns the code set with this number, or `None` if it is not supported. ASCII is read as
    /// UTF-8.
    #[must_use]
    pub const fn from_id(number: u32) -> Option<CharSet> {
        match number {
            id::ISO_8859_1 => Some(CharSet::Latin1),
            id::UTF_8 | id::ISO_646 => Some(CharSet::Utf8),
            _ => None,
        }
    }
}

/// A transmission code set for wchar and wstring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum WideCodeSet {
    /// No code set, so wide characters cannot be sent. A connection is in this state until a code
    /// set is negotiated.
    #[default]
    None,
    /// UTF-16.
    Utf16,
}

impl WideCodeSet {
    /// Returns the code set's number in the OSF registry; 0 for none.
    #[must_use]
    pub const fn id(self) -> u32 {
        match self {
            WideCodeSet::None => 0,
            WideCodeSet::Utf16 => id::UTF_16,
        }
    }

    /// Returns the code set with this number, or `None` if it is not supported. UCS-2 is read as
    /// UTF-16.
    #[must_use]
    pub const fn from_id(number: u32) -> Option<WideCodeSet> {
        match number {
            0 => Some(WideCodeSet::None),
            id::UTF_16 | id::UCS_2 => Some(WideCodeSet::Utf16),
            _ => None,
        }
    }
}

/// The byte order of UTF-16 without a byte-order mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum WideByteOrder {
    /// The specification's order: big-endian in GIOP 1.2, the order of the message in GIOP 1.1.
    #[default]
    SpecifiedOrder,
    /// The byte order of the message, in GIOP 1.1 and in GIOP 1.2. TAO without its code set library
    /// sends and expects this order.
    MessageOrder,
}

/// The transmission code sets of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct CodeSets {
    /// The code set for char and string.
    pub char: CharSet,
    /// The code set for wchar and wstring.
    pub wchar: WideCodeSet,
    /// The peer's byte order of UTF-16 without a byte-order mark.
    pub wide_order: WideByteOrder,
}

impl CodeSets {
    /// The code sets without negotiation: ISO 8859-1, and none for wide characters.
    pub const DEFAULT: CodeSets =
        CodeSets { char: CharSet::Latin1, wchar: WideCodeSet::None, wide_order: WideByteOrder::SpecifiedOrder };
    /// ISO 8859-1 for char, and UTF-16 for wchar.
    pub const LATIN1_UTF16: CodeSets = CodeSets { wchar: WideCodeSet::Utf16, ..CodeSets::DEFAULT };
    /// UTF-8 and UTF-16.
    pub const UTF8_UTF16: CodeSets = CodeSets { char: CharSet::Utf8, ..CodeSets::LATIN1_UTF16 };
}
