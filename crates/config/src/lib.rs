//! The configuration of a Corelane ORB from outside the program: from a TOML file, the environment
//! and the program's arguments.
//!
//! [`Configuration`] reads the settings, checks them, and makes an
//! [`OrbBuilder`](corelane::OrbBuilder). docs/configuration.md lists the settings.
//!
//! The crate opens the file that it is given, makes no connections and starts no threads.
#![forbid(unsafe_code)]

mod configuration;
mod draft;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod key;
mod schema;
#[cfg(test)]
mod tests;
mod threadpool;
mod toml_file;
mod value;
mod words;

pub use configuration::{Configuration, EffectiveSetting};
pub use error::{ConfigurationError, SettingSource};
pub use threadpool::ConfiguredThreadpool;

/// Tests the examples of the documentation page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/configuration.md")]
mod user_page {}
