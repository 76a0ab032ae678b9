//! The input for the look-up of a servant: the parts of a request that the look-up needs.

use corelane_sched::{Priority, PriorityBand};

use crate::rt::CallerPriority;
use crate::server::connection::ConnectionOrigin;

/// The parts of a request that the look-up of its servant needs.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'w> {
    pub(crate) key: &'w [u8],
    /// Name of the operation, for a servant locator.
    pub(crate) operation: &'w [u8],
    pub(crate) priority: ClientPriority,
    /// Band of the request's connection.
    pub(crate) band: Option<PriorityBand>,
    /// Connection on which the request arrived; `None` within the process.
    pub(crate) origin: Option<&'w ConnectionOrigin>,
}

/// The source of the client's priority, which the request carries.
#[derive(Clone, Copy)]
pub(crate) enum ClientPriority {
    Propagated(Option<Priority>),
    /// The calling thread is the client. Its priority is determined only if it is needed, which is
    /// rare.
    CallingThread,
    /// Another thread waits for the call and has this priority.
    WaitingCaller(CallerPriority),
}
