//! One thread at a time, which may come again: the SINGLE_THREAD model (CORBA 3.0.3, section 11.3.7.1).

use std::sync::atomic::{AtomicU64, Ordering};

use corelane_sys::lock::{PiCondvar, PiMutex, Scope};

/// What tells threads apart: never 0, never the same for two threads.
pub(crate) fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.with(|own| *own)
}

/// The right to run something of a POA.
#[derive(Debug)]
pub(crate) struct Serial {
    /// Requests of every priority pass here, and the most urgent of those that wait comes next.
    state: PiMutex<State>,
    free: PiCondvar,
}

#[derive(Debug, Default)]
struct State {
    /// 0: nobody.
    owner: u64,
    /// Of the owner's turns inside one another.
    depth: usize,
}

/// The calling thread's turn; it ends when dropped.
#[must_use = "the turn ends at once"]
#[derive(Debug)]
pub(crate) struct SerialTurn<'a>(&'a Serial);

impl Serial {
    pub(crate) fn new() -> Self {
        Serial { state: PiMutex::new("single thread model", Scope::Orb, State::default()), free: PiCondvar::new() }
    }

    /// Waits until no other thread has the turn.
    pub(crate) fn enter(&self) -> SerialTurn<'_> {
        let me = this_thread();
        let mut state = self.state.lock();
        while state.owner != 0 && state.owner != me {
            state = self.free.wait(state);
        }
        state.owner = me;
        state.depth += 1;
        SerialTurn(self)
    }
}

impl Drop for SerialTurn<'_> {
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
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_thread_may_come_again_and_others_wait() {
        let serial = Serial::new();
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
