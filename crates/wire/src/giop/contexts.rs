//! Service contexts: data that accompanies a request or a reply.

use crate::cdr::{CdrError, Encoder, TaggedList, write_tagged};

/// Numbers of service contexts.
pub mod context_id {
    /// The object transaction service.
    pub const TRANSACTION_SERVICE: u32 = 0;
    /// The transmission code sets of the connection.
    pub const CODE_SETS: u32 = 1;
    /// The listen points of a client that accepts requests on this connection.
    pub const BI_DIR_IIOP: u32 = 5;
    /// The sender's code base (RMI).
    pub const SENDING_CONTEXT_RUN_TIME: u32 = 6;
    /// The policies of the invocation.
    pub const INVOCATION_POLICIES: u32 = 7;
    /// The Java exception behind an UNKNOWN exception.
    pub const UNKNOWN_EXCEPTION_INFO: u32 = 9;
    /// The CORBA priority of the request.
    pub const RT_CORBA_PRIORITY: u32 = 10;
    /// The priority band that the client requests for the connection.
    pub const RT_CORBA_PRIORITY_RANGE: u32 = 11;
    /// The version of a fault-tolerant group.
    pub const FT_GROUP_VERSION: u32 = 12;
    /// The identity of a fault-tolerant request.
    pub const FT_REQUEST: u32 = 13;
    /// A human-readable detail of an exception.
    pub const EXCEPTION_DETAIL_MESSAGE: u32 = 14;
    /// The remaining time for which the client waits (docs/wire-extensions.md).
    pub const REMAINING_DEADLINE: u32 = 0x434c_4e00;
    /// Security attributes (CSIv2).
    pub const SECURITY_ATTRIBUTE_SERVICE: u32 = 15;
}

/// A service context to be written.
///
/// ```text
/// unsigned long id | sequence<octet> data (an encapsulation, if the OMG defines the context)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceContext<'c> {
    /// The number of the context: [`context_id`].
    pub id: u32,
    /// The data of the context.
    pub data: &'c [u8],
}

/// The service contexts of a received message: pairs of number and data, checked when the message
/// is parsed.
pub type ReceivedServiceContexts<'m> = TaggedList<'m>;

#[inline]
pub(super) fn write(e: &mut Encoder<'_>, contexts: &[ServiceContext<'_>]) -> Result<(), CdrError> {
    write_tagged(e, contexts.iter().map(|context| (context.id, context.data)))
}
