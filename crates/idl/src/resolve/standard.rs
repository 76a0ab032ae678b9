//! The annotations of IDL 4.2 and Corelane's real-time annotations: their parameters, and the items
//! on which they have an effect.

use super::{DeclarationResolver, DeclarationSite};
use crate::ast::{Annotation, BasicType, DeclarationKind, Expression, ExpressionKind};
use crate::diagnostic::Diagnostic;
use crate::model::Type;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnnotatedItem {
    Operation,
    Enumeration,
    Bitmask,
    Flag,
    Other,
}

impl AnnotatedItem {
    pub(super) fn of(declaration: &DeclarationKind) -> Self {
        match declaration {
            DeclarationKind::Operation(_) => Self::Operation,
            DeclarationKind::Enum(_) => Self::Enumeration,
            DeclarationKind::Bitmask(..) => Self::Bitmask,
            _ => Self::Other,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Takes {
    Number,
    Boolean,
    Text,
    /// An enumerator defined by the annotation itself.
    Word,
    /// A value of the annotated member's type.
    Value,
}

#[derive(Clone, Copy, Debug)]
enum Effect {
    /// The annotation is descriptive: the generated code does not depend on it.
    Describes,
    /// The annotation requests a feature that the compiler does not support.
    Ignored,
    /// The compiler evaluates the annotation on items of these kinds.
    At(&'static [AnnotatedItem]),
}

struct Standard {
    name: &'static str,
    parameters: &'static [(&'static str, Takes, bool)],
    effect: Effect,
}

const fn standard(name: &'static str, parameters: &'static [(&'static str, Takes, bool)], effect: Effect) -> Standard {
    Standard { name, parameters, effect }
}

const SWITCH: &[(&str, Takes, bool)] = &[("value", Takes::Boolean, true)];
const NUMBER: &[(&str, Takes, bool)] = &[("value", Takes::Number, false)];
const VALUE: &[(&str, Takes, bool)] = &[("value", Takes::Value, false)];
const PERHAPS_WORD: &[(&str, Takes, bool)] = &[("value", Takes::Word, true)];

const STANDARD: &[Standard] = &[
    standard("id", NUMBER, Effect::Describes),
    standard("autoid", PERHAPS_WORD, Effect::Describes),
    standard("optional", SWITCH, Effect::Ignored),
    standard("position", NUMBER, Effect::At(&[AnnotatedItem::Flag])),
    standard("value", VALUE, Effect::Ignored),
    standard("extensibility", &[("value", Takes::Word, false)], Effect::Describes),
    standard("final", &[], Effect::Describes),
    standard("appendable", &[], Effect::Describes),
    standard("mutable", &[], Effect::Describes),
    standard("key", SWITCH, Effect::Describes),
    standard("must_understand", SWITCH, Effect::Describes),
    standard("default_literal", &[], Effect::Describes),
    standard("default", VALUE, Effect::Ignored),
    standard("range", &[("min", Takes::Value, false), ("max", Takes::Value, false)], Effect::Describes),
    standard("min", VALUE, Effect::Describes),
    standard("max", VALUE, Effect::Describes),
    standard("unit", &[("value", Takes::Text, false)], Effect::Describes),
    standard("bit_bound", NUMBER, Effect::At(&[AnnotatedItem::Enumeration, AnnotatedItem::Bitmask])),
    standard("external", SWITCH, Effect::Ignored),
    standard("nested", SWITCH, Effect::Describes),
    standard(
        "verbatim",
        &[("language", Takes::Text, true), ("placement", Takes::Word, true), ("text", Takes::Text, false)],
        Effect::Describes,
    ),
    standard("service", &[("platform", Takes::Text, true)], Effect::Describes),
    standard("oneway", SWITCH, Effect::At(&[AnnotatedItem::Operation])),
    standard("ami", SWITCH, Effect::Ignored),
    standard("try_construct", PERHAPS_WORD, Effect::Describes),
    standard("hashid", &[("value", Takes::Text, true)], Effect::Describes),
    standard("topic", &[("name", Takes::Text, true), ("platform", Takes::Text, true)], Effect::Describes),
    standard("wcet", NUMBER, Effect::At(&[AnnotatedItem::Operation])),
    standard("period", NUMBER, Effect::Ignored),
    standard("deadline", NUMBER, Effect::Ignored),
    standard("priority", &[("value", Takes::Value, false)], Effect::Ignored),
];

impl DeclarationResolver<'_> {
    pub(super) fn check_standard(&mut self, annotation: &Annotation, place: AnnotatedItem, at: DeclarationSite) {
        let Some(name) = annotation.name.parts.last().copied() else { return };
        let Some(known) = STANDARD.iter().find(|known| known.name == self.text(name.symbol)) else {
            let message = format!("there is no annotation `@{}`; it is ignored", self.text(name.symbol));
            return self.report(Diagnostic::warning(annotation.name.span, message));
        };
        let effective = match known.effect {
            Effect::Describes => true,
            Effect::Ignored => false,
            Effect::At(places) => places.contains(&place),
        };
        if !effective {
            let message = format!("`@{}` has no effect here", known.name);
            self.report(Diagnostic::warning(annotation.name.span, message));
        }
        // The code that evaluates the annotation checks its arguments, so they are not checked
        // here.
        if matches!(known.effect, Effect::At(_)) && effective && known.name != "oneway" {
            return;
        }
        self.check_standard_arguments(annotation, known, at);
    }

    fn check_standard_arguments(&mut self, annotation: &Annotation, known: &Standard, at: DeclarationSite) {
        let mut given: Vec<&str> = Vec::new();
        for (name, value) in &annotation.arguments {
            let parameter = match name {
                Some(name) => known.parameters.iter().find(|parameter| parameter.0 == self.text(name.symbol)),
                None if annotation.arguments.len() == 1 => known.parameters.first(),
                None => None,
            };
            let Some((parameter, takes, _)) = parameter.filter(|parameter| !given.contains(&parameter.0)) else {
                let message = format!("annotation `@{}` does not take this", known.name);
                self.report(Diagnostic::error(name.map_or(value.span, |name| name.span), message));
                continue;
            };
            given.push(*parameter);
            self.check_standard_argument(value, *takes, at);
        }
        for (parameter, ..) in known.parameters.iter().filter(|one| !one.2 && !given.contains(&one.0)) {
            let message = format!("annotation `@{}` needs `{parameter}`", known.name);
            self.report(Diagnostic::error(annotation.name.span, message));
        }
    }

    fn check_standard_argument(&mut self, value: &Expression, takes: Takes, at: DeclarationSite) {
        let ty = match takes {
            Takes::Number => Type::Basic(BasicType::ULong),
            Takes::Boolean => Type::Basic(BasicType::Boolean),
            Takes::Text => Type::String(false, None),
            Takes::Word if !matches!(value.kind, ExpressionKind::Named(_)) => {
                return self.report(Diagnostic::error(value.span, "this annotation takes a word"));
            }
            Takes::Word | Takes::Value => return,
        };
        let _ = self.evaluate_as(value, &ty, value.span, at);
    }

    pub(super) fn annotated_oneway(&self, annotations: &[Annotation]) -> Option<crate::source::Span> {
        let is_oneway = |annotation: &&Annotation| matches!(annotation.name.parts.as_slice(), [name] if self.text(name.symbol) == "oneway");
        let annotation = annotations.iter().find(is_oneway)?;
        let off = annotation.arguments.iter().any(|(_, value)| matches!(value.kind, ExpressionKind::Boolean(false)));
        (!off).then_some(annotation.name.span)
    }
}
