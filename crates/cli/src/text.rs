//! Untrusted text in the command's output: escaped for terminals, and shortened in messages.

/// Maximum number of characters of untrusted text that a message repeats.
const MAX_REPEATED: usize = 60;

/// Escapes the control characters of an untrusted text.
pub(crate) fn printable(text: &str) -> String {
    let escaped = text.chars().map(|character| match character {
        control if control.is_control() => control.escape_default().to_string(),
        other => other.to_string(),
    });
    escaped.collect()
}

/// Returns the beginning of an untrusted text for a message. If the rest is left out, the length
/// follows.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_harmless() {
        assert_eq!(excerpt("short"), "short");
        assert_eq!(excerpt("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        let exact = "é".repeat(MAX_REPEATED);
        assert_eq!(excerpt(&exact), exact);
        assert_eq!(excerpt(&format!("{exact}x")), format!("{exact}... (61 characters)"));
    }
}
