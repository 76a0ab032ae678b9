//! Parsing of interfaces, value types and their members.

use super::declaration::EnclosingBody;
use super::types::TypePosition;
use super::{ParseResult, Parser};
use crate::ast::{
    Attribute, DeclarationKind as Kind, Direction, Interface, InterfaceFlavor, OperationDeclaration, Parameter,
    ScopedName, StateMember, ValueDeclaration, ValueFlavor,
};
use crate::diagnostic::Diagnostic;
use crate::lex::token::{Punctuation as P, TokenKind};
use crate::symbol::Keyword as K;

impl Parser<'_> {
    pub(super) fn interface(&mut self, flavor: InterfaceFlavor) -> ParseResult<Kind> {
        if self.take_keyword(K::Interface).is_none() {
            return self.expected("`interface`");
        }
        let name = self.name("the name of the interface")?;
        if self.is(P::Semicolon) {
            return Ok(Kind::InterfaceForward(flavor, name));
        }
        let bases = if self.take(P::Colon).is_some() { self.bases("an interface")? } else { Vec::new() };
        let open = self.open_body()?;
        let mut body = Vec::new();
        self.declarations(EnclosingBody::Interface, &mut body);
        let end = self.close_body(open)?;
        Ok(Kind::Interface(Interface { flavor, name, bases, body, end }))
    }

    fn bases(&mut self, what: &str) -> ParseResult<Vec<ScopedName>> {
        let mut bases = Vec::new();
        loop {
            if let Some(word @ (K::Object | K::ValueBase)) = self.keyword() {
                let message = format!("`{}` cannot be named as a base", word.text());
                let span = self.bump().span;
                self.report(
                    Diagnostic::error(span, message)
                        .help("leave it out: every interface and value type has it as its base"),
                );
            } else {
                bases.push(self.scoped_name(what)?);
            }
            if self.take(P::Comma).is_none() {
                return Ok(bases);
            }
        }
    }

    pub(super) fn value(&mut self, flavor: ValueFlavor) -> ParseResult<Kind> {
        if self.take_keyword(K::Valuetype).is_none() {
            return self.expected("`valuetype`");
        }
        let name = self.name("the name of the value type")?;
        if self.is(P::Semicolon) {
            if flavor == ValueFlavor::Custom {
                let message = "a value type is announced without `custom`";
                self.report(
                    Diagnostic::error(name.span, message)
                        .help("leave out `custom` here, and write it at the definition"),
                );
            }
            return Ok(Kind::ValueForward(flavor, name));
        }
        let has_body = self.is(P::Colon) || self.is(P::OpenBrace) || self.keyword() == Some(K::Supports);
        if !has_body {
            if flavor != ValueFlavor::Plain {
                return self.expected("`{`");
            }
            return Ok(Kind::ValueBox(name, self.type_spec(TypePosition::Member)?));
        }
        let (mut truncatable, mut bases) = (None, Vec::new());
        if self.take(P::Colon).is_some() {
            truncatable = self.take_keyword(K::Truncatable);
            bases = self.bases("a value type")?;
        }
        let supports = if self.take_keyword(K::Supports).is_some() { self.bases("an interface")? } else { Vec::new() };
        let open = self.open_body()?;
        let mut body = Vec::new();
        self.declarations(EnclosingBody::Value(flavor), &mut body);
        let end = self.close_body(open)?;
        Ok(Kind::Value(ValueDeclaration { flavor, name, truncatable, bases, supports, body, end }))
    }

    pub(super) fn member(&mut self, place: EnclosingBody, word: Option<K>) -> ParseResult<Kind> {
        let value = match place {
            EnclosingBody::Value(flavor) => Some(flavor),
            _ => None,
        };
        match (word, value) {
            (Some(K::Readonly | K::Attribute), _) => self.attribute(),
            (Some(K::Public | K::Private), Some(flavor)) => {
                let span = self.bump().span;
                let public = word == Some(K::Public);
                if let Some(colon) = self.take(P::Colon) {
                    let text = if public { "public" } else { "private" };
                    let diagnostic = Diagnostic::error(colon, format!("`{text}` has no `:` in IDL"));
                    self.report(diagnostic.help(format!("write `{text}` in front of each member")));
                }
                let ty = self.type_spec(TypePosition::Member)?;
                let declarators = self.declarators("the name of the member")?;
                if flavor == ValueFlavor::Abstract {
                    let message = "an abstract value type has no state";
                    self.report(Diagnostic::error(span.to_end_of(self.before()), message).label("state"));
                }
                Ok(Kind::State(StateMember { is_public: public, ty, declarators }))
            }
            (Some(K::Factory), Some(flavor)) => {
                let span = self.bump().span;
                let name = self.name("the name of the factory")?;
                let parameters = self.parameters()?;
                let raises = self.raises(K::Raises)?;
                if flavor == ValueFlavor::Abstract {
                    self.report(Diagnostic::error(span.to_end_of(name.span), "an abstract value type has no factory"));
                }
                Ok(Kind::Factory(name, parameters, raises))
            }
            (Some(K::Public | K::Private | K::Factory), None) => {
                let message = format!("{} is allowed in value types only", self.found());
                let diagnostic = Diagnostic::error(self.token().span, message);
                if word == Some(K::Factory) {
                    return self.fail(diagnostic);
                }
                self.report(diagnostic.help("leave it out: all operations and attributes are public"));
                self.bump();
                self.member(place, self.keyword())
            }
            (Some(K::Module | K::Interface | K::Local | K::Abstract | K::Valuetype | K::Custom), _) => {
                let message = format!("{} is not allowed in an interface or value type", self.found());
                self.fail(Diagnostic::error(self.token().span, message).help("move it in front of the interface"))
            }
            _ => {
                self.foreign_modifier();
                self.operation(value.is_some())
            }
        }
    }

    /// Reports and skips a modifier that methods have in other languages, such as `static`.
    fn foreign_modifier(&mut self) {
        const WORDS: &[&str] = &["extern", "final", "inline", "protected", "static", "synchronized", "virtual"];
        let token = self.token();
        let is_word = |ahead: usize| self.ahead(ahead).is_some_and(|next| next.kind == TokenKind::Identifier);
        // If only one name follows a word of `WORDS`, the word is the name of a type.
        let text = self.symbols.text(token.text);
        if token.kind != TokenKind::Identifier || !WORDS.contains(&text) || !is_word(1) || !is_word(2) {
            return;
        }
        let message = format!("`{text}` is not a keyword of IDL");
        let help = "leave it out: how an operation is implemented is not part of an interface";
        self.report(Diagnostic::error(token.span, message).help(help));
        self.bump();
    }

    fn operation(&mut self, in_value: bool) -> ParseResult<Kind> {
        let oneway = self.take_keyword(K::Oneway);
        let start = self.token().span;
        let result = self.type_spec(TypePosition::Result)?;
        let name = self.name("the name of the operation")?;
        if in_value && (self.is(P::Semicolon) || self.is(P::Comma) || self.is(P::OpenBracket)) {
            let message = "a member of a value type is `public` or `private`";
            let diagnostic = Diagnostic::error(start.to_end_of(name.span), message).label("neither");
            return self.fail(diagnostic.help("write `public` or `private` in front of it"));
        }
        let parameters = self.parameters()?;
        let raises = self.raises(K::Raises)?;
        let mut context = Vec::new();
        if self.take_keyword(K::Context).is_some() {
            self.expect(P::OpenParenthesis, "(")?;
            context.push(self.context_name()?);
            while self.take(P::Comma).is_some() {
                context.push(self.context_name()?);
            }
            self.expect(P::CloseParenthesis, ")")?;
        }
        Ok(Kind::Operation(OperationDeclaration { oneway, result, name, parameters, raises, context }))
    }

    fn context_name(&mut self) -> ParseResult<crate::ast::StringLiteral> {
        let text = self.string("the name of a property in quotes")?;
        let name = text.value.strip_suffix('*').unwrap_or(&text.value);
        let letters = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'_' || octet == b'.';
        if !name.starts_with(|first: char| first.is_ascii_alphabetic()) || !name.bytes().all(letters) {
            let message = format!("`{}` is not the name of a context property", text.value.escape_debug());
            let note = "it begins with a letter and has letters, digits, `_`, `.` and perhaps `*` at its end";
            self.report(Diagnostic::error(text.span, message).note(note));
        }
        Ok(text)
    }

    fn parameters(&mut self) -> ParseResult<Vec<Parameter>> {
        self.expect(P::OpenParenthesis, "(")?;
        let mut parameters = Vec::new();
        if self.take(P::CloseParenthesis).is_some() {
            return Ok(parameters);
        }
        if self.keyword() == Some(K::Void) && self.ahead(1).is_some_and(|next| next.is(P::CloseParenthesis)) {
            let span = self.bump().span;
            self.bump();
            let diagnostic = Diagnostic::error(span, "`void` is not a parameter");
            self.report(diagnostic.help("write `()` where there are no parameters"));
            return Ok(parameters);
        }
        loop {
            let mut annotations = self.annotations()?;
            let token = self.token();
            let direction = match self.keyword() {
                Some(K::In) => Direction::In,
                Some(K::Out) => Direction::Out,
                Some(K::Inout) => Direction::InOut,
                _ if token.kind == TokenKind::Identifier || token.is(P::ColonColon) => {
                    let message = "a parameter begins with `in`, `out` or `inout`";
                    return self.fail(
                        Diagnostic::error(token.span, message)
                            .label("the direction is missing")
                            .help("write `in` for a value that the client sends"),
                    );
                }
                _ => return self.expected("a parameter"),
            };
            self.bump();
            let mut ty = self.type_spec(TypePosition::Parameter)?;
            annotations.append(&mut ty.annotations);
            ty.annotations = annotations;
            let name = self.plain_declarator("the name of the parameter", "a parameter")?;
            parameters.push(Parameter { direction: (direction, token.span), ty, name });
            if self.take(P::Comma).is_none() {
                break;
            }
        }
        if self.take(P::CloseParenthesis).is_none() {
            return self.expected("`,` or `)`");
        }
        Ok(parameters)
    }

    fn raises(&mut self, word: K) -> ParseResult<Vec<ScopedName>> {
        if self.take_keyword(word).is_none() {
            return Ok(Vec::new());
        }
        self.expect(P::OpenParenthesis, "(")?;
        if self.is(P::CloseParenthesis) {
            let message = format!("`{}` names no exception", word.text());
            return self
                .fail(Diagnostic::error(self.token().span, message).help(format!("leave out `{} ()`", word.text())));
        }
        let names = self.scoped_names("an exception")?;
        self.expect(P::CloseParenthesis, ")")?;
        Ok(names)
    }

    fn misplaced_raises(&mut self, readonly: bool, word: K) {
        let both =
            "write `getraises (..)` for the exceptions of reading, then `setraises (..)` for the exceptions of setting";
        let (message, help) = match (readonly, word) {
            (true, K::Getraises) => ("a read-only attribute has `raises`", "write `raises` instead of `getraises`"),
            (true, K::Setraises) => {
                ("a read-only attribute is never set", "leave out `setraises (..)`, or `readonly` in front of it")
            }
            (true, _) => ("`raises` occurs twice", "put all exceptions into one list"),
            (false, K::Raises) => ("an attribute that can be set has no `raises`", both),
            (false, _) => ("`getraises` and `setraises` stand once each, in this order", both),
        };
        let label = "not here";
        self.report(Diagnostic::error(self.token().span, message).label(label).help(help));
    }

    fn attribute(&mut self) -> ParseResult<Kind> {
        let mut readonly = self.take_keyword(K::Readonly).is_some();
        if self.take_keyword(K::Attribute).is_none() {
            return self.expected("`attribute`");
        }
        if let Some(span) = self.take_keyword(K::Readonly) {
            let diagnostic = Diagnostic::error(span, "`readonly` stands in front of `attribute`");
            self.report(diagnostic.help("write `readonly attribute`"));
            readonly = true;
        }
        let ty = self.type_spec(TypePosition::Parameter)?;
        let mut names = vec![self.plain_declarator("the name of the attribute", "an attribute")?];
        while self.take(P::Comma).is_some() {
            names.push(self.plain_declarator("the name of the attribute", "an attribute")?);
        }
        let start = self.token().span;
        let (get_raises, set_raises) = if readonly {
            (self.raises(K::Raises)?, Vec::new())
        } else {
            (self.raises(K::Getraises)?, self.raises(K::Setraises)?)
        };
        while let Some(word @ (K::Raises | K::Getraises | K::Setraises)) = self.keyword() {
            self.misplaced_raises(readonly, word);
            self.raises(word)?;
        }
        if names.len() > 1 && !(get_raises.is_empty() && set_raises.is_empty()) {
            let message = "attributes that raise exceptions are declared one by one";
            self.report(Diagnostic::error(start.to_end_of(self.before()), message));
        }
        Ok(Kind::Attribute(Attribute { is_readonly: readonly, ty, names, get_raises, set_raises }))
    }
}
