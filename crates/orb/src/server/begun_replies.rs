//! Replies that are sent in part: the threads of a lane send their rest before they take new work.
//!
//! The lane's epoll instance reports room to write behind all events that came before. So a thread
//! that takes one event after the other would first run the requests of all other connections. The
//! connections whose peers must read are therefore also in a second epoll instance. While there are
//! such connections, a thread asks this instance, without waiting, before each event or task, and
//! sends what the transports accept. It does not wait, so a peer that does not read delays no other
//! connection.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
#[cfg(feature = "replies-first")]
use std::time::Duration;

#[cfg(feature = "replies-first")]
use corelane_sys::epoll::EpollEvent;
use corelane_sys::epoll::{Epoll, Interest};

/// Maximum number of connections whose replies a thread continues before it takes new work.
#[cfg(feature = "replies-first")]
const MAX_EVENTS: usize = 16;

/// The connections of a lane whose peers must read before the rest of a reply can be sent.
#[derive(Debug, Default)]
pub(super) struct BegunReplies {
    /// The epoll instance that reports their room to write. Empty until the first reply is sent in
    /// part.
    epoll: OnceLock<Epoll>,
}

impl BegunReplies {
    /// Returns the epoll instance. `None` if the kernel refuses one: then only the lane's epoll instance reports the
    /// room.
    fn epoll(&self) -> Option<&Epoll> {
        if self.epoll.get().is_none() {
            // If another thread has set an instance, this one is dropped.
            let _ = self.epoll.set(Epoll::new().ok()?);
        }
        self.epoll.get()
    }

    /// Begins or ends to report room to write on `readiness`, the descriptor of a connection.
    pub(super) fn watch(&self, readiness: BorrowedFd<'_>, token: u64, begins: bool) {
        let Some(epoll) = self.epoll() else { return };
        // Shared memory reports room by the same event as input.
        let interest = Interest::READABLE | Interest::WRITABLE | Interest::EDGE;
        // The lane's own instance reports the room as well, so a failure costs only the order.
        let _ = match begins {
            true => epoll.add(readiness, token, interest).or_else(|_| epoll.modify(readiness, token, interest)),
            false => epoll.remove(readiness),
        };
    }

    /// Sends begun replies for which there is room now: `flush` gets the token of each connection.
    #[cfg(feature = "replies-first")]
    pub(super) fn send(&self, flush: &mut dyn FnMut(u64)) {
        let Some(epoll) = self.epoll.get() else { return };
        let mut events = [EpollEvent::EMPTY; MAX_EVENTS];
        let reported = epoll.wait(&mut events, Some(Duration::ZERO)).unwrap_or(0);
        events.iter().take(reported).for_each(|event| flush(event.token()));
    }
}
