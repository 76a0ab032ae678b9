//! Repository ids, and their settings by pragmas, `typeid`, `typeprefix` and `import` (CORBA 3.0.3,
//! sections 10.7.5 and 3.15).

use super::{DeclarationResolver, DeclarationSite, ScopeItem};
use crate::ast::{Name, ScopedName, StringLiteral};
use crate::diagnostic::Diagnostic;
use crate::lex::token::{Punctuation as P, Token, TokenKind};
use crate::model::{DefinitionId, DefinitionKind, Model};
use crate::parse::declaration::distance;
use crate::source::Span;
use crate::symbol::Symbols;

impl Model {
    /// Returns the repository id of a definition.
    #[must_use]
    pub fn repository_id(&self, id: DefinitionId, symbols: &Symbols) -> String {
        let identity = &self.get(id).identity;
        if let Some((given, _)) = identity.given().and_then(|given| given.id.as_ref()) {
            return given.clone();
        }
        let path = self.path(id);
        let typed = path.iter().rev().find_map(|id| self.get(*id).identity.given()?.type_prefix.as_ref());
        let prefix = match typed.or_else(|| self.file_prefixes.get(&identity.file)) {
            Some((prefix, _)) => prefix.as_str(),
            None => &identity.prefix,
        };
        let version = identity.given().and_then(|given| given.version.as_ref());
        let version = version.map_or("1.0", |(version, _)| version);
        let mut text = String::from("IDL:");
        if !prefix.is_empty() {
            text.push_str(prefix);
            text.push('/');
        }
        let names: Vec<_> = path.iter().map(|id| symbols.text(self.get(*id).name)).collect();
        format!("{text}{}:{version}", names.join("/"))
    }
}

impl DeclarationResolver<'_> {
    pub(super) fn pragma(&mut self, span: Span, tokens: &[Token], at: DeclarationSite) {
        let Some((first, rest)) = tokens.split_first() else { return };
        match self.text(first.text) {
            "prefix" => match self.pragma_text(rest) {
                Some((prefix, _)) => self.prefix = prefix.into(),
                None => self.report(Diagnostic::error(span, "`#pragma prefix` needs a prefix in quotes")),
            },
            "ID" => {
                let parsed = self.pragma_name(rest).and_then(|(name, rest)| Some((name, self.pragma_text(rest)?)));
                match parsed {
                    Some((name, (id, place))) => self.pragma_id(&name, id, place, at),
                    None => self.report(Diagnostic::error(span, "`#pragma ID` needs a name and an id in quotes")),
                }
            }
            "version" => {
                let parsed = self.pragma_name(rest).and_then(|(name, rest)| Some((name, *rest.first()?)));
                match parsed {
                    Some((name, version)) => self.pragma_version(&name, version, at),
                    None => self.report(Diagnostic::error(span, "`#pragma version` needs a name and a version")),
                }
            }
            // A pragma with another name may be for another compiler, so it is never refused (CORBA
            // 3.0.3, section 10.7.5).
            other => {
                let like = |word: &&str| match *word {
                    "ID" => other.eq_ignore_ascii_case("ID"),
                    word => distance(&other.to_ascii_lowercase(), word) <= 2,
                };
                if let Some(word) = ["prefix", "ID", "version"].into_iter().find(like) {
                    let message = format!("`#pragma {other}` has no effect here");
                    self.report(Diagnostic::warning(span, message).help(format!("is `#pragma {word}` meant?")));
                }
            }
        }
    }

    fn pragma_text(&self, tokens: &[Token]) -> Option<(String, Span)> {
        let token = tokens.first().filter(|token| token.kind == TokenKind::String)?;
        let text = self.text(token.text).strip_prefix('"')?.strip_suffix('"')?;
        Some((text.to_owned(), token.span))
    }

    fn pragma_name<'t>(&mut self, tokens: &'t [Token]) -> Option<(ScopedName, &'t [Token])> {
        let mut rest = tokens;
        let absolute = rest.first()?.is(P::ColonColon);
        if absolute {
            rest = &rest[1..];
        }
        let mut parts = Vec::new();
        loop {
            let (token, after) = rest.split_first()?;
            if token.kind != TokenKind::Identifier {
                return None;
            }
            let text = self.text(token.text);
            let plain = text.strip_prefix('_').unwrap_or(text).to_owned();
            parts.push(Name { symbol: self.symbols.intern(&plain), span: token.span });
            rest = after;
            if !rest.first().is_some_and(|next| next.is(P::ColonColon)) {
                break;
            }
            rest = &rest[1..];
        }
        let span = parts.first()?.span.to_end_of(parts.last()?.span);
        Some((ScopedName { is_absolute: absolute, parts, span }, rest))
    }

    fn pragma_id(&mut self, name: &ScopedName, id: String, span: Span, at: DeclarationSite) {
        let Ok(definition) = self.look_up(name, at.scope, false) else { return };
        self.set_id(definition, id, span);
    }

    fn set_id(&mut self, definition: DefinitionId, id: String, span: Span) {
        if id.split_once(':').is_none_or(|(format, rest)| format.is_empty() || rest.is_empty()) {
            let message = format!("`{}` is not a repository id", id.escape_debug());
            self.report(Diagnostic::error(span, message).help("an id is a format, a colon and a name: `IDL:M/I:1.0`"));
            return;
        }
        let known = self.model.get(definition).identity.given().and_then(|given| given.id.clone());
        match known {
            Some((known, first)) if known != id => {
                let message = format!("{} gets a second repository id", self.described(definition));
                self.report(Diagnostic::error(span, message).label("the second").related(first, "the first"));
            }
            _ => self.model.get_mut(definition).identity.given_mut().id = Some((id, span)),
        }
    }

    fn pragma_version(&mut self, name: &ScopedName, token: Token, at: DeclarationSite) {
        let Ok(definition) = self.look_up(name, at.scope, false) else { return };
        let version = self.text(token.text).to_owned();
        let parts = version.split_once('.');
        if parts.is_none_or(|(major, minor)| major.parse::<u16>().is_err() || minor.parse::<u16>().is_err()) {
            let message = format!("`{version}` is not a version");
            self.report(Diagnostic::error(token.span, message).help("a version is two numbers: `1.0`"));
            return;
        }
        let given = self.model.get(definition).identity.given();
        let before = given.and_then(|given| given.version.clone().or_else(|| given.id.clone()));
        match before {
            Some((known, _)) if known == version => {}
            Some((_, first)) => {
                let message = format!("the version of {} is fixed already", self.described(definition));
                self.report(Diagnostic::error(token.span, message).label("too late").related(first, "fixed here"));
            }
            None => self.model.get_mut(definition).identity.given_mut().version = Some((version, token.span)),
        }
    }

    pub(super) fn type_id(&mut self, name: &ScopedName, id: &StringLiteral, at: DeclarationSite) {
        let Ok(definition) = self.look_up(name, at.scope, false) else { return };
        if let Some((_, first)) = self.model.get(definition).identity.given().and_then(|given| given.id.clone()) {
            let message = format!("{} gets a second repository id", self.described(definition));
            self.report(Diagnostic::error(id.span, message).label("the second").related(first, "the first"));
            return;
        }
        self.set_id(definition, id.value.clone(), id.span);
    }

    pub(super) fn type_prefix(&mut self, name: &ScopedName, prefix: &StringLiteral, at: DeclarationSite) {
        if name.parts.is_empty() {
            match self.model.file_prefixes.get(&self.file) {
                Some((known, _)) if *known == prefix.value => {}
                Some((_, first)) => {
                    let diagnostic =
                        Diagnostic::error(prefix.span, "the file gets a second prefix").label("the second");
                    let diagnostic = diagnostic.related(*first, "the first");
                    self.report(diagnostic);
                }
                None => {
                    self.model.file_prefixes.insert(self.file, (prefix.value.clone(), prefix.span));
                }
            }
            return;
        }
        let Ok(definition) = self.look_up(name, at.scope, false) else { return };
        if !matches!(
            self.model.get(definition).kind,
            DefinitionKind::Module(_) | DefinitionKind::Interface(_) | DefinitionKind::Value(_)
        ) {
            let message = format!("{} cannot have a prefix", self.described(definition));
            let note = "`typeprefix` is for modules, interfaces and value types";
            self.report(Diagnostic::error(name.span, message).note(note));
            return;
        }
        let known = self.model.get(definition).identity.given().and_then(|given| given.type_prefix.clone());
        match known {
            Some((known, _)) if known == prefix.value => {}
            Some((_, first)) => {
                let message = format!("{} gets a second prefix", self.described(definition));
                self.report(Diagnostic::error(prefix.span, message).label("the second").related(first, "the first"));
            }
            None => {
                let given = self.model.get_mut(definition).identity.given_mut();
                given.type_prefix = Some((prefix.value.clone(), prefix.span));
            }
        }
    }

    pub(super) fn import(&mut self, span: Span) {
        if self.defined_anything {
            let message = "`import` stands in front of all declarations";
            self.report(Diagnostic::error(span, message).help("move it to the beginning of the file"));
        } else {
            let message = "there is no repository to import from: the declaration has no effect";
            self.report(Diagnostic::warning(span, message).help("use `#include`"));
        }
    }

    pub(super) fn check_same_prefix(&mut self, id: DefinitionId, name: Name, again: &str) {
        let definition = self.model.get(id);
        let (before, span) = (definition.identity.prefix.clone(), definition.span);
        let given = definition.identity.given().is_some_and(|given| given.id.is_some())
            || [definition.identity.file, self.file].iter().any(|file| self.model.file_prefixes.contains_key(file))
            || self
                .model
                .path(id)
                .into_iter()
                .any(|id| self.model.get(id).identity.given().is_some_and(|given| given.type_prefix.is_some()));
        let is_module = matches!(definition.kind, DefinitionKind::Module(_));
        if before != self.prefix && !given && span != Span::default() {
            let message = format!(
                "{} is {again} under the prefix `{}`, before it had `{before}`",
                self.described(id),
                self.prefix
            );
            // A module's id never appears on the wire, so a different prefix causes only a warning.
            let diagnostic = if is_module {
                Diagnostic::warning(name.span, message).label("declarations here get this prefix")
            } else {
                Diagnostic::error(name.span, message).label("would get another repository id")
            };
            let diagnostic = diagnostic.related(span, "declared here");
            self.report(diagnostic.help("use the same `#pragma prefix` at both places"));
        }
        if span == Span::default() {
            let (prefix, file) = (self.prefix.clone(), self.file);
            let definition = self.model.get_mut(id);
            (definition.identity.prefix, definition.identity.file, definition.span) = (prefix, file, name.span);
        }
    }

    pub(super) fn known_definition(&self, name: Name, at: DeclarationSite) -> Option<DefinitionId> {
        let entry = self.entry(at.scope, name.symbol)?;
        match entry.what {
            ScopeItem::Definition(id) if entry.symbol == name.symbol => Some(id),
            _ => None,
        }
    }
}
