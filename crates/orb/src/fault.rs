//! Protocol faults of a peer.

use std::fmt;

use corelane_wire::CdrError;
use corelane_wire::connection::ProtocolFault;
use corelane_wire::giop::MessageKind;

/// A violation of the protocol by the peer. The connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerFault {
    /// The bytes are not GIOP, or exceed a limit.
    Protocol(ProtocolFault),
    /// A message of a kind that this side does not accept.
    UnexpectedMessage(MessageKind),
    /// A header that does not decode.
    MalformedMessage(CdrError),
    /// A message says that it ends in lent memory, but the peer did not lend this memory, or could
    /// still change it.
    LentMemory,
}

impl From<ProtocolFault> for PeerFault {
    fn from(fault: ProtocolFault) -> Self {
        PeerFault::Protocol(fault)
    }
}

impl From<CdrError> for PeerFault {
    fn from(error: CdrError) -> Self {
        PeerFault::MalformedMessage(error)
    }
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerFault::Protocol(fault) => fault.fmt(f),
            PeerFault::UnexpectedMessage(kind) => write!(f, "an unexpected {kind:?} message"),
            PeerFault::LentMemory => f.write_str("a message with memory that was not lent properly"),
            PeerFault::MalformedMessage(error) => write!(f, "a message header in which {}", error.text()),
        }
    }
}
