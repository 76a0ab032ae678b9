//! GIOP messages, versions 1.0, 1.1 and 1.2 (CORBA 3.0.3 section 15.4): views of received messages,
//! and writers of new messages.
//!
//! A view borrows the bytes of one whole message, where index 0 is the first byte of the header. A
//! message is written by appending to an [`Encoder`](crate::Encoder). The caller calls a
//! `write_...header` or `begin_...` function, writes the body through the encoder, and calls
//! [`finish_message`], which fills in the size.
//!
//! | type | | 1.0 | 1.1 | 1.2 | sender |
//! |---|---|---|---|---|---|
//! | 0 | [`Request`] | x | x | x | client |
//! | 1 | [`Reply`] | x | x | x | server |
//! | 2 | [`CancelRequest`] | x | x | x | client |
//! | 3 | [`LocateRequest`] | x | x | x | client |
//! | 4 | [`LocateReply`] | x | x | x | server |
//! | 5 | CloseConnection | x | x | x | server; 1.2: both |
//! | 6 | MessageError | x | x | x | both |
//! | 7 | Fragment | | x | x | both |
//!
//! With bidirectional GIOP (1.2), each side is client and server.

mod contexts;
mod control;
mod header;
mod lent;
mod locate;
mod reply;
mod request;
mod version;

pub use contexts::{ReceivedServiceContexts, ServiceContext, context_id};
pub use control::{CancelRequest, write_cancel_request, write_close_connection, write_message_error};
pub use header::{Header, HeaderError, MessageKind, finish_message};
pub use lent::{is_lent, lent_header, split_lent, whole_message_header};
pub use locate::{LocateReply, LocateRequest, LocateStatus, begin_locate_reply, write_locate_request};
pub use reply::{Reply, ReplyStatus, begin_reply};
pub use request::{AddressingMode, Request, RequestHeader, ResponseExpected, TargetAddress, write_request_header};
pub use version::Version;
pub(crate) use version::WideForm;

#[cfg(test)]
mod tests;
