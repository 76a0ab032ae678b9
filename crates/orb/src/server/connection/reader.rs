//! The input of a connection: the state of the reading thread, and the progress of unfinished
//! messages.

use std::sync::atomic::Ordering;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::poll;
use corelane_wire::connection::Framer;

use super::Connection;
use crate::clock;
use crate::receive::ReceiveBuffer;

/// The state of reading. It belongs to the thread that holds the read lock.
#[derive(Debug)]
pub(crate) struct ReadState {
    pub(crate) framer: Framer,
    /// The buffer with the bytes of an incomplete message. `None` if there is no incomplete
    /// message; the thread then reads into its own buffer.
    pub(crate) partial: Option<ReceiveBuffer>,
    /// True if the last read took all input, so that epoll reports new input. A read that did not
    /// fill the buffer counts as taking all input. Urgent data over TCP and descriptors over a Unix
    /// socket also end a read early, but no ORB sends them. A peer that does send them only delays
    /// its own messages.
    pub(crate) is_drained: bool,
    /// True if reading has ended, because the peer has closed the connection or broke the protocol.
    pub(crate) is_over: bool,
}

impl Connection {
    /// Returns true while a message has begun and is not complete.
    #[inline]
    pub(crate) fn has_partial_message(&self) -> bool {
        self.has_partial_message.load(Ordering::Relaxed)
    }

    /// Records the unfinished messages: `message` bytes of the message that is arriving, the number
    /// and size of the oldest fragmented message, and the `held` bytes of all of them.
    #[cold]
    pub(crate) fn record_partial_messages(&self, message: usize, oldest: Option<(u64, usize)>, held: usize) {
        let mut stall_detector = self.stall_detector.lock();
        stall_detector.record(message, oldest, clock::now());
        self.has_partial_message.store(stall_detector.is_receiving(), Ordering::Relaxed);
        drop(stall_detector);
        self.memory_use.set_input(held);
        self.shed_if_over_budget();
    }

    /// Returns the time for which a message that has begun has made no progress. Bytes that have
    /// arrived count as progress even before they are read, because reading may pause and every
    /// thread may be busy.
    pub(crate) fn stalled_for(&self, now: Monotonic) -> Duration {
        if !self.has_partial_message() {
            return Duration::ZERO;
        }
        let mut stall_detector = self.stall_detector.lock();
        stall_detector.check(self.has_unread_input(), now);
        stall_detector.stalled_for(now)
    }

    /// Returns true if bytes have arrived that no thread has read. A peer that sent them is not
    /// idle.
    #[cold]
    pub(crate) fn has_unread_input(&self) -> bool {
        let at_once = Some(Monotonic::from_nanos(0));
        self.stream.readiness().is_some_and(|fd| poll::wait_readable(fd, at_once).unwrap_or(false))
    }
}
