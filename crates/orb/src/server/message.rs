//! A complete GIOP message, and the memory that a thread needs to run a request.

#[cfg(feature = "core-pool")]
use std::time::Duration;

#[cfg(feature = "core-pool")]
use corelane_wire::Limits;
use corelane_wire::Scratch;
use corelane_wire::giop::{Header, MessageKind};
#[cfg(feature = "core-pool")]
use corelane_wire::{giop, rt};

use crate::receive::ReceiveBuffer;

#[derive(Debug, Default)]
pub(crate) struct RequestMemory {
    pub(crate) reply: Vec<u8>,
    pub(crate) scratch: Scratch,
}

#[derive(Debug)]
pub(crate) enum Message {
    /// The header, the length in bytes, and the buffer that begins with the message.
    Buffered(Header, usize, ReceiveBuffer),
    /// The header, the bytes, and the positions at which GIOP 1.1 fragments begin.
    Assembled(Header, Vec<u8>, Vec<usize>),
}

impl Message {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Message::Buffered(_, length, buffer) => buffer.held().max(*length),
            Message::Assembled(_, octets, _) => octets.len(),
        }
    }

    #[cold]
    pub(super) fn wants_reply(&self) -> bool {
        let (header, octets) = self.parts();
        wants_reply(header, octets)
    }

    pub(crate) fn parts(&self) -> (&Header, &[u8]) {
        match self {
            Message::Buffered(header, length, buffer) => (header, &buffer.unread()[..*length]),
            Message::Assembled(header, octets, _) => (header, octets),
        }
    }
}

pub(super) fn wants_reply(header: &Header, octets: &[u8]) -> bool {
    header.kind == MessageKind::Request && !is_oneway(header, octets)
}

#[cfg(feature = "core-pool")]
pub(super) fn object_key<'m>(header: &Header, octets: &'m [u8], limits: &'m Limits) -> Option<&'m [u8]> {
    target_of(header, octets, limits).map(|(key, _)| key)
}

/// Returns the object key and the operation of a request, or the object key of a LocateRequest and
/// no operation.
#[cfg(feature = "core-pool")]
pub(super) fn target_of<'m>(
    header: &Header,
    octets: &'m [u8],
    limits: &'m Limits,
) -> Option<(&'m [u8], Option<&'m [u8]>)> {
    let (target, operation) = match header.kind {
        MessageKind::Request => {
            let mut request = giop::Request::with_unparsed_header(octets, header);
            request.parse_header(limits).ok()?;
            (request.target, Some(request.operation))
        }
        MessageKind::LocateRequest => (giop::LocateRequest::parse(octets, header, limits).ok()?.target, None),
        _ => return None,
    };
    let key = match target {
        giop::TargetAddress::Key(key) => key,
        other => crate::address::key_in_profile(&other, limits)?,
    };
    Some((key, operation))
}

/// Returns the time for which the client waits for the reply, counted from the moment when it sent
/// the request. `None` if the request does not carry a time.
#[cfg(feature = "core-pool")]
#[cold]
pub(super) fn remaining_time(header: &Header, octets: &[u8], limits: &Limits) -> Option<Duration> {
    let mut request = giop::Request::with_unparsed_header(octets, header);
    request.parse_header(limits).ok()?;
    let remaining = request.contexts.find(giop::context_id::REMAINING_DEADLINE);
    let whole = request.contexts.find(giop::context_id::INVOCATION_POLICIES);
    let remaining = remaining.and_then(|data| rt::parse_deadline_context(data).ok());
    let whole = whole.and_then(|data| rt::parse_round_trip_timeout(data, limits).ok()?);
    remaining.into_iter().chain(whole).min()
}

fn is_oneway(header: &Header, octets: &[u8]) -> bool {
    // In GIOP 1.0 and 1.1 the flag follows the service contexts. This function does not read them,
    // so requests of these versions count as two-way.
    const RESPONSE_FLAGS: usize = 16;
    header.kind == MessageKind::Request
        && header.version.has_giop_1_2_headers()
        && octets.get(RESPONSE_FLAGS).is_some_and(|flags| flags & 1 == 0)
}
