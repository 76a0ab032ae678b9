//! Explanations of names that were not found. The source may mean a later declaration, or a
//! declaration in another scope.

use super::{DeclarationResolver, LookUpResult, Name, ScopeId};
use crate::ast::ScopedName;
use crate::diagnostic::Diagnostic;
use crate::model::{DefinitionId, DefinitionKind};
use crate::source::Span;
use crate::symbol::Symbol;

impl DeclarationResolver<'_> {
    pub(super) fn explain_unknown(&mut self) {
        for (name, scope) in std::mem::take(&mut self.unknown) {
            let Some(first) = name.parts.first().copied() else { continue };
            let message = self.not_declared(first);
            if let (LookUpResult::One(id, _), _) = self.find_outwards(first.symbol, scope) {
                let place = self.model.get(id).span;
                let after = |span: Span| span.start > first.span.start;
                if after(place) {
                    self.diagnostics.amend(first.span, &message, |diagnostic| {
                        diagnostic.related.push((place, "declared here, further down".to_owned()));
                        diagnostic.help = Some("declare it before it is used".to_owned());
                    });
                }
                continue;
            }
            if let Some(full) = self.meant_elsewhere(&name, scope) {
                self.diagnostics.amend(first.span, &message, |diagnostic| {
                    diagnostic.help = Some(format!("is `{full}` meant?"));
                });
            }
        }
    }

    pub(super) fn not_declared(&self, name: Name) -> String {
        format!("`{}` is not declared", self.text(name.symbol))
    }

    fn meant_elsewhere(&self, name: &ScopedName, scope: ScopeId) -> Option<String> {
        let (first, rest) = name.parts.split_first()?;
        // Outside its scope, a member of an interface or an enumerator can be named only with the
        // scope, so it is not a candidate.
        let is_candidate = |id: &DefinitionId| {
            let definition = self.model.get(*id);
            definition.name == first.symbol
                && definition.parent.is_some()
                && !matches!(
                    definition.kind,
                    DefinitionKind::Operation(_) | DefinitionKind::Attribute(_) | DefinitionKind::Enumerator(..)
                )
                && definition.span.start <= first.span.start
        };
        let follow = |id: DefinitionId| rest.iter().try_fold(id, |id, part| self.declared_in(id, part.symbol));
        let mut meant = self.model.definition_ids().filter(is_candidate).filter_map(follow);
        let (only, other) = (meant.next()?, meant.next());
        let here = self.scopes[scope.0].owner;
        (other.is_none() && here != Some(only)).then(|| self.full_name(only))
    }

    fn declared_in(&self, id: DefinitionId, name: Symbol) -> Option<DefinitionId> {
        match self.entry(self.scope_of(id)?, name)?.what {
            super::ScopeItem::Definition(id) => Some(id),
            _ => None,
        }
    }

    pub(super) fn report_read_again(&mut self, name: Name) {
        if self.read_again.insert(self.file) {
            let message = format!("this file is included twice, and declares `{}` each time", self.text(name.symbol));
            let help = "give the file an include guard, or `#pragma once`";
            self.report(Diagnostic::error(name.span, message).help(help));
        }
    }
}
