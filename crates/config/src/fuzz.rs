//! The fuzz target of configurations.

use crate::{Configuration, ConfigurationError};

const MAX_MESSAGE: usize = 2000;

/// Reads a file and, after a NUL, lines of the environment (`NAME=VALUE`) and of arguments: an
/// argument begins with `-` or has no `=`, and the next line is the value of the argument.
///
/// # Panics
/// If a message is longer than 2000 bytes, contains an escape character, or names a line that the
/// file does not have, or if an accepted configuration is shown without its settings.
pub fn configuration(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (file, words) = text.split_once('\0').unwrap_or((&text, ""));
    let lines = file.split('\n').count();
    let check = |error: &ConfigurationError| {
        let message = error.to_string();
        assert!(message.len() <= MAX_MESSAGE && !message.contains('\u{1b}'), "{message}");
        if let Some(crate::SettingSource::File { line, .. }) = error.location() {
            assert!((1..=lines).contains(line), "{message}");
        }
    };
    let (mut variables, mut arguments) = (Vec::new(), Vec::new());
    let mut lines_of_words = words.lines();
    while let Some(line) = lines_of_words.next() {
        match line.split_once('=').filter(|_| !line.starts_with('-')) {
            Some((name, value)) => variables.push((format!("X_{name}"), value.to_owned())),
            None => arguments.extend([line].into_iter().chain(lines_of_words.next()).map(str::to_owned)),
        }
    }
    let read = Configuration::new()
        .read_text("file", file)
        .and_then(|read| read.read_environment("X", variables))
        .and_then(|read| read.parse_arguments(arguments));
    match read {
        Err(error) => check(&error),
        Ok((configuration, _)) => {
            let set = configuration.settings().iter().filter(|setting| setting.source.is_some()).count();
            assert_eq!(set, configuration.number_of_settings());
            if let Err(error) = configuration.builder() {
                check(&error);
            }
        }
    }
}
