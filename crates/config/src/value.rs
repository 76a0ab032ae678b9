//! Values of settings, and their conversion: units, choices, lists and numbers in ranges.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use corelane::SpinPolicy;

/// Maximum duration in seconds: about three years.
const MAX_SECONDS: u64 = 100_000_000;
const MAX_SHOWN: usize = 60;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RawValue {
    Boolean(bool),
    Integer(i64),
    Text(String),
    List(Vec<RawValue>),
    /// A value of the environment or of an argument, which has no type.
    Words(String),
}

impl fmt::Display for RawValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RawValue::Boolean(value) => value.fmt(f),
            RawValue::Integer(value) => value.fmt(f),
            RawValue::Text(text) | RawValue::Words(text) => f.write_str(text),
            RawValue::List(values) => {
                for (index, value) in values.iter().enumerate() {
                    let separator = if index == 0 { "" } else { " " };
                    write!(f, "{separator}{value}")?;
                }
                Ok(())
            }
        }
    }
}

/// A converted value. The error is a message that follows the name of the setting.
pub(crate) type Converted<T> = Result<T, String>;

/// Returns the start of an untrusted text for a message, without control characters.
pub(crate) fn excerpt(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_SHOWN).flat_map(printable).collect();
    if text.chars().nth(MAX_SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}

fn printable(character: char) -> impl Iterator<Item = char> {
    let escaped: Vec<char> =
        if character.is_control() { character.escape_default().collect() } else { vec![character] };
    escaped.into_iter()
}

fn shown(value: &RawValue) -> String {
    match value {
        RawValue::List(_) => "a list".to_owned(),
        value => format!("`{}`", excerpt(&value.to_string())),
    }
}

pub(crate) fn boolean(value: &RawValue) -> Converted<bool> {
    match value {
        RawValue::Boolean(value) => Ok(*value),
        RawValue::Words(word) if word == "true" => Ok(true),
        RawValue::Words(word) if word == "false" => Ok(false),
        other => Err(format!("is true or false, not {}", shown(other))),
    }
}

pub(crate) fn integer<T: TryFrom<i64>>(value: &RawValue, range: RangeInclusive<i64>) -> Converted<T> {
    let number = match value {
        RawValue::Integer(number) => Some(*number),
        RawValue::Words(word) => word.parse().ok(),
        _ => None,
    };
    let converted = number.filter(|number| range.contains(number)).and_then(|number| T::try_from(number).ok());
    converted.ok_or_else(|| format!("is a number from {} to {}, not {}", range.start(), range.end(), shown(value)))
}

pub(crate) fn text(value: &RawValue) -> Converted<&str> {
    match value {
        RawValue::Text(text) | RawValue::Words(text) => Ok(text),
        other => Err(format!("is a text, not {}", shown(other))),
    }
}

/// Returns the elements of a list. Each word of a text in the environment or an argument is an
/// element. Any other single value is a list of one element.
pub(crate) fn elements(value: &RawValue) -> Vec<RawValue> {
    match value {
        RawValue::List(values) => values.clone(),
        RawValue::Words(words) => words.split_whitespace().map(|word| RawValue::Words(word.to_owned())).collect(),
        single => vec![single.clone()],
    }
}

pub(crate) fn list<T>(value: &RawValue, convert: impl Fn(&RawValue) -> Converted<T>) -> Converted<Vec<T>> {
    elements(value).iter().map(convert).collect()
}

pub(crate) fn optional<T>(value: &RawValue, convert: impl Fn(&RawValue) -> Converted<T>) -> Converted<Option<T>> {
    match value {
        RawValue::Text(text) | RawValue::Words(text) if text == "none" => Ok(None),
        value => convert(value).map(Some),
    }
}

pub(crate) fn choice<T: Copy>(value: &RawValue, names: &[(&str, T)]) -> Converted<T> {
    let known = || names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let found = match value {
        RawValue::Text(text) | RawValue::Words(text) => names.iter().find(|(name, _)| name == text),
        _ => None,
    };
    found.map(|(_, value)| *value).ok_or_else(|| format!("is one of {}, not {}", known(), shown(value)))
}

/// Splits a number with its unit, such as `1.5ms`, into the whole number, the digits of the
/// fraction, and the unit. Returns `None` if the text does not begin with a number.
fn with_unit(text: &str) -> Option<(u64, &str, &str)> {
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_valid = !fraction.contains('.') && fraction.is_empty() != number.contains('.');
    Some((whole.parse().ok()?, fraction, unit.trim_start())).filter(|_| is_valid)
}

/// Returns the number `whole.fraction` times `unit`; `None` if the product is too large or not a
/// whole number.
fn times(whole: u64, fraction: &str, unit: u64) -> Option<u64> {
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let all = u128::from(whole).checked_mul(scale)?.checked_add(digits)?.checked_mul(unit.into())?;
    if all.is_multiple_of(scale) { u64::try_from(all / scale).ok() } else { None }
}

pub(crate) fn duration(value: &RawValue) -> Converted<Duration> {
    const UNITS: &[(&str, u64)] = &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
        ("d", 86_400_000_000_000),
    ];
    let refusal =
        || format!("is a duration with its unit (ns, us, ms, s, min, h, d), such as \"3ms\", not {}", shown(value));
    let (RawValue::Text(written) | RawValue::Words(written)) = value else { return Err(refusal()) };
    let (whole, fraction, unit) = with_unit(written).ok_or_else(refusal)?;
    let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refusal)?;
    let nanoseconds = times(whole, fraction, *unit).filter(|total| *total <= MAX_SECONDS * 1_000_000_000);
    nanoseconds
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("is a whole number of nanoseconds, and at most {MAX_SECONDS}s, not {}", shown(value)))
}

pub(crate) fn positive_duration(value: &RawValue) -> Converted<Duration> {
    match duration(value)? {
        Duration::ZERO => Err("is more than zero".to_owned()),
        duration => Ok(duration),
    }
}

pub(crate) fn size<T: TryFrom<u64>>(value: &RawValue) -> Converted<T> {
    const UNITS: &[(&str, u64)] = &[
        ("", 1),
        ("B", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ];
    let refusal =
        || format!("is a size in octets (B, KiB, MiB, GiB, kB, MB, GB), such as \"16MiB\", not {}", shown(value));
    let octets = match value {
        RawValue::Integer(number) => u64::try_from(*number).ok(),
        RawValue::Text(written) | RawValue::Words(written) => {
            let (whole, fraction, unit) = with_unit(written).ok_or_else(refusal)?;
            let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refusal)?;
            times(whole, fraction, *unit)
        }
        RawValue::Boolean(_) | RawValue::List(_) => None,
    };
    let octets = octets.ok_or_else(refusal)?;
    T::try_from(octets).map_err(|_| format!("is too large: {}", shown(value)))
}

pub(crate) fn size_in<T: TryFrom<u64>>(value: &RawValue, range: RangeInclusive<u64>) -> Converted<T> {
    let octets: u64 = size(value)?;
    let converted = T::try_from(octets).ok().filter(|_| range.contains(&octets));
    converted.ok_or_else(|| format!("is a size from {} to {} octets, not {}", range.start(), range.end(), shown(value)))
}

pub(crate) fn spin_policy(value: &RawValue) -> Converted<SpinPolicy> {
    let refusal =
        || format!("is \"never\", \"adaptive 50us\" or \"always 50us\" with a time of your own, not {}", shown(value));
    let (RawValue::Text(written) | RawValue::Words(written)) = value else { return Err(refusal()) };
    let words: Vec<&str> = written.split_whitespace().collect();
    let time = |word: &str| positive_duration(&RawValue::Text(word.to_owned())).map_err(|_| refusal());
    match words.as_slice() {
        ["never"] => Ok(SpinPolicy::Never),
        ["adaptive", max_spin] => Ok(SpinPolicy::Adaptive { max_spin: time(max_spin)? }),
        ["always", max_spin] => Ok(SpinPolicy::Always { max_spin: time(max_spin)? }),
        _ => Err(refusal()),
    }
}

pub(crate) fn range(value: &RawValue, within: RangeInclusive<i64>) -> Converted<(i64, i64)> {
    let refusal = || format!("is a range such as \"{}..{}\", not {}", within.start(), within.end(), shown(value));
    let (RawValue::Text(written) | RawValue::Words(written)) = value else { return Err(refusal()) };
    let ends = written.split_once("..").and_then(|(first, last)| {
        let ends: (i64, i64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(ends).filter(|(first, last)| first <= last && within.contains(first) && within.contains(last))
    });
    ends.ok_or_else(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> RawValue {
        RawValue::Text(text.to_owned())
    }

    #[test]
    fn durations_and_sizes_have_units() {
        for (written, expected) in [
            ("3ms", Duration::from_millis(3)),
            ("1.5s", Duration::from_millis(1500)),
            ("0.25us", Duration::from_nanos(250)),
            ("2 min", Duration::from_secs(120)),
            ("1d", Duration::from_secs(86_400)),
            ("0s", Duration::ZERO),
        ] {
            assert_eq!(duration(&text(written)), Ok(expected), "{written}");
        }
        for written in
            ["3", "ms", "1.s", "1.2.3s", "-1s", "1 parsec", "", "99999999999999999999s", "100000001s", "0.1ns"]
        {
            assert!(duration(&text(written)).is_err(), "{written}");
        }
        assert!(duration(&RawValue::Integer(3)).unwrap_err().contains("with its unit"));
        for (written, expected) in [("16MiB", 16 << 20), ("1.5KiB", 1536), ("2kB", 2000), ("512", 512), ("7 B", 7)] {
            assert_eq!(size::<u64>(&text(written)), Ok(expected), "{written}");
        }
        assert_eq!(size::<u32>(&RawValue::Integer(9)), Ok(9));
        for written in ["-1", "1XiB", "1.3B", "99999999999GiB", "1mib"] {
            assert!(size::<u64>(&text(written)).is_err(), "{written}");
        }
        assert!(size::<u32>(&text("4GiB")).unwrap_err().starts_with("is too large"));
    }

    #[test]
    fn words_have_no_type_and_texts_have_one() {
        assert_eq!(integer::<u8>(&RawValue::Words("7".into()), 0..=9), Ok(7));
        assert!(integer::<u8>(&text("7"), 0..=9).is_err());
        assert!(integer::<u8>(&RawValue::Integer(10), 0..=9).is_err());
        assert_eq!(boolean(&RawValue::Words("true".into())), Ok(true));
        assert!(boolean(&text("true")).is_err());
        let both = RawValue::Words(" a  b ".into());
        assert_eq!(list(&both, |one| Ok(one.to_string())), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(list(&text("a b"), |one| Ok(one.to_string())), Ok(vec!["a b".to_owned()]));
        assert_eq!(spin_policy(&text("adaptive 50us")), Ok(SpinPolicy::DEFAULT));
        assert!(spin_policy(&text("adaptive")).is_err() && spin_policy(&text("always 0s")).is_err());
        assert_eq!(range(&text("1..99"), 1..=99), Ok((1, 99)));
        assert!(range(&text("9..1"), 1..=99).is_err() && range(&text("0..9"), 1..=99).is_err());
    }

    #[test]
    fn messages_are_short_and_printable() {
        let long = RawValue::Text("\u{1b}".repeat(10_000));
        let message = boolean(&long).unwrap_err();
        assert!(message.len() < 1000 && !message.contains('\u{1b}'), "{message}");
        let list = RawValue::List(vec![long; 10]);
        assert_eq!(boolean(&list).unwrap_err(), "is true or false, not a list");
    }
}
