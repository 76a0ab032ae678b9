//! The input of a connection: the state of reading, and the progress of incomplete messages.

use std::sync::atomic::Ordering;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::poll;
use corelane_wire::connection::Framer;

use super::Connection;
use crate::clock;
use crate::receive::ReceiveBuffer;

#[derive(Debug)]
pub(crate) struct ReadState {
    pub(crate) framer: Framer,
    /// The received bytes that the connection keeps between reads; `None` if there are none, so
    /// that a thread reads into its worker's buffer.
    pub(crate) partial: Option<ReceiveBuffer>,
    /// True if the last read took all input and none has been reported since, so that epoll will
    /// report new input. A read that does not fill the buffer counts as taking all input, unless
    /// the peer has hung up.
    pub(crate) is_drained: bool,
    pub(crate) is_over: bool,
}

impl Connection {
    #[inline]
    pub(crate) fn has_partial_message(&self) -> bool {
        self.has_partial_message.load(Ordering::Relaxed)
    }

    /// Records the incomplete messages of the connection. `message` is the number of bytes that
    /// have arrived of the current message. `oldest` is the number and the size in bytes of the
    /// oldest message whose fragments are incomplete; `None` if there is none. `held` is the memory
    /// in bytes that all incomplete messages use.
    #[cold]
    pub(crate) fn record_partial_messages(&self, message: usize, oldest: Option<(u64, usize)>, held: usize) {
        let mut stall_detector = self.stall_detector.lock();
        stall_detector.record(message, oldest, clock::now());
        self.has_partial_message.store(stall_detector.is_receiving(), Ordering::Relaxed);
        drop(stall_detector);
        self.memory_use.set_input(held);
        self.shed_if_over_budget();
    }

    pub(crate) fn stalled_for(&self, now: Monotonic) -> Duration {
        if !self.has_partial_message() {
            return Duration::ZERO;
        }
        let mut stall_detector = self.stall_detector.lock();
        stall_detector.check(self.has_unread_input(), now);
        stall_detector.stalled_for(now)
    }

    #[cold]
    pub(crate) fn has_unread_input(&self) -> bool {
        let at_once = Some(Monotonic::from_nanos(0));
        self.stream.readiness_descriptor().is_some_and(|fd| poll::wait_readable(fd, at_once).unwrap_or(false))
    }
}
