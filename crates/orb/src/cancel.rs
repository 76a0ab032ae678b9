//! Cancellation of calls from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::EventFd;
use corelane_sys::poll;

/// Cancels all present and later calls through the references to which it is attached.
///
/// A cancelled call raises TRANSIENT 3. Its completion status says if the server may have run the
/// request.
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

    /// Cancels all present and later calls through references with this canceller.
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

    /// Waits until `other` is readable, the deadline passes or the calls are cancelled. Returns
    /// false if the calls are cancelled, `other` is not readable and the deadline has not passed.
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
