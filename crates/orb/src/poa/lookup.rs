//! The input of the look-up of a servant.

use corelane_sched::{Priority, PriorityBand};

use crate::rt::CallerPriority;
use crate::server::connection::ConnectionOrigin;

#[derive(Clone, Copy)]
pub(crate) struct Lookup<'w> {
    pub(crate) key: &'w [u8],
    pub(crate) operation: &'w [u8],
    pub(crate) priority: ClientPriority,
    pub(crate) band: Option<PriorityBand>,
    /// The connection on which the request arrived; `None` for a collocated call.
    pub(crate) origin: Option<&'w ConnectionOrigin>,
}

#[derive(Clone, Copy)]
pub(crate) enum ClientPriority {
    Propagated(Option<Priority>),
    /// A collocated call: the look-up reads the priority of the calling thread if it needs the
    /// priority.
    CallingThread,
    WaitingCaller(CallerPriority),
}
