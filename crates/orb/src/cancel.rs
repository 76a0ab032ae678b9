//! Cancellation of calls from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::EventFd;
use corelane_sys::poll;

/// Cancels all present and later calls through the references to which it is attached.
///
/// A cancelled call raises TRANSIENT 3. If the call waits for its reply, the status is COMPLETED_MAYBE, and the server
/// gets a CancelRequest. If it pauses before a retry, the status is COMPLETED_NO. Each call with a canceller costs one
/// additional system call.
///
/// # Examples
///
/// ```
/// use corelane::Canceller;
/// let canceller = Canceller::new()?;
/// let other = canceller.clone();
/// std::thread::spawn(move || other.cancel()).join().unwrap();
/// assert!(canceller.is_cancelled());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Canceller(Arc<EventFd>);

impl Canceller {
    /// Makes a canceller.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Canceller(Arc::new(EventFd::new()?)))
    }

    /// Cancels all calls, of any thread, through references with this canceller. Later calls
    /// through these references are cancelled at once.
    pub fn cancel(&self) {
        self.0.notify();
    }

    /// Returns true if [`cancel`](Self::cancel) was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let now = Some(Monotonic::from_nanos(0));
        poll::wait_readable(self.0.as_fd(), now).unwrap_or(false)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Waits for `other`. Returns true if it is readable or the deadline has passed, false if [`cancel`](Self::cancel)
    /// was called before.
    pub(crate) fn wait_or_cancelled(&self, other: BorrowedFd<'_>, deadline: Option<Monotonic>) -> io::Result<bool> {
        loop {
            let (ready, cancelled) = poll::wait_readable_either(other, self.0.as_fd(), deadline)?;
            if ready || deadline.is_some_and(Monotonic::is_past) {
                return Ok(true);
            }
            if cancelled {
                return Ok(false);
            }
        }
    }
}
