//! Resolution of value types: their bases, the interfaces that they support, and their state.

use super::{DeclarationResolver, DeclarationSite, ScopeItem};
use crate::ast::{self, Declaration, Direction, InterfaceFlavor, Name, ScopedName, ValueFlavor};
use crate::diagnostic::Diagnostic;
use crate::model::{DefinitionId, DefinitionKind, OperationDeclaration, Type, ValueDeclaration};

impl DeclarationResolver<'_> {
    pub(super) fn value_forward(
        &mut self,
        flavor: ValueFlavor,
        name: Name,
        declaration: &Declaration,
        at: DeclarationSite,
    ) {
        if let Some(id) = self.known_definition(name, at)
            && let DefinitionKind::Value(known) = &self.model.get(id).kind
        {
            let same = (known.flavor == ValueFlavor::Abstract) == (flavor == ValueFlavor::Abstract);
            self.check_same_prefix(id, name, "announced");
            if !same {
                self.report_flavor(id, name);
            }
            return;
        }
        self.new_value(flavor, name, declaration, at);
    }

    fn report_flavor(&mut self, id: DefinitionId, name: Name) {
        let message = format!("{} is abstract in one declaration and not in the other", self.described(id));
        let place = self.model.get(id).span;
        self.report(Diagnostic::error(name.span, message).related(place, "declared here"));
    }

    fn new_value(
        &mut self,
        flavor: ValueFlavor,
        name: Name,
        declaration: &Declaration,
        at: DeclarationSite,
    ) -> DefinitionId {
        let value = ValueDeclaration {
            flavor,
            is_defined: false,
            is_truncatable: false,
            bases: Vec::new(),
            supports: Vec::new(),
            members: Vec::new(),
            state: Vec::new(),
            factories: Vec::new(),
        };
        let id = self.add(at, name, declaration.first_token, DefinitionKind::Value(value));
        self.declare(at.scope, name, ScopeItem::Definition(id));
        self.list(at, id);
        self.announced.push((id, name.span));
        id
    }

    pub(super) fn value(&mut self, value: &ast::ValueDeclaration, declaration: &Declaration, at: DeclarationSite) {
        let name = value.name;
        let known = self.known_definition(name, at);
        let known =
            known.filter(|id| matches!(&self.model.get(*id).kind, DefinitionKind::Value(known) if !known.is_defined));
        let id = match known {
            Some(id) => {
                if let DefinitionKind::Value(known) = &self.model.get(id).kind
                    && (known.flavor == ValueFlavor::Abstract) != (value.flavor == ValueFlavor::Abstract)
                {
                    self.report_flavor(id, name);
                }
                self.check_same_prefix(id, name, "defined");
                let definition = self.model.get_mut(id);
                (definition.span, definition.first_token) = (name.span, declaration.first_token);
                id
            }
            None => self.new_value(value.flavor, name, declaration, at),
        };
        let bases = self.value_bases(value, at);
        let supports = self.supported(&value.supports, at);
        self.check_supported(value, &bases, &supports);
        self.model.get_mut(id).is_local = bases.iter().chain(&supports).any(|of| self.model.get(*of).is_local);
        if let DefinitionKind::Value(known) = &mut self.model.get_mut(id).kind {
            known.flavor = value.flavor;
            known.is_truncatable = value.truncatable.is_some();
            known.bases.clone_from(&bases);
            known.supports = supports;
        }
        self.check_bases(id, name);
        let scope = self.open_scope(at.scope, Some(id));
        self.check_inherited(id, &value.bases, &bases, name);
        self.prefixes.push(self.prefix.clone());
        let depth = self.prefixes.len();
        for declaration in &value.body {
            self.declaration(declaration, DeclarationSite { scope, parent: Some(id) });
        }
        self.prefixes.truncate(depth);
        self.prefix = self.prefixes.pop().unwrap_or_default();
        if let DefinitionKind::Value(known) = &mut self.model.get_mut(id).kind {
            known.is_defined = true;
        }
    }

    fn value_bases(&mut self, value: &ast::ValueDeclaration, at: DeclarationSite) -> Vec<DefinitionId> {
        let mut bases: Vec<DefinitionId> = Vec::new();
        let mut concrete: Option<&ScopedName> = None;
        for (index, name) in value.bases.iter().enumerate() {
            let Ok(mut id) = self.look_up(name, at.scope, false) else { continue };
            if let Some(behind) = self.model.unaliased_definition(&Type::Named(id)) {
                id = behind;
            }
            let (what, place) = (self.described(id), self.model.get(id).span);
            let DefinitionKind::Value(base) = &self.model.get(id).kind else {
                let message = format!("{what} is not a value type that can be inherited from");
                self.report(Diagnostic::error(name.span, message).related(place, "declared here"));
                continue;
            };
            let (flavor, defined) = (base.flavor, base.is_defined);
            let fault = if !defined {
                Some(format!("{what} is announced, not defined yet"))
            } else if bases.contains(&id) {
                Some(format!("{what} is named twice as a base"))
            } else if flavor == ValueFlavor::Abstract {
                None
            } else if value.flavor == ValueFlavor::Abstract {
                Some(format!("an abstract value type cannot inherit from {what}, which has state"))
            } else if let Some(first) = concrete {
                let message = "a value type has at most one base with state";
                self.report(Diagnostic::error(name.span, message).label("the second").related(first.span, "the first"));
                None
            } else if index > 0 {
                Some("the base with state must be the first".to_owned())
            } else if flavor == ValueFlavor::Custom && value.flavor != ValueFlavor::Custom {
                Some(format!("{what} is custom: a value type that inherits from it must be custom too"))
            } else {
                None
            };
            if let Some(message) = fault {
                self.report(Diagnostic::error(name.span, message).related(place, "declared here"));
            }
            if flavor != ValueFlavor::Abstract {
                concrete.get_or_insert(name);
            }
            if defined && !bases.contains(&id) {
                bases.push(id);
            }
        }
        self.check_truncatable(value, &bases);
        bases
    }

    fn check_truncatable(&mut self, value: &ast::ValueDeclaration, bases: &[DefinitionId]) {
        let Some(span) = value.truncatable else { return };
        let base = bases.first().and_then(|id| match &self.model.get(*id).kind {
            DefinitionKind::Value(base) => Some(base.flavor),
            _ => None,
        });
        let message = match (value.flavor, base) {
            (ValueFlavor::Custom, _) => "a custom value type cannot be truncatable",
            (_, Some(ValueFlavor::Custom)) => "a value type cannot be truncated to a custom one",
            (_, Some(ValueFlavor::Abstract)) => "a value type cannot be truncated to an abstract one",
            _ => return,
        };
        self.report(Diagnostic::error(span, message).help("leave out `truncatable`"));
    }

    fn supported(&mut self, names: &[ScopedName], at: DeclarationSite) -> Vec<DefinitionId> {
        let mut supports: Vec<DefinitionId> = Vec::new();
        let mut concrete: Option<&ScopedName> = None;
        for name in names {
            let Ok(mut id) = self.look_up(name, at.scope, false) else { continue };
            if let Some(behind) = self.model.unaliased_definition(&Type::Named(id)) {
                id = behind;
            }
            let (what, place) = (self.described(id), self.model.get(id).span);
            match &self.model.get(id).kind {
                DefinitionKind::Interface(_) if supports.contains(&id) => {
                    let message = format!("{what} is named twice");
                    self.report(Diagnostic::error(name.span, message).help("leave it out here"));
                }
                DefinitionKind::Interface(interface) if interface.is_defined => {
                    if interface.flavor != InterfaceFlavor::Abstract {
                        if let Some(first) = concrete {
                            let message = "a value type supports at most one interface that is not abstract";
                            self.report(
                                Diagnostic::error(name.span, message)
                                    .label("the second")
                                    .related(first.span, "the first"),
                            );
                        }
                        concrete.get_or_insert(name);
                    }
                    supports.push(id);
                }
                _ => {
                    let message = format!("{what} is not a defined interface");
                    self.report(Diagnostic::error(name.span, message).related(place, "declared here"));
                }
            }
        }
        supports
    }

    /// Checks that the non-abstract interface that the value supports, if any, equals or is derived
    /// from the non-abstract interface that its nearest base supports.
    fn check_supported(&mut self, value: &ast::ValueDeclaration, bases: &[DefinitionId], supports: &[DefinitionId]) {
        let concrete = |resolver: &Self, ids: &[DefinitionId]| {
            ids.iter().copied().find(|id| matches!(&resolver.model.get(*id).kind, DefinitionKind::Interface(known) if known.flavor != InterfaceFlavor::Abstract))
        };
        let Some(own) = concrete(self, supports) else { return };
        let mut at = bases.first().copied();
        while let Some(base) = at {
            let DefinitionKind::Value(known) = &self.model.get(base).kind else { return };
            at = known.bases.first().copied();
            let Some(of_base) = concrete(self, &known.supports) else { continue };
            if own != of_base && !self.model.all_bases(own).contains(&of_base) {
                let message = format!(
                    "{} is not derived from {}, which the base supports",
                    self.described(own),
                    self.described(of_base)
                );
                let span = value.supports.first().map_or(value.name.span, |name| name.span);
                let place = self.model.get(base).span;
                self.report(Diagnostic::error(span, message).related(place, "the base"));
            }
            return;
        }
    }

    pub(super) fn value_box(&mut self, name: Name, ty: &ast::Type, declaration: &Declaration, at: DeclarationSite) {
        let id = self.add(at, name, declaration.first_token, DefinitionKind::ValueBox(Type::Faulty));
        self.declare(at.scope, name, ScopeItem::Definition(id));
        self.list(at, id);
        let boxed = self.ty(ty, at);
        self.check_complete(&boxed, ty.span, None);
        self.check_no_native(&boxed, ty.span);
        self.model.get_mut(id).is_local = self.is_local(&boxed);
        if *self.model.unaliased(&boxed) == Type::Basic(ast::BasicType::ValueBase) {
            self.report(Diagnostic::error(ty.span, "`ValueBase` cannot be boxed: it is a value already"));
        }
        if let Some(of) = self.model.unaliased_definition(&boxed)
            && matches!(self.model.get(of).kind, DefinitionKind::Value(_) | DefinitionKind::ValueBox(_))
        {
            let message = format!("{} cannot be boxed: it is a value already", self.described(of));
            self.report(Diagnostic::error(ty.span, message));
        }
        self.model.get_mut(id).kind = DefinitionKind::ValueBox(boxed);
    }

    pub(super) fn state(&mut self, state: &ast::StateMember, declaration: &Declaration, at: DeclarationSite) {
        let mut members = Vec::new();
        self.members(&state.ty, &state.declarators, declaration.first_token, at, &mut members);
        let Some(parent) = at.parent else { return };
        for member in &members {
            self.check_no_native(&member.ty, member.span);
        }
        let local = members.iter().any(|member| self.is_local(&member.ty));
        self.model.get_mut(parent).is_local |= local;
        if let DefinitionKind::Value(value) = &mut self.model.get_mut(parent).kind {
            value.state.extend(members.into_iter().map(|member| (member, state.is_public)));
        }
    }

    pub(super) fn factory(
        &mut self,
        name: Name,
        parameters: &[ast::Parameter],
        raises: &[ScopedName],
        at: DeclarationSite,
    ) {
        for parameter in parameters {
            if parameter.direction.0 != Direction::In {
                let message = "the parameters of a factory are all `in`";
                self.report(Diagnostic::error(parameter.direction.1, message).help("write `in`"));
            }
        }
        let parameters = self.parameters(parameters, at);
        let raises = self.raises(raises, at);
        self.declare(at.scope, name, ScopeItem::Member);
        let Some(parent) = at.parent else { return };
        let factory = OperationDeclaration {
            name: name.symbol,
            is_oneway: false,
            result: None,
            parameters,
            raises,
            context: Vec::new(),
            wcet_microseconds: None,
        };
        if let DefinitionKind::Value(value) = &mut self.model.get_mut(parent).kind {
            value.factories.push(factory);
        }
    }
}
