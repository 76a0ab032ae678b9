//! The messages with a small body or none: CancelRequest, CloseConnection, MessageError.

use super::Version;
use super::header::{Header, MessageKind, begin};
use crate::cdr::{CdrError, Decoder, Encoder};

/// A received CancelRequest (CORBA 3.0.3 section 15.4.4): the client no longer waits for the reply.
/// The server may nevertheless send the reply.
///
/// ```text
/// header | unsigned long id
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelRequest {
    /// The id of the cancelled request.
    pub request_id: u32,
}

impl CancelRequest {
    /// Parses the message.
    ///
    /// # Errors
    /// [`CdrError::Truncated`].
    pub fn parse(message: &[u8], header: &Header) -> Result<CancelRequest, CdrError> {
        let request_id = Decoder::new(message, header.endian).at_position(Header::LEN).read_u32()?;
        Ok(CancelRequest { request_id })
    }
}

/// Writes a CancelRequest.
pub fn write_cancel_request(e: &mut Encoder<'_>, version: Version, request_id: u32) {
    begin(e, version, MessageKind::CancelRequest);
    e.write_u32(request_id);
    e.patch_u32(Header::SIZE_AT, 4);
}

/// Writes a CloseConnection (CORBA 3.0.3 section 15.4.7): a header without a body.
pub fn write_close_connection(e: &mut Encoder<'_>, version: Version) {
    begin(e, version, MessageKind::CloseConnection);
}

/// Writes a MessageError (CORBA 3.0.3 section 15.4.8): a header without a body. In an answer to a
/// message of an unsupported version, `version` is the highest supported version.
pub fn write_message_error(e: &mut Encoder<'_>, version: Version) {
    begin(e, version, MessageKind::MessageError);
}
