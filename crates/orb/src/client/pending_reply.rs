//! A request on a multiplexed connection, and its reply.

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

#[derive(Debug)]
pub(crate) struct PendingReply {
    /// The lock has priority inheritance, because a preempted caller that holds the lock would
    /// delay the connection's reader thread.
    pub(super) state: PiMutex<State>,
    done: EventCount,
}

#[derive(Debug)]
pub(super) enum State {
    /// The field is the descriptor to notify when the reply arrives, if the caller waits for
    /// several events.
    Waiting(Option<Arc<EventFd>>),
    Done(Result<ReceivedReply, ReplyError>),
    Taken,
}

#[derive(Debug)]
pub(crate) struct ReceivedReply {
    pub(crate) header: Header,
    pub(crate) octets: Octets,
    pub(crate) breaks: Vec<usize>,
    pub(crate) _share: Option<MemoryShare>,
}

#[derive(Debug)]
pub(crate) struct ReplyError {
    pub(crate) error: ExchangeError,
    pub(crate) reply_begun: bool,
}

impl From<ExchangeError> for ReplyError {
    fn from(broken: ExchangeError) -> Self {
        ReplyError { error: broken, reply_begun: false }
    }
}

impl PendingReply {
    pub(super) fn new() -> Self {
        let state = PiMutex::new("reply", LockScope::Connection, State::Waiting(None));
        PendingReply { state, done: EventCount::new("reply") }
    }

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

    pub(crate) fn is_done(&self) -> bool {
        !matches!(*self.state.lock(), State::Waiting(_))
    }

    /// Waits until `deadline` for the reply and takes it.
    ///
    /// # Errors
    /// The deadline passed, `canceller` cancelled the call, or the connection ended.
    pub(crate) fn wait(
        &self,
        deadline: Option<Monotonic>,
        canceller: Option<&Canceller>,
    ) -> Result<ReceivedReply, ReplyError> {
        nested_wait::release_dedicated_connection();
        // If no event descriptor can be made, the caller runs no other requests during the wait,
        // and cannot be cancelled.
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
            State::Waiting(_) | State::Taken => Err(ExchangeError::TimedOut.into()),
        }
    }

    fn reply_event(&self) -> io::Result<Option<Arc<EventFd>>> {
        let made = Arc::new(EventFd::new()?);
        Ok(self.notify_on_reply(&made).then_some(made))
    }

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
