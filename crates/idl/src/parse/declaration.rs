//! Parsing of declarations: modules, types, constants, exceptions, repository ids.

use super::types::TypePosition;
use super::{ParseResult, Parser, ReportedError};
use crate::ast::{
    AnnotationMember, AnnotationType, Arm, BitmaskFlag, Bitset, BitsetField, CaseLabel, Declaration,
    DeclarationKind as Kind, Enum, ForwardKind, InterfaceFlavor, Member, Struct, Union, ValueFlavor,
};
use crate::diagnostic::Diagnostic;
use crate::lex::token::{Punctuation as P, TokenKind};
use crate::source::Span;
use crate::symbol::Keyword as K;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EnclosingBody {
    Module,
    Interface,
    Value(ValueFlavor),
}

impl Parser<'_> {
    pub(super) fn declarations(&mut self, place: EnclosingBody, declarations: &mut Vec<Declaration>) {
        loop {
            self.events(declarations);
            if self.is_at_end() || self.is(P::CloseBrace) {
                return;
            }
            if let Some(span) = self.take(P::Semicolon) {
                self.report(Diagnostic::warning(span, "nothing is declared before this `;`").help("leave it out"));
                continue;
            }
            let start = self.at;
            match self.nested(|parser| parser.declaration(place)) {
                Ok(Some(declaration)) => declarations.push(declaration),
                Ok(None) => {}
                Err(ReportedError) => {
                    self.recover();
                    if self.at == start && !self.is(P::CloseBrace) {
                        self.bump();
                    }
                }
            }
        }
    }

    fn declaration(&mut self, place: EnclosingBody) -> ParseResult<Option<Declaration>> {
        let first_token = self.at;
        let annotations = self.annotations()?;
        if self.is_annotation_type() {
            return self.annotation_type(first_token).map(Some);
        }
        let word = self.keyword().filter(|word| word.is_reserved() || self.starts_declaration(*word));
        let kind = match (word, place) {
            (Some(K::Typedef), _) => {
                self.bump();
                let ty = self.type_spec(TypePosition::Member)?;
                Kind::Typedef(ty, self.declarators("the name of the new type")?)
            }
            (Some(K::Struct), _) => self.struct_declaration()?,
            (Some(K::Union), _) => self.union_declaration()?,
            (Some(K::Enum), _) => self.enum_declaration()?,
            (Some(K::Const), _) => self.constant()?,
            (Some(K::Exception), _) => self.exception()?,
            (Some(K::Native), _) => {
                self.bump();
                Kind::Native(self.name("the name of the native type")?)
            }
            (Some(K::Bitset), _) => self.bitset()?,
            (Some(K::Bitmask), _) => self.bitmask()?,
            (Some(K::Typeid), _) => {
                self.bump();
                let name = self.scoped_name("a name")?;
                Kind::TypeId(name, self.string("a repository id in quotes")?)
            }
            (Some(K::Typeprefix), _) => {
                self.bump();
                let name = self.typeprefix_scope()?;
                Kind::TypePrefix(name, self.string("a prefix in quotes")?)
            }
            (Some(K::Import), EnclosingBody::Module) => {
                let start = self.bump().span;
                if self.token().kind == TokenKind::String {
                    self.string("a name")?;
                } else {
                    self.scoped_name("a name")?;
                }
                Kind::Import(start.to_end_of(self.before()))
            }
            (Some(K::Module), EnclosingBody::Module) => {
                return self
                    .module(first_token)
                    .map(|kind| kind.map(|kind| Declaration { kind, annotations, first_token }));
            }
            (Some(K::Interface), EnclosingBody::Module) => self.interface(InterfaceFlavor::Remote)?,
            (Some(K::Local), EnclosingBody::Module) => {
                self.bump();
                self.interface(InterfaceFlavor::Local)?
            }
            (Some(K::Abstract | K::Custom), EnclosingBody::Module)
                if self.ahead(1).is_some_and(|next| next.text.keyword() == Some(K::Eventtype)) =>
            {
                self.bump();
                return self.of_components(K::Eventtype);
            }
            (Some(K::Abstract), EnclosingBody::Module)
                if self.ahead(1).is_some_and(|next| next.text.keyword() == Some(K::Valuetype)) =>
            {
                self.bump();
                self.value(ValueFlavor::Abstract)?
            }
            (Some(K::Abstract), EnclosingBody::Module) => {
                self.bump();
                self.interface(InterfaceFlavor::Abstract)?
            }
            (Some(K::Custom), EnclosingBody::Module) => {
                self.bump();
                self.value(ValueFlavor::Custom)?
            }
            (Some(K::Valuetype), EnclosingBody::Module) => self.value(ValueFlavor::Plain)?,
            (Some(word @ (K::Component | K::Home | K::Eventtype | K::Porttype | K::Connector)), _) => {
                return self.of_components(word);
            }
            (_, EnclosingBody::Module) => return self.not_a_declaration(),
            (word, EnclosingBody::Interface | EnclosingBody::Value(_)) => self.member(place, word)?,
        };
        self.end_or_skip(&what_is(&kind));
        Ok(Some(Declaration { kind, annotations, first_token }))
    }

    fn of_components<T>(&mut self, word: K) -> ParseResult<T> {
        let message =
            format!("`{}` belongs to the CORBA Component Model, which this compiler does not support", word.text());
        self.fail(Diagnostic::error(self.token().span, message))
    }

    /// Returns true if a word that older IDL may use as a name begins a declaration here.
    fn starts_declaration(&self, word: K) -> bool {
        let next = self.ahead(1);
        let by_name = next.is_some_and(|next| next.kind == TokenKind::Identifier || next.is(P::ColonColon));
        let third = self.ahead(2);
        match word {
            K::Bitset | K::Bitmask | K::Home | K::Component | K::Eventtype | K::Porttype | K::Connector => {
                // A type name followed by a name and `;` is not a declaration in a module or an
                // interface, so `home foo;` begins with the keyword.
                by_name
                    && third.is_some_and(|third| {
                        third.is(P::OpenBrace)
                            || third.is(P::Colon)
                            || third.is(P::Semicolon)
                            || third.kind == TokenKind::Identifier
                    })
            }
            K::Typeid | K::Typeprefix => by_name && !third.is_some_and(|third| third.is(P::OpenParenthesis)),
            K::Import => by_name || next.is_some_and(|next| next.kind == TokenKind::String),
            _ => false,
        }
    }

    fn not_a_declaration<T>(&mut self) -> ParseResult<T> {
        let token = self.token();
        if token.kind == TokenKind::Identifier && self.ahead(1).is_some_and(|next| next.kind == TokenKind::Identifier) {
            let near = self.similar_keyword();
            let message = format!("no declaration begins with {}", self.found());
            let diagnostic = Diagnostic::error(token.span, message);
            return self.fail(match near {
                Some(keyword) => diagnostic.help(format!("is `{keyword}` meant?")),
                None => diagnostic.note("interfaces contain operations and attributes, structures contain members"),
            });
        }
        self.expected("a declaration")
    }

    fn similar_keyword(&self) -> Option<&'static str> {
        let text = self.symbols.text(self.token().text).to_ascii_lowercase();
        let words = [
            "module",
            "interface",
            "struct",
            "union",
            "enum",
            "typedef",
            "const",
            "exception",
            "valuetype",
            "abstract",
            "local",
            "native",
        ];
        words.into_iter().find(|word| distance(&text, word) <= 2)
    }

    fn module(&mut self, _first: usize) -> ParseResult<Option<Kind>> {
        self.bump();
        let name = self.name("the name of the module")?;
        if self.is(P::Less) {
            let message = "this compiler does not support template modules";
            return self.fail(Diagnostic::error(self.token().span, message));
        }
        let open = self.open_body()?;
        let mut body = Vec::new();
        self.declarations(EnclosingBody::Module, &mut body);
        let end = self.close_body(open)?;
        let events = |declaration: &Declaration| {
            matches!(declaration.kind, Kind::EnterFile | Kind::LeaveFile | Kind::Pragma(..))
        };
        if body.iter().all(events) && self.diagnostics.error_count() == 0 {
            self.report(Diagnostic::error(name.span, "a module cannot be empty").label("nothing is declared in it"));
        }
        self.end_of("a module")?;
        Ok(Some(Kind::Module(name, body, end)))
    }

    pub(super) fn close_body(&mut self, open: Span) -> ParseResult<Span> {
        if let Some(end) = self.take(P::CloseBrace) {
            return Ok(end);
        }
        // The preprocessor has already reported an unknown token, so the parser adds no message.
        if self.token().kind == TokenKind::Unknown {
            return Err(ReportedError);
        }
        if self.diagnostics.is_full() || std::mem::replace(&mut self.unclosed, true) {
            return Err(ReportedError);
        }
        let message = format!("`}}` was expected, {} was found", self.found());
        self.fail(Diagnostic::error(self.token().span, message).related(open, "this brace is not closed"))
    }

    fn typeprefix_scope(&mut self) -> ParseResult<crate::ast::ScopedName> {
        let start = self.token();
        if start.is(P::ColonColon) && self.ahead(1).is_some_and(|next| next.kind == TokenKind::String) {
            self.bump();
            return Ok(crate::ast::ScopedName { is_absolute: true, parts: Vec::new(), span: start.span });
        }
        self.scoped_name("the name of a module, interface or value type")
    }

    pub(super) fn struct_declaration(&mut self) -> ParseResult<Kind> {
        self.bump();
        let name = self.name("the name of the structure")?;
        if self.is(P::Semicolon) {
            return Ok(Kind::Forward(name, ForwardKind::Struct));
        }
        let base = if self.take(P::Colon).is_some() { Some(self.scoped_name("a structure")?) } else { None };
        let (members, faulty, end) = self.members()?;
        Ok(Kind::Struct(Struct { name, base, members, is_faulty: faulty, end }))
    }

    fn exception(&mut self) -> ParseResult<Kind> {
        self.bump();
        let name = self.name("the name of the exception")?;
        let (members, _, end) = self.members()?;
        Ok(Kind::Exception(Struct { name, base: None, members, is_faulty: false, end }))
    }

    fn members(&mut self) -> ParseResult<(Vec<Member>, bool, Span)> {
        let (mut members, mut faulty, before) = (Vec::new(), false, self.diagnostics.error_count());
        let open = self.open_body()?;
        while !self.is(P::CloseBrace) && !self.is_at_end() {
            match self.struct_member() {
                Ok(member) => members.push(member),
                Err(ReportedError) => {
                    faulty = true;
                    self.recover();
                }
            }
        }
        let end = self.close_body(open)?;
        Ok((members, faulty || self.diagnostics.error_count() > before, end))
    }

    fn struct_member(&mut self) -> ParseResult<Member> {
        let first_token = self.at;
        let annotations = self.annotations()?;
        if let Some(word @ (K::Public | K::Private)) = self.keyword() {
            let message = format!("`{}` is allowed in value types only", word.text());
            let span = self.bump().span;
            self.report(Diagnostic::error(span, message).help("leave it out: all members of a structure are public"));
        }
        let ty = self.type_spec(TypePosition::Member)?;
        let declarators = self.declarators("the name of the member")?;
        self.end_or_skip("a member");
        Ok(Member { ty, declarators, annotations, first_token })
    }

    pub(super) fn union_declaration(&mut self) -> ParseResult<Kind> {
        self.bump();
        let name = self.name("the name of the union")?;
        if self.is(P::Semicolon) {
            return Ok(Kind::Forward(name, ForwardKind::Union));
        }
        if self.take_keyword(K::Switch).is_none() {
            return self.expected("`switch`");
        }
        self.expect(P::OpenParenthesis, "(")?;
        let discriminator = Box::new(self.type_spec(TypePosition::Discriminator)?);
        self.expect(P::CloseParenthesis, ")")?;
        let open = self.open_body()?;
        let mut arms = Vec::new();
        while !self.is(P::CloseBrace) && !self.is_at_end() {
            match self.arm() {
                Ok(arm) => arms.push(arm),
                Err(ReportedError) => self.recover(),
            }
        }
        let end = self.close_body(open)?;
        if arms.is_empty() && self.diagnostics.error_count() == 0 {
            self.report(Diagnostic::error(name.span, "a union needs a member"));
        }
        Ok(Kind::Union(Union { name, discriminator, arms, end }))
    }

    fn arm(&mut self) -> ParseResult<Arm> {
        let mut labels = Vec::new();
        let mut annotations = self.annotations()?;
        loop {
            if self.take_keyword(K::Case).is_some() {
                labels.push(CaseLabel::Case(self.expression()?));
            } else if let Some(span) = self.take_keyword(K::Default) {
                labels.push(CaseLabel::Default(span));
            } else if labels.is_empty() {
                return self.expected("`case` or `default`");
            } else {
                break;
            }
            self.expect(P::Colon, ":")?;
        }
        let first_token = self.at;
        let mut ty = self.type_spec(TypePosition::Member)?;
        annotations.append(&mut ty.annotations);
        ty.annotations = annotations;
        let declarator = self.declarator("the name of the member")?;
        self.end_of("a member")?;
        Ok(Arm { labels, ty, declarator, first_token })
    }

    pub(super) fn enum_declaration(&mut self) -> ParseResult<Kind> {
        self.bump();
        let name = self.name("the name of the enumeration")?;
        let before = self.diagnostics.error_count();
        let open = self.open_body()?;
        let mut enumerators = Vec::new();
        while !self.is(P::CloseBrace) {
            let first = self.at;
            let annotations = self.annotations()?;
            match self.name("an enumerator") {
                Ok(name) => {
                    enumerators.push((name, first, annotations));
                    self.no_value_of_enumerator()?;
                    self.skip_unknown()?;
                }
                Err(ReportedError) => self.skip_to_comma()?,
            }
            let Some(comma) = self.take(P::Comma) else {
                if self.missing_comma() {
                    continue;
                }
                break;
            };
            if self.is(P::CloseBrace) {
                self.report(
                    Diagnostic::warning(comma, "this comma separates nothing")
                        .help("leave it out: not every compiler accepts it"),
                );
            }
        }
        if enumerators.is_empty() && self.diagnostics.error_count() == before {
            self.report(Diagnostic::error(name.span, "an enumeration needs an enumerator"));
        }
        self.close_body(open)?;
        Ok(Kind::Enum(Enum { name, enumerators }))
    }

    fn no_value_of_enumerator(&mut self) -> ParseResult<()> {
        let Some(start) = self.take(P::Equal) else { return Ok(()) };
        let before = self.before();
        self.skip_to_comma()?;
        let end = if self.before() == before { start } else { self.before() };
        let diagnostic = Diagnostic::error(start.to_end_of(end), "an enumerator has no value of its own");
        self.report(diagnostic.help("leave it out, and declare numbers with `const` where they matter"));
        Ok(())
    }

    fn skip_unknown(&mut self) -> ParseResult<()> {
        if self.token().kind == TokenKind::Unknown { self.skip_to_comma() } else { Ok(()) }
    }

    fn missing_comma(&mut self) -> bool {
        let missing = self.token().kind == TokenKind::Identifier && self.token().text.keyword().is_none();
        if missing {
            let message = format!("`,` was expected, {} was found", self.found());
            let last = self.before();
            let span = Span { start: last.end.saturating_sub(1), ..last };
            self.report(Diagnostic::error(span, message).label("`,` is missing here"));
        }
        missing
    }

    fn skip_to_comma(&mut self) -> ParseResult<()> {
        while !self.is(P::Comma) && !self.is(P::CloseBrace) {
            if self.is_at_end() || self.is(P::Semicolon) || self.is(P::OpenBrace) {
                return Err(ReportedError);
            }
            self.bump();
        }
        Ok(())
    }

    fn constant(&mut self) -> ParseResult<Kind> {
        self.bump();
        let ty = self.type_spec(TypePosition::Constant)?;
        let name = self.name("the name of the constant")?;
        self.expect(P::Equal, "=")?;
        Ok(Kind::Constant(ty, name, self.expression()?))
    }

    fn bitset(&mut self) -> ParseResult<Kind> {
        self.bump();
        let name = self.name("the name of the bit set")?;
        let base = if self.take(P::Colon).is_some() { Some(self.scoped_name("a bit set")?) } else { None };
        let open = self.open_body()?;
        let mut fields = Vec::new();
        while !self.is(P::CloseBrace) && !self.is_at_end() {
            self.annotations()?;
            if self.take_keyword(K::Bitfield).is_none() {
                return self.expected("`bitfield`");
            }
            self.expect(P::Less, "<")?;
            let (width, ty) = self.in_angles(|parser| {
                let width = parser.expression()?;
                let typed = parser.take(P::Comma).is_some();
                let ty = if typed { Some(parser.type_spec(TypePosition::Element)?) } else { None };
                parser.expect(P::Greater, ">")?;
                Ok((width, ty))
            })?;
            let mut names = Vec::new();
            if !self.is(P::Semicolon) {
                names.push(self.name("the name of the field")?);
                while self.take(P::Comma).is_some() {
                    names.push(self.name("the name of the field")?);
                }
            }
            self.end_of("a bit field")?;
            fields.push(BitsetField { width, ty, names });
        }
        self.close_body(open)?;
        Ok(Kind::Bitset(Bitset { name, base, fields }))
    }

    fn bitmask(&mut self) -> ParseResult<Kind> {
        self.bump();
        let name = self.name("the name of the bit mask")?;
        let open = self.open_body()?;
        let mut flags = Vec::new();
        while !self.is(P::CloseBrace) {
            let annotations = self.annotations()?;
            flags.push(BitmaskFlag { name: self.name("the name of a flag")?, annotations });
            self.skip_unknown()?;
            if self.take(P::Comma).is_none() && !self.missing_comma() {
                break;
            }
        }
        self.close_body(open)?;
        Ok(Kind::Bitmask(name, flags))
    }

    fn annotation_type(&mut self, first_token: usize) -> ParseResult<Declaration> {
        self.bump();
        self.bump();
        let name = self.annotation_word()?;
        let open = self.open_body()?;
        let (mut body, mut members) = (Vec::new(), Vec::new());
        while !self.is(P::CloseBrace) && !self.is_at_end() {
            let start = self.at;
            let parsed = match self.keyword() {
                Some(K::Enum | K::Const | K::Typedef | K::Struct | K::Union | K::Bitmask | K::Bitset) => self
                    .nested(|parser| parser.declaration(EnclosingBody::Module))
                    .map(|declaration| body.extend(declaration)),
                _ => self.annotation_member().map(|member| members.push(member)),
            };
            if parsed.is_err() {
                self.recover();
                if self.at == start {
                    self.bump();
                }
            }
        }
        self.close_body(open)?;
        self.end_of("an annotation")?;
        let kind = Kind::AnnotationType(AnnotationType { name, body, members });
        Ok(Declaration { kind, annotations: Vec::new(), first_token })
    }

    fn annotation_member(&mut self) -> ParseResult<AnnotationMember> {
        let ty = self.type_spec(TypePosition::Constant)?;
        let name = self.annotation_word()?;
        let default = if self.take_keyword(K::Default).is_some() { Some(self.expression()?) } else { None };
        self.end_of("a member")?;
        Ok(AnnotationMember { ty, name, default })
    }
}

fn what_is(kind: &Kind) -> String {
    let text = match kind {
        Kind::Interface(_) | Kind::InterfaceForward(..) => "an interface",
        Kind::Value(_) | Kind::ValueForward(..) | Kind::ValueBox(..) => "a value type",
        Kind::Struct(_) | Kind::Forward(_, ForwardKind::Struct) => "a structure",
        Kind::Union(_) | Kind::Forward(_, ForwardKind::Union) => "a union",
        Kind::Exception(_) => "an exception",
        Kind::Enum(_) => "an enumeration",
        Kind::Typedef(..) => "a type definition",
        Kind::Constant(..) => "a constant",
        Kind::Operation(_) | Kind::Factory(..) => "an operation",
        Kind::Attribute(_) => "an attribute",
        Kind::State(_) => "a member",
        _ => "a declaration",
    };
    text.to_owned()
}

/// Returns the edit distance of two words if it is at most 2, else a number above 2.
pub(crate) fn distance(one: &str, two: &str) -> usize {
    let (one, two) = (one.as_bytes(), two.as_bytes());
    if one.len().abs_diff(two.len()) > 2 {
        return 3;
    }
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in two.iter().enumerate() {
            let change = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[two.len()]
}
