//! Memory accounting of a lane: its connections, the bytes of incomplete messages, and the bytes of
//! replies that are not read.
//!
//! Each connection has bounds of its own; this budget is for all of them together. Requests that
//! are whole and wait are counted where they wait. Running requests have a separate budget of the
//! same size, for the values made of their arguments and for their own bytes if they are many. A
//! request that does not fit it is refused, because closing a connection would not free that
//! memory. In one budget, running requests would have connections closed whose messages are
//! arriving.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::memory::ByteBudget;

/// The memory budget of a lane.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    connections: AtomicUsize,
    total: ByteBudget,
    /// The budget of running requests.
    running: ByteBudget,
    /// Set while a thread has been asked to shed memory and has not begun.
    shedding_requested: AtomicBool,
}

/// The memory that one connection holds. Dropping it releases all of it.
#[derive(Debug)]
pub(crate) struct MemoryUse {
    memory_budget: Arc<MemoryBudget>,
    /// Set once the connection counts no more.
    slot_released: AtomicBool,
    /// Set once the connection's memory counts no more.
    is_written_off: AtomicBool,
    input: AtomicUsize,
    output: AtomicUsize,
}

impl MemoryBudget {
    /// Creates a budget of `max_bytes`, and one as large for running requests.
    pub(crate) fn new(max_bytes: usize) -> Arc<Self> {
        let (connections, asked) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(MemoryBudget {
            connections,
            total: ByteBudget::new(max_bytes),
            running: ByteBudget::new(max_bytes),
            shedding_requested: asked,
        })
    }

    /// Returns the number of connections. One counts until
    /// [`release_slot`](MemoryUse::release_slot).
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// Returns true if the connections hold more than they may.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.total.is_exceeded()
    }

    /// Returns true if a thread is to be asked to shed memory: once, until
    /// [`begin_shedding`](Self::begin_shedding).
    pub(crate) fn request_shedding(&self) -> bool {
        self.is_exceeded() && !self.shedding_requested.swap(true, Ordering::SeqCst)
    }

    /// Records that a thread sheds memory now.
    pub(crate) fn begin_shedding(&self) {
        self.shedding_requested.store(false, Ordering::SeqCst);
    }

    /// Returns the budget of running requests.
    #[inline]
    pub(crate) fn running(&self) -> &ByteBudget {
        &self.running
    }
}

impl MemoryUse {
    pub(crate) fn new(memory_budget: Arc<MemoryBudget>) -> Self {
        memory_budget.connections.fetch_add(1, Ordering::AcqRel);
        MemoryUse {
            memory_budget,
            slot_released: AtomicBool::new(false),
            is_written_off: AtomicBool::new(false),
            input: AtomicUsize::new(0),
            output: AtomicUsize::new(0),
        }
    }

    pub(crate) fn memory_budget(&self) -> &MemoryBudget {
        &self.memory_budget
    }

    /// Sets the number of bytes held by incomplete messages.
    pub(crate) fn set_input(&self, bytes: usize) {
        self.set(&self.input, bytes);
    }

    /// Sets the number of bytes held by replies.
    pub(crate) fn set_output(&self, bytes: usize) {
        self.set(&self.output, bytes);
    }

    fn set(&self, part: &AtomicUsize, bytes: usize) -> usize {
        let swap = |bytes| {
            let before = part.swap(bytes, Ordering::SeqCst);
            self.memory_budget.total.change(before, bytes);
            before
        };
        let before = swap(bytes);
        if bytes != 0 && self.is_written_off.load(Ordering::SeqCst) {
            swap(0);
        }
        before
    }

    /// Returns the number of bytes held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.input.load(Ordering::Relaxed).saturating_add(self.output.load(Ordering::Relaxed))
    }

    /// Stops counting the connection: it is over, and so is everything that could keep its
    /// descriptor for long.
    pub(crate) fn release_slot(&self) {
        if !self.slot_released.swap(true, Ordering::AcqRel) {
            self.memory_budget.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Stops counting the connection's memory, now and later, because the connection ends. Returns
    /// the number of bytes, `None` if there were none or another thread has done so.
    pub(crate) fn write_off(&self) -> Option<usize> {
        let take = || self.set(&self.input, 0) + self.set(&self.output, 0);
        let bytes = take();
        if bytes == 0 || self.is_written_off.swap(true, Ordering::SeqCst) {
            return None;
        }
        // With what was added in between.
        Some(bytes + take())
    }
}

impl Drop for MemoryUse {
    fn drop(&mut self) {
        self.write_off();
        self.release_slot();
    }
}

#[cfg(test)]
mod tests {
    use corelane_wire::cdr::{MemoryAccount as _, MemoryRefusal};

    use super::*;

    #[test]
    fn memory_of_connections_is_added_and_released_with_them() {
        let memory_budget = MemoryBudget::new(100);
        let (first, second) = (MemoryUse::new(Arc::clone(&memory_budget)), MemoryUse::new(Arc::clone(&memory_budget)));
        first.set_input(60);
        first.set_input(40);
        first.set_output(20);
        second.set_input(40);
        assert_eq!((first.held_bytes(), second.held_bytes(), memory_budget.connections()), (60, 40, 2));
        assert!(!memory_budget.is_exceeded() && !memory_budget.request_shedding());
        second.set_output(1);
        assert!(memory_budget.request_shedding() && !memory_budget.request_shedding());
        memory_budget.begin_shedding();
        assert!(memory_budget.request_shedding());
        assert_eq!(first.write_off(), Some(60));
        assert!(!memory_budget.is_exceeded());
        // Memory added until the connection has ended is not counted either.
        first.set_input(70);
        assert_eq!((first.held_bytes(), first.write_off(), memory_budget.is_exceeded()), (0, None, false));
        second.release_slot();
        assert_eq!(memory_budget.connections(), 1);
        drop(second);
        assert_eq!((memory_budget.total.held(), memory_budget.connections()), (0, 1));
    }

    #[test]
    fn running_requests_do_not_count_as_connection_memory() {
        let memory_budget = MemoryBudget::new(100);
        let memory_use = MemoryUse::new(Arc::clone(&memory_budget));
        memory_budget.running().reserve(90).unwrap();
        assert_eq!(memory_budget.running().reserve(11), Err(MemoryRefusal { requested: 11, in_use: 90, limit: 100 }));
        memory_use.set_input(100);
        assert!(!memory_budget.is_exceeded());
        memory_budget.running().release(90);
        assert_eq!((memory_budget.running.held(), memory_budget.total.held()), (0, 100));
    }
}
