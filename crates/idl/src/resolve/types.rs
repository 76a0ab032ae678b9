//! Resolution of types of the syntax tree to types of the model.

use super::standard::AnnotatedItem;
use super::{DeclarationResolver, DeclarationSite, ReportedError, ResolveResult};
use crate::ast::{self, BasicType, DeclarationKind, Declarator, Expression, TypeKind};
use crate::diagnostic::Diagnostic;
use crate::model::{DefinitionId, DefinitionKind, Type};
use crate::source::Span;

impl DeclarationResolver<'_> {
    pub(super) fn ty(&mut self, ty: &ast::Type, at: DeclarationSite) -> Type {
        self.try_type(ty, at).unwrap_or(Type::Faulty)
    }

    fn try_type(&mut self, ty: &ast::Type, at: DeclarationSite) -> ResolveResult<Type> {
        self.check_annotations(&ty.annotations, AnnotatedItem::Other, at);
        Ok(match &ty.kind {
            TypeKind::Basic(basic) => Type::Basic(*basic),
            TypeKind::String(wide, bound) => Type::String(*wide, self.optional_size(bound.as_deref(), at)?),
            TypeKind::Fixed(None) => Type::FixedConstant,
            TypeKind::Fixed(Some(sizes)) => self.fixed(&sizes.0, &sizes.1, at)?,
            TypeKind::Sequence(element, bound) => {
                let element = self.try_type(element, at)?;
                Type::Sequence(Box::new(element), self.optional_size(bound.as_deref(), at)?)
            }
            TypeKind::Map(types, bound) => {
                let pair = (self.try_type(&types.0, at)?, self.try_type(&types.1, at)?);
                Type::Map(Box::new(pair), self.optional_size(bound.as_deref(), at)?)
            }
            TypeKind::Named(name) => {
                let id = self.look_up(name, at.scope, true)?;
                self.check_is_type(id, name.span)?;
                Type::Named(id)
            }
            TypeKind::Inline(declaration) => {
                let id = match &declaration.kind {
                    DeclarationKind::Struct(structure) => self.structure(structure, declaration, at, false),
                    DeclarationKind::Union(union) => self.union(union, declaration, at),
                    DeclarationKind::Enum(enumeration) => self.enumeration(enumeration, declaration, at),
                    DeclarationKind::Forward(name, _) => {
                        return self.fail(Diagnostic::error(name.span, "a type cannot be announced here"));
                    }
                    _ => return Err(ReportedError),
                };
                Type::Named(id.ok_or(ReportedError)?)
            }
        })
    }

    fn check_is_type(&mut self, id: DefinitionId, span: Span) -> ResolveResult<()> {
        let definition = self.model.get(id);
        let reason = match &definition.kind {
            DefinitionKind::Exception(_) => "an exception can only be raised",
            DefinitionKind::Module(_)
            | DefinitionKind::Enumerator(..)
            | DefinitionKind::Constant(..)
            | DefinitionKind::Operation(_)
            | DefinitionKind::Attribute(_)
            | DefinitionKind::Annotation => "",
            _ => return Ok(()),
        };
        let (what, place) = (self.described(id), definition.span);
        let diagnostic = Diagnostic::error(span, format!("{what} is not a type"))
            .label("a type was expected")
            .related(place, "declared here");
        self.fail(if reason.is_empty() { diagnostic } else { diagnostic.note(reason) })
    }

    fn fixed(&mut self, digits: &Expression, scale: &Expression, at: DeclarationSite) -> ResolveResult<Type> {
        let count = self.size(digits, at)?;
        let behind = self.non_negative(scale, at)?;
        if count > 31 {
            let message = format!("a fixed-point number has at most 31 digits, not {count}");
            return self.fail(Diagnostic::error(digits.span, message));
        }
        if behind > count {
            let message = format!("the scale, {behind}, is greater than the number of digits, {count}");
            let diagnostic = Diagnostic::error(scale.span, message).label("digits after the point");
            return self.fail(diagnostic.related(digits.span, "digits in total"));
        }
        let small = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
        Ok(Type::Fixed(small(count), small(behind)))
    }

    pub(super) fn optional_size(
        &mut self,
        bound: Option<&Expression>,
        at: DeclarationSite,
    ) -> ResolveResult<Option<u32>> {
        bound.map(|bound| self.size(bound, at)).transpose()
    }

    pub(super) fn declared(&mut self, ty: &Type, declarator: &Declarator, at: DeclarationSite) -> Type {
        if declarator.dimensions.is_empty() {
            return ty.clone();
        }
        let mut dimensions = Vec::new();
        for dimension in &declarator.dimensions {
            match self.size(dimension, at) {
                Ok(size) => dimensions.push(size),
                Err(ReportedError) => return Type::Faulty,
            }
        }
        let array = Type::Array(Box::new(ty.clone()), dimensions);
        if self.elements(&array) > self.limits.max_array_elements {
            let message = format!("the array has more than {} elements", self.limits.max_array_elements);
            self.report(Diagnostic::error(declarator.name.span, message));
            return Type::Faulty;
        }
        array
    }

    pub(super) fn elements(&self, ty: &Type) -> u64 {
        match ty {
            Type::Named(id) => self.model.get(*id).elements,
            Type::Array(element, dimensions) => {
                dimensions.iter().fold(self.elements(element), |all, size| all.saturating_mul(u64::from(*size)))
            }
            _ => 1,
        }
    }

    pub(super) fn set_elements(&mut self, id: DefinitionId, elements: u64) {
        let most = self.limits.max_array_elements;
        if elements > most {
            let message =
                format!("{} has more than {most} elements, including those of its arrays", self.described(id));
            let diagnostic = Diagnostic::error(self.model.get(id).span, message);
            self.report(diagnostic.help("make one of its members a sequence"));
        }
        self.model.get_mut(id).elements = if elements > most { 1 } else { elements.max(1) };
    }

    /// Returns true if a member's type is defined and does not contain itself. Otherwise reports
    /// the error and returns false.
    pub(super) fn check_complete(&mut self, ty: &Type, span: Span, within: Option<DefinitionId>) -> bool {
        let mut element = ty;
        loop {
            element = match self.model.unaliased(element) {
                Type::Array(inner, _) => inner,
                other => {
                    element = other;
                    break;
                }
            };
        }
        let Type::Named(id) = element else { return true };
        let id = *id;
        let defined = match &self.model.get(id).kind {
            DefinitionKind::Struct(structure) => structure.is_defined,
            DefinitionKind::Union(union) => union.is_defined,
            _ => true,
        };
        if defined {
            return true;
        }
        let (what, place) = (self.described(id), self.model.get(id).span);
        let diagnostic = if within == Some(id) {
            let name = self.full_name(id);
            let diagnostic = Diagnostic::error(span, format!("{what} contains itself")).label("infinitely large");
            diagnostic.related(place, "defined here").help(format!("a `sequence<{name}>` may be a member"))
        } else {
            let diagnostic =
                Diagnostic::error(span, format!("{what} is not defined yet")).label("its size is unknown here");
            diagnostic.related(place, "announced here").help("define it earlier, or use a sequence of it")
        };
        self.report(diagnostic);
        false
    }

    pub(super) fn is_local(&self, ty: &Type) -> bool {
        match ty {
            Type::Named(id) => self.model.get(*id).is_local,
            Type::Sequence(element, _) | Type::Array(element, _) => self.is_local(element),
            Type::Map(pair, _) => self.is_local(&pair.0) || self.is_local(&pair.1),
            _ => false,
        }
    }

    pub(super) fn native_in(&self, ty: &Type) -> Option<DefinitionId> {
        match self.model.unaliased(ty) {
            Type::Named(id) if matches!(self.model.get(*id).kind, DefinitionKind::Native) => Some(*id),
            Type::Sequence(element, _) | Type::Array(element, _) => self.native_in(element),
            _ => None,
        }
    }

    /// Returns true for a definition inside a module whose interfaces belong to the ORB. Such
    /// interfaces are not remote, even if the IDL does not declare them local.
    pub(super) fn is_of_the_orb(&self, id: DefinitionId) -> bool {
        let outermost = std::iter::successors(Some(id), |id| self.model.get(*id).parent).last();
        let top = outermost.unwrap_or(id);
        let text = self.text(self.model.get(top).name);
        top != id && matches!(text, "CORBA" | "PortableServer" | "PortableInterceptor" | "PortableGroup" | "DynamicAny")
    }

    pub(super) fn is_void(ty: &Type) -> bool {
        *ty == Type::Basic(BasicType::Void)
    }
}
