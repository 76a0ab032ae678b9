//! Stringified references: `IOR:` and the hexadecimal digits of an encapsulation (CORBA 3.0.3
//! section 13.6.9).

use std::fmt::{self, Write as _};

use super::Ior;
use crate::cdr::{Cdr, CdrError, Decoder, Encoder};
use crate::exception::{SystemExceptionKind, minor};
use crate::limits::Limits;

/// The reason why a text is not a reference. Errors of the text's form map to BAD_PARAM with the
/// OMG's minor codes 7 to 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UrlError {
    /// The scheme is unknown.
    BadScheme,
    /// The host, port or version is malformed.
    BadAddress,
    /// The text after the scheme is malformed: a digit is missing or not hexadecimal, `rir:` is not
    /// the only address, or the name in a corbaname is not UTF-8.
    BadSchemeSpecificPart,
    /// An escape is malformed, or a space or a control character is not escaped.
    BadEscape,
    /// The text is longer than [`Limits::max_reference_text_length`], or a corbaloc has more
    /// addresses than [`Limits::max_profiles`].
    TooLong,
    /// The hexadecimal digits are valid, but the octets are not a valid reference.
    MalformedIor(CdrError),
}

impl UrlError {
    /// Returns the system exception that reports this error.
    #[must_use]
    pub fn kind(self) -> SystemExceptionKind {
        match self {
            UrlError::MalformedIor(error) => error.kind(),
            _ => SystemExceptionKind::BadParam,
        }
    }

    /// Returns the minor code that reports this error.
    #[must_use]
    pub fn minor(self) -> u32 {
        match self {
            UrlError::BadScheme => minor::bad_param::URL_SCHEME,
            UrlError::BadAddress => minor::bad_param::URL_ADDRESS,
            UrlError::BadSchemeSpecificPart => minor::bad_param::URL_SCHEME_SPECIFIC_PART,
            UrlError::BadEscape | UrlError::TooLong => minor::bad_param::URL_OTHER,
            UrlError::MalformedIor(error) => error.minor(),
        }
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UrlError::BadScheme => "expected IOR:, corbaloc: or corbaname:",
            UrlError::BadAddress => "a host, port or version is malformed",
            UrlError::BadSchemeSpecificPart => "the part after the scheme is malformed",
            UrlError::BadEscape => {
                "a % is not followed by two hexadecimal digits, or a space or a control character is not escaped"
            }
            UrlError::TooLong => "the text is longer than the limit",
            UrlError::MalformedIor(error) => return error.fmt(f),
        })
    }
}

impl std::error::Error for UrlError {}

impl From<CdrError> for UrlError {
    fn from(error: CdrError) -> UrlError {
        UrlError::MalformedIor(error)
    }
}

pub(super) fn after_scheme<'t>(text: &'t str, scheme: &str) -> Option<&'t str> {
    let (start, rest) = text.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

pub(super) fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

impl Ior {
    /// Parses `IOR:` and digits. White space around the text is ignored.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn from_text(text: &str, limits: &Limits) -> Result<Ior, UrlError> {
        if text.len() > limits.max_reference_text_length as usize {
            return Err(UrlError::TooLong);
        }
        let digits = after_scheme(text.trim(), "IOR:").ok_or(UrlError::BadScheme)?.as_bytes();
        if !digits.len().is_multiple_of(2) {
            return Err(UrlError::BadSchemeSpecificPart);
        }
        let pair = |pair: &[u8]| match pair {
            [high, low] => Some(hex_digit(*high)? << 4 | hex_digit(*low)?),
            _ => None,
        };
        let octets: Option<Vec<u8>> = digits.chunks(2).map(pair).collect();
        let octets = octets.ok_or(UrlError::BadSchemeSpecificPart)?;
        Ok(Ior::decode(&mut Decoder::for_encapsulation(&octets)?.with_limits(limits))?)
    }

    /// Writes `IOR:` and digits, in the byte order of this machine.
    ///
    /// # Errors
    /// [`CdrError::CharacterNotInCodeSet`] and [`CdrError::NulInString`] for the type id.
    pub fn to_text(&self) -> Result<String, CdrError> {
        let mut e = Encoder::new();
        e.write_u8(e.endian().to_flag());
        self.encode(&mut e)?;
        let octets = e.into_reusable_buffer();
        let mut text = String::with_capacity(4 + 2 * octets.len());
        text.push_str("IOR:");
        for octet in octets {
            let _ = write!(text, "{octet:02x}");
        }
        Ok(text)
    }
}
