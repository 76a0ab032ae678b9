//! Macros: their definitions, and what a use of one turns into.

use super::token::{Punctuation, Token, TokenKind};
use crate::symbol::{Symbol, Symbols};
use std::sync::Arc;

/// A macro as defined.
#[derive(Clone, Debug)]
pub(crate) struct Macro {
    /// Names of the parameters; `None` for a macro without a parameter list.
    pub(crate) parameters: Option<Vec<Symbol>>,
    /// Whether the last parameter takes all the arguments that are left.
    pub(crate) variadic: bool,
    pub(crate) body: Arc<[Token]>,
}

impl Macro {
    pub(crate) fn object(body: Vec<Token>) -> Self {
        Self { parameters: None, variadic: false, body: body.into() }
    }

    /// Whether both mean the same, so that a redefinition does no harm.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        let same = |(one, two): (&Token, &Token)| one.kind == two.kind && one.text == two.text;
        self.parameters == other.parameters
            && self.variadic == other.variadic
            && self.body.len() == other.body.len()
            && self.body.iter().zip(other.body.iter()).all(same)
    }

    fn parameter(&self, token: &Token) -> Option<usize> {
        let parameters = self.parameters.as_ref()?;
        if token.kind != TokenKind::Identifier {
            return None;
        }
        parameters.iter().position(|parameter| *parameter == token.text)
    }

    /// Whether the body uses the parameter other than next to `#` or `##`, so that its argument has to be
    /// expanded.
    pub(crate) fn needs_expanded(&self, index: usize) -> bool {
        self.body.iter().enumerate().any(|(at, token)| {
            self.parameter(token) == Some(index)
                && !self.body.get(at + 1).is_some_and(|next| next.is(Punctuation::HashHash))
                && !at.checked_sub(1).is_some_and(|before| {
                    self.body[before].is(Punctuation::HashHash) || self.body[before].is(Punctuation::Hash)
                })
        })
    }

    /// The body with the arguments in place. `raw` are the arguments as written, `expanded` with their own
    /// macros replaced. Every token gets the place of `site`.
    pub(crate) fn substitute(
        &self,
        site: &Token,
        raw: &[Vec<Token>],
        expanded: &[Vec<Token>],
        symbols: &mut Symbols,
    ) -> Vec<Token> {
        let mut result: Vec<Token> = Vec::with_capacity(self.body.len());
        let mut at = 0;
        while let Some(token) = self.body.get(at) {
            let pasted = at > 0 && self.body[at - 1].is(Punctuation::HashHash);
            let pastes = self.body.get(at + 1).is_some_and(|next| next.is(Punctuation::HashHash));
            if token.is(Punctuation::HashHash) && at > 0 && at + 1 < self.body.len() {
                at += 1;
                continue;
            }
            let next_parameter = self.body.get(at + 1).and_then(|next| self.parameter(next));
            let piece = match (self.parameter(token), next_parameter) {
                (Some(index), _) if pasted || pastes => raw.get(index).cloned().unwrap_or_default(),
                (Some(index), _) => expanded.get(index).cloned().unwrap_or_default(),
                (None, Some(index)) if token.is(Punctuation::Hash) => {
                    at += 1;
                    vec![stringized(raw.get(index).map_or(&[], Vec::as_slice), token, symbols)]
                }
                _ => vec![*token],
            };
            let mut piece = piece.into_iter();
            if pasted && let Some(first) = piece.next() {
                match result.pop() {
                    Some(left) => result.extend(paste(left, first, symbols)),
                    None => result.push(first),
                }
            }
            result.extend(piece);
            at += 1;
        }
        for token in &mut result {
            token.span = site.span;
            token.starts_line = false;
        }
        if let Some(first) = result.first_mut() {
            (first.starts_line, first.spaced) = (site.starts_line, site.spaced);
        }
        result
    }
}

/// `#parameter`: the argument's text as a string literal.
fn stringized(argument: &[Token], mark: &Token, symbols: &mut Symbols) -> Token {
    let mut text = String::from("\"");
    for (at, token) in argument.iter().enumerate() {
        if at > 0 && (token.spaced || token.starts_line) {
            text.push(' ');
        }
        let spelled = spelling(token, symbols);
        if matches!(token.kind, TokenKind::String | TokenKind::Character) {
            text.push_str(&spelled.replace('\\', "\\\\").replace('"', "\\\""));
        } else {
            text.push_str(&spelled);
        }
    }
    text.push('"');
    Token { kind: TokenKind::String, text: symbols.intern(&text), ..*mark }
}

/// `left ## right`: one token out of two where that is one, else both.
fn paste(left: Token, right: Token, symbols: &mut Symbols) -> Vec<Token> {
    let text = spelling(&left, symbols) + &spelling(&right, symbols);
    let (mut found, start) = (super::scanner::Findings::default(), super::scanner::Position::START);
    found.skipping = true;
    let mut scanner = super::scanner::Scanner::new(&text, 0, start);
    let token = scanner.next(symbols, &mut found);
    if scanner.next(symbols, &mut found).kind == TokenKind::End && token.kind != TokenKind::Unknown {
        vec![Token { kind: token.kind, text: token.text, painted: false, ..left }]
    } else {
        vec![left, right]
    }
}

/// The text of a token.
pub(crate) fn spelling(token: &Token, symbols: &Symbols) -> String {
    use Punctuation as P;
    let TokenKind::Punctuation(mark) = token.kind else { return symbols.text(token.text).to_owned() };
    let text = match mark {
        P::Semicolon => ";",
        P::OpenBrace => "{",
        P::CloseBrace => "}",
        P::OpenParenthesis => "(",
        P::CloseParenthesis => ")",
        P::OpenBracket => "[",
        P::CloseBracket => "]",
        P::Less => "<",
        P::Greater => ">",
        P::Comma => ",",
        P::Colon => ":",
        P::ColonColon => "::",
        P::Equal => "=",
        P::Plus => "+",
        P::Minus => "-",
        P::Star => "*",
        P::Slash => "/",
        P::Percent => "%",
        P::Tilde => "~",
        P::Caret => "^",
        P::Ampersand => "&",
        P::Bar => "|",
        P::LessLess => "<<",
        P::GreaterGreater => ">>",
        P::At => "@",
        P::Hash => "#",
        P::HashHash => "##",
        P::Exclamation => "!",
        P::EqualEqual => "==",
        P::NotEqual => "!=",
        P::LessEqual => "<=",
        P::GreaterEqual => ">=",
        P::AndAnd => "&&",
        P::OrOr => "||",
        P::Question => "?",
        P::Dot => ".",
        P::Ellipsis => "...",
    };
    text.to_owned()
}
