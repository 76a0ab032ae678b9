//! Protocol faults of a peer.

use std::fmt;

use corelane_wire::CdrError;
use corelane_wire::connection::ProtocolFault;
use corelane_wire::giop::MessageKind;

/// A violation of the protocol by the peer. The connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The bytes are not GIOP, or exceed a limit.
    Protocol(ProtocolFault),
    /// A message of a kind that this side does not accept.
    Unexpected(MessageKind),
    /// A header that does not decode.
    Malformed(CdrError),
}

impl From<ProtocolFault> for Fault {
    fn from(fault: ProtocolFault) -> Self {
        Fault::Protocol(fault)
    }
}

impl From<CdrError> for Fault {
    fn from(error: CdrError) -> Self {
        Fault::Malformed(error)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Protocol(fault) => fault.fmt(f),
            Fault::Unexpected(kind) => write!(f, "an unexpected {kind:?} message"),
            Fault::Malformed(error) => write!(f, "a message header in which {}", error.text()),
        }
    }
}
