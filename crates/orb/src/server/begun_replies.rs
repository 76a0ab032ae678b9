//! Replies that are sent in part: the threads of a lane send their rest before they take new work.
//!
//! The lane's epoll instance reports room to write behind all events that came before. So a thread
//! that takes one event after the other would first run the requests of all other connections. The
//! connections whose peers must read are therefore also in a second epoll instance. While there are
//! such connections, a thread asks this instance, without waiting, before each event or task, and
//! sends what the transports accept. It does not wait, so a peer that does not read delays no other
//! connection.
//!
//! If the replies of the lane hold more than half of its memory budget, the threads hold requests
//! back: they wait for room to write instead of taking new work. A wait that sends less than
//! [`MIN_PROGRESS`] bytes lets one request run and halves the time of the next wait, so peers that
//! do not read delay requests by [`MAX_WAIT`] twice in total. Progress restores the time.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use corelane_sys::epoll::{Epoll, EpollEvent, Interest};

use super::memory_budget::MemoryBudget;

/// Maximum number of connections whose replies a thread continues before it takes new work.
const MAX_EVENTS: usize = 16;
/// Maximum time in microseconds for which a thread waits for room to write while it holds requests
/// back.
const MAX_WAIT: u32 = 32_000;
/// Number of bytes that a wait must send to count as progress.
const MIN_PROGRESS: usize = 64 * 1024;
/// Maximum number of waits before a thread takes new work.
const MAX_WAITS: usize = 64;

/// The connections of a lane whose peers must read before the rest of a reply can be sent.
#[derive(Debug)]
pub(super) struct BegunReplies {
    /// The epoll instance that reports their room to write. Empty until the first reply is sent in
    /// part.
    epoll: OnceLock<Epoll>,
    /// Time in microseconds of the next wait of a thread that holds requests back. `Relaxed`.
    wait: AtomicU32,
}

impl BegunReplies {
    pub(super) fn new() -> Self {
        BegunReplies { epoll: OnceLock::new(), wait: AtomicU32::new(MAX_WAIT) }
    }

    /// Returns the epoll instance. `None` if the kernel refuses one: the lane's epoll instance then
    /// reports the room alone.
    fn epoll(&self) -> Option<&Epoll> {
        if self.epoll.get().is_none() {
            // Another thread may have set the instance meanwhile. This one is then dropped.
            let _ = self.epoll.set(Epoll::new().ok()?);
        }
        self.epoll.get()
    }

    /// Begins or ends to report room to write on `readiness`, the descriptor of a connection.
    pub(super) fn watch(&self, readiness: BorrowedFd<'_>, token: u64, begins: bool) {
        let Some(epoll) = self.epoll() else { return };
        let interest = Interest::WRITABLE | Interest::EDGE;
        // The lane's own instance reports the room as well, so a failure costs only the order.
        let _ = match begins {
            true => epoll.add(readiness, token, interest).or_else(|_| epoll.modify(readiness, token, interest)),
            false => epoll.remove(readiness),
        };
    }

    /// Records that a thread has sent `bytes` bytes of begun replies.
    pub(super) fn record_sent(&self, bytes: usize) {
        if bytes >= MIN_PROGRESS {
            self.wait.store(MAX_WAIT, Ordering::Relaxed);
        }
    }

    /// Sends begun replies for which there is room: `flush` gets the token of a connection, and
    /// returns the number of bytes that it has sent. Holds requests back while the replies fill the
    /// memory of `budget` and the peers read them, unless `is_stopping` returns true.
    #[cold]
    #[inline(never)]
    pub(super) fn send(
        &self,
        budget: &MemoryBudget,
        is_stopping: &dyn Fn() -> bool,
        flush: &mut dyn FnMut(u64) -> usize,
    ) {
        self.send_reported(Duration::ZERO, flush);
        for _ in 0..MAX_WAITS {
            let wait = self.wait.load(Ordering::Relaxed);
            if wait == 0 || !budget.has_many_replies() || is_stopping() {
                return;
            }
            if self.send_reported(Duration::from_micros(wait.into()), flush) < MIN_PROGRESS {
                self.wait.store(wait / 2, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Waits at most the time `wait` for room to write, and sends begun replies. Returns the number
    /// of bytes.
    fn send_reported(&self, wait: Duration, flush: &mut dyn FnMut(u64) -> usize) -> usize {
        let Some(epoll) = self.epoll.get() else { return 0 };
        let mut events = [EpollEvent::EMPTY; MAX_EVENTS];
        let reported = epoll.wait(&mut events, Some(wait)).unwrap_or(0);
        events.iter().take(reported).map(|event| flush(event.token())).sum()
    }
}
