//! Polling of a ring by a thread that also waits for other connections.
//!
//! While such a thread polls, the ring's wake word requests no wake-up, so the peer writes without
//! a system call. When the thread stops, it requests the bell and then checks the ring once more
//! (rule `requested` of the ring). Until then other threads may read the connection with
//! `WaitLimit::Now` and request the bell as well; the next [`PolledInput::poll`] withdraws their
//! request.
//!
//! A send withdraws no request for the bell: the thread that sends a reply may stay in an upcall,
//! and then only the bell reports the next message.

use std::sync::atomic::Ordering;

use super::stream::RingStream;
use crate::stream::PolledInput;

impl PolledInput for RingStream {
    fn begin_polling(&self) -> bool {
        !self.is_polled.load(Ordering::Relaxed) && !self.is_polled.swap(true, Ordering::Acquire)
    }

    fn poll(&self) -> bool {
        let reader = self.peer_state.rings.reader();
        if reader.cancel_wake_request() {
            self.uncount_bell_request();
        }
        reader.has_arrived()
    }

    fn stop_polling(&self) -> bool {
        let reader = self.peer_state.rings.reader();
        self.request_bell(reader);
        self.is_polled.store(false, Ordering::Release);
        reader.has_arrived() || reader.is_writing_ended()
    }

    fn end_polling(&self) {
        self.is_polled.store(false, Ordering::Release);
    }

    fn position(&self) -> u32 {
        self.peer_state.rings.reader().position()
    }
}
