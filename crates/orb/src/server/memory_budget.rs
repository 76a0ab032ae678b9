//! The memory accounting of a lane: the number of its connections, the memory of incomplete
//! messages and unread replies, and the memory of running requests.
//!
//! The first budget counts the incomplete messages and unread replies of all connections of the
//! lane. When it is exceeded, the lane closes connections. Complete requests that wait are counted
//! by the list in which they wait. The second budget, of equal size, counts running requests: the
//! bytes of large requests, and the values decoded from their arguments. The ORB refuses a request
//! that does not fit, because closing its connection would not free the memory. If one budget
//! counted both, running requests could make the lane close connections whose messages are
//! arriving.
//!
//! The running requests of one connection may use at most half of the second budget. A request that
//! finds no room there moves, with all its memory, to a reserve of equal size, which one request of
//! the lane may use at a time. Therefore at least one of several large requests that run at the
//! same time succeeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use corelane_wire::cdr::{MemoryAccount, MemoryRefusal};

use crate::memory::ByteBudget;

/// The memory budgets of a lane.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    /// Number of connections that count for the lane's maximum.
    connections: AtomicUsize,
    /// The budget of incomplete messages and unread replies.
    total: ByteBudget,
    /// The part of `total` that unread replies use.
    replies: AtomicUsize,
    /// The budget that all running requests share.
    running: ByteBudget,
    /// The budget for one running request that found no room in `running`.
    reserve: ByteBudget,
    /// True from a request to shed memory until a thread begins to shed.
    shedding_requested: AtomicBool,
}

/// The account of the memory that one connection holds. Dropping it ends the counting of the
/// connection and its memory.
#[derive(Debug)]
pub(crate) struct MemoryUse {
    memory_budget: Arc<MemoryBudget>,
    /// True after the connection has stopped counting in [`MemoryBudget::connections`].
    slot_released: AtomicBool,
    /// True after the connection's memory has stopped counting in [`MemoryBudget::total`].
    is_written_off: AtomicBool,
    /// Number of bytes that incomplete messages hold.
    input: AtomicUsize,
    /// Number of bytes that unread replies hold.
    output: AtomicUsize,
    /// Number of bytes that the connection's running requests hold in [`MemoryBudget::running`].
    running: AtomicUsize,
}

/// The account of the memory that one running request holds.
#[derive(Debug)]
pub(crate) struct RunningRequest<'c> {
    connection: &'c MemoryUse,
    /// Number of bytes that the request holds.
    held: AtomicUsize,
    /// True if the bytes count in [`MemoryBudget::reserve`], false if they count in
    /// [`MemoryBudget::running`].
    has_reserve: AtomicBool,
}

impl MemoryBudget {
    /// Creates the two budgets and the reserve, each of `max_bytes` bytes.
    pub(crate) fn new(max_bytes: usize) -> Arc<Self> {
        let (connections, asked) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(MemoryBudget {
            connections,
            total: ByteBudget::new(max_bytes),
            replies: AtomicUsize::new(0),
            running: ByteBudget::new(max_bytes),
            reserve: ByteBudget::new(max_bytes),
            shedding_requested: asked,
        })
    }

    /// Returns the number of connections that count for the lane's maximum. A connection counts
    /// until [`release_slot`](MemoryUse::release_slot) is called for it.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// Returns true if the connections hold more memory than the first budget permits.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.total.is_exceeded()
    }

    /// Returns true if unread replies hold more than half of the first budget.
    pub(crate) fn has_many_replies(&self) -> bool {
        self.replies.load(Ordering::Relaxed) > self.total.limit() / 2
    }

    /// Returns true if the budget is exceeded and the caller must make a thread shed memory. After
    /// that, returns false until a thread calls [`begin_shedding`](Self::begin_shedding).
    pub(crate) fn request_shedding(&self) -> bool {
        self.is_exceeded() && !self.shedding_requested.swap(true, Ordering::SeqCst)
    }

    /// Records that a thread has begun to shed memory.
    pub(crate) fn begin_shedding(&self) {
        self.shedding_requested.store(false, Ordering::SeqCst);
    }

    /// Returns true if running requests hold memory, or have released memory since the last call.
    pub(crate) fn was_used(&self) -> bool {
        self.running.was_used() | self.reserve.was_used()
    }
}

impl<'c> RunningRequest<'c> {
    #[inline]
    pub(crate) const fn new(connection: &'c MemoryUse) -> Self {
        RunningRequest { connection, held: AtomicUsize::new(0), has_reserve: AtomicBool::new(false) }
    }

    /// Reserves `octets` bytes in the budget that all running requests share. Returns false if the
    /// budget or the connection's half of it has no room.
    fn reserve_shared(&self, octets: usize) -> bool {
        let (own, shared) = (&self.connection.running, &self.connection.memory_budget.running);
        // An addition that finds no room is undone below. Until then, it can make reservations of
        // the connection's other requests fail, but none of other connections.
        let sum = own.fetch_add(octets, Ordering::Relaxed).saturating_add(octets);
        let has_room = sum <= shared.limit() / 2 && shared.add(octets);
        if !has_room {
            own.fetch_sub(octets, Ordering::Relaxed);
        }
        has_room
    }

    /// Releases `octets` bytes of the budget that all running requests share.
    fn release_shared(&self, octets: usize) {
        self.connection.running.fetch_sub(octets, Ordering::Relaxed);
        self.connection.memory_budget.running.release(octets);
    }
}

impl MemoryAccount for RunningRequest<'_> {
    #[cold]
    fn reserve(&self, octets: usize) -> Result<(), MemoryRefusal> {
        let held = self.held.load(Ordering::Relaxed);
        let MemoryBudget { running, reserve, .. } = &*self.connection.memory_budget;
        let has_room = if self.has_reserve.load(Ordering::Relaxed) {
            reserve.add(octets)
        } else {
            self.reserve_shared(octets) || {
                let moves = reserve.add_first(held.saturating_add(octets));
                if moves {
                    self.has_reserve.store(true, Ordering::Relaxed);
                    self.release_shared(held);
                }
                moves
            }
        };
        if !has_room {
            return Err(running.refusal(octets));
        }
        self.held.store(held + octets, Ordering::Relaxed);
        Ok(())
    }

    #[cold]
    fn release(&self, octets: usize) {
        self.held.fetch_sub(octets, Ordering::Relaxed);
        if self.has_reserve.load(Ordering::Relaxed) {
            self.connection.memory_budget.reserve.release(octets);
        } else {
            self.release_shared(octets);
        }
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
            running: AtomicUsize::new(0),
        }
    }

    pub(crate) fn memory_budget(&self) -> &MemoryBudget {
        &self.memory_budget
    }

    /// Sets the number of bytes that the connection's incomplete messages hold.
    pub(crate) fn set_input(&self, bytes: usize) {
        self.set(&self.input, bytes);
    }

    /// Sets the number of bytes that the connection's unread replies hold.
    pub(crate) fn set_output(&self, bytes: usize) {
        self.set(&self.output, bytes);
    }

    /// Sets `input` or `output`, and returns its former value. After
    /// [`write_off`](Self::write_off), the value stays 0.
    fn set(&self, part: &AtomicUsize, bytes: usize) -> usize {
        let swap = |bytes| {
            let before = part.swap(bytes, Ordering::SeqCst);
            self.memory_budget.total.change(before, bytes);
            if std::ptr::eq(part, &self.output) {
                // The sum cannot underflow, because every byte that is subtracted was added before.
                self.memory_budget.replies.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
            }
            before
        };
        let before = swap(bytes);
        if bytes != 0 && self.is_written_off.load(Ordering::SeqCst) {
            swap(0);
        }
        before
    }

    /// Returns the number of bytes that the connection's incomplete messages and unread replies
    /// hold.
    pub(crate) fn held_bytes(&self) -> usize {
        self.input.load(Ordering::Relaxed).saturating_add(self.output.load(Ordering::Relaxed))
    }

    /// Makes the connection not count for the lane's maximum. Called when the connection has ended
    /// and no request keeps its descriptor open.
    pub(crate) fn release_slot(&self) {
        if !self.slot_released.swap(true, Ordering::AcqRel) {
            self.memory_budget.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Stops counting the connection's memory, now and later, because the connection ends. Returns
    /// the number of bytes that counted, or `None` if it was 0 or another thread has called this
    /// method.
    pub(crate) fn write_off(&self) -> Option<usize> {
        let take = || self.set(&self.input, 0) + self.set(&self.output, 0);
        let bytes = take();
        if bytes == 0 || self.is_written_off.swap(true, Ordering::SeqCst) {
            return None;
        }
        // Another thread may have added bytes between the first `take` and the setting of the flag.
        // The second `take` subtracts them.
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
    use super::*;

    /// Returns the numbers of bytes in the budget that running requests share, and in the reserve.
    fn in_use(budget: &MemoryBudget) -> (usize, usize) {
        (budget.running.held(), budget.reserve.held())
    }

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
        assert!(!memory_budget.has_many_replies());
        second.set_output(31);
        assert!(memory_budget.has_many_replies());
        second.set_output(1);
        memory_budget.begin_shedding();
        assert!(memory_budget.request_shedding());
        assert_eq!(first.write_off(), Some(60));
        assert!(!memory_budget.is_exceeded());
        // Memory that the connection holds after `write_off` does not count.
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
        let request = RunningRequest::new(&memory_use);
        request.reserve(50).unwrap();
        memory_use.set_input(100);
        assert!(!memory_budget.is_exceeded());
        request.release(50);
        assert_eq!((in_use(&memory_budget), memory_budget.total.held()), ((0, 0), 100));
        assert!(memory_budget.was_used() && !memory_budget.was_used());
    }

    #[test]
    fn one_connection_has_half_of_the_memory_of_running_requests_and_the_reserve() {
        let budget = MemoryBudget::new(100);
        let [greedy, good] = [(); 2].map(|()| MemoryUse::new(Arc::clone(&budget)));
        let requests = [(); 4].map(|()| RunningRequest::new(&greedy));
        requests[0].reserve(30).unwrap();
        requests[1].reserve(20).unwrap();
        // This reservation exceeds the connection's half, so request 1 moves to the reserve with
        // all its memory.
        requests[1].reserve(70).unwrap();
        assert_eq!(in_use(&budget), (30, 90));
        assert_eq!(requests[1].reserve(11), Err(MemoryRefusal { requested: 11, in_use: 30, limit: 100 }));
        requests[2].reserve(20).unwrap();
        assert_eq!(requests[3].reserve(1), Err(MemoryRefusal { requested: 1, in_use: 50, limit: 100 }));
        let other = RunningRequest::new(&good);
        other.reserve(50).unwrap();
        assert_eq!(in_use(&budget), (100, 90));
        requests[1].release(90);
        // The reserve is empty, so another request can use it.
        assert!(requests[3].reserve(101).is_err() && requests[3].reserve(100).is_ok());
        requests[3].release(100);
        for (request, octets) in [(&requests[0], 30), (&requests[2], 20), (&other, 50)] {
            request.release(octets);
        }
        assert_eq!((in_use(&budget), greedy.running.load(Ordering::Relaxed)), ((0, 0), 0));
    }

    #[test]
    fn one_of_several_large_requests_always_has_room() {
        let budget = MemoryBudget::new(100);
        let connections = [(); 4].map(|()| MemoryUse::new(Arc::clone(&budget)));
        let requests: Vec<_> = connections.iter().map(RunningRequest::new).collect();
        // Each request reserves 10 bytes in turn, up to 100 bytes, which is the size of the shared
        // budget and of the reserve.
        let mut done = 0;
        let mut running: Vec<usize> = vec![0, 1, 2, 3];
        let mut held = [0; 4];
        while !running.is_empty() {
            running.retain(|number| {
                let goes_on = requests[*number].reserve(10).is_ok();
                held[*number] += if goes_on { 10 } else { 0 };
                done += usize::from(held[*number] == 100);
                goes_on && held[*number] < 100
            });
        }
        assert!(done >= 1, "{held:?}");
        for (request, held) in requests.iter().zip(held) {
            request.release(held);
        }
        assert_eq!(in_use(&budget), (0, 0));
    }
}
