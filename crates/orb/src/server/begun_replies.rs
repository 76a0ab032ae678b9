//! The sending of begun replies, of which the transport has accepted only a part. The threads of a
//! lane send more of them before they take new work.
//!
//! The connections whose peers must read are in a second epoll instance, because the lane's
//! instance reports room to write only after all earlier events.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
#[cfg(feature = "replies-first")]
use std::time::Duration;

#[cfg(feature = "replies-first")]
use corelane_sys::epoll::EpollEvent;
use corelane_sys::epoll::{Epoll, Interest};

#[cfg(feature = "replies-first")]
const MAX_EVENTS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct BegunReplies {
    epoll: OnceLock<Epoll>,
}

impl BegunReplies {
    fn epoll(&self) -> Option<&Epoll> {
        if self.epoll.get().is_none() {
            let _ = self.epoll.set(Epoll::new().ok()?);
        }
        self.epoll.get()
    }

    pub(super) fn watch(&self, readiness: BorrowedFd<'_>, token: u64, begins: bool) {
        let Some(epoll) = self.epoll() else { return };
        // Shared memory reports room by the same event as input, so both are watched.
        let interest = Interest::READABLE | Interest::WRITABLE | Interest::EDGE;
        // A failure is harmless: the lane's epoll instance reports the room too, after earlier
        // events.
        let _ = match begins {
            true => epoll.add(readiness, token, interest).or_else(|_| epoll.modify(readiness, token, interest)),
            false => epoll.remove(readiness),
        };
    }

    /// Calls `flush` with the tokens of at most [`MAX_EVENTS`] watched connections for which epoll
    /// reports an event.
    #[cfg(feature = "replies-first")]
    pub(super) fn send(&self, flush: &mut dyn FnMut(u64)) {
        let Some(epoll) = self.epoll.get() else { return };
        let mut events = [EpollEvent::EMPTY; MAX_EVENTS];
        let reported = epoll.wait(&mut events, Some(Duration::ZERO)).unwrap_or(0);
        events.iter().take(reported).for_each(|event| flush(event.token()));
    }
}
