//! LocateRequest and LocateReply: where an object is, without a call.

use super::Version;
use super::header::{Header, MessageKind, begin};
use super::request::Target;
use crate::cdr::{Cdr, CdrError, Decoder, Encoder, Endian};
use crate::ior::Ior;
use crate::limits::Limits;

/// A received LocateRequest (CORBA 3.0.3 section 15.4.5).
///
/// ```text
/// 1.0, 1.1  header | unsigned long id | sequence<octet> object key
/// 1.2       header | unsigned long id | target
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LocateRequest<'m> {
    /// Of the message; the reply has the same.
    pub version: Version,
    /// What the reply names.
    pub request_id: u32,
    /// The object.
    pub target: Target<'m>,
}

impl<'m> LocateRequest<'m> {
    /// Reads the message.
    ///
    /// # Errors
    /// [`CdrError`] where it is malformed; MessageError is the answer.
    pub fn parse(message: &'m [u8], header: &Header, limits: &'m Limits) -> Result<LocateRequest<'m>, CdrError> {
        let mut d = Decoder::new(message, header.endian).at(Header::LEN).with_limits(limits);
        let request_id = d.read_u32()?;
        let target = if header.version.is_1_2() { Target::parse(&mut d)? } else { Target::Key(d.read_octets()?) };
        Ok(LocateRequest { version: header.version, request_id, target })
    }
}

/// Where an object is (CORBA 3.0.3 section 15.4.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LocateStatus {
    /// Not known here.
    UnknownObject = 0,
    /// Here.
    ObjectHere = 1,
    /// There: a reference follows.
    ObjectForward = 2,
    /// There, for good (1.2).
    ObjectForwardPerm = 3,
    /// A [`SystemExceptionBody`](crate::exception::SystemExceptionBody) follows (1.2).
    SystemException = 4,
    /// short: the [`AddressingMode`](super::AddressingMode) that is wanted (1.2).
    NeedsAddressingMode = 5,
}

impl LocateStatus {
    /// The status with a number.
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
/// header | unsigned long id | unsigned long status | body, without a gap in front in any version
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LocateReply<'m> {
    /// Of the message.
    pub version: Version,
    /// Order of its numbers.
    pub endian: Endian,
    /// Which request it answers.
    pub request_id: u32,
    /// Where the object is.
    pub status: LocateStatus,
    /// Where the body begins, from octet 0 of the header.
    pub body_at: usize,
    /// The whole message.
    pub message: &'m [u8],
}

impl<'m> LocateReply<'m> {
    /// Reads the message.
    ///
    /// # Errors
    /// [`CdrError`] where it is malformed.
    pub fn parse(message: &'m [u8], header: &Header) -> Result<LocateReply<'m>, CdrError> {
        let mut d = Decoder::new(message, header.endian).at(Header::LEN);
        let request_id = d.read_u32()?;
        let status = LocateStatus::from_number(d.read_u32()?).ok_or(CdrError::BadDiscriminator)?;
        let (version, endian) = (header.version, header.endian);
        Ok(LocateReply { version, endian, request_id, status, body_at: d.position(), message })
    }

    /// A decoder at the first octet of the body.
    #[must_use]
    pub fn body(&self) -> Decoder<'m> {
        let d = Decoder::new(self.message, self.endian).at(self.body_at);
        d.with_version(self.version).with_from_server(true)
    }

    /// The reference of an OBJECT_FORWARD body, from either place where peers put it.
    ///
    /// # Errors
    /// [`CdrError`] where there is none.
    pub fn forward(&self, limits: &'m Limits) -> Result<Ior, CdrError> {
        let read = |d: Decoder<'m>| {
            let mut d = d.with_limits(limits);
            let ior = Ior::decode(&mut d)?;
            if d.remaining() < 4 { Ok(ior) } else { Err(CdrError::BadDiscriminator) }
        };
        read(self.body()).or_else(|error| read(self.aligned_body()).map_err(|_| error))
    }

    /// The body for a peer that follows CORBA 2.3 and 2.4, which aligned the body to 8: to be tried where
    /// [`body`](LocateReply::body) makes no sense.
    #[must_use]
    pub fn aligned_body(&self) -> Decoder<'m> {
        self.body().at(self.body_at.next_multiple_of(8))
    }
}

/// Writes a LocateRequest.
///
/// # Errors
/// [`CdrError::TooLong`]; [`CdrError::Unsupported`] for a target other than a key before GIOP 1.2.
pub fn write_locate_request(
    e: &mut Encoder<'_>,
    version: Version,
    request_id: u32,
    target: &Target<'_>,
) -> Result<(), CdrError> {
    begin(e, version, MessageKind::LocateRequest);
    e.write_u32(request_id);
    match target {
        _ if version.is_1_2() => target.write(e)?,
        Target::Key(key) => e.write_octets_copied(key)?,
        _ => return Err(CdrError::Unsupported),
    }
    super::finish(e)
}

/// Begins a LocateReply. A body follows through the encoder where the status has one, then [`finish`](super::finish).
pub fn begin_locate_reply(e: &mut Encoder<'_>, version: Version, request_id: u32, status: LocateStatus) {
    begin(e, version, MessageKind::LocateReply);
    e.set_from_server(true);
    e.write_u32(request_id);
    e.write_u32(u32::from(status as u8));
    e.begin_body(1);
}
