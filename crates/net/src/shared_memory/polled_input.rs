//! Polling of a ring by a thread that also waits for other connections.
//!
//! While such a thread polls, the ring's wake word requests no wake-up, so the peer writes without a
//! system call. The thread requests the bell again before it does anything else, and then checks
//! the ring once more (rule `requested` of the ring). Other threads may read the connection
//! meanwhile and request the bell as well; the next [`PolledInput::poll`] withdraws their request.

use std::sync::atomic::Ordering;

use corelane_sys::ring::WakeMethod;

use super::stream::RingStream;
use crate::stream::PolledInput;

thread_local! {
    static MARK: u8 = const { 0 };
}

/// Returns a number other than 0 that no other running thread of the process has.
fn thread_mark() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

impl RingStream {
    /// Withdraws the request for the bell if the calling thread is about to poll.
    #[inline(never)]
    pub(super) fn withdraw_bell_request(&self) {
        if self.poller.load(Ordering::Relaxed) == thread_mark() {
            self.peer_state.rings.reader().set_wake_method(WakeMethod::None);
        }
    }
}

impl PolledInput for RingStream {
    fn poll(&self) -> bool {
        let reader = self.peer_state.rings.reader();
        reader.set_wake_method(WakeMethod::None);
        reader.has_arrived()
    }

    fn stop_polling(&self) -> bool {
        let reader = self.peer_state.rings.reader();
        self.request_bell(reader);
        reader.has_arrived() || reader.is_writing_ended()
    }

    fn poll_after_send(&self, will_poll: bool) {
        let poller = if will_poll { thread_mark() } else { 0 };
        self.poller.store(poller, Ordering::Relaxed);
    }
}
