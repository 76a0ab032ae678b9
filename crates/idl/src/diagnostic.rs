//! Diagnostics, and their presentation in the style of rustc.

use crate::source::{SourceMap, Span};
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use std::fmt::Write as _;

/// The severity of a [`Diagnostic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The source is refused.
    Error,
    /// The source is accepted, but it probably has another meaning than intended.
    Warning,
}

/// One message about a source text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The diagnostic's severity.
    pub severity: Severity,
    /// The problem, as one sentence without a full stop.
    pub message: String,
    /// The location of the problem.
    pub span: Span,
    /// A label for the text at [`span`](Self::span); may be empty.
    pub label: String,
    /// Relevant locations besides [`span`](Self::span), each with its label.
    pub related: Vec<(Span, String)>,
    /// Facts that explain the message.
    pub notes: Vec<String>,
    /// A suggested correction.
    pub help: Option<String>,
    /// True if the next error replaces this error, provided that both end at the same location.
    pub(crate) gives_way: bool,
}

impl Diagnostic {
    /// Creates a message that refuses the source.
    #[must_use]
    pub fn error(span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: cut(message.into()),
            span,
            label: String::new(),
            related: Vec::new(),
            notes: Vec::new(),
            help: None,
            gives_way: false,
        }
    }

    /// Creates a message about source that is accepted, but probably has another meaning than
    /// intended.
    #[must_use]
    pub fn warning(span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(span, message) }
    }

    /// Sets the label at the location of the message.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = cut(label.into());
        self
    }

    /// Adds another location with its label. A built-in definition has no location and is ignored.
    #[must_use]
    pub fn related(mut self, span: Span, label: impl Into<String>) -> Self {
        if span != Span::default() {
            self.related.push((span, cut(label.into())));
        }
        self
    }

    /// Adds an explanation.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(cut(note.into()));
        self
    }

    /// Sets a suggested correction.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(cut(help.into()));
        self
    }

    #[must_use]
    pub(crate) fn giving_way(mut self) -> Self {
        self.gives_way = true;
        self
    }

    /// Returns the message with its source lines for a terminal; `styled` adds colours.
    #[must_use]
    pub fn render(&self, sources: &SourceMap, styled: bool) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = level.primary_title(&self.message).elements(self.snippets(sources));
        for note in &self.notes {
            group = group.element(Level::NOTE.message(note));
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help));
        }
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&[group])
    }

    /// Returns the shown pieces of source. Each piece has only the lines around its labels, so the
    /// cost does not grow with the size of the file.
    fn snippets(&self, sources: &SourceMap) -> Vec<Snippet<'static, annotate_snippets::Annotation<'static>>> {
        if sources.files().is_empty() {
            return Vec::new();
        }
        let mut places = vec![(self.span, self.label.clone(), AnnotationKind::Primary)];
        places.extend(self.related.iter().map(|(span, label)| (*span, label.clone(), AnnotationKind::Context)));
        let mut windows: Vec<Window> = Vec::new();
        for (span, label, kind) in places {
            let file = sources.file(sources.file_of(span));
            let start = (span.start - file.start_position()) as usize;
            let end = (span.end.saturating_sub(file.start_position()) as usize).min(file.text.len());
            // A range of the last byte of a token may begin inside a character, so both ends move
            // to the boundaries of characters.
            let start = file.text.floor_char_boundary(start.min(end));
            let mut end = file.text.ceil_char_boundary(end);
            if let Some(length) = file.text[start..end].find('\n') {
                end = start + length.max(1);
            }
            let (first, last) = lines_around(&file.text, start, end);
            let location =
                sources.location(Span { start: file.start_position() + u32::try_from(first).unwrap_or(0), ..span });
            let path = location.path.display().to_string();
            let known = windows.iter_mut().find(|window| window.path == path && window.close_to(first, last));
            match known {
                Some(window) => window.add(first, last, location.line, (start, end, label, kind)),
                None => windows.push(Window {
                    path,
                    text: &file.text,
                    first,
                    last,
                    line: location.line,
                    labels: vec![(start, end, label, kind)],
                }),
            }
        }
        windows.into_iter().map(Window::snippet).collect()
    }

    /// Returns the message as one JSON object on one line, as `--message-format json` prints it.
    #[must_use]
    pub fn to_json(&self, sources: &SourceMap) -> String {
        let place = |span: Span, label: &str| {
            let (at, end) = (sources.location(span), sources.location(span.end_position()));
            format!(
                r#"{{"file":{},"line":{},"column":{},"end_line":{},"end_column":{},"label":{}}}"#,
                json_string(&at.path.display().to_string()),
                at.line,
                at.column,
                end.line,
                end.column,
                json_string(label)
            )
        };
        let list = |items: Vec<String>| format!("[{}]", items.join(","));
        let severity = if self.severity == Severity::Error { "error" } else { "warning" };
        format!(
            r#"{{"severity":"{severity}","message":{},"at":{},"related":{},"notes":{},"help":{}}}"#,
            json_string(&self.message),
            place(self.span, &self.label),
            list(self.related.iter().map(|(span, label)| place(*span, label)).collect()),
            list(self.notes.iter().map(|note| json_string(note)).collect()),
            self.help.as_deref().map_or_else(|| "null".to_owned(), json_string),
        )
    }
}

/// Removes the middle of an overlong text, such as a message that contains a name of a megabyte.
fn cut(text: String) -> String {
    const LONGEST: usize = 1_000;
    if text.len() <= LONGEST {
        return text;
    }
    let (head, tail) = (text.floor_char_boundary(LONGEST / 2), text.ceil_char_boundary(text.len() - LONGEST / 2));
    format!("{} ... {}", &text[..head], &text[tail..])
}

/// An error that the diagnostics already contain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportedError;

type SnippetLabel = (usize, usize, String, AnnotationKind);

struct Window<'s> {
    path: String,
    text: &'s str,
    first: usize,
    last: usize,
    line: usize,
    labels: Vec<SnippetLabel>,
}

impl Window<'_> {
    const CLOSE: usize = 20_000;

    fn close_to(&self, first: usize, last: usize) -> bool {
        first.abs_diff(self.first).max(last.abs_diff(self.last)) < Self::CLOSE
    }

    fn add(&mut self, first: usize, last: usize, line: usize, label: SnippetLabel) {
        if first < self.first {
            (self.first, self.line) = (first, line);
        }
        self.last = self.last.max(last);
        self.labels.push(label);
    }

    fn snippet(self) -> Snippet<'static, annotate_snippets::Annotation<'static>> {
        let text = self.text[self.first..self.last].to_owned();
        let annotations = self.labels.into_iter().map(|(start, end, label, kind)| {
            let annotation = kind.span(start - self.first..end - self.first);
            if label.is_empty() { annotation } else { annotation.label(label) }
        });
        let annotations: Vec<_> = annotations.collect();
        Snippet::source(text).line_start(self.line).path(self.path).annotations(annotations)
    }
}

fn lines_around(text: &str, start: usize, end: usize) -> (usize, usize) {
    let first = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let last = text[end..].find('\n').map_or(text.len(), |at| end + at);
    let first = (first.max(start.saturating_sub(2_000))..=start).find(|at| text.is_char_boundary(*at)).unwrap_or(start);
    let last = (end..=last.min(end + 2_000)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(end);
    (first, last)
}

/// A bounded list of diagnostics, in order of discovery; the compilation finally sorts the list by
/// source order.
#[derive(Debug, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
    full: bool,
}

impl Diagnostics {
    /// Maximum number of errors, and maximum number of warnings that are shown.
    pub const MAX_PER_SEVERITY: usize = 100;

    /// Adds a diagnostic, unless the list contains it or is full; a warning above the maximum is
    /// only counted. Removes an error that a new error replaces.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let repeated = |known: &Diagnostic| known.span == diagnostic.span && known.message == diagnostic.message;
        if self.full || self.list.iter().any(repeated) {
            return;
        }
        let replaces = |last: &Diagnostic| last.gives_way && last.span.end == diagnostic.span.end;
        if diagnostic.severity == Severity::Error && self.list.last().is_some_and(replaces) {
            self.list.pop();
            self.errors -= 1;
        }
        match diagnostic.severity {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
        }
        // At the maximum number of warnings the compilation continues, because later source may
        // contain errors.
        self.full = self.errors >= Self::MAX_PER_SEVERITY;
        if diagnostic.severity == Severity::Error || self.warnings <= Self::MAX_PER_SEVERITY {
            self.list.push(diagnostic);
        }
    }

    pub(crate) fn amend(&mut self, span: Span, message: &str, change: impl FnOnce(&mut Diagnostic)) {
        if let Some(found) = self.list.iter_mut().find(|known| known.span == span && known.message == message) {
            change(found);
        }
    }

    pub(crate) fn sort(&mut self, sources: &SourceMap) {
        self.list.sort_by_cached_key(|diagnostic| sources.reading_order(diagnostic.span));
    }

    /// Returns true if the list accepts no more messages. The current stage should then stop.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Returns the number of errors.
    #[must_use]
    pub fn error_count(&self) -> usize {
        self.errors
    }

    /// Returns the diagnostics that are shown, at most [`MAX_PER_SEVERITY`](Self::MAX_PER_SEVERITY)
    /// of each severity.
    #[must_use]
    pub fn list(&self) -> &[Diagnostic] {
        &self.list
    }

    /// Returns the notice about messages that are not shown.
    #[must_use]
    pub fn omission_notice(&self) -> String {
        self.not_shown().iter().map(|(severity, message)| format!("{severity}: {message}\n\n")).collect()
    }

    /// Returns the notice about hidden messages as JSON objects, one on each line.
    #[must_use]
    pub fn omission_notice_json(&self) -> String {
        self.not_shown().iter().map(|(severity, message)| placeless_json(severity, message) + "\n").collect()
    }

    fn not_shown(&self) -> Vec<(&'static str, String)> {
        let mut said = Vec::new();
        if self.full {
            said.push(("error", "too many errors, further ones are not shown".to_owned()));
        }
        if self.warnings > Self::MAX_PER_SEVERITY {
            said.push(("warning", format!("{} more warnings are not shown", self.warnings - Self::MAX_PER_SEVERITY)));
        }
        said
    }

    /// Returns the shown diagnostics as text, followed by the notice about hidden diagnostics.
    #[must_use]
    pub fn render(&self, sources: &SourceMap, styled: bool) -> String {
        let mut text = String::new();
        for diagnostic in &self.list {
            let _ = writeln!(text, "{}\n", diagnostic.render(sources, styled));
        }
        text.push_str(&self.omission_notice());
        text
    }
}

pub(crate) fn placeless_json(severity: &str, message: &str) -> String {
    let message = json_string(message);
    format!(r#"{{"severity":"{severity}","message":{message},"at":null,"related":[],"notes":[],"help":null}}"#)
}

pub(crate) fn json_string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            control if control < ' ' => {
                let _ = write!(json, "\\u{:04x}", u32::from(control));
            }
            other => json.push(other),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::Diagnostic;
    use crate::source::{SourceMap, Span};
    use std::path::Path;

    #[test]
    fn rendered_message_shows_both_locations_and_the_help() {
        let mut sources = SourceMap::default();
        sources.add(Path::new("a.idl"), b"struct A { long x; };\n\ntypedef long A;\n".to_vec());
        let diagnostic = Diagnostic::error(Span { start: 36, end: 37 }, "`A` is defined twice")
            .label("defined again here")
            .related(Span { start: 7, end: 8 }, "first defined here")
            .help("give one of them another name");
        let expected = "\
error: `A` is defined twice
 --> a.idl:3:14
  |
1 | struct A { long x; };
  |        - first defined here
2 |
3 | typedef long A;
  |              ^ defined again here
  |
  = help: give one of them another name";
        assert_eq!(diagnostic.render(&sources, false), expected);
        assert!(diagnostic.to_json(&sources).contains(r#""line":3,"column":14"#));
    }
}
