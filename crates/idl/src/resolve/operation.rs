//! Resolution of operations and attributes.

use super::{DeclarationResolver, DeclarationSite, ScopeItem};
use crate::ast::{self, Declaration, Direction, InterfaceFlavor, Name, ScopedName};
use crate::diagnostic::Diagnostic;
use crate::model::{Annotation, Attribute, DefinitionId, DefinitionKind, OperationDeclaration, Parameter, Type};
use crate::source::Span;
use crate::symbol::SymbolMap;

impl DeclarationResolver<'_> {
    pub(super) fn operation(
        &mut self,
        operation: &ast::OperationDeclaration,
        declaration: &Declaration,
        at: DeclarationSite,
    ) {
        let result = self.ty(&operation.result, at);
        self.check_remote(&result, operation.result.span, at);
        let id_name = operation.name;
        let parameters = self.parameters(&operation.parameters, at);
        let raises = self.raises(&operation.raises, at);
        let oneway = operation.oneway.or_else(|| self.annotated_oneway(&declaration.annotations));
        if let Some(oneway) = oneway {
            self.check_oneway(oneway, operation);
        }
        let wcet_microseconds = self.wcet_microseconds(&declaration.annotations, at);
        let kind = DefinitionKind::Operation(OperationDeclaration {
            name: id_name.symbol,
            is_oneway: oneway.is_some(),
            result: if Self::is_void(&result) { None } else { Some(result) },
            parameters,
            raises,
            context: operation.context.iter().map(|name| name.value.clone()).collect(),
            wcet_microseconds,
        });
        let id = self.add(at, id_name, declaration.first_token, kind);
        self.declare(at.scope, id_name, ScopeItem::Definition(id));
        self.list(at, id);
    }

    fn wcet_microseconds(&mut self, annotations: &[ast::Annotation], at: DeclarationSite) -> Option<u32> {
        let (microseconds, span) = self.annotated_number(annotations, "wcet", at).ok()??;
        if microseconds == 0 {
            let diagnostic = Diagnostic::error(span, "an operation takes at least one microsecond");
            self.report(diagnostic.help("`@wcet` is processor time in microseconds"));
        }
        Some(microseconds).filter(|time| *time > 0)
    }

    fn check_oneway(&mut self, oneway: Span, operation: &ast::OperationDeclaration) {
        let (what, span) = if !matches!(operation.result.kind, ast::TypeKind::Basic(ast::BasicType::Void)) {
            ("a result", operation.result.span)
        } else if let Some(parameter) =
            operation.parameters.iter().find(|parameter| parameter.direction.0 != Direction::In)
        {
            ("an `out` or `inout` parameter", parameter.direction.1)
        } else if let Some(raised) = operation.raises.first() {
            ("exceptions", raised.span)
        } else {
            return;
        };
        let message = format!("a oneway operation cannot have {what}");
        self.report(Diagnostic::error(span, message).related(oneway, "oneway: the client does not wait for a reply"));
    }

    pub(super) fn parameters(&mut self, parameters: &[ast::Parameter], at: DeclarationSite) -> Vec<Parameter> {
        // Capacity for two names for each parameter: its own name and the name of its type.
        let mut names: SymbolMap<(Name, &str)> =
            SymbolMap::with_capacity_and_hasher(parameters.len() * 2, Default::default());
        let mut result = Vec::with_capacity(parameters.len());
        for parameter in parameters {
            let ty = self.ty(&parameter.ty, at);
            self.check_remote(&ty, parameter.ty.span, at);
            self.check_complete(&ty, parameter.ty.span, None);
            if let ast::TypeKind::Named(name) = &parameter.ty.kind
                && !name.is_absolute
            {
                let first = name.parts[0];
                names.entry(self.symbols.case_folded(first.symbol)).or_insert((first, "used as a type here"));
            }
            let name = parameter.name;
            let folded = self.symbols.case_folded(name.symbol);
            match names.get(&folded).copied() {
                Some((other, role)) => {
                    let (text, before) = (self.text(name.symbol), self.text(other.symbol));
                    let message = match (text == before, role) {
                        (true, "the first") => format!("two parameters are called `{text}`"),
                        (true, _) => format!("parameter `{text}` has the name of a type that the operation uses"),
                        (false, _) => format!("parameter `{text}` and `{before}` differ only in case"),
                    };
                    self.report(
                        Diagnostic::error(name.span, message).label("this parameter").related(other.span, role),
                    );
                }
                None => {
                    names.insert(folded, (name, "the first"));
                }
            }
            self.check_case_of_parameter(name, parameters);
            let annotations = Annotation::list(&parameter.ty.annotations);
            result.push(Parameter { direction: parameter.direction.0, name: name.symbol, ty, annotations });
        }
        result
    }

    pub(super) fn raises(&mut self, names: &[ScopedName], at: DeclarationSite) -> Vec<DefinitionId> {
        let mut raised = Vec::new();
        for name in names {
            let Ok(id) = self.look_up(name, at.scope, false) else { continue };
            if !matches!(self.model.get(id).kind, DefinitionKind::Exception(_) | DefinitionKind::Native) {
                let (what, place) = (self.described(id), self.model.get(id).span);
                let message = format!("{what} is not an exception, and cannot be raised");
                self.report(
                    Diagnostic::error(name.span, message)
                        .label("an exception was expected")
                        .related(place, "declared here"),
                );
            } else if raised.contains(&id) {
                let message = format!("{} is named twice", self.described(id));
                self.report(Diagnostic::warning(name.span, message).help("leave it out here"));
            } else {
                if matches!(self.model.get(id).kind, DefinitionKind::Exception(_)) {
                    self.check_remote(&Type::Named(id), name.span, at);
                }
                raised.push(id);
            }
        }
        raised
    }

    pub(super) fn check_remote(&mut self, ty: &Type, span: Span, at: DeclarationSite) {
        let Some(parent) = at.parent else { return };
        let remote = match &self.model.get(parent).kind {
            DefinitionKind::Interface(interface) => interface.flavor != InterfaceFlavor::Local,
            _ => false,
        };
        if !remote {
            return;
        }
        let (local, native) = (self.is_local(ty), self.native_in(ty));
        if (!local && native.is_none()) || self.is_of_the_orb(parent) {
            return;
        }
        if local {
            let owner = self.described(parent);
            let message = format!("a local type cannot be used in {owner}, whose objects may be in another process");
            self.report(
                Diagnostic::error(span, message)
                    .label("local")
                    .help("write `local interface` if all objects are local"),
            );
        }
        if let Some(native) = native.filter(|native| !self.is_of_the_orb(*native)) {
            let (what, place) = (self.described(native), self.model.get(native).span);
            let owner = self.described(parent);
            let message = format!("{what} cannot be used in {owner}, whose objects may be in another process");
            let diagnostic = Diagnostic::error(span, message).related(place, "declared here");
            self.report(
                diagnostic
                    .note("values of a native type have no form on the wire")
                    .help("write `local interface` if all objects are local"),
            );
        }
    }

    pub(super) fn check_not_inherited(&mut self, name: Name, parent: DefinitionId) {
        let folded = self.symbols.case_folded(name.symbol);
        if self.inherited.as_ref().is_none_or(|(of, _)| *of != parent) {
            self.inherited = Some((parent, self.inherited_operations(parent)));
        }
        let known = self.inherited.as_ref().and_then(|(_, operations)| operations.get(&folded));
        let Some((id, state, place)) = known.copied() else { return };
        let mut full = self.full_name(id);
        if let Some(state) = state {
            full = format!("{full}::{}", self.text(state));
        }
        let message = format!("`{}` is inherited from `{full}` already", self.text(name.symbol));
        let diagnostic = Diagnostic::error(name.span, message).label("declared again").related(place, "inherited");
        self.report(diagnostic.note("an interface cannot redefine operations and attributes of its bases"));
    }

    pub(super) fn attribute(&mut self, attribute: &ast::Attribute, declaration: &Declaration, at: DeclarationSite) {
        let ty = self.ty(&attribute.ty, at);
        self.check_remote(&ty, attribute.ty.span, at);
        self.check_complete(&ty, attribute.ty.span, None);
        let get_raises = self.raises(&attribute.get_raises, at);
        let set_raises = self.raises(&attribute.set_raises, at);
        for name in &attribute.names {
            let kind = DefinitionKind::Attribute(Attribute {
                is_readonly: attribute.is_readonly,
                ty: ty.clone(),
                get_raises: get_raises.clone(),
                set_raises: set_raises.clone(),
            });
            let id = self.add(at, *name, declaration.first_token, kind);
            self.declare(at.scope, *name, ScopeItem::Definition(id));
            self.list(at, id);
        }
    }
}
