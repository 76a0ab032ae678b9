//! The parser: recursive descent from tokens to the syntax tree.
//!
//! The parser returns a tree of the valid declarations, and a message for each error. After an
//! error it continues after the next `;`, or at the `}` of the enclosing body.

pub(crate) mod declaration;
mod expression;
mod interface;
pub(crate) mod literal;
mod types;

use crate::ast::{Annotation, Declaration, DeclarationKind, Expression, Name, Pragma, ScopedName, StringLiteral};
use crate::diagnostic::{Diagnostic, Diagnostics, ReportedError};
use crate::lex::macros::spelling;
use crate::lex::preprocessor::{Preprocessed, PreprocessorEvent};
use crate::lex::token::{Punctuation as P, Token, TokenKind};
use crate::limits::CompilerLimits;
use crate::source::Span;
use crate::symbol::{Keyword as K, Symbol, Symbols};
use std::collections::HashSet;

pub(crate) fn parse(
    text: &Preprocessed,
    limits: &CompilerLimits,
    symbols: &mut Symbols,
    diagnostics: &mut Diagnostics,
) -> Vec<Declaration> {
    let mut parser = Parser {
        text,
        at: 0,
        event: 0,
        half_greater: false,
        angles: 0,
        depth: 0,
        unclosed: false,
        limits,
        symbols,
        diagnostics,
        redefined: HashSet::new(),
    };
    let mut declarations = Vec::new();
    while !parser.is_at_end() {
        parser.declarations(declaration::EnclosingBody::Module, &mut declarations);
        if let Some(token) = parser.take_any().filter(|token| token.kind != TokenKind::End) {
            parser.report(Diagnostic::error(token.span, "`}` closes nothing"));
        }
    }
    parser.events(&mut declarations);
    declarations
}

type ParseResult<T> = Result<T, ReportedError>;

struct Parser<'p> {
    text: &'p Preprocessed,
    at: usize,
    event: usize,
    /// True if the first `>` of the current `>>` is consumed.
    half_greater: bool,
    /// Number of open `<` around the current expression; at two, `>>` closes both and is not a
    /// shift.
    angles: usize,
    depth: usize,
    unclosed: bool,
    limits: &'p CompilerLimits,
    symbols: &'p mut Symbols,
    diagnostics: &'p mut Diagnostics,
    /// Keywords of IDL 4 that the source declares as names and that are therefore not keywords.
    redefined: HashSet<Symbol>,
}

impl Parser<'_> {
    fn token(&self) -> Token {
        let tokens = &self.text.tokens;
        let mut token = match tokens.get(self.at).or_else(|| tokens.last()) {
            Some(token) => *token,
            None => Token {
                kind: TokenKind::End,
                starts_line: true,
                spaced: false,
                painted: false,
                text: Symbol::EMPTY,
                span: Span::default(),
            },
        };
        if self.half_greater {
            token.kind = TokenKind::Punctuation(P::Greater);
            token.span.start += 1;
        }
        token
    }

    fn ahead(&self, count: usize) -> Option<&Token> {
        self.text.tokens.get(self.at + count)
    }

    fn keyword(&self) -> Option<K> {
        let token = self.text.tokens.get(self.at)?;
        if token.kind == TokenKind::Identifier { token.text.keyword() } else { None }
    }

    fn is(&self, mark: P) -> bool {
        if self.half_greater {
            return mark == P::Greater;
        }
        self.text.tokens.get(self.at).is_some_and(|token| token.is(mark))
    }

    fn is_at_end(&self) -> bool {
        self.token().kind == TokenKind::End || self.diagnostics.is_full()
    }

    fn bump(&mut self) -> Token {
        let token = self.token();
        self.half_greater = false;
        if self.at + 1 < self.text.tokens.len() {
            self.at += 1;
        }
        token
    }

    fn take_any(&mut self) -> Option<Token> {
        (self.token().kind != TokenKind::End).then(|| self.bump())
    }

    fn take(&mut self, mark: P) -> Option<Span> {
        self.is(mark).then(|| self.bump().span)
    }

    fn take_keyword(&mut self, keyword: K) -> Option<Span> {
        (self.keyword() == Some(keyword)).then(|| self.bump().span)
    }

    fn before(&self) -> Span {
        self.at.checked_sub(1).and_then(|at| self.text.tokens.get(at)).map_or(Span::default(), |token| token.span)
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    fn fail<T>(&mut self, diagnostic: Diagnostic) -> ParseResult<T> {
        self.report(diagnostic);
        Err(ReportedError)
    }

    fn found(&self) -> String {
        let token = self.token();
        match token.kind {
            TokenKind::End => "the end of the text".to_owned(),
            _ => format!("`{}`", spelling(&token, self.symbols)),
        }
    }

    fn expected<T>(&mut self, what: &str) -> ParseResult<T> {
        let (token, found) = (self.token(), self.found());
        // The preprocessor has already reported an unknown token, so the parser adds no message.
        if token.kind == TokenKind::Unknown {
            return Err(ReportedError);
        }
        self.fail(
            Diagnostic::error(token.span, format!("{what} was expected, {found} was found"))
                .label(format!("expected {what}")),
        )
    }

    fn expect(&mut self, mark: P, text: &str) -> ParseResult<Span> {
        match self.take(mark) {
            Some(span) => Ok(span),
            None => self.expected(&format!("`{text}`")),
        }
    }

    /// Takes the `;` after a declaration. A missing `;` is reported, unless the declaration ends
    /// with an unclosed literal. The function succeeds without a `;` at the end of a line, in front
    /// of `}` and at the end of the text.
    fn end_of(&mut self, what: &str) -> ParseResult<()> {
        if self.take(P::Semicolon).is_some() {
            return Ok(());
        }
        let next = self.token();
        if next.kind == TokenKind::Unknown {
            return Err(ReportedError);
        }
        if next.starts_line && self.at.checked_sub(1).is_some_and(|at| self.is_unclosed(&self.text.tokens[at])) {
            return Ok(());
        }
        let span = self.before().end_position();
        let span = Span { start: span.start.saturating_sub(1), ..span };
        let message = format!("`;` was expected after {what}, {} was found", self.found());
        self.report(Diagnostic::error(span, message).label("`;` is missing here"));
        if next.starts_line || next.is(P::CloseBrace) || next.kind == TokenKind::End {
            Ok(())
        } else {
            Err(ReportedError)
        }
    }

    /// Takes the `;` after a declaration. After a failure, skips to the next `;`, so that the
    /// parsed declaration is kept.
    fn end_or_skip(&mut self, what: &str) {
        if self.end_of(what).is_err() {
            self.recover();
        }
    }

    /// Takes the `{` of a body. If the `{` is missing and a `}` follows on the same line, reports
    /// the missing `{` and succeeds, so that the `}` does not close an outer body.
    fn open_body(&mut self) -> ParseResult<Span> {
        match self.expect(P::OpenBrace, "{") {
            Err(ReportedError) if self.is(P::CloseBrace) && !self.token().starts_line => Ok(self.token().span),
            opened => opened,
        }
    }

    fn is_unclosed(&self, token: &Token) -> bool {
        matches!(token.kind, TokenKind::String | TokenKind::Character)
            && !literal::is_closed(self.symbols.text(token.text))
    }

    /// Skips to the token after the next `;` or after the next body in braces, or to the `}` of the
    /// enclosing body.
    fn recover(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.token().kind {
                TokenKind::End => return,
                TokenKind::Punctuation(P::OpenBrace) => depth += 1,
                TokenKind::Punctuation(P::CloseBrace) if depth == 0 => return,
                TokenKind::Punctuation(P::CloseBrace) => {
                    depth -= 1;
                    if depth == 0 {
                        self.bump();
                        self.take(P::Semicolon);
                        return;
                    }
                }
                TokenKind::Punctuation(P::Semicolon) if depth == 0 => {
                    self.bump();
                    return;
                }
                _ => {}
            }
            self.bump();
        }
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth >= self.limits.max_nesting {
            let message = format!("this is nested more than {} levels deep", self.limits.max_nesting);
            return self.fail(Diagnostic::error(self.token().span, message));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    fn name(&mut self, what: &str) -> ParseResult<Name> {
        let word = self.token().text.keyword();
        let name = self.word(what, true)?;
        if let Some(keyword) = word.filter(|keyword| !keyword.is_reserved()) {
            self.redefined.insert(name.symbol);
            if keyword.is_from_corba_3() {
                let text = keyword.text();
                let warning = Diagnostic::warning(name.span, format!("`{text}` is a keyword since CORBA 3"));
                self.report(warning.help(format!("write `_{text}`: the underscore is not part of the name")));
            }
        }
        Ok(name)
    }

    fn identifier(&mut self, what: &str) -> ParseResult<Name> {
        self.word(what, false)
    }

    fn word(&mut self, what: &str, declared: bool) -> ParseResult<Name> {
        let token = self.token();
        if token.kind != TokenKind::Identifier {
            return self.expected(what);
        }
        let text = self.symbols.text(token.text);
        if let Some(escaped) = text.strip_prefix('_') {
            if escaped.is_empty() || !escaped.starts_with(|first: char| first.is_ascii_alphabetic()) {
                let message = format!("`{text}` is not an identifier");
                let diagnostic = Diagnostic::error(token.span, message)
                    .note("an identifier begins with a letter, or with one underscore that escapes it");
                self.bump();
                return self.fail(diagnostic);
            }
            let escaped = escaped.to_owned();
            self.bump();
            return Ok(Name { symbol: self.symbols.intern(&escaped), span: token.span });
        }
        match self.symbols.keyword_ignoring_case(token.text).filter(|keyword| keyword.is_reserved()) {
            None => {
                self.bump();
                Ok(Name { symbol: token.text, span: token.span })
            }
            Some(keyword) if token.text.keyword().is_some() => {
                let text = keyword.text();
                let message = format!("{what} was expected, the keyword `{text}` was found");
                let diagnostic = Diagnostic::error(token.span, message).label("a keyword");
                let is_name = declared && self.ahead(1).is_none_or(|next| next.kind != TokenKind::Identifier);
                self.fail(match is_name {
                    true => diagnostic
                        .help(format!("write `_{text}` to use it as a name: the underscore is not part of the name")),
                    false => diagnostic,
                })
            }
            Some(_) if !declared => {
                self.bump();
                Ok(Name { symbol: token.text, span: token.span })
            }
            Some(keyword) => {
                let message = format!("`{text}` differs from the keyword `{}` only in case", keyword.text());
                let help = format!("write `_{text}` to use it as a name, or `{}` for the keyword", keyword.text());
                let diagnostic = match self.symbols.is_case_sensitive() {
                    true => Diagnostic::warning(token.span, message),
                    false => Diagnostic::error(token.span, message),
                };
                self.bump();
                self.report(diagnostic.help(help));
                Ok(Name { symbol: token.text, span: token.span })
            }
        }
    }

    fn scoped_name(&mut self, what: &str) -> ParseResult<ScopedName> {
        let start = self.token().span;
        let absolute = self.take(P::ColonColon).is_some();
        let mut parts = vec![self.identifier(what)?];
        while self.take(P::ColonColon).is_some() {
            parts.push(self.identifier("a name")?);
        }
        Ok(ScopedName { is_absolute: absolute, parts, span: start.to_end_of(self.before()) })
    }

    fn scoped_names(&mut self, what: &str) -> ParseResult<Vec<ScopedName>> {
        let mut names = vec![self.scoped_name(what)?];
        while self.take(P::Comma).is_some() {
            names.push(self.scoped_name(what)?);
        }
        Ok(names)
    }

    fn string(&mut self, what: &str) -> ParseResult<StringLiteral> {
        if self.token().kind != TokenKind::String {
            return self.expected(what);
        }
        let start = self.token().span;
        let (value, wide) = self.string_literal()?;
        let span = start.to_end_of(self.before());
        if wide {
            return self
                .fail(Diagnostic::error(span, "a wide string literal is not allowed here").help("leave out the `L`"));
        }
        Ok(StringLiteral { value, span })
    }

    fn events(&mut self, declarations: &mut Vec<Declaration>) {
        while let Some((_, event)) = self.text.events.get(self.event).filter(|(before, _)| *before <= self.at) {
            let kind = match event {
                PreprocessorEvent::Enter => DeclarationKind::EnterFile,
                PreprocessorEvent::Leave => DeclarationKind::LeaveFile,
                PreprocessorEvent::Pragma(span, tokens) => {
                    DeclarationKind::Pragma(Pragma { span: *span, tokens: tokens.clone() })
                }
            };
            declarations.push(Declaration { kind, annotations: Vec::new(), first_token: self.at });
            self.event += 1;
        }
    }

    fn annotations(&mut self) -> ParseResult<Vec<Annotation>> {
        let mut annotations = Vec::new();
        while self.is(P::At) && !self.is_annotation_type() {
            self.bump();
            let name = self.annotation_name()?;
            let mut arguments = Vec::new();
            if self.take(P::OpenParenthesis).is_some() {
                let outer = std::mem::take(&mut self.angles);
                let read = self.annotation_arguments(&mut arguments);
                self.angles = outer;
                read?;
                self.expect(P::CloseParenthesis, ")")?;
            }
            annotations.push(Annotation { name, arguments });
        }
        Ok(annotations)
    }

    fn annotation_arguments(&mut self, arguments: &mut Vec<(Option<Name>, Expression)>) -> ParseResult<()> {
        while !self.is(P::CloseParenthesis) {
            let named = self.ahead(1).is_some_and(|next| next.is(P::Equal));
            let name = if named { Some(self.annotation_word()?) } else { None };
            if named {
                self.expect(P::Equal, "=")?;
            }
            arguments.push((name, self.expression()?));
            if self.take(P::Comma).is_none() {
                break;
            }
        }
        Ok(())
    }

    fn is_annotation_type(&self) -> bool {
        self.is(P::At) && self.ahead(1).is_some_and(|next| self.symbols.text(next.text) == "annotation")
    }

    fn annotation_name(&mut self) -> ParseResult<ScopedName> {
        let start = self.token().span;
        let absolute = self.take(P::ColonColon).is_some();
        let mut parts = vec![self.annotation_word()?];
        while self.take(P::ColonColon).is_some() {
            parts.push(self.annotation_word()?);
        }
        Ok(ScopedName { is_absolute: absolute, parts, span: start.to_end_of(self.before()) })
    }

    fn annotation_word(&mut self) -> ParseResult<Name> {
        let token = self.token();
        if token.kind != TokenKind::Identifier {
            return self.expected("the name of an annotation");
        }
        self.bump();
        Ok(Name { symbol: token.text, span: token.span })
    }
}
