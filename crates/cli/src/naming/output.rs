//! Output of the commands that work on name servers, as lines of text or of JSON.

use std::io::Write;

use serde_json::{Value as Json, json};

use crate::text::{json_line, printable};

pub(super) struct Output<'o> {
    out: &'o mut dyn Write,
    is_json: bool,
}

impl<'o> Output<'o> {
    pub(super) fn new(out: &'o mut dyn Write, is_json: bool) -> Self {
        Output { out, is_json }
    }

    /// Writes a line of text or JSON. A line of text has its control characters escaped. A line of
    /// JSON is an object with these members and the number of the schema.
    ///
    /// # Errors
    /// A message for the user, if the line cannot be written.
    pub(super) fn line(&mut self, text: impl FnOnce() -> String, members: impl FnOnce() -> Json) -> Result<(), String> {
        let line = if self.is_json {
            let mut members = members();
            members["schema"] = json!(1);
            json_line(&members)
        } else {
            format!("{}\n", printable(&text()))
        };
        self.out.write_all(line.as_bytes()).map_err(|error| format!("cannot write: {error}"))
    }

    /// Writes the last line of a command and flushes the output. Ignores errors, because the reader
    /// may have closed the pipe.
    pub(super) fn last_line(&mut self, text: impl FnOnce() -> String, members: impl FnOnce() -> Json) {
        self.last_lines(|| vec![text()], members);
    }

    pub(super) fn last_lines(&mut self, texts: impl FnOnce() -> Vec<String>, members: impl FnOnce() -> Json) {
        let texts = if self.is_json { vec![String::new()] } else { texts() };
        let mut members = Some(members);
        let print = |text: String| self.line(|| text, || members.take().map_or(Json::Null, |members| members()));
        let _ = texts.into_iter().try_for_each(print).and_then(|()| self.flush());
    }

    pub(super) fn flush(&mut self) -> Result<(), String> {
        self.out.flush().map_err(|error| format!("cannot write: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_escaped_control_characters() {
        let printed = |is_json| {
            let mut octets = Vec::new();
            let mut output = Output::new(&mut octets, is_json);
            output.line(|| "a\x1b[2J".to_owned(), || json!({ "name": "a\x1b[2J" })).unwrap();
            String::from_utf8(octets).unwrap()
        };
        assert_eq!(printed(false), "a\\u{1b}[2J\n");
        assert_eq!(printed(true), "{\"name\":\"a\\u001b[2J\",\"schema\":1}\n");
    }
}
