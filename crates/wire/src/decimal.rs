//! Fixed-point decimal numbers: the values of IDL's `fixed<d,s>` (CORBA 3.0.3 sections 3.10.2 and
//! 15.3.2.8).
//!
//! A [`Fixed`] is a value of one IDL type. Arithmetic is defined on [`Decimal`]s, because the scale
//! of a result depends on the operands.
//!
//! Results have at most 31 digits. Excess fraction digits are dropped from the end, as the
//! specification says.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::cdr::{Cdr, CdrError, Decoder, Encoder};

/// Maximum number of digits of a fixed-point number.
pub const MAX_DIGITS: u8 = 31;

const LIMIT: u128 = 10u128.pow(MAX_DIGITS as u32);

/// The reason why an operation on decimal numbers has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecimalError {
    /// The number is infinite, or has too many digits for the type.
    Overflow,
    /// The divisor is 0.
    DivisionByZero,
    /// The text is not a decimal number.
    NotANumber,
}

impl fmt::Display for DecimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DecimalError::Overflow => "the number has too many digits in front of the point",
            DecimalError::DivisionByZero => "division by zero",
            DecimalError::NotANumber => "the text is not a decimal number",
        })
    }
}

impl std::error::Error for DecimalError {}

/// A decimal number of up to 31 digits, any number of which can be after the point.
///
/// # Examples
/// ```
/// use corelane_wire::Decimal;
/// let (one, three): (Decimal, Decimal) = ("1".parse()?, "3".parse()?);
/// let third = one.checked_div(three)?;
/// assert_eq!(third.to_string(), "0.3333333333333333333333333333333");
/// assert_eq!(third.round(2).to_string(), "0.33");
/// # Ok::<(), corelane_wire::DecimalError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Decimal {
    unscaled: i128,
    scale: u8,
}

impl Decimal {
    /// Returns the number `unscaled / 10^scale`.
    ///
    /// # Errors
    /// [`DecimalError::Overflow`] for more than 31 digits or a scale above 31.
    pub const fn new(unscaled: i128, scale: u8) -> Result<Decimal, DecimalError> {
        if unscaled.unsigned_abs() >= LIMIT || scale > MAX_DIGITS {
            return Err(DecimalError::Overflow);
        }
        Ok(Decimal { unscaled, scale })
    }

    /// Returns the value times ten to the power of the [scale](Decimal::scale).
    #[must_use]
    pub const fn unscaled(self) -> i128 {
        self.unscaled
    }

    /// Returns the number of fraction digits.
    #[must_use]
    pub const fn scale(self) -> u8 {
        self.scale
    }

    /// Returns the sum.
    ///
    /// # Errors
    /// [`DecimalError::Overflow`].
    pub fn checked_add(self, other: Decimal) -> Result<Decimal, DecimalError> {
        let scale = self.scale.max(other.scale);
        let (left, right) = (WideInteger::of(self.unscaled).raised(scale - self.scale), other);
        let right = WideInteger::of(right.unscaled).raised(scale - right.scale);
        let negative = |number: Decimal| number.unscaled < 0;
        let (sum, minus) = match (negative(self), negative(other)) {
            (left_minus, right_minus) if left_minus == right_minus => (left.plus(right), left_minus),
            (left_minus, right_minus) => match left.cmp(&right) {
                Ordering::Less => (right.minus(left), right_minus),
                _ => (left.minus(right), left_minus),
            },
        };
        sum.decimal(minus, u32::from(scale))
    }

    /// Returns the difference.
    ///
    /// # Errors
    /// [`DecimalError::Overflow`].
    pub fn checked_sub(self, other: Decimal) -> Result<Decimal, DecimalError> {
        self.checked_add(-other)
    }

    /// Returns the product.
    ///
    /// # Errors
    /// [`DecimalError::Overflow`].
    pub fn checked_mul(self, other: Decimal) -> Result<Decimal, DecimalError> {
        let product = WideInteger::product(self.unscaled.unsigned_abs(), other.unscaled.unsigned_abs());
        let minus = (self.unscaled < 0) != (other.unscaled < 0);
        product.decimal(minus, u32::from(self.scale) + u32::from(other.scale))
    }

    /// Returns the quotient. Fraction digits beyond 31 digits in total, or after the 31st fraction
    /// digit, are dropped.
    ///
    /// # Errors
    /// [`DecimalError::DivisionByZero`], [`DecimalError::Overflow`].
    pub fn checked_div(self, other: Decimal) -> Result<Decimal, DecimalError> {
        let divisor = other.unscaled.unsigned_abs();
        if divisor == 0 {
            return Err(DecimalError::DivisionByZero);
        }
        let dividend = self.unscaled.unsigned_abs();
        let (mut digits, mut rest) = (dividend / divisor, dividend % divisor);
        let (mut scale, taken) = (u32::from(self.scale), u32::from(other.scale));
        // While the scale is below the divisor's scale, the whole part is not complete.
        while scale < taken || (rest != 0 && digits < LIMIT / 10 && scale - taken < u32::from(MAX_DIGITS)) {
            if digits >= LIMIT / 10 {
                return Err(DecimalError::Overflow);
            }
            rest *= 10;
            digits = digits * 10 + rest / divisor;
            rest %= divisor;
            scale += 1;
        }
        let minus = (self.unscaled < 0) != (other.unscaled < 0);
        WideInteger::of_magnitude(digits).decimal(minus, scale - taken)
    }

    /// Returns the number with at most `scale` fraction digits; further digits are dropped.
    #[must_use]
    pub const fn truncate(self, scale: u8) -> Decimal {
        if scale >= self.scale {
            return self;
        }
        Decimal { unscaled: self.unscaled / 10i128.pow((self.scale - scale) as u32), scale }
    }

    /// Returns the nearest number with at most `scale` fraction digits; halves are rounded away
    /// from zero.
    #[must_use]
    pub const fn round(self, scale: u8) -> Decimal {
        if scale >= self.scale {
            return self;
        }
        let unit = 10i128.pow((self.scale - scale) as u32);
        let half = if self.unscaled < 0 { -unit / 2 } else { unit / 2 };
        Decimal { unscaled: (self.unscaled + half) / unit, scale }
    }

    /// Returns the nearest floating-point number.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    fn canonical(self) -> (i128, u8) {
        let (mut unscaled, mut scale) = (self.unscaled, self.scale);
        while scale > 0 && unscaled % 10 == 0 {
            (unscaled, scale) = (unscaled / 10, scale - 1);
        }
        (unscaled, scale)
    }
}

impl std::ops::Neg for Decimal {
    type Output = Decimal;

    fn neg(self) -> Decimal {
        Decimal { unscaled: -self.unscaled, ..self }
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Decimal) -> bool {
        self.canonical() == other.canonical()
    }
}

impl Eq for Decimal {}

impl std::hash::Hash for Decimal {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.canonical().hash(state);
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Decimal) -> Ordering {
        let scale = self.scale.max(other.scale);
        let size = |number: &Decimal| WideInteger::of(number.unscaled).raised(scale - number.scale);
        match (self.unscaled < 0, other.unscaled < 0) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => size(self).cmp(&size(other)),
            (true, true) => size(other).cmp(&size(self)),
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Decimal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Decimal {
        Decimal { unscaled: i128::from(value), scale: 0 }
    }
}

impl From<u64> for Decimal {
    fn from(value: u64) -> Decimal {
        Decimal { unscaled: i128::from(value), scale: 0 }
    }
}

/// Converts through the shortest decimal text that identifies the floating-point number. Excess
/// fraction digits are dropped.
impl TryFrom<f64> for Decimal {
    type Error = DecimalError;

    fn try_from(value: f64) -> Result<Decimal, DecimalError> {
        if value.is_infinite() { Err(DecimalError::Overflow) } else { value.to_string().parse() }
    }
}

impl FromStr for Decimal {
    type Err = DecimalError;

    /// Parses `-12.50`, with or without the `d` of IDL's literals. Fraction digits beyond 31 digits
    /// in total, or after the 31st fraction digit, are dropped.
    fn from_str(text: &str) -> Result<Decimal, DecimalError> {
        let text = text.strip_suffix(['d', 'D']).unwrap_or(text);
        let (minus, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all = || whole.bytes().chain(fraction.bytes());
        if whole.len() + fraction.len() == 0 || !all().all(|digit| digit.is_ascii_digit()) {
            return Err(DecimalError::NotANumber);
        }
        let (mut unscaled, mut scale) = (0u128, 0u8);
        for (at, digit) in all().enumerate() {
            let behind = at >= whole.len();
            if unscaled >= LIMIT / 10 || scale == MAX_DIGITS {
                if behind {
                    break;
                }
                return Err(DecimalError::Overflow);
            }
            unscaled = unscaled * 10 + u128::from(digit - b'0');
            scale += u8::from(behind);
        }
        let unscaled = unscaled.cast_signed();
        Ok(Decimal { unscaled: if minus { -unscaled } else { unscaled }, scale })
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = 10u128.pow(u32::from(self.scale));
        let (whole, fraction) = (self.unscaled.unsigned_abs() / unit, self.unscaled.unsigned_abs() % unit);
        let text = match self.scale {
            0 => whole.to_string(),
            scale => format!("{whole}.{fraction:0width$}", width = usize::from(scale)),
        };
        f.pad_integral(self.unscaled >= 0, "", &text)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WideInteger {
    high: u128,
    low: u128,
}

impl WideInteger {
    const UNIT: u128 = 10u128.pow(38);
    const PART: u128 = 10u128.pow(19);

    fn of(number: i128) -> WideInteger {
        WideInteger::of_magnitude(number.unsigned_abs())
    }

    fn of_magnitude(number: u128) -> WideInteger {
        WideInteger { high: number / Self::UNIT, low: number % Self::UNIT }
    }

    fn product(left: u128, right: u128) -> WideInteger {
        let (left_high, left_low) = (left / Self::PART, left % Self::PART);
        let (right_high, right_low) = (right / Self::PART, right % Self::PART);
        let middle = left_high * right_low + left_low * right_high;
        // Neither factor has more than 31 digits, so `middle` has at most 32 and nothing overflows.
        let low = WideInteger::of_magnitude(left_low * right_low)
            .plus(WideInteger { high: middle / Self::PART, low: middle % Self::PART * Self::PART });
        low.plus(WideInteger { high: left_high * right_high, low: 0 })
    }

    fn plus(self, other: WideInteger) -> WideInteger {
        let low = self.low + other.low;
        WideInteger { high: self.high + other.high + low / Self::UNIT, low: low % Self::UNIT }
    }

    fn minus(self, other: WideInteger) -> WideInteger {
        let borrow = u128::from(self.low < other.low);
        WideInteger { high: self.high - other.high - borrow, low: self.low + borrow * Self::UNIT - other.low }
    }

    fn raised(self, power: u8) -> WideInteger {
        let mut number = self;
        for _ in 0..power {
            let (carried, kept) = (number.low / (Self::UNIT / 10), number.low % (Self::UNIT / 10));
            number = WideInteger { high: number.high * 10 + carried, low: kept * 10 };
        }
        number
    }

    fn tenth(self) -> WideInteger {
        let low = (self.high % 10 * (Self::UNIT / 10)) + self.low / 10;
        WideInteger { high: self.high / 10, low }
    }

    fn decimal(self, minus: bool, scale: u32) -> Result<Decimal, DecimalError> {
        let (mut number, mut scale) = (self, scale);
        while number.high != 0 || number.low >= LIMIT || scale > u32::from(MAX_DIGITS) {
            scale = scale.checked_sub(1).ok_or(DecimalError::Overflow)?;
            number = number.tenth();
        }
        let unscaled = number.low.cast_signed();
        let scale = u8::try_from(scale).map_err(|_| DecimalError::Overflow)?;
        Ok(Decimal { unscaled: if minus { -unscaled } else { unscaled }, scale })
    }
}

/// A value of the IDL type `fixed<D,S>`: `D` digits, `S` of them after the point.
///
/// # Examples
/// ```
/// use corelane_wire::{Decimal, Fixed};
/// let price: Fixed<9, 2> = "19.99".parse()?;
/// let rate: Fixed<4, 3> = "0.075".parse()?;
/// let tax = price.decimal().checked_mul(rate.decimal())?;
/// assert_eq!(tax.to_string(), "1.49925");
/// assert_eq!(Fixed::<9, 2>::truncate(tax)?.to_string(), "1.49");
/// assert_eq!(Fixed::<9, 2>::round(tax)?.to_string(), "1.50");
/// # Ok::<(), corelane_wire::DecimalError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fixed<const D: u8, const S: u8> {
    unscaled: i128,
}

impl<const D: u8, const S: u8> Fixed<D, S> {
    /// The number of digits.
    pub const DIGITS: u8 = D;
    /// The number of fraction digits.
    pub const SCALE: u8 = S;

    const END: u128 = {
        assert!(
            D >= 1 && D <= MAX_DIGITS && S <= D,
            "a fixed-point type has 1 to 31 digits, of which S are behind the point"
        );
        10u128.pow(D as u32)
    };

    /// Returns the number `unscaled / 10^S`.
    ///
    /// # Errors
    /// [`DecimalError::Overflow`] for more than `D` digits.
    pub const fn from_unscaled(unscaled: i128) -> Result<Self, DecimalError> {
        if unscaled.unsigned_abs() >= Self::END { Err(DecimalError::Overflow) } else { Ok(Fixed { unscaled }) }
    }

    /// Returns the number `unscaled / 10^S`.
    ///
    /// # Panics
    /// If the number has more than `D` digits.
    #[doc(hidden)]
    #[must_use]
    pub const fn constant(unscaled: i128) -> Self {
        assert!(unscaled.unsigned_abs() < Self::END, "the constant has too many digits");
        Fixed { unscaled }
    }

    /// Returns the value times ten to the power of `S`.
    #[must_use]
    pub const fn unscaled(self) -> i128 {
        self.unscaled
    }

    /// Returns the value as a [`Decimal`], for arithmetic.
    #[must_use]
    pub const fn decimal(self) -> Decimal {
        Decimal { unscaled: self.unscaled, scale: S }
    }

    /// Returns the number without the fraction digits that exceed the type's scale.
    ///
    /// # Errors
    /// [`DecimalError::Overflow`] if the whole part does not fit.
    pub fn truncate(number: Decimal) -> Result<Self, DecimalError> {
        let number = number.truncate(S);
        let raised = WideInteger::of(number.unscaled).raised(S - number.scale);
        if raised.high != 0 {
            return Err(DecimalError::Overflow);
        }
        let unscaled = raised.low.cast_signed();
        Self::from_unscaled(if number.unscaled < 0 { -unscaled } else { unscaled })
    }

    /// Returns the nearest number of the type; halves are rounded away from zero.
    ///
    /// # Errors
    /// [`DecimalError::Overflow`] if the whole part does not fit.
    pub fn round(number: Decimal) -> Result<Self, DecimalError> {
        Self::truncate(number.round(S))
    }
}

impl<const D: u8, const S: u8> From<Fixed<D, S>> for Decimal {
    fn from(number: Fixed<D, S>) -> Decimal {
        number.decimal()
    }
}

impl<const D: u8, const S: u8> FromStr for Fixed<D, S> {
    type Err = DecimalError;

    /// Parses `-12.50`; fraction digits that exceed the type's scale are dropped.
    fn from_str(text: &str) -> Result<Self, DecimalError> {
        Self::truncate(text.parse()?)
    }
}

impl<const D: u8, const S: u8> fmt::Display for Fixed<D, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.decimal().fmt(f)
    }
}

impl<const D: u8, const S: u8> Cdr for Fixed<D, S> {
    const MIN_SIZE: usize = D as usize / 2 + 1;

    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        e.write_fixed(u16::from(D), self.unscaled)
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
        Self::from_unscaled(d.read_fixed(u16::from(D))?).map_err(|_| CdrError::MalformedFixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    #[test]
    fn numbers_convert_from_and_to_text() {
        for text in [
            "0",
            "-1",
            "12.50",
            "0.001",
            "-0.5",
            "9999999999999999999999999999999",
            "0.1234567890123456789012345678901",
        ] {
            assert_eq!(number(text).to_string(), text);
        }
        assert_eq!(number("+.5D").to_string(), "0.5");
        assert_eq!(number("1.23456789012345678901234567890123").to_string(), "1.234567890123456789012345678901");
        assert_eq!(format!("{:>8}|{:<8}", number("-1.5"), number("1.50")), "    -1.5|1.50    ");
        for wrong in ["", ".", "-", "1e3", "1.2.3", "0x1", "--1", "1d2", "٣"] {
            assert_eq!(wrong.parse::<Decimal>(), Err(DecimalError::NotANumber), "{wrong}");
        }
        assert_eq!("10000000000000000000000000000000".parse::<Decimal>(), Err(DecimalError::Overflow));
    }

    #[test]
    fn results_with_too_many_digits_lose_fraction_digits_or_overflow() {
        let most = number("9999999999999999999999999999999");
        assert_eq!(most.checked_add(number("1")), Err(DecimalError::Overflow));
        assert_eq!(most.checked_mul(most), Err(DecimalError::Overflow));
        assert_eq!(most.checked_sub(number("0.9")).unwrap().to_string(), "9999999999999999999999999999998");
        let close = number("9.999999999999999999999999999999");
        assert_eq!(close.checked_mul(close).unwrap().to_string(), "99.99999999999999999999999999998");
        assert_eq!(close.checked_add(number("0.000000000000000000000000000001")).unwrap(), number("10"));
        assert_eq!(number("2").checked_div(number("3")).unwrap().to_string(), "0.6666666666666666666666666666666");
        assert_eq!(number("-20").checked_div(number("3")).unwrap().to_string(), "-6.666666666666666666666666666666");
        assert_eq!(number("1").checked_div(number("0.0004")).unwrap().to_string(), "2500");
        assert_eq!(number("1").checked_div(number("0.000")), Err(DecimalError::DivisionByZero));
        assert_eq!(most.checked_div(number("0.1")), Err(DecimalError::Overflow));
        assert_eq!(number("0").checked_div(most).unwrap(), number("0"));
        let least = number("0.0000000000000000000000000000001");
        assert_eq!(least.checked_mul(least).unwrap(), number("0"));
        assert_eq!(least.checked_div(number("10")).unwrap(), number("0"));
    }

    #[test]
    fn fixed_rounds_to_the_nearest_and_truncates_toward_zero() {
        for (text, scale, truncated, rounded) in [
            ("1.25", 1, "1.2", "1.3"),
            ("-1.25", 1, "-1.2", "-1.3"),
            ("1.249", 1, "1.2", "1.2"),
            ("0.5", 0, "0", "1"),
            ("-0.4", 0, "0", "0"),
            ("7", 3, "7", "7"),
        ] {
            assert_eq!(number(text).truncate(scale).to_string(), truncated);
            assert_eq!(number(text).round(scale).to_string(), rounded);
        }
        assert_eq!(Fixed::<3, 2>::round(number("9.995")), Err(DecimalError::Overflow));
        assert_eq!(Fixed::<3, 2>::truncate(number("9.999")).unwrap().unscaled(), 999);
        assert_eq!(Fixed::<31, 31>::truncate(number("1")), Err(DecimalError::Overflow));
        assert_eq!(Fixed::<31, 0>::truncate(number("9999999999999999999999999999999")).unwrap().decimal().scale(), 0);
    }

    #[test]
    fn decimals_convert_from_and_to_floating_point() {
        for (from, text) in [(0.1, "0.1"), (-1234.5, "-1234.5"), (1e21, "1000000000000000000000"), (-0.0, "0")] {
            assert_eq!(Decimal::try_from(from).unwrap(), number(text));
            assert!((number(text).to_f64() - from).abs() < f64::EPSILON);
        }
        assert_eq!(Decimal::try_from(1.0 / 3.0).unwrap().to_string(), "0.3333333333333333");
        assert_eq!(Decimal::try_from(5e-324).unwrap(), number("0"));
        assert_eq!(Decimal::try_from(1.25e-30).unwrap().to_string(), "0.0000000000000000000000000000012");
        assert_eq!(Decimal::try_from(1e31), Err(DecimalError::Overflow));
        assert_eq!(Decimal::try_from(f64::NEG_INFINITY), Err(DecimalError::Overflow));
        assert_eq!(Decimal::try_from(f64::NAN), Err(DecimalError::NotANumber));
    }

    #[test]
    fn numbers_of_different_scale_compare_by_value() {
        assert_eq!(number("1.50"), number("1.5"));
        assert_eq!(number("-0"), number("0.000"));
        assert!(number("-1.51") < number("-1.5") && number("1.49") < number("1.5"));
        assert!(number("9999999999999999999999999999999") > number("0.0000000000000000000000000000001"));
        assert!(number("-1") < number("0.1"));
        assert!((number("0.1").to_f64() - 0.1).abs() < f64::EPSILON);
    }
}
