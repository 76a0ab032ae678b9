//! A configuration: the settings of all sources, and the ORB builder that they make.

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use corelane::rt::{Protocol, RtConfig};
use corelane::{Limits, OrbBuilder, PoolConfig};

use crate::draft::{CheckedDraft, Contradiction, Draft};
use crate::error::{ConfigurationError, SettingSource};
use crate::key::Key;
use crate::schema::{self, SetError};
use crate::threadpool::ConfiguredThreadpool;
use crate::value::{RawValue, excerpt};
use crate::{toml_file, words};

const MAX_FILE: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) key: Key,
    pub(crate) value: RawValue,
    pub(crate) source: SettingSource,
}

/// A setting with its value and its source ([`Configuration::settings`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EffectiveSetting {
    /// The key, such as `pool.sensors.threads`.
    pub key: String,
    /// The value, or the default if no source sets one. The text is untrusted.
    pub value: String,
    /// The place that sets the value; `None` for the default.
    pub source: Option<SettingSource>,
    /// The form of values, such as `duration`.
    pub expected_form: &'static str,
}

/// The settings of an ORB from a file, the environment and a program's arguments.
///
/// A setting of the arguments replaces a setting of the environment, which replaces a setting of
/// the file. Values that the program sets on the [builder](Self::builder) replace the settings of
/// all sources.
///
/// # Examples
/// ```
/// use corelane_config::Configuration;
///
/// let text = "call-timeout = '3s'\nlisten = 'tcp:127.0.0.1:0'\n[pool.sensors]\nthreads = 2\n";
/// let words = ["-ORBpool.sensors.threads", "8", "--verbose"].map(String::from);
/// let (configuration, rest) = Configuration::new().read_text("shop.toml", text)?.parse_arguments(words)?;
/// let orb = configuration.builder()?.build()?;
/// # drop(orb);
/// assert_eq!(rest, ["--verbose"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    settings: Vec<Setting>,
    places: BTreeMap<Key, usize>,
    of_orb: Vec<String>,
}

impl Configuration {
    /// Makes a configuration without settings.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the settings of this process: from a file, from environment variables that begin with
    /// `prefix` and `_`, and from `arguments`. Returns the configuration and the arguments that are
    /// not settings.
    ///
    /// The argument `-ORBconfig` or, without it, the variable `PREFIX_CONFIG` names the file.
    /// Without both, no file is read.
    ///
    /// # Errors
    /// If the file cannot be read, if a variable that begins with `prefix` is not UTF-8, and for
    /// settings that are unknown, invalid or contradictory.
    pub fn load(
        prefix: &str,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<(Self, Vec<String>), ConfigurationError> {
        let arguments: Vec<String> = arguments.into_iter().collect();
        let mut configuration = Self::new();
        let variable = format!("{prefix}_{}", words::FILE_VARIABLE);
        let file = words::file_of(&arguments)?.map(Into::into).or_else(|| env::var_os(&variable));
        if let Some(file) = file {
            configuration = configuration.read_file(Path::new(&file))?;
        }
        let mut variables = Vec::new();
        for (name, value) in env::vars_os() {
            let Ok(name) = name.into_string() else { continue };
            if !name.starts_with(prefix) || name == variable {
                continue;
            }
            let value = value
                .into_string()
                .map_err(|_| ConfigurationError::new(Some(SettingSource::Environment(name.clone())), "is not UTF-8"))?;
            variables.push((name, value));
        }
        let (configuration, rest) = configuration.read_environment(prefix, variables)?.parse_arguments(arguments)?;
        configuration.checked()?;
        Ok((configuration, rest))
    }

    /// Adds the settings of a file.
    ///
    /// # Errors
    /// If the file cannot be read or is larger than 1 MiB, and as for
    /// [`read_text`](Self::read_text).
    pub fn read_file(self, path: &Path) -> Result<Self, ConfigurationError> {
        let name = path.to_string_lossy();
        let refusal = |reason: String| ConfigurationError::new(None, format!("{}: {reason}", excerpt(&name)));
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
        match read {
            Err(error) => Err(refusal(format!("cannot be read: {error}"))),
            Ok(length) if length as u64 > MAX_FILE => Err(refusal(format!("has more than {MAX_FILE} octets"))),
            Ok(_) => self.read_text(&name, &text),
        }
    }

    /// Adds the settings of a text in the form of a file. `name` is the name of the file in
    /// messages.
    ///
    /// # Errors
    /// If the text is not TOML, or a setting is unknown or invalid.
    pub fn read_text(self, name: &str, text: &str) -> Result<Self, ConfigurationError> {
        let settings = toml_file::read(name, text)?;
        self.with(settings)
    }

    /// Adds the settings of environment variables. The name of a variable is `prefix`, `_` and the
    /// key in capital letters with `_` for dots and hyphens, such as `SHOP_ORB_CALL_TIMEOUT`. Lists
    /// have spaces between their elements. A variable of a pool, a lane or a connection is known
    /// only if an earlier setting has the name of this pool, lane or connection.
    ///
    /// # Errors
    /// For variables that begin with `prefix` and `_` and name no setting or two settings, and for
    /// invalid values.
    pub fn read_environment(
        self,
        prefix: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigurationError> {
        let settings = words::of_environment(prefix, variables, &self.settings)?;
        self.with(settings)
    }

    /// Adds the settings of a program's arguments, and returns the arguments that are not settings.
    /// The name of an argument is `-ORB` and the key without hyphens, such as `-ORBcallTimeout`;
    /// upper and lower case of the key do not matter. The value is the next argument. If the
    /// argument of a list is repeated, its elements are added to the list.
    ///
    /// The options of [`OrbBuilder::parse_arguments`], such as `-ORBInitRef`, are stored for the
    /// builder. `-ORBconfig` is ignored.
    ///
    /// # Errors
    /// For arguments that begin with `-ORB` and are not settings or lack a value, and for invalid
    /// values.
    pub fn parse_arguments(
        self,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<(Self, Vec<String>), ConfigurationError> {
        let split = words::of_arguments(arguments, &self.settings)?;
        let taken = corelane::Orb::builder().parse_arguments(split.of_orb.iter().cloned());
        taken.map(drop).map_err(|error| ConfigurationError::new(None, error.to_string()))?;
        let mut configuration = self.with(split.settings)?;
        configuration.of_orb.extend(split.of_orb);
        Ok((configuration, split.rest))
    }

    fn with(mut self, settings: Vec<Setting>) -> Result<Self, ConfigurationError> {
        for setting in settings {
            let Some(place) = self.places.get(&setting.key) else {
                self.places.insert(setting.key.clone(), self.settings.len());
                self.settings.push(setting);
                continue;
            };
            let old = &mut self.settings[*place];
            let is_list = || schema::find(&setting.key.parts()).is_some_and(|known| known.is_list());
            match (&mut old.value, &setting) {
                (_, new) if new.source.rank() < old.source.rank() => {}
                (RawValue::Words(words), Setting { value: RawValue::Words(more), .. })
                    if matches!(old.source, SettingSource::Argument(_)) && is_list() =>
                {
                    words.push(' ');
                    words.push_str(more);
                }
                _ => *old = setting,
            }
        }
        self.apply(Draft::default())?;
        Ok(self)
    }

    fn apply(&self, mut draft: Draft) -> Result<Draft, ConfigurationError> {
        for setting in &self.settings {
            let key = setting.key.parts();
            schema::set(&mut draft, &key, &setting.value).map_err(|error| {
                let reason = match error {
                    SetError::Invalid(reason) => format!("`{}` {reason}", setting.key),
                    SetError::UnknownSetting | SetError::UnknownSection if schema::leads_to_section(&key) => {
                        format!("`{}` is a section and not a setting", setting.key)
                    }
                    SetError::UnknownSetting | SetError::UnknownSection => {
                        let (name, above) = key.split_last().unwrap_or((&"", &[]));
                        let nearest = schema::nearest(name, schema::names_below(above));
                        let nearest = nearest.map(|known| format!(": the nearest one is `{known}`"));
                        format!("there is no setting `{}`{}", setting.key, nearest.unwrap_or_default())
                    }
                };
                ConfigurationError::new(Some(setting.source.clone()), reason)
            })?;
        }
        Ok(draft)
    }

    fn checked(&self) -> Result<CheckedDraft, ConfigurationError> {
        self.finish(Draft::default())
    }

    fn finish(&self, draft: Draft) -> Result<CheckedDraft, ConfigurationError> {
        self.apply(draft)?.finish().map_err(|Contradiction { key, reason }| {
            let is_meant =
                |text: String| text.strip_prefix(&key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            let setting = self.settings.iter().find(|setting| is_meant(setting.key.to_string()));
            ConfigurationError::new(setting.map(|setting| setting.source.clone()), format!("`{key}` {reason}"))
        })
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn number_of_settings(&self) -> usize {
        self.settings.len()
    }

    /// Makes a builder with the settings. The setters of the builder replace settings.
    ///
    /// # Errors
    /// If settings contradict each other.
    pub fn builder(&self) -> Result<OrbBuilder, ConfigurationError> {
        self.with_orb_arguments(self.checked()?)
    }

    /// Makes a builder for a program whose only pool is `pool`. The section `pool.NAME` of the
    /// pool's name changes its limits, addresses and policies. No setting can change the dispatch
    /// architecture or the number of threads of this pool.
    ///
    /// # Errors
    /// As for [`builder`](Self::builder), and for settings of the pool's threads and of other
    /// pools.
    ///
    /// # Examples
    /// ```
    /// use corelane::PoolConfig;
    /// use corelane_config::Configuration;
    /// let text = "[pool.shop.connections]\nmax-connections = 100";
    /// let configuration = Configuration::new().read_text("shop.toml", text)?;
    /// let orb = configuration.builder_with_pool(PoolConfig::default().name("shop"))?.build()?;
    /// # drop(orb);
    /// assert!(configuration.builder_with_pool(PoolConfig::default().name("other")).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder_with_pool(&self, pool: PoolConfig) -> Result<OrbBuilder, ConfigurationError> {
        self.with_orb_arguments(self.finish(Draft::with_fixed_pool(pool))?)
    }

    fn with_orb_arguments(&self, checked: CheckedDraft) -> Result<OrbBuilder, ConfigurationError> {
        let taken = checked.builder.parse_arguments(self.of_orb.iter().cloned());
        taken.map(|(builder, _)| builder).map_err(|error| ConfigurationError::new(None, error.to_string()))
    }

    /// Returns true if a source has a setting `listen` or `pool.NAME.listen`.
    #[must_use]
    pub fn has_address(&self) -> bool {
        let is_address = |setting: &Setting| matches!(setting.key.parts()[..], ["listen"] | ["pool", _, "listen"]);
        self.settings.iter().any(is_address)
    }

    /// Returns the limits, for programs that change some of them with [`OrbBuilder::limits`].
    ///
    /// # Errors
    /// As for [`builder`](Self::builder).
    pub fn limits(&self) -> Result<Limits, ConfigurationError> {
        self.checked().map(|checked| checked.limits)
    }

    /// Returns the real-time configuration, for programs that change a part of it with
    /// [`OrbBuilder::real_time`].
    ///
    /// # Errors
    /// As for [`builder`](Self::builder).
    pub fn real_time(&self) -> Result<RtConfig, ConfigurationError> {
        self.checked().map(|checked| checked.real_time)
    }

    /// Returns the protocols of `real-time.server-protocols` with their properties, for
    /// [`RtPolicies::server_protocols`](corelane::rt::RtPolicies::server_protocols).
    ///
    /// # Errors
    /// As for [`builder`](Self::builder).
    pub fn server_protocols(&self) -> Result<Vec<Protocol>, ConfigurationError> {
        self.checked().map(|checked| checked.server_protocols)
    }

    /// Returns the pool of a section `real-time.pool.NAME`; `None` if there is none, or if
    /// [`builder`](Self::builder) would fail.
    #[must_use]
    pub fn threadpool(&self, name: &str) -> Option<ConfiguredThreadpool> {
        let pools = self.checked().ok()?.threadpools;
        pools.into_iter().find(|(known, _)| known == name).map(|(_, pool)| pool)
    }

    /// Returns all settings with their values and sources. Pools, lanes and connections that no
    /// source names are left out.
    ///
    /// # Examples
    /// ```
    /// use corelane_config::Configuration;
    /// let configuration = Configuration::new().read_text("shop.toml", "call-timeout = '3s'")?;
    /// let shown = configuration.settings();
    /// let find = |key: &str| shown.iter().find(|setting| setting.key == key).map(|setting| setting.value.as_str());
    /// assert_eq!((find("call-timeout"), find("connect-timeout")), (Some("3s"), Some("10s")));
    /// # Ok::<(), corelane_config::ConfigurationError>(())
    /// ```
    #[must_use]
    pub fn settings(&self) -> Vec<EffectiveSetting> {
        let references = self.settings.iter().map(|setting| &setting.key);
        let references = references.filter(|key| key.parts().first() == Some(&schema::INITIAL_REFERENCES));
        let keys: Vec<Key> = references.cloned().chain(words::known_keys(&self.settings)).collect();
        let shown = |key: Key| {
            let known = schema::find(&key.parts());
            let set = self.places.get(&key).map(|place| &self.settings[*place]);
            let default = known.map(|known| known.default).unwrap_or_default();
            EffectiveSetting {
                key: key.to_string(),
                value: set.map_or_else(|| default.to_owned(), |setting| setting.value.to_string()),
                source: set.map(|setting| setting.source.clone()),
                expected_form: known.map_or("reference", |known| known.form),
            }
        };
        keys.into_iter().map(shown).collect()
    }
}
