//! What a peer can do wrong, and what to answer.

use std::fmt;

use crate::giop::{HeaderError, Version};

/// A breach of the protocol by the peer. The connection is of no use after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolFault {
    /// The octets are not the header of a message that is understood here.
    Header(HeaderError),
    /// The message is larger than the limit.
    TooLarge {
        /// Octets announced.
        size: u64,
        /// [`Limits::message_size`](crate::Limits::message_size).
        limit: u32,
    },
}

/// What the peer is to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A MessageError of this version, then the end of the connection.
    MessageError(Version),
    /// The end of the connection.
    Close,
}

impl ProtocolFault {
    /// What to answer (CORBA 3.0.3 section 15.4.8).
    #[must_use]
    pub fn answer(&self) -> Answer {
        Answer::MessageError(Version::GIOP_1_2)
    }
}

impl From<HeaderError> for ProtocolFault {
    fn from(error: HeaderError) -> ProtocolFault {
        ProtocolFault::Header(error)
    }
}

impl fmt::Display for ProtocolFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtocolFault::Header(error) => error.fmt(f),
            ProtocolFault::TooLarge { size, limit } => {
                write!(f, "expected a message of at most {limit} octets, got {size}")
            }
        }
    }
}

impl std::error::Error for ProtocolFault {}
