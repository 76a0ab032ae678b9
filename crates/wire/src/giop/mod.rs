//! GIOP messages, versions 1.0, 1.1 and 1.2 (CORBA 3.0.3 section 15.4): views of received ones,
//! writers of new ones.
//!
//! A view borrows the bytes of one whole message, where index 0 is the first byte of the header. A
//! message is written by appending to an [`Encoder`](crate::Encoder). The caller calls a
//! `write_...header` or `begin_...` function, writes the body through the encoder, and calls
//! [`finish`], which fills in the size.
//!
//! | type | | 1.0 | 1.1 | 1.2 | sender |
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
    /// The major version, always 1 so far.
    pub major: u8,
    /// The minor version, 0 to 2 in supported messages.
    pub minor: u8,
}

impl Version {
    /// GIOP 1.0.
    pub const GIOP_1_0: Version = Version { major: 1, minor: 0 };
    /// GIOP 1.1.
    pub const GIOP_1_1: Version = Version { major: 1, minor: 1 };
    /// GIOP 1.2, the highest supported version. (GIOP 1.3 only adds the component model, and no
    /// known ORB sends it.)
    pub const GIOP_1_2: Version = Version { major: 1, minor: 2 };

    /// Returns true if messages of this version are supported.
    #[inline]
    #[must_use]
    pub const fn is_supported(self) -> bool {
        self.major == 1 && self.minor <= 2
    }

    /// Returns true for 1.2, where request ids come first and bodies are aligned to 8.
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
