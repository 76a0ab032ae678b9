//! Evaluation of the conditions of `#if` and `#elif`: C++ integer constant expressions on 64 bits.

use super::token::{Punctuation as P, Token, TokenKind};
use crate::source::Span;
use crate::symbol::Symbols;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    bits: u64,
    unsigned: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConditionError {
    pub(crate) span: Span,
    pub(crate) message: &'static str,
}

/// Evaluates a condition, in which `true` has the value 1 and all other names have the value 0.
pub(crate) fn holds(tokens: &[Token], end: Span, symbols: &Symbols) -> Result<bool, ConditionError> {
    let mut parser = ConditionParser { tokens, at: 0, end, symbols, depth: 0 };
    let value = parser.conditional(true)?;
    match tokens.get(parser.at) {
        None => Ok(value.bits != 0),
        Some(_) => Err(parser.fault("an operator was expected here")),
    }
}

struct ConditionParser<'t> {
    tokens: &'t [Token],
    at: usize,
    end: Span,
    symbols: &'t Symbols,
    depth: usize,
}

impl ConditionParser<'_> {
    const DEPTH: usize = 100;

    fn fault(&self, message: &'static str) -> ConditionError {
        ConditionError { span: self.tokens.get(self.at).map_or(self.end, |token| token.span), message }
    }

    fn mark(&self) -> Option<P> {
        let token = self.tokens.get(self.at)?;
        match (token.kind, self.symbols.text(token.text)) {
            (TokenKind::Punctuation(mark), _) => Some(mark),
            (TokenKind::Identifier, "and") => Some(P::AndAnd),
            (TokenKind::Identifier, "or") => Some(P::OrOr),
            (TokenKind::Identifier, "not") => Some(P::Exclamation),
            (TokenKind::Identifier, "not_eq") => Some(P::NotEqual),
            (TokenKind::Identifier, "bitand") => Some(P::Ampersand),
            (TokenKind::Identifier, "bitor") => Some(P::Bar),
            (TokenKind::Identifier, "xor") => Some(P::Caret),
            (TokenKind::Identifier, "compl") => Some(P::Tilde),
            _ => None,
        }
    }

    fn take(&mut self, mark: P) -> bool {
        let found = self.mark() == Some(mark);
        self.at += usize::from(found);
        found
    }

    /// Evaluates a conditional expression. `live` is true if the value is used; a division by zero
    /// in an unused operand is not an error.
    fn conditional(&mut self, live: bool) -> Result<Number, ConditionError> {
        self.depth += 1;
        if self.depth > Self::DEPTH {
            return Err(self.fault("the condition is nested too deeply"));
        }
        let condition = self.binary(0, live)?;
        let result = if self.take(P::Question) {
            let chosen = condition.bits != 0;
            let yes = self.conditional(live && chosen)?;
            if !self.take(P::Colon) {
                return Err(self.fault("`:` was expected here"));
            }
            let no = self.conditional(live && !chosen)?;
            Ok(Number { unsigned: yes.unsigned || no.unsigned, ..if chosen { yes } else { no } })
        } else {
            Ok(condition)
        };
        self.depth -= 1;
        result
    }

    fn binary(&mut self, lowest: u8, live: bool) -> Result<Number, ConditionError> {
        let mut left = self.unary(live)?;
        while let Some((mark, strength)) = self.mark().and_then(|mark| Some((mark, strength(mark)?))) {
            if strength < lowest {
                break;
            }
            self.at += 1;
            let right_live = live
                && match mark {
                    P::AndAnd => left.bits != 0,
                    P::OrOr => left.bits == 0,
                    _ => true,
                };
            let right = self.binary(strength + 1, right_live)?;
            left = match apply(mark, left, right) {
                Some(value) => value,
                None if live => {
                    self.at -= 1;
                    return Err(self.fault("division by zero"));
                }
                None => Number { bits: 0, unsigned: false },
            };
        }
        Ok(left)
    }

    fn unary(&mut self, live: bool) -> Result<Number, ConditionError> {
        let Some(token) = self.tokens.get(self.at) else {
            return Err(self.fault("the condition ends here; a value was expected"));
        };
        let sign = self.mark().filter(|mark| matches!(mark, P::Plus | P::Minus | P::Exclamation | P::Tilde));
        if let Some(sign) = sign {
            self.at += 1;
            self.depth += 1;
            if self.depth > Self::DEPTH {
                return Err(self.fault("the condition is nested too deeply"));
            }
            let value = self.unary(live)?;
            self.depth -= 1;
            return Ok(match sign {
                P::Minus => Number { bits: value.bits.wrapping_neg(), ..value },
                P::Tilde => Number { bits: !value.bits, ..value },
                P::Exclamation => Number { bits: u64::from(value.bits == 0), unsigned: false },
                _ => value,
            });
        }
        if self.take(P::OpenParenthesis) {
            let value = self.conditional(live)?;
            return if self.take(P::CloseParenthesis) { Ok(value) } else { Err(self.fault("`)` was expected here")) };
        }
        let text = self.symbols.text(token.text);
        let value = match token.kind {
            TokenKind::Identifier if self.mark().is_none() => {
                Some(Number { bits: u64::from(text == "true"), unsigned: false })
            }
            TokenKind::Number => integer(text),
            TokenKind::Character => match crate::parse::literal::characters(text) {
                Ok((characters, _)) => characters
                    .first()
                    .map(|character| Number { bits: u64::from(u32::from(*character)), unsigned: false }),
                Err(_) => None,
            },
            _ => None,
        };
        let value = value.ok_or_else(|| self.fault("an integer was expected here"))?;
        self.at += 1;
        Ok(value)
    }
}

fn strength(mark: P) -> Option<u8> {
    Some(match mark {
        P::OrOr => 0,
        P::AndAnd => 1,
        P::Bar => 2,
        P::Caret => 3,
        P::Ampersand => 4,
        P::EqualEqual | P::NotEqual => 5,
        P::Less | P::Greater | P::LessEqual | P::GreaterEqual => 6,
        P::LessLess | P::GreaterGreater => 7,
        P::Plus | P::Minus => 8,
        P::Star | P::Slash | P::Percent => 9,
        _ => return None,
    })
}

fn apply(mark: P, left: Number, right: Number) -> Option<Number> {
    let unsigned = left.unsigned || right.unsigned;
    let (l, r) = (left.bits, right.bits);
    let (sl, sr) = (l.cast_signed(), r.cast_signed());
    let number = |bits| Some(Number { bits, unsigned });
    let truth = |holds: bool| Some(Number { bits: u64::from(holds), unsigned: false });
    let shift = u32::try_from(r.min(64)).unwrap_or(64);
    match mark {
        P::OrOr => truth(l != 0 || r != 0),
        P::AndAnd => truth(l != 0 && r != 0),
        P::Bar => number(l | r),
        P::Caret => number(l ^ r),
        P::Ampersand => number(l & r),
        P::EqualEqual => truth(l == r),
        P::NotEqual => truth(l != r),
        P::Less => truth(if unsigned { l < r } else { sl < sr }),
        P::Greater => truth(if unsigned { l > r } else { sl > sr }),
        P::LessEqual => truth(if unsigned { l <= r } else { sl <= sr }),
        P::GreaterEqual => truth(if unsigned { l >= r } else { sl >= sr }),
        P::LessLess => Some(Number { bits: l.checked_shl(shift).unwrap_or(0), ..left }),
        P::GreaterGreater if left.unsigned => Some(Number { bits: l.checked_shr(shift).unwrap_or(0), ..left }),
        P::GreaterGreater => Some(Number { bits: (sl >> shift.min(63)).cast_unsigned(), ..left }),
        P::Plus => number(l.wrapping_add(r)),
        P::Minus => number(l.wrapping_sub(r)),
        P::Star => number(l.wrapping_mul(r)),
        P::Slash if unsigned => number(l.checked_div(r)?),
        P::Percent if unsigned => number(l.checked_rem(r)?),
        P::Slash if r != 0 => number(sl.wrapping_div(sr).cast_unsigned()),
        P::Percent if r != 0 => number(sl.wrapping_rem(sr).cast_unsigned()),
        _ => None,
    }
}

fn integer(text: &str) -> Option<Number> {
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    let unsigned = text[digits.len()..].contains(['u', 'U']);
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let bits = match hexadecimal {
        Some(digits) => u64::from_str_radix(digits, 16),
        None if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(digits, 8),
        None => digits.parse(),
    };
    bits.ok().map(|bits| Number { bits, unsigned: unsigned || i64::try_from(bits).is_err() })
}

#[cfg(test)]
mod tests {
    use super::holds;
    use crate::lex::scanner::{ScanFindings, ScanPosition, Scanner};
    use crate::lex::token::TokenKind;
    use crate::source::Span;
    use crate::symbol::Symbols;

    fn check(text: &str) -> Result<bool, &'static str> {
        let (mut symbols, mut found) = (Symbols::default(), ScanFindings::default());
        let mut scanner = Scanner::new(text, 0, ScanPosition::START);
        let mut tokens = Vec::new();
        loop {
            let token = scanner.next(&mut symbols, &mut found);
            if token.kind == TokenKind::End {
                break;
            }
            tokens.push(token);
        }
        holds(&tokens, Span::default(), &symbols).map_err(|fault| fault.message)
    }

    #[test]
    fn conditions_are_evaluated_as_in_c() {
        for text in [
            "1",
            "0 || 2 > 1",
            "1 + 2 * 3 == 7",
            "(1 + 2) * 3 == 9",
            "-1 < 0",
            "!(-1 < 0u)",
            "1 ? 1 : 1 / 0",
            "0 && 1 / 0 || 1",
            "0x10 == 16 && 010 == 8",
            "~0 == -1",
            "unknown == 0",
            "-1 >> 63 == -1",
            "1 << 63 != 0",
            "'a' == 97 && L'a' == 97 && '\\n' == 10 && '\\'' == 39 && '\\x41' == 65",
            "!((1 ? -1 : 0u) < 0) && (1 ? -1 : 0) < 0",
            "1 and not 0 and (0 or 1) and 1 not_eq 2 and compl 0 == -1",
            "(6 bitand 3) == 2 and (6 bitor 1) == 7 and (5 xor 1) == 4",
        ] {
            assert_eq!(check(text), Ok(true), "{text}");
        }
        assert_eq!(check("1 / 0"), Err("division by zero"));
        assert_eq!(check("1 +"), Err("the condition ends here; a value was expected"));
        assert_eq!(check("and == 0"), Err("an integer was expected here"));
        assert_eq!(check("(1"), Err("`)` was expected here"));
        assert_eq!(check("1 2"), Err("an operator was expected here"));
        assert_eq!(check(&"(".repeat(100_000)), Err("the condition is nested too deeply"));
        assert_eq!(check(&"!".repeat(100_000)), Err("the condition is nested too deeply"));
    }
}
