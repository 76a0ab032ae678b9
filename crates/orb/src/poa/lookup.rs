//! The input of the look-up of a servant.

use corelane_sched::{Priority, PriorityBand};

use crate::rt::CallerPriority;
use crate::server::connection::ConnectionOrigin;

/// The properties of a request that the look-up of its servant needs.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'w> {
    pub(crate) key: &'w [u8],
    /// Name of the operation, for a servant locator.
    pub(crate) operation: &'w [u8],
    pub(crate) priority: ClientPriority,
    /// Priority band of the request's connection.
    pub(crate) band: Option<PriorityBand>,
    /// Origin of the request's connection; `None` for a collocated call.
    pub(crate) origin: Option<&'w ConnectionOrigin>,
}

/// The source of the client's priority for a request.
#[derive(Clone, Copy)]
pub(crate) enum ClientPriority {
    Propagated(Option<Priority>),
    /// The calling thread is the client. Its priority is determined only if the look-up needs it,
    /// which is rare.
    CallingThread,
    /// Another thread, with this priority, waits for the call.
    WaitingCaller(CallerPriority),
}
