//! Results of an exchange, in which a connection carries one request and its reply.

use std::io;

use corelane_wire::cdr::MemoryRefusal;

use crate::fault::PeerFault;

/// The part of a request that the transport accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BytesSent {
    /// No bytes.
    None,
    /// Some bytes, but not all: the server cannot have run the request.
    Some,
    /// The whole request: the server may have run it.
    All,
}

/// The reason why a request was not sent, or why no reply arrived.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// The transport failed, or the peer closed the connection.
    Io(io::Error),
    /// The peer broke the protocol, or sent CloseConnection or MessageError.
    Fault(PeerFault),
    TimedOut,
    /// The caller used its canceller.
    Cancelled,
    /// The ORB's memory for replies is exhausted.
    OverBudget(MemoryRefusal),
}

impl From<io::Error> for ExchangeError {
    #[cold]
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::TimedOut { ExchangeError::TimedOut } else { ExchangeError::Io(error) }
    }
}

impl From<PeerFault> for ExchangeError {
    fn from(fault: PeerFault) -> Self {
        ExchangeError::Fault(fault)
    }
}
