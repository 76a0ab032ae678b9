//! Tests of fixed-point arithmetic, by comparison with integers where these can hold the result,
//! and by arithmetic laws.

use corelane_wire::{Cdr, Decimal, DecimalError, Decoder, Encoder, Endian, Fixed};
use proptest::prelude::*;

fn number() -> impl Strategy<Value = Decimal> {
    let digits = (0..=31u32, any::<u128>()).prop_map(|(count, random)| random % 10u128.pow(count));
    (digits, any::<bool>(), 0..=31u8).prop_map(|(digits, minus, scale)| {
        let digits = digits.cast_signed();
        Decimal::new(if minus { -digits } else { digits }, scale).unwrap()
    })
}

/// Returns the unscaled value and the scale of a number whose products and sums fit in an `i128`.
fn small() -> impl Strategy<Value = (i64, u8)> {
    (any::<i32>().prop_map(i64::from), 0..=6u8)
}

fn of((unscaled, scale): (i64, u8)) -> Decimal {
    Decimal::new(i128::from(unscaled), scale).unwrap()
}

proptest! {
    #[test]
    fn results_equal_those_of_integers(left in small(), right in small()) {
        let (one, two) = (of(left), of(right));
        let at = |(unscaled, scale): (i64, u8)| i128::from(unscaled) * 10i128.pow(u32::from(12 - scale));
        prop_assert_eq!(one.checked_add(two).unwrap(), Decimal::new(at(left) + at(right), 12).unwrap());
        prop_assert_eq!(one.checked_sub(two).unwrap(), Decimal::new(at(left) - at(right), 12).unwrap());
        prop_assert_eq!(one.cmp(&two), at(left).cmp(&at(right)));
        let product = i128::from(left.0) * i128::from(right.0);
        prop_assert_eq!(one.checked_mul(two).unwrap(), Decimal::new(product, left.1 + right.1).unwrap());
    }

    #[test]
    fn quotient_is_too_small_by_less_than_its_last_digit((left, right) in (number(), number())) {
        match left.checked_div(right) {
            Err(DecimalError::DivisionByZero) => prop_assert_eq!(right.unscaled(), 0),
            Err(error) => prop_assert_eq!(error, DecimalError::Overflow),
            Ok(quotient) => {
                // |left| - |quotient * right| is at least 0 and less than |right| times the unit of
                // the last digit. Floating-point numbers are exact enough to detect a wrong digit
                // or scale.
                let error = left.to_f64() - quotient.to_f64() * right.to_f64();
                let unit = 10f64.powi(-i32::from(quotient.scale()));
                let slack = left.to_f64().abs() * 1e-14;
                prop_assert!(error.abs() <= right.to_f64().abs() * unit + slack, "{left} / {right} = {quotient}");
            }
        }
    }

    #[test]
    fn text_round_trips_and_order_follows_the_difference((left, right) in (number(), number())) {
        prop_assert_eq!(left.to_string().parse::<Decimal>().unwrap(), left);
        prop_assert_eq!(left.cmp(&right), right.cmp(&left).reverse());
        if let Ok(difference) = left.checked_sub(right) {
            // A difference may become 0 because its last digits are dropped.
            let sign = difference.unscaled().signum();
            let order = left.cmp(&right) as i128;
            prop_assert!(sign == order || sign == 0);
        }
        prop_assert_eq!(left.checked_mul(right), right.checked_mul(left));
        prop_assert_eq!(left.checked_add(right), right.checked_add(left));
    }

    #[test]
    fn rounding_returns_the_nearest_number(value in number(), scale in 0..=31u8) {
        let (rounded, truncated) = (value.round(scale), value.truncate(scale));
        prop_assert!(rounded.scale() <= scale.max(value.scale()) && truncated.scale() <= value.scale());
        let unit = 10f64.powi(-i32::from(scale));
        prop_assert!((rounded.to_f64() - value.to_f64()).abs() <= unit / 2.0 + value.to_f64().abs() * 1e-15);
        prop_assert!((truncated.to_f64() - value.to_f64()).abs() <= unit + value.to_f64().abs() * 1e-15);
        prop_assert!(truncated.unscaled().unsigned_abs() <= value.unscaled().unsigned_abs());
    }

    #[test]
    fn fixed_values_round_trip_through_cdr(digits in 0..10u128.pow(31), minus in any::<bool>()) {
        let digits = if minus { -digits.cast_signed() } else { digits.cast_signed() };
        let value = Fixed::<31, 7>::from_unscaled(digits).unwrap();
        for endian in [Endian::Big, Endian::Little] {
            let mut e = Encoder::new();
            e.set_endian(endian);
            value.encode(&mut e).unwrap();
            let octets = e.to_vec();
            prop_assert_eq!(octets.len(), Fixed::<31, 7>::MIN_SIZE);
            prop_assert_eq!(Fixed::decode(&mut Decoder::new(&octets, endian)), Ok(value));
        }
    }
}
