//! Values of type `long double`: IEEE 754 binary128, rounded to nearest, ties to even.

use crate::ast::BinaryOperator;
use rustc_apfloat::ieee::{Double, Quad};
use rustc_apfloat::{Float as _, FloatConvert as _};
use std::fmt;

/// A binary128 number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binary128(Quad);

impl Binary128 {
    /// Number of digits that suffice to round every literal correctly.
    const DIGITS: usize = 12_000;
    const ENOUGH: usize = 36;
    const MOST: i64 = 5_000;
    const LEAST: i64 = -5_000;

    /// Returns the number nearest to a literal, which has digits and may have a point and an
    /// exponent. Returns `None` if the literal is too large.
    pub(crate) fn of_literal(text: &str) -> Option<Self> {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = whole.bytes().chain(fraction.bytes());
        let zeros = all.clone().take_while(|digit| *digit == b'0').count();
        let mut digits: String = all.clone().skip(zeros).take(Self::DIGITS).map(char::from).collect();
        if digits.is_empty() {
            return Some(Self(Quad::ZERO));
        }
        if all.skip(zeros + Self::DIGITS).any(|digit| digit != b'0') {
            digits.push('1');
        }
        let length = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
        let too_long = if exponent.starts_with('-') { i64::MIN } else { i64::MAX };
        let exponent = exponent.parse::<i64>().unwrap_or(too_long);
        let magnitude = exponent.saturating_add(length(whole.len())).saturating_sub(length(zeros));
        if magnitude > Self::MOST {
            return None;
        }
        if magnitude < Self::LEAST {
            return Some(Self(Quad::ZERO));
        }
        let number: Quad = format!("{digits}e{}", magnitude - length(digits.len())).parse().ok()?;
        number.is_finite().then_some(Self(number))
    }

    /// Converts a double exactly.
    #[must_use]
    pub fn from_f64(number: f64) -> Self {
        Self(Double::from_bits(number.to_bits().into()).convert(&mut false).value)
    }

    /// Returns the nearest double.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        let number: Double = self.0.convert(&mut false).value;
        f64::from_bits(u64::try_from(number.to_bits()).unwrap_or_default())
    }

    pub(crate) fn of_integer(number: i128) -> Self {
        Self(Quad::from_i128(number).value)
    }

    /// Returns the bits; the sign is the highest bit (IEEE 754, 3.4).
    #[must_use]
    pub fn bits(self) -> u128 {
        self.0.to_bits()
    }

    pub(crate) fn is_finite(self) -> bool {
        self.0.is_finite()
    }

    pub(crate) fn is_zero(self) -> bool {
        self.0.is_zero()
    }

    pub(crate) fn negated(self) -> Self {
        Self(-self.0)
    }

    pub(crate) fn apply(operator: BinaryOperator, left: Self, right: Self) -> Option<Self> {
        Some(Self(match operator {
            BinaryOperator::Add => (left.0 + right.0).value,
            BinaryOperator::Subtract => (left.0 - right.0).value,
            BinaryOperator::Multiply => (left.0 * right.0).value,
            BinaryOperator::Divide => (left.0 / right.0).value,
            _ => return None,
        }))
    }
}

/// Prints the fewest digits that identify the number.
impl fmt::Display for Binary128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |digits: usize| format!("{:.digits$}", self.0);
        let enough = (1..Self::ENOUGH).find(|digits| text(*digits).parse() == Ok(self.0)).unwrap_or(Self::ENOUGH);
        f.write_str(&text(enough))
    }
}

#[cfg(test)]
mod tests {
    use super::Binary128;
    use crate::ast::BinaryOperator as B;

    fn bits(text: &str) -> u128 {
        Binary128::of_literal(text).unwrap_or_else(|| panic!("{text}")).bits()
    }

    #[test]
    fn literals_are_rounded_to_the_nearest() {
        for (text, expected) in [
            ("0", 0),
            ("0.000e5", 0),
            ("1", 0x3fff << 112),
            ("0.5", 0x3ffe << 112),
            ("1.0e0", 0x3fff << 112),
            (".1e1", 0x3fff << 112),
            ("0.1", 0x3ffb_9999_9999_9999_9999_9999_9999_999a),
            ("3.14159265358979323846264338327950288419716939937510", 0x4000_921f_b544_42d1_8469_898c_c517_01b8),
            ("1e4932", 0x7ffe_ae59_6552_b8fd_ed99_d037_e3d0_4b75),
            ("6e-4966", 1),
            ("3e-4966", 0),
            ("1e-99999999999999999999", 0),
        ] {
            assert_eq!(bits(text), expected, "{text}");
        }
        assert!(Binary128::of_literal("1.2e4932").is_none());
        assert!(Binary128::of_literal("1e99999999999999999999").is_none());
        let half = "1.00000000000000000000000000000000009629649721936179265279889712924636592690508241076940976199693977832794189453125";
        assert_eq!(bits(half), 0x3fff << 112);
        assert_eq!(bits(&format!("{half}{}1", "0".repeat(20_000))), (0x3fff << 112) + 1);
        assert_eq!(bits(&format!("{half}{}", "0".repeat(20_000))), 0x3fff << 112);
    }

    #[test]
    fn operations_are_rounded_to_the_nearest() {
        let of = |text: &str| Binary128::of_literal(text).unwrap();
        let apply = |operator, left, right| Binary128::apply(operator, of(left), of(right)).unwrap();
        assert_eq!(apply(B::Add, "0.5", "0.25"), of("0.75"));
        assert_eq!(apply(B::Divide, "1", "3").bits(), 0x3ffd_5555_5555_5555_5555_5555_5555_5555);
        assert_eq!(apply(B::Multiply, "1e2500", "1e-2500"), of("1"));
        assert_eq!(apply(B::Subtract, "1", "1"), of("0"));
        assert!(!apply(B::Multiply, "1e4000", "1e4000").is_finite());
        assert_eq!(Binary128::apply(B::Remainder, of("1"), of("2")), None);
        assert_eq!((Binary128::from_f64(-0.1).to_f64(), of("0.1").to_f64()), (-0.1, 0.1));
        assert_eq!(Binary128::of_integer(-7), of("7").negated());
        assert_eq!(of("0.1").to_string(), "0.1");
    }
}
