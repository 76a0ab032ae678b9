//! The protocol faults of a peer.

use std::fmt;

use crate::giop::{HeaderError, MessageKind};

/// A breach of the protocol by the peer, after which the connection cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolFault {
    /// The bytes are not the header of a supported message.
    Header(HeaderError),
    /// The message, with all its fragments, is larger than the limit.
    TooLarge {
        /// Size in bytes, announced or received so far.
        size: u64,
        /// The value of [`Limits::max_message_size`](crate::Limits::max_message_size).
        limit: u32,
    },
    /// All partial messages of the connection together are larger than the limit.
    PartialMessagesTooLarge {
        /// The total size in bytes of the partial messages, the message that exceeds the limit
        /// included.
        size: u64,
        /// The value of
        /// [`Limits::max_partial_message_bytes`](crate::Limits::max_partial_message_bytes).
        limit: u32,
    },
    /// The peer has begun more fragmented messages than the limit without finishing them.
    TooManyPartialMessages {
        /// The value of [`Limits::max_partial_messages`](crate::Limits::max_partial_messages).
        limit: u32,
    },
    /// A message has more fragments than the limit.
    TooManyFragments {
        /// The value of [`Limits::max_fragments`](crate::Limits::max_fragments).
        limit: u32,
    },
    /// A Fragment continues no partial message of the connection.
    UnexpectedFragment {
        /// The request id in the Fragment; `None` in GIOP 1.1.
        request_id: Option<u32>,
    },
    /// A Fragment has another version or byte order than the message that it continues.
    FragmentMismatch,
    /// A message that GIOP does not permit to be fragmented announces fragments.
    NotFragmentable {
        /// The type of the message.
        kind: MessageKind,
    },
    /// A fragmented message begins while another one is incomplete. In GIOP 1.2 this is a fault
    /// only if both have the same request id; in GIOP 1.1 it is always a fault, because fragments
    /// name no request.
    InterleavedFragments,
    /// The message is too short for a request id.
    MissingRequestId,
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
            ProtocolFault::PartialMessagesTooLarge { size, limit } => {
                write!(f, "expected unfinished messages of at most {limit} octets together, got {size}")
            }
            ProtocolFault::TooManyPartialMessages { limit } => {
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
            ProtocolFault::InterleavedFragments => {
                f.write_str("expected the next fragment of a message, got another message")
            }
            ProtocolFault::MissingRequestId => f.write_str("expected a request id, got a shorter message"),
        }
    }
}

impl std::error::Error for ProtocolFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_different_text() {
        let faults = [
            ProtocolFault::from(HeaderError::CompressedMessage),
            ProtocolFault::TooLarge { size: 4711, limit: 815 },
            ProtocolFault::PartialMessagesTooLarge { size: 4711, limit: 815 },
            ProtocolFault::TooManyPartialMessages { limit: 815 },
            ProtocolFault::TooManyFragments { limit: 815 },
            ProtocolFault::UnexpectedFragment { request_id: Some(4711) },
            ProtocolFault::UnexpectedFragment { request_id: None },
            ProtocolFault::FragmentMismatch,
            ProtocolFault::NotFragmentable { kind: MessageKind::CancelRequest },
            ProtocolFault::InterleavedFragments,
            ProtocolFault::MissingRequestId,
        ];
        let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
        for (index, (fault, text)) in faults.iter().zip(&texts).enumerate() {
            assert!(!text.is_empty() && !texts[..index].contains(text), "{text:?}");
            for part in ["4711", "815", "CancelRequest"] {
                assert_eq!(text.contains(part), format!("{fault:?}").contains(part), "{part} in {text:?}");
            }
        }
    }
}
