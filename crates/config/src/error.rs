//! The error of a configuration.

use std::error::Error;
use std::fmt;

use crate::value::excerpt;

/// The place of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingSource {
    /// A line of a file.
    File {
        /// Name of the file.
        name: String,
        /// Number of the line, starting at 1.
        line: usize,
    },
    /// The environment variable with this name.
    Environment(String),
    /// The argument with this name, such as `-ORBcallTimeout`.
    Argument(String),
}

impl SettingSource {
    /// Returns the rank of the source. A setting replaces earlier settings of equal or lower rank.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            SettingSource::File { .. } => 0,
            SettingSource::Environment(_) => 1,
            SettingSource::Argument(_) => 2,
        }
    }
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingSource::File { name, line } => write!(f, "{}:{line}", excerpt(name)),
            SettingSource::Environment(name) | SettingSource::Argument(name) => f.write_str(&excerpt(name)),
        }
    }
}

/// The reason why a configuration is refused, with the place of the fault.
///
/// # Examples
/// ```
/// use corelane_config::Configuration;
/// let error = Configuration::new().read_text("shop.toml", "call-timeuot = '3s'").unwrap_err();
/// assert_eq!(error.to_string(), "shop.toml:1: there is no setting `call-timeuot`: the nearest one is `call-timeout`");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigurationError {
    source: Option<SettingSource>,
    reason: String,
}

impl ConfigurationError {
    pub(crate) fn new(source: Option<SettingSource>, reason: impl Into<String>) -> Self {
        ConfigurationError { source, reason: reason.into() }
    }

    /// Returns the place of the fault, if it is known.
    #[must_use]
    pub fn location(&self) -> Option<&SettingSource> {
        self.source.as_ref()
    }

    /// Returns the reason without the place.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for ConfigurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{source}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl Error for ConfigurationError {}
