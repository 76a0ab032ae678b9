//! The Reply message: the answer to a call.

use super::Version;
use super::contexts::{self, ReceivedServiceContexts, ServiceContext};
use super::header::{Header, MessageKind, begin, begin_header, number};
use super::request::body_offset;
use crate::cdr::{CdrError, Decoder, Encoder, Endian};
use crate::limits::Limits;

/// The kind of a reply's body (CORBA 3.0.3 section 15.4.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReplyStatus {
    /// The result, then inout and out arguments.
    NoException = 0,
    /// The repository id as a string, then the members.
    UserException = 1,
    /// A [`SystemExceptionBody`](crate::exception::SystemExceptionBody).
    SystemException = 2,
    /// The reference of the object to which the client sends the request again.
    LocationForward = 3,
    /// The new reference of an object that has moved permanently (1.2).
    LocationForwardPerm = 4,
    /// The wanted [`AddressingMode`](super::AddressingMode) as a short (1.2).
    NeedsAddressingMode = 5,
}

impl ReplyStatus {
    /// Returns the status with this number.
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
    /// The version of the message.
    pub version: Version,
    /// The byte order of the message.
    pub endian: Endian,
    /// The id of the request that this message answers.
    pub request_id: u32,
    /// The kind of the body.
    pub status: ReplyStatus,
    /// The service contexts.
    pub contexts: ReceivedServiceContexts<'m>,
    /// Offset of the body in bytes, from the start of the header; the length of the message if it
    /// has no body.
    pub body_offset: usize,
    /// The whole message.
    pub message: &'m [u8],
}

impl<'m> Reply<'m> {
    /// Number of bytes before the body of a [plain](Self::parse_header_of_plain_result) reply.
    pub const PLAIN_HEADER_LEN: usize = Header::LEN + 12;

    /// Parses the header of a reply. `message` is the whole message; `header` was parsed from its
    /// first 12 bytes.
    ///
    /// # Errors
    /// [`CdrError`] if it is malformed or exceeds a limit.
    #[inline]
    pub fn parse(message: &'m [u8], header: &Header, limits: &'m Limits) -> Result<Reply<'m>, CdrError> {
        if header.version.has_giop_1_2_headers()
            && let Some(reply) = Self::parse_fast(message, header)
        {
            return Ok(reply);
        }
        Self::parse_general(message, header, limits)
    }

    #[inline]
    fn parse_fast(message: &'m [u8], header: &Header) -> Option<Reply<'m>> {
        let (_, rest) = message.split_first_chunk::<{ Header::LEN }>()?;
        let [id, status, 0]: [u32; 3] = bytemuck::cast(*rest.first_chunk::<12>()?) else { return None };
        Some(Reply {
            version: header.version,
            endian: header.endian,
            request_id: number(id, header.endian),
            status: ReplyStatus::from_number(number(status, header.endian))?,
            contexts: ReceivedServiceContexts::EMPTY,
            // The offset is a multiple of 8, so the body needs no padding.
            body_offset: Self::PLAIN_HEADER_LEN,
            message,
        })
    }

    /// Parses the header of a plain reply at the front of `unread`. A plain reply satisfies
    /// [`Header::parse_unfragmented_1_2`], answers `request_id`, reports no exception and has no service
    /// contexts. Returns `None` for every other message.
    #[inline]
    #[must_use]
    pub fn parse_header_of_plain_result(unread: &[u8], request_id: u32, max_size: u32) -> Option<Header> {
        let header = Header::parse_unfragmented_1_2(unread, MessageKind::Reply, max_size)?;
        let fixed = unread.get(Header::LEN..header.total_len())?.first_chunk::<12>()?;
        let [id, status, contexts]: [u32; 3] = bytemuck::cast(*fixed);
        (id == number(request_id, header.endian) && (status | contexts) == 0).then_some(header)
    }

    fn parse_general(message: &'m [u8], header: &Header, limits: &'m Limits) -> Result<Reply<'m>, CdrError> {
        let mut d = Decoder::new(message, header.endian).at_position(Header::LEN).with_limits(limits);
        let (request_id, status, contexts);
        if header.version.has_giop_1_2_headers() {
            request_id = d.read_u32()?;
            status = d.read_u32()?;
            contexts = ReceivedServiceContexts::parse(&mut d, limits.max_service_contexts)?;
        } else {
            contexts = ReceivedServiceContexts::parse(&mut d, limits.max_service_contexts)?;
            request_id = d.read_u32()?;
            status = d.read_u32()?;
        }
        let status = ReplyStatus::from_number(status).ok_or(CdrError::BadDiscriminator)?;
        let body_offset = body_offset(&d, header.version);
        let (version, endian) = (header.version, header.endian);
        Ok(Reply { version, endian, request_id, status, contexts, body_offset, message })
    }

    /// Returns a decoder at the first byte of the body.
    #[inline]
    #[must_use]
    pub fn body(&self) -> Decoder<'m> {
        let d = Decoder::new(self.message, self.endian).at_position(self.body_offset);
        d.with_version(self.version).with_written_by_server(true)
    }
}

/// Begins a reply at the end of the encoder's contents. The caller writes the body through the
/// encoder and then calls [`finish_message`](super::finish_message).
///
/// # Errors
/// [`CdrError::LengthOverflow`] if a service context does not fit in 32 bits.
#[inline(always)]
pub fn begin_reply(
    e: &mut Encoder<'_>,
    version: Version,
    request_id: u32,
    status: ReplyStatus,
    contexts: &[ServiceContext<'_>],
) -> Result<(), CdrError> {
    e.set_written_by_server(true);
    if version.has_giop_1_2_headers() && contexts.is_empty() {
        let header = begin_header(e, version, MessageKind::Reply);
        let after = [number(request_id, e.endian()), number(u32::from(status as u8), e.endian()), 0];
        let mut octets = [0; Header::LEN + 12];
        let (before, fixed) = octets.split_at_mut(Header::LEN);
        before.copy_from_slice(&header);
        fixed.copy_from_slice(bytemuck::bytes_of(&after));
        e.write_bytes(&octets);
        e.begin_body(8);
        return Ok(());
    }
    begin_reply_general(e, version, request_id, status, contexts)
}

#[inline(never)]
fn begin_reply_general(
    e: &mut Encoder<'_>,
    version: Version,
    request_id: u32,
    status: ReplyStatus,
    contexts: &[ServiceContext<'_>],
) -> Result<(), CdrError> {
    begin(e, version, MessageKind::Reply);
    if version.has_giop_1_2_headers() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::giop::finish_message;

    fn each(mut look: impl FnMut(&[u8], &Header, u32, usize)) {
        let context = ServiceContext { id: 9, data: &[1, 2, 3] };
        let contexts = [context; 3];
        for version in [Version::GIOP_1_0, Version::GIOP_1_1, Version::GIOP_1_2] {
            for endian in [Endian::Big, Endian::Little] {
                for status in 0..7 {
                    for count in 0..contexts.len() {
                        let mut e = Encoder::new();
                        e.set_endian(endian);
                        begin(&mut e, version, MessageKind::Reply);
                        let write_contexts = |e: &mut Encoder<'_>| contexts::write(e, &contexts[..count]).unwrap();
                        if !version.has_giop_1_2_headers() {
                            write_contexts(&mut e);
                        }
                        e.write_u32(0x0102_0304);
                        e.write_u32(status);
                        if version.has_giop_1_2_headers() {
                            write_contexts(&mut e);
                        }
                        e.begin_body(if version.has_giop_1_2_headers() { 8 } else { 1 });
                        e.write_u8(7);
                        finish_message(&mut e).unwrap();
                        let message = e.to_vec();
                        let header = Header::parse(message.first_chunk().unwrap()).unwrap();
                        look(&message, &header, status, count);
                    }
                }
            }
        }
    }

    #[test]
    fn fast_and_general_parser_agree() {
        each(|message, header, status, count| {
            let careful = Reply::parse_general(message, header, &Limits::DEFAULT).ok();
            assert_eq!(careful.is_some(), ReplyStatus::from_number(status).is_some());
            if header.version.has_giop_1_2_headers() {
                let plain = Reply::parse_fast(message, header);
                assert_eq!(plain.is_some(), count == 0 && careful.is_some());
                if plain.is_some() {
                    assert_eq!(format!("{plain:?}"), format!("{careful:?}"));
                }
            }
            let either = Reply::parse(message, header, &Limits::DEFAULT).ok();
            assert_eq!(format!("{either:?}"), format!("{careful:?}"));
            let Some(reply) = either else { return };
            assert_eq!((reply.request_id, reply.status as u32, reply.contexts.len()), (0x0102_0304, status, count));
            assert_eq!((reply.body().read_u8(), reply.body().remaining_len()), (Ok(7), 1));
        });
    }

    #[test]
    fn plain_reply_has_results_and_no_contexts() {
        each(|message, header, status, count| {
            let is_plain = header.version.has_giop_1_2_headers() && status == 0 && count == 0;
            assert_eq!(
                Reply::parse_header_of_plain_result(message, 0x0102_0304, 100),
                is_plain.then_some(*header),
                "{status} {count}"
            );
            assert_eq!(Reply::parse_header_of_plain_result(message, 0x0102_0305, 100), None);
        });
    }
}
