//! The values of literals.

use crate::ast::ExpressionKind;
use crate::binary128::Binary128;

pub(super) fn number(text: &str) -> Result<ExpressionKind, String> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return integer(text, digits, 16);
    }
    if let Some(fixed) = text.strip_suffix(['d', 'D']) {
        return fixed_point(text, fixed);
    }
    if text.contains(['.', 'e', 'E']) {
        let plain = text.strip_suffix(['f', 'F', 'l', 'L']);
        if plain.is_some_and(|plain| plain.parse::<f64>().is_ok()) {
            return Err(format!("`{}` is not a number of IDL; numbers have no suffix", shown(text)));
        }
        let valid = text.bytes().all(|octet| octet.is_ascii_digit() || b".eE+-".contains(&octet));
        let double = text.parse::<f64>().ok().filter(|_| valid);
        let both = double.and_then(|double| Some(ExpressionKind::Float(double, Binary128::of_literal(text)?)));
        return both
            .ok_or_else(|| format!("`{}` is not a floating-point number that a long double holds", shown(text)));
    }
    if text.len() > 1 && text.starts_with('0') {
        if let Some(wrong) = text.chars().find(|digit| matches!(digit, '8' | '9')) {
            return Err(format!("`{wrong}` is not an octal digit; a number that begins with 0 is octal"));
        }
        return integer(text, &text[1..], 8);
    }
    integer(text, text, 10)
}

fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(100)]
}

fn integer(text: &str, digits: &str, radix: u32) -> Result<ExpressionKind, String> {
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(format!("`{}` is not a number of IDL; numbers have no suffix", shown(text)));
    }
    let value = u64::from_str_radix(digits, radix);
    value.map(ExpressionKind::Integer).map_err(|_| format!("`{}` does not fit `unsigned long long`", shown(text)))
}

fn fixed_point(text: &str, digits: &str) -> Result<ExpressionKind, String> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{}{fraction}", whole.trim_start_matches('0'));
    if !digits.bytes().all(|octet| octet.is_ascii_digit()) || whole.len() + fraction.len() == 0 {
        return Err(format!("`{}` is not a fixed-point number", shown(text)));
    }
    if digits.len() > 31 {
        return Err(format!("`{}` has more than 31 digits", shown(text)));
    }
    let value = if digits.is_empty() { Ok(0) } else { digits.parse() };
    let scale = u32::try_from(fraction.len()).unwrap_or(0);
    value
        .map(|value| ExpressionKind::Fixed(value, scale))
        .map_err(|_| format!("`{}` is not a fixed-point number", shown(text)))
}

pub(crate) struct LiteralError {
    pub(crate) at: std::ops::Range<usize>,
    pub(crate) message: String,
}

pub(super) fn is_closed(text: &str) -> bool {
    let literal = text.strip_prefix('L').unwrap_or(text);
    let mut rest = literal.char_indices().skip(1);
    while let Some((at, letter)) = rest.next() {
        match letter {
            '\\' => drop(rest.next()),
            '"' | '\'' if literal.starts_with(letter) => return at + 1 == literal.len(),
            _ => {}
        }
    }
    false
}

/// Returns the characters of a literal, and true if it is wide. `text` has the quotes and the
/// optional `L`.
pub(crate) fn characters(text: &str) -> Result<(Vec<char>, bool), LiteralError> {
    let wide = text.starts_with('L');
    let start = usize::from(wide) + 1;
    let closed = text.len() > start && text.ends_with(['"', '\'']);
    let end = if closed { text.len() - 1 } else { text.len() };
    let mut characters = Vec::with_capacity(end.saturating_sub(start));
    let mut at = start;
    while let Some(character) = text.get(at..end).and_then(|rest| rest.chars().next()) {
        if character == '\\' {
            let (value, length) = escape(&text[at..end], wide).map_err(|message| {
                let length = 1 + text[at + 1..end].chars().next().map_or(0, char::len_utf8);
                LiteralError { at: at..at + length, message: message.to_owned() }
            })?;
            characters.push(value);
            at += length;
        } else {
            characters.push(character);
            at += character.len_utf8();
        }
    }
    Ok((characters, wide))
}

fn escape(text: &str, wide: bool) -> Result<(char, usize), &'static str> {
    let digits = |from: usize, most: usize, radix: u32| {
        let digits = text[from..].chars().take(most).take_while(|digit| digit.is_digit(radix)).count();
        let value = u32::from_str_radix(&text[from..from + digits], radix).ok();
        value.and_then(char::from_u32).map(|value| (value, from + digits))
    };
    let simple = match text.as_bytes().get(1) {
        Some(b'n') => '\n',
        Some(b't') => '\t',
        Some(b'v') => '\u{b}',
        Some(b'b') => '\u{8}',
        Some(b'r') => '\r',
        Some(b'f') => '\u{c}',
        Some(b'a') => '\u{7}',
        Some(quote @ (b'\\' | b'?' | b'\'' | b'"')) => char::from(*quote),
        Some(b'0'..=b'7') => {
            let (value, length) = digits(1, 3, 8).ok_or("the escape is not a character")?;
            return if u32::from(value) > 255 { Err("the escape does not fit one octet") } else { Ok((value, length)) };
        }
        Some(b'x') => return digits(2, 2, 16).ok_or("`\\x` needs hexadecimal digits"),
        Some(b'u') if wide => {
            let value = digits(2, 4, 16).or_else(|| Some((surrogates(text)?, 12)));
            return value.ok_or("`\\u` needs the hexadecimal digits of a character");
        }
        Some(b'u') => return Err("`\\u` is for wide characters and strings only"),
        _ => return Err("there is no such escape"),
    };
    Ok((simple, 2))
}

/// Returns the character that two escapes at the start of `text` encode as a surrogate pair:
/// `\ud83d\ude00`.
fn surrogates(text: &str) -> Option<char> {
    let unit = |from: usize| {
        let digits = text.get(from..)?.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
    };
    char::decode_utf16([unit(0)?, unit(6)?]).next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::{characters, number};
    use crate::ast::ExpressionKind as E;

    #[test]
    fn numbers_have_their_value_and_kind() {
        assert!(matches!(number("0x1F"), Ok(E::Integer(31))));
        assert!(matches!(number("017"), Ok(E::Integer(15))));
        assert!(matches!(number("0"), Ok(E::Integer(0))));
        assert!(matches!(number("18446744073709551615"), Ok(E::Integer(u64::MAX))));
        assert!(matches!(number("1.50d"), Ok(E::Fixed(15, 1))));
        assert!(matches!(number("0.05D"), Ok(E::Fixed(5, 2))));
        assert!(matches!(number(".5"), Ok(E::Float(value, _)) if value == 0.5));
        assert!(matches!(number("1e3"), Ok(E::Float(value, _)) if value == 1000.0));
        assert!(matches!(number("1e999"), Ok(E::Float(value, long)) if value.is_infinite() && long.is_finite()));
        assert!(number(&"9".repeat(1 << 20)).is_err_and(|message| message.len() < 300));
        for wrong in ["08", "18446744073709551616", "0x", "1u", "1e", "1e9999", "d", ".", "1.2.3", "1_0", "0xg"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn escapes_are_replaced_and_errors_located() {
        let value =
            |text| characters(text).map(|(value, _)| value.into_iter().collect::<String>()).map_err(|fault| fault.at);
        assert_eq!(value(r#""a\n\x41\101\"""#), Ok("a\nAA\"".to_owned()));
        assert_eq!(value(r#"L"\u00e9\u4e2d""#), Ok("\u{e9}\u{4e2d}".to_owned()));
        assert_eq!(value(r#""\u0041""#), Err(1..3));
        assert_eq!(value(r#""ab\q""#), Err(3..5));
        assert_eq!(value(r#"L"\ud800""#), Err(2..4));
        assert_eq!(value(r#"L"a\ud83d\uDE00z""#), Ok("a\u{1f600}z".to_owned()));
        for wrong in
            [r#"L"\ude00\ud83d""#, r#"L"\ud83d\u+e00""#, r#"L"\ud83d\n""#, r#"L"\ud83d\ud83d""#, r#"L"\ud83dé""#]
        {
            assert_eq!(value(wrong), Err(2..4), "{wrong}");
        }
        for (text, closed) in [
            (r#""""#, true),
            (r#"""#, false),
            (r#""a\""#, false),
            (r#"L"a\\""#, true),
            ("'\"'", true),
            ("L'", false),
            ("'\\", false),
        ] {
            assert_eq!(super::is_closed(text), closed, "{text}");
        }
        assert_eq!(value("\"\\"), Err(1..2));
        assert_eq!(value("\""), Ok(String::new()));
    }
}
