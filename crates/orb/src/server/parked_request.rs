//! A parked request, which waits for an event before it can run, and the choice of the thread that
//! continues it.

use std::fmt;

/// Maximum number of requests in one list of parked requests, or in the queue of the main thread.
/// Further requests are refused with TRANSIENT 1.
pub(crate) const MAX_PARKED_REQUESTS: usize = 1024;
/// Maximum total size in bytes of the requests in one list of parked requests, or in the queue of
/// the main thread. Without this maximum, a peer could fill the memory of a server whose POA
/// managers hold requests.
pub(crate) const MAX_PARKED_BYTES: usize = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResumeOn {
    ConnectionThread,
    CurrentThread,
}

pub(crate) struct ParkedRequest {
    pub(crate) bytes: usize,
    pub(crate) resume: Box<dyn FnOnce(ResumeOn) + Send>,
}

impl ParkedRequest {
    pub(crate) fn release(self) {
        (self.resume)(ResumeOn::ConnectionThread);
    }
}

impl fmt::Debug for ParkedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParkedRequest").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
