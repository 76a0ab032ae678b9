//! The settings of a program's configuration, with their sources.

use std::env;
use std::ffi::OsString;
use std::path::Path;

use corelane_config::{Configuration, ConfigurationError, EffectiveSetting, SettingSource};
use serde_json::{Value as Json, json};

use crate::text::printable;

/// Returns true if the word is the path of a program's configuration file. Names of commands have
/// neither dots nor slashes.
pub(super) fn is_file(word: &str) -> bool {
    !word.starts_with('-') && word.contains(['.', '/'])
}

/// Returns the command's words and the `-ORB` options with their values. If no word is the path of
/// a program's file, all words belong to the command.
pub(super) fn split(words: Vec<OsString>) -> (Vec<OsString>, Vec<String>) {
    if !words.iter().any(|word| is_file(&word.to_string_lossy())) {
        return (words, Vec::new());
    }
    let (mut own, mut of_orb) = (Vec::new(), Vec::new());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word.to_string_lossy().starts_with("-ORB") {
            of_orb.extend([word].into_iter().chain(words.next()).map(|word| word.to_string_lossy().into_owned()));
        } else {
            own.push(word);
        }
    }
    (own, of_orb)
}

#[derive(Debug)]
pub(super) struct ProgramSources<'w> {
    pub(super) file: &'w Path,
    pub(super) prefix: Option<String>,
    pub(super) arguments: Vec<String>,
}

impl ProgramSources<'_> {
    fn read(self) -> Result<Vec<EffectiveSetting>, ConfigurationError> {
        let mut configuration = Configuration::new().read_file(self.file)?;
        if let Some(prefix) = self.prefix {
            let variables =
                env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
            configuration = configuration.read_environment(&prefix, variables)?;
        }
        let (configuration, _) = configuration.parse_arguments(self.arguments)?;
        configuration.builder().map(drop)?;
        Ok(configuration.settings())
    }

    pub(super) fn into_text(self) -> Result<String, String> {
        let line = |setting: &EffectiveSetting| {
            let source = match &setting.source {
                None => "default".to_owned(),
                Some(source) => printable(&source.to_string()),
            };
            format!("{}: {} ({source})\n", printable(&setting.key), printable(&setting.value))
        };
        self.read().map(|settings| settings.iter().map(line).collect()).map_err(|error| error.to_string())
    }

    pub(super) fn into_json(self) -> Result<Json, String> {
        let file = self.file.to_string_lossy().into_owned();
        let setting = |setting: &EffectiveSetting| {
            let (source, place) = match &setting.source {
                None => ("default", Json::Null),
                Some(SettingSource::File { line, .. }) => ("file", json!(line)),
                Some(SettingSource::Environment(name)) => ("environment", json!(name)),
                Some(SettingSource::Argument(name)) => ("argument", json!(name)),
                Some(other) => ("other", json!(other.to_string())),
            };
            json!({ "key": setting.key, "value": setting.value, "form": setting.expected_form, "source": source, "place": place })
        };
        let settings = self.read().map_err(|error| error.to_string())?;
        let settings: Vec<Json> = settings.iter().map(setting).collect();
        Ok(json!({ "schema": 1, "file": file, "settings": settings }))
    }
}
