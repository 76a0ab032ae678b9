//! Keys of settings, and their forms in variables and arguments.

use std::fmt;

/// The parts of a setting's path, such as `pool`, `sensors` and `threads`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(Vec<String>);

impl Key {
    pub(crate) fn new<'p>(parts: impl IntoIterator<Item = &'p str>) -> Self {
        Key(parts.into_iter().map(str::to_owned).collect())
    }

    pub(crate) fn parts(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }

    /// Returns the form of variables without their prefix, such as `POOL_SENSORS_THREADS`.
    pub(crate) fn variable(&self) -> String {
        self.0.join("_").to_uppercase().replace('-', "_")
    }

    /// Returns the form of arguments without `-ORB`, such as `pool.sensors.maxThreads`.
    pub(crate) fn argument(&self) -> String {
        let mut text = String::new();
        let mut is_after_hyphen = false;
        for character in self.0.join(".").chars() {
            match character {
                '-' => is_after_hyphen = true,
                letter if is_after_hyphen => {
                    text.push(letter.to_ascii_uppercase());
                    is_after_hyphen = false;
                }
                other => text.push(other),
            }
        }
        text
    }

    /// Returns true if `name` is the name of an argument for this key. Hyphens, and upper and lower
    /// case, do not matter.
    pub(crate) fn is_argument(&self, name: &str) -> bool {
        let letters = |text: &str| text.replace('-', "").to_ascii_lowercase();
        letters(name) == letters(&self.0.join("."))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "." };
            let is_bare = part.chars().all(|character| character.is_ascii_alphanumeric() || "-_".contains(character));
            let part = crate::value::excerpt(part);
            if is_bare { write!(f, "{separator}{part}")? } else { write!(f, "{separator}\"{part}\"")? }
        }
        Ok(())
    }
}
