//! Reply: the answer to a call.

use super::Version;
use super::contexts::{self, Contexts, ServiceContext};
use super::header::{Header, MessageKind, begin, begin_in, number};
use super::request::body_at;
use crate::cdr::{CdrError, Decoder, Encoder, Endian};
use crate::limits::Limits;

/// What a reply holds (CORBA 3.0.3 section 15.4.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReplyStatus {
    /// Result, then inout and out arguments.
    NoException = 0,
    /// string repository id, members.
    UserException = 1,
    /// A [`SystemExceptionBody`](crate::exception::SystemExceptionBody).
    SystemException = 2,
    /// A reference to go to.
    LocationForward = 3,
    /// The same, for good (1.2).
    LocationForwardPerm = 4,
    /// short: the [`AddressingMode`](super::AddressingMode) that is wanted (1.2).
    NeedsAddressingMode = 5,
}

impl ReplyStatus {
    /// The status with a number.
    #[inline]
    #[must_use]
    pub const fn from_number(number: u32) -> Option<ReplyStatus> {
        Some(match number {
            0 => ReplyStatus::NoException,
            1 => ReplyStatus::UserException,
            2 => ReplyStatus::SystemException,
            3 => ReplyStatus::LocationForward,
            4 => ReplyStatus::LocationForwardPerm,
            5 => ReplyStatus::NeedsAddressingMode,
            _ => return None,
        })
    }
}

/// A received Reply (CORBA 3.0.3 section 15.4.3).
///
/// ```text
/// 1.0, 1.1  header | contexts | unsigned long id | unsigned long status | body
/// 1.2       header | unsigned long id | unsigned long status | contexts | gap to a multiple of 8, unless there is no
///           body | body
///
/// 1.2  12 id    16 status    20 number of contexts    24 ...
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reply<'m> {
    /// Of the message.
    pub version: Version,
    /// Order of its numbers.
    pub endian: Endian,
    /// Which request it answers.
    pub request_id: u32,
    /// What it holds.
    pub status: ReplyStatus,
    /// Service contexts.
    pub contexts: Contexts<'m>,
    /// Where the body begins, from octet 0 of the header; the end of the message if there is none.
    pub body_at: usize,
    /// The whole message.
    pub message: &'m [u8],
}

impl<'m> Reply<'m> {
    /// Octets before the body of a [plain](Self::plain) reply.
    pub const PLAIN: usize = Header::LEN + 12;

    /// Reads the header of a reply: `message` is the whole message with the GIOP header that `header` was parsed from.
    ///
    /// # Errors
    /// [`CdrError`] where it is malformed or over a limit.
    #[inline]
    pub fn parse(message: &'m [u8], header: &Header, limits: &'m Limits) -> Result<Reply<'m>, CdrError> {
        if header.version.is_1_2()
            && let Some(reply) = Self::parse_plain(message, header)
        {
            return Ok(reply);
        }
        Self::parse_any(message, header, limits)
    }

    /// A reply of GIOP 1.2 without service contexts; `None` for every other one, and for what is malformed.
    #[inline]
    fn parse_plain(message: &'m [u8], header: &Header) -> Option<Reply<'m>> {
        let (_, rest) = message.split_first_chunk::<{ Header::LEN }>()?;
        let [id, status, 0]: [u32; 3] = bytemuck::cast(*rest.first_chunk::<12>()?) else { return None };
        Some(Reply {
            version: header.version,
            endian: header.endian,
            request_id: number(id, header.endian),
            status: ReplyStatus::from_number(number(status, header.endian))?,
            contexts: Contexts::EMPTY,
            // A multiple of 8 already.
            body_at: Self::PLAIN,
            message,
        })
    }

    /// The header of the reply to a request at the front of `unread`, if that is as nearly all are: [whole](Header::of_whole), with
    /// results, and without service contexts. Its body is behind [`PLAIN`](Self::PLAIN) octets. `None` for every other one, and for what is
    /// malformed.
    #[inline]
    #[must_use]
    pub fn plain(unread: &[u8], request_id: u32, most: u32) -> Option<Header> {
        let header = Header::of_whole(unread, MessageKind::Reply, most)?;
        let fixed = unread.get(Header::LEN..header.total())?.first_chunk::<12>()?;
        let [id, status, contexts]: [u32; 3] = bytemuck::cast(*fixed);
        (id == number(request_id, header.endian) && (status | contexts) == 0).then_some(header)
    }

    fn parse_any(message: &'m [u8], header: &Header, limits: &'m Limits) -> Result<Reply<'m>, CdrError> {
        let mut d = Decoder::new(message, header.endian).at(Header::LEN).with_limits(limits);
        let (request_id, status, contexts);
        if header.version.is_1_2() {
            request_id = d.read_u32()?;
            status = d.read_u32()?;
            contexts = Contexts::parse(&mut d, limits.contexts)?;
        } else {
            contexts = Contexts::parse(&mut d, limits.contexts)?;
            request_id = d.read_u32()?;
            status = d.read_u32()?;
        }
        let status = ReplyStatus::from_number(status).ok_or(CdrError::BadDiscriminator)?;
        let body_at = body_at(&d, header.version);
        let (version, endian) = (header.version, header.endian);
        Ok(Reply { version, endian, request_id, status, contexts, body_at, message })
    }

    /// A decoder at the first octet of the body.
    #[inline]
    #[must_use]
    pub fn body(&self) -> Decoder<'m> {
        let d = Decoder::new(self.message, self.endian).at(self.body_at);
        d.with_version(self.version).with_from_server(true)
    }
}

/// Begins a reply at the end of what the encoder holds. The body follows through the encoder, then
/// [`finish`](super::finish).
///
/// # Errors
/// [`CdrError::TooLong`].
#[inline]
pub fn begin_reply(
    e: &mut Encoder<'_>,
    version: Version,
    request_id: u32,
    status: ReplyStatus,
    contexts: &[ServiceContext<'_>],
) -> Result<(), CdrError> {
    e.set_from_server(true);
    if version.is_1_2() && contexts.is_empty() {
        let header = begin_in(e, version, MessageKind::Reply);
        let after = [number(request_id, e.endian()), number(u32::from(status as u8), e.endian()), 0];
        let mut octets = [0; Header::LEN + 12];
        let (before, fixed) = octets.split_at_mut(Header::LEN);
        before.copy_from_slice(&header);
        fixed.copy_from_slice(bytemuck::bytes_of(&after));
        e.write_raw(&octets);
        e.begin_body(8);
        return Ok(());
    }
    begin_otherwise(e, version, request_id, status, contexts)
}

/// The same with service contexts, or of an earlier version.
#[inline(never)]
fn begin_otherwise(
    e: &mut Encoder<'_>,
    version: Version,
    request_id: u32,
    status: ReplyStatus,
    contexts: &[ServiceContext<'_>],
) -> Result<(), CdrError> {
    begin(e, version, MessageKind::Reply);
    if version.is_1_2() {
        e.write_u32(request_id);
        e.write_u32(u32::from(status as u8));
        contexts::write(e, contexts)?;
        e.begin_body(8);
    } else {
        contexts::write(e, contexts)?;
        e.write_u32(request_id);
        e.write_u32(u32::from(status as u8));
        e.begin_body(1);
    }
    Ok(())
}
