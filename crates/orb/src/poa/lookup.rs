//! The description of a request for the lookup of its servant.

use corelane_sched::{Priority, PriorityBand};

use crate::rt::CallerPriority;
use crate::server::connection::ConnectionOrigin;

/// The description of a request, for the lookup of its servant.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'w> {
    pub(crate) key: &'w [u8],
    /// Operation name, for a servant locator.
    pub(crate) operation: &'w [u8],
    pub(crate) priority: ClientPriority,
    /// Band of the request's connection.
    pub(crate) band: Option<PriorityBand>,
    /// Connection that the request came by; `None` within the process.
    pub(crate) origin: Option<&'w ConnectionOrigin>,
}

/// The source of the priority that the client propagates.
#[derive(Clone, Copy)]
pub(crate) enum ClientPriority {
    Propagated(Option<Priority>),
    /// The calling thread is the client. Its priority is determined only if needed, which is rare.
    CallingThread,
    /// The priority of another thread, which waits for the call.
    WaitingCaller(CallerPriority),
}
