//! What a peer can do wrong.

use std::fmt;

use crate::giop::{HeaderError, MessageKind};

/// A breach of the protocol by the peer. The connection is of no use after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolFault {
    /// The octets are not the header of a message that is understood here.
    Header(HeaderError),
    /// The message, its fragments put together, is larger than the limit.
    TooLarge {
        /// Octets announced or received so far.
        size: u64,
        /// [`Limits::message_size`](crate::Limits::message_size).
        limit: u32,
    },
    /// The unfinished messages of the connection together are larger than the limit.
    TooMuchPending {
        /// Octets that they would have.
        size: u64,
        /// [`Limits::pending_octets`](crate::Limits::pending_octets).
        limit: u32,
    },
    /// More unfinished messages than the limit.
    TooManyPending {
        /// [`Limits::pending_fragmented`](crate::Limits::pending_fragmented).
        limit: u32,
    },
    /// A message in more fragments than the limit.
    TooManyFragments {
        /// [`Limits::fragments`](crate::Limits::fragments).
        limit: u32,
    },
    /// A Fragment of a message that did not begin.
    UnexpectedFragment {
        /// The request that it names; GIOP 1.1 names none.
        request_id: Option<u32>,
    },
    /// A Fragment whose version or byte order is not that of the message that it continues.
    FragmentMismatch,
    /// A message that cannot have fragments announces one.
    NotFragmentable {
        /// Its type.
        kind: MessageKind,
    },
    /// A second message begins before the last fragment of the first, with the same request id or in GIOP 1.1 without any.
    Interleaved,
    /// A message that is too short to have a request id.
    NoRequestId,
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
            ProtocolFault::TooMuchPending { size, limit } => {
                write!(f, "expected unfinished messages of at most {limit} octets together, got {size}")
            }
            ProtocolFault::TooManyPending { limit } => {
                write!(f, "expected at most {limit} unfinished messages, got one more")
            }
            ProtocolFault::TooManyFragments { limit } => {
                write!(f, "expected at most {limit} fragments of a message, got one more")
            }
            ProtocolFault::UnexpectedFragment { request_id: Some(id) } => {
                write!(f, "expected a message to begin, got a fragment of request {id}")
            }
            ProtocolFault::UnexpectedFragment { request_id: None } => {
                f.write_str("expected a message to begin, got a fragment")
            }
            ProtocolFault::FragmentMismatch => {
                f.write_str("expected a fragment in the version and byte order of its message, got another")
            }
            ProtocolFault::NotFragmentable { kind } => {
                write!(f, "expected a whole message, got a {kind:?} that announces fragments")
            }
            ProtocolFault::Interleaved => {
                f.write_str("expected the rest of a fragmented message, got another in its place")
            }
            ProtocolFault::NoRequestId => f.write_str("expected a request id, got a shorter message"),
        }
    }
}

impl std::error::Error for ProtocolFault {}
