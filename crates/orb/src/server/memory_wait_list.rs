//! The connections of a lane with a request that waits for memory, the longest wait first.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, PiMutex};

#[derive(Debug)]
pub(super) struct MemoryWaits {
    connections: PiMutex<VecDeque<((u32, u32), Monotonic)>>,
    count: AtomicUsize,
}

impl MemoryWaits {
    pub(super) fn new() -> Self {
        let connections = PiMutex::new("memory waits", LockScope::Lane, VecDeque::new());
        MemoryWaits { connections, count: AtomicUsize::new(0) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    pub(super) fn add(&self, handle: (u32, u32), now: Monotonic) {
        let mut connections = self.connections.lock();
        connections.push_back((handle, now));
        self.count.store(connections.len(), Ordering::SeqCst);
    }

    pub(super) fn take(&self, since: Option<Monotonic>) -> Option<(u32, u32)> {
        let mut connections = self.connections.lock();
        let (handle, _) = connections.pop_front_if(|(_, began)| since.is_none_or(|since| *began < since))?;
        self.count.store(connections.len(), Ordering::SeqCst);
        Some(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_the_list_in_the_order_of_their_waits() {
        let at = Monotonic::from_nanos;
        let waits = MemoryWaits::new();
        (1..=3).for_each(|number| waits.add((number, 0), at(u64::from(number))));
        assert_eq!(waits.take(Some(at(1))), None);
        assert_eq!(waits.take(Some(at(2))), Some((1, 0)));
        assert_eq!(waits.take(Some(at(2))), None);
        assert_eq!((waits.take(None), waits.is_empty()), (Some((2, 0)), false));
        assert_eq!((waits.take(None), waits.take(None), waits.is_empty()), (Some((3, 0)), None, true));
    }
}
