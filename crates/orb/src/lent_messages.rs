//! Messages that end in memory which the sender lends to the receiver, over transports that can
//! lend ([`MemoryLending`](corelane_net::MemoryLending)).
//!
//! The sender replaces the last octets of a message by a reference. The receiver maps the lent
//! memory behind the beginning of the message, and then has the whole message as one slice.

use std::io;

use corelane_net::{LentReference, Stream};
use corelane_sys::sealed::LentFile;
use corelane_wire::Limits;
use corelane_wire::cdr::BORROW_THRESHOLD;
use corelane_wire::giop::{self, Header};

use crate::fault::PeerFault;
use crate::receive::ReceiveBuffer;

/// Without the feature, transports lend nothing, and small programs need none of this code.
const IS_ENABLED: bool = cfg!(feature = "shared-memory");

/// A message whose last octets are lent.
pub(crate) struct ShortMessage<'m> {
    header: [u8; Header::LEN],
    rest: &'m [u8],
    reference: [u8; LentReference::LEN],
}

impl<'m> ShortMessage<'m> {
    /// Lends the last of the `slices` of a message, if it is in memory that can be lent and
    /// `stream` lends. On `stream`, messages must be sent in the order in which their memory was
    /// lent.
    #[inline]
    pub(crate) fn new(stream: &dyn Stream, slices: &[&'m [u8]]) -> Option<Self> {
        if !IS_ENABLED {
            return None;
        }
        let [head, octets] = slices else { return None };
        if octets.len() < BORROW_THRESHOLD || head.len() > LentFile::MAX_HEAD {
            return None;
        }
        let (header, rest) = head.split_first_chunk()?;
        let header = giop::lent_header(header, head.len())?;
        let reference = stream.memory_lending()?.lend(octets)?.to_bytes();
        Some(ShortMessage { header, rest, reference })
    }

    pub(crate) fn slices(&self) -> [&[u8]; 3] {
        [&self.header, self.rest, &self.reference]
    }
}

pub(crate) enum TakeError {
    Fault(PeerFault),
    Io(io::Error),
}

/// Returns true if the message at the front of `unread` ends in lent memory.
#[inline]
pub(crate) fn is_lent(stream: &dyn Stream, unread: &[u8]) -> bool {
    IS_ENABLED && giop::is_lent(unread) && stream.memory_lending().is_some()
}

/// Maps the lent octets of a message, and returns the whole message and its header. `message` is
/// the received message, which has a reference in place of the lent octets.
#[cold]
pub(crate) fn take(
    stream: &dyn Stream,
    header: &Header,
    message: &[u8],
    limits: &Limits,
) -> Result<(Header, ReceiveBuffer), TakeError> {
    let Some((lending, (rest, reference))) = stream.memory_lending().zip(giop::split_lent(message)) else {
        return Err(TakeError::Fault(PeerFault::LentMemory));
    };
    let reference = LentReference::from_bytes(reference);
    let header = giop::whole_message_header(header, rest.len(), reference.length, limits)
        .map_err(|fault| TakeError::Fault(fault.into()))?;
    match lending.take([&header.to_bytes(), rest], reference) {
        Ok(buffer) => Ok((header, ReceiveBuffer::from(buffer))),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(TakeError::Fault(PeerFault::LentMemory)),
        Err(error) => Err(TakeError::Io(error)),
    }
}
