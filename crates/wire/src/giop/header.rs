//! The 12-byte header of every message.

use std::fmt;

use super::Version;
use crate::cdr::{CdrError, Encoder, Endian};

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MessageKind {
    /// A call of an operation.
    Request = 0,
    /// The answer to a Request.
    Reply = 1,
    /// The client no longer waits for the reply.
    CancelRequest = 2,
    /// A query for the location of an object.
    LocateRequest = 3,
    /// The answer to a LocateRequest.
    LocateReply = 4,
    /// An orderly close: the sender did not execute the requests that it has not answered.
    CloseConnection = 5,
    /// The sender could not understand the last message that it received.
    MessageError = 6,
    /// The next part of a message (1.1 and 1.2).
    Fragment = 7,
}

impl MessageKind {
    /// Returns the kind with this number.
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
    /// The version of the message.
    pub version: Version,
    /// The byte order of the message.
    pub endian: Endian,
    /// True if a Fragment continues the message.
    pub more_fragments: bool,
    /// The type of the message.
    pub kind: MessageKind,
    /// Size of the message in bytes, without the header.
    pub size: u32,
}

/// The reason why 12 bytes are not the header of a supported message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// The message is not GIOP.
    BadMagic {
        /// The bytes in place of `GIOP`.
        got: [u8; 4],
    },
    /// The message is GIOP compressed by ZIOP.
    CompressedMessage,
    /// The version is not supported.
    UnsupportedVersion {
        /// The version in the header.
        got: Version,
    },
    /// This version has no such message type.
    UnknownMessageKind {
        /// The message type in the header.
        got: u8,
    },
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeaderError::BadMagic { got } => {
                write!(f, "expected a message that begins with GIOP, got {}", got.escape_ascii())
            }
            HeaderError::CompressedMessage => f.write_str("expected GIOP, got a compressed message (ZIOP)"),
            HeaderError::UnsupportedVersion { got } => write!(f, "expected GIOP 1.0, 1.1 or 1.2, got {got}"),
            HeaderError::UnknownMessageKind { got } => write!(f, "expected a message type of its version, got {got}"),
        }
    }
}

impl std::error::Error for HeaderError {}

impl Header {
    /// Length of a header in bytes.
    pub const LEN: usize = 12;
    pub(crate) const SIZE_AT: usize = 8;

    /// Parses a header from its 12 bytes.
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
            return Err(HeaderError::UnsupportedVersion { got: version });
        }
        let endian = Endian::from_flag(flags);
        let kind = match MessageKind::from_number(kind) {
            None => return Err(HeaderError::UnknownMessageKind { got: kind }),
            Some(MessageKind::Fragment) if minor == 0 => return Err(HeaderError::UnknownMessageKind { got: kind }),
            Some(kind) => kind,
        };
        let size = number(u32::from_ne_bytes(size), endian);
        Ok(Header { version, endian, more_fragments: flags & 2 != 0 && minor != 0, kind, size })
    }

    /// Parses the header of a whole GIOP 1.2 message, faster than [`parse`](Self::parse). Returns
    /// `None` unless the message is of type `kind`, has no flag except the flag of the byte order,
    /// is complete in `unread`, and has at most `max_size` bytes after the header.
    #[inline]
    #[must_use]
    pub fn parse_unfragmented_1_2(unread: &[u8], kind: MessageKind, max_size: u32) -> Option<Header> {
        let [magic, middle, size]: [[u8; 4]; 3] = bytemuck::cast(*unread.first_chunk::<{ Header::LEN }>()?);
        let [1, 2, flags @ (0 | 1), number_of_kind] = middle else { return None };
        let endian = Endian::from_flag(flags);
        let size = number(u32::from_ne_bytes(size), endian);
        let is_whole = size <= max_size && size as usize <= unread.len() - Header::LEN;
        let header = Header { version: Version::GIOP_1_2, endian, more_fragments: false, kind, size };
        (magic == *b"GIOP" && number_of_kind == kind as u8 && is_whole).then_some(header)
    }

    #[cold]
    fn bad_magic(got: [u8; 4]) -> HeaderError {
        if got == *b"ZIOP" { HeaderError::CompressedMessage } else { HeaderError::BadMagic { got } }
    }

    /// Returns the length of the whole message in bytes.
    #[inline]
    #[must_use]
    pub fn total_len(&self) -> usize {
        Header::LEN + self.size as usize
    }

    /// Returns the header as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Header::LEN] {
        let [s0, s1, s2, s3] = match self.endian {
            Endian::Big => self.size.to_be_bytes(),
            Endian::Little => self.size.to_le_bytes(),
        };
        let flags = self.endian.to_flag() | u8::from(self.more_fragments) << 1;
        let Version { major, minor } = self.version;
        [b'G', b'I', b'O', b'P', major, minor, flags, self.kind as u8, s0, s1, s2, s3]
    }
}

#[inline]
pub(super) fn number(number: u32, endian: Endian) -> u32 {
    if endian.needs_swap() { number.swap_bytes() } else { number }
}

#[inline]
pub(crate) fn begin(e: &mut Encoder<'_>, version: Version, kind: MessageKind) {
    let header = begin_header(e, version, kind);
    e.write_bytes(&header);
}

#[inline]
pub(crate) fn begin_header(e: &mut Encoder<'_>, version: Version, kind: MessageKind) -> [u8; Header::LEN] {
    e.set_alignment_origin();
    e.set_version(version);
    Header { version, endian: e.endian(), more_fragments: false, kind, size: 0 }.to_bytes()
}

/// Fills in the size of the message that the encoder began last. If a GIOP 1.2 body is empty,
/// removes the padding in front of it (CORBA 3.0.3 section 15.4.2.2).
///
/// # Errors
/// [`CdrError::LengthOverflow`] above 4 GiB.
#[inline]
pub fn finish_message(e: &mut Encoder<'_>) -> Result<(), CdrError> {
    e.finish_message(Header::LEN, Header::SIZE_AT)
}
