//! Interned texts: a number represents each identifier and literal.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;

/// An interned text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(u32);

impl Symbol {
    /// The empty text.
    pub const EMPTY: Self = Self(0);

    /// Returns the keyword with exactly this spelling.
    #[must_use]
    pub fn keyword(self) -> Option<Keyword> {
        KEYWORDS.get((self.0 as usize).wrapping_sub(1)).map(|(_, keyword)| *keyword)
    }
}

/// A map by symbol. A hash of one multiplication suffices, because hostile input cannot choose the
/// numbers of symbols.
pub(crate) type SymbolMap<T> = HashMap<Symbol, T, std::hash::BuildHasherDefault<SymbolHasher>>;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SymbolHasher(u64);

impl Hasher for SymbolHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        for octet in octets {
            self.write_u32(u32::from(*octet));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

/// The table of interned texts.
#[derive(Clone, Debug)]
pub struct Symbols {
    texts: Vec<SymbolEntry>,
    index: HashMap<Cow<'static, str>, Symbol, TextHashing>,
    case_sensitive: bool,
}

/// The hash function of texts. Its random start value prevents hostile input with colliding texts.
#[derive(Clone, Copy, Debug)]
struct TextHashing(u64);

impl Default for TextHashing {
    fn default() -> Self {
        Self(std::collections::hash_map::RandomState::new().hash_one(0))
    }
}

impl BuildHasher for TextHashing {
    type Hasher = TextHasher;

    fn build_hasher(&self) -> TextHasher {
        TextHasher(self.0)
    }
}

struct TextHasher(u64);

impl Hasher for TextHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        let (chunks, rest) = octets.as_chunks::<8>();
        for chunk in chunks {
            self.mix(u64::from_le_bytes(*chunk));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last) ^ ((octets.len() as u64) << 56));
    }

    /// Ignores the terminator that `str` adds, because each text is hashed alone and with its
    /// length.
    fn write_u8(&mut self, _: u8) {}
}

impl TextHasher {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        #[expect(clippy::cast_possible_truncation, reason = "the halves of a product")]
        let (low, high) = (product as u64, (product >> 64) as u64);
        self.0 = low ^ high ^ self.0.rotate_left(23);
    }
}

const OF_THE_PREPROCESSOR: &[&str] = &[
    "defined",
    "directive",
    "__VA_ARGS__",
    "__FILE__",
    "__LINE__",
    "_Pragma",
    "0",
    "1",
    "__CORELANE_IDL__",
    "__OMNIIDL__",
    "__STDC__",
    "__DATE__",
    "__TIME__",
];

#[derive(Clone, Debug)]
struct SymbolEntry {
    text: Cow<'static, str>,
    folded: Symbol,
    keyword: Option<Keyword>,
}

impl Default for Symbols {
    fn default() -> Self {
        // The keywords are interned once and then cloned, which is faster.
        static KNOWN: LazyLock<Symbols> = LazyLock::new(Symbols::known);
        KNOWN.clone()
    }
}

impl Symbols {
    fn known() -> Self {
        let mut symbols = Self { texts: Vec::new(), index: HashMap::default(), case_sensitive: false };
        symbols.add(Cow::Borrowed(""));
        // Keywords come first, so that a symbol's number identifies its keyword.
        for (text, _) in KEYWORDS {
            symbols.add(Cow::Borrowed(text));
        }
        for (at, (text, keyword)) in KEYWORDS.iter().enumerate() {
            let folded = symbols.intern(&text.to_ascii_lowercase());
            symbols.texts[at + 1].folded = folded;
            symbols.texts[at + 1].keyword = Some(*keyword);
            symbols.texts[folded.0 as usize].keyword = Some(*keyword);
        }
        for text in OF_THE_PREPROCESSOR {
            symbols.keep(Cow::Borrowed(text));
        }
        symbols
    }

    /// Returns the symbol of a text. Adds the text if it is absent.
    pub fn intern(&mut self, text: &str) -> Symbol {
        if let Some(symbol) = self.index.get(text) {
            return *symbol;
        }
        self.keep(Cow::Owned(text.to_owned()))
    }

    fn keep(&mut self, text: Cow<'static, str>) -> Symbol {
        let folded = text.bytes().any(|octet| octet.is_ascii_uppercase()).then(|| text.to_ascii_lowercase());
        let symbol = self.add(text);
        if let Some(folded) = folded {
            let folded = self.intern(&folded);
            let keyword = self.texts[folded.0 as usize].keyword;
            let entry = &mut self.texts[symbol.0 as usize];
            (entry.folded, entry.keyword) = (folded, keyword);
        }
        symbol
    }

    fn add(&mut self, text: Cow<'static, str>) -> Symbol {
        let symbol = Symbol(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        self.texts.push(SymbolEntry { text: text.clone(), folded: symbol, keyword: None });
        self.index.insert(text, symbol);
        symbol
    }

    /// Returns the text of a symbol.
    #[must_use]
    pub fn text(&self, symbol: Symbol) -> &str {
        &self.texts[symbol.0 as usize].text
    }

    /// Returns the symbol under which a scope stores a name: the lower-case text, or the text
    /// itself in case-sensitive mode. Names with equal folded symbols collide.
    #[must_use]
    pub fn case_folded(&self, symbol: Symbol) -> Symbol {
        if self.case_sensitive { symbol } else { self.lower_case(symbol) }
    }

    /// Returns the symbol of the text in lower case.
    #[must_use]
    pub fn lower_case(&self, symbol: Symbol) -> Symbol {
        self.texts[symbol.0 as usize].folded
    }

    pub(crate) fn keep_case(&mut self) {
        self.case_sensitive = true;
    }

    /// Returns true if names that differ only in case are distinct.
    #[must_use]
    pub fn is_case_sensitive(&self) -> bool {
        self.case_sensitive
    }

    /// Returns the keyword that equals the text of a symbol apart from case.
    #[must_use]
    pub fn keyword_ignoring_case(&self, symbol: Symbol) -> Option<Keyword> {
        self.texts[symbol.0 as usize].keyword
    }
}

macro_rules! keywords {
    ($($name:ident $text:literal)*) => {
        /// A keyword of CORBA 3 or IDL 4.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each variant is named like its keyword")]
        pub enum Keyword { $($name),* }

        const KEYWORDS: &[(&str, Keyword)] = &[$(($text, Keyword::$name)),*];

        impl Keyword {
            /// Returns the text of the keyword.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

keywords! {
    Abstract "abstract" Any "any" Attribute "attribute" Boolean "boolean" Case "case" Char "char" Const "const"
    Context "context" Custom "custom" Default "default" Double "double" Enum "enum" Exception "exception"
    Factory "factory" False "FALSE" Fixed "fixed" Float "float" In "in" Inout "inout" Interface "interface"
    Local "local" Long "long" Module "module" Native "native" Object "Object" Octet "octet" Oneway "oneway"
    Out "out" Private "private" Public "public" Raises "raises" Readonly "readonly" Sequence "sequence"
    Short "short" String "string" Struct "struct" Supports "supports" Switch "switch" True "TRUE"
    Truncatable "truncatable" Typedef "typedef" Union "union" Unsigned "unsigned" ValueBase "ValueBase"
    Valuetype "valuetype" Void "void" Wchar "wchar" Wstring "wstring"
    Component "component" Consumes "consumes" Emits "emits" Eventtype "eventtype" Finder "finder"
    Getraises "getraises" Home "home" Import "import" Manages "manages" Multiple "multiple"
    Primarykey "primarykey" Provides "provides" Publishes "publishes" Setraises "setraises" Typeid "typeid"
    Typeprefix "typeprefix" Uses "uses"
    Alias "alias" Bitfield "bitfield" Bitmask "bitmask" Bitset "bitset" Connector "connector" Int8 "int8"
    Int16 "int16" Int32 "int32" Int64 "int64" Map "map" Mirrorport "mirrorport" Port "port"
    Porttype "porttype" Typename "typename" Uint8 "uint8" Uint16 "uint16" Uint32 "uint32" Uint64 "uint64"
}

impl Keyword {
    /// Returns true if the word was a keyword before CORBA 3.
    #[must_use]
    pub fn is_reserved(self) -> bool {
        (self as usize) < Self::Component as usize
    }

    /// Returns true if the word became a keyword in CORBA 3 (components, type ids).
    #[must_use]
    pub fn is_from_corba_3(self) -> bool {
        !self.is_reserved() && (self as usize) < Self::Alias as usize
    }
}

#[cfg(test)]
mod tests {
    use super::{Keyword, Symbols};

    #[test]
    fn symbol_of_a_keyword_has_its_number() {
        let mut symbols = Symbols::default();
        let interface = symbols.intern("interface");
        assert_eq!(interface.keyword(), Some(Keyword::Interface));
        let spelled = symbols.intern("INTERFACE");
        assert_eq!(spelled.keyword(), None);
        assert_eq!(symbols.keyword_ignoring_case(spelled), Some(Keyword::Interface));
        let object = symbols.intern("object");
        assert_eq!((object.keyword(), symbols.keyword_ignoring_case(object)), (None, Some(Keyword::Object)));
        assert!(
            Keyword::Wstring.is_reserved() && !Keyword::Component.is_reserved() && !Keyword::Alias.is_from_corba_3()
        );
    }
}
