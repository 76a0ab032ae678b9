//! Warnings about names that differ only in case, for the mode `--case-sensitive`.

use super::{DeclarationResolver, NameScope, ScopeItem};
use crate::ast::{Name, Parameter};
use crate::diagnostic::Diagnostic;
use crate::model::DefinitionKind;
use crate::source::Span;
use crate::symbol::SymbolMap;

impl DeclarationResolver<'_> {
    pub(super) fn check_case(&mut self) {
        if !self.symbols.is_case_sensitive() {
            return;
        }
        for scope in 0..self.scopes.len() {
            let mut names = Self::declared_names(&self.scopes[scope]);
            names.sort_by_key(|name| name.span.start);
            let mut seen = SymbolMap::default();
            if let Some(owner) = self.scopes[scope].owner {
                for (id, member, span) in self.inherited_operations(owner).into_values() {
                    let symbol = member.unwrap_or(self.model.get(id).name);
                    seen.insert(self.symbols.lower_case(symbol), Name { symbol, span });
                }
                let definition = self.model.get(owner);
                if !matches!(definition.kind, DefinitionKind::Module(_)) {
                    let name = Name { symbol: definition.name, span: definition.span };
                    seen.insert(self.symbols.lower_case(name.symbol), name);
                }
            }
            for name in names {
                match seen.insert(self.symbols.lower_case(name.symbol), name) {
                    Some(before) if before.symbol != name.symbol => self.warn_of_case(name, before),
                    _ => {}
                }
            }
        }
    }

    fn declared_names(scope: &NameScope) -> Vec<Name> {
        let declared = scope.names.values().filter(|entry| !matches!(entry.what, ScopeItem::Introduced(_)));
        let names = declared.map(|entry| Name { symbol: entry.symbol, span: entry.span });
        names.filter(|name| name.span != Span::default()).collect()
    }

    pub(super) fn check_case_of_parameter(&mut self, name: Name, parameters: &[Parameter]) {
        if !self.symbols.is_case_sensitive() {
            return;
        }
        let lower_case = self.symbols.lower_case(name.symbol);
        let earlier = parameters.iter().map(|parameter| parameter.name).take_while(|other| other.span != name.span);
        let like = |other: &Name| other.symbol != name.symbol && self.symbols.lower_case(other.symbol) == lower_case;
        if let Some(before) = earlier.into_iter().find(like) {
            self.warn_of_case(name, before);
        }
    }

    fn warn_of_case(&mut self, name: Name, before: Name) {
        let message = format!("`{}` and `{}` differ only in case", self.text(name.symbol), self.text(before.symbol));
        let diagnostic = Diagnostic::warning(name.span, message).related(before.span, "declared before");
        self.report(diagnostic.note("other IDL compilers treat them as one name, and refuse the text"));
    }
}
