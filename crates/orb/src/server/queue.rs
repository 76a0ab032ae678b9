//! The queue between the thread that reads and the threads that run requests (half-sync/half-async; paper 4 compares it).

use std::collections::VecDeque;
use std::sync::Arc;

use corelane_sys::counters;
use corelane_sys::lock::{Condvar, Mutex, Scope};

use super::connection::Connection;
use super::worker::Message;

/// A bounded queue of messages.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    bound: usize,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(Arc<Connection>, Message)>,
    stopped: bool,
}

impl Queue {
    pub(crate) fn new(bound: usize) -> Self {
        Queue { state: Mutex::new("request queue", Scope::Lane, State::default()), filled: Condvar::new(), bound }
    }

    /// Lists a message; gives it back when too many wait.
    pub(crate) fn push(&self, connection: Arc<Connection>, message: Message) -> Result<(), Message> {
        let mut state = self.state.lock();
        if state.waiting.len() >= self.bound {
            return Err(message);
        }
        state.waiting.push_back((connection, message));
        drop(state);
        counters::count_handoff();
        self.filled.notify_one();
        Ok(())
    }

    /// The next message; `None` after [`stop`](Self::stop).
    pub(crate) fn pop(&self) -> Option<(Arc<Connection>, Message)> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(next) = state.waiting.pop_front() {
                return Some(next);
            }
            state = self.filled.wait(state);
        }
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.filled.notify_all();
    }
}
