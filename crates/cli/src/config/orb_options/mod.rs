//! Options of other ORBs, converted to settings of programs or to options of the commands.
//!
//! This module reads no files and uses no other module of the program, so that a fuzz target can
//! include it. Its work and memory are linear in the size of the text.

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ImportTarget {
    #[default]
    Programs,
    Commands,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeignOrb {
    /// The names of omniORB's options are case-sensitive.
    OmniOrb,
    /// The names of TAO's options are not case-sensitive.
    Tao,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) source: usize,
    /// Number of the line or word, starting at 1.
    pub(crate) line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) place: Place,
    /// The beginning of the option, which is untrusted text.
    pub(crate) option: String,
    pub(crate) reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// Number of the line or word, starting at 1.
    pub(crate) line: usize,
    /// Untrusted text.
    pub(crate) text: String,
    pub(crate) reason: &'static str,
}

impl Malformed {
    fn new(line: usize, text: impl Into<String>, reason: &'static str) -> Self {
        Malformed { line, text: text.into(), reason }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Malformed(&'static str),
    /// The value is valid, but Corelane has no counterpart.
    NoCounterpart(&'static str),
}

#[derive(Debug)]
struct Sourced<T = String> {
    place: Place,
    shown: String,
    value: T,
}

#[derive(Debug, Default)]
pub(crate) struct Imported {
    target: ImportTarget,
    program: ProgramSettings,
    name_server: Option<Sourced>,
    /// The default initial reference, which is used if no initial reference `NameService` is set.
    default_reference: Option<Sourced>,
    call_timeout_ms: Option<Sourced<u64>>,
    listen: Vec<ListeningAddress>,
    publish: Vec<String>,
    left_out: Vec<LeftOut>,
}

impl Imported {
    pub(crate) fn new(target: ImportTarget) -> Self {
        Imported { target, ..Imported::default() }
    }

    /// Converts the options in a text. If `orb` is `None`, the first line that is not a comment
    /// determines the format.
    ///
    /// # Errors
    /// [`Malformed`], if the text is not a configuration or has an invalid value.
    pub(crate) fn read_text(&mut self, source: usize, text: &str, orb: Option<ForeignOrb>) -> Result<(), Malformed> {
        let (orb, options) = formats::parse(text, orb)?;
        self.take(source, options, orb)
    }

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

    pub(crate) fn finish(&mut self) {
        self.finish_program();
        match self.default_reference.take() {
            Some(unused) if self.name_server.is_some() => {
                self.leave_out(unused.place, &unused.shown, "the initial reference NameService has a text of its own");
            }
            default => self.name_server = self.name_server.take().or(default),
        }
        // `publish` replaces the addresses of all listeners, so each listener must have an address
        // to publish.
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

    pub(crate) fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

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

fn seconds(milliseconds: u64) -> String {
    match (milliseconds / 1000, milliseconds % 1000) {
        (whole, 0) => whole.to_string(),
        (whole, rest) => format!("{whole}.{rest:03}").trim_end_matches('0').to_owned(),
    }
}

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
