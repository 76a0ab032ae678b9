//! The input of a connection: what the reading thread works on, and how far unfinished messages
//! have come.

use std::sync::atomic::Ordering;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::poll;
use corelane_wire::connection::Framer;

use super::Connection;
use crate::clock;
use crate::receive::ReceiveBuffer;

/// The state of reading, owned by the thread that has the read lock.
#[derive(Debug)]
pub(crate) struct ReadState {
    pub(crate) framer: Framer,
    /// Bytes of an incomplete message. Without one, the reader's own buffer serves.
    pub(crate) partial: Option<ReceiveBuffer>,
    /// True if the last read took all there was, so that what comes next is reported anew. A short
    /// read is taken for that. It may not be one where the peer sends urgent data over TCP, or
    /// descriptors over a Unix socket, which no ORB does: such a peer waits for its own next bytes.
    pub(crate) drained: bool,
    /// True if nothing is read any more: the peer has closed, or broke the protocol.
    pub(crate) over: bool,
}

impl Connection {
    /// Returns true while a message has begun and is not whole.
    #[inline]
    pub(crate) fn has_partial_message(&self) -> bool {
        self.has_partial_message.load(Ordering::Relaxed)
    }

    /// Records unfinished messages: the bytes of one that arrives, number and size of the oldest
    /// fragmented one, and the memory that all of them hold.
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
    /// come and are not read, because reading pauses or every thread is busy, are progress.
    pub(crate) fn stalled_for(&self, now: Monotonic) -> Duration {
        if !self.has_partial_message() {
            return Duration::ZERO;
        }
        let mut stall_detector = self.stall_detector.lock();
        stall_detector.check(self.has_unread_input(), now);
        stall_detector.stalled_for(now)
    }

    /// Returns true if bytes have come that no thread has read: the peer is not idle.
    #[cold]
    pub(crate) fn has_unread_input(&self) -> bool {
        let at_once = Some(Monotonic::from_nanos(0));
        self.stream.readiness().is_some_and(|fd| poll::wait_readable(fd, at_once).unwrap_or(false))
    }
}
