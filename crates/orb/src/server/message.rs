//! A complete GIOP message, and the memory that a thread needs to run a request.

#[cfg(feature = "core-pool")]
use corelane_wire::Limits;
use corelane_wire::Scratch;
#[cfg(feature = "core-pool")]
use corelane_wire::giop;
use corelane_wire::giop::{Header, MessageKind};

use crate::receive::ReceiveBuffer;

/// Memory of a thread for running requests. The thread uses it for one request after the other.
#[derive(Debug, Default)]
pub(crate) struct RequestMemory {
    /// The buffer in which replies are written.
    pub(crate) reply: Vec<u8>,
    /// The memory for values that arguments borrow.
    pub(crate) scratch: Scratch,
}

/// A complete message with its own memory, which can be passed to another thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// A message that arrived in one piece: its header, its length in bytes, and the buffer that
    /// begins with it.
    Buffered(Header, usize, ReceiveBuffer),
    /// A message that was assembled from fragments, or copied: its header, its bytes, and the
    /// positions at which GIOP 1.1 fragments begin.
    Assembled(Header, Vec<u8>, Vec<usize>),
}

impl Message {
    /// Returns the number of bytes of memory that the message holds.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Message::Buffered(_, length, buffer) => buffer.held().max(*length),
            Message::Assembled(_, octets, _) => octets.len(),
        }
    }

    /// Returns true if the message is a request to which the client expects a reply.
    #[cold]
    pub(super) fn wants_reply(&self) -> bool {
        let (header, octets) = self.parts();
        wants_reply(header, octets)
    }

    /// Returns the header, and the bytes of the message including the header.
    pub(crate) fn parts(&self) -> (&Header, &[u8]) {
        match self {
            Message::Buffered(header, length, buffer) => (header, &buffer.unread()[..*length]),
            Message::Assembled(header, octets, _) => (header, octets),
        }
    }
}

/// Returns true if a message is a request to which the client expects a reply.
pub(super) fn wants_reply(header: &Header, octets: &[u8]) -> bool {
    header.kind == MessageKind::Request && !is_oneway(header, octets)
}

/// Returns the object key in a message; `None` if the message names no object, or is malformed.
#[cfg(feature = "core-pool")]
pub(super) fn object_key<'m>(header: &Header, octets: &'m [u8], limits: &'m Limits) -> Option<&'m [u8]> {
    let target = match header.kind {
        MessageKind::Request => {
            let mut request = giop::Request::unparsed(octets, header);
            request.parse_header(limits).ok()?;
            request.target
        }
        MessageKind::LocateRequest => giop::LocateRequest::parse(octets, header, limits).ok()?.target,
        _ => return None,
    };
    match target {
        giop::Target::Key(key) => Some(key),
        other => crate::address::key_in_profile(&other, limits),
    }
}

/// Returns true if a message is a request that is known to be a oneway.
fn is_oneway(header: &Header, octets: &[u8]) -> bool {
    // In GIOP 1.2, the response flags follow the header and the request id (CORBA 3.0.3, section
    // 15.4.2). In GIOP 1.0 and 1.1, a flag follows the service contexts, which are not read here,
    // so these requests count as two-way.
    const RESPONSE_FLAGS: usize = 16;
    header.kind == MessageKind::Request
        && header.version.has_giop_1_2_headers()
        && octets.get(RESPONSE_FLAGS).is_some_and(|flags| flags & 1 == 0)
}
