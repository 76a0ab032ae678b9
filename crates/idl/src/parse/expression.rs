//! Parsing of constant expressions.

use super::{ParseResult, Parser, literal};
use crate::ast::{BinaryOperator, Expression, ExpressionKind, UnaryOperator};
use crate::diagnostic::Diagnostic;
use crate::lex::token::{Punctuation as P, TokenKind};
use crate::source::Span;
use crate::symbol::Keyword;

impl Parser<'_> {
    /// Maximum number of binary operators in a row, each of which makes the tree one level deeper.
    const LONGEST: usize = 500;

    pub(super) fn expression(&mut self) -> ParseResult<Expression> {
        self.nested(|parser| parser.binary(0))
    }

    pub(super) fn in_angles<T>(&mut self, parse: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        self.angles += 1;
        let result = parse(self);
        self.angles -= 1;
        result
    }

    fn binary(&mut self, lowest: u8) -> ParseResult<Expression> {
        let mut left = self.unary()?;
        let mut length = 0;
        while let Some((operator, strength)) = self.operator().filter(|(_, strength)| *strength >= lowest) {
            length += 1;
            if length > Self::LONGEST {
                let message = format!("the expression has more than {} operators in a row", Self::LONGEST);
                return self.fail(Diagnostic::error(self.token().span, message));
            }
            self.bump();
            let right = self.binary(strength + 1)?;
            let span = left.span.to_end_of(right.span);
            left = Expression { kind: ExpressionKind::Binary(operator, Box::new((left, right))), span };
        }
        Ok(left)
    }

    fn operator(&self) -> Option<(BinaryOperator, u8)> {
        let TokenKind::Punctuation(mark) = self.token().kind else { return None };
        Some(match mark {
            P::Bar => (BinaryOperator::Or, 0),
            P::Caret => (BinaryOperator::Xor, 1),
            P::Ampersand => (BinaryOperator::And, 2),
            P::LessLess => (BinaryOperator::ShiftLeft, 3),
            P::GreaterGreater if self.angles < 2 => (BinaryOperator::ShiftRight, 3),
            P::Plus => (BinaryOperator::Add, 4),
            P::Minus => (BinaryOperator::Subtract, 4),
            P::Star => (BinaryOperator::Multiply, 5),
            P::Slash => (BinaryOperator::Divide, 5),
            P::Percent => (BinaryOperator::Remainder, 5),
            _ => return None,
        })
    }

    fn unary(&mut self) -> ParseResult<Expression> {
        let token = self.token();
        let operator = match token.kind {
            TokenKind::Punctuation(P::Minus) => UnaryOperator::Minus,
            TokenKind::Punctuation(P::Plus) => UnaryOperator::Plus,
            TokenKind::Punctuation(P::Tilde) => UnaryOperator::Complement,
            _ => return self.primary(),
        };
        self.bump();
        let operand = self.nested(Self::unary)?;
        let span = token.span.to_end_of(operand.span);
        Ok(Expression { kind: ExpressionKind::Unary(operator, Box::new(operand)), span })
    }

    fn primary(&mut self) -> ParseResult<Expression> {
        let token = self.token();
        let kind = match token.kind {
            TokenKind::Punctuation(P::OpenParenthesis) => {
                self.bump();
                let outer = std::mem::take(&mut self.angles);
                let inner = self.expression();
                self.angles = outer;
                let inner = inner?;
                self.expect(P::CloseParenthesis, ")")?;
                return Ok(Expression { span: token.span.to_end_of(self.before()), ..inner });
            }
            TokenKind::Number => {
                self.bump();
                match literal::number(self.symbols.text(token.text)) {
                    Ok(kind) => kind,
                    Err(message) => {
                        self.report(Diagnostic::error(token.span, message));
                        ExpressionKind::Faulty
                    }
                }
            }
            TokenKind::Character => self.character_literal(),
            TokenKind::String => {
                let (value, wide) = self.string_literal()?;
                let span = token.span.to_end_of(self.before());
                return Ok(Expression { kind: ExpressionKind::String(value, wide), span });
            }
            TokenKind::Identifier | TokenKind::Punctuation(P::ColonColon) => match self.keyword() {
                Some(word @ (Keyword::True | Keyword::False)) => {
                    self.bump();
                    ExpressionKind::Boolean(word == Keyword::True)
                }
                _ => ExpressionKind::Named(self.scoped_name("a value")?),
            },
            _ => return self.expected("a value"),
        };
        Ok(Expression { kind, span: token.span.to_end_of(self.before()) })
    }

    fn character_literal(&mut self) -> ExpressionKind {
        let token = self.bump();
        match literal::characters(self.symbols.text(token.text)) {
            Ok(_) if self.is_unclosed(&token) => {}
            Ok((characters, wide)) => match characters.as_slice() {
                [character] => return ExpressionKind::Character(*character, wide),
                [] => self.report(Diagnostic::error(token.span, "a character literal is empty")),
                _ => self.report(
                    Diagnostic::error(token.span, "a character literal holds more than one character")
                        .help("strings are written in double quotes"),
                ),
            },
            Err(fault) => self.literal_fault(token.span, fault),
        }
        ExpressionKind::Faulty
    }

    fn literal_fault(&mut self, span: Span, fault: literal::LiteralError) {
        let at = |offset: usize| span.start.saturating_add(u32::try_from(offset).unwrap_or(0)).min(span.end);
        self.report(Diagnostic::error(Span { start: at(fault.at.start), end: at(fault.at.end) }, fault.message));
    }

    pub(super) fn string_literal(&mut self) -> ParseResult<(String, bool)> {
        let mut value = String::new();
        let mut width = None;
        while self.token().kind == TokenKind::String {
            let token = self.bump();
            match literal::characters(self.symbols.text(token.text)) {
                Ok((characters, wide)) => {
                    if characters.contains(&'\0') {
                        self.report(
                            Diagnostic::error(token.span, "a string cannot contain the character NUL")
                                .note("on the wire NUL ends a string"),
                        );
                    }
                    if width.is_some_and(|width| width != wide) {
                        self.report(
                            Diagnostic::error(token.span, "wide and narrow string literals do not join")
                                .help("write all of them with `L`, or none"),
                        );
                    }
                    width.get_or_insert(wide);
                    value.extend(characters);
                }
                Err(fault) => {
                    width.get_or_insert(self.symbols.text(token.text).starts_with('L'));
                    self.literal_fault(token.span, fault);
                }
            }
        }
        Ok((value, width.unwrap_or(false)))
    }
}
