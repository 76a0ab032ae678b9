//! References that commands read from words, files and the standard input.

use std::fs::File;
use std::io::{self, Read};

use crate::text::excerpt;

/// Maximum number of bytes that are read, enough for several references of maximum size.
const MAX_INPUT: u64 = 16 << 20;

/// Returns the references that a word names: `@FILE` for the lines of a file, `-` for the lines of
/// the standard input. Any other word is a reference.
pub(crate) fn references(word: &str) -> Result<Vec<String>, String> {
    let read = |name: String, source: &mut dyn Read| {
        let mut text = String::new();
        match source.take(MAX_INPUT + 1).read_to_string(&mut text) {
            Err(error) => Err(format!("{name} cannot be read: {error}")),
            Ok(_) if text.len() as u64 > MAX_INPUT => Err(format!("{name} holds more than {MAX_INPUT} octets")),
            Ok(_) => Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()),
        }
    };
    match word.strip_prefix('@') {
        Some(path) => {
            let name = format!("`{}`", excerpt(path));
            let mut file = File::open(path).map_err(|error| format!("{name} cannot be read: {error}"))?;
            read(name, &mut file)
        }
        None if word == "-" => read("the standard input".to_owned(), &mut io::stdin().lock()),
        None => Ok(vec![word.to_owned()]),
    }
}

/// Returns the one reference of a word.
///
/// # Errors
/// A message for the user, if the file cannot be read, or has no reference or several.
pub(crate) fn reference(word: &str) -> Result<String, String> {
    let mut all = references(word)?;
    match (all.pop(), all.len()) {
        (Some(reference), 0) => Ok(reference),
        (last, others) => {
            let count = others + usize::from(last.is_some());
            Err(format!("`{}` holds {count} references, and one is needed", excerpt(word)))
        }
    }
}
