//! Output of Rust code in the format of rustfmt.
//!
//! A test compares the output with the output of rustfmt.

const WIDTH: usize = 100;
const CALL_WIDTH: usize = 60;
const FIELDS_WIDTH: usize = 18;

#[derive(Debug, Default)]
pub(super) struct CodeWriter {
    text: String,
    indent: usize,
}

impl CodeWriter {
    pub(super) fn at(indent: usize) -> Self {
        Self { text: String::new(), indent }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    pub(super) fn indent(&self) -> usize {
        self.indent
    }

    pub(super) fn append(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn line(&mut self, line: &str) {
        if line.is_empty() {
            self.text.push('\n');
            return;
        }
        for _ in 0..self.indent {
            self.text.push_str("    ");
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    pub(super) fn open(&mut self, line: &str) {
        self.line(line);
        self.indent += 1;
    }

    pub(super) fn close(&mut self, line: &str) {
        self.indent -= 1;
        self.line(line);
    }

    /// Indents the following lines of a block whose opening line was written without `open`.
    pub(super) fn open_again(&mut self) {
        self.indent += 1;
    }

    pub(super) fn outdent(&mut self) {
        self.indent -= 1;
    }

    pub(super) fn imports(&mut self, before: &str, names: &[&str]) {
        let joined = names.join(", ");
        if self.fits(before.len() + joined.len() + 2) {
            return self.line(&format!("{before}{joined}}};"));
        }
        self.open(before);
        let mut line = String::new();
        for (at, name) in names.iter().enumerate() {
            // rustfmt counts the space after a comma, except after the last name.
            let space = usize::from(at + 1 < names.len());
            if !line.is_empty() && !self.fits(line.len() + 1 + name.len() + 1 + space) {
                self.line(&std::mem::take(&mut line));
            }
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(name);
            line.push(',');
        }
        self.line(&line);
        self.close("};");
    }

    /// Writes an empty line, except at the beginning of the text or of a block, and after another
    /// empty line.
    pub(super) fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("{\n") && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    pub(super) fn lines(&mut self, lines: &[CodeLine]) {
        for line in lines {
            match line {
                CodeLine::Plain(text) => self.line(text),
                CodeLine::Open(text) => self.open(text),
                CodeLine::Close(text) => self.close(text),
                CodeLine::Call { before, arguments, after } => self.call(before, arguments, after),
                CodeLine::Assign(left, right) => self.assign(left, right),
                CodeLine::AssignCall { left, before, arguments, after } => {
                    self.assign_call(left, before, arguments, after);
                }
                CodeLine::Table { before, items, after } => self.table(before, items, after),
            }
        }
    }

    fn fits(&self, length: usize) -> bool {
        self.indent * 4 + length <= WIDTH
    }

    fn list(&mut self, before: &str, items: &[String], after: &str, most: usize) {
        let joined = items.join(", ");
        if joined.len() <= most && self.fits(before.len() + joined.len() + after.len()) {
            self.line(&format!("{before}{joined}{after}"));
            return;
        }
        self.open(before);
        for item in items {
            self.line(&format!("{item},"));
        }
        self.close(after);
    }

    /// Writes a call. `before` ends with the opening parenthesis, and `after` begins with the
    /// closing parenthesis.
    pub(super) fn call(&mut self, before: &str, arguments: &[String], after: &str) {
        self.list(before, arguments, after, CALL_WIDTH);
    }

    /// Writes the head of a function: `before(parameters) -> result` and `;` or ` {`.
    pub(super) fn signature(&mut self, before: &str, parameters: &[String], result: &str, end: &str) {
        let joined = parameters.join(", ");
        let arrow = format!("-> {result}{end}");
        let length = self.indent * 4 + before.len() + joined.len() + 2 + arrow.len();
        // rustfmt measures a function head without a body as if ` {` followed.
        if end == ";" && length == WIDTH {
            self.line(&format!("{before}{joined})"));
            return self.line(&arrow);
        }
        if length <= WIDTH {
            return self.line(&format!("{before}{joined}) {arrow}"));
        }
        self.open(before);
        for parameter in parameters {
            self.line(&format!("{parameter},"));
        }
        let last = format!(") {arrow}");
        let indent = (self.indent - 1) * 4;
        // rustfmt counts the indentation twice to decide if the brace of a broken function head
        // gets a line of its own.
        let room = if end == ";" { WIDTH } else { WIDTH.saturating_sub(indent) };
        if indent + last.len() <= room {
            self.close(&last);
        } else if end == " {" && indent + last.len() <= WIDTH + 2 {
            self.close(&format!(") -> {result}"));
            self.line("{");
        } else {
            let inner = result.strip_prefix("Result<").and_then(|inner| inner.strip_suffix('>')).unwrap_or(result);
            self.close(") -> Result<");
            self.indent += 1;
            for part in split(inner) {
                match part.strip_prefix('(').and_then(|parts| parts.strip_suffix(')')) {
                    Some(parts) if parts.len() > CALL_WIDTH => {
                        self.open("(");
                        split(parts).iter().for_each(|part| self.line(&format!("{part},")));
                        self.close("),");
                    }
                    _ => self.line(&format!("{part},")),
                }
            }
            self.close(&format!(">{end}"));
        }
    }

    /// Writes `left = before(arguments)after`, broken after the `=` if that avoids breaking the
    /// arguments.
    pub(super) fn assign_call(&mut self, left: &str, before: &str, arguments: &[String], after: &str) {
        let joined = arguments.join(", ");
        let right = format!("{before}{joined}{after}");
        let fits_below = (self.indent + 1) * 4 + right.len() <= WIDTH;
        if joined.len() <= CALL_WIDTH && !self.fits(left.len() + 3 + right.len()) && fits_below {
            self.broken(left, &right);
        } else {
            self.call(&format!("{left} = {before}"), arguments, after);
        }
    }

    pub(super) fn broken(&mut self, left: &str, right: &str) {
        self.line(&format!("{left} ="));
        self.indent += 1;
        self.line(right);
        self.indent -= 1;
    }

    pub(super) fn has_room(&self, length: usize) -> bool {
        self.fits(length)
    }

    /// Writes items in filled lines, for use inside macros, which rustfmt does not format.
    pub(super) fn filled(&mut self, before: &str, items: &[String], after: &str) {
        let joined = items.join(", ");
        if self.fits(before.len() + joined.len() + after.len() + 2) {
            return self.line(&format!("{before} {joined} {after}"));
        }
        self.open(before);
        self.fill(items);
        self.close(after);
    }

    fn fill<T: AsRef<str>>(&mut self, items: &[T]) {
        let mut line = String::new();
        for item in items {
            let item = item.as_ref();
            if !line.is_empty() && !self.fits(line.len() + 1 + item.len() + 1) {
                self.line(&std::mem::take(&mut line));
            }
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(item);
            line.push(',');
        }
        self.line(&line);
    }

    pub(super) fn fields(&mut self, before: &str, fields: &[String], after: &str) {
        let joined = fields.join(", ");
        let line = format!("{before} {{ {joined} }}{after}");
        if joined.len() <= FIELDS_WIDTH && self.fits(line.len()) {
            self.line(&line);
            return;
        }
        self.open(&format!("{before} {{"));
        for field in fields {
            self.value(field, ",");
        }
        self.close(&format!("}}{after}"));
    }

    pub(super) fn value(&mut self, value: &str, after: &str) {
        let call = value.split_once('(').filter(|(before, _)| before.contains("At::"));
        match call.and_then(|(before, rest)| Some((before, rest.rsplit_once(")?")?))) {
            Some((before, (arguments, rest))) => {
                let arguments: Vec<String> = split(arguments).into_iter().map(str::to_owned).collect();
                self.call(&format!("{before}("), &arguments, &format!(")?{rest}{after}"));
            }
            None => self.line(&format!("{value}{after}")),
        }
    }

    pub(super) fn arm(&mut self, pattern: &str, value: &str) {
        if self.fits(pattern.len() + 4 + value.len() + 1) {
            return self.line(&format!("{pattern} => {value},"));
        }
        self.open(&format!("{pattern} => {{"));
        self.line(value);
        self.close("}");
    }

    pub(super) fn assign(&mut self, left: &str, right: &str) {
        if self.fits(left.len() + 3 + right.len() + 1) {
            self.line(&format!("{left} = {right};"));
        } else {
            self.line(&format!("{left} ="));
            self.indent += 1;
            self.line(&format!("{right};"));
            self.indent -= 1;
        }
    }

    /// Writes `before`, the items and `after`, for example an array. Short items are filled into
    /// lines, as in rustfmt.
    pub(super) fn table(&mut self, before: &str, items: &[String], after: &str) {
        let joined = items.join(", ");
        let fits = self.fits(before.len() + joined.len() + after.len());
        if fits && (joined.len() <= CALL_WIDTH || items.len() == 1) {
            return self.line(&format!("{before}{joined}{after}"));
        }
        self.open(before);
        if items.iter().all(|item| item.len() <= 10) {
            self.fill(items);
        } else {
            for item in items {
                self.line(&format!("{item},"));
            }
        }
        self.close(after);
    }
}

fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, character) in text.char_indices() {
        match character {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

#[derive(Clone, Debug)]
pub(super) enum CodeLine {
    Plain(String),
    Open(String),
    Close(String),
    Call { before: String, arguments: Vec<String>, after: String },
    Assign(String, String),
    AssignCall { left: String, before: String, arguments: Vec<String>, after: String },
    Table { before: String, items: Vec<String>, after: String },
}

impl CodeLine {
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::Plain(text.into())
    }

    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Plain(text) => Some(text.clone()),
            Self::Call { before, arguments, after } => Some(format!("{before}{}{after}", arguments.join(", "))),
            _ => None,
        }
    }
}
