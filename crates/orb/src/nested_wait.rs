//! Waiting in nested calls: a thread of the ORB may run other requests while its servant waits for
//! the reply to a call.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use corelane_sys::clock::Monotonic;
use corelane_sys::poll;

use crate::cancel::Canceller;

pub(crate) trait NestedWaitHook {
    fn release_connection(&self) {}

    /// Waits for the reply, and runs other requests during the wait. If this thread must not run
    /// other requests, returns false at once, and the caller must block.
    ///
    /// # Errors
    /// If the wait fails.
    fn wait_or_dispatch(&self, _awaited: &AwaitedReply<'_>) -> io::Result<bool> {
        Ok(false)
    }
}

thread_local! {
    static HOOK: RefCell<Option<Rc<dyn NestedWaitHook>>> = const { RefCell::new(None) };
    static IS_DEDICATED: Cell<bool> = const { Cell::new(false) };
    static IS_SERVING: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn install_dedicated(hook: Rc<dyn NestedWaitHook>) {
    HOOK.set(Some(hook));
    IS_DEDICATED.set(true);
}

pub(crate) fn install_serving(hook: Rc<dyn NestedWaitHook>) {
    HOOK.set(Some(hook));
    IS_SERVING.set(true);
}

pub(crate) fn uninstall() {
    IS_SERVING.set(false);
    IS_DEDICATED.set(false);
    HOOK.set(None);
}

/// Hands over the connection that the calling thread alone reads, if there is one, because the
/// awaited event may depend on a request on this connection.
#[inline]
pub(crate) fn release_dedicated_connection() {
    if IS_DEDICATED.get() {
        release_dedicated();
    }
}

#[cold]
fn release_dedicated() {
    IS_DEDICATED.set(false);
    if let Some(hook) = HOOK.take() {
        hook.release_connection();
    }
}

pub(crate) fn is_dedicated() -> bool {
    IS_DEDICATED.get()
}

#[inline]
pub(crate) fn dispatches_while_waiting() -> bool {
    IS_SERVING.get()
}

/// Waits for `reply`, and runs other requests during the wait. If the calling thread must not run
/// other requests, returns false at once, and the caller must block.
///
/// # Errors
/// If the wait fails.
#[inline]
pub(crate) fn wait_or_dispatch(
    reply: BorrowedFd<'_>,
    deadline: Option<Monotonic>,
    canceller: Option<&Canceller>,
) -> io::Result<bool> {
    let hook = HOOK.with_borrow(Option::clone);
    hook.map_or(Ok(false), |hook| hook.wait_or_dispatch(&AwaitedReply { reply, deadline, canceller }))
}

pub(crate) struct AwaitedReply<'a> {
    reply: BorrowedFd<'a>,
    deadline: Option<Monotonic>,
    canceller: Option<&'a Canceller>,
}

impl AwaitedReply<'_> {
    /// Waits until the wait for the reply is [over](Self::has_arrived) or `work` is readable. The
    /// first result is true if the wait for the reply is over, the second if `work` is readable.
    /// After a signal both may be false.
    ///
    /// # Errors
    /// If the wait fails.
    pub(crate) fn wait_or_work(&self, work: BorrowedFd<'_>) -> io::Result<(bool, bool)> {
        let (come, work) = match self.canceller {
            None => poll::wait_readable_either(self.reply, work, self.deadline)?,
            Some(canceller) => {
                let [reply, work, cancelled] =
                    poll::wait_readable_any([self.reply, work, canceller.as_fd()], self.deadline)?;
                (reply || cancelled, work)
            }
        };
        Ok((come || self.is_past_deadline(), work))
    }

    /// Returns true if the wait is over: the reply has arrived, the call is cancelled, or the
    /// deadline has passed.
    pub(crate) fn has_arrived(&self) -> io::Result<bool> {
        let now = Some(Monotonic::now());
        Ok(poll::wait_readable(self.reply, now)?
            || self.canceller.is_some_and(Canceller::is_cancelled)
            || self.is_past_deadline())
    }

    fn is_past_deadline(&self) -> bool {
        self.deadline.is_some_and(Monotonic::is_past)
    }
}
