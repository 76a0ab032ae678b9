//! Giving up calls from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::Wake;
use corelane_sys::poll;

use crate::client::connection::Broken;

/// Ends calls that wait for their reply: those made through references that carry it, now and later.
///
/// A cancelled call raises TRANSIENT 3, COMPLETED_MAYBE, and the server is told with a CancelRequest. A call that carries a
/// canceller costs one system call more.
///
/// # Examples
/// ```
/// use corelane::Canceller;
/// let canceller = Canceller::new()?;
/// let other = canceller.clone();
/// std::thread::spawn(move || other.cancel()).join().unwrap();
/// assert!(canceller.is_cancelled());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Canceller(Arc<Wake>);

impl Canceller {
    /// One that has not cancelled anything.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Canceller(Arc::new(Wake::new()?)))
    }

    /// Ends the calls that carry this canceller, on whatever threads they wait, and every later one.
    pub fn cancel(&self) {
        self.0.notify();
    }

    /// Whether [`cancel`](Self::cancel) was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let now = Some(Monotonic::from_nanos(0));
        poll::wait_readable(self.0.as_fd(), now).unwrap_or(false)
    }

    /// Becomes readable, and stays so, when [`cancel`](Self::cancel) was called.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Waits for `other` to become readable, until `deadline`; signals do not end it.
    ///
    /// # Errors
    /// [`Broken::Cancelled`] when this comes first.
    pub(crate) fn wait_beside(&self, other: BorrowedFd<'_>, deadline: Option<Monotonic>) -> Result<(), Broken> {
        loop {
            let (ready, cancelled) = poll::wait_either(other, self.0.as_fd(), deadline)?;
            if ready || deadline.is_some_and(Monotonic::is_past) {
                return Ok(());
            }
            if cancelled {
                return Err(Broken::Cancelled);
            }
        }
    }
}
