//! Polling of a ring by a thread that also waits for other connections.
//!
//! While such a thread polls, the ring's wake word requests no wake-up, so the peer writes without a
//! system call. The thread requests the bell again before it does anything else, and then checks
//! the ring once more (rule `requested` of the ring). Other threads may read the connection
//! meanwhile and request the bell as well; the next [`PolledInput::poll`] withdraws their request.

use corelane_sys::ring::WakeMethod;

use super::stream::RingStream;
use crate::stream::PolledInput;

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
}
