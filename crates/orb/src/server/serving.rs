//! What a lane's thread does while a call made by its servant waits for the reply: nothing, or it goes on serving
//! its own lane, never another one.

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
use super::queue::Queue;
use super::worker::Worker;
use crate::cancel::Canceller;
use crate::orb::Core;
use crate::rt::Aside;
use crate::rt::station::Raised;

struct Serving {
    lane: Arc<Lane>,
    core: Arc<Core>,
    most: u8,
    depth: Cell<u8>,
    /// Buffers for upcalls inside upcalls, reused.
    workers: RefCell<Vec<Worker>>,
}

/// A thread with a connection of its own.
struct Dedicated {
    lane: Arc<Lane>,
    core: Arc<Core>,
    connection: Arc<Connection>,
}

thread_local! {
    /// Until the connection is given to the shared threads.
    static DEDICATED: RefCell<Option<Dedicated>> = const { RefCell::new(None) };
    static IS_DEDICATED: Cell<bool> = const { Cell::new(false) };
    static SERVING: RefCell<Option<Rc<Serving>>> = const { RefCell::new(None) };
    static IS_SERVING: Cell<bool> = const { Cell::new(false) };
}

/// Notes that the calling thread alone reads `connection`.
pub(crate) fn dedicate(lane: &Arc<Lane>, core: &Arc<Core>, connection: &Arc<Connection>) {
    let own = Dedicated { lane: Arc::clone(lane), core: Arc::clone(core), connection: Arc::clone(connection) };
    DEDICATED.set(Some(own));
    IS_DEDICATED.set(true);
}

/// The calling thread is about to wait inside an upcall. If it alone reads a connection, the shared threads do from now on: what it
/// waits for may depend on a request that comes on that very connection (a nested callback of a client that multiplexes).
#[inline]
pub(crate) fn let_others_read() {
    if IS_DEDICATED.get() {
        share();
    }
}

#[cold]
fn share() {
    IS_DEDICATED.set(false);
    if let Some(own) = DEDICATED.take() {
        own.lane.share(&own.core, &own.connection);
    }
}

/// Whether the calling thread still is the only one that reads its connection.
pub(crate) fn is_dedicated() -> bool {
    IS_DEDICATED.get()
}

/// Whether the calling thread goes on serving while it waits.
#[inline]
pub(crate) fn is_serving() -> bool {
    IS_SERVING.get()
}

/// Notes that the calling thread serves `lane`, if the lane's threads go on serving while they wait.
pub(crate) fn enter(lane: &Arc<Lane>, core: &Arc<Core>) {
    if let NestedWait::Serving { depth } = lane.config.nested_wait() {
        let serving = Serving {
            lane: Arc::clone(lane),
            core: Arc::clone(core),
            most: depth,
            depth: Cell::new(0),
            workers: RefCell::new(Vec::new()),
        };
        SERVING.set(Some(Rc::new(serving)));
        IS_SERVING.set(true);
    }
}

/// The calling thread ends.
pub(crate) fn leave() {
    IS_SERVING.set(false);
    SERVING.set(None);
    IS_DEDICATED.set(false);
    DEDICATED.set(None);
}

/// Serves the thread's lane until `reply` can be read, `canceller` says so, or `deadline` has passed. False if the thread serves no
/// lane, or is too deep in upcalls: it has to wait in place.
#[inline]
pub(crate) fn until_readable(
    reply: BorrowedFd<'_>,
    deadline: Option<Monotonic>,
    canceller: Option<&Canceller>,
) -> io::Result<bool> {
    let serving = SERVING.with_borrow(Option::clone);
    serving.map_or(Ok(false), |serving| serving.until_readable(&Awaited { reply, deadline, canceller }))
}

/// What a thread that serves meanwhile waits for.
struct Awaited<'a> {
    reply: BorrowedFd<'a>,
    deadline: Option<Monotonic>,
    canceller: Option<&'a Canceller>,
}

impl Awaited<'_> {
    /// Waits for it, or for `work`; whether it has come, and whether there is work. Neither is for certain after a signal.
    fn or(&self, work: BorrowedFd<'_>) -> io::Result<(bool, bool)> {
        let (come, work) = match self.canceller {
            None => poll::wait_either(self.reply, work, self.deadline)?,
            Some(canceller) => {
                let [reply, work, cancelled] = poll::wait_any([self.reply, work, canceller.as_fd()], self.deadline)?;
                (reply || cancelled, work)
            }
        };
        Ok((come || self.is_late(), work))
    }

    /// Whether it has come.
    fn has_come(&self) -> io::Result<bool> {
        let now = Some(Monotonic::now());
        Ok(poll::wait_readable(self.reply, now)?
            || self.canceller.is_some_and(Canceller::is_cancelled)
            || self.is_late())
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(Monotonic::is_past)
    }
}

impl Serving {
    #[cold]
    fn until_readable(&self, awaited: &Awaited<'_>) -> io::Result<bool> {
        if self.depth.get() >= self.most {
            return Ok(false);
        }
        self.depth.set(self.depth.get() + 1);
        // Others are not late, though what this thread runs may be: it serves them as its lane does. It has had that priority already.
        let own = self.lane.role.as_ref().and_then(|role| role.native);
        let (_aside, _raised) = (Aside::begin(), Raised::to(own));
        let mut worker = self.workers.borrow_mut().pop().unwrap_or_default();
        let waited = match &self.lane.queue {
            None => self.serve(&mut worker, awaited),
            Some(queue) => {
                queue.listen();
                let waited = self.serve_queue(queue, &mut worker, awaited);
                queue.unlisten();
                waited
            }
        };
        self.workers.borrow_mut().push(worker);
        self.depth.set(self.depth.get() - 1);
        waited
    }

    fn serve(&self, worker: &mut Worker, awaited: &Awaited<'_>) -> io::Result<bool> {
        loop {
            // What is listed may have no wake-up left that would report it, and a step may do reported work instead.
            let (come, work) =
                if self.lane.has_ready() { (awaited.has_come()?, true) } else { awaited.or(self.lane.readiness())? };
            if come {
                return Ok(true);
            }
            if work {
                self.lane.step(&self.core, worker, Some(Duration::ZERO))?;
            }
        }
    }

    /// Half-sync/half-async: another thread reads, this one runs what waits in the queue.
    fn serve_queue(&self, queue: &Queue, worker: &mut Worker, awaited: &Awaited<'_>) -> io::Result<bool> {
        loop {
            // A reply that is there goes before another request: requests may come without end.
            if awaited.has_come()? {
                return Ok(true);
            }
            if self.lane.step_queued(&self.core, worker, queue) {
                continue;
            }
            awaited.or(queue.bell())?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use corelane_sys::eventfd::Wake;

    use super::*;
    use crate::Orb;
    use crate::poa::Held;
    use crate::server::config::{Dispatch, PoolConfig};
    use crate::server::ready::Work;

    #[test]
    fn cancelling_ends_the_wait_of_a_thread_that_serves_meanwhile() {
        let orb = Orb::new().unwrap();
        for dispatch in [Dispatch::Reactive, Dispatch::HalfSyncHalfAsync { threads: 1, queue: 1 }] {
            let nested_wait = Some(NestedWait::Serving { depth: 3 });
            let config = PoolConfig { dispatch, nested_wait, ..PoolConfig::default() };
            let lane = Lane::new(config, Vec::new(), Duration::ZERO, None, None).unwrap();
            enter(&lane, orb.core());
            let (reply, canceller) = (Wake::new().unwrap(), Canceller::new().unwrap());
            let other = canceller.clone();
            let helper = std::thread::spawn(move || other.cancel());
            assert!(until_readable(reply.as_fd(), None, Some(&canceller)).unwrap(), "{dispatch:?}");
            helper.join().unwrap();
            leave();
        }
    }

    /// Work that nothing reports any more once its wake-up was taken: the thread that waits found one listed piece, then took the
    /// wake-up of the rest and slept.
    #[test]
    fn listed_work_is_done_while_a_thread_waits() {
        let orb = Orb::new().unwrap();
        let config = PoolConfig { dispatch: Dispatch::Reactive, ..PoolConfig::default() };
        let lane = Lane::new(config, Vec::new(), Duration::ZERO, None, None).unwrap();
        enter(&lane, orb.core());
        let done = Arc::new(AtomicUsize::new(0));
        let late = Monotonic::now() + Duration::from_secs(5);
        for count in 1..=4 {
            let reply = Arc::new(Wake::new().unwrap());
            done.store(0, Ordering::Relaxed);
            for _ in 0..count {
                let (done, reply) = (Arc::clone(&done), Arc::clone(&reply));
                let resume = Box::new(move |_| {
                    if done.fetch_add(1, Ordering::Relaxed) + 1 == count {
                        reply.notify();
                    }
                });
                lane.push(Work::Resume(Held { octets: 0, resume }));
            }
            assert!(until_readable(reply.as_fd(), Some(late), None).unwrap());
            assert_eq!(done.load(Ordering::Relaxed), count);
        }
        leave();
    }
}
