//! Macro definitions and the substitution of arguments.

use super::token::{Punctuation, Token, TokenKind};
use crate::symbol::{Symbol, SymbolMap, Symbols};
use std::sync::Arc;

/// Maximum length in bytes of a token made by `#` or `##`. Without this limit, each use of a macro
/// could double the length of a token.
pub(crate) const LONGEST: usize = 64 << 10;

#[derive(Clone, Debug)]
pub(crate) struct Macro {
    pub(crate) parameters: Option<Arc<[Symbol]>>,
    pub(crate) variadic: bool,
    pub(crate) body: Arc<[Token]>,
    uses: Arc<[Option<usize>]>,
}

impl Macro {
    pub(crate) fn object(body: Vec<Token>) -> Self {
        let uses = vec![None; body.len()].into();
        Self { parameters: None, variadic: false, body: body.into(), uses }
    }

    pub(crate) fn function(parameters: Vec<Symbol>, variadic: bool, body: &[Token]) -> Self {
        let places: SymbolMap<usize> = parameters.iter().copied().zip(0..).collect();
        let place = |token: &Token| match token.kind {
            TokenKind::Identifier => places.get(&token.text).copied(),
            _ => None,
        };
        let uses = body.iter().map(place).collect();
        Self { parameters: Some(parameters.into()), variadic, body: body.into(), uses }
    }

    pub(crate) fn same_as(&self, other: &Self) -> bool {
        let same = |(one, two): (&Token, &Token)| one.kind == two.kind && one.text == two.text;
        self.parameters == other.parameters
            && self.variadic == other.variadic
            && self.body.len() == other.body.len()
            && self.body.iter().zip(other.body.iter()).all(same)
    }

    pub(crate) fn fault(&self) -> Option<(&Token, &'static str)> {
        let marks = |token: &&Token| token.is(Punctuation::HashHash);
        let end = self.body.first().filter(marks).or_else(|| self.body.last().filter(marks));
        if let Some(mark) = end {
            return Some((mark, "`##` needs an operand on both sides"));
        }
        self.parameters.as_ref()?;
        let lonely = |(at, token): (usize, &Token)| token.is(Punctuation::Hash) && self.parameter(at + 1).is_none();
        let at = self.body.iter().enumerate().position(lonely)?;
        Some((&self.body[at], "`#` has to be followed by a parameter of the macro"))
    }

    fn parameter(&self, at: usize) -> Option<usize> {
        self.uses.get(at).copied().flatten()
    }

    pub(crate) fn length_with(&self, raw: &[Vec<Token>], expanded: &[Vec<Token>]) -> usize {
        let length = |lists: &[Vec<Token>], index: usize| lists.get(index).map_or(0, Vec::len);
        let piece = |index: &Option<usize>| index.map_or(1, |index| length(raw, index).max(length(expanded, index)));
        self.uses.iter().map(piece).fold(0, usize::saturating_add)
    }

    /// Returns for each parameter if its expanded argument is needed. A parameter that is used only
    /// next to `#` or `##` needs none.
    pub(crate) fn needs_expanded(&self) -> Vec<bool> {
        let mut needed = vec![false; self.parameters.as_ref().map_or(0, |list| list.len())];
        for at in 0..self.body.len() {
            let Some(index) = self.parameter(at) else { continue };
            let marked_before = at.checked_sub(1).is_some_and(|before| {
                self.body[before].is(Punctuation::HashHash) || self.body[before].is(Punctuation::Hash)
            });
            let marked_behind = self.body.get(at + 1).is_some_and(|next| next.is(Punctuation::HashHash));
            needed[index] |= !marked_before && !marked_behind;
        }
        needed
    }

    /// Returns the body with the arguments in it, and the number of bytes that `#` and `##` made.
    /// Returns `None` if a token would be longer than [`LONGEST`]. `raw` are the arguments as
    /// written, `expanded` the arguments after macro expansion.
    pub(crate) fn substitute(
        &self,
        site: &Token,
        raw: &[Vec<Token>],
        expanded: &[Vec<Token>],
        symbols: &mut Symbols,
    ) -> Option<(Vec<Token>, usize)> {
        let mut result: Vec<Token> = Vec::with_capacity(self.body.len());
        let mut made = 0;
        let mut at = 0;
        while let Some(token) = self.body.get(at) {
            let pasted = at > 0 && self.body[at - 1].is(Punctuation::HashHash);
            let pastes = self.body.get(at + 1).is_some_and(|next| next.is(Punctuation::HashHash));
            if token.is(Punctuation::HashHash) && at > 0 && at + 1 < self.body.len() {
                at += 1;
                continue;
            }
            let next_parameter = self.parameter(at + 1);
            let piece = match (self.parameter(at), next_parameter) {
                (Some(index), _) if pasted || pastes => raw.get(index).cloned().unwrap_or_default(),
                (Some(index), _) => expanded.get(index).cloned().unwrap_or_default(),
                (None, Some(index)) if token.is(Punctuation::Hash) => {
                    at += 1;
                    let text = stringized(raw.get(index).map_or(&[], Vec::as_slice), token, symbols)?;
                    made += symbols.text(text.text).len();
                    vec![text]
                }
                _ => vec![*token],
            };
            let mut piece = piece.into_iter();
            if pasted && let Some(first) = piece.next() {
                match result.pop() {
                    Some(left) => {
                        let pasted = paste(left, first, symbols)?;
                        made += pasted.iter().map(|token| symbols.text(token.text).len()).sum::<usize>();
                        result.extend(pasted);
                    }
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
        Some((result, made))
    }
}

fn stringized(argument: &[Token], mark: &Token, symbols: &mut Symbols) -> Option<Token> {
    let mut text = String::from("\"");
    for (at, token) in argument.iter().enumerate() {
        if at > 0 && (token.spaced || token.starts_line) {
            text.push(' ');
        }
        text.push_str(&spelling(token, symbols).replace('\\', "\\\\").replace('"', "\\\""));
        if text.len() > LONGEST {
            return None;
        }
    }
    text.push('"');
    Some(Token { kind: TokenKind::String, text: symbols.intern(&text), ..*mark })
}

fn paste(left: Token, right: Token, symbols: &mut Symbols) -> Option<Vec<Token>> {
    let text = spelling(&left, symbols) + &spelling(&right, symbols);
    if text.len() > LONGEST {
        return None;
    }
    let (mut found, start) = (super::scanner::ScanFindings::default(), super::scanner::ScanPosition::START);
    found.skipping = true;
    let mut scanner = super::scanner::Scanner::new(&text, 0, start);
    let token = scanner.next(symbols, &mut found);
    let one = scanner.next(symbols, &mut found).kind == TokenKind::End && token.kind != TokenKind::Unknown;
    Some(if one {
        vec![Token { kind: token.kind, text: token.text, painted: false, ..left }]
    } else {
        vec![left, right]
    })
}

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
