//! GIOP messages, versions 1.0, 1.1 and 1.2 (CORBA 3.0.3 section 15.4): views of received ones, writers of new ones.
//!
//! A view borrows from the octets of one whole message, index 0 being octet 0 of its header. A writer appends to an
//! [`Encoder`](crate::Encoder): a `write_...header` or `begin_...` function, then the body through the encoder, then
//! [`finish`], which fills in the size.
//!
//! | type | | 1.0 | 1.1 | 1.2 | who sends it |
//! |---|---|---|---|---|---|
//! | 0 | [`Request`] | x | x | x | client (1.2 with bidirectional GIOP: both) |
//! | 1 | [`Reply`] | x | x | x | server |
//! | 2 | [`CancelRequest`] | x | x | x | client |
//! | 3 | [`LocateRequest`] | x | x | x | client |
//! | 4 | [`LocateReply`] | x | x | x | server |
//! | 5 | CloseConnection | x | x | x | server; 1.2: both |
//! | 6 | MessageError | x | x | x | both |
//! | 7 | Fragment | | x | x | both |

mod contexts;
mod control;
mod header;
mod locate;
mod reply;
mod request;

pub use contexts::{Contexts, ServiceContext, context_id};
pub use control::{CancelRequest, write_cancel_request, write_close_connection, write_message_error};
pub use header::{Header, HeaderError, MessageKind, finish};
pub use locate::{LocateReply, LocateRequest, LocateStatus, begin_locate_reply, write_locate_request};
pub use reply::{Reply, ReplyStatus, begin_reply};
pub use request::{AddressingMode, Request, RequestHead, ResponseExpected, Target, write_request_header};

/// A version of GIOP, or of an IIOP profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Always 1 so far.
    pub major: u8,
    /// 0 to 2 here.
    pub minor: u8,
}

impl Version {
    /// GIOP 1.0.
    pub const GIOP_1_0: Version = Version { major: 1, minor: 0 };
    /// GIOP 1.1.
    pub const GIOP_1_1: Version = Version { major: 1, minor: 1 };
    /// GIOP 1.2, the highest that is spoken here. (1.3 differs by the component model only, and nobody sends it.)
    pub const GIOP_1_2: Version = Version { major: 1, minor: 2 };

    /// Whether messages of this version are understood here.
    #[inline]
    #[must_use]
    pub const fn is_supported(self) -> bool {
        self.major == 1 && self.minor <= 2
    }

    /// Whether this is 1.2, where request ids lead and bodies are aligned to 8.
    #[inline]
    pub(crate) const fn is_1_2(self) -> bool {
        self.minor >= 2
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests;
