//! A re-entrant lock for the SINGLE_THREAD model (CORBA 3.0.3, section 11.3.7.1).

use corelane_sys::lock::{LockScope, PiCondvar, PiMutex};

use crate::thread_context::thread_number;

#[derive(Debug)]
pub(crate) struct SerialLock {
    /// The thread that releases the lock wakes the waiting thread with the highest priority.
    state: PiMutex<State>,
    free: PiCondvar,
}

#[derive(Debug, Default)]
struct State {
    owner: u64,
    depth: usize,
}

#[must_use = "the lock is unlocked at once"]
#[derive(Debug)]
pub(crate) struct SerialGuard<'a>(&'a SerialLock);

impl SerialLock {
    pub(crate) fn new() -> Self {
        SerialLock {
            state: PiMutex::new("single thread model", LockScope::Orb, State::default()),
            free: PiCondvar::new(),
        }
    }

    pub(crate) fn enter(&self) -> SerialGuard<'_> {
        let me = thread_number();
        let mut state = self.state.lock();
        while state.owner != 0 && state.owner != me {
            state = self.free.wait(state);
        }
        state.owner = me;
        state.depth += 1;
        SerialGuard(self)
    }
}

impl Drop for SerialGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.depth -= 1;
        if state.depth == 0 {
            state.owner = 0;
            drop(state);
            self.0.free.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn serial_lock_is_reentrant_and_excludes_other_threads() {
        let serial = SerialLock::new();
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let _outer = serial.enter();
                        let _inner = serial.enter();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(serial.state.lock().owner, 0);
    }
}
