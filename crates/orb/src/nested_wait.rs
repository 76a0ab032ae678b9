//! Waiting in a nested call: what a thread of the ORB does while a call made by its servant waits
//! for the reply.
//!
//! The dispatch layer installs a [`NestedWaitHook`] in its threads. Code that waits for a reply asks
//! the functions here and knows no lane. An application's thread has no hook: it blocks.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use corelane_sys::clock::Monotonic;
use corelane_sys::poll;

use crate::cancel::Canceller;

/// The part of a thread's dispatch loop that a waiting call may use.
pub(crate) trait NestedWaitHook {
    /// Releases the connection that the thread alone reads, to other threads.
    fn release_connection(&self) {}

    /// Runs other requests until `awaited` has come. Returns false if the thread has to block.
    ///
    /// # Errors
    /// The system refuses to wait.
    fn wait_or_dispatch(&self, _awaited: &AwaitedReply<'_>) -> io::Result<bool> {
        Ok(false)
    }
}

thread_local! {
    static HOOK: RefCell<Option<Rc<dyn NestedWaitHook>>> = const { RefCell::new(None) };
    /// True until the thread's connection is released to the shared threads.
    static IS_DEDICATED: Cell<bool> = const { Cell::new(false) };
    static IS_SERVING: Cell<bool> = const { Cell::new(false) };
}

/// Installs the hook of a thread that alone reads a connection.
pub(crate) fn install_dedicated(hook: Rc<dyn NestedWaitHook>) {
    HOOK.set(Some(hook));
    IS_DEDICATED.set(true);
}

/// Installs the hook of a thread that runs other requests while it waits.
pub(crate) fn install_serving(hook: Rc<dyn NestedWaitHook>) {
    HOOK.set(Some(hook));
    IS_SERVING.set(true);
}

/// Removes the calling thread's hook, because the thread ends.
pub(crate) fn uninstall() {
    IS_SERVING.set(false);
    IS_DEDICATED.set(false);
    HOOK.set(None);
}

/// Releases the connection that the calling thread alone reads, if any, to the shared threads.
/// Called before the thread waits inside an upcall: what it waits for may depend on a request on
/// that very connection (a nested callback of a client that multiplexes).
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

/// Returns true if the calling thread alone reads its connection.
pub(crate) fn is_dedicated() -> bool {
    IS_DEDICATED.get()
}

/// Returns true if the calling thread runs other requests while it waits.
#[inline]
pub(crate) fn dispatches_while_waiting() -> bool {
    IS_SERVING.get()
}

/// Runs other requests until `reply` can be read, `canceller` is cancelled, or `deadline` has
/// passed. Returns false if the thread runs none, or is too deep in upcalls: it has to block.
///
/// # Errors
/// The system refuses to wait.
#[inline]
pub(crate) fn wait_or_dispatch(
    reply: BorrowedFd<'_>,
    deadline: Option<Monotonic>,
    canceller: Option<&Canceller>,
) -> io::Result<bool> {
    let hook = HOOK.with_borrow(Option::clone);
    hook.map_or(Ok(false), |hook| hook.wait_or_dispatch(&AwaitedReply { reply, deadline, canceller }))
}

/// The reply that a thread waits for.
pub(crate) struct AwaitedReply<'a> {
    reply: BorrowedFd<'a>,
    deadline: Option<Monotonic>,
    canceller: Option<&'a Canceller>,
}

impl AwaitedReply<'_> {
    /// Waits for the reply or for `work`. Returns whether the reply has come, and whether there is
    /// work; after a signal neither is certain.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub(crate) fn wait_or_work(&self, work: BorrowedFd<'_>) -> io::Result<(bool, bool)> {
        let (come, work) = match self.canceller {
            None => poll::wait_either(self.reply, work, self.deadline)?,
            Some(canceller) => {
                let [reply, work, cancelled] = poll::wait_any([self.reply, work, canceller.as_fd()], self.deadline)?;
                (reply || cancelled, work)
            }
        };
        Ok((come || self.is_past_deadline(), work))
    }

    /// Returns true if the reply has come.
    ///
    /// # Errors
    /// The system refuses to look.
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
