//! Resolution of interfaces: their bases, and conflicts between inherited members.

use super::{DeclarationResolver, DeclarationSite, Inherited, ScopeItem};
use crate::ast::{self, Declaration, InterfaceFlavor, Name, ScopedName};
use crate::diagnostic::Diagnostic;
use crate::model::{DefinitionId, DefinitionKind, Interface};
use crate::source::Span;
use crate::symbol::{Symbol, SymbolMap};

impl DeclarationResolver<'_> {
    pub(super) fn interface_forward(
        &mut self,
        flavor: InterfaceFlavor,
        name: Name,
        declaration: &Declaration,
        at: DeclarationSite,
    ) {
        if let Some(id) = self.known_definition(name, at)
            && let DefinitionKind::Interface(_) = self.model.get(id).kind
        {
            self.check_same_prefix(id, name, "announced");
            self.check_flavor(id, flavor, name.span);
            return;
        }
        self.new_interface(flavor, name, declaration, at);
    }

    fn new_interface(
        &mut self,
        flavor: InterfaceFlavor,
        name: Name,
        declaration: &Declaration,
        at: DeclarationSite,
    ) -> DefinitionId {
        let interface = Interface { flavor, is_defined: false, bases: Vec::new(), members: Vec::new() };
        let id = self.add(at, name, declaration.first_token, DefinitionKind::Interface(interface));
        self.model.get_mut(id).is_local = flavor == InterfaceFlavor::Local;
        self.declare(at.scope, name, ScopeItem::Definition(id));
        self.list(at, id);
        self.announced.push((id, name.span));
        id
    }

    fn check_flavor(&mut self, id: DefinitionId, flavor: InterfaceFlavor, span: Span) {
        let DefinitionKind::Interface(interface) = &self.model.get(id).kind else { return };
        if interface.flavor == flavor {
            return;
        }
        let word = |flavor| match flavor {
            InterfaceFlavor::Remote => "neither abstract nor local",
            InterfaceFlavor::Local => "local",
            InterfaceFlavor::Abstract => "abstract",
        };
        let message =
            format!("{} is {} here and {} elsewhere", self.described(id), word(flavor), word(interface.flavor));
        let place = self.model.get(id).span;
        self.report(Diagnostic::error(span, message).related(place, "declared here"));
    }

    pub(super) fn interface(&mut self, interface: &ast::Interface, declaration: &Declaration, at: DeclarationSite) {
        let name = interface.name;
        let known = self
            .known_definition(name, at)
            .filter(|id| matches!(&self.model.get(*id).kind, DefinitionKind::Interface(known) if !known.is_defined));
        let id = match known {
            Some(id) => {
                self.check_flavor(id, interface.flavor, name.span);
                self.check_same_prefix(id, name, "defined");
                let definition = self.model.get_mut(id);
                (definition.span, definition.first_token) = (name.span, declaration.first_token);
                id
            }
            None => self.new_interface(interface.flavor, name, declaration, at),
        };
        let bases = self.interface_bases(&interface.bases, interface.flavor, at);
        if let DefinitionKind::Interface(known) = &mut self.model.get_mut(id).kind {
            known.bases.clone_from(&bases);
        }
        self.check_bases(id, name);
        let scope = self.open_scope(at.scope, Some(id));
        self.check_inherited(id, &interface.bases, &bases, name);
        self.prefixes.push(self.prefix.clone());
        let depth = self.prefixes.len();
        for declaration in &interface.body {
            self.declaration(declaration, DeclarationSite { scope, parent: Some(id) });
        }
        self.prefixes.truncate(depth);
        self.prefix = self.prefixes.pop().unwrap_or_default();
        if let DefinitionKind::Interface(known) = &mut self.model.get_mut(id).kind {
            known.is_defined = true;
        }
        self.check_operations(id, name);
    }

    pub(super) fn check_bases(&mut self, id: DefinitionId, name: Name) {
        let count = self.model.all_bases(id).len();
        if count <= self.limits.max_bases {
            return;
        }
        let message =
            format!("{} inherits from {count}, more than the limit of {}", self.described(id), self.limits.max_bases);
        self.report(Diagnostic::error(name.span, message));
        match &mut self.model.get_mut(id).kind {
            DefinitionKind::Interface(interface) => interface.bases.clear(),
            DefinitionKind::Value(value) => value.bases.clear(),
            _ => {}
        }
    }

    fn check_operations(&mut self, id: DefinitionId, name: Name) {
        let mut count = 0;
        self.own_operations(id, |_, _| count += 1);
        for base in self.model.all_bases(id) {
            self.own_operations(base, |_, _| count += 1);
        }
        if count > self.limits.max_operations {
            let message = format!(
                "{} has {count} operations, more than the limit of {}",
                self.described(id),
                self.limits.max_operations
            );
            self.report(Diagnostic::error(name.span, message));
        }
    }

    fn interface_bases(
        &mut self,
        names: &[ScopedName],
        flavor: InterfaceFlavor,
        at: DeclarationSite,
    ) -> Vec<DefinitionId> {
        let mut bases: Vec<DefinitionId> = Vec::new();
        for name in names {
            let Ok(mut id) = self.look_up(name, at.scope, false) else { continue };
            if let Some(behind) = self.model.unaliased_definition(&crate::model::Type::Named(id)) {
                id = behind;
            }
            let described = |resolver: &Self| (resolver.described(id), resolver.model.get(id).span);
            let DefinitionKind::Interface(base) = &self.model.get(id).kind else {
                let (what, place) = described(self);
                let message = format!("{what} is not an interface");
                self.report(
                    Diagnostic::error(name.span, message)
                        .label("an interface was expected")
                        .related(place, "declared here"),
                );
                continue;
            };
            let (base_flavor, defined) = (base.flavor, base.is_defined);
            if !defined {
                let (what, place) = described(self);
                let message = format!("{what} is announced, not defined yet");
                let diagnostic =
                    Diagnostic::error(name.span, message).label("cannot be a base").related(place, "announced here");
                self.report(diagnostic.help("define it before the interfaces that inherit from it"));
                continue;
            }
            if bases.contains(&id) {
                let message = format!("{} is named twice as a base", described(self).0);
                self.report(Diagnostic::error(name.span, message).help("leave it out here"));
                continue;
            }
            if flavor == InterfaceFlavor::Abstract && base_flavor != InterfaceFlavor::Abstract {
                let (what, place) = described(self);
                let message = format!("an abstract interface cannot inherit from {what}, which is not abstract");
                self.report(Diagnostic::error(name.span, message).related(place, "declared here"));
            }
            if flavor != InterfaceFlavor::Local && base_flavor == InterfaceFlavor::Local {
                let (what, place) = described(self);
                let message = format!("{what} is local: an interface that inherits from it must be local too");
                self.report(
                    Diagnostic::error(name.span, message)
                        .related(place, "declared here")
                        .help("write `local interface`"),
                );
            }
            bases.push(id);
        }
        bases
    }

    pub(super) fn inherited_operations(&self, id: DefinitionId) -> SymbolMap<Inherited> {
        let supports = match &self.model.get(id).kind {
            DefinitionKind::Value(value) => value.supports.clone(),
            _ => Vec::new(),
        };
        let supported = supports.into_iter().flat_map(|id| std::iter::once(id).chain(self.model.all_bases(id)));
        let mut operations = SymbolMap::default();
        for base in self.model.all_bases(id).into_iter().chain(supported) {
            self.own_operations(base, |folded, id| {
                operations.insert(folded, (id, None, self.model.get(id).span));
            });
            if let DefinitionKind::Value(value) = &self.model.get(base).kind {
                for (member, _) in &value.state {
                    operations.insert(self.symbols.case_folded(member.name), (base, Some(member.name), member.span));
                }
            }
        }
        operations
    }

    fn own_operations(&self, id: DefinitionId, mut found: impl FnMut(Symbol, DefinitionId)) {
        let members = match &self.model.get(id).kind {
            DefinitionKind::Interface(interface) => &interface.members,
            DefinitionKind::Value(value) => &value.members,
            _ => return,
        };
        for member in members {
            let definition = self.model.get(*member);
            if matches!(definition.kind, DefinitionKind::Operation(_) | DefinitionKind::Attribute(_)) {
                found(self.symbols.case_folded(definition.name), *member);
            }
        }
    }

    pub(super) fn check_inherited(
        &mut self,
        id: DefinitionId,
        names: &[ScopedName],
        bases: &[DefinitionId],
        name: Name,
    ) {
        if bases.len() < 2 && !matches!(self.model.get(id).kind, DefinitionKind::Value(_)) {
            return;
        }
        let mut seen: SymbolMap<DefinitionId> = SymbolMap::default();
        let mut clashes = Vec::new();
        let supported: Vec<DefinitionId> = match &self.model.get(id).kind {
            DefinitionKind::Value(value) => {
                let with_bases = |id: &DefinitionId| std::iter::once(*id).chain(self.model.all_bases(*id));
                value.supports.iter().flat_map(with_bases).collect()
            }
            _ => Vec::new(),
        };
        for base in self.model.all_bases(id).into_iter().chain(supported) {
            self.own_operations(base, |folded, operation| match seen.get(&folded) {
                Some(other) if *other != operation => clashes.push((*other, operation)),
                _ => {
                    seen.insert(folded, operation);
                }
            });
        }
        let span = names.first().zip(names.last()).map_or(name.span, |(first, last)| first.span.to_end_of(last.span));
        for (one, two) in clashes {
            let (first, second) = (self.full_name(one), self.full_name(two));
            let message = format!("`{first}` and `{second}` are inherited, and have one name");
            let (first, second) = (self.model.get(one).span, self.model.get(two).span);
            let diagnostic = Diagnostic::error(span, message).label("inherited together");
            self.report(
                diagnostic
                    .related(first, "the one")
                    .related(second, "the other")
                    .note("IDL does not overload operations"),
            );
        }
    }
}
