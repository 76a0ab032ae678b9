//! A request on a multiplexed connection that waits for its reply, and the outcome.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use corelane_sys::clock::Monotonic;
use corelane_sys::event_count::EventCount;
use corelane_sys::eventfd::EventFd;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_wire::Octets;
use corelane_wire::giop::Header;

use crate::cancel::Canceller;
use crate::exchange::ExchangeError;
use crate::memory::MemoryShare;
use crate::nested_wait;

/// A request that waits for its reply.
#[derive(Debug)]
pub(crate) struct PendingReply {
    /// The state of the reply. The caller and the reader take this lock briefly. The lock has
    /// priority inheritance, because a preempted caller that holds it would delay the reader, and
    /// with the reader more urgent callers.
    pub(super) state: PiMutex<State>,
    done: EventCount,
}

/// The state of a reply.
#[derive(Debug)]
pub(super) enum State {
    /// The reply has not arrived. The field is the descriptor to notify, if the caller waits for
    /// other events and for the reply at the same time.
    Waiting(Option<Arc<EventFd>>),
    /// The reply has arrived, or will not arrive.
    Done(Result<ReceivedReply, ReplyError>),
    /// The caller has collected the outcome.
    Taken,
}

/// A complete reply, with its bytes in memory that the connection does not use.
#[derive(Debug)]
pub(crate) struct ReceivedReply {
    pub(crate) header: Header,
    pub(crate) octets: Octets,
    /// Positions in `octets` at which GIOP 1.1 fragments begin.
    pub(crate) breaks: Vec<usize>,
    /// The share of the ORB's memory for replies that a large reply uses. The share ends when the
    /// reply is dropped.
    pub(crate) _share: Option<MemoryShare>,
}

/// The reason why a request has no reply.
#[derive(Debug)]
pub(crate) struct ReplyError {
    pub(crate) error: ExchangeError,
    /// True if a part of the reply arrived before the failure.
    pub(crate) reply_begun: bool,
}

impl From<ExchangeError> for ReplyError {
    fn from(broken: ExchangeError) -> Self {
        ReplyError { error: broken, reply_begun: false }
    }
}

impl PendingReply {
    /// Creates the entry of a request whose reply has not arrived.
    pub(super) fn new() -> Self {
        let state = PiMutex::new("reply", LockScope::Connection, State::Waiting(None));
        PendingReply { state, done: EventCount::new("reply") }
    }

    /// Sets the outcome, unless it is already set, and wakes the caller.
    pub(super) fn complete(&self, outcome: Result<ReceivedReply, ReplyError>) {
        let mut state = self.state.lock();
        let State::Waiting(bell) = &mut *state else { return };
        let bell = bell.take();
        *state = State::Done(outcome);
        drop(state);
        self.done.notify_all();
        if let Some(bell) = bell {
            bell.notify();
        }
    }

    /// Returns true if [`wait`](Self::wait) would return at once.
    pub(crate) fn is_done(&self) -> bool {
        !matches!(*self.state.lock(), State::Waiting(_))
    }

    /// Waits until `deadline` for the reply and takes it. If the pool's
    /// [`NestedWait`](crate::NestedWait) permits it, the thread runs requests of its lane while it
    /// waits.
    ///
    /// # Errors
    /// The reason why there is no reply: the deadline, a cancellation by `canceller`, or the end of
    /// the connection.
    pub(crate) fn wait(
        &self,
        deadline: Option<Monotonic>,
        canceller: Option<&Canceller>,
    ) -> Result<ReceivedReply, ReplyError> {
        nested_wait::release_dedicated_connection();
        // If no event descriptor can be made, the caller waits for the reply alone: it runs no
        // other requests and cannot be cancelled.
        if (nested_wait::dispatches_while_waiting() || canceller.is_some())
            && let Ok(Some(bell)) = self.reply_event()
        {
            let _ = nested_wait::wait_or_dispatch(bell.as_fd(), deadline, canceller);
            if let Some(Ok(false)) = canceller.map(|other| other.wait_or_cancelled(bell.as_fd(), deadline)) {
                return Err(ExchangeError::Cancelled.into());
            }
        }
        if !self.is_done() {
            self.done.wait(deadline, || self.is_done().then_some(()));
        }
        match std::mem::replace(&mut *self.state.lock(), State::Taken) {
            State::Done(outcome) => outcome,
            // `Waiting`: the deadline has passed. `Taken`: the reply was taken before.
            State::Waiting(_) | State::Taken => Err(ExchangeError::TimedOut.into()),
        }
    }

    /// Makes an event descriptor that becomes readable when the outcome is set. Returns `None` if
    /// it is already set.
    fn reply_event(&self) -> io::Result<Option<Arc<EventFd>>> {
        let made = Arc::new(EventFd::new()?);
        Ok(self.notify_on_reply(&made).then_some(made))
    }

    /// Makes the reader notify `bell` when the outcome is set. `bell` replaces a descriptor that an
    /// earlier call of this method set. Returns false if the outcome is already set.
    pub(crate) fn notify_on_reply(&self, bell: &Arc<EventFd>) -> bool {
        match &mut *self.state.lock() {
            State::Waiting(waiting) => {
                *waiting = Some(Arc::clone(bell));
                true
            }
            State::Done(_) | State::Taken => false,
        }
    }
}
