//! Fixed-point arithmetic of constant expressions (CORBA 3.0.3, section 3.10.2).
//!
//! Results are computed exactly and then truncated to 31 digits, with at most 31 digits after the
//! point.

use crate::ast::BinaryOperator;

const MOST: usize = 31;

/// A number: its digits, and the number of digits after the point.
pub(super) type FixedConstant = (i128, u32);

/// Returns the result of an operator; `None` for an unsupported operator; `Some(None)` for a
/// division by zero, and for a result whose whole part has more than 31 digits.
pub(super) fn apply(
    operator: BinaryOperator,
    left: FixedConstant,
    right: FixedConstant,
) -> Option<Option<FixedConstant>> {
    Some(match operator {
        BinaryOperator::Add => sum(left, right),
        BinaryOperator::Subtract => sum(left, (-right.0, right.1)),
        BinaryOperator::Multiply => product(left, right),
        BinaryOperator::Divide => quotient(left, right),
        _ => return None,
    })
}

fn sum(left: FixedConstant, right: FixedConstant) -> Option<FixedConstant> {
    let scale = left.1.max(right.1);
    let aligned = |(number, behind): FixedConstant| {
        let mut digits = vec![0; (scale - behind) as usize];
        digits.extend(digits_of(number.unsigned_abs()));
        digits
    };
    let (one, two) = (aligned(left), aligned(right));
    let (minus_one, minus_two) = (left.0 < 0, right.0 < 0);
    let larger_first = is_less(&two, &one);
    let (digits, minus) = match (minus_one == minus_two, larger_first) {
        (true, _) => (added(&one, &two), minus_one),
        (false, true) => (subtracted(&one, &two), minus_one),
        (false, false) => (subtracted(&two, &one), minus_two),
    };
    cut(digits, scale, minus)
}

fn product(left: FixedConstant, right: FixedConstant) -> Option<FixedConstant> {
    let (one, two) = (digits_of(left.0.unsigned_abs()), digits_of(right.0.unsigned_abs()));
    let mut sums = vec![0_u32; one.len() + two.len()];
    for (at, a) in one.iter().enumerate() {
        for (place, b) in sums[at..].iter_mut().zip(&two) {
            *place += u32::from(*a) * u32::from(*b);
        }
    }
    let mut carried = 0;
    let digits = sums.into_iter().map(|sum| {
        let all = sum + carried;
        carried = all / 10;
        u8::try_from(all % 10).unwrap_or(0)
    });
    cut(digits.collect(), left.1 + right.1, (left.0 < 0) != (right.0 < 0))
}

fn quotient(left: FixedConstant, right: FixedConstant) -> Option<FixedConstant> {
    let divisor = right.0.unsigned_abs();
    let (mut digits, mut rest) =
        (left.0.unsigned_abs().checked_div(divisor)?, left.0.unsigned_abs().checked_rem(divisor)?);
    let (mut scale, taken) = (left.1, right.1);
    let limit = 10_u128.pow(30);
    // While the scale is below the divisor's scale, digits before the point are missing.
    while scale < taken || (rest != 0 && digits < limit && ((scale - taken) as usize) < MOST) {
        if digits >= limit {
            return None;
        }
        rest *= 10;
        digits = digits * 10 + rest / divisor;
        rest %= divisor;
        scale += 1;
    }
    cut(digits_of(digits), scale - taken, (left.0 < 0) != (right.0 < 0))
}

fn digits_of(mut number: u128) -> Vec<u8> {
    let mut digits = Vec::with_capacity(2 * MOST);
    while number > 0 {
        digits.push(u8::try_from(number % 10).unwrap_or(0));
        number /= 10;
    }
    digits
}

fn digit(digits: &[u8], at: usize) -> u8 {
    digits.get(at).copied().unwrap_or(0)
}

fn is_less(one: &[u8], two: &[u8]) -> bool {
    let length = one.len().max(two.len());
    let differs = (0..length).rev().find(|at| digit(one, *at) != digit(two, *at));
    differs.is_some_and(|at| digit(one, at) < digit(two, at))
}

fn added(one: &[u8], two: &[u8]) -> Vec<u8> {
    let mut carried = 0;
    let places = (0..=one.len().max(two.len())).map(|at| {
        let sum = digit(one, at) + digit(two, at) + carried;
        carried = sum / 10;
        sum % 10
    });
    places.collect()
}

fn subtracted(one: &[u8], two: &[u8]) -> Vec<u8> {
    let mut taken = 0;
    let places = (0..one.len()).map(|at| {
        let (from, less) = (digit(one, at), digit(two, at) + taken);
        taken = u8::from(from < less);
        from + 10 * taken - less
    });
    places.collect()
}

fn cut(mut digits: Vec<u8>, scale: u32, minus: bool) -> Option<FixedConstant> {
    let significant = |digits: &[u8]| digits.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1);
    digits.truncate(significant(&digits));
    let behind = scale as usize;
    let dropped = behind.saturating_sub(MOST).max(digits.len().saturating_sub(MOST));
    if dropped > behind {
        return None;
    }
    let zeros = digits.iter().skip(dropped).take_while(|digit| **digit == 0).count();
    let dropped = if dropped >= digits.len() { behind } else { (dropped + zeros).min(behind) };
    let number = digits.iter().skip(dropped).rev().fold(0_i128, |number, digit| number * 10 + i128::from(*digit));
    Some((if minus { -number } else { number }, u32::try_from(behind - dropped).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::apply;
    use crate::ast::BinaryOperator as B;

    #[test]
    fn small_numbers_have_exact_results() {
        assert_eq!(apply(B::Add, (15, 1), (25, 2)), Some(Some((175, 2))));
        assert_eq!(apply(B::Subtract, (15, 1), (5, 1)), Some(Some((1, 0))));
        assert_eq!(apply(B::Subtract, (5, 1), (15, 1)), Some(Some((-1, 0))));
        assert_eq!(apply(B::Subtract, (-5, 1), (-5, 1)), Some(Some((0, 0))));
        assert_eq!(apply(B::Multiply, (15, 1), (-2, 0)), Some(Some((-3, 0))));
        assert_eq!(apply(B::Divide, (1, 0), (4, 0)), Some(Some((25, 2))));
        assert_eq!(apply(B::Divide, (1, 0), (5, 1)), Some(Some((2, 0))));
        assert_eq!(apply(B::Divide, (600, 0), (-2, 0)), Some(Some((-300, 0))));
        assert_eq!(apply(B::Remainder, (1, 0), (3, 0)), None);
    }

    #[test]
    fn results_are_exact_up_to_31_digits() {
        let third = apply(B::Divide, (1, 0), (3, 0)).flatten();
        assert_eq!(third, Some((3_333_333_333_333_333_333_333_333_333_333, 31)));
        assert_eq!(apply(B::Multiply, (10_i128.pow(30), 0), (10_i128.pow(30), 0)), Some(None));
        let one = 1_234_567_890_123_456_789_012_345_678_901;
        let two = 1_000_000_000_000_000_000_000_000_000_001;
        let product = Some((1_234_567_890_123_456_789_012_345_678_902, 30));
        assert_eq!(apply(B::Multiply, (one, 30), (two, 30)), Some(product));
        assert_eq!(apply(B::Divide, (1, 0), (300, 0)), Some(Some((33_333_333_333_333_333_333_333_333_333, 31))));
        assert_eq!(apply(B::Multiply, (1, 19), (1, 19)), Some(Some((0, 0))));
        assert_eq!(apply(B::Add, (10_i128.pow(30), 0), (1, 31)), Some(Some((10_i128.pow(30), 0))));
        assert_eq!(apply(B::Add, (10_i128.pow(31) - 1, 0), (1, 0)), Some(None));
        assert_eq!(apply(B::Divide, (10_i128.pow(30), 0), (1, 1)), Some(None));
    }
}
