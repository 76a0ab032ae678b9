//! Waiting in a nested call: what a lane's thread does while a call made by its servant waits for
//! the reply. It blocks, or it serves its own lane, never another one.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::poll;

use super::config::NestedWait;
use super::connection::Connection;
use super::lane::Lane;
use super::worker::Worker;
use crate::cancel::Canceller;
use crate::orb::Core;
use crate::rt::ChargePause;
use crate::rt::thread_context::PriorityBoost;

/// Maximum number of upcalls nested in the first one of a thread: the room that `Current` has.
const MAX_NESTED_UPCALLS: u8 = 31;

/// Serving while waiting, to any depth.
pub(super) const SERVE_WHILE_WAITING: NestedWait = NestedWait::Serve { max_depth: MAX_NESTED_UPCALLS };

struct ServingThread {
    lane: Arc<Lane>,
    core: Arc<Core>,
    max_depth: u8,
    depth: Cell<u8>,
    /// Buffers for upcalls inside upcalls, reused.
    workers: RefCell<Vec<Worker>>,
}

/// A thread of its own that a connection has.
struct DedicatedThread {
    lane: Arc<Lane>,
    core: Arc<Core>,
    connection: Arc<Connection>,
}

thread_local! {
    /// Present until the connection is released to the shared threads.
    static DEDICATED: RefCell<Option<DedicatedThread>> = const { RefCell::new(None) };
    static IS_DEDICATED: Cell<bool> = const { Cell::new(false) };
    static SERVING: RefCell<Option<Rc<ServingThread>>> = const { RefCell::new(None) };
    static IS_SERVING: Cell<bool> = const { Cell::new(false) };
}

/// Records that the calling thread alone reads `connection`.
pub(crate) fn set_dedicated(lane: &Arc<Lane>, core: &Arc<Core>, connection: &Arc<Connection>) {
    let own = DedicatedThread { lane: Arc::clone(lane), core: Arc::clone(core), connection: Arc::clone(connection) };
    DEDICATED.set(Some(own));
    IS_DEDICATED.set(true);
}

/// Releases the connection that the calling thread alone reads, if any, to the shared threads.
/// Called before the thread waits inside an upcall: what it waits for may depend on a request on
/// that very connection (a nested callback of a client that multiplexes).
#[inline]
pub(crate) fn release_dedicated_connection() {
    if IS_DEDICATED.get() {
        release_dedicated();
    }
}

#[cold]
fn release_dedicated() {
    IS_DEDICATED.set(false);
    if let Some(own) = DEDICATED.take() {
        own.lane.watch_connection(&own.core, &own.connection);
    }
}

/// Returns true if the calling thread alone reads its connection.
pub(crate) fn is_dedicated() -> bool {
    IS_DEDICATED.get()
}

/// Returns true if the calling thread serves its lane while it waits.
#[inline]
pub(crate) fn dispatches_while_waiting() -> bool {
    IS_SERVING.get()
}

/// Records that the calling thread serves `lane`, if the lane's threads serve while they wait.
pub(crate) fn enter(lane: &Arc<Lane>, core: &Arc<Core>) {
    let nested_wait = lane.config.nested_wait.unwrap_or_else(|| lane.strategy.default_nested_wait());
    if let NestedWait::Serve { max_depth: depth } = nested_wait {
        let serving = ServingThread {
            lane: Arc::clone(lane),
            core: Arc::clone(core),
            max_depth: depth,
            depth: Cell::new(0),
            workers: RefCell::new(Vec::new()),
        };
        SERVING.set(Some(Rc::new(serving)));
        IS_SERVING.set(true);
    }
}

/// Forgets the calling thread's lane and connection, because it ends.
pub(crate) fn leave() {
    IS_SERVING.set(false);
    SERVING.set(None);
    IS_DEDICATED.set(false);
    DEDICATED.set(None);
}

/// Serves the thread's lane until `reply` can be read, `canceller` is cancelled, or `deadline` has
/// passed. Returns false if the thread serves no lane, or is too deep in upcalls: it has to block.
#[inline]
pub(crate) fn wait_or_dispatch(
    reply: BorrowedFd<'_>,
    deadline: Option<Monotonic>,
    canceller: Option<&Canceller>,
) -> io::Result<bool> {
    let serving = SERVING.with_borrow(Option::clone);
    serving.map_or(Ok(false), |serving| serving.wait_or_dispatch(&AwaitedReply { reply, deadline, canceller }))
}

/// The reply that a serving thread waits for.
pub(super) struct AwaitedReply<'a> {
    reply: BorrowedFd<'a>,
    deadline: Option<Monotonic>,
    canceller: Option<&'a Canceller>,
}

impl AwaitedReply<'_> {
    /// Waits for the reply or for `work`. Returns whether the reply has come, and whether there is
    /// work; after a signal neither is certain.
    pub(super) fn wait_or_work(&self, work: BorrowedFd<'_>) -> io::Result<(bool, bool)> {
        let (come, work) = match self.canceller {
            None => poll::wait_either(self.reply, work, self.deadline)?,
            Some(canceller) => {
                let [reply, work, cancelled] = poll::wait_any([self.reply, work, canceller.as_fd()], self.deadline)?;
                (reply || cancelled, work)
            }
        };
        Ok((come || self.is_past_deadline(), work))
    }

    /// Returns true if the reply has come.
    pub(super) fn has_arrived(&self) -> io::Result<bool> {
        let now = Some(Monotonic::now());
        Ok(poll::wait_readable(self.reply, now)?
            || self.canceller.is_some_and(Canceller::is_cancelled)
            || self.is_past_deadline())
    }

    fn is_past_deadline(&self) -> bool {
        self.deadline.is_some_and(Monotonic::is_past)
    }

    /// Takes part in the work of `lane` until the reply has come.
    pub(super) fn wait_stepping_lane(&self, lane: &Lane, core: &Arc<Core>, worker: &mut Worker) -> io::Result<()> {
        loop {
            // A listed task may have no wake-up left that would report it, and a step may do
            // reported work instead.
            let (come, work) =
                if lane.has_ready() { (self.has_arrived()?, true) } else { self.wait_or_work(lane.readiness())? };
            if come {
                return Ok(());
            }
            if work {
                lane.step(core, worker, Some(Duration::ZERO))?;
            }
        }
    }
}

impl ServingThread {
    #[cold]
    fn wait_or_dispatch(&self, awaited: &AwaitedReply<'_>) -> io::Result<bool> {
        if self.depth.get() >= self.max_depth {
            return Ok(false);
        }
        self.depth.set(self.depth.get() + 1);
        // The requests that it serves are not late, although its own may be: it serves them at the
        // lane's priority, which it has had already.
        let own = self.lane.role.as_ref().and_then(|role| role.scheduling);
        let (_aside, _raised) = (ChargePause::begin(), PriorityBoost::at_least(own));
        let mut worker = self.workers.borrow_mut().pop().unwrap_or_default();
        let waited = self.lane.strategy.wait_nested(&self.lane, &self.core, &mut worker, awaited);
        // A nested worker never joins a burst, so it keeps no role in one.
        worker.burst_role.reset();
        self.workers.borrow_mut().push(worker);
        self.depth.set(self.depth.get() - 1);
        waited.map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use corelane_sys::eventfd::EventFd;

    use super::*;
    use crate::Orb;
    use crate::poa::ParkedRequest;
    use crate::server::config::{Dispatch, PoolConfig};
    use crate::server::ready_list::Task;

    #[test]
    fn cancelling_ends_a_nested_wait() {
        let orb = Orb::new().unwrap();
        for dispatch in [Dispatch::Reactive, Dispatch::HalfSyncHalfAsync { threads: 1, max_queued: 1 }] {
            let nested_wait = Some(NestedWait::Serve { max_depth: 3 });
            let config = PoolConfig::default().dispatch(dispatch).nested_wait(nested_wait);
            let lane = Lane::new(config, Vec::new(), Duration::ZERO, None, None).unwrap();
            enter(&lane, orb.core());
            let (reply, canceller) = (EventFd::new().unwrap(), Canceller::new().unwrap());
            let other = canceller.clone();
            let helper = std::thread::spawn(move || other.cancel());
            assert!(wait_or_dispatch(reply.as_fd(), None, Some(&canceller)).unwrap(), "{dispatch:?}");
            helper.join().unwrap();
            leave();
        }
    }

    /// Regression: a thread in a nested wait found one listed task, took the wake-up of the others,
    /// and slept.
    #[test]
    fn listed_tasks_run_during_a_nested_wait() {
        let orb = Orb::new().unwrap();
        let config = PoolConfig::default().dispatch(Dispatch::Reactive);
        let lane = Lane::new(config, Vec::new(), Duration::ZERO, None, None).unwrap();
        enter(&lane, orb.core());
        let done = Arc::new(AtomicUsize::new(0));
        let late = Monotonic::now() + Duration::from_secs(5);
        for count in 1..=4 {
            let reply = Arc::new(EventFd::new().unwrap());
            done.store(0, Ordering::Relaxed);
            for _ in 0..count {
                let (done, reply) = (Arc::clone(&done), Arc::clone(&reply));
                let resume = Box::new(move |_| {
                    if done.fetch_add(1, Ordering::Relaxed) + 1 == count {
                        reply.notify();
                    }
                });
                lane.push(Task::RunLocal(ParkedRequest { bytes: 0, resume }));
            }
            assert!(wait_or_dispatch(reply.as_fd(), Some(late), None).unwrap());
            assert_eq!(done.load(Ordering::Relaxed), count);
        }
        leave();
    }
}
