//! Options of other ORBs, converted to settings of programs or to options of the commands.
//!
//! The options come from omniORB's configuration file, TAO's `svc.conf`, or a list of `-ORB`
//! options. This module reads no files and uses no other module of the program, so that a fuzz
//! target can include it. Its work and its memory are linear in the size of the text.

mod endpoints;
mod formats;
mod mapping;
mod programs;
#[cfg(test)]
mod tests;

use self::endpoints::ListeningAddress;
pub(crate) use self::formats::takes_value;
use self::formats::{OptionContent, OrbOption};
use self::programs::ProgramSettings;

/// The reader of the file that an import prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ImportTarget {
    /// A program with a configuration.
    #[default]
    Programs,
    /// The commands.
    Commands,
}

/// An ORB with a configuration of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeignOrb {
    /// omniORB. The names of its options are case-sensitive.
    OmniOrb,
    /// TAO. The names of its options are not case-sensitive.
    Tao,
}

/// The place of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Number of the source, in the order in which sources are read.
    pub(crate) source: usize,
    /// Number of the line in a file, or of the word in a list of words, starting at 1.
    pub(crate) line: usize,
}

/// An option that is not carried over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Where the option is.
    pub(crate) place: Place,
    /// The beginning of the option as it is written. Untrusted text.
    pub(crate) option: String,
    /// Why the option is not carried over.
    pub(crate) reason: String,
}

/// The reason why a text is not a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// Number of the line or word, starting at 1.
    pub(crate) line: usize,
    /// The malformed text. Untrusted.
    pub(crate) text: String,
    /// The reason why the text is malformed.
    pub(crate) reason: &'static str,
}

impl Malformed {
    fn new(line: usize, text: impl Into<String>, reason: &'static str) -> Self {
        Malformed { line, text: text.into(), reason }
    }
}

/// The reason why a value is not carried over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The value has no valid form.
    Malformed(&'static str),
    /// The form is valid, and Corelane has nothing like it.
    NoCounterpart(&'static str),
}

/// A value that is carried over, and the option that has it.
#[derive(Debug)]
struct Sourced<T = String> {
    place: Place,
    /// The option as it is written.
    shown: String,
    value: T,
}

/// The settings and options that correspond to the options read so far.
#[derive(Debug, Default)]
pub(crate) struct Imported {
    target: ImportTarget,
    program: ProgramSettings,
    /// Reference of the name server.
    name_server: Option<Sourced>,
    /// Reference of the name server, used only if no initial reference `NameService` is set.
    default_reference: Option<Sourced>,
    /// Time-out of a call in milliseconds.
    call_timeout_ms: Option<Sourced<u64>>,
    listen: Vec<ListeningAddress>,
    publish: Vec<String>,
    left_out: Vec<LeftOut>,
}

impl Imported {
    /// Makes an import without options.
    pub(crate) fn new(target: ImportTarget) -> Self {
        Imported { target, ..Imported::default() }
    }

    /// Adds the options in the text of a file. Without `orb`, the first line that is no comment
    /// determines the format.
    ///
    /// # Errors
    /// [`Malformed`], if the text is not a configuration, or a value that would be carried over is
    /// not valid.
    pub(crate) fn take_text(&mut self, source: usize, text: &str, orb: Option<ForeignOrb>) -> Result<(), Malformed> {
        let (orb, options) = formats::parse(text, orb)?;
        self.take(source, options, orb)
    }

    /// Adds the options in the words of a command line.
    ///
    /// # Errors
    /// As for [`take_text`](Self::take_text).
    pub(crate) fn take_words(
        &mut self,
        source: usize,
        words: Vec<(usize, String)>,
        orb: Option<ForeignOrb>,
    ) -> Result<(), Malformed> {
        self.take(source, formats::options_of_words(words)?, orb)
    }

    fn take(&mut self, source: usize, options: Vec<OrbOption>, orb: Option<ForeignOrb>) -> Result<(), Malformed> {
        for option in options {
            let place = Place { source, line: option.line };
            match &option.content {
                OptionContent::Other(reason) => self.leave_out(place, &option.shown, *reason),
                OptionContent::Option { name, value } => {
                    let counterpart = mapping::find(name, orb, option.service.as_deref());
                    let value = value.as_deref().unwrap_or_default();
                    match self.target {
                        ImportTarget::Commands => self.apply(place, &option.shown, value, counterpart)?,
                        ImportTarget::Programs => {
                            self.apply_to_program(place, &option.shown, (name, value), counterpart)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, place: Place, option: &str, reason: impl Into<String>) {
        self.left_out.push(LeftOut { place, option: option.to_owned(), reason: reason.into() });
    }

    /// Completes the import after all sources have been read.
    pub(crate) fn finish(&mut self) {
        self.finish_program();
        match self.default_reference.take() {
            Some(unused) if self.name_server.is_some() => {
                self.leave_out(unused.place, &unused.shown, "the initial reference NameService has a text of its own");
            }
            default => self.name_server = self.name_server.take().or(default),
        }
        // `publish` replaces the addresses of all listeners, so it is set only if each listener has
        // an address to publish.
        let mut published: Vec<String> = self.listen.iter().filter_map(|one| one.published.clone()).collect();
        if published.len() == self.listen.len() {
            self.publish.append(&mut published);
        } else {
            let listen = std::mem::take(&mut self.listen);
            for one in listen.iter().filter(|one| one.published.is_some()) {
                let reason = "`publish` replaces all addresses, and another endpoint has no hostname_in_ior";
                self.leave_out(one.place, &one.shown, reason);
            }
            self.listen = listen;
        }
        self.left_out.sort_by_key(|one| one.place);
    }

    /// Returns the options that are not carried over, in their order.
    pub(crate) fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Returns the content of the configuration file.
    pub(crate) fn to_toml(&self) -> String {
        if self.target == ImportTarget::Programs {
            return self.program_toml();
        }
        let mut naming = Vec::new();
        let mut tables = String::new();
        if let Some(milliseconds) = &self.call_timeout_ms {
            let line = format!("timeout = {}\n", seconds(milliseconds.value));
            tables += &format!("\n[call]\n{line}");
            naming.push(line);
        }
        if let Some(reference) = &self.name_server {
            naming.insert(0, format!("at = {}\n", quoted(&reference.value)));
        }
        if !naming.is_empty() {
            tables += &format!("\n[naming]\n{}", naming.concat());
        }
        let listen: Vec<&str> = self.listen.iter().map(|one| one.address.as_str()).collect();
        let publish: Vec<&str> = self.publish.iter().map(String::as_str).collect();
        let lists: String = [("listen", listen), ("publish", publish)]
            .into_iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(name, values)| {
                let values: Vec<String> = values.into_iter().map(quoted).collect();
                format!("{name} = [{}]\n", values.join(", "))
            })
            .collect();
        if !lists.is_empty() {
            tables += &format!("\n[naming.serve]\n{lists}");
        }
        tables
    }
}

/// Formats milliseconds as a number of seconds.
fn seconds(milliseconds: u64) -> String {
    match (milliseconds / 1000, milliseconds % 1000) {
        (whole, 0) => whole.to_string(),
        (whole, rest) => format!("{whole}.{rest:03}").trim_end_matches('0').to_owned(),
    }
}

/// Formats a text as a string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(control))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
