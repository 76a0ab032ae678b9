//! The memory accounting of a lane: one budget for incomplete messages and unread replies, and one
//! for running requests.
//!
//! If connections exceed the first budget, the lane closes some of them. A request for which
//! neither the second budget nor its reserve has room is refused, because closing its connection
//! would not free the memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use corelane_wire::cdr::{MemoryAccount, MemoryRefusal};

#[cfg(feature = "replies-first")]
use super::large_replies::LargeReplies;
use crate::memory::ByteBudget;

#[derive(Debug)]
pub(crate) struct MemoryBudget {
    connections: AtomicUsize,
    total: ByteBudget,
    running: ByteBudget,
    reserve: ByteBudget,
    shedding_requested: AtomicBool,
    #[cfg(feature = "replies-first")]
    unread: ByteBudget,
    #[cfg(feature = "replies-first")]
    large_replies: LargeReplies,
}

#[derive(Debug)]
pub(crate) struct MemoryUse {
    memory_budget: Arc<MemoryBudget>,
    slot_released: AtomicBool,
    is_written_off: AtomicBool,
    input: AtomicUsize,
    output: AtomicUsize,
    running: AtomicUsize,
    #[cfg(feature = "replies-first")]
    unread: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct RunningRequest<'c> {
    connection: &'c MemoryUse,
    held: AtomicUsize,
    has_reserve: AtomicBool,
}

impl MemoryBudget {
    pub(crate) fn new(max_bytes: usize) -> Arc<Self> {
        let (connections, asked) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(MemoryBudget {
            connections,
            total: ByteBudget::new(max_bytes),
            running: ByteBudget::new(max_bytes),
            reserve: ByteBudget::new(max_bytes),
            shedding_requested: asked,
            #[cfg(feature = "replies-first")]
            unread: ByteBudget::new(max_bytes / 2),
            #[cfg(feature = "replies-first")]
            large_replies: LargeReplies::new(),
        })
    }

    #[cfg(feature = "replies-first")]
    pub(crate) fn unread(&self) -> &ByteBudget {
        &self.unread
    }

    #[cfg(feature = "replies-first")]
    pub(crate) fn large_replies(&self) -> &LargeReplies {
        &self.large_replies
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.total.is_exceeded()
    }

    /// Returns true if the budget is exceeded, and then false until a thread calls
    /// [`begin_shedding`](Self::begin_shedding).
    pub(crate) fn request_shedding(&self) -> bool {
        self.is_exceeded() && !self.shedding_requested.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn begin_shedding(&self) {
        self.shedding_requested.store(false, Ordering::SeqCst);
    }

    pub(crate) fn was_used(&self) -> bool {
        self.running.was_used() | self.reserve.was_used()
    }
}

impl<'c> RunningRequest<'c> {
    #[inline]
    pub(crate) const fn new(connection: &'c MemoryUse) -> Self {
        RunningRequest { connection, held: AtomicUsize::new(0), has_reserve: AtomicBool::new(false) }
    }

    fn reserve_shared(&self, octets: usize) -> bool {
        let (own, shared) = (&self.connection.running, &self.connection.memory_budget.running);
        // The addition may make reservations of the connection's other requests fail, but not those
        // of other connections.
        let sum = own.fetch_add(octets, Ordering::Relaxed).saturating_add(octets);
        let has_room = sum <= shared.limit() / 2 && shared.add(octets);
        if !has_room {
            own.fetch_sub(octets, Ordering::Relaxed);
        }
        has_room
    }

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
            #[cfg(feature = "replies-first")]
            unread: AtomicUsize::new(0),
        }
    }

    pub(crate) fn memory_budget(&self) -> &MemoryBudget {
        &self.memory_budget
    }

    pub(crate) fn set_input(&self, bytes: usize) {
        self.set(&self.memory_budget.total, &self.input, bytes);
    }

    pub(crate) fn set_output(&self, bytes: usize) {
        self.set(&self.memory_budget.total, &self.output, bytes);
        #[cfg(feature = "replies-first")]
        self.set_unread(bytes);
    }

    /// Stops counting the connection's unread replies as a reason to delay requests, until the
    /// connection's output changes.
    #[cfg(feature = "replies-first")]
    pub(crate) fn exempt_unread(&self) {
        self.set_unread(0);
    }

    #[cfg(feature = "replies-first")]
    fn set_unread(&self, bytes: usize) {
        let budget = &self.memory_budget.unread;
        self.set(budget, &self.unread, bytes.min(budget.limit() / 4));
    }

    /// Sets the bytes of one part, and returns the earlier value. After
    /// [`write_off`](Self::write_off), the new value is 0.
    fn set(&self, budget: &ByteBudget, part: &AtomicUsize, bytes: usize) -> usize {
        let swap = |bytes| {
            let before = part.swap(bytes, Ordering::SeqCst);
            budget.change(before, bytes);
            before
        };
        let before = swap(bytes);
        if bytes != 0 && self.is_written_off.load(Ordering::SeqCst) {
            swap(0);
        }
        before
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.input.load(Ordering::Relaxed).saturating_add(self.output.load(Ordering::Relaxed))
    }

    pub(crate) fn release_slot(&self) {
        if !self.slot_released.swap(true, Ordering::AcqRel) {
            self.memory_budget.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Sets the connection's counted memory to 0 and, if it was not 0, counts none of its memory
    /// from now on. Returns the number of bytes that were counted; `None` if it was 0, or if
    /// another call has written the memory off.
    pub(crate) fn write_off(&self) -> Option<usize> {
        let total = &self.memory_budget.total;
        let take = || {
            #[cfg(feature = "replies-first")]
            self.set_unread(0);
            self.set(total, &self.input, 0) + self.set(total, &self.output, 0)
        };
        let bytes = take();
        if bytes == 0 || self.is_written_off.swap(true, Ordering::SeqCst) {
            return None;
        }
        // Another thread may have added bytes between the first `take` and the setting of the flag,
        // so the memory is taken again.
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
        memory_budget.begin_shedding();
        assert!(memory_budget.request_shedding());
        assert_eq!(first.write_off(), Some(60));
        assert!(!memory_budget.is_exceeded());
        first.set_input(70);
        assert_eq!((first.held_bytes(), first.write_off(), memory_budget.is_exceeded()), (0, None, false));
        second.release_slot();
        assert_eq!(memory_budget.connections(), 1);
        drop(second);
        assert_eq!((memory_budget.total.held(), memory_budget.connections()), (0, 1));
    }

    #[cfg(feature = "replies-first")]
    #[test]
    fn unread_replies_of_one_connection_count_up_to_an_eighth_and_not_after_a_stall() {
        let memory_budget = MemoryBudget::new(80);
        let connections = [(); 5].map(|()| MemoryUse::new(Arc::clone(&memory_budget)));
        connections[0].set_output(70);
        assert_eq!((memory_budget.unread().held(), memory_budget.is_exceeded()), (10, false));
        connections[1..].iter().for_each(|connection| connection.set_output(10));
        assert!(memory_budget.unread().held() == 50 && memory_budget.unread().is_exceeded());
        connections[0].exempt_unread();
        assert!(!memory_budget.unread().is_exceeded() && connections[0].held_bytes() == 70);
        connections[0].set_output(69);
        assert!(memory_budget.unread().is_exceeded());
        assert_eq!(connections[0].write_off(), Some(69));
        connections[0].set_output(50);
        assert_eq!(memory_budget.unread().held(), 40);
        drop(connections);
        assert_eq!((memory_budget.unread().held(), memory_budget.total.held()), (0, 0));
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
        // The reservation exceeds the connection's half, so request 1 moves to the reserve with all
        // its memory.
        requests[1].reserve(70).unwrap();
        assert_eq!(in_use(&budget), (30, 90));
        assert_eq!(requests[1].reserve(11), Err(MemoryRefusal { requested: 11, in_use: 30, limit: 100 }));
        requests[2].reserve(20).unwrap();
        assert_eq!(requests[3].reserve(1), Err(MemoryRefusal { requested: 1, in_use: 50, limit: 100 }));
        let other = RunningRequest::new(&good);
        other.reserve(50).unwrap();
        assert_eq!(in_use(&budget), (100, 90));
        requests[1].release(90);
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
