//! Results of the exchange of a request and its reply on a connection.

use std::io;

use corelane_wire::cdr::MemoryRefusal;

use crate::fault::PeerFault;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BytesSent {
    None,
    /// Some bytes, but not all: the server cannot have run the request.
    Some,
    /// The whole request: the server may have run it.
    All,
}

#[derive(Debug)]
pub(crate) enum ExchangeError {
    Io(io::Error),
    Fault(PeerFault),
    TimedOut,
    Cancelled,
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
