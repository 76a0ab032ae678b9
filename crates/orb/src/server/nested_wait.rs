//! The hooks of threads whose servant waits for a reply: the thread runs other work of the lane, or
//! returns its connection to the lane.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use super::architecture::Architecture;
use super::config::NestedWait;
use super::connection::Connection;
use super::handler::RequestHandler;
use super::lane::Lane;
use super::worker::Worker;
use crate::cpu_charge::ChargePause;
use crate::nested_wait::{self, AwaitedReply, NestedWaitHook};
use crate::thread_context::PriorityBoost;

/// The upcall stack of a thread has room for this number of nested upcalls.
const MAX_NESTED_UPCALLS: u8 = 31;

pub(super) const SERVE_WHILE_WAITING: NestedWait = NestedWait::Serve { max_depth: MAX_NESTED_UPCALLS };

struct ServingThread<S, H> {
    lane: Arc<Lane<S>>,
    handler: Arc<H>,
    max_depth: u8,
    depth: Cell<u8>,
    workers: RefCell<Vec<Worker>>,
}

struct DedicatedThread<S, H> {
    lane: Arc<Lane<S>>,
    handler: Arc<H>,
    connection: Arc<Connection>,
}

pub(crate) fn set_dedicated<S: Architecture<S>, H: RequestHandler>(
    lane: &Arc<Lane<S>>,
    handler: &Arc<H>,
    connection: &Arc<Connection>,
) {
    nested_wait::install_dedicated(Rc::new(DedicatedThread {
        lane: Arc::clone(lane),
        handler: Arc::clone(handler),
        connection: Arc::clone(connection),
    }));
}

pub(crate) fn enter<S: Architecture<S>, H: RequestHandler>(lane: &Arc<Lane<S>>, handler: &Arc<H>) {
    let nested_wait = lane.config.nested_wait.unwrap_or_else(|| lane.strategy.default_nested_wait());
    if let NestedWait::Serve { max_depth } = nested_wait {
        nested_wait::install_serving(Rc::new(ServingThread {
            lane: Arc::clone(lane),
            handler: Arc::clone(handler),
            max_depth,
            depth: Cell::new(0),
            workers: RefCell::new(Vec::new()),
        }));
    }
}

impl<S: Architecture<S>, H: RequestHandler> NestedWaitHook for DedicatedThread<S, H> {
    fn release_connection(&self) {
        self.lane.watch_connection(self.handler.context(), &self.connection);
    }
}

impl<S: Architecture<S>, H: RequestHandler> NestedWaitHook for ServingThread<S, H> {
    #[cold]
    fn wait_or_dispatch(&self, awaited: &AwaitedReply<'_>) -> io::Result<bool> {
        if self.depth.get() >= self.max_depth {
            return Ok(false);
        }
        self.depth.set(self.depth.get() + 1);
        // The waiting request may have lowered the thread's priority because it exceeded its
        // declared time. Requests that run during the wait need the priority of the lane.
        let own = self.lane.scheduling();
        let (_aside, _raised) = (ChargePause::begin(), PriorityBoost::at_least(own));
        let mut worker = self.workers.borrow_mut().pop().unwrap_or_default();
        let waited = self.lane.strategy.wait_nested(&self.lane, &self.handler, &mut worker, awaited);
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

    use corelane_sys::clock::Monotonic;
    use corelane_sys::eventfd::EventFd;

    use super::*;
    use crate::Orb;
    use crate::cancel::Canceller;
    use crate::nested_wait::{uninstall, wait_or_dispatch};
    use crate::server::config::{Dispatch, PoolConfig};
    use crate::server::parked_request::ParkedRequest;
    use crate::server::ready_list::LaneTask;
    use crate::server::strategy::Lane;
    use std::time::Duration;

    #[test]
    fn cancelling_ends_a_nested_wait() {
        let orb = Orb::new().unwrap();
        for dispatch in [Dispatch::Reactive, Dispatch::HalfSyncHalfAsync { threads: 1, max_queued: 1 }] {
            let nested_wait = Some(NestedWait::Serve { max_depth: 3 });
            let config = PoolConfig::default().dispatch(dispatch).nested_wait(nested_wait);
            let lane = Lane::new(config, Vec::new(), Duration::ZERO, None, None).unwrap();
            enter(&lane, orb.core().adapter());
            let (reply, canceller) = (EventFd::new().unwrap(), Canceller::new().unwrap());
            let other = canceller.clone();
            let helper = std::thread::spawn(move || other.cancel());
            assert!(wait_or_dispatch(reply.as_fd(), None, Some(&canceller)).unwrap(), "{dispatch:?}");
            helper.join().unwrap();
            uninstall();
        }
    }

    /// Regression test: a thread in a nested wait ran one task of the ready list, cleared the
    /// wake-up for the other tasks, and slept.
    #[test]
    fn listed_tasks_run_during_a_nested_wait() {
        let orb = Orb::new().unwrap();
        let config = PoolConfig::default().dispatch(Dispatch::Reactive);
        let lane = Lane::new(config, Vec::new(), Duration::ZERO, None, None).unwrap();
        enter(&lane, orb.core().adapter());
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
                lane.push(LaneTask::RunCollocated(ParkedRequest { bytes: 0, resume }));
            }
            assert!(wait_or_dispatch(reply.as_fd(), Some(late), None).unwrap());
            assert_eq!(done.load(Ordering::Relaxed), count);
        }
        uninstall();
    }
}
