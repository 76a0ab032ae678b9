//! The settings of a TOML file.

use toml::de::{DeTable, DeValue};

use crate::configuration::Setting;
use crate::error::{ConfigurationError, SettingSource};
use crate::key::Key;
use crate::schema;
use crate::value::{Converted, RawValue, excerpt};

/// Maximum depth of lists in a value: a list of lists.
const MAX_DEPTH: usize = 2;

const MAX_NAMES: usize = 1000;

struct Reader<'t> {
    name: &'t str,
    lines: Vec<usize>,
    settings: Vec<Setting>,
    names: usize,
}

/// Returns the settings of a text, in the order of the text.
///
/// # Errors
/// If the text is not TOML, has an unknown section, an invalid name or too many names, or a value
/// of a type that no setting has.
pub(crate) fn read(name: &str, text: &str) -> Result<Vec<Setting>, ConfigurationError> {
    let starts = text.bytes().enumerate().filter(|(_, octet)| *octet == b'\n').map(|(at, _)| at + 1);
    let mut reader = Reader { name, lines: std::iter::once(0).chain(starts).collect(), settings: Vec::new(), names: 0 };
    let table = DeTable::parse(text).map_err(|error| {
        let source = error.span().map(|span| reader.source(span.start));
        ConfigurationError::new(source, excerpt(error.message()))
    })?;
    reader.take_table(table.get_ref(), &[])?;
    Ok(reader.settings)
}

impl Reader<'_> {
    fn source(&self, at: usize) -> SettingSource {
        let line = self.lines.partition_point(|start| *start <= at);
        SettingSource::File { name: self.name.to_owned(), line }
    }

    fn take_table(&mut self, table: &DeTable<'_>, path: &[&str]) -> Result<(), ConfigurationError> {
        // The order of the file decides which pool is the first.
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let source = self.source(key.span().start);
            let name: &str = key.get_ref();
            let below: Vec<&str> = path.iter().copied().chain([name]).collect();
            match value.get_ref() {
                DeValue::Table(table) => {
                    self.names += usize::from(schema::ends_with_name(&below));
                    if self.names > MAX_NAMES {
                        let reason = format!("there are more than {MAX_NAMES} pools, lanes and connections");
                        return Err(ConfigurationError::new(Some(source), reason));
                    }
                    check_section(&below).map_err(|reason| ConfigurationError::new(Some(source), reason))?;
                    self.take_table(table, &below)?;
                }
                value => {
                    let refusal = |reason: String| ConfigurationError::new(Some(source.clone()), reason);
                    let value =
                        raw(value, MAX_DEPTH).map_err(|reason| refusal(format!("`{}` {reason}", excerpt(name))))?;
                    self.settings.push(Setting { key: Key::new(below), value, source });
                }
            }
        }
        Ok(())
    }
}

fn check_section(path: &[&str]) -> Result<(), String> {
    let Some((name, above)) = path.split_last() else { return Ok(()) };
    if !schema::leads_to_section(path) {
        let sections = schema::names_below(above)
            .into_iter()
            .filter(|known| schema::leads_to_section(&above.iter().copied().chain([*known]).collect::<Vec<_>>()));
        return Err(format!("there is no section {}", schema::unknown(name, sections)));
    }
    if schema::ends_with_name(path) && !schema::is_name(name) {
        return Err(format!("a name has small letters, digits and hyphens, not `{}`", excerpt(name)));
    }
    Ok(())
}

fn raw(value: &DeValue<'_>, depth: usize) -> Converted<RawValue> {
    match value {
        DeValue::String(text) => Ok(RawValue::Text(text.to_string())),
        DeValue::Integer(number) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            parsed.map(RawValue::Integer).map_err(|_| "is too large a number".to_owned())
        }
        DeValue::Boolean(value) => Ok(RawValue::Boolean(*value)),
        DeValue::Array(values) if depth > 0 => {
            let values = values.iter().map(|value| raw(value.get_ref(), depth - 1));
            Ok(RawValue::List(values.collect::<Result<_, _>>()?))
        }
        DeValue::Float(_) => {
            Err("is a number with a fraction: write a text with its unit, such as \"1.5s\"".to_owned())
        }
        DeValue::Datetime(_) => Err("is a date".to_owned()),
        DeValue::Array(_) => Err("has lists inside of lists".to_owned()),
        DeValue::Table(_) => Err("has a table inside of a list: a section has a name, as in [pool.NAME]".to_owned()),
    }
}
