//! Evaluation of constant expressions by the typing rules of CORBA 3.0.3, section 3.10.2.

use super::{DeclarationResolver, DeclarationSite, LookUpResult, ReportedError, ResolveResult, ScopeItem, decimal};
use crate::ast::{BasicType, BinaryOperator, Expression, ExpressionKind as E, UnaryOperator};
use crate::binary128::Binary128;
use crate::diagnostic::Diagnostic;
use crate::model::{ConstantValue as V, DefinitionId, DefinitionKind, Type};
use crate::source::Span;

#[derive(Clone, Copy, Debug, PartialEq)]
enum RequiredType {
    Integer {
        bits: u32,
        signed: bool,
        name: &'static str,
    },
    Float {
        kind: BasicType,
    },
    Fixed(Option<(u8, u8)>),
    Boolean,
    Character {
        wide: bool,
    },
    String {
        wide: bool,
        bound: Option<u32>,
    },
    Enumerator(DefinitionId),
    /// An enumerator of this enumeration, as the label of a union arm.
    Label(DefinitionId),
}

impl RequiredType {
    fn text(self) -> &'static str {
        match self {
            Self::Integer { .. } => "an integer",
            Self::Float { .. } => "a floating-point number",
            Self::Fixed(_) => "a fixed-point number",
            Self::Boolean => "`TRUE` or `FALSE`",
            Self::Character { wide: false } => "a character",
            Self::Character { wide: true } => "a wide character",
            Self::String { wide: false, .. } => "a string",
            Self::String { wide: true, .. } => "a wide string",
            Self::Enumerator(_) | Self::Label(_) => "an enumerator",
        }
    }

    fn range(self) -> (i128, i128) {
        match self {
            Self::Integer { bits, signed: true, .. } => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            Self::Integer { bits, .. } => (0, (1 << bits) - 1),
            _ => (i128::from(i64::MIN), i128::from(u64::MAX)),
        }
    }
}

const ULONG: RequiredType = RequiredType::Integer { bits: 32, signed: false, name: "unsigned long" };

impl DeclarationResolver<'_> {
    pub(super) fn size(&mut self, expression: &Expression, at: DeclarationSite) -> ResolveResult<u32> {
        let size = self.non_negative(expression, at)?;
        if size == 0 {
            return self.fail(Diagnostic::error(expression.span, "the size must be positive, and is 0"));
        }
        Ok(size)
    }

    pub(super) fn non_negative(&mut self, expression: &Expression, at: DeclarationSite) -> ResolveResult<u32> {
        match self.evaluate_checked(expression, ULONG, at)? {
            V::Integer(value) => u32::try_from(value).map_err(|_| ReportedError),
            _ => Err(ReportedError),
        }
    }

    pub(super) fn evaluate_label(
        &mut self,
        expression: &Expression,
        ty: &Type,
        place: Span,
        at: DeclarationSite,
    ) -> ResolveResult<V> {
        match self
            .model
            .unaliased_definition(ty)
            .filter(|id| matches!(self.model.get(*id).kind, DefinitionKind::Enum(_)))
        {
            Some(of) => self.evaluate_checked(expression, RequiredType::Label(of), at),
            None => self.evaluate_as(expression, ty, place, at),
        }
    }

    pub(super) fn evaluate_as(
        &mut self,
        expression: &Expression,
        ty: &Type,
        place: Span,
        at: DeclarationSite,
    ) -> ResolveResult<V> {
        let target = match self.model.unaliased(ty) {
            Type::Faulty => return Err(ReportedError),
            Type::Basic(basic) => basic_target(*basic),
            Type::String(wide, bound) => Some(RequiredType::String { wide: *wide, bound: *bound }),
            Type::FixedConstant => Some(RequiredType::Fixed(None)),
            Type::Fixed(digits, scale) => Some(RequiredType::Fixed(Some((*digits, *scale)))),
            Type::Named(id) if matches!(self.model.get(*id).kind, DefinitionKind::Enum(_)) => {
                Some(RequiredType::Enumerator(*id))
            }
            _ => None,
        };
        match target {
            Some(target) => self.evaluate_checked(expression, target, at),
            None => {
                let note = "a constant can be of an integer, floating-point, fixed-point, character, boolean, string or enumeration type";
                self.fail(Diagnostic::error(place, "a constant cannot be of this type").note(note))
            }
        }
    }

    /// Looks up the names in an expression whose required type is unknown, without a check of its
    /// value.
    pub(super) fn evaluate_freely(&mut self, expression: &Expression, at: DeclarationSite) -> ResolveResult<()> {
        match &expression.kind {
            E::Named(name) => self.look_up(name, at.scope, true).map(drop),
            E::Unary(_, operand) => self.evaluate_freely(operand, at),
            E::Binary(_, operands) => {
                self.evaluate_freely(&operands.0, at)?;
                self.evaluate_freely(&operands.1, at)
            }
            _ => Ok(()),
        }
    }

    fn evaluate_checked(
        &mut self,
        expression: &Expression,
        target: RequiredType,
        at: DeclarationSite,
    ) -> ResolveResult<V> {
        let value = self.evaluate(expression, target, at)?;
        let span = expression.span;
        match (&value, target) {
            (V::Integer(number), RequiredType::Integer { name, .. }) => {
                let (least, most) = target.range();
                if *number < least || *number > most {
                    let message = format!("{number} does not fit `{name}`");
                    let note = format!("`{name}` holds {least} to {most}");
                    return self.fail(Diagnostic::error(span, message).note(note));
                }
            }
            (V::Float(number), RequiredType::Float { kind }) => {
                // A value that rounds to the largest number of the type is in range.
                #[expect(clippy::cast_possible_truncation, reason = "the cast tests whether the value fits")]
                let fits = number.is_finite() && (kind != BasicType::Float || (*number as f32).is_finite());
                if !fits {
                    let name = kind.text();
                    return self.fail(Diagnostic::error(span, format!("the value does not fit `{name}`")));
                }
                if kind == BasicType::Float {
                    #[expect(clippy::cast_possible_truncation, reason = "the value of a `float` is rounded to one")]
                    let value = f64::from(*number as f32);
                    return Ok(V::Float(value));
                }
            }
            (V::LongDouble(number), _) if !number.is_finite() => {
                return self.fail(Diagnostic::error(span, "the value does not fit `long double`"));
            }
            (V::String(text), RequiredType::String { bound: Some(bound), .. }) => {
                let length = text.chars().count();
                if length > bound as usize {
                    let message = format!("the string has {length} characters, its type allows {bound}");
                    return self.fail(Diagnostic::error(span, message));
                }
            }
            (V::Fixed(digits, scale), RequiredType::Fixed(Some((most, behind)))) => {
                return self.fit_fixed(*digits, *scale, most, behind, span);
            }
            (V::Character(character), RequiredType::Character { wide: false }) if u32::from(*character) > 255 => {
                return self.fail(
                    Diagnostic::error(span, "the character is not in ISO 8859-1, and a `char` has one octet")
                        .help("use `wchar`"),
                );
            }
            _ => {}
        }
        Ok(value)
    }

    fn fit_fixed(&mut self, digits: i128, scale: u32, most: u8, behind: u8, span: Span) -> ResolveResult<V> {
        let (mut digits, mut scale) = (digits, scale);
        while scale > u32::from(behind) {
            (digits, scale) = (digits / 10, scale - 1);
        }
        let whole = digits.unsigned_abs() / 10_u128.pow(scale);
        if whole >= 10_u128.pow(u32::from(most - behind)) {
            return self.fail(Diagnostic::error(span, format!("the value does not fit `fixed<{most}, {behind}>`")));
        }
        Ok(V::Fixed(digits, scale))
    }

    fn mismatch<T>(&mut self, span: Span, found: &str, target: RequiredType) -> ResolveResult<T> {
        let message = format!("{} was expected, {found} was found", target.text());
        let diagnostic = Diagnostic::error(span, message);
        let help = match (target, found) {
            (RequiredType::Boolean, "an integer") => "write `TRUE` or `FALSE`",
            (RequiredType::Character { .. }, "a string") => "a character is written in single quotes",
            (RequiredType::String { wide: true, .. }, "a string")
            | (RequiredType::Character { wide: true }, "a character") => "write `L` in front of it",
            (RequiredType::String { wide: false, .. }, "a wide string")
            | (RequiredType::Character { wide: false }, "a wide character") => "leave out the `L`",
            (RequiredType::Float { .. }, "an integer") => "write it with a point: `1.0`",
            (RequiredType::Fixed(_), _) => "a fixed-point number is written with a `d` at its end",
            _ => return self.fail(diagnostic),
        };
        self.fail(diagnostic.help(help))
    }

    fn evaluate(&mut self, expression: &Expression, target: RequiredType, at: DeclarationSite) -> ResolveResult<V> {
        let span = expression.span;
        match &expression.kind {
            E::Faulty => Err(ReportedError),
            E::Integer(value) => match target {
                RequiredType::Integer { .. } => Ok(V::Integer(i128::from(*value))),
                RequiredType::Float { kind } if self.extended => Ok(integer_as(i128::from(*value), kind)),
                _ => self.mismatch(span, "an integer", target),
            },
            E::Float(value, long) => match target {
                RequiredType::Float { kind: BasicType::LongDouble } => Ok(V::LongDouble(*long)),
                RequiredType::Float { kind } if !value.is_finite() => {
                    let message = format!("the value does not fit `{}`", kind.text());
                    self.fail(Diagnostic::error(span, message))
                }
                RequiredType::Float { .. } => Ok(V::Float(*value)),
                _ => self.mismatch(span, "a floating-point number", target),
            },
            E::Fixed(digits, scale) => match (target, i128::try_from(*digits)) {
                (RequiredType::Fixed(_), Ok(digits)) => Ok(V::Fixed(digits, *scale)),
                _ => self.mismatch(span, "a fixed-point number", target),
            },
            E::Character(value, wide) => match target {
                RequiredType::Character { wide: wanted } if wanted == *wide => Ok(V::Character(*value)),
                _ => self.mismatch(span, if *wide { "a wide character" } else { "a character" }, target),
            },
            E::String(value, wide) => match target {
                RequiredType::String { wide: wanted, .. } if wanted == *wide => Ok(V::String(value.clone())),
                _ => self.mismatch(span, if *wide { "a wide string" } else { "a string" }, target),
            },
            E::Boolean(value) => match target {
                RequiredType::Boolean => Ok(V::Boolean(*value)),
                _ => self.mismatch(span, "a boolean", target),
            },
            E::Named(name) => self.evaluate_name(name, target, at),
            E::Unary(operator, operand) => {
                let value = self.evaluate(operand, target, at)?;
                self.unary(*operator, value, span, target)
            }
            E::Binary(operator, _)
                if matches!(target, RequiredType::Float { .. } | RequiredType::Fixed(_))
                    && !operator.is_arithmetic() =>
            {
                self.no_operator(span, target)
            }
            E::Binary(operator, operands) => {
                let left = self.evaluate(&operands.0, target, at)?;
                let right = self.evaluate(&operands.1, target, at)?;
                self.binary(*operator, (left, right), (span, operands.1.span), target)
            }
        }
    }

    fn evaluate_name(
        &mut self,
        name: &crate::ast::ScopedName,
        target: RequiredType,
        at: DeclarationSite,
    ) -> ResolveResult<V> {
        if let Some(id) = self.label_without_scope(name, target, at) {
            return Ok(V::Enumerator(id));
        }
        let id = self.look_up(name, at.scope, true)?;
        let place = self.model.get(id).span;
        match &self.model.get(id).kind {
            DefinitionKind::Enumerator(of, _) => match target {
                RequiredType::Enumerator(wanted) | RequiredType::Label(wanted) if wanted == *of => {
                    Ok(V::Enumerator(id))
                }
                RequiredType::Enumerator(wanted) | RequiredType::Label(wanted) => {
                    let (of, wanted) = (self.described(*of), self.described(wanted));
                    let message = format!("an enumerator of {wanted} was expected, this is one of {of}");
                    self.fail(Diagnostic::error(name.span, message).related(place, "declared here"))
                }
                _ => self.mismatch(name.span, "an enumerator", target),
            },
            DefinitionKind::Constant(_, V::Faulty) => Err(ReportedError),
            DefinitionKind::Constant(ty, value) => {
                let wide = match self.model.unaliased(ty) {
                    Type::String(wide, _) => *wide,
                    Type::Basic(basic) => *basic == BasicType::WChar,
                    _ => false,
                };
                let (value, ty) = (value.clone(), self.model.unaliased(ty).clone());
                let found = match (&value, target) {
                    (V::Integer(_), RequiredType::Integer { .. })
                    | (V::Fixed(..), RequiredType::Fixed(_))
                    | (V::Boolean(_), RequiredType::Boolean) => return Ok(value),
                    (V::Float(number), RequiredType::Float { kind: BasicType::LongDouble }) => {
                        return Ok(V::LongDouble(Binary128::from_f64(*number)));
                    }
                    (V::LongDouble(_), RequiredType::Float { kind: BasicType::LongDouble })
                    | (V::Float(_), RequiredType::Float { .. }) => {
                        return Ok(value);
                    }
                    (V::LongDouble(number), RequiredType::Float { .. }) => return Ok(V::Float(number.to_f64())),
                    (V::Integer(number), RequiredType::Float { kind }) if self.extended => {
                        return Ok(integer_as(*number, kind));
                    }
                    (V::Character(_), RequiredType::Character { wide: wanted })
                    | (V::String(_), RequiredType::String { wide: wanted, .. })
                        if wanted == wide =>
                    {
                        return Ok(value);
                    }
                    (V::Enumerator(_), RequiredType::Enumerator(of) | RequiredType::Label(of))
                        if ty == Type::Named(of) =>
                    {
                        return Ok(value);
                    }
                    (V::Integer(_), _) => "an integer",
                    (V::Float(_) | V::LongDouble(_), _) => "a floating-point number",
                    (V::Fixed(..), _) => "a fixed-point number",
                    (V::Boolean(_), _) => "a boolean",
                    (V::Character(_), _) if wide => "a wide character",
                    (V::Character(_), _) => "a character",
                    (V::String(_), _) if wide => "a wide string",
                    (V::String(_), _) => "a string",
                    _ => "an enumerator of another enumeration",
                };
                self.mismatch(name.span, found, target)
            }
            _ => {
                let message = format!("{} is not a constant", self.described(id));
                self.fail(
                    Diagnostic::error(name.span, message)
                        .label("a constant was expected")
                        .related(place, "declared here"),
                )
            }
        }
    }

    fn label_without_scope(
        &mut self,
        name: &crate::ast::ScopedName,
        target: RequiredType,
        at: DeclarationSite,
    ) -> Option<DefinitionId> {
        let (RequiredType::Label(of), [single], false) = (target, name.parts.as_slice(), name.is_absolute) else {
            return None;
        };
        if !matches!(self.find_outwards(single.symbol, at.scope), (LookUpResult::Nothing, _)) {
            return None;
        }
        let around = self.model.get(of).parent.and_then(|parent| self.scope_of(parent))?;
        let ScopeItem::Definition(id) =
            self.entry(around, single.symbol).filter(|entry| entry.symbol == single.symbol)?.what
        else {
            return None;
        };
        if !matches!(self.model.get(id).kind, DefinitionKind::Enumerator(by, _) if by == of) {
            return None;
        }
        let full = self.full_name(id);
        let message = format!("`{}` is not declared here: it is taken for `{full}`", self.text(single.symbol));
        let diagnostic = Diagnostic::warning(name.span, message).help(format!("write `{full}`"));
        let place = self.model.get(id).span;
        self.report(diagnostic.related(place, "the discriminator's enumerator"));
        Some(id)
    }

    fn unary(&mut self, operator: UnaryOperator, value: V, span: Span, target: RequiredType) -> ResolveResult<V> {
        match (operator, value) {
            (UnaryOperator::Plus, value @ (V::Integer(_) | V::Float(_) | V::LongDouble(_) | V::Fixed(..))) => Ok(value),
            (UnaryOperator::Minus, V::Integer(value)) => self.in_range(value.checked_neg(), span),
            (UnaryOperator::Minus, V::Float(value)) => Ok(V::Float(-value)),
            (UnaryOperator::Minus, V::LongDouble(value)) => Ok(V::LongDouble(value.negated())),
            (UnaryOperator::Minus, V::Fixed(digits, scale)) => Ok(V::Fixed(-digits, scale)),
            (UnaryOperator::Complement, V::Integer(value)) => match target {
                RequiredType::Integer { signed: false, .. } if value >= 0 => {
                    self.in_range(Some(target.range().1 - value), span)
                }
                _ => self.in_range(Some(-value - 1), span),
            },
            (_, V::Faulty) => Err(ReportedError),
            _ => self.no_operator(span, target),
        }
    }

    fn no_operator<T>(&mut self, span: Span, target: RequiredType) -> ResolveResult<T> {
        let message = format!(
            "this operator is not defined for {}",
            if target == RequiredType::Boolean { "booleans" } else { target.text() }
        );
        self.fail(Diagnostic::error(span, message))
    }

    fn in_range(&mut self, value: Option<i128>, span: Span) -> ResolveResult<V> {
        match value.filter(|value| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(value)) {
            Some(value) => Ok(V::Integer(value)),
            None => self.fail(Diagnostic::error(span, "the value needs more than 64 bits")),
        }
    }

    fn binary(
        &mut self,
        operator: BinaryOperator,
        operands: (V, V),
        spans: (Span, Span),
        target: RequiredType,
    ) -> ResolveResult<V> {
        let (span, right_span) = spans;
        match operands {
            (V::Integer(left), V::Integer(right)) => self.integers(operator, left, right, spans),
            (V::Float(left), V::Float(right)) => {
                let value = match operator {
                    BinaryOperator::Add => left + right,
                    BinaryOperator::Subtract => left - right,
                    BinaryOperator::Multiply => left * right,
                    BinaryOperator::Divide if right == 0.0 => {
                        return self.fail(Diagnostic::error(right_span, "division by zero"));
                    }
                    BinaryOperator::Divide => left / right,
                    _ => return self.no_operator(span, target),
                };
                self.finite(V::Float(value), value.is_finite(), span, target)
            }
            (V::LongDouble(_), V::LongDouble(right)) if operator == BinaryOperator::Divide && right.is_zero() => {
                self.fail(Diagnostic::error(right_span, "division by zero"))
            }
            (V::LongDouble(left), V::LongDouble(right)) => match Binary128::apply(operator, left, right) {
                Some(value) => self.finite(V::LongDouble(value), value.is_finite(), span, target),
                None => self.no_operator(span, target),
            },
            (V::Fixed(..), V::Fixed(0, _)) if operator == BinaryOperator::Divide => {
                self.fail(Diagnostic::error(right_span, "division by zero"))
            }
            (V::Fixed(left, left_scale), V::Fixed(right, right_scale)) => {
                match decimal::apply(operator, (left, left_scale), (right, right_scale)) {
                    Some(Some((digits, scale))) => Ok(V::Fixed(digits, scale)),
                    Some(None) => self.fail(Diagnostic::error(span, "the value has more than 31 digits")),
                    None => self.no_operator(span, target),
                }
            }
            (V::Faulty, _) | (_, V::Faulty) => Err(ReportedError),
            _ => self.no_operator(span, target),
        }
    }

    fn finite(&mut self, value: V, finite: bool, span: Span, target: RequiredType) -> ResolveResult<V> {
        match target {
            RequiredType::Float { kind } if !finite => {
                self.fail(Diagnostic::error(span, format!("the value does not fit `{}`", kind.text())))
            }
            _ => Ok(value),
        }
    }

    fn integers(
        &mut self,
        operator: BinaryOperator,
        left: i128,
        right: i128,
        (span, right_span): (Span, Span),
    ) -> ResolveResult<V> {
        let shift = u32::try_from(right).ok().filter(|shift| *shift < 64);
        let value = match operator {
            BinaryOperator::Or => Some(left | right),
            BinaryOperator::Xor => Some(left ^ right),
            BinaryOperator::And => Some(left & right),
            BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight => match shift {
                // A shift to the left drops bits beyond 64 bits.
                Some(shift) if operator == BinaryOperator::ShiftLeft && left >= 0 => {
                    Some((left << shift) & i128::from(u64::MAX))
                }
                Some(shift) if operator == BinaryOperator::ShiftLeft => Some(left << shift),
                Some(shift) => Some(left >> shift),
                None => {
                    return self
                        .fail(Diagnostic::error(right_span, format!("a shift is by 0 to 63 bits, not {right}")));
                }
            },
            BinaryOperator::Add => left.checked_add(right),
            BinaryOperator::Subtract => left.checked_sub(right),
            BinaryOperator::Multiply => left.checked_mul(right),
            BinaryOperator::Divide | BinaryOperator::Remainder if right == 0 => {
                return self.fail(Diagnostic::error(right_span, "division by zero"));
            }
            BinaryOperator::Divide => left.checked_div(right),
            BinaryOperator::Remainder => left.checked_rem(right),
        };
        self.in_range(value, span)
    }
}

fn basic_target(basic: BasicType) -> Option<RequiredType> {
    let integer = |bits, signed| Some(RequiredType::Integer { bits, signed, name: basic.text() });
    match basic {
        BasicType::Short => integer(16, true),
        BasicType::UShort => integer(16, false),
        BasicType::Long => integer(32, true),
        BasicType::ULong => integer(32, false),
        BasicType::LongLong => integer(64, true),
        BasicType::ULongLong => integer(64, false),
        BasicType::Int8 => integer(8, true),
        BasicType::Octet | BasicType::UInt8 => integer(8, false),

        BasicType::Float | BasicType::Double | BasicType::LongDouble => Some(RequiredType::Float { kind: basic }),
        BasicType::Char => Some(RequiredType::Character { wide: false }),
        BasicType::WChar => Some(RequiredType::Character { wide: true }),
        BasicType::Boolean => Some(RequiredType::Boolean),
        BasicType::Void | BasicType::Any | BasicType::Object | BasicType::ValueBase => None,
    }
}

fn integer_as(number: i128, kind: BasicType) -> V {
    let long = Binary128::of_integer(number);
    if kind == BasicType::LongDouble { V::LongDouble(long) } else { V::Float(long.to_f64()) }
}
