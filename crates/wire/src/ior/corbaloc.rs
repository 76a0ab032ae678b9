//! corbaloc and corbaname: human-readable references (CORBA 3.0.3 section 13.6.10, Naming Service
//! 1.3 section 2.5).
//!
//! ```text
//! corbaloc  = "corbaloc:" address *("," address) ["/" key]
//! address   = (":" | "iiop:") [major "." minor "@"] host [":" port]  |  "rir:"
//! corbaname = "corbaname:" as for corbaloc ["#" name]
//! ```

use std::fmt;

use super::text::{UrlError, after_scheme, hex_digit};
use super::{Ior, ProfileAddress, TaggedProfile};
use crate::cdr::CdrError;
use crate::giop::Version;
use crate::limits::Limits;

/// The default port of a corbaloc address.
pub const DEFAULT_PORT: u16 = 2809;

/// The default key of a corbaname URL and of `corbaloc:rir:`.
pub const NAME_SERVICE_KEY: &[u8] = b"NameService";

/// An address in a corbaloc.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CorbalocAddress {
    /// GIOP over TCP.
    Iiop {
        /// The highest version to use; 1.0 if the text gives none.
        version: Version,
        /// A host name, or an IP address without brackets.
        host: String,
        /// The TCP port; [`DEFAULT_PORT`] if the text gives none.
        port: u16,
    },
    /// `rir:`, an initial reference of the ORB. This form must be the only address.
    InitialReference,
}

/// A corbaloc URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Corbaloc {
    /// At least one address, to be tried in order.
    pub addresses: Vec<CorbalocAddress>,
    /// The object key, or the name of the initial reference for `rir:`, with escapes resolved.
    /// Empty if the text has none.
    pub key: Vec<u8>,
}

impl Corbaloc {
    /// Parses `corbaloc:...`.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(text: &str, limits: &Limits) -> Result<Corbaloc, UrlError> {
        if text.len() > limits.max_reference_text_length as usize {
            return Err(UrlError::TooLong);
        }
        Corbaloc::parse_rest(after_scheme(text.trim(), "corbaloc:").ok_or(UrlError::BadScheme)?, limits)
    }

    fn parse_rest(rest: &str, limits: &Limits) -> Result<Corbaloc, UrlError> {
        let (list, key) = rest.split_once('/').unwrap_or((rest, ""));
        let mut addresses = Vec::new();
        for address in list.split(',') {
            if addresses.len() >= limits.max_profiles as usize {
                return Err(UrlError::TooLong);
            }
            addresses.push(CorbalocAddress::parse(address)?);
        }
        if addresses.len() > 1 && addresses.contains(&CorbalocAddress::InitialReference) {
            return Err(UrlError::BadSchemeSpecificPart);
        }
        Ok(Corbaloc { addresses, key: unescape_key(key)? })
    }

    /// Returns the name of the initial reference that a `rir:` URL denotes; `None` for other URLs.
    #[must_use]
    pub fn initial_reference(&self) -> Option<&[u8]> {
        let key = if self.key.is_empty() { NAME_SERVICE_KEY } else { &self.key };
        (self.addresses == [CorbalocAddress::InitialReference]).then_some(key)
    }

    /// Returns the reference, with one profile without components for each address and no type id.
    /// The reference is nil for `rir:`, which only the ORB can resolve.
    ///
    /// # Errors
    /// [`CdrError`] if a host cannot be encoded.
    pub fn to_ior(&self) -> Result<Ior, CdrError> {
        let mut profiles = Vec::with_capacity(self.addresses.len());
        for address in &self.addresses {
            if let CorbalocAddress::Iiop { version, host, port } = address {
                let address = ProfileAddress::Inet { host, port: *port };
                profiles.push(TaggedProfile::encode(*version, address, &self.key, &[])?);
            }
        }
        Ok(Ior { type_id: String::new(), profiles })
    }
}

impl CorbalocAddress {
    fn parse(text: &str) -> Result<CorbalocAddress, UrlError> {
        if text.eq_ignore_ascii_case("rir:") {
            return Ok(CorbalocAddress::InitialReference);
        }
        let rest = text.strip_prefix(':').or_else(|| after_scheme(text, "iiop:"));
        let rest = rest.ok_or(if text.contains(':') { UrlError::BadScheme } else { UrlError::BadAddress })?;
        let (version, place) = match rest.split_once('@') {
            Some((version, place)) => (parse_version(version)?, place),
            None => (Version::GIOP_1_0, rest),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(bracketed) => {
                let (host, behind) = bracketed.split_once(']').ok_or(UrlError::BadAddress)?;
                let port = match behind {
                    "" => None,
                    _ => Some(behind.strip_prefix(':').ok_or(UrlError::BadAddress)?),
                };
                (host, port)
            }
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        let bad = |octet: u8| !octet.is_ascii_graphic() || b"[]@/,#%".contains(&octet);
        if host.is_empty() || host.bytes().any(bad) {
            return Err(UrlError::BadAddress);
        }
        let port = port.map_or(Ok(DEFAULT_PORT), parse_number)?;
        Ok(CorbalocAddress::Iiop { version, host: host.to_owned(), port })
    }
}

fn parse_version(text: &str) -> Result<Version, UrlError> {
    let (major, minor) = text.split_once('.').ok_or(UrlError::BadAddress)?;
    let version = Version { major: parse_number(major)?, minor: parse_number(minor)? };
    if version.major == 1 { Ok(version) } else { Err(UrlError::BadAddress) }
}

/// Parses decimal digits; `FromStr` alone accepts a sign.
fn parse_number<T: std::str::FromStr>(text: &str) -> Result<T, UrlError> {
    if !text.bytes().all(|octet| octet.is_ascii_digit()) {
        return Err(UrlError::BadAddress);
    }
    text.parse().map_err(|_| UrlError::BadAddress)
}

fn is_plain(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b";/:?@&=+$,-_.!~*'()".contains(&octet)
}

/// Returns an object key as text. Bytes other than ASCII letters, digits and `;/:?@&=+$,-_.!~*'()`
/// become `%` and two hexadecimal digits.
#[must_use]
pub fn escape_key(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for octet in key {
        if is_plain(*octet) {
            text.push(char::from(*octet));
        } else {
            use fmt::Write as _;
            let _ = write!(text, "%{octet:02x}");
        }
    }
    text
}

/// Returns the bytes of an escaped key. Bytes that are not escaped denote themselves; spaces and
/// control characters must be escaped.
///
/// # Errors
/// [`UrlError::BadEscape`].
pub fn unescape_key(text: &str) -> Result<Vec<u8>, UrlError> {
    let mut octets = text.bytes();
    let mut key = Vec::with_capacity(text.len());
    while let Some(octet) = octets.next() {
        match octet {
            b'%' => {
                let mut digit = || octets.next().and_then(hex_digit).ok_or(UrlError::BadEscape);
                key.push(digit()? << 4 | digit()?);
            }
            0..=b' ' | 0x7f => return Err(UrlError::BadEscape),
            octet => key.push(octet),
        }
    }
    Ok(key)
}

impl fmt::Display for CorbalocAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CorbalocAddress::Iiop { version, host, port } = self else { return f.write_str("rir:") };
        f.write_str("iiop:")?;
        if *version != Version::GIOP_1_0 {
            write!(f, "{version}@")?;
        }
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Display for Corbaloc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("corbaloc:")?;
        self.write_rest(f)
    }
}

impl Corbaloc {
    fn write_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.addresses.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{address}")?;
        }
        if self.key.is_empty() { Ok(()) } else { write!(f, "/{}", escape_key(&self.key)) }
    }
}

/// A corbaname URL: a naming context, and a name to resolve in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Corbaname {
    /// The naming context. Its key is [`NAME_SERVICE_KEY`] if the text gives none.
    pub context: Corbaloc,
    /// The stringified name (`shop/orders.obj`) with URL escapes resolved; `None` for the context
    /// itself.
    pub name: Option<String>,
}

impl Corbaname {
    /// Parses `corbaname:...`.
    ///
    /// # Errors
    /// [`UrlError`]; [`UrlError::BadSchemeSpecificPart`] for a name that is not UTF-8.
    pub fn parse(text: &str, limits: &Limits) -> Result<Corbaname, UrlError> {
        if text.len() > limits.max_reference_text_length as usize {
            return Err(UrlError::TooLong);
        }
        let rest = after_scheme(text.trim(), "corbaname:").ok_or(UrlError::BadScheme)?;
        let (context, name) = match rest.split_once('#') {
            Some((context, name)) => (context, Some(name)),
            None => (rest, None),
        };
        let mut context = Corbaloc::parse_rest(context, limits)?;
        if context.key.is_empty() {
            context.key = NAME_SERVICE_KEY.to_vec();
        }
        let name = match name {
            None | Some("") => None,
            Some(name) => Some(String::from_utf8(unescape_key(name)?).map_err(|_| UrlError::BadSchemeSpecificPart)?),
        };
        Ok(Corbaname { context, name })
    }
}

impl fmt::Display for Corbaname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("corbaname:")?;
        self.context.write_rest(f)?;
        self.name.as_ref().map_or(Ok(()), |name| write!(f, "#{}", escape_key(name.as_bytes())))
    }
}
