//! Tables of a TOML file, with errors that name the line and the field.

use std::collections::BTreeSet;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::TaskFileError;
use crate::quantity::parse_time;
use crate::task::Nanos;

/// Parses a TOML document of at most [`MAX_FILE_BYTES`](super::MAX_FILE_BYTES).
///
/// # Errors
/// [`TaskFileError`] with the line of the mistake, or without a line if the document is too long.
pub fn parse_document(text: &str) -> Result<Spanned<DeTable<'_>>, TaskFileError> {
    if let Some(error) = super::size_error(text) {
        return Err(error);
    }
    DeTable::parse(text).map_err(|error| {
        let line = error.span().map(|span| line_of(text, span.start));
        TaskFileError::new(line, "", error.message())
    })
}

/// A table of a TOML document. It notes which fields were read, so that unknown fields are refused.
#[derive(Debug)]
pub struct TomlTable<'d> {
    text: &'d str,
    path: &'static str,
    line: usize,
    table: &'d DeTable<'d>,
    known: BTreeSet<&'static str>,
}

impl<'d> TomlTable<'d> {
    /// Returns the outermost table of a document that [`parse_document`] has parsed from this text.
    #[must_use]
    pub fn root(text: &'d str, document: &'d Spanned<DeTable<'d>>) -> Self {
        Self { text, path: "", line: 1, table: document.get_ref(), known: BTreeSet::new() }
    }

    fn of(text: &'d str, path: &'static str, value: &'d Spanned<DeValue<'d>>) -> Result<Self, TaskFileError> {
        let line = line_of(text, value.span().start);
        match value.get_ref() {
            DeValue::Table(table) => Ok(Self { text, path, line, table, known: BTreeSet::new() }),
            other => Err(TaskFileError::new(Some(line), path, format!("expected a table, found {}", other.type_str()))),
        }
    }

    /// Returns the table with this name; `None` if the field is absent.
    ///
    /// # Errors
    /// If the field is not a table.
    pub fn table(&mut self, name: &'static str) -> Result<Option<TomlTable<'d>>, TaskFileError> {
        self.value(name).map(|value| Self::of(self.text, name, value)).transpose()
    }

    /// Returns the tables of this name; an empty list if the field is absent.
    ///
    /// # Errors
    /// If the field is not an array of tables, or has more than `max` tables.
    pub fn tables(&mut self, name: &'static str, max: usize) -> Result<Vec<TomlTable<'d>>, TaskFileError> {
        let Some(value) = self.value(name) else { return Ok(Vec::new()) };
        let DeValue::Array(tables) = value.get_ref() else {
            let reason = format!("expected [[{name}]], found {}", value.get_ref().type_str());
            return Err(self.wrong(name, value, &reason));
        };
        if tables.len() > max {
            return Err(self.wrong(name, value, &format!("more than {max} {name}s")));
        }
        tables.iter().map(|table| Self::of(self.text, name, table)).collect()
    }

    /// Returns the names and numbers of a table whose fields are numbers of 32 bits, in the order
    /// of the names.
    ///
    /// # Errors
    /// If a field has another value.
    pub fn numbers_by_name(&mut self) -> Result<Vec<(&'d str, i32)>, TaskFileError> {
        let number = |(key, value): (&'d Spanned<std::borrow::Cow<'d, str>>, &'d Spanned<DeValue<'d>>)| {
            let found = match value.get_ref() {
                DeValue::Integer(integer) => i32::from_str_radix(integer.as_str(), integer.radix()).ok(),
                _ => None,
            };
            let shown = printable(key.get_ref());
            let number = found.ok_or_else(|| self.wrong(&shown, value, "expected a number of 32 bits"))?;
            Ok((key.get_ref().as_ref(), number))
        };
        self.table.iter().map(number).collect()
    }

    /// Returns the strings of an array; an empty list if the field is absent.
    ///
    /// # Errors
    /// If the field is not an array of strings.
    pub fn strings(&mut self, name: &'static str) -> Result<Vec<&'d str>, TaskFileError> {
        let Some(value) = self.value(name) else { return Ok(Vec::new()) };
        let refusal = |found: &DeValue<'_>| {
            self.wrong(name, value, &format!("expected an array of strings, found {}", found.type_str()))
        };
        let DeValue::Array(elements) = value.get_ref() else { return Err(refusal(value.get_ref())) };
        let string = |element: &'d Spanned<DeValue<'d>>| match element.get_ref() {
            DeValue::String(string) => Ok(string.as_ref()),
            other => Err(refusal(other)),
        };
        elements.iter().map(string).collect()
    }

    pub(super) fn value(&mut self, name: &'static str) -> Option<&'d Spanned<DeValue<'d>>> {
        self.known.insert(name);
        self.table.get(name)
    }

    fn field(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    pub(super) fn wrong(&self, name: &str, value: &Spanned<DeValue<'_>>, reason: &str) -> TaskFileError {
        TaskFileError::new(Some(line_of(self.text, value.span().start)), self.field(name), reason)
    }

    /// Returns an error with the line of the field or, if the field is absent, of the table.
    #[must_use]
    pub fn wrong_field(&self, name: &str, reason: &str) -> TaskFileError {
        match self.table.get(name) {
            Some(value) => self.wrong(name, value, reason),
            None => TaskFileError::new(Some(self.line), self.field(name), reason),
        }
    }

    /// Returns the error of a required field that is absent.
    #[must_use]
    pub fn missing_field(&self, name: &str) -> TaskFileError {
        TaskFileError::new(Some(self.line), self.field(name), "the field is missing")
    }

    /// Returns a string; `None` if the field is absent.
    ///
    /// # Errors
    /// If the value is not a string.
    pub fn string(&mut self, name: &'static str) -> Result<Option<&'d str>, TaskFileError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        match value.get_ref() {
            DeValue::String(string) => Ok(Some(string)),
            other => Err(self.wrong(name, value, &format!("expected a string, found {}", other.type_str()))),
        }
    }

    /// Returns the time of a string such as `"3ms"`; `None` if the field is absent.
    ///
    /// # Errors
    /// If the value is not a time.
    pub fn time(&mut self, name: &'static str) -> Result<Option<Nanos>, TaskFileError> {
        let Some(string) = self.string(name)? else { return Ok(None) };
        parse_time(string).map(Some).map_err(|error| self.wrong_field(name, &error.to_string()))
    }

    /// Returns the value of the choice that the field names; `None` if the field is absent.
    ///
    /// # Errors
    /// If the field names no choice.
    pub fn choice<T: Copy>(&mut self, name: &'static str, choices: &[(&str, T)]) -> Result<Option<T>, TaskFileError> {
        let Some(string) = self.string(name)? else { return Ok(None) };
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let found = choices.iter().find(|(name, _)| *name == string).map(|(_, choice)| *choice);
        found.map(Some).ok_or_else(|| self.wrong_field(name, &format!("expected one of: {}", names.join(", "))))
    }

    /// Returns a number from `least` to `most`; `None` if the field is absent.
    ///
    /// # Errors
    /// If the value is not an integer, or is out of the range.
    pub fn number(&mut self, name: &'static str, least: u32, most: u32) -> Result<Option<u32>, TaskFileError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let DeValue::Integer(integer) = value.get_ref() else {
            let reason = format!("expected an integer, found {}", value.get_ref().type_str());
            return Err(self.wrong(name, value, &reason));
        };
        let number = u32::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.filter(|number| (least..=most).contains(number));
        number.map(Some).ok_or_else(|| self.wrong(name, value, &format!("expected {least} to {most}")))
    }

    /// Checks that each field of the table was read.
    ///
    /// # Errors
    /// If the table has a field that was not read.
    pub fn refuse_unknown_fields(&self) -> Result<(), TaskFileError> {
        match self.table.keys().find(|key| !self.known.contains(key.get_ref().as_ref())) {
            Some(key) => {
                let line = line_of(self.text, key.span().start);
                let shown = printable(key.get_ref());
                let names: Vec<&str> = self.known.iter().copied().collect();
                let reason = format!("there is no such field; there are {}", names.join(", "));
                Err(TaskFileError::new(Some(line), self.field(&shown), reason))
            }
            None => Ok(()),
        }
    }
}

fn printable(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).take(40).collect()
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
