//! A parked request, which waits for an event before it can run, and the choice of the thread that
//! continues it.

use std::fmt;

/// Maximum number of parked requests in one list. Further requests are refused with TRANSIENT 1.
pub(crate) const MAX_PARKED_REQUESTS: usize = 1024;
/// Maximum total size in bytes of the parked requests in one list. Without it, a peer could fill
/// the memory of a server whose POA managers hold requests.
pub(crate) const MAX_PARKED_BYTES: usize = 64 << 20;

/// The thread that continues a parked request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResumeOn {
    /// One of the threads that serve the connection of the request.
    ConnectionThread,
    /// The thread that calls [`ParkedRequest::resume`].
    CurrentThread,
}

/// A request that waits until a POA manager, an object or a servant activator is ready, or until a
/// thread of a lane is free.
pub(crate) struct ParkedRequest {
    /// Size of the request in bytes.
    pub(crate) bytes: usize,
    /// The function that continues the request. Dropping it abandons the request.
    pub(crate) resume: Box<dyn FnOnce(ResumeOn) + Send>,
}

impl ParkedRequest {
    /// Continues the request on one of the threads that serve its connection.
    pub(crate) fn release(self) {
        (self.resume)(ResumeOn::ConnectionThread);
    }
}

impl fmt::Debug for ParkedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParkedRequest").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
