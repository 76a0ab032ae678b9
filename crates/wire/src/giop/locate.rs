//! LocateRequest and LocateReply, which locate an object without a call.

use super::Version;
use super::header::{Header, MessageKind, begin};
use super::request::TargetAddress;
use crate::cdr::{CdrError, Decoder, Encoder, Endian};
use crate::limits::Limits;

/// A received LocateRequest (CORBA 3.0.3 section 15.4.5).
///
/// ```text
/// 1.0, 1.1  header | unsigned long id | sequence<octet> object key
/// 1.2       header | unsigned long id | target
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LocateRequest<'m> {
    /// The version of the message; the reply has the same version.
    pub version: Version,
    /// The request id, which the reply repeats.
    pub request_id: u32,
    /// The object that is looked for.
    pub target: TargetAddress<'m>,
}

impl<'m> LocateRequest<'m> {
    /// Parses the message.
    ///
    /// # Errors
    /// [`CdrError`] if it is malformed or exceeds a limit.
    pub fn parse(message: &'m [u8], header: &Header, limits: &'m Limits) -> Result<LocateRequest<'m>, CdrError> {
        let mut d = Decoder::new(message, header.endian).at_position(Header::LEN).with_limits(limits);
        let request_id = d.read_u32()?;
        let target = if header.version.has_giop_1_2_headers() {
            TargetAddress::parse(&mut d)?
        } else {
            TargetAddress::Key(d.read_octet_sequence()?)
        };
        Ok(LocateRequest { version: header.version, request_id, target })
    }
}

/// The result of a LocateRequest (CORBA 3.0.3 section 15.4.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LocateStatus {
    /// The server does not know the object.
    UnknownObject = 0,
    /// The server has the object.
    ObjectHere = 1,
    /// Another server has the object: its reference follows.
    ObjectForward = 2,
    /// The object has moved permanently: its new reference follows (1.2).
    ObjectForwardPerm = 3,
    /// A [`SystemExceptionBody`](crate::exception::SystemExceptionBody) follows (1.2).
    SystemException = 4,
    /// The server does not accept the addressing mode of the request. The wanted
    /// [`AddressingMode`](super::AddressingMode) follows as a short (1.2).
    NeedsAddressingMode = 5,
}

impl LocateStatus {
    /// Returns the status with this number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<LocateStatus> {
        Some(match number {
            0 => LocateStatus::UnknownObject,
            1 => LocateStatus::ObjectHere,
            2 => LocateStatus::ObjectForward,
            3 => LocateStatus::ObjectForwardPerm,
            4 => LocateStatus::SystemException,
            5 => LocateStatus::NeedsAddressingMode,
            _ => return None,
        })
    }
}

/// A received LocateReply (CORBA 3.0.3 section 15.4.6).
///
/// ```text
/// header | unsigned long id | unsigned long status | body, without padding in front in any version
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LocateReply<'m> {
    /// The version of the message.
    pub version: Version,
    /// The byte order of the message.
    pub endian: Endian,
    /// The id of the request that this message answers.
    pub request_id: u32,
    /// The result of the search.
    pub status: LocateStatus,
    /// Offset of the body in bytes, from the start of the header.
    pub body_offset: usize,
    /// The whole message.
    pub message: &'m [u8],
}

impl<'m> LocateReply<'m> {
    /// Parses the message.
    ///
    /// # Errors
    /// [`CdrError`] if it is malformed.
    pub fn parse(message: &'m [u8], header: &Header) -> Result<LocateReply<'m>, CdrError> {
        let mut d = Decoder::new(message, header.endian).at_position(Header::LEN);
        let request_id = d.read_u32()?;
        let status = LocateStatus::from_number(d.read_u32()?).ok_or(CdrError::BadDiscriminator)?;
        let (version, endian) = (header.version, header.endian);
        Ok(LocateReply { version, endian, request_id, status, body_offset: d.position(), message })
    }

    /// Returns a decoder at the first byte of the body.
    #[must_use]
    pub fn body(&self) -> Decoder<'m> {
        let d = Decoder::new(self.message, self.endian).at_position(self.body_offset);
        d.with_version(self.version).with_written_by_server(true)
    }
}

/// Writes a LocateRequest.
///
/// # Errors
/// [`CdrError::LengthOverflow`] if the size of the message does not fit in 32 bits; before GIOP
/// 1.2, [`CdrError::UnsupportedForm`] for a target that is not a key.
pub fn write_locate_request(
    e: &mut Encoder<'_>,
    version: Version,
    request_id: u32,
    target: &TargetAddress<'_>,
) -> Result<(), CdrError> {
    begin(e, version, MessageKind::LocateRequest);
    e.write_u32(request_id);
    match target {
        _ if version.has_giop_1_2_headers() => target.write(e)?,
        TargetAddress::Key(key) => e.write_octet_sequence_copied(key)?,
        _ => return Err(CdrError::UnsupportedForm),
    }
    super::finish_message(e)
}

/// Begins a LocateReply. The caller writes the body, if the status has one, through the encoder and
/// then calls [`finish_message`](super::finish_message).
pub fn begin_locate_reply(e: &mut Encoder<'_>, version: Version, request_id: u32, status: LocateStatus) {
    begin(e, version, MessageKind::LocateReply);
    e.set_written_by_server(true);
    e.write_u32(request_id);
    e.write_u32(u32::from(status as u8));
    e.begin_body(1);
}
