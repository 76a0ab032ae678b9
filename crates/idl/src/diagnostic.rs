//! What the compiler has to say about a source text, and how it shows it: as rustc does, with the source
//! lines, labels at every place concerned and help where a mend is obvious.

use crate::source::{SourceMap, Span};
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use std::fmt::Write as _;

/// How grave a [`Diagnostic`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The text is refused.
    Error,
    /// The text is legal and unwise.
    Warning,
}

/// One message about a source text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How grave it is.
    pub severity: Severity,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// Where.
    pub span: Span,
    /// What is wrong with exactly the text at [`span`](Self::span); may be empty.
    pub label: String,
    /// Other places concerned, each with its text.
    pub related: Vec<(Span, String)>,
    /// Facts that explain the message.
    pub notes: Vec<String>,
    /// How to mend it.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A message that refuses the text.
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
        }
    }

    /// A message about something legal and unwise.
    #[must_use]
    pub fn warning(span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(span, message) }
    }

    /// Says what is wrong at the place itself.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = cut(label.into());
        self
    }

    /// Points at another place.
    #[must_use]
    pub fn related(mut self, span: Span, label: impl Into<String>) -> Self {
        self.related.push((span, cut(label.into())));
        self
    }

    /// Adds an explanation.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(cut(note.into()));
        self
    }

    /// Adds a mend.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(cut(help.into()));
        self
    }

    /// The message with its source lines, for a person; `styled` adds the colours of a terminal.
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

    /// One snippet per file, the file of the message first. Text is cut to the lines around the labels, so
    /// that the cost of a message does not grow with the file.
    fn snippets(&self, sources: &SourceMap) -> Vec<Snippet<'static, annotate_snippets::Annotation<'static>>> {
        if sources.files().is_empty() {
            return Vec::new();
        }
        let mut places = vec![(self.span, self.label.clone(), AnnotationKind::Primary)];
        places.extend(self.related.iter().map(|(span, label)| (*span, label.clone(), AnnotationKind::Context)));
        let mut windows: Vec<Window> = Vec::new();
        for (span, label, kind) in places {
            let file = sources.file(sources.file_of(span));
            let start = (span.start - file.start()) as usize;
            let end = (span.end.saturating_sub(file.start()) as usize).min(file.text.len());
            // The parser points at the last octet of what came before: that may be within a character.
            let start = file.text.floor_char_boundary(start.min(end));
            let mut end = file.text.ceil_char_boundary(end);
            // A label spans at most the rest of its line: longer ranges hide what they mean.
            if let Some(length) = file.text[start..end].find('\n') {
                end = start + length.max(1);
            }
            let (first, last) = lines_around(&file.text, start, end);
            let location = sources.location(Span { start: file.start() + u32::try_from(first).unwrap_or(0), ..span });
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

    /// The message as one JSON object on one line, as `--message-format json` prints it.
    #[must_use]
    pub fn to_json(&self, sources: &SourceMap) -> String {
        let place = |span: Span, label: &str| {
            let (at, end) = (sources.location(span), sources.location(span.after()));
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

/// A sentence without the middle of what is too long to be read, such as names of a megabyte.
fn cut(text: String) -> String {
    const LONGEST: usize = 1_000;
    if text.len() <= LONGEST {
        return text;
    }
    let (head, tail) = (text.floor_char_boundary(LONGEST / 2), text.ceil_char_boundary(text.len() - LONGEST / 2));
    format!("{} ... {}", &text[..head], &text[tail..])
}

type Label = (usize, usize, String, AnnotationKind);

/// A piece of one file that a message shows.
struct Window<'s> {
    path: String,
    text: &'s str,
    first: usize,
    last: usize,
    line: usize,
    labels: Vec<Label>,
}

impl Window<'_> {
    /// Places farther apart than this are shown as two pieces.
    const CLOSE: usize = 20_000;

    fn close_to(&self, first: usize, last: usize) -> bool {
        first.abs_diff(self.first).max(last.abs_diff(self.last)) < Self::CLOSE
    }

    fn add(&mut self, first: usize, last: usize, line: usize, label: Label) {
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

/// The whole lines that hold `start..end`, cut at 2,000 octets on either side.
fn lines_around(text: &str, start: usize, end: usize) -> (usize, usize) {
    let first = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let last = text[end..].find('\n').map_or(text.len(), |at| end + at);
    let first = (first.max(start.saturating_sub(2_000))..=start).find(|at| text.is_char_boundary(*at)).unwrap_or(start);
    let last = (end..=last.min(end + 2_000)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(end);
    (first, last)
}

/// Diagnostics in the order of their discovery, bounded.
#[derive(Debug, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
    full: bool,
}

impl Diagnostics {
    /// More errors than this help nobody.
    pub const LIMIT: usize = 100;

    /// Adds one, unless the same text stands at the same place already or the limit is reached.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let repeated = |known: &Diagnostic| known.span == diagnostic.span && known.message == diagnostic.message;
        if self.full || self.list.iter().any(repeated) {
            return;
        }
        match diagnostic.severity {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
        }
        // Errors end the work; warnings are only not shown any more, because what is behind them may be wrong.
        self.full = self.errors >= Self::LIMIT;
        if diagnostic.severity == Severity::Error || self.warnings <= Self::LIMIT {
            self.list.push(diagnostic);
        }
    }

    /// Whether nothing more is taken: stop looking.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Number of errors.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> &[Diagnostic] {
        &self.list
    }

    /// What is said in place of the messages that are not shown.
    #[must_use]
    pub fn left_out(&self) -> String {
        self.not_shown().iter().map(|(severity, message)| format!("{severity}: {message}\n\n")).collect()
    }

    /// The same as JSON, an object a line.
    #[must_use]
    pub fn left_out_json(&self) -> String {
        self.not_shown().iter().map(|(severity, message)| placeless_json(severity, message) + "\n").collect()
    }

    fn not_shown(&self) -> Vec<(&'static str, String)> {
        let mut said = Vec::new();
        if self.full {
            said.push(("error", "too many errors, the rest is not shown".to_owned()));
        }
        if self.warnings > Self::LIMIT {
            said.push(("warning", format!("{} more warnings are not shown", self.warnings - Self::LIMIT)));
        }
        said
    }

    /// All of them as a person reads them, with a line that counts them.
    #[must_use]
    pub fn render(&self, sources: &SourceMap, styled: bool) -> String {
        let mut text = String::new();
        for diagnostic in &self.list {
            let _ = writeln!(text, "{}\n", diagnostic.render(sources, styled));
        }
        text.push_str(&self.left_out());
        text
    }
}

/// A message that is at no place, as one JSON object.
pub(crate) fn placeless_json(severity: &str, message: &str) -> String {
    let message = json_string(message);
    format!(r#"{{"severity":"{severity}","message":{message},"at":null,"related":[],"notes":[],"help":null}}"#)
}

/// A JSON string with its quotes.
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
    fn shows_both_places_and_the_help() {
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
