//! The 12 octets that every message begins with.

use std::fmt;

use super::Version;
use crate::cdr::{CdrError, Encoder, Endian};

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MessageKind {
    /// A call.
    Request = 0,
    /// Its answer.
    Reply = 1,
    /// The client no longer wants the answer.
    CancelRequest = 2,
    /// Where is the object?
    LocateRequest = 3,
    /// There, or not at all.
    LocateReply = 4,
    /// Orderly end: what is not answered was not executed.
    CloseConnection = 5,
    /// The last message could not be understood.
    MessageError = 6,
    /// The next part of a message (1.1 and 1.2).
    Fragment = 7,
}

impl MessageKind {
    /// The kind with a number.
    #[inline]
    #[must_use]
    pub const fn from_number(number: u8) -> Option<MessageKind> {
        Some(match number {
            0 => MessageKind::Request,
            1 => MessageKind::Reply,
            2 => MessageKind::CancelRequest,
            3 => MessageKind::LocateRequest,
            4 => MessageKind::LocateReply,
            5 => MessageKind::CloseConnection,
            6 => MessageKind::MessageError,
            7 => MessageKind::Fragment,
            _ => return None,
        })
    }
}

/// The header of a message (CORBA 3.0.3 section 15.4.1).
///
/// ```text
///  0 'G' 'I' 'O' 'P'
///  4 octet major | octet minor
///  6 octet flags: bit 0 little-endian; bit 1 more fragments follow (1.1, 1.2; in 1.0 the octet is a boolean byte order)
///  7 octet message type
///  8 unsigned long message size: octets after these 12
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Of the message.
    pub version: Version,
    /// Order of its numbers.
    pub endian: Endian,
    /// Whether a Fragment continues it.
    pub more_fragments: bool,
    /// Its type.
    pub kind: MessageKind,
    /// Octets after the header.
    pub size: u32,
}

/// Why 12 octets are not the header of a message that is understood here. MessageError is the answer to each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// Not GIOP.
    Magic {
        /// What stands there instead.
        got: [u8; 4],
    },
    /// GIOP compressed by ZIOP.
    Compressed,
    /// A version that is not spoken here.
    Version {
        /// Which.
        got: Version,
    },
    /// No type of message in this version.
    Kind {
        /// The octet.
        got: u8,
    },
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeaderError::Magic { got } => {
                write!(f, "expected a message that begins with GIOP, got {}", got.escape_ascii())
            }
            HeaderError::Compressed => f.write_str("expected GIOP, got a compressed message (ZIOP)"),
            HeaderError::Version { got } => write!(f, "expected GIOP 1.0, 1.1 or 1.2, got {got}"),
            HeaderError::Kind { got } => write!(f, "expected a type of message, got {got}"),
        }
    }
}

impl std::error::Error for HeaderError {}

impl Header {
    /// Octets of a header.
    pub const LEN: usize = 12;
    /// Where the size stands.
    pub(crate) const SIZE_AT: usize = 8;

    /// Reads a header from its 12 octets.
    ///
    /// # Errors
    /// [`HeaderError`].
    #[inline]
    pub fn parse(octets: &[u8; Header::LEN]) -> Result<Header, HeaderError> {
        let [magic, middle, size]: [[u8; 4]; 3] = bytemuck::cast(*octets);
        if magic != *b"GIOP" {
            return Err(Header::bad_magic(magic));
        }
        let [major, minor, flags, kind] = middle;
        let version = Version { major, minor };
        if !version.is_supported() {
            return Err(HeaderError::Version { got: version });
        }
        let endian = Endian::from_flag(flags);
        let kind = match MessageKind::from_number(kind) {
            None => return Err(HeaderError::Kind { got: kind }),
            Some(MessageKind::Fragment) if minor == 0 => return Err(HeaderError::Kind { got: kind }),
            Some(kind) => kind,
        };
        let size = number(u32::from_ne_bytes(size), endian);
        Ok(Header { version, endian, more_fragments: flags & 2 != 0 && minor != 0, kind, size })
    }

    /// The header of the message of this `kind` at the front of `unread`, if that is as nearly all are: of GIOP 1.2, in one piece, whole,
    /// and with at most `most` octets behind the header. `None` tells nothing: [`parse`](Self::parse) says what is there.
    #[inline]
    #[must_use]
    pub fn of_whole(unread: &[u8], kind: MessageKind, most: u32) -> Option<Header> {
        let [magic, middle, size]: [[u8; 4]; 3] = bytemuck::cast(*unread.first_chunk::<{ Header::LEN }>()?);
        let [1, 2, flags @ (0 | 1), number_of_kind] = middle else { return None };
        let endian = Endian::from_flag(flags);
        let size = number(u32::from_ne_bytes(size), endian);
        let is_whole = size <= most && size as usize <= unread.len() - Header::LEN;
        let header = Header { version: Version::GIOP_1_2, endian, more_fragments: false, kind, size };
        (magic == *b"GIOP" && number_of_kind == kind as u8 && is_whole).then_some(header)
    }

    #[cold]
    fn bad_magic(got: [u8; 4]) -> HeaderError {
        if got == *b"ZIOP" { HeaderError::Compressed } else { HeaderError::Magic { got } }
    }

    /// Octets of the whole message.
    #[inline]
    #[must_use]
    pub fn total(&self) -> usize {
        Header::LEN + self.size as usize
    }

    /// The octets of the header.
    #[must_use]
    pub fn octets(&self) -> [u8; Header::LEN] {
        let [s0, s1, s2, s3] = match self.endian {
            Endian::Big => self.size.to_be_bytes(),
            Endian::Little => self.size.to_le_bytes(),
        };
        let flags = self.endian.flag() | u8::from(self.more_fragments) << 1;
        let Version { major, minor } = self.version;
        [b'G', b'I', b'O', b'P', major, minor, flags, self.kind as u8, s0, s1, s2, s3]
    }
}

/// A number between the order of this machine and `endian`, either way.
#[inline]
pub(super) fn number(number: u32, endian: Endian) -> u32 {
    if endian.is_foreign() { number.swap_bytes() } else { number }
}

/// Begins a message at the end of what the encoder holds: the header, with a size that [`finish`] fills in.
#[inline]
pub(crate) fn begin(e: &mut Encoder<'_>, version: Version, kind: MessageKind) {
    let header = begin_in(e, version, kind);
    e.write_raw(&header);
}

/// The same, but the caller writes the header.
#[inline]
pub(crate) fn begin_in(e: &mut Encoder<'_>, version: Version, kind: MessageKind) -> [u8; Header::LEN] {
    e.set_origin();
    e.set_version(version);
    Header { version, endian: e.endian(), more_fragments: false, kind, size: 0 }.octets()
}

/// Ends the message that was begun last: fills in its size and, if a GIOP 1.2 body remained empty, takes the padding in
/// front of it back (CORBA 3.0.3 section 15.4.2.2).
///
/// # Errors
/// [`CdrError::TooLong`] above 4 GiB.
#[inline]
pub fn finish(e: &mut Encoder<'_>) -> Result<(), CdrError> {
    e.finish_message(Header::LEN, Header::SIZE_AT)
}
