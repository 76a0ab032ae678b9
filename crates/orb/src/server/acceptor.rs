//! The accepting of connections. If the lane is full or the process has no free descriptor, the
//! lane tries to evict a connection.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use corelane_net::{Listener, Stream};
use corelane_sys::clock::Monotonic;
use corelane_sys::epoll::Interest;
use corelane_sys::{poll, process};

use super::admission::{self, ConnectionAdmission};
use super::architecture::Architecture;
use super::connection::{Connection, ConnectionOrigin, RequestBounds};
use super::handler::RequestHandler;
use super::lane::{LISTENER, Lane, MAX_ACCEPTS};
use crate::ceiling::Ceiling;
use crate::clock;
use crate::event::Event;
use crate::thread_context::DEFAULT_POOL;

/// The lane that accepts connections for this lane, and the lanes for which this lane accepts
/// connections. A listener's epoll token consists of [`LISTENER`], the number of its lane shifted
/// by [`INDEX_BITS`], and its index in its lane's `listeners`. The number is 0 for a listener of
/// the accepting lane, and else 1 plus the index in `from`.
#[derive(Debug)]
pub(super) struct Delegation<S> {
    /// The accepting lane, and the number of this lane in the accepting lane's `from`.
    to: OnceLock<(Weak<Lane<S>>, u64)>,
    from: OnceLock<Vec<Weak<Lane<S>>>>,
}

impl<S> Delegation<S> {
    pub(super) fn new() -> Self {
        Delegation { to: OnceLock::new(), from: OnceLock::new() }
    }
}

const INDEX_BITS: u32 = 32;

fn index_of(token: u64) -> usize {
    (token & ((1 << INDEX_BITS) - 1)) as usize
}

/// Makes the lane `lowest` accept connections for every lane without a ceiling, at the listeners
/// that other machines can reach. A flood of connections then takes no time from threads with
/// higher priorities.
///
/// Fails if the kernel refuses to move a listener to the epoll instance of `lowest`.
#[cold]
pub(crate) fn delegate<S: Architecture<S>>(lanes: &[Arc<Lane<S>>], lowest: &Arc<Lane<S>>) -> io::Result<()> {
    let mut from = Vec::new();
    for lane in lanes.iter().filter(|lane| !Arc::ptr_eq(lane, lowest) && lane.ceiling().is_none()) {
        let listeners = lane.listeners.lock();
        let mut reachable =
            (0..).zip(&*listeners).filter(|(_, listener)| !listener.local_endpoint().is_local()).peekable();
        if reachable.peek().is_none() {
            continue;
        }
        from.push(Arc::downgrade(lane));
        let number = from.len() as u64;
        for (index, listener) in reachable {
            lane.epoll.remove(listener.readiness_descriptor())?;
            let token = LISTENER | number << INDEX_BITS | index;
            lowest.epoll.add(listener.readiness_descriptor(), token, Interest::READABLE | Interest::EDGE)?;
        }
        let _ = lane.delegation.to.set((Arc::downgrade(lowest), number));
    }
    let _ = lowest.delegation.from.set(from);
    Ok(())
}

impl<S: Architecture<S>> Lane<S> {
    #[cold]
    pub(super) fn accept_again(&self) {
        if self.accept_starved.swap(false, Ordering::AcqRel) {
            for (index, listener) in (0..).zip(&*self.listeners.lock()) {
                self.watch_listener(index, &**listener);
            }
        }
    }

    fn watch_listener(&self, index: u64, listener: &dyn Listener) {
        let interest = Interest::READABLE | Interest::EDGE;
        let delegate = self.delegation.to.get().filter(|_| !listener.local_endpoint().is_local());
        let _ = match delegate {
            None => self.epoll.modify(listener.readiness_descriptor(), LISTENER | index, interest),
            Some((lane, number)) => match lane.upgrade() {
                Some(lane) => lane.epoll.modify(
                    listener.readiness_descriptor(),
                    LISTENER | number << INDEX_BITS | index,
                    interest,
                ),
                None => Ok(()),
            },
        };
    }

    #[cold]
    pub(super) fn accept_reported<H: RequestHandler>(&self, handler: &Arc<H>, token: u64) {
        let number = usize::try_from((token & !LISTENER) >> INDEX_BITS).unwrap_or(usize::MAX);
        let Some(handle) = number.checked_sub(1) else {
            self.accept(handler, index_of(token));
            return;
        };
        if let Some(lane) = self.delegation.from.get().and_then(|lanes| lanes.get(handle)).and_then(Weak::upgrade) {
            lane.accept(handler, index_of(token));
        }
    }

    /// Accepts connections at the listener `index`, in at most [`MAX_ACCEPTS`] attempts. Returns
    /// true if it stopped at this maximum, so that more connections may wait.
    #[cold]
    pub(super) fn accept<H: RequestHandler>(&self, handler: &Arc<H>, index: usize) -> bool {
        let mut may_make_room = true;
        for _ in 0..MAX_ACCEPTS {
            // The lock is released before `adopt`, which may call the program's event callback. If
            // the callback shuts the ORB down, the shutdown locks the listeners.
            let listeners = self.listeners.lock();
            let Some(listener) = listeners.get(index) else { return false };
            let accepted = listener.accept();
            let local = accepted.is_err().then(|| listener.local_endpoint().clone());
            let exhausted = accepted.as_ref().is_err_and(process::is_out_of_descriptors);
            // If the process has no free descriptor, `accept` fails even if no peer waits. Such a
            // failure is not reported.
            let at_once = Some(Monotonic::from_nanos(0));
            let no_peer_waits =
                exhausted && !poll::wait_readable(listener.readiness_descriptor(), at_once).unwrap_or(true);
            drop(listeners);
            match (accepted, local) {
                (Ok(stream), _) => {
                    may_make_room = true;
                    self.adopt(handler, stream);
                }
                (Err(error), _) if no_peer_waits || error.kind() == io::ErrorKind::WouldBlock => return false,
                (Err(_), _) if exhausted && may_make_room && self.evict_for_descriptor(handler) => {
                    may_make_room = false
                }
                // ConnectionAborted means that the peer has closed its connection before it was
                // accepted, so nothing is reported.
                (Err(error), Some(listener)) if error.kind() != io::ErrorKind::ConnectionAborted => {
                    self.accept_starved.store(true, Ordering::Release);
                    handler.context().events().report(&Event::AcceptFailed { listener, error: error.to_string() });
                    return false;
                }
                (Err(_), _) => {}
            }
        }
        // Arming the listener makes epoll report the waiting peers again.
        let listeners = self.listeners.lock();
        let Some(listener) = listeners.get(index) else { return false };
        self.watch_listener(index as u64, &**listener);
        true
    }

    #[cold]
    pub(crate) fn adopt<H: RequestHandler>(&self, handler: &Arc<H>, stream: Box<dyn Stream>) {
        let ceiling = Ceiling::for_connection(self.ceiling(), || stream.is_peer_local());
        if ceiling == Ceiling::Unset
            && let Some(lowest) = self.lowest()
            && !std::ptr::eq(self, &*lowest)
        {
            // Requests of a peer on another machine must not occupy this lane's threads, so the
            // lowest lane serves the connection.
            return lowest.adopt(handler, stream);
        }
        let peer = stream.peer().clone();
        let waiting = handler.context().config().limits.max_outstanding_requests.max(1);
        let request_bounds = RequestBounds {
            max_waiting: waiting,
            max_queued: self.strategy.max_queued_of_connection(),
            max_queued_bytes: admission::fair_share(self.config.connection_limits.max_queued_bytes),
        };
        let mixed = self.role.is_some() || handler.has_priorities();
        let origin = ConnectionOrigin {
            id: handler.context().allocate_connection_id(),
            accepted_at: clock::now(),
            lane_numbers: self.role.as_ref().map_or((DEFAULT_POOL, 0), |role| (role.pool, role.index)),
            ceiling,
            sends_in_slices: mixed && !self.role.as_ref().is_some_and(|role| role.is_lane && role.is_highest),
            sets_dscp: handler.context().config().rt.network_mapping.is_some()
                && self.role.as_ref().is_some_and(|role| !role.is_lane)
                && self.allows_dscp(&*stream),
            has_mixed_priorities: mixed,
        };
        self.set_dscp(handler.context(), &*stream);
        if let Some(policy) = self.config.spin_policy {
            stream.set_spin_policy(policy);
        }
        let make = |slot, generation| {
            let memory_budget = Arc::clone(&self.memory_budget);
            Arc::new(Connection::new(
                stream,
                self.weak_self.clone(),
                (slot, generation),
                request_bounds,
                memory_budget,
                origin,
            ))
        };
        let closing = self.closing.load(Ordering::Acquire);
        let arrival = || {
            admission::admit_connection(
                closing,
                self.memory_budget.connections(),
                self.config.connection_limits.max_connections,
            )
        };
        let admitted = arrival() == ConnectionAdmission::Accept
            || (!closing
                && self.evict_for_new_connection(handler.context())
                && arrival() == ConnectionAdmission::Accept);
        let handle = admitted.then(|| self.connections.insert_with(make).ok()).flatten();
        let Some(connection) = handle.and_then(|(slot, generation)| self.connections.get(slot, generation)) else {
            handler.context().events().report(&Event::ConnectionRefused {
                peer,
                max_connections: self.config.connection_limits.max_connections,
            });
            return;
        };
        handler.context().events().connection_opened();
        if self.closing.load(Ordering::SeqCst) {
            // The thread that closes the lane may have listed the connections before this
            // connection was inserted, so this thread retires it.
            drop(connection);
            return handle.into_iter().for_each(|handle| self.retire_connection(handler.context(), handle));
        }
        self.strategy.serve_connection(self, handler, &connection);
    }
}
