//! Transmission code sets: which octets carry the characters of a connection (CORBA 3.0.3 section 13.10).
//!
//! | | GIOP 1.0 | GIOP 1.1 | GIOP 1.2 |
//! |---|---|---|---|
//! | char | ISO 8859-1 | one octet of the set for char | the same |
//! | string | ISO 8859-1 | unsigned long n, octets, NUL; n counts octets and the NUL | the same |
//! | wchar | none | UTF-16: aligned unsigned short in the order of the message | octet n, n octets |
//! | wstring | none | unsigned long count of code units and the NUL, units, NUL | unsigned long n, n octets, no NUL |
//!
//! UTF-16 in GIOP 1.2 that begins with a byte-order mark (FE FF or FF FE) follows it; without one it is big-endian,
//! whatever the order of the message, unless the peer is known to break this rule ([`WideOrder::Sender`]). What is
//! written here has no mark and is big-endian, which every peer reads.

mod context;
mod negotiate;

pub use context::CodeSetContext;
pub use negotiate::{CodeSetComponent, CodeSetInfo, Incompatible, negotiate};

/// Numbers of code sets in the OSF registry.
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
    /// ISO 8859-1: what holds without negotiation.
    #[default]
    Latin1,
    /// UTF-8.
    Utf8,
}

impl CharSet {
    /// The number in the registry.
    #[must_use]
    pub const fn id(self) -> u32 {
        match self {
            CharSet::Latin1 => id::ISO_8859_1,
            CharSet::Utf8 => id::UTF_8,
        }
    }

    /// The set with a number; ASCII is a part of both and read as UTF-8. `None` if it is not supported here.
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
pub enum WideSet {
    /// None: what holds without negotiation.
    #[default]
    None,
    /// UTF-16.
    Utf16,
}

impl WideSet {
    /// The number in the registry, 0 for none.
    #[must_use]
    pub const fn id(self) -> u32 {
        match self {
            WideSet::None => 0,
            WideSet::Utf16 => id::UTF_16,
        }
    }

    /// The set with a number. `None` if it is not supported here.
    #[must_use]
    pub const fn from_id(number: u32) -> Option<WideSet> {
        match number {
            0 => Some(WideSet::None),
            id::UTF_16 | id::UCS_2 => Some(WideSet::Utf16),
            _ => None,
        }
    }
}

/// The order of UTF-16 octets without a byte-order mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum WideOrder {
    /// Big-endian in GIOP 1.2, the order of the message in GIOP 1.1: as the specification says.
    #[default]
    Standard,
    /// The order of the message in GIOP 1.2 too: what a TAO without its code set library sends and expects.
    Sender,
}

/// The transmission code sets of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct CodeSets {
    /// For char and string.
    pub char: CharSet,
    /// For wchar and wstring.
    pub wchar: WideSet,
    /// How this peer orders wide octets.
    pub wide_order: WideOrder,
}

impl CodeSets {
    /// What holds without negotiation: ISO 8859-1 and nothing wide.
    pub const DEFAULT: CodeSets =
        CodeSets { char: CharSet::Latin1, wchar: WideSet::None, wide_order: WideOrder::Standard };
    /// ISO 8859-1 and UTF-16, the most usual pair.
    pub const LATIN1_UTF16: CodeSets = CodeSets { wchar: WideSet::Utf16, ..CodeSets::DEFAULT };
    /// UTF-8 and UTF-16.
    pub const UTF8_UTF16: CodeSets = CodeSets { char: CharSet::Utf8, ..CodeSets::LATIN1_UTF16 };
}
