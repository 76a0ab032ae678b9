//! The path to a member of an argument or result that could not be encoded or decoded.

use corelane_wire::cdr::{PathRecorder, PathStep};
use corelane_wire::{CdrError, Decoder, Encoder};

use crate::exception::SystemException;

/// Functions with which generated code adds the names of members to an error.
#[derive(Debug)]
pub struct At;

impl At {
    /// Adds the name of a member, parameter or result to an error.
    ///
    /// # Errors
    /// The errors of `result`.
    #[inline]
    pub fn member<T>(
        result: Result<T, CdrError>,
        name: &'static str,
        coder: &mut impl PathRecorder,
    ) -> Result<T, CdrError> {
        if result.is_err() {
            coder.record_step(PathStep::Member(name));
        }
        result
    }

    /// Adds the index of an element to an error.
    ///
    /// # Errors
    /// The errors of `result`.
    #[inline]
    pub fn element<T>(result: Result<T, CdrError>, index: usize, coder: &mut impl PathRecorder) -> Result<T, CdrError> {
        if result.is_err() {
            coder.record_step(PathStep::Element(index));
        }
        result
    }

    /// Converts the error of an argument that a server decodes to an exception.
    ///
    /// # Errors
    /// The errors of `result`, with the path and the byte position.
    #[inline]
    pub fn argument<T>(
        result: Result<T, CdrError>,
        name: &'static str,
        d: &mut Decoder<'_>,
    ) -> Result<T, SystemException> {
        result.map_err(|error| unreadable_argument(error, name, d))
    }

    /// Converts the error of a result or out argument that a server encodes to an exception.
    ///
    /// # Errors
    /// The errors of `result`, with the path.
    #[inline]
    pub fn result<T>(
        result: Result<T, CdrError>,
        name: &'static str,
        e: &mut Encoder<'_>,
    ) -> Result<T, SystemException> {
        result.map_err(|error| unwritable_result(error, name, e))
    }
}

#[cold]
#[inline(never)]
fn unreadable_argument(error: CdrError, name: &'static str, d: &mut Decoder<'_>) -> SystemException {
    d.record_step(PathStep::Member(name));
    let place = place("argument ", d);
    SystemException::from(error).with_message(format!(
        "{}{place}, at octet {} of the request",
        error.text(),
        d.message_offset()
    ))
}

#[cold]
#[inline(never)]
fn unwritable_result(error: CdrError, name: &'static str, e: &mut Encoder<'_>) -> SystemException {
    e.record_step(PathStep::Member(name));
    unwritable(error, "", e)
}

#[cold]
pub(crate) fn unwritable(error: CdrError, what: &str, e: &Encoder<'_>) -> SystemException {
    let place = place(what, e);
    SystemException::from(error).with_message(format!("{}{place}", error.text()))
}

#[cold]
pub(crate) fn place(what: &str, coder: &impl PathRecorder) -> String {
    coder.value_path().map_or_else(String::new, |trail| format!(", in {what}{trail}"))
}
