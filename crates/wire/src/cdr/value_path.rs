//! The path to the part of a value where reading or writing failed: member names and element
//! indices.
//!
//! Functions add their steps while they return the error, so the innermost step comes first.

use std::fmt::{self, Write as _};

const MAX_STEPS: usize = 32;
const MAX_INNERMOST: usize = 16;
const MAX_TEXT: usize = 1024;

/// One step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// A member, by its name.
    Member(&'static str),
    /// An element of a sequence or an array, counted from 0.
    Element(usize),
}

/// The path to a value that could not be read or written: `request.items[3].name`. A path of more
/// than 32 steps shows ` ... ` instead of its middle, and the text is cut at 1 KiB.
#[derive(Clone, Debug, Default)]
pub struct ValuePath {
    steps: Vec<PathStep>,
    is_shortened: bool,
    /// The position of the decoder or encoder at the error; an error at another position begins a
    /// new path.
    position: usize,
}

impl ValuePath {
    pub(super) fn add(&mut self, step: PathStep, place: usize) {
        if self.position != place {
            *self = ValuePath { position: place, ..ValuePath::default() };
        }
        if self.steps.len() >= MAX_STEPS {
            self.steps.remove(MAX_INNERMOST);
            self.is_shortened = true;
        }
        self.steps.push(step);
    }
}

impl fmt::Display for ValuePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for (at, step) in self.steps.iter().enumerate().rev() {
            match step {
                PathStep::Element(index) => write!(text, "[{index}]")?,
                PathStep::Member(name) if text.is_empty() || text.ends_with(' ') => text.push_str(name),
                PathStep::Member(name) => write!(text, ".{name}")?,
            }
            if self.is_shortened && at == MAX_INNERMOST {
                text.push_str(" ... ");
            }
        }
        f.write_str(text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default())
    }
}

/// A decoder or encoder that records the path to an error ([`Decoder`](super::Decoder),
/// [`Encoder`](super::Encoder)).
pub trait PathRecorder {
    /// Adds a step to the path of an error. Call this method only while returning an error.
    fn record_step(&mut self, step: PathStep);

    /// Returns the path to the last error, if a path was recorded.
    fn value_path(&self) -> Option<ValuePath>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cdr::{Cdr, CdrError, Decoder, Encoder, Endian, ValueReadState};

    #[test]
    fn text_of_a_path_begins_with_the_outermost_step() {
        let mut trail = ValuePath::default();
        for step in [PathStep::Member("name"), PathStep::Element(3), PathStep::Element(0), PathStep::Member("items")] {
            trail.add(step, 8);
        }
        assert_eq!(trail.to_string(), "items[0][3].name");
        trail.add(PathStep::Member("other"), 9);
        assert_eq!(trail.to_string(), "other");
    }

    #[test]
    fn a_long_path_loses_its_middle() {
        let mut trail = ValuePath::default();
        (0..100).for_each(|index| trail.add(PathStep::Element(index), 0));
        let text = trail.to_string();
        assert!(
            text.starts_with("[99][98]")
                && text.ends_with("[84] ... [15][14][13][12][11][10][9][8][7][6][5][4][3][2][1][0]"),
            "{text}"
        );
        assert_eq!(trail.steps.len(), MAX_STEPS);
    }

    #[test]
    fn the_text_of_a_path_is_bounded() {
        const NAME: &str = match std::str::from_utf8(&[b'n'; 100]) {
            Ok(name) => name,
            Err(_) => "",
        };
        let mut trail = ValuePath::default();
        (0..20).for_each(|_| trail.add(PathStep::Member(NAME), 0));
        assert_eq!(trail.to_string().len(), MAX_TEXT);
    }

    #[test]
    fn path_to_an_unreadable_element_has_its_index() {
        let octets = [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 9];
        let values = ValueReadState::new();
        let mut d = Decoder::new(&octets, Endian::Big).with_value_read_state(&values);
        assert_eq!(Vec::<String>::decode(&mut d), Err(CdrError::StringNotTerminated));
        assert_eq!(d.value_path().unwrap().to_string(), "[1]");
        let values = ValueReadState::new();
        let mut d = Decoder::new(&octets, Endian::Big).at_position(4).with_value_read_state(&values);
        assert_eq!(<[String; 2]>::decode(&mut d), Err(CdrError::StringNotTerminated));
        assert_eq!(d.value_path().unwrap().to_string(), "[1]");
        let mut d = Decoder::new(&octets, Endian::Big).at_position(4);
        assert_eq!(<[String; 2]>::decode(&mut d), Err(CdrError::StringNotTerminated));
        assert!(d.value_path().is_none(), "a decoder without a ValueReadState records no path");
    }

    #[test]
    fn path_to_an_unwritable_element_has_its_index() {
        let mut e = Encoder::new();
        let texts = vec![vec!["a".to_owned()], vec!["b".to_owned(), "c".to_owned(), "\0".to_owned()]];
        assert_eq!(texts.encode(&mut e), Err(CdrError::NulInString));
        assert_eq!(e.value_path().unwrap().to_string(), "[1][2]");
        e.clear();
        assert_eq!(texts.encode(&mut e), Err(CdrError::NulInString));
        e.clear();
        assert!(e.value_path().is_none());
    }
}
