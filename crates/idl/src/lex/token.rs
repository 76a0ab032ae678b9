use crate::source::Span;
use crate::symbol::Symbol;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TokenKind {
    Identifier,
    /// A preprocessor number; the parser determines its type.
    Number,
    /// A character literal with its quotes and, if wide, its `L`.
    Character,
    /// A string literal with its quotes and, if wide, its `L`.
    String,
    /// A punctuator or operator.
    Punctuation(Punctuation),
    Unknown,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Punctuation {
    Semicolon,
    OpenBrace,
    CloseBrace,
    OpenParenthesis,
    CloseParenthesis,
    OpenBracket,
    CloseBracket,
    Less,
    Greater,
    Comma,
    Colon,
    ColonColon,
    Equal,
    Plus,
    Minus,
    Star,
    Slash,
    Percent,
    Tilde,
    Caret,
    Ampersand,
    Bar,
    LessLess,
    GreaterGreater,
    At,
    Hash,
    HashHash,
    Exclamation,
    EqualEqual,
    NotEqual,
    LessEqual,
    GreaterEqual,
    AndAnd,
    OrOr,
    Question,
    Dot,
    Ellipsis,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) starts_line: bool,
    pub(crate) spaced: bool,
    /// True for the name of a macro in that macro's own expansion, which must not be expanded
    /// again.
    pub(crate) painted: bool,
    pub(crate) text: Symbol,
    /// The token's location, or for a token from a macro the location of the macro's use.
    pub(crate) span: Span,
}

impl Token {
    #[must_use]
    pub(crate) fn is(&self, punctuation: Punctuation) -> bool {
        self.kind == TokenKind::Punctuation(punctuation)
    }
}
