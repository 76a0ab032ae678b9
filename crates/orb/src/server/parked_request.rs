//! A request that cannot run yet, and the choice of the thread that continues the request.

use std::fmt;

/// Maximum number of parked requests in one list. Further requests are answered with TRANSIENT 1.
pub(crate) const MAX_PARKED_REQUESTS: usize = 1024;
/// Maximum size in bytes of the parked requests in one list. The maximum prevents a peer from
/// filling the memory of a server whose POA managers are not active yet.
pub(crate) const MAX_PARKED_BYTES: usize = 64 << 20;

/// The thread that continues a parked request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResumeOn {
    /// One of the threads that serve the request's connection.
    ConnectionThread,
    CurrentThread,
}

/// A request that waits until a POA manager, an object or an activator is ready, or until a thread
/// is free.
pub(crate) struct ParkedRequest {
    /// Size of the request in bytes.
    pub(crate) bytes: usize,
    pub(crate) resume: Box<dyn FnOnce(ResumeOn) + Send>,
}

impl ParkedRequest {
    /// Continues the request on the threads of its connection.
    pub(crate) fn release(self) {
        (self.resume)(ResumeOn::ConnectionThread);
    }
}

impl fmt::Debug for ParkedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParkedRequest").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
