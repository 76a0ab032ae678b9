//! A lane: listeners, connections and the threads that serve them. Nothing of it is shared with another lane.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use corelane_net::{Endpoint, Listener, Stream, Wait};
use corelane_sys::clock::Monotonic;
use corelane_sys::counters;
use corelane_sys::epoll::{Epoll, Event, Interest};
use corelane_sys::eventfd::Wake;
use corelane_sys::lock::{Mutex, Scope};
use corelane_sys::slots::SlotTable;

use super::config::PoolConfig;
use super::connection::Connection;
use super::worker::{Message, Read, Worker};
use crate::event::Event as OrbEvent;
use crate::orb::Core;

/// Token of the wake-up descriptor.
const WAKE: u64 = u64::MAX;
/// Set in the tokens of listeners; the rest is the listener's index.
const LISTENER: u64 = 1 << 63;
/// Connections accepted in one go before other work has a turn.
const ACCEPTS: usize = 64;

/// One lane of a pool.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) config: PoolConfig,
    own: Weak<Lane>,
    epoll: Epoll,
    wake: Wake,
    listeners: Vec<Box<dyn Listener>>,
    connections: SlotTable<Arc<Connection>>,
    ready: Mutex<VecDeque<Work>>,
    ready_count: AtomicUsize,
    pub(crate) stop: AtomicBool,
}

/// Something to do that no descriptor reports.
#[derive(Debug)]
pub(crate) enum Work {
    /// The connection of this token may have more to read.
    Read(u64),
    /// A message that was held back may run now.
    Serve(Arc<Connection>, Message),
}

impl Lane {
    pub(crate) fn new(config: PoolConfig, listeners: Vec<Box<dyn Listener>>) -> io::Result<Arc<Self>> {
        let epoll = Epoll::new()?;
        let wake = Wake::new()?;
        epoll.add(wake.as_fd(), WAKE, Interest::READABLE | Interest::EDGE)?;
        for (index, listener) in listeners.iter().enumerate() {
            epoll.add(listener.readiness(), LISTENER | index as u64, Interest::READABLE | Interest::EDGE)?;
        }
        let most = u32::try_from(config.connections).unwrap_or(u32::MAX >> 1);
        Ok(Arc::new_cyclic(|own| Lane {
            own: own.clone(),
            connections: SlotTable::new("connections", Scope::Lane, most),
            config,
            epoll,
            wake,
            listeners,
            ready: Mutex::new("ready list", Scope::Lane, VecDeque::new()),
            ready_count: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        }))
    }

    /// Where it listens, ports as the system chose them.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.listeners.iter().map(|listener| listener.local())
    }

    /// The loop of a thread that takes its turn at leading (decision 3).
    pub(crate) fn run(&self, core: &Arc<Core>) {
        let mut worker = Worker::new();
        while !self.stop.load(Ordering::Acquire) {
            if self.step(core, &mut worker, None).is_err() {
                break;
            }
        }
        // The next thread finds the flag too.
        self.wake.notify();
    }

    /// One piece of work; waits for it until `timeout` has passed.
    #[inline]
    pub(crate) fn step(&self, core: &Arc<Core>, worker: &mut Worker, timeout: Option<std::time::Duration>) -> io::Result<()> {
        if self.ready_count.load(Ordering::Acquire) > 0
            && let Some(work) = self.next_ready()
        {
            self.perform(core, worker, work);
            return Ok(());
        }
        let mut events = [Event::EMPTY; 1];
        if self.epoll.wait(&mut events, timeout)? == 0 {
            return Ok(());
        }
        let event = events[0];
        match event.token() {
            WAKE => {
                self.wake.drain();
            }
            token if token & LISTENER != 0 => self.accept(core, token),
            token => {
                if event.writable() {
                    self.flush(core, token);
                }
                if event.readable() || event.hung_up() || event.failed() {
                    self.read(core, worker, token);
                }
            }
        }
        Ok(())
    }

    fn perform(&self, core: &Arc<Core>, worker: &mut Worker, work: Work) {
        match work {
            Work::Read(token) => self.read(core, worker, token),
            Work::Serve(connection, message) => {
                if !worker.serve(core, &connection, message, Wait::Now) {
                    connection.close();
                }
            }
        }
    }

    #[cold]
    fn next_ready(&self) -> Option<Work> {
        let mut ready = self.ready.lock();
        let work = ready.pop_front();
        self.ready_count.store(ready.len(), Ordering::Release);
        if !ready.is_empty() {
            self.wake.notify();
        }
        work
    }

    /// Lists work and wakes one idle thread.
    #[cold]
    pub(crate) fn push(&self, work: Work) {
        let mut ready = self.ready.lock();
        ready.push_back(work);
        self.ready_count.store(ready.len(), Ordering::Release);
        drop(ready);
        counters::count_handoff();
        self.wake.notify();
    }

    /// Reads one message of a connection and serves it. Reading ends before the upcall, so another thread may read the next.
    #[inline]
    fn read(&self, core: &Arc<Core>, worker: &mut Worker, token: u64) {
        let Some(entry) = self.connections.get((token >> 32) as u32, token as u32) else { return };
        let connection = &*entry;
        let Some(mut turn) = connection.reading.enter() else { return };
        let (message, more) = loop {
            if connection.is_congested() {
                // The peer does not take its replies: reading goes on when it does. The flush that ends the congestion finds
                // the turn free, or leaves its note.
                match turn.leave() {
                    Ok(()) if connection.is_congested() => return,
                    Ok(()) => match connection.reading.enter() {
                        Some(again) => turn = again,
                        None => return,
                    },
                    Err(noted) => turn = noted,
                }
                continue;
            }
            match turn.with(|reading| worker.read(reading, connection, &core.config().limits, Wait::Now)) {
                Read::Message { message, more } => match turn.leave() {
                    Ok(()) => break (message, more),
                    Err(noted) => {
                        drop(noted);
                        break (message, true);
                    }
                },
                Read::Nothing => match turn.leave() {
                    Ok(()) => return,
                    Err(noted) => turn = noted,
                },
                Read::End => {
                    drop(turn);
                    return self.ended(core, connection, token);
                }
                Read::Fault(fault) => {
                    drop(turn);
                    super::request::refuse(core, connection, fault);
                    return self.ended(core, connection, token);
                }
            }
        };
        if more {
            self.push(Work::Read(token));
        }
        if !worker.serve(core, connection, message, Wait::Now) {
            self.ended(core, connection, token);
        }
    }

    #[cold]
    fn flush(&self, core: &Arc<Core>, token: u64) {
        let Some(connection) = self.connections.get((token >> 32) as u32, token as u32) else { return };
        if !connection.is_congested() {
            return;
        }
        match connection.flush() {
            Ok(true) => self.push(Work::Read(token)),
            Ok(false) => {}
            Err(_) => self.ended(core, &connection, token),
        }
    }

    /// The connection is over: nobody finds it any more; its memory goes when the last thread in it is out.
    #[cold]
    fn ended(&self, core: &Arc<Core>, connection: &Connection, token: u64) {
        connection.close();
        if let corelane_sys::slots::Retired::Stale = self.connections.retire((token >> 32) as u32, token as u32) {
            return;
        }
        core.events().connection_closed();
    }

    #[cold]
    fn accept(&self, core: &Arc<Core>, token: u64) {
        let Some(listener) = usize::try_from(token & !LISTENER).ok().and_then(|index| self.listeners.get(index)) else { return };
        for _ in 0..ACCEPTS {
            match listener.accept() {
                Ok(stream) => self.adopt(core, stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Out of descriptors, or the peer is gone again: reported, and the rest waits for its turn below.
                Err(error) => {
                    core.events().report(&OrbEvent::AcceptFailed { listener: listener.local().clone(), error: error.to_string() });
                    break;
                }
            }
        }
        // More may wait: an edge is not reported twice, so it is armed anew.
        let _ = self.epoll.modify(listener.readiness(), token, Interest::READABLE | Interest::EDGE);
    }

    /// Takes a connection in.
    #[cold]
    fn adopt(&self, core: &Arc<Core>, stream: Box<dyn Stream>) {
        let connection = Arc::new(Connection::new(stream, self.own.clone(), self.config.output_bound));
        let Ok((slot, generation)) = self.connections.insert(Arc::clone(&connection)) else {
            core.events().report(&OrbEvent::ConnectionRefused { peer: connection.stream.peer().clone(), most: self.config.connections });
            return;
        };
        let token = (u64::from(slot) << 32) | u64::from(generation);
        core.events().connection_opened();
        let interest = Interest::READABLE | Interest::WRITABLE | Interest::HANG_UP | Interest::EDGE;
        let watched = connection.stream.readiness().map(|fd| self.epoll.add(fd, token, interest));
        if !matches!(watched, Some(Ok(()))) {
            self.ended(core, &connection, token);
        }
    }

    /// Ends the threads; each of them tells the next.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake.notify();
    }

    /// Closes what is still open, in good order: CloseConnection, then the end (decision 12).
    pub(crate) fn close_all(&self, closing: &[u8]) {
        for connection in self.connections.iter() {
            connection.finish(closing);
        }
    }

    /// Closes connections whose message has been arriving for too long; returns when to look again.
    pub(crate) fn close_stalled(&self, core: &Arc<Core>, now: Monotonic) {
        for entry in self.connections.iter() {
            let since = entry.arriving_since.load(Ordering::Relaxed);
            if since != 0 && now.since(Monotonic::from_nanos(since)) > self.config.message_timeout {
                core.events().report(&OrbEvent::Stalled { peer: entry.stream.peer().clone() });
                let token = (u64::from(entry.index()) << 32) | u64::from(entry.generation());
                self.ended(core, &entry, token);
            }
        }
    }
}
