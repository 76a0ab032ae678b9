//! Taking connections in: accepting, and what becomes of it where there is no room.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use corelane_net::Stream;
use corelane_sched::Priority;
use corelane_sys::clock::Monotonic;
use corelane_sys::epoll::Interest;
use corelane_sys::{poll, process};

use super::admission::{self, Arrival};
use super::config::Dispatch;
use super::connection::{Bounds, Connection, Origin};
use super::lane::{ACCEPTS, LISTENER, Lane};
use super::queue::Queue;
use crate::clock;
use crate::event::Event;
use crate::orb::Core;
use crate::rt::station::DEFAULT_POOL;

impl Lane {
    /// Listeners that ran out of descriptors are watched anew: there may be some now.
    #[cold]
    pub(super) fn accept_again(&self) {
        if self.starved.swap(false, Ordering::AcqRel) {
            for (index, listener) in (0..).zip(&*self.listeners.lock()) {
                // A listener that cannot be watched any more is closed.
                let _ = self.epoll.modify(listener.readiness(), LISTENER | index, Interest::READABLE | Interest::EDGE);
            }
        }
    }

    /// Takes waiting connections in. True if more may wait.
    #[cold]
    pub(super) fn accept(&self, core: &Arc<Core>, token: u64) -> bool {
        let index = usize::try_from(token & !LISTENER).unwrap_or(usize::MAX);
        // At most one connection makes room for each that comes in.
        let mut may_make_room = true;
        for _ in 0..ACCEPTS {
            // Taken in without the lock: whoever is told of a connection may end the ORB, and with it the listeners.
            let listeners = self.listeners.lock();
            let Some(listener) = listeners.get(index) else { return false };
            let accepted = listener.accept();
            let local = accepted.is_err().then(|| listener.local().clone());
            let exhausted = accepted.as_ref().is_err_and(process::is_out_of_descriptors);
            // The system says that there is no descriptor before it looks whether anybody waits.
            let at_once = Some(Monotonic::from_nanos(0));
            let nobody = exhausted && !poll::wait_readable(listener.readiness(), at_once).unwrap_or(true);
            drop(listeners);
            match (accepted, local) {
                (Ok(stream), _) => {
                    may_make_room = true;
                    self.adopt(core, stream);
                }
                (Err(error), _) if nobody || error.kind() == io::ErrorKind::WouldBlock => return false,
                (Err(_), _) if exhausted && may_make_room && self.free_a_descriptor(core) => may_make_room = false,
                // The peer is gone again already: the next one.
                (Err(error), Some(listener)) if error.kind() != io::ErrorKind::ConnectionAborted => {
                    self.starved.store(true, Ordering::Release);
                    core.events().report(&Event::AcceptFailed { listener, error: error.to_string() });
                    return false;
                }
                (Err(_), _) => {}
            }
        }
        // More may wait: an edge is not reported twice, so it is armed anew.
        let listeners = self.listeners.lock();
        let Some(listener) = listeners.get(index) else { return false };
        let _ = self.epoll.modify(listener.readiness(), token, Interest::READABLE | Interest::EDGE);
        true
    }

    /// Takes a connection in.
    #[cold]
    pub(crate) fn adopt(&self, core: &Arc<Core>, stream: Box<dyn Stream>) {
        let peer = stream.peer().clone();
        let waiting = core.config().limits.outstanding_requests.max(1);
        let bounds = Bounds {
            waiting,
            queued: self.queue.as_ref().map_or(usize::MAX, Queue::share),
            queued_octets: admission::share(self.config.queue_octets),
        };
        let mixed = self.role.is_some() || core.rt().is_used();
        let origin = Origin {
            number: core.next_connection(),
            opened: clock::now(),
            station: self.role.as_ref().map_or((DEFAULT_POOL, 0), |role| (role.pool, role.index)),
            ceiling: match &self.role {
                Some(role) => role.ceiling,
                None => self.config.ceiling.unwrap_or(Priority::MAX),
            },
            in_slices: mixed && !self.role.as_ref().is_some_and(|role| role.is_lane && role.is_top),
            marks: core.config().rt.network.is_some()
                && self.role.as_ref().is_some_and(|role| !role.is_lane)
                && self.marks(&*stream),
            mixed,
        };
        self.mark(core, &*stream);
        let make = |slot, generation| {
            let budget = Arc::clone(&self.budget);
            Arc::new(Connection::new(stream, self.own.clone(), (slot, generation), bounds, budget, origin))
        };
        let closing = self.closing.load(Ordering::Acquire);
        let arrival = || admission::connection(closing, self.budget.connections(), self.config.connections);
        let admitted =
            arrival() == Arrival::Serve || (!closing && self.make_place(core) && arrival() == Arrival::Serve);
        let place = admitted.then(|| self.connections.insert_with(make).ok()).flatten();
        let Some(connection) = place.and_then(|(slot, generation)| self.connections.get(slot, generation)) else {
            core.events().report(&Event::ConnectionRefused { peer, most: self.config.connections });
            return;
        };
        core.events().connection_opened();
        if self.closing.load(Ordering::SeqCst) {
            // It came in beside the closing, which may not have seen it.
            drop(connection);
            return place.into_iter().for_each(|place| self.ended(core, place));
        }
        match self.config.dispatch {
            Dispatch::ThreadPerConnection { most } if self.dedicate(core, &connection, most) => {}
            _ => self.share(core, &connection),
        }
    }
}
