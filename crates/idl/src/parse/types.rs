//! Parsing of types and declarators.

use super::{ParseResult, Parser, ReportedError};
use crate::ast::{BasicType, Declaration, Declarator, Type, TypeKind};
use crate::diagnostic::Diagnostic;
use crate::lex::token::{Punctuation as P, TokenKind};
use crate::source::Span;
use crate::symbol::Keyword as K;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypePosition {
    Member,
    Element,
    Parameter,
    Result,
    Constant,
    Discriminator,
}

impl Parser<'_> {
    pub(super) fn type_spec(&mut self, position: TypePosition) -> ParseResult<Type> {
        self.nested(|parser| {
            let annotations = parser.annotations()?;
            let start = parser.token().span;
            let kind = parser.type_kind(position)?;
            let ty = Type { annotations, kind, span: start.to_end_of(parser.before()) };
            parser.check_position(&ty, position)?;
            Ok(ty)
        })
    }

    fn check_position(&mut self, ty: &Type, position: TypePosition) -> ParseResult<()> {
        use TypePosition as At;
        let anonymous = matches!(position, At::Parameter | At::Result);
        let made = match &ty.kind {
            TypeKind::Sequence(..) => "sequence",
            TypeKind::Fixed(_) => "fixed-point type",
            TypeKind::Map(..) => "map",
            TypeKind::Inline(_) if anonymous || position == At::Constant || position == At::Element => {
                let message = "a type cannot be defined here";
                return self.fail(Diagnostic::error(ty.span, message).help("define it earlier, and use its name here"));
            }
            TypeKind::Basic(BasicType::Void) if position != At::Result => {
                return self.fail(
                    Diagnostic::error(ty.span, "`void` is not a type").note("only an operation can have no result"),
                );
            }
            _ => return Ok(()),
        };
        match &ty.kind {
            _ if anonymous => {
                let message = format!("a {made} needs a name to be used here");
                let text = "typedef ... T;";
                self.fail(
                    Diagnostic::error(ty.span, message)
                        .help(format!("give it a name with `{text}`, and use the name here")),
                )
            }
            TypeKind::Fixed(None) if position != At::Constant => self.fail(
                Diagnostic::error(ty.span, "`fixed` needs its digits and scale here")
                    .help("write `fixed<digits, scale>`"),
            ),
            _ => Ok(()),
        }
    }

    fn type_kind(&mut self, position: TypePosition) -> ParseResult<TypeKind> {
        if self.token().kind == TokenKind::Punctuation(P::ColonColon) {
            return Ok(TypeKind::Named(self.scoped_name("a type")?));
        }
        let token = self.token();
        let basic = |basic| Ok(TypeKind::Basic(basic));
        let word = self.keyword().filter(|word| word.is_reserved() || !self.redefined.contains(&token.text));
        let Some(word) = word else {
            if let Some(kind) = self.type_of_cpp(position) {
                return kind;
            }
            return Ok(TypeKind::Named(self.scoped_name("a type")?));
        };
        if matches!(word, K::Struct | K::Union | K::Enum | K::Exception | K::Bitmask | K::Bitset) {
            return self.inline();
        }
        let simple = match word {
            K::Void => BasicType::Void,
            K::Short | K::Int16 => BasicType::Short,
            K::Int32 => BasicType::Long,
            K::Int64 => BasicType::LongLong,
            K::Int8 => BasicType::Int8,
            K::Uint8 => BasicType::UInt8,
            K::Uint16 => BasicType::UShort,
            K::Uint32 => BasicType::ULong,
            K::Uint64 => BasicType::ULongLong,
            K::Float => BasicType::Float,
            K::Double => BasicType::Double,
            K::Char => BasicType::Char,
            K::Wchar => BasicType::WChar,
            K::Boolean => BasicType::Boolean,
            K::Octet => BasicType::Octet,
            K::Any => BasicType::Any,
            K::Object => BasicType::Object,
            K::ValueBase => BasicType::ValueBase,
            K::Long => {
                self.bump();
                return basic(if self.take_keyword(K::Long).is_some() {
                    BasicType::LongLong
                } else if self.take_keyword(K::Double).is_some() {
                    BasicType::LongDouble
                } else {
                    BasicType::Long
                });
            }
            K::Unsigned => return self.unsigned(),
            K::String | K::Wstring => {
                self.bump();
                let bound = match self.take(P::Less) {
                    Some(_) => Some(self.in_angles(Self::closing_bound)?),
                    None => None,
                };
                return Ok(TypeKind::String(word == K::Wstring, bound));
            }
            K::Fixed => return self.fixed(),
            K::Sequence => return self.sequence(),
            K::Map => return self.map(),
            _ => {
                return Ok(TypeKind::Named(self.scoped_name(if position == TypePosition::Result {
                    "a result type"
                } else {
                    "a type"
                })?));
            }
        };
        self.bump();
        basic(simple)
    }

    fn type_of_cpp(&mut self, position: TypePosition) -> Option<ParseResult<TypeKind>> {
        let token = self.token();
        let behind = self.ahead(1).filter(|_| self.symbols.text(token.text) == "std")?;
        let named = self.ahead(2).filter(|_| behind.is(P::ColonColon))?;
        let text = self.symbols.text(named.text).to_owned();
        let opens = self.ahead(3).is_some_and(|next| next.is(P::Less));
        let wanted = match text.as_str() {
            "string" | "wstring" => text.as_str(),
            "map" if opens => "map",
            "vector" if opens => "sequence",
            _ => return None,
        };
        let diagnostic = Diagnostic::error(token.span.to_end_of(named.span), format!("`std::{text}` is a type of C++"));
        self.report(diagnostic.help(format!("write `{wanted}`")));
        self.bump();
        self.bump();
        Some(if text == "vector" { self.sequence() } else { self.type_kind(position) })
    }

    fn unsigned(&mut self) -> ParseResult<TypeKind> {
        self.bump();
        if self.take_keyword(K::Short).is_some() {
            return Ok(TypeKind::Basic(BasicType::UShort));
        }
        if self.take_keyword(K::Long).is_none() {
            let token = self.token();
            if token.kind == TokenKind::Identifier && matches!(self.symbols.text(token.text), "int" | "char") {
                let (found, int) = (self.found(), self.symbols.text(token.text) == "int");
                let (wanted, basic) =
                    if int { ("unsigned long", BasicType::ULong) } else { ("octet", BasicType::Octet) };
                self.bump();
                let diagnostic = Diagnostic::error(token.span, format!("{found} cannot be `unsigned` in IDL"));
                self.report(diagnostic.help(format!("write `{wanted}`")));
                return Ok(TypeKind::Basic(basic));
            }
            return self.expected("`short` or `long`");
        }
        let long = self.take_keyword(K::Long).is_some();
        Ok(TypeKind::Basic(if long { BasicType::ULongLong } else { BasicType::ULong }))
    }

    fn inline(&mut self) -> ParseResult<TypeKind> {
        let first_token = self.at;
        let kind = match self.keyword() {
            Some(K::Struct) => self.struct_declaration()?,
            Some(K::Union) => self.union_declaration()?,
            Some(K::Enum) => self.enum_declaration()?,
            Some(word) => {
                let message = format!("`{}` cannot be defined within another declaration", word.text());
                return self.fail(
                    Diagnostic::error(self.token().span, message).help("declare it earlier, and use its name here"),
                );
            }
            None => return Err(ReportedError),
        };
        Ok(TypeKind::Inline(Box::new(Declaration { kind, annotations: Vec::new(), first_token })))
    }

    fn fixed(&mut self) -> ParseResult<TypeKind> {
        self.bump();
        if self.take(P::Less).is_none() {
            return Ok(TypeKind::Fixed(None));
        }
        self.in_angles(|parser| {
            let digits = parser.expression()?;
            parser.expect(P::Comma, ",")?;
            Ok(TypeKind::Fixed(Some(Box::new((digits, *parser.closing_bound()?)))))
        })
    }

    fn sequence(&mut self) -> ParseResult<TypeKind> {
        self.bump();
        self.expect(P::Less, "<")?;
        self.in_angles(|parser| {
            let element = parser.type_spec(TypePosition::Element)?;
            Ok(TypeKind::Sequence(Box::new(element), parser.optional_bound()?))
        })
    }

    fn map(&mut self) -> ParseResult<TypeKind> {
        self.bump();
        self.expect(P::Less, "<")?;
        self.in_angles(|parser| {
            let key = parser.type_spec(TypePosition::Element)?;
            parser.expect(P::Comma, ",")?;
            let value = parser.type_spec(TypePosition::Element)?;
            Ok(TypeKind::Map(Box::new((key, value)), parser.optional_bound()?))
        })
    }

    fn optional_bound(&mut self) -> ParseResult<Option<Box<crate::ast::Expression>>> {
        if self.take(P::Comma).is_some() {
            return self.closing_bound().map(Some);
        }
        self.close_angle()?;
        Ok(None)
    }

    fn closing_bound(&mut self) -> ParseResult<Box<crate::ast::Expression>> {
        let bound = self.expression()?;
        self.close_angle()?;
        Ok(Box::new(bound))
    }

    fn close_angle(&mut self) -> ParseResult<()> {
        if self.take(P::Greater).is_some() {
            return Ok(());
        }
        if self.is(P::GreaterGreater) {
            self.half_greater = true;
            return Ok(());
        }
        self.expected("`>`")
    }

    pub(super) fn declarator(&mut self, what: &str) -> ParseResult<Declarator> {
        let name = self.name(what)?;
        let mut dimensions = Vec::new();
        while self.take(P::OpenBracket).is_some() {
            if dimensions.len() >= self.limits.max_nesting {
                return self.fail(Diagnostic::error(self.token().span, "the array has too many dimensions"));
            }
            dimensions.push(self.expression()?);
            self.expect(P::CloseBracket, "]")?;
        }
        Ok(Declarator { name, dimensions })
    }

    pub(super) fn declarators(&mut self, what: &str) -> ParseResult<Vec<Declarator>> {
        let mut declarators = vec![self.declarator(what)?];
        while self.take(P::Comma).is_some() {
            declarators.push(self.declarator(what)?);
        }
        Ok(declarators)
    }

    pub(super) fn plain_declarator(&mut self, what: &str, thing: &str) -> ParseResult<crate::ast::Name> {
        let declarator = self.declarator(what)?;
        if let (Some(first), Some(last)) = (declarator.dimensions.first(), declarator.dimensions.last()) {
            let span: Span = first.span.to_end_of(last.span);
            self.report(
                Diagnostic::error(span, format!("{thing} cannot be declared as an array"))
                    .help("give the array type a name with `typedef`, and use the name"),
            );
        }
        Ok(declarator.name)
    }
}
