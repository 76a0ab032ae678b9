//! Times and fractions as text: `3ms`, `250us`, `0.95`.

use std::fmt;

use crate::task::{Nanos, Utilization};

const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

const MAX_DIGITS: usize = 9;

/// Error of a text that is not a time or a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// The text is not a number with one of the units ns, us, ms and s.
    NotATime,
    /// The text is not a decimal number without sign and exponent, with at most nine digits after
    /// the point.
    NotAFraction,
    /// The time is not a whole number of nanoseconds.
    TooPrecise,
    /// The number exceeds the range of 64 bits.
    OutOfRange,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotATime => "expected a time such as \"3ms\" or \"250us\", in ns, us, ms or s",
            Self::NotAFraction => "expected a number such as 0.95",
            Self::TooPrecise => "the time is not a whole number of nanoseconds",
            Self::OutOfRange => "the number is too large",
        })
    }
}

impl std::error::Error for QuantityError {}

/// Reads a time: a decimal number and a unit, `ns`, `us`, `ms` or `s`.
///
/// # Errors
/// [`QuantityError`] if the text is not a time, or not a whole number of nanoseconds of 64 bits.
///
/// # Examples
/// ```
/// use corelane_sched::quantity::{parse_time, format_time};
///
/// assert_eq!(parse_time("2.5ms"), Ok(2_500_000));
/// assert_eq!(format_time(2_500_000), "2500us");
/// ```
pub fn parse_time(text: &str) -> Result<Nanos, QuantityError> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = text.get(digits.len()..).unwrap_or_default();
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(QuantityError::NotATime)?;
    let billionths = billionths(digits.trim_end(), QuantityError::NotATime)?;
    let nanos = billionths.checked_mul((*scale).into()).ok_or(QuantityError::OutOfRange)?;
    let one = u128::from(Utilization::ONE.0);
    if nanos % one != 0 {
        return Err(QuantityError::TooPrecise);
    }
    u64::try_from(nanos / one).map_err(|_| QuantityError::OutOfRange)
}

/// Returns a time as text for [`parse_time`], in the largest unit that gives a whole number.
#[must_use]
pub fn format_time(time: Nanos) -> String {
    let fits = |(_, scale): &&(&str, u64)| time.is_multiple_of(*scale);
    let (unit, scale) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
    if time == 0 { "0ns".to_owned() } else { format!("{}{unit}", time / scale) }
}

/// Reads a fraction such as `0.95` or `1.6`.
///
/// # Errors
/// [`QuantityError`] if the text is not such a number.
pub fn parse_fraction(text: &str) -> Result<Utilization, QuantityError> {
    let billionths = billionths(text, QuantityError::NotAFraction)?;
    u64::try_from(billionths).map(Utilization).map_err(|_| QuantityError::OutOfRange)
}

fn billionths(text: &str, wrong: QuantityError) -> Result<u128, QuantityError> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_digits(whole) || !is_digits(part) || part.len() > MAX_DIGITS {
        return Err(wrong);
    }
    let number = format!("{whole}{part:0<MAX_DIGITS$}");
    number.parse().map_err(|_| QuantityError::OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("3ms"), Ok(3_000_000));
        assert_eq!(parse_time("250us"), Ok(250_000));
        assert_eq!(parse_time("1 s"), Ok(1_000_000_000));
        assert_eq!(parse_time("17ns"), Ok(17));
        assert_eq!(parse_time("0.5us"), Ok(500));
        assert_eq!(parse_time("0.0001us"), Err(QuantityError::TooPrecise));
        for wrong in ["", "3", "ms", "3 m", "-3ms", "+3ms", "3e2ms", "3.ms", ".5ms", "1.2.3ms", "3MS", "0x3ms", "٣ms"]
        {
            assert_eq!(parse_time(wrong), Err(QuantityError::NotATime), "{wrong}");
        }
        assert_eq!(parse_time("18446744073709551615ns"), Ok(u64::MAX));
        assert_eq!(parse_time("18446744073709551616ns"), Err(QuantityError::OutOfRange));
        assert_eq!(parse_time(&format!("{}s", "9".repeat(60))), Err(QuantityError::OutOfRange));
    }

    #[test]
    fn times_read_as_they_were_written() {
        for time in [0, 1, 999, 1_000, 2_500_000, 7_000_000, 3_600_000_000_000, u64::MAX] {
            assert_eq!(parse_time(&format_time(time)), Ok(time));
        }
        assert_eq!(format_time(7_000_000), "7ms");
    }

    #[test]
    fn fractions_are_exact() {
        assert_eq!(parse_fraction("1.6"), Ok(Utilization(1_600_000_000)));
        assert_eq!(parse_fraction("2"), Ok(Utilization(2_000_000_000)));
        assert_eq!(parse_fraction("0.000000001"), Ok(Utilization(1)));
        for wrong in ["", ".", "1.", ".5", "-1", "1e3", "nan", "0.0000000001"] {
            assert_eq!(parse_fraction(wrong), Err(QuantityError::NotAFraction), "{wrong}");
        }
        assert_eq!(parse_fraction("99999999999999999999"), Err(QuantityError::OutOfRange));
    }
}
