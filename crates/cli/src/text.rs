//! Untrusted text in output: escaped for terminals, and shortened in messages.

use serde_json::Value as Json;

const MAX_REPEATED: usize = 60;

pub(crate) fn printable(text: &str) -> String {
    let escaped = text.chars().map(|character| match character {
        control if control.is_control() => control.escape_default().to_string(),
        other => other.to_string(),
    });
    escaped.collect()
}

/// Returns the first 60 characters of an untrusted text for a message. If the text is longer, its
/// length in characters follows.
///
/// # Examples
/// ```text
/// [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23... (1048577 characters)
/// ```
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(MAX_REPEATED) {
        None => printable(text),
        Some((end, _)) => format!("{}... ({} characters)", printable(&text[..end]), text.chars().count()),
    }
}

pub(crate) fn json_line(json: &Json) -> String {
    escaped(&json.to_string())
}

pub(crate) fn json_text(json: &Json) -> String {
    escaped(&format!("{json:#}"))
}

/// Escapes DEL and the C1 controls, which JSON permits in strings, and appends a line end.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + 1);
    for character in json.chars() {
        match character {
            '\x7f'..='\u{9f}' => text.push_str(&format!("\\u{:04x}", u32::from(character))),
            other => text.push(other),
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_is_short_and_has_escaped_control_characters() {
        assert_eq!(excerpt("short"), "short");
        assert_eq!(excerpt("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        let exact = "é".repeat(MAX_REPEATED);
        assert_eq!(excerpt(&exact), exact);
        assert_eq!(excerpt(&format!("{exact}x")), format!("{exact}... (61 characters)"));
    }

    #[test]
    fn json_has_escaped_control_characters() {
        let text = Json::from("a\u{1b}b\u{9b}c\u{7f}é");
        assert_eq!(json_line(&text), "\"a\\u001bb\\u009bc\\u007fé\"\n");
        assert_eq!(serde_json::from_str::<Json>(&json_text(&text)).unwrap(), text);
    }
}
