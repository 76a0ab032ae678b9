//! Source files and positions: all files of one compilation share one space of positions, so a
//! [`Span`] of two numbers also identifies its file. A token from a macro has the location of the
//! macro's use.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// A range of bytes in one file of a [`SourceMap`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Position of the first byte.
    pub start: u32,
    /// Position after the last byte.
    pub end: u32,
}

impl Span {
    /// Returns the range from the start of `self` to the end of `last`. Returns `self` if `last`
    /// ends before `self` starts, as in a declaration that spans files.
    #[must_use]
    pub fn to_end_of(self, last: Self) -> Self {
        if last.end >= self.start { Self { start: self.start, end: last.end } } else { self }
    }

    /// Returns the empty range after the last byte.
    #[must_use]
    pub fn end_position(self) -> Self {
        Self { start: self.end, end: self.end }
    }
}

/// The identifier of a file in a [`SourceMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub(crate) u32);

/// One source file.
#[derive(Debug)]
pub struct SourceFile {
    /// The path under which the file was found, as messages show it.
    pub path: PathBuf,
    /// The text, decoded as UTF-8 if it is valid UTF-8, else as ISO 8859-1.
    pub text: Arc<str>,
    start: u32,
    /// Location of the first `#include` of the file; `None` for the main file.
    included_at: Option<Span>,
    lines: OnceLock<Vec<u32>>,
    marks: Vec<LineMark>,
}

#[derive(Debug)]
struct LineMark {
    from: usize,
    number: usize,
    path: Option<PathBuf>,
}

/// A location as messages show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// File name, after `#line`.
    pub path: PathBuf,
    /// Line number from 1, after `#line`.
    pub line: usize,
    /// Column from 1, in characters.
    pub column: usize,
}

/// The source files of a compilation.
#[derive(Debug, Default)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

impl SourceMap {
    /// Adds a file. Returns `None` if the total text of all files would reach 1 GiB.
    pub fn add(&mut self, path: &Path, bytes: Vec<u8>) -> Option<FileId> {
        let text: Arc<str> = decode(bytes).into();
        let start = self.files.last().map_or(0, |file| file.start + file.len() + 1);
        let len = u32::try_from(text.len()).ok()?;
        if start.checked_add(len)? >= 1 << 30 {
            return None;
        }
        self.files.push(SourceFile {
            path: path.to_owned(),
            text,
            start,
            included_at: None,
            lines: OnceLock::new(),
            marks: Vec::new(),
        });
        u32::try_from(self.files.len() - 1).ok().map(FileId)
    }

    /// Returns the files in the order in which they were first read.
    #[must_use]
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Returns the file with this identifier.
    #[must_use]
    pub fn file(&self, id: FileId) -> &SourceFile {
        &self.files[id.0 as usize]
    }

    /// Returns the file in which a span begins, or the first file for a span without a file.
    #[must_use]
    pub fn file_of(&self, span: Span) -> FileId {
        let after = self.files.partition_point(|file| file.start <= span.start);
        FileId(u32::try_from(after.saturating_sub(1)).unwrap_or(0))
    }

    /// Returns the text of a span.
    #[must_use]
    pub fn text(&self, span: Span) -> &str {
        let Some(file) = self.files.get(self.file_of(span).0 as usize) else { return "" };
        let start = (span.start - file.start) as usize;
        let end = (span.end.saturating_sub(file.start) as usize).min(file.text.len());
        file.text.get(start..end.max(start)).unwrap_or("")
    }

    pub(crate) fn mark_included(&mut self, file: FileId, at: Span) {
        self.files[file.0 as usize].included_at = Some(at);
    }

    /// Returns a sort key: the positions of the enclosing `#include`s, outermost first, then the
    /// start of the span.
    pub(crate) fn reading_order(&self, span: Span) -> Vec<u32> {
        let mut places = vec![span.start];
        let mut at = span;
        // A file is always included by a file that was read earlier, so the loop ends.
        while let Some(outer) = self.files.get(self.file_of(at).0 as usize).and_then(|file| file.included_at) {
            places.push(outer.start);
            at = outer;
        }
        places.reverse();
        places
    }

    /// Returns the location at which a span begins.
    #[must_use]
    pub fn location(&self, span: Span) -> Location {
        let Some(file) = self.files.get(self.file_of(span).0 as usize) else {
            return Location { path: PathBuf::new(), line: 1, column: 1 };
        };
        let offset = ((span.start - file.start) as usize).min(file.text.len());
        let start = file.lines()[file.line_at(offset)] as usize;
        let column = 1 + file.text[start..].char_indices().take_while(|(at, _)| start + at < offset).count();
        let (path, line) = self.path_and_line(span);
        Location { path: path.to_owned(), line, column }
    }

    /// Returns the file and line at which a span begins, as messages show them. Cheaper than
    /// [`location`](Self::location) in long lines, because no column is computed.
    #[must_use]
    pub(crate) fn path_and_line(&self, span: Span) -> (&Path, usize) {
        let Some(file) = self.files.get(self.file_of(span).0 as usize) else { return (Path::new(""), 1) };
        let line = file.line_at(((span.start - file.start) as usize).min(file.text.len()));
        match file.marks.iter().rev().find(|mark| mark.from <= line) {
            Some(mark) => (mark.path.as_deref().unwrap_or(&file.path), mark.number.saturating_add(line - mark.from)),
            None => (&file.path, line + 1),
        }
    }

    pub(crate) fn mark_line(&mut self, span: Span, number: usize, path: Option<PathBuf>) {
        let file = self.file_of(span).0 as usize;
        let Some(file) = self.files.get_mut(file) else { return };
        let from = file.line_at((span.start - file.start) as usize) + 1;
        let path = path.or_else(|| file.marks.last().and_then(|mark| mark.path.clone()));
        file.marks.push(LineMark { from, number, path });
    }
}

impl SourceFile {
    /// Returns the position of the first byte in the shared space.
    #[must_use]
    pub fn start_position(&self) -> u32 {
        self.start
    }

    /// Returns the index, from 0, of the line that contains a byte offset.
    #[must_use]
    pub fn line_at(&self, offset: usize) -> usize {
        self.lines().partition_point(|start| *start as usize <= offset).saturating_sub(1)
    }

    fn lines(&self) -> &[u32] {
        self.lines.get_or_init(|| {
            let starts = self.text.bytes().zip(1..).filter(|(octet, _)| *octet == b'\n').map(|(_, next)| next);
            std::iter::once(0).chain(starts).collect()
        })
    }

    /// Returns the number of lines.
    #[must_use]
    pub fn line_count(&self) -> usize {
        self.text.lines().count()
    }

    fn len(&self) -> u32 {
        u32::try_from(self.text.len()).unwrap_or(u32::MAX)
    }
}

/// Decodes valid UTF-8, which current files use, and any other file as ISO 8859-1, which is IDL's
/// character set (IDL 4.2, 7.2.1). Removes a byte-order mark.
fn decode(bytes: Vec<u8>) -> String {
    let mut text = String::from_utf8(bytes)
        .unwrap_or_else(|error| error.as_bytes().iter().map(|octet| char::from(*octet)).collect());
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    // A carriage return before a line feed is a part of the line end, and messages must not show
    // it.
    if text.contains("\r\n") { text.replace("\r\n", "\n") } else { text }
}

#[cfg(test)]
mod tests {
    use super::{SourceMap, Span};
    use std::path::Path;

    #[test]
    fn span_has_its_file_and_line() {
        let mut map = SourceMap::default();
        map.add(Path::new("a.idl"), b"one\ntwo\n".to_vec());
        let second = map.add(Path::new("b.idl"), b"\xe9\xe9 x\n".to_vec());
        let start = second.map_or(0, |id| map.file(id).start_position());
        let span = Span { start: start + 5, end: start + 6 };
        assert_eq!(map.text(span), "x");
        let location = map.location(span);
        assert_eq!((location.path.to_str(), location.line, location.column), (Some("b.idl"), 1, 4));
        let location = map.location(Span { start: 4, end: 7 });
        assert_eq!((location.path.to_str(), location.line, location.column), (Some("a.idl"), 2, 1));
    }

    #[test]
    fn carriage_return_before_a_line_feed_is_removed() {
        let mut map = SourceMap::default();
        map.add(Path::new("a.idl"), b"\xef\xbb\xbfone\r\ntwo\r\n\rx".to_vec());
        assert_eq!(&*map.files()[0].text, "one\ntwo\n\rx");
    }

    #[test]
    fn line_directives_change_file_and_line() {
        let mut map = SourceMap::default();
        map.add(Path::new("a.idl"), b"#line 7 \"z.idl\"\nx\ny\n".to_vec());
        map.mark_line(Span { start: 0, end: 1 }, 7, Some("z.idl".into()));
        let location = map.location(Span { start: 18, end: 19 });
        assert_eq!((location.path.to_str(), location.line), (Some("z.idl"), 8));
    }
}
