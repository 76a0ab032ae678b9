//! Checks of annotations: standard annotations, Corelane's real-time annotations, and annotations
//! that the source declares (IDL 4.2, 7.4.15).

use super::standard::AnnotatedItem;
use super::{DeclarationResolver, DeclarationSite, ReportedError, ResolveResult, ScopeItem};
use crate::ast::{Annotation, AnnotationType, BasicType, Declaration, Expression, Name};
use crate::diagnostic::Diagnostic;
use crate::model::{DefinitionId, DefinitionKind, Type};
use crate::source::Span;
use crate::symbol::Symbol;

#[derive(Clone, Debug)]
pub(super) struct AnnotationParameter {
    name: Symbol,
    span: Span,
    ty: Type,
    optional: bool,
}

impl DeclarationResolver<'_> {
    pub(super) fn annotation_type(
        &mut self,
        annotation: &AnnotationType,
        declaration: &Declaration,
        at: DeclarationSite,
    ) {
        let id = self.add(at, annotation.name, declaration.first_token, DefinitionKind::Annotation);
        let symbol = self.annotation_symbol(annotation.name);
        self.declare(at.scope, Name { symbol, ..annotation.name }, ScopeItem::Definition(id));
        let scope = self.open_scope(at.scope, Some(id));
        let inner = DeclarationSite { scope, parent: Some(id) };
        for declaration in &annotation.body {
            self.declaration(declaration, inner);
        }
        let mut parameters = Vec::new();
        for member in &annotation.members {
            let ty = self.ty(&member.ty, inner);
            if let Some(value) = &member.default
                && !is_any(&ty)
            {
                let _ = self.evaluate_as(value, &ty, member.ty.span, inner);
            }
            self.declare(scope, member.name, ScopeItem::Member);
            let (name, span) = (member.name.symbol, member.name.span);
            parameters.push(AnnotationParameter { name, span, ty, optional: member.default.is_some() });
        }
        self.annotations.insert(id, parameters);
    }

    /// Returns the name with `@` in front, because annotations have their own name space.
    fn annotation_symbol(&mut self, name: Name) -> Symbol {
        let text = format!("@{}", self.text(name.symbol));
        self.symbols.intern(&text)
    }

    pub(super) fn check_annotations(&mut self, annotations: &[Annotation], place: AnnotatedItem, at: DeclarationSite) {
        for annotation in annotations {
            let Some(name) = annotation.name.parts.last().copied() else { continue };
            match self.find_annotation(annotation, name, at) {
                Some(id) => self.check_arguments(id, annotation, at),
                None => self.check_standard(annotation, place, at),
            }
        }
    }

    fn find_annotation(&mut self, annotation: &Annotation, name: Name, at: DeclarationSite) -> Option<DefinitionId> {
        let symbol = self.annotation_symbol(name);
        let (_, path) = annotation.name.parts.split_last()?;
        let mut scope = Some(if annotation.name.is_absolute { super::ScopeId(0) } else { at.scope });
        while let Some(here) = scope {
            let inner = path.iter().try_fold(here, |scope, part| match self.entry(scope, part.symbol)?.what {
                ScopeItem::Definition(id) | ScopeItem::Introduced(id) => self.scope_of(id),
                ScopeItem::Member => None,
            });
            if let Some(ScopeItem::Definition(id)) =
                inner.and_then(|inner| self.entry(inner, symbol)).map(|entry| entry.what)
            {
                return Some(id);
            }
            scope = self.scopes[here.0].outer;
        }
        None
    }

    fn check_arguments(&mut self, id: DefinitionId, annotation: &Annotation, at: DeclarationSite) {
        let Some(parameters) = self.annotations.get(&id).cloned() else { return };
        let place = self.model.get(id).span;
        let mut given: Vec<Symbol> = Vec::new();
        for (name, value) in &annotation.arguments {
            let parameter = match name {
                Some(name) => parameters.iter().find(|parameter| parameter.name == name.symbol),
                None => self.only_parameter(&parameters, annotation),
            };
            let span = name.map_or(value.span, |name| name.span);
            let Some(parameter) = parameter else {
                let message = format!("annotation `@{}` does not take this", self.text(self.model.get(id).name));
                self.report(Diagnostic::error(span, message).related(place, "declared here"));
                continue;
            };
            if given.contains(&parameter.name) {
                let message = format!("`{}` is given twice", self.text(parameter.name));
                self.report(Diagnostic::error(span, message).related(parameter.span, "declared here"));
            }
            given.push(parameter.name);
            self.check_argument(parameter, value, id, at);
        }
        for parameter in parameters.iter().filter(|one| !one.optional && !given.contains(&one.name)) {
            let message =
                format!("annotation `@{}` needs `{}`", self.text(self.model.get(id).name), self.text(parameter.name));
            let diagnostic = Diagnostic::error(annotation.name.span, message);
            self.report(diagnostic.related(parameter.span, "declared here, without a default"));
        }
    }

    /// Returns the parameter for a single unnamed argument: the only parameter, or the parameter
    /// called `value`.
    fn only_parameter<'p>(
        &self,
        parameters: &'p [AnnotationParameter],
        annotation: &Annotation,
    ) -> Option<&'p AnnotationParameter> {
        match (parameters, annotation.arguments.as_slice()) {
            ([only], [_]) => Some(only),
            (several, [_]) => several.iter().find(|parameter| self.text(parameter.name) == "value"),
            _ => None,
        }
    }

    fn check_argument(
        &mut self,
        parameter: &AnnotationParameter,
        value: &Expression,
        id: DefinitionId,
        at: DeclarationSite,
    ) {
        if is_any(&parameter.ty) {
            return;
        }
        let scope = self.scope_of(id).unwrap_or(at.scope);
        let inner = matches!(&value.kind, crate::ast::ExpressionKind::Named(name)
            if !name.is_absolute && name.parts.first().is_some_and(|first| self.entry(scope, first.symbol).is_some()));
        let at = if inner { DeclarationSite { scope, ..at } } else { at };
        let _ = self.evaluate_as(value, &parameter.ty, value.span, at);
    }

    pub(super) fn annotated_number(
        &mut self,
        annotations: &[Annotation],
        wanted: &str,
        at: DeclarationSite,
    ) -> ResolveResult<Option<(u32, Span)>> {
        let is_wanted = |annotation: &&Annotation| matches!(annotation.name.parts.as_slice(), [name] if self.symbols.text(name.symbol) == wanted);
        let Some(annotation) = annotations.iter().find(is_wanted) else { return Ok(None) };
        match annotation.arguments.as_slice() {
            [(name, value)] if name.is_none_or(|name| self.text(name.symbol) == "value") => {
                self.non_negative(value, at).map(|number| Some((number, value.span)))
            }
            _ => {
                let message = format!("`@{wanted}` takes one number");
                self.report(Diagnostic::error(annotation.name.span, message).help(format!("write `@{wanted}(8)`")));
                Err(ReportedError)
            }
        }
    }
}

fn is_any(ty: &Type) -> bool {
    *ty == Type::Basic(BasicType::Any)
}
