//! Tokens.

use crate::source::Span;
use crate::symbol::Symbol;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TokenKind {
    /// An identifier or a keyword.
    Identifier,
    /// A number as the preprocessor sees it; the parser finds out which kind.
    Number,
    /// A character literal with its quotes and, for a wide one, its `L`.
    Character,
    /// A string literal with its quotes and, for a wide one, its `L`.
    String,
    /// A mark or operator.
    Punctuation(Punctuation),
    /// A character that no token of IDL starts with.
    Unknown,
    /// The end of the text.
    End,
}

/// A mark or an operator; what C++ has and IDL has not serves the preprocessor's conditions.
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

/// One token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    /// What it is.
    pub(crate) kind: TokenKind,
    /// Whether it is the first on its line.
    pub(crate) starts_line: bool,
    /// Whether white space or a comment stands before it.
    pub(crate) spaced: bool,
    /// Whether it is the name of a macro that must not be expanded any more (it came out of that macro).
    pub(crate) painted: bool,
    /// The text of an identifier or literal, empty for the others.
    pub(crate) text: Symbol,
    /// Where it stands; behind a macro, where the macro is used.
    pub(crate) span: Span,
}

impl Token {
    /// Whether this is the given mark.
    #[must_use]
    pub(crate) fn is(&self, punctuation: Punctuation) -> bool {
        self.kind == TokenKind::Punctuation(punctuation)
    }
}
