//! Bounds on the threads of ORBs that wait for a store.

use std::sync::atomic::{AtomicUsize, Ordering};

use corelane::{UpcallThread, upcall_thread};

/// Bounds the number of threads of ORBs that wait at a time. Threads of the application are not
/// bounded: they serve no other requests.
///
/// The counts order no other memory, so their ordering is `Relaxed`.
#[derive(Debug)]
pub(in crate::events) struct WaitGate {
    of_connections: WaitCount,
    in_pools: WaitCount,
}

#[derive(Debug)]
struct WaitCount {
    max: usize,
    waiting: AtomicUsize,
}

impl WaitCount {
    const fn new(max: usize) -> Self {
        Self { max, waiting: AtomicUsize::new(0) }
    }

    fn enter(&self) -> bool {
        let added = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| (waiting < self.max).then_some(waiting + 1));
        added.is_ok()
    }
}

impl WaitGate {
    /// Creates a gate for `of_connections` threads that serve one connection each, and `in_pools`
    /// threads that serve several.
    pub(in crate::events) const fn new(of_connections: usize, in_pools: usize) -> Self {
        Self { of_connections: WaitCount::new(of_connections), in_pools: WaitCount::new(in_pools) }
    }

    /// Counts the calling thread as waiting until the returned place is dropped. Returns `None` if
    /// the maximum number of threads of its kind wait.
    pub(in crate::events) fn enter(&self) -> Option<WaitPlace<'_>> {
        self.enter_as(upcall_thread())
    }

    fn enter_as(&self, thread: UpcallThread) -> Option<WaitPlace<'_>> {
        let count = match thread {
            UpcallThread::Application => None,
            UpcallThread::Connection => Some(&self.of_connections),
            UpcallThread::Pool => Some(&self.in_pools),
        };
        count.is_none_or(WaitCount::enter).then(|| WaitPlace(count))
    }

    pub(in crate::events) fn waiting(&self) -> usize {
        let waiting = |count: &WaitCount| count.waiting.load(Ordering::Relaxed);
        waiting(&self.of_connections) + waiting(&self.in_pools)
    }
}

#[derive(Debug)]
pub(in crate::events) struct WaitPlace<'g>(Option<&'g WaitCount>);

impl Drop for WaitPlace<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.0 {
            count.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_each_kind_are_counted_until_they_leave() {
        let gate = WaitGate::new(2, 1);
        let enter = |thread| gate.enter_as(thread);
        let of_connections = [(); 2].map(|()| enter(UpcallThread::Connection).unwrap());
        assert!(enter(UpcallThread::Connection).is_none());
        let in_pool = enter(UpcallThread::Pool).unwrap();
        assert!(enter(UpcallThread::Pool).is_none());
        assert!(enter(UpcallThread::Application).is_some());
        assert_eq!(gate.waiting(), 3);
        drop((of_connections, in_pool));
        assert_eq!(gate.waiting(), 0);
        assert!(enter(UpcallThread::Pool).is_some());
    }
}
