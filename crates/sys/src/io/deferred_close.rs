//! Deferred closing of descriptors whose last close may sleep. The thread `sys/close` closes them,
//! so that no other thread waits.

use std::os::fd::OwnedFd;

/// Queues a descriptor for the thread `sys/close`, which closes it.
#[cold]
pub fn close(passed: OwnedFd) {
    list::push(passed, false);
}

/// Queues a Unix socket for the thread `sys/close`, which closes the socket and the descriptors in
/// its receive queue. The caller must have shut down both directions of the socket.
#[cold]
pub fn close_with_queued_descriptors(socket: OwnedFd) {
    list::push(socket, true);
}

/// Returns the number of queued descriptors, plus one while the closing thread runs. For tests.
#[cfg(all(any(test, feature = "testing"), not(loom)))]
pub fn pending() -> usize {
    list::pending()
}

#[cfg(loom)]
mod list {
    pub(super) fn push(descriptor: std::os::fd::OwnedFd, _has_queue: bool) {
        drop(descriptor);
    }
}

#[cfg(not(loom))]
mod list {
    use std::collections::VecDeque;
    use std::os::fd::{AsFd, OwnedFd};

    use crate::lock::{LockScope, PiMutex};
    use crate::thread::{self, Scheduling, ThreadBuilder};
    use crate::{process, socket};

    struct CloseQueue {
        /// Descriptors to close. True marks a socket whose receive queue may contain descriptors.
        descriptors: VecDeque<(OwnedFd, bool)>,
        /// The [`process::fork_generation`] of the process that has a closing thread; 0 if there is
        /// no closing thread.
        closing_process: u64,
    }

    static QUEUE: PiMutex<CloseQueue> = PiMutex::new(
        "descriptors to be closed",
        LockScope::Orb,
        CloseQueue { descriptors: VecDeque::new(), closing_process: 0 },
    );

    pub(super) fn push(descriptor: OwnedFd, has_queue: bool) {
        let mut waiting = QUEUE.lock();
        waiting.descriptors.push_back((descriptor, has_queue));
        let process = process::fork_generation();
        if waiting.closing_process != process {
            let builder = ThreadBuilder::new().name("sys/close").stack_size(128 * 1024);
            waiting.closing_process = if builder.spawn(run).is_ok() { process } else { 0 };
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn pending() -> usize {
        let waiting = QUEUE.lock();
        waiting.descriptors.len() + usize::from(waiting.closing_process != 0)
    }

    fn run() {
        // The call cannot fail: the kernel permits every thread to leave a real-time class.
        let _ = thread::set_scheduling(None, Scheduling::Other);
        loop {
            let mut waiting = QUEUE.lock();
            let Some((descriptor, has_queue)) = waiting.descriptors.pop_front() else {
                waiting.closing_process = 0;
                return;
            };
            drop(waiting);
            if has_queue {
                socket::take_descriptors(descriptor.as_fd(), |passed| {
                    QUEUE.lock().descriptors.push_back((passed, false))
                });
            }
            // With `SO_LINGER`, the close could wait until unsent bytes are sent.
            socket::disable_linger(descriptor.as_fd());
        }
    }
}
