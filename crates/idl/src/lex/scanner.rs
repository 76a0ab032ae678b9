//! The scanner: turns the characters of one file into tokens.
//!
//! Invalid characters become [`TokenKind::Unknown`], and an unclosed literal ends early, with a
//! message. A backslash at the end of a line joins the next line to it, even within a token.

use super::token::{Punctuation as P, Token, TokenKind};
use crate::diagnostic::Diagnostic;
use crate::source::Span;
use crate::symbol::{Symbol, Symbols};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Comment {
    pub(crate) span: Span,
    pub(crate) trailing: bool,
}

const IN_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut octet = 0;
    while octet < 256 {
        table[octet] = matches!(octet as u8, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_');
        octet += 1;
    }
    table
};

#[derive(Debug)]
pub(crate) struct Scanner<'t> {
    text: &'t str,
    at: usize,
    base: u32,
    starts_line: bool,
    spaced: bool,
    line_has_token: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanPosition {
    at: usize,
    starts_line: bool,
}

impl ScanPosition {
    pub(crate) const START: Self = Self { at: 0, starts_line: true };

    pub(crate) fn starts_line(self) -> bool {
        self.starts_line
    }
}

#[derive(Debug, Default)]
pub(crate) struct ScanFindings {
    pub(crate) comments: Vec<Comment>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// True if comments and messages are omitted, as in a group that a condition excludes.
    pub(crate) skipping: bool,
}

impl<'t> Scanner<'t> {
    pub(crate) fn new(text: &'t str, base: u32, position: ScanPosition) -> Self {
        Self {
            text,
            at: position.at,
            base,
            starts_line: position.starts_line,
            spaced: false,
            line_has_token: !position.starts_line,
        }
    }

    pub(crate) fn position(&self) -> ScanPosition {
        ScanPosition { at: self.at, starts_line: self.starts_line }
    }

    /// Returns the next token. At the end of the text, every call returns [`TokenKind::End`] with
    /// `starts_line` set.
    pub(crate) fn next(&mut self, symbols: &mut Symbols, found: &mut ScanFindings) -> Token {
        self.skip_space(found);
        let start = self.at;
        let Some(first) = self.peek(0) else {
            self.starts_line = true;
            return self.token(TokenKind::End, Symbol::EMPTY, start);
        };
        match first {
            b'L' if matches!(self.peek(1), Some(b'"' | b'\'')) => {
                self.at += 1;
                self.literal(symbols, found, start)
            }
            b'"' | b'\'' => self.literal(symbols, found, start),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let rest = &self.text.as_bytes()[start..];
                self.at += rest.iter().position(|octet| !IN_NAME[usize::from(*octet)]).unwrap_or(rest.len());
                let text = match self.peek(0) {
                    Some(b'\\') => {
                        self.at = start;
                        self.run(symbols, |octet, _| IN_NAME[usize::from(octet)])
                    }
                    _ => symbols.intern(&self.text[start..self.at]),
                };
                self.token(TokenKind::Identifier, text, start)
            }
            b'0'..=b'9' => self.number(symbols, start),
            b'.' if self.peek(1).is_some_and(|next| next.is_ascii_digit()) => self.number(symbols, start),
            _ => self.punctuation(symbols, first, start),
        }
    }

    pub(crate) fn rest_of_line(&mut self) -> (&'t str, Span) {
        let start = self.at;
        let length = self.text[start..].find('\n').unwrap_or(self.text.len() - start);
        self.at += length;
        let text = self.text[start..self.at].trim_end_matches('\r');
        (text, self.span(start, start + text.len()))
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn span(&self, start: usize, end: usize) -> Span {
        let place = |at: usize| self.base + u32::try_from(at).unwrap_or(u32::MAX - self.base);
        Span { start: place(start), end: place(end) }
    }

    fn token(&mut self, kind: TokenKind, text: Symbol, start: usize) -> Token {
        let token = Token {
            kind,
            starts_line: self.starts_line,
            spaced: self.spaced,
            painted: false,
            text,
            span: self.span(start, self.at),
        };
        self.starts_line = false;
        self.line_has_token = true;
        self.spaced = false;
        token
    }

    /// Returns the length of a line splice at `at`: a backslash, an optional carriage return, a
    /// line feed.
    fn splice(&self, at: usize) -> usize {
        match self.text.as_bytes().get(at..) {
            Some([b'\\', b'\n', ..]) => 2,
            Some([b'\\', b'\r', b'\n', ..]) => 3,
            _ => 0,
        }
    }

    fn skip_space(&mut self, found: &mut ScanFindings) {
        while let Some(octet) = self.peek(0) {
            match octet {
                b'\n' => {
                    self.starts_line = true;
                    self.line_has_token = false;
                    self.at += 1;
                }
                b' ' => {
                    let rest = &self.text.as_bytes()[self.at..];
                    self.at += rest.iter().position(|octet| *octet != b' ').unwrap_or(rest.len());
                }
                b'\t' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'\\' if self.splice(self.at) > 0 => self.at += self.splice(self.at),
                b'/' if self.peek(1) == Some(b'/') => self.line_comment(found),
                b'/' if self.peek(1) == Some(b'*') => self.block_comment(found),
                _ => return,
            }
            self.spaced = true;
        }
    }

    fn line_comment(&mut self, found: &mut ScanFindings) {
        let start = self.at;
        loop {
            self.at += self.text[self.at..].find('\n').unwrap_or(self.text.len() - self.at);
            let spliced = self.text[start..self.at].trim_end_matches('\r').ends_with('\\');
            if !spliced || self.at == self.text.len() {
                break;
            }
            self.at += 1;
        }
        self.comment(found, start);
    }

    fn block_comment(&mut self, found: &mut ScanFindings) {
        let start = self.at;
        match self.text[start + 2..].find("*/") {
            Some(length) => self.at = start + 2 + length + 2,
            None => {
                self.at = self.text.len();
                let span = self.span(start, start + 2);
                found.report(
                    Diagnostic::error(span, "a comment has no end").label("begins here").help("close it with `*/`"),
                );
            }
        }
        self.comment(found, start);
    }

    fn comment(&self, found: &mut ScanFindings, start: usize) {
        if !found.skipping {
            found.comments.push(Comment { span: self.span(start, self.at), trailing: self.line_has_token });
        }
    }

    /// Reads bytes while `wanted(byte, previous byte)` is true, and interns them without line
    /// splices.
    fn run(&mut self, symbols: &mut Symbols, wanted: impl Fn(u8, u8) -> bool) -> Symbol {
        let start = self.at;
        let mut before = 0;
        while let Some(octet) = self.peek(0).filter(|octet| wanted(*octet, before)) {
            before = octet;
            self.at += 1;
        }
        if self.splice(self.at) == 0 {
            return symbols.intern(&self.text[start..self.at]);
        }
        let mut text = self.text[start..self.at].to_owned();
        loop {
            let splice = self.splice(self.at);
            match self.peek(splice).filter(|octet| wanted(*octet, before)) {
                Some(octet) => {
                    self.at += splice + 1;
                    text.push(char::from(octet));
                    before = octet;
                }
                None => return symbols.intern(&text),
            }
        }
    }

    /// Scans a preprocessor number: digits, letters, points, and signs after an exponent mark.
    fn number(&mut self, symbols: &mut Symbols, start: usize) -> Token {
        let hexadecimal = matches!(self.text.as_bytes().get(start..start + 2), Some([b'0', b'x' | b'X']));
        let text = self.run(symbols, |octet, before| {
            octet.is_ascii_alphanumeric()
                || octet == b'.'
                || octet == b'_'
                || (!hexadecimal && matches!(octet, b'+' | b'-') && matches!(before, b'e' | b'E'))
        });
        self.token(TokenKind::Number, text, start)
    }

    fn literal(&mut self, symbols: &mut Symbols, found: &mut ScanFindings, start: usize) -> Token {
        let quote = self.peek(0).unwrap_or(b'"');
        self.at += 1;
        let mut spliced = false;
        loop {
            match self.peek(0) {
                Some(b'\\') if self.splice(self.at) > 0 => {
                    spliced = true;
                    self.at += self.splice(self.at);
                }
                Some(b'\\') if self.peek(1).is_some_and(|next| next != b'\n') => {
                    self.at += 1;
                    self.at += self.text[self.at..].chars().next().map_or(0, char::len_utf8);
                }
                Some(octet) if octet == quote => {
                    self.at += 1;
                    break;
                }
                None | Some(b'\n') => {
                    let what = if quote == b'"' { "string" } else { "character" };
                    let span = self.span(start, self.at);
                    found.report(
                        Diagnostic::error(span, format!("a {what} literal has no end"))
                            .help("a literal ends on the line on which it begins"),
                    );
                    break;
                }
                Some(_) => self.at += 1,
            }
        }
        let raw = &self.text[start..self.at];
        let text =
            if spliced { symbols.intern(&raw.replace("\\\r\n", "").replace("\\\n", "")) } else { symbols.intern(raw) };
        let kind = if quote == b'"' { TokenKind::String } else { TokenKind::Character };
        self.token(kind, text, start)
    }

    fn punctuation(&mut self, symbols: &mut Symbols, first: u8, start: usize) -> Token {
        let second = self.peek(1).unwrap_or(0);
        let (mark, length) = match (first, second) {
            (b';', _) => (P::Semicolon, 1),
            (b'{', _) => (P::OpenBrace, 1),
            (b'}', _) => (P::CloseBrace, 1),
            (b'(', _) => (P::OpenParenthesis, 1),
            (b')', _) => (P::CloseParenthesis, 1),
            (b'[', _) => (P::OpenBracket, 1),
            (b']', _) => (P::CloseBracket, 1),
            (b'<', b'%') => (P::OpenBrace, 2),
            (b'%', b'>') => (P::CloseBrace, 2),
            // `sequence<::T>` does not begin with the bracket `<:` (C++ 2011, 2.5).
            (b'<', b':') if self.peek(2) != Some(b':') || matches!(self.peek(3), Some(b':' | b'>')) => {
                (P::OpenBracket, 2)
            }
            (b':', b'>') => (P::CloseBracket, 2),
            (b'%', b':') if self.peek(2) == Some(b'%') && self.peek(3) == Some(b':') => (P::HashHash, 4),
            (b'%', b':') => (P::Hash, 2),
            (b'<', b'<') => (P::LessLess, 2),
            (b'<', b'=') => (P::LessEqual, 2),
            (b'<', _) => (P::Less, 1),
            (b'>', b'>') => (P::GreaterGreater, 2),
            (b'>', b'=') => (P::GreaterEqual, 2),
            (b'>', _) => (P::Greater, 1),
            (b',', _) => (P::Comma, 1),
            (b':', b':') => (P::ColonColon, 2),
            (b':', _) => (P::Colon, 1),
            (b'=', b'=') => (P::EqualEqual, 2),
            (b'=', _) => (P::Equal, 1),
            (b'+', _) => (P::Plus, 1),
            (b'-', _) => (P::Minus, 1),
            (b'*', _) => (P::Star, 1),
            (b'/', _) => (P::Slash, 1),
            (b'%', _) => (P::Percent, 1),
            (b'~', _) => (P::Tilde, 1),
            (b'^', _) => (P::Caret, 1),
            (b'&', b'&') => (P::AndAnd, 2),
            (b'&', _) => (P::Ampersand, 1),
            (b'|', b'|') => (P::OrOr, 2),
            (b'|', _) => (P::Bar, 1),
            (b'@', _) => (P::At, 1),
            (b'#', b'#') => (P::HashHash, 2),
            (b'#', _) => (P::Hash, 1),
            (b'!', b'=') => (P::NotEqual, 2),
            (b'!', _) => (P::Exclamation, 1),
            (b'?', _) => (P::Question, 1),
            (b'.', b'.') if self.peek(2) == Some(b'.') => (P::Ellipsis, 3),
            (b'.', _) => (P::Dot, 1),
            _ => return self.unknown(symbols, start),
        };
        self.at += length;
        self.token(TokenKind::Punctuation(mark), Symbol::EMPTY, start)
    }

    /// Returns a token for a character that starts no token. The token is an error only if it
    /// reaches the parser, because macros and pragmas may contain such characters.
    fn unknown(&mut self, symbols: &mut Symbols, start: usize) -> Token {
        let mut rest = self.text[start..].chars();
        let first = rest.next().unwrap_or(' ');
        self.at += first.len_utf8();
        if first.is_alphabetic() {
            let word = rest.take_while(|letter| letter.is_alphanumeric() || *letter == '_');
            self.at += word.map(char::len_utf8).sum::<usize>();
        }
        let text = symbols.intern(&self.text[start..self.at]);
        self.token(TokenKind::Unknown, text, start)
    }
}

impl ScanFindings {
    fn report(&mut self, diagnostic: Diagnostic) {
        if !self.skipping && self.diagnostics.len() < crate::diagnostic::Diagnostics::MAX_PER_SEVERITY {
            self.diagnostics.push(diagnostic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ScanFindings, ScanPosition, Scanner};
    use crate::lex::token::TokenKind;
    use crate::symbol::Symbols;

    fn texts(text: &str) -> (Vec<String>, usize) {
        let (mut symbols, mut found) = (Symbols::default(), ScanFindings::default());
        let mut scanner = Scanner::new(text, 0, ScanPosition::START);
        let mut tokens = Vec::new();
        loop {
            let token = scanner.next(&mut symbols, &mut found);
            match token.kind {
                TokenKind::End => return (tokens, found.diagnostics.len()),
                TokenKind::Punctuation(mark) => tokens.push(format!("{mark:?}")),
                _ => tokens.push(symbols.text(token.text).to_owned()),
            }
        }
    }

    #[test]
    fn tokens_of_every_kind() {
        let (tokens, errors) = texts("L'x' \"a\\\"b\" 0x1e+1 1e+5 .5d /* c */ a::b>>=//e\n_x");
        let expected = [
            "L'x'",
            "\"a\\\"b\"",
            "0x1e",
            "Plus",
            "1",
            "1e+5",
            ".5d",
            "a",
            "ColonColon",
            "b",
            "GreaterGreater",
            "Equal",
            "_x",
        ];
        assert_eq!((tokens, errors), (expected.map(String::from).to_vec(), 0));
    }

    #[test]
    fn alternative_spellings_of_punctuators_are_scanned() {
        let (tokens, errors) = texts("<% %> <: :> %: %:%: <::a <::: a<:3:> a:>b %");
        let expected = [
            "OpenBrace",
            "CloseBrace",
            "OpenBracket",
            "CloseBracket",
            "Hash",
            "HashHash",
            "Less",
            "ColonColon",
            "a",
            "OpenBracket",
            "ColonColon",
            "a",
            "OpenBracket",
            "3",
            "CloseBracket",
            "a",
            "CloseBracket",
            "b",
            "Percent",
        ];
        assert_eq!((tokens, errors), (expected.map(String::from).to_vec(), 0));
    }

    #[test]
    fn line_splices_within_tokens_are_removed() {
        let (tokens, errors) = texts("inter\\\nface \"a\\\r\nb\" 1\\\n2 \\\n x");
        assert_eq!((tokens, errors), (["interface", "\"ab\"", "12", "x"].map(String::from).to_vec(), 0));
    }

    #[test]
    fn unterminated_token_is_reported_once() {
        assert_eq!(texts("\"abc\nx").1, 1);
        assert_eq!(texts("/* abc").1, 1);
        assert_eq!(texts("a $ b \u{fc}").1, 0);
        assert_eq!(texts("\"abc\\").1, 1);
        assert_eq!(texts("'\\").1, 1);
    }
}
