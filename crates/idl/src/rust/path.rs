//! Adds the name of a member, parameter or result to encoding and decoding statements, so that
//! errors show the path to the value.

use super::Generator;
use super::code::DecodingCode;
use super::writer::CodeLine;

/// Maximum length in characters of a call to which a name is added. A longer call gets no name.
const INNER_WIDTH: usize = 60;

#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Member,
    Argument,
    Result,
}

impl Part {
    fn function(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Argument => "argument",
            Self::Result => "result",
        }
    }
}

struct Wrap {
    at: String,
    before: String,
    name: String,
    coder: String,
}

impl Wrap {
    fn arguments(&self, fallible: &str) -> Option<Vec<String>> {
        (fallible.len() <= INNER_WIDTH).then(|| vec![fallible.to_owned(), self.name.clone(), self.coder.clone()])
    }

    fn line(&self, line: &CodeLine) -> Option<CodeLine> {
        match line {
            CodeLine::Plain(text) => {
                let fallible = text.strip_suffix("?;")?;
                match fallible.strip_prefix("let ").and_then(|text| text.split_once(" = ")) {
                    Some((left, right)) => self.assign(&format!("let {left}"), right),
                    None => self.call(fallible),
                }
            }
            CodeLine::Call { before, arguments, after } if after == ")?;" && !before.starts_with("let ") => {
                self.call(&format!("{before}{})", arguments.join(", ")))
            }
            CodeLine::Assign(left, right) => self.assign(left, right.strip_suffix('?')?),
            _ => None,
        }
    }

    fn call(&self, fallible: &str) -> Option<CodeLine> {
        let arguments = self.arguments(fallible)?;
        Some(CodeLine::Call { before: self.before.clone(), arguments, after: ")?;".to_owned() })
    }

    fn assign(&self, left: &str, fallible: &str) -> Option<CodeLine> {
        let arguments = self.arguments(fallible)?;
        let (left, before) = (left.to_owned(), self.before.clone());
        Some(CodeLine::AssignCall { left, before, arguments, after: ")?;".to_owned() })
    }

    fn lines(&self, lines: &[CodeLine]) -> Vec<CodeLine> {
        let (mut named, mut rest) = (Vec::new(), lines);
        while let [line, behind @ ..] = rest {
            if let Some(lines) = self.items(rest) {
                named.extend(lines);
                rest = behind.get(2..).unwrap_or_default();
                continue;
            }
            match self.push(line) {
                Some(lines) => named.extend(lines),
                None => named.push(self.line(line).unwrap_or_else(|| line.clone())),
            }
            rest = behind;
        }
        named
    }

    fn items(&self, lines: &[CodeLine]) -> Option<[CodeLine; 3]> {
        let [CodeLine::Open(head), body, end @ CodeLine::Close(_), ..] = lines else { return None };
        let list = head.strip_prefix("for item in ")?.strip_suffix(" {")?.trim_start_matches('&');
        let list = list.strip_suffix(".iter()").unwrap_or(list);
        let text = body.text()?;
        let element = format!("{}::element({}, index, {})", self.at, text.strip_suffix("?;")?, self.coder);
        let head = CodeLine::Open(format!("for (index, item) in {list}.iter().enumerate() {{"));
        Some([head, self.call(&element)?, end.clone()])
    }

    fn push(&self, line: &CodeLine) -> Option<[CodeLine; 2]> {
        let CodeLine::Plain(text) = line else { return None };
        let item = text.strip_prefix("list.push(")?.strip_suffix("?);")?;
        let element = format!("{}::element({item}, list.len(), {})", self.at, self.coder);
        Some([self.assign("let item", &element)?, CodeLine::plain("list.push(item);")])
    }

    fn expression(&self, value: &str) -> Option<String> {
        let (fallible, rest) = match value.strip_suffix("?.into()") {
            Some(fallible) => (fallible, ".into()"),
            None => (value.strip_suffix('?')?, ""),
        };
        Some(format!("{}{})?{rest}", self.before, self.arguments(fallible)?.join(", ")))
    }
}

impl Generator<'_> {
    fn wrap(&mut self, part: Part, name: &str, coder: &str) -> Wrap {
        let at = self.runtime("At");
        let before = format!("{at}::{}(", part.function());
        Wrap { at, before, name: format!("{:?}", name.trim_start_matches("r#")), coder: coder.to_owned() }
    }

    pub(super) fn named(&mut self, lines: Vec<CodeLine>, part: Part, name: &str, coder: &str) -> Vec<CodeLine> {
        let can_fail = |line: &CodeLine| match line {
            CodeLine::Plain(text) | CodeLine::Assign(_, text) => text.contains('?'),
            CodeLine::Call { after, .. } => after.starts_with(")?"),
            _ => false,
        };
        if !lines.iter().any(can_fail) {
            return lines;
        }
        self.wrap(part, name, coder).lines(&lines)
    }

    pub(super) fn named_read(&mut self, read: DecodingCode, name: &str, d: &str) -> DecodingCode {
        let wrap = self.wrap(Part::Member, name, d);
        match read {
            DecodingCode::Expression(value) => DecodingCode::Expression(wrap.expression(&value).unwrap_or(value)),
            DecodingCode::Block(lines, value) => {
                let named = wrap.expression(&value).filter(|named| named.len() <= INNER_WIDTH);
                let value = named.unwrap_or(value);
                DecodingCode::Block(wrap.lines(&lines), value)
            }
        }
    }
}
