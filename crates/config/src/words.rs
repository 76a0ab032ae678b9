//! The settings of the environment and of a program's arguments.

use std::collections::BTreeSet;

use crate::configuration::Setting;
use crate::error::{ConfigurationError, SettingSource};
use crate::key::Key;
use crate::schema::{self, INITIAL_REFERENCES, SECTIONS};
use crate::value::{RawValue, excerpt};

/// Suffix, after the prefix and `_`, of the variable that contains the path of the file.
pub(crate) const FILE_VARIABLE: &str = "CONFIG";
pub(crate) const FILE_ARGUMENT: &str = "-ORBconfig";
const OF_ORB: [&str; 3] = ["-ORBInitRef", "-ORBDefaultInitRef", "-ORBid"];

/// Returns the keys of all settings, with the names that `settings` have for pools, lanes and
/// connections.
pub(crate) fn known_keys(settings: &[Setting]) -> Vec<Key> {
    let mut keys = Vec::new();
    for section in SECTIONS {
        for path in concrete(section.path, settings) {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            keys.extend((section.settings)().iter().map(|one| Key::new(path.iter().copied().chain([one.name]))));
        }
    }
    keys
}

fn concrete(section: &str, settings: &[Setting]) -> Vec<Vec<String>> {
    let parts: Vec<&str> = section.split('.').filter(|part| !part.is_empty()).collect();
    let Some(last_name) = parts.iter().rposition(|part| *part == "*") else {
        return vec![parts.iter().map(|part| (*part).to_owned()).collect()];
    };
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for setting in settings {
        let key = setting.key.parts();
        let fits = key.len() > last_name + 1
            && parts[..=last_name].iter().zip(&key).all(|(part, name)| *part == "*" || part == name);
        if fits {
            let names = key[..=last_name].iter().chain(&parts[last_name + 1..]);
            found.insert(names.map(|part| (*part).to_owned()).collect());
        }
    }
    found.into_iter().collect()
}

pub(crate) fn of_environment(
    prefix: &str,
    variables: impl IntoIterator<Item = (String, String)>,
    settings: &[Setting],
) -> Result<Vec<Setting>, ConfigurationError> {
    let keys: Vec<(String, Key)> = known_keys(settings).into_iter().map(|key| (key.variable(), key)).collect();
    let mut found = Vec::new();
    let references = INITIAL_REFERENCES.to_uppercase().replace('-', "_");
    for (variable, value) in variables {
        let Some(name) = variable.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')) else { continue };
        let source = SettingSource::Environment(variable.clone());
        if name == FILE_VARIABLE {
            continue;
        }
        if name == references {
            found.extend(initial_references(&value, &source)?);
            continue;
        }
        let mut with_name = keys.iter().filter(|(known, _)| known == name);
        let key = with_name.next().map(|(_, key)| key);
        if let (Some(key), Some((_, other))) = (key, with_name.next()) {
            return Err(ConfigurationError::new(Some(source), format!("is `{key}` and `{other}`: rename one of them")));
        }
        let Some(key) = key else {
            let known = keys.iter().map(|(known, _)| known.as_str()).chain([FILE_VARIABLE, references.as_str()]);
            let nearest = schema::nearest(name, known).map(|known| format!(": the nearest one is `{prefix}_{known}`"));
            let reason = format!("there is no such setting{}", nearest.unwrap_or_default());
            return Err(ConfigurationError::new(Some(source), reason));
        };
        found.push(Setting { key: key.clone(), value: RawValue::Words(value), source });
    }
    Ok(found)
}

fn initial_references(words: &str, source: &SettingSource) -> Result<Vec<Setting>, ConfigurationError> {
    let setting = |word: &str| {
        let (name, text) = word.split_once('=').ok_or_else(|| {
            let reason = format!("is a list of NAME=REFERENCE, not `{}`", excerpt(word));
            ConfigurationError::new(Some(source.clone()), reason)
        })?;
        let key = Key::new([INITIAL_REFERENCES, name]);
        Ok(Setting { key, value: RawValue::Words(text.to_owned()), source: source.clone() })
    };
    words.split_whitespace().map(setting).collect()
}

#[derive(Debug, Default)]
pub(crate) struct SplitArguments {
    pub(crate) settings: Vec<Setting>,
    pub(crate) of_orb: Vec<String>,
    pub(crate) rest: Vec<String>,
}

pub(crate) fn file_of(arguments: &[String]) -> Result<Option<&String>, ConfigurationError> {
    let Some(at) = arguments.iter().position(|word| word == FILE_ARGUMENT) else { return Ok(None) };
    arguments.get(at + 1).map(Some).ok_or_else(|| without_value(FILE_ARGUMENT))
}

fn without_value(word: &str) -> ConfigurationError {
    ConfigurationError::new(Some(SettingSource::Argument(word.to_owned())), "lacks its value")
}

pub(crate) fn of_arguments(
    arguments: impl IntoIterator<Item = String>,
    settings: &[Setting],
) -> Result<SplitArguments, ConfigurationError> {
    let mut split = SplitArguments::default();
    let mut keys = None;
    let mut arguments = arguments.into_iter();
    while let Some(word) = arguments.next() {
        let Some(name) = word.strip_prefix("-ORB") else {
            split.rest.push(word);
            continue;
        };
        let value = arguments.next().ok_or_else(|| without_value(&word))?;
        if OF_ORB.contains(&word.as_str()) {
            split.of_orb.extend([word, value]);
            continue;
        }
        if word == FILE_ARGUMENT {
            continue;
        }
        let source = SettingSource::Argument(word.clone());
        let keys = keys.get_or_insert_with(|| known_keys(settings));
        let Some(key) = keys.iter().find(|key| key.is_argument(name)) else {
            let known: Vec<String> = keys.iter().map(Key::argument).collect();
            let own = OF_ORB.into_iter().chain([FILE_ARGUMENT]).filter_map(|word| word.strip_prefix("-ORB"));
            let nearest = schema::nearest(name, known.iter().map(String::as_str).chain(own));
            let nearest = nearest.map(|known| format!(": the nearest one is `-ORB{known}`")).unwrap_or_default();
            return Err(ConfigurationError::new(Some(source), format!("there is no such setting{nearest}")));
        };
        split.settings.push(Setting { key: key.clone(), value: RawValue::Words(value), source });
    }
    Ok(split)
}
