//! The last messages of a connection: CloseConnection, MessageError, and the reply to a request
//! that is too large.

use corelane_wire::connection::ProtocolFault;
use corelane_wire::giop::{self, Header, MessageKind, ReplyStatus, Request};
use corelane_wire::{Encoder, Limits};

use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};

/// Returns CloseConnection of GIOP 1.0, which peers of every GIOP version understand.
pub(crate) fn close_connection() -> Vec<u8> {
    let mut message = Encoder::new();
    giop::write_close_connection(&mut message, corelane_wire::Version::GIOP_1_0);
    message.into_reusable_buffer()
}

/// Returns MessageError. If the fault is a two-way request that is too large, and its header has
/// arrived, a reply with IMP_LIMIT precedes it, so that the client does not send the request again.
/// `octets` are the bytes of the faulty message that have arrived.
#[cold]
pub(crate) fn fault_reply(fault: ProtocolFault, octets: &[u8], limits: &Limits) -> Vec<u8> {
    let mut messages = match fault {
        ProtocolFault::TooLarge { .. } => too_large_reply(octets, limits).unwrap_or_default(),
        _ => Vec::new(),
    };
    messages.extend(message_error());
    messages
}

/// Returns a reply with IMP_LIMIT. `octets` are the bytes of the request that have arrived. Returns
/// `None` unless they contain the whole header of a request with a reply.
fn too_large_reply(octets: &[u8], limits: &Limits) -> Option<Vec<u8>> {
    let header = Header::parse(octets.first_chunk()?).ok().filter(|header| header.kind == MessageKind::Request)?;
    let request =
        Request::parse(octets, &header, limits).ok().filter(|request| request.response_expected.is_expected())?;
    let mut reply = Encoder::new();
    let status = ReplyStatus::SystemException;
    giop::begin_reply(&mut reply, header.version, request.request_id, status, &[]).ok()?;
    SystemException::new(Kind::ImpLimit, crate::minor::MESSAGE_TOO_LARGE, Completion::No).encode(&mut reply);
    giop::finish_message(&mut reply).ok()?;
    Some(reply.into_reusable_buffer())
}

/// Returns MessageError of the highest GIOP version that the ORB supports, because the peer's
/// version may be higher still.
pub(crate) fn message_error() -> Vec<u8> {
    let mut message = Encoder::new();
    giop::write_message_error(&mut message, corelane_wire::Version::HIGHEST);
    message.into_reusable_buffer()
}
