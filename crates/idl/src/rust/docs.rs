//! Documentation of the generated code: comments before declarations, escaped for rustdoc.

use crate::compile::Compilation;
use crate::lex::scanner::Comment;

/// Returns the text of the comment before a declaration. Empty lines may separate a documentation
/// comment (`/** */`, `///`) from the declaration. A plain comment must be directly above the
/// declaration, because elsewhere it may be a heading or a licence.
pub(super) fn of(compilation: &Compilation, first_token: usize) -> Vec<String> {
    let Some(token) = compilation.text.tokens.get(first_token) else { return Vec::new() };
    let comments = &compilation.text.comments;
    let from = comments.partition_point(|(before, _)| *before < first_token);
    let to = comments.partition_point(|(before, _)| *before <= first_token);
    let file = compilation.sources.file_of(token.span);
    let mut line = line_of(compilation, token.span.start);
    let mut chosen: Vec<&Comment> = Vec::new();
    for (_, comment) in comments[from..to].iter().rev() {
        if comment.trailing || compilation.sources.file_of(comment.span) != file {
            break;
        }
        let last = line_of(compilation, comment.span.end.saturating_sub(1));
        let adjacent = last + 1 >= line;
        let text = compilation.sources.text(comment.span);
        if !(adjacent || (chosen.is_empty() && is_documentation(text))) {
            break;
        }
        line = line_of(compilation, comment.span.start);
        chosen.push(comment);
        if text.starts_with("/*") {
            break;
        }
    }
    let texts = chosen.iter().rev().map(|comment| compilation.sources.text(comment.span));
    tidy(texts.flat_map(plain))
}

fn line_of(compilation: &Compilation, position: u32) -> usize {
    let span = crate::source::Span { start: position, end: position };
    let file = compilation.sources.file(compilation.sources.file_of(span));
    file.line_at((position - file.start_position()) as usize)
}

fn is_documentation(text: &str) -> bool {
    ["/**", "/*!", "///", "//!"].iter().any(|mark| text.starts_with(mark)) && !text.starts_with("////")
}

fn plain(comment: &str) -> Vec<&str> {
    match comment.strip_prefix("//") {
        Some(text) => vec![text.trim_start_matches(['/', '!']).trim_start_matches('<')],
        None => {
            let text = comment.strip_prefix("/*").unwrap_or(comment);
            let text = text.strip_suffix("*/").unwrap_or(text).trim_start_matches(['*', '!']);
            text.lines().map(|line| line.trim_start().trim_start_matches('*')).collect()
        }
    }
}

fn tidy<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut tidied: Vec<String> = Vec::new();
    for line in lines {
        let line = line.trim();
        let says_something = line.chars().any(char::is_alphanumeric);
        if says_something {
            tidied.push(safe(line));
        } else if tidied.last().is_some_and(|last| !last.is_empty()) {
            tidied.push(String::new());
        }
    }
    while tidied.last().is_some_and(String::is_empty) {
        tidied.pop();
    }
    tidied
}

/// Escapes accidental markup in a line: links, lists, quotations, HTML, and code that rustdoc would
/// test.
fn safe(line: &str) -> String {
    let mut result = String::new();
    let line = line.replace('\t', " ");
    let after_number = line.trim_start_matches(|first: char| first.is_ascii_digit());
    let numbered = after_number.len() < line.len() && after_number.starts_with(['.', ')']);
    if line.starts_with(['-', '+', '*', '>', '#', '=', '~', '|', ':']) {
        result.push('\\');
    }
    let even_quotes = line.matches('`').count().is_multiple_of(2) && !line.contains("``");
    let mut within_code = false;
    for (at, character) in line.char_indices() {
        match character {
            '`' if even_quotes => within_code = !within_code,
            '[' | ']' | '<' | '>' | '`' | '\\' | '*' if !(within_code || at == 0 && result == "\\") => {
                result.push('\\')
            }
            '.' | ')' if numbered && at == line.len() - after_number.len() => result.push('\\'),
            _ => {}
        }
        if !character.is_control() {
            result.push(character);
        }
    }
    if result.contains("://") {
        let links = result.split(' ').map(|word| {
            match word.starts_with("http") && word.contains("://") && !word.contains('\\') {
                true => format!("<{word}>"),
                false => word.replace("://", ":\\//"),
            }
        });
        result = links.collect::<Vec<_>>().join(" ");
    }
    result
}

#[cfg(test)]
mod tests {
    use super::{plain, safe, tidy};

    #[test]
    fn comment_marks_are_removed_and_markup_is_escaped() {
        let lines = tidy(plain("/**\n * Moves it.\n *\n *    indented [x] <y>\n * ---------\n */").into_iter());
        assert_eq!(lines, ["Moves it.", "", "indented \\[x\\] \\<y\\>"]);
        assert_eq!(tidy(plain("/// one").into_iter()), ["one"]);
        assert_eq!(safe("- item"), "\\- item");
        assert_eq!(safe("1. first `a[0]`"), "1\\. first `a[0]`");
        assert_eq!(safe("see http://omg.org now"), "see <http://omg.org> now");
        assert_eq!(safe("a ` b"), "a \\` b");
        assert!(tidy(plain("//////////").into_iter()).is_empty());
    }
}
