//! A lane: listeners, connections and the threads that serve them. Nothing of it is shared with another lane.
//!
//! Invariant: a thread that serves one connection never waits for another one's peer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_net::{Endpoint, Listener, Peer, Properties, Stream, Wait};
use corelane_sched::Priority;
use corelane_sys::counters;
use corelane_sys::epoll::{Epoll, Event, Interest};
use corelane_sys::eventfd::Wake;
use corelane_sys::lock::{PiMutex, Scope};
use corelane_sys::notice::Notice;
use corelane_sys::slots::{Guard, SlotTable};
use corelane_sys::thread::{Builder, JoinHandle};
use corelane_sys::turn::TurnGuard;

use super::admission;
use super::budget::Budget;
use super::config::{Dispatch, PoolConfig};
use super::connection::{Connection, Late, Reading, Waiting};
use super::dedicated;
use super::endings::Endings;
use super::keeper::Keeper;
use super::queue::Queue;
use super::ready::ReadyList;
pub(crate) use super::ready::Work;
use super::rush::Rush;
use super::silence::Silence;
use super::worker::{Message, Read, Worker};
use crate::clock;
use crate::event::Event as OrbEvent;
use crate::orb::Core;
use crate::poa::Resume;
use crate::rt::Protocol;
use crate::rt::pool::Role;
use crate::rt::station;

/// Token of the wake-up descriptor.
const WAKE: u64 = u64::MAX;
/// Set in the tokens of listeners; the rest is the listener's index.
pub(super) const LISTENER: u64 = 1 << 63;
/// Messages of one connection that a thread reads in one go before other work has a turn.
const BURST: usize = 256;
/// Connections accepted in one go before other work has a turn.
pub(super) const ACCEPTS: usize = 64;
/// Connections that may wait to be accepted when the lane closes: what the kernel keeps at most, by default.
const WAITING: usize = 4096;

/// What a connection's descriptor is watched for: edges only. Room to write is of interest only while replies wait: a Unix
/// socket reports it every time the peer reads.
fn interest(congested: bool) -> Interest {
    let always = Interest::READABLE | Interest::HANG_UP | Interest::EDGE;
    if congested { always | Interest::WRITABLE } else { always }
}

/// One lane of a pool.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) config: PoolConfig,
    /// What it is for, as a lane of a real-time pool.
    pub(crate) role: Option<Role>,
    pub(super) own: Weak<Lane>,
    pub(super) epoll: Epoll,
    wake: Wake,
    /// Gone when the lane closes.
    pub(super) listeners: PiMutex<Vec<Box<dyn Listener>>>,
    endpoints: Vec<Endpoint>,
    /// What connections are accepted with, as the first POA that says so has it.
    protocols: PiMutex<Vec<Protocol>>,
    pub(super) connections: SlotTable<Arc<Connection>>,
    pub(super) ready: ReadyList,
    /// A thread has been woken for the ready list and has not looked yet: waking another would only cost.
    waking: Notice,
    /// Half-sync/half-async only.
    pub(crate) queue: Option<Queue>,
    /// Leaders and followers at best effort only.
    pub(super) rush: Option<Rush>,
    pub(super) endings: Endings,
    pub(super) budget: Arc<Budget>,
    /// How long a peer has for its part of the end.
    pub(super) closing_time: Duration,
    /// Thread per connection only.
    dedicated: PiMutex<Vec<(JoinHandle<()>, Weak<Connection>)>>,
    /// Accepting stopped for want of descriptors; the next connection that ends starts it again.
    pub(super) starved: AtomicBool,
    /// Connections whose peers say nothing.
    pub(super) silence: Silence,
    /// Connections that are over but for threads that are still in them.
    pub(super) ending: AtomicUsize,
    pub(super) closing: AtomicBool,
    stop: AtomicBool,
    /// Of lanes whose pool has more to offer than waiting while all threads are busy.
    pub(crate) keeper: Option<Keeper>,
}

/// A connection that does not end meanwhile.
#[derive(Debug)]
#[must_use = "it may end when this is dropped"]
pub(crate) enum Held<'l> {
    /// It is served.
    Served(#[expect(dead_code, reason = "held for its end")] Guard<'l, Arc<Connection>>),
    /// Nobody finds it any more; what it is held for had waited.
    Late(#[expect(dead_code, reason = "held for its end")] Late),
}

/// Why a connection is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Something has come, or may have.
    Reported,
    /// There may be messages that have been read already.
    Rest,
}

impl Lane {
    /// `keeper`: of a lane whose role needs one. Who makes the lane makes it, so that a program without such lanes is without its code.
    pub(crate) fn new(
        config: PoolConfig,
        listeners: Vec<Box<dyn Listener>>,
        closing_time: Duration,
        role: Option<Role>,
        keeper: Option<Keeper>,
    ) -> io::Result<Arc<Self>> {
        let epoll = Epoll::new()?;
        let wake = Wake::new()?;
        epoll.add(wake.as_fd(), WAKE, Interest::READABLE | Interest::EDGE)?;
        for (index, listener) in (0..).zip(&listeners) {
            epoll.add(listener.readiness(), LISTENER | index, Interest::READABLE | Interest::EDGE)?;
        }
        // The lane's account bounds the connections; one that counts no more may have its slot for a moment still.
        let slots = u32::try_from(config.connections.saturating_mul(2)).unwrap_or(u32::MAX >> 1);
        let queue = match config.dispatch {
            Dispatch::HalfSyncHalfAsync { queue, .. } => Some(Queue::new(queue, config.queue_octets)?),
            _ => None,
        };
        let rush = match config.dispatch {
            Dispatch::LeaderFollowers { threads: 2.. } if role.is_none() => Some(Rush::new()),
            _ => None,
        };
        let budget = Budget::new(config.held_octets);
        Ok(Arc::new_cyclic(|own: &Weak<Lane>| {
            let lane = own.clone();
            // The last thread out of a connection that was retired ends it.
            let on_last = move |_, _, connection: Arc<Connection>| {
                if let Some(lane) = lane.upgrade() {
                    lane.end(connection);
                    lane.ending.fetch_sub(1, Ordering::AcqRel);
                    lane.accept_again();
                }
            };
            Lane {
                connections: SlotTable::with_callback("connections", Scope::Lane, slots, on_last),
                config,
                role,
                own: own.clone(),
                epoll,
                wake,
                endpoints: listeners.iter().map(|listener| listener.local().clone()).collect(),
                listeners: PiMutex::new("listeners", Scope::Lane, listeners),
                protocols: PiMutex::new("protocols of a lane", Scope::Lane, Vec::new()),
                ready: ReadyList::new(),
                waking: Notice::new(),
                queue,
                rush,
                endings: Endings::new(),
                budget,
                closing_time,
                dedicated: PiMutex::new("threads of connections", Scope::Lane, Vec::new()),
                starved: AtomicBool::new(false),
                silence: Silence::new(clock::now()),
                ending: AtomicUsize::new(0),
                closing: AtomicBool::new(false),
                stop: AtomicBool::new(false),
                keeper,
            }
        }))
    }

    /// Where it listens, ports as the system chose them.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.iter()
    }

    /// Notes that connections are to be accepted with these properties (ServerProtocolPolicy), and answers what of that is new. They are
    /// the sockets', so all POAs of a lane share them, as long as the lane lives.
    ///
    /// # Errors
    /// Another POA has said something else of a protocol; nothing is noted then.
    #[cold]
    pub(crate) fn claim_protocols(&self, wanted: &[Protocol]) -> io::Result<Vec<Protocol>> {
        let mut known = self.protocols.lock();
        let same_kind = |one: &Protocol, other: &Protocol| std::mem::discriminant(one) == std::mem::discriminant(other);
        let mut new: Vec<Protocol> = Vec::new();
        for protocol in wanted {
            match known.iter().chain(&new).find(|known| same_kind(known, protocol)) {
                Some(known) if known == protocol => {}
                Some(_) => return Err(io::ErrorKind::AlreadyExists.into()),
                None => new.push(*protocol),
            }
        }
        known.extend(&new);
        Ok(new)
    }

    /// Forgets what was claimed; connections are accepted as the transport has them again.
    #[cold]
    pub(crate) fn unclaim_protocols(&self, claimed: &[Protocol]) {
        self.protocols.lock().retain(|known| !claimed.contains(known));
        for protocol in claimed {
            for listener in self.listeners.lock().iter().filter(|listener| protocol.serves(listener.local())) {
                // Nothing is asked of the system by properties that say nothing.
                let _ = listener.set_properties(&Properties::default());
            }
        }
    }

    /// Accepts connections with these properties from now on.
    ///
    /// # Errors
    /// The system refuses a property.
    #[cold]
    pub(crate) fn apply_protocols(&self, claimed: &[Protocol]) -> io::Result<()> {
        for protocol in claimed {
            for listener in self.listeners.lock().iter().filter(|listener| protocol.serves(listener.local())) {
                listener.set_properties(&protocol.sockets().properties)?;
            }
        }
        Ok(())
    }

    /// Becomes readable when there is work.
    pub(crate) fn readiness(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.ready.has_any()
    }

    /// The loop of a thread that takes its turn at leading.
    pub(crate) fn run(self: &Arc<Self>, core: &Arc<Core>) {
        let mut worker = Worker::new();
        super::serving::enter(self, core);
        while !self.stop.load(Ordering::Acquire) {
            let stepped = self.step(core, &mut worker, None);
            if let Err(error) = stepped.and_then(|()| self.mind_rush(core, &mut worker)) {
                core.events().report(&OrbEvent::ThreadFailed { message: format!("{}: {error}", self.config.name) });
                break;
            }
        }
        super::serving::leave();
        // The next thread finds the flag too.
        self.wake.notify();
    }

    /// The loop of a thread that runs what another one has read.
    pub(crate) fn run_queued(self: &Arc<Self>, core: &Arc<Core>) {
        let Some(queue) = &self.queue else { return };
        let mut worker = Worker::new();
        super::serving::enter(self, core);
        while let Some((waiting, message)) = queue.pop() {
            self.serve(core, &mut worker, waiting, message);
        }
        super::serving::leave();
    }

    /// Runs one of the messages that wait in `queue`, for a thread that waits for a reply meanwhile. False if none waits.
    #[cold]
    pub(crate) fn step_queued(&self, core: &Arc<Core>, worker: &mut Worker, queue: &Queue) -> bool {
        let Some((waiting, message)) = queue.try_pop() else { return false };
        self.serve(core, worker, waiting, message);
        true
    }

    /// One piece of work; waits for it until `timeout` has passed.
    #[inline]
    pub(crate) fn step(&self, core: &Arc<Core>, worker: &mut Worker, timeout: Option<Duration>) -> io::Result<()> {
        let mut timeout = timeout;
        if self.has_ready() {
            // Listed and reported work take turns: connections that always have more to read do not hold up all others.
            if !worker.was_listed
                && let Some(work) = self.next_ready()
            {
                worker.was_listed = true;
                self.perform(core, worker, work);
                return Ok(());
            }
            timeout = Some(Duration::ZERO);
        }
        worker.was_listed = false;
        if let Some(event) = self.next_event(timeout)? {
            self.handle(core, worker, event);
        }
        Ok(())
    }

    /// What is reported next; waits for it until `timeout` has passed.
    #[inline]
    pub(super) fn next_event(&self, timeout: Option<Duration>) -> io::Result<Option<Event>> {
        let mut events = [Event::EMPTY; 1];
        Ok((self.epoll.wait(&mut events, timeout)? > 0).then(|| events[0]))
    }

    #[inline]
    pub(super) fn handle(&self, core: &Arc<Core>, worker: &mut Worker, event: Event) {
        match event.token() {
            // The descriptor is edge-triggered: what it counts is never read.
            WAKE => self.waking.take(),
            token if token & LISTENER != 0 => {
                self.accept(core, token);
            }
            token => {
                let place = place(token);
                let over = event.hung_up() || event.failed();
                if over && let Some(connection) = self.connections.get(place.0, place.1) {
                    connection.hung_up.store(true, Ordering::Release);
                }
                if event.writable() || over {
                    self.flush(core, place);
                }
                if event.readable() || over {
                    self.read(core, worker, place, Why::Reported);
                }
            }
        }
    }

    #[cold]
    pub(super) fn perform(&self, core: &Arc<Core>, worker: &mut Worker, work: Work) {
        match work {
            Work::Read(place) => self.read(core, worker, place, Why::Reported),
            Work::Rest(place) => self.read(core, worker, place, Why::Rest),
            Work::Look(connection) => {
                connection.reported.store(false, Ordering::SeqCst);
                self.flush(core, connection.place);
                self.read(core, worker, connection.place, Why::Reported);
            }
            Work::MakeRoom => self.make_room(core),
            Work::Serve(waiting, message) | Work::Buffered { waiting, message, .. } => {
                // It may have come in at another lane, which keeps it.
                if let Some(lane) = waiting.lane.upgrade() {
                    lane.serve(core, worker, waiting, message);
                }
            }
            Work::Resume(held) => (held.resume)(Resume::Here),
        }
    }

    /// Keeps a connection from ending while its request runs. `None` if it has ended.
    #[inline]
    pub(crate) fn hold(&self, connection: &Connection) -> Option<Guard<'_, Arc<Connection>>> {
        self.connections.get(connection.place.0, connection.place.1)
    }

    /// Serves a message that had to wait.
    pub(crate) fn serve(&self, core: &Arc<Core>, worker: &mut Worker, waiting: Waiting, message: Message) {
        let Some((held, connection, message)) = self.begin(waiting, message) else { return };
        let goes_on = worker.serve(core, &connection, message, Wait::Now);
        drop(held);
        if !goes_on {
            self.ended(core, connection.place);
        }
    }

    /// The turn of a message that had to wait, and its connection, which does not end while it is held. `None` if replies wait for the
    /// peer, so that the message does too, or if it does not run any more.
    pub(crate) fn begin(&self, waiting: Waiting, message: Message) -> Option<(Held<'_>, Arc<Connection>, Message)> {
        // Held while it still waits: the connection does not end in between.
        let served = self.hold(&waiting);
        let (waiting, message) = waiting.postpone(message)?;
        let lives = served.is_some();
        let held = served.map_or_else(|| Held::Late(waiting.late()), Held::Served);
        let connection = waiting.leave();
        // Sequentially consistent: who closes the lane finds what begins late, or is found here.
        let told = self.closing.load(Ordering::SeqCst) || connection.is_dismissed();
        admission::runs_late(lives, told).then_some((held, connection, message))
    }

    /// The next piece of listed work, if there is any.
    #[inline]
    pub(super) fn next_listed(&self) -> Option<Work> {
        if self.has_ready() { self.next_ready() } else { None }
    }

    #[cold]
    fn next_ready(&self) -> Option<Work> {
        let (work, more) = self.ready.next();
        if more && !self.is_one_thread() {
            self.wake_one();
        }
        work
    }

    /// Whether there is nobody to wake: its thread looks for listed work before it waits.
    fn is_one_thread(&self) -> bool {
        matches!(self.config.dispatch, Dispatch::Reactive | Dispatch::LeaderFollowers { threads: ..=1 })
            && self.keeper.is_none()
    }

    /// Lists the rest of what was read at `place`, for a thread that is idle if there may be one.
    #[cold]
    fn offer(&self, place: (u32, u32)) {
        if self.is_one_thread() {
            self.ready.push(Work::Rest(place));
        } else {
            self.push(Work::Rest(place));
        }
    }

    /// Lists work and wakes one idle thread.
    #[cold]
    pub(crate) fn push(&self, work: Work) {
        self.ready.push(work);
        self.wake_one();
    }

    /// Lists work that came in elsewhere; false if too much waits, or nobody will run it any more.
    #[cold]
    pub(crate) fn hand_over(&self, work: Work) -> bool {
        let listed = self.ready.hand_over(work, self.config.queue_octets);
        if listed {
            self.wake_one();
        }
        listed
    }

    /// CORBA priority of a lane of a real-time pool, the lowest for others.
    pub(crate) fn priority(&self) -> Priority {
        self.role.as_ref().map_or(Priority::MIN, |role| role.priority)
    }

    /// Wakes an idle thread for the ready list, unless one is on its way.
    pub(super) fn wake_one(&self) {
        if self.waking.give() {
            counters::count_handoff();
            self.wake.notify();
        }
    }

    /// Reads one message of a connection and serves it. Reading ends before the upcall, so another thread may read the next.
    #[inline]
    fn read(&self, core: &Arc<Core>, worker: &mut Worker, place: (u32, u32), why: Why) {
        let mut why = why;
        for _ in 0..BURST {
            if !self.read_one(core, worker, place, why) {
                return;
            }
            why = Why::Rest;
        }
        self.push(Work::Rest(place));
    }

    /// One message. True if the calling thread is to read the next one, because reading is all it does.
    #[inline]
    fn read_one(&self, core: &Arc<Core>, worker: &mut Worker, place: (u32, u32), why: Why) -> bool {
        let Some(connection) = self.connections.get(place.0, place.1) else {
            self.go_on_ending(core, place);
            return false;
        };
        if why == Why::Reported && connection.is_congested() {
            // Some transports tell of room as they tell of octets.
            self.flush(core, place);
        }
        let Some(mut turn) = connection.reading.enter() else { return false };
        if why == Why::Reported {
            turn = told(turn);
        }
        let mut elsewhere = None;
        let more = loop {
            if connection.is_paused() {
                // The peer does not take its replies, or too many of its requests wait: what ends that lists the connection for
                // reading again.
                match turn.leave() {
                    Ok(()) if connection.is_paused() => return false,
                    Ok(()) => match connection.reading.enter() {
                        Some(again) => turn = again,
                        None => return false,
                    },
                    Err(noted) => turn = told(noted),
                }
                continue;
            }
            match turn.with(|reading| worker.read_now(reading, &connection, core)) {
                read @ (Read::Here { more } | Read::Message { more, .. }) => {
                    if let Read::Message { message, .. } = read {
                        elsewhere = Some(message);
                    }
                    match turn.leave() {
                        Ok(()) => break more,
                        Err(noted) => {
                            drop(told(noted));
                            break true;
                        }
                    }
                }
                Read::Nothing | Read::Over => match turn.leave() {
                    Ok(()) => return false,
                    Err(noted) => turn = told(noted),
                },
                Read::End => {
                    drop(turn);
                    self.peer_ended(core, &connection);
                    return false;
                }
                Read::Fault(fault) => {
                    drop(turn);
                    self.refuse(core, &connection, fault);
                    return false;
                }
            }
        };
        connection.note_heard(self.silence.now());
        if worker.is_keeper {
            if more {
                // The keeper's, if every thread is still busy then.
                self.push(Work::Rest(place));
            }
            let message = elsewhere.unwrap_or_else(|| worker.detach());
            if let Some(keeper) = &self.keeper {
                (keeper.admit)(self, core, worker, &connection, message);
            }
            return false;
        }
        if let Some(queue) = &self.queue {
            let message = elsewhere.unwrap_or_else(|| worker.detach());
            self.enqueue(core, worker, queue, &connection, message);
            return more;
        }
        if worker.part.is_runner() {
            self.count_in_rush(&worker.part, token(place));
        }
        let keeps = more && self.keeps_rest(&mut worker.part, token(place));
        if more && !keeps {
            self.offer(place);
        }
        let goes_on = match elsewhere {
            None => worker.serve_here(core, &connection, Wait::Now),
            Some(message) => worker.serve(core, &connection, message, Wait::Now),
        };
        if !goes_on {
            self.ended(core, place);
            return false;
        }
        keeps
    }

    /// Half-sync/half-async: the message goes to the queue, or back to the client as TRANSIENT. Never part of what lanes without a queue run.
    #[inline(never)]
    fn enqueue(
        &self,
        core: &Arc<Core>,
        worker: &mut Worker,
        queue: &Queue,
        connection: &Arc<Connection>,
        message: Message,
    ) {
        if let Err(message) = queue.push(connection, message) {
            worker.turn_away(core, connection, &message);
        }
    }

    #[cold]
    fn flush(&self, core: &Arc<Core>, place: (u32, u32)) {
        let Some(connection) = self.connections.get(place.0, place.1) else { return self.go_on_ending(core, place) };
        if !connection.is_congested() {
            return;
        }
        match connection.flush() {
            Ok(true) => {
                for (waiting, message) in connection.take_postponed() {
                    self.resume(waiting, message);
                }
                self.push(Work::Read(place));
            }
            Ok(false) => {}
            Err(_) => self.ended(core, place),
        }
    }

    /// A request that was postponed has its turn.
    #[cold]
    pub(super) fn resume(&self, waiting: Waiting, message: Message) {
        match &self.queue {
            Some(queue) => queue.push_again(waiting, message),
            None => self.push(Work::Serve(waiting, message)),
        }
    }

    /// Gives the packets of a connection the code point of the lane's priority.
    pub(super) fn mark(&self, core: &Core, stream: &dyn Stream) {
        if let Some(role) = &self.role
            && self.marks(stream)
        {
            core.mark(stream, role.priority);
        }
    }

    /// Whether packets of a connection carry the code point of a priority, as far as the policies say.
    #[cold]
    pub(crate) fn marks(&self, stream: &dyn Stream) -> bool {
        let is_tcp = matches!(stream.peer(), Peer::Ip(_));
        let off = |protocol: &Protocol| matches!(protocol, Protocol::Tcp(tcp) if !tcp.enable_network_priority);
        is_tcp && !self.protocols.lock().iter().any(off)
    }

    /// Gives a connection to the shared threads.
    pub(crate) fn share(&self, core: &Arc<Core>, connection: &Arc<Connection>) {
        if connection.stream.readiness().is_none() {
            return self.share_without_descriptor(core, connection);
        }
        let interest = interest(connection.is_congested());
        let watched = connection.stream.readiness().map(|fd| {
            self.epoll.add(fd, token(connection.place), interest).or_else(|_| {
                // Watched already, for the room of a reply that another thread made.
                self.epoll.modify(fd, token(connection.place), interest)
            })
        });
        if matches!(watched, Some(Ok(()))) {
            // What has been read already is reported by no edge.
            self.push(Work::Read(connection.place));
        } else {
            self.ended(core, connection.place);
        }
    }

    /// The same for a stream that reports by itself.
    #[cold]
    fn share_without_descriptor(&self, core: &Arc<Core>, connection: &Arc<Connection>) {
        let (lane, reported) = (self.own.clone(), Arc::downgrade(connection));
        let report = move || {
            if let (Some(lane), Some(connection)) = (lane.upgrade(), reported.upgrade())
                && !connection.reported.swap(true, Ordering::SeqCst)
            {
                lane.push(Work::Look(connection));
            }
        };
        if !connection.stream.report_to(Arc::new(report)) {
            self.ended(core, connection.place);
        }
    }

    /// Asks to be told of room to write, or not any more. What is there already is reported anew.
    #[cold]
    pub(crate) fn watch_room(&self, connection: &Connection, congested: bool) {
        if let Some(fd) = connection.stream.readiness() {
            let (token, interest) = (token(connection.place), interest(congested));
            // A connection with a thread of its own has not been watched so far; a reply that another thread made for it was
            // not taken at once. If it cannot be watched, the connection is at its end.
            if self.epoll.modify(fd, token, interest).is_err() {
                let _ = self.epoll.add(fd, token, interest);
            }
        }
    }

    /// Gives a connection a thread of its own; false if as many as may have one.
    pub(super) fn dedicate(&self, core: &Arc<Core>, connection: &Arc<Connection>, most: usize) -> bool {
        let mut threads = self.dedicated.lock();
        threads.retain(|(thread, _)| !thread.is_finished());
        let Some(lane) = self.own.upgrade() else { return false };
        if threads.len() >= most {
            return false;
        }
        // A peer that does not read may not hold its thread for ever.
        if connection.stream.set_coarse_timeouts(Duration::ZERO, self.config.output_timeout).is_err() {
            return false;
        }
        let weak = Arc::downgrade(connection);
        let builder = Builder::new()
            .name(format!("{}/c{}", self.config.name, connection.place.0))
            .stack_size(self.config.stack)
            .prefault(core.config().locks_memory);
        let (core, connection) = (Arc::clone(core), Arc::clone(connection));
        let run = move || {
            station::occupy(core.adapters().stamp, &lane, None);
            dedicated::run(&lane, &core, &connection);
            // Its descriptor is free only now.
            drop(connection);
            lane.accept_again();
        };
        match builder.spawn(run) {
            Ok(thread) => threads.push((thread, weak)),
            Err(_) => return false,
        }
        true
    }

    /// Lets nothing new in and closes every connection in good order: those that run requests when these are done.
    pub(crate) fn close(&self, core: &Arc<Core>) {
        // Those that the kernel has taken in and nobody has accepted are told too: it would reset them with their listener.
        for index in 0..self.endpoints.len() as u64 {
            let _ = (0..WAITING / ACCEPTS).take_while(|_| self.accept(core, LISTENER | index)).count();
        }
        self.closing.store(true, Ordering::SeqCst);
        self.listeners.lock().clear();
        for connection in self.connections.iter() {
            let place = connection.place;
            drop(connection);
            self.ended(core, place);
        }
    }

    /// Ends the threads; each of them tells the next. Behind it [`cut_endings`](Self::cut_endings) leaves no connection that
    /// nobody is in.
    pub(crate) fn stop(&self) -> Vec<JoinHandle<()>> {
        self.stop.store(true, Ordering::Release);
        let dropped = self.ready.stop();
        drop(dropped);
        let dynamic = self.keeper.as_ref().map(Keeper::stop).unwrap_or_default();
        if let Some(rush) = &self.rush {
            rush.end();
        }
        self.wake.notify();
        if let Some(queue) = &self.queue {
            queue.stop();
        }
        let dedicated = std::mem::take(&mut *self.dedicated.lock());
        let connections = dedicated.into_iter().map(|(thread, connection)| {
            // Its thread may wait in a read or a write: this ends it.
            if let Some(connection) = connection.upgrade() {
                connection.close();
            }
            thread
        });
        connections.chain(dynamic).collect()
    }

    pub(super) fn stops(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Wakes a thread, to look whether the lane stops.
    pub(super) fn wake(&self) {
        self.wake.notify();
    }

    /// Whether the lane closes: a thread with a connection of its own ends when its request is done.
    pub(crate) fn closes(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// What is to be done now and then: connections whose message stopped arriving are closed, and those that are closing are
    /// read to their end.
    pub(crate) fn tidy(&self, core: &Arc<Core>) {
        let now = clock::now();
        self.tidy_endings(core, now);
        self.silence.look(now);
        self.accept_again();
        for connection in self.connections.iter() {
            if self.is_silent_too_long(&connection, now) {
                let found = Arc::clone(&connection);
                drop(connection);
                self.dismiss(core, &found, false);
                continue;
            }
            let peer = || connection.stream.peer().clone();
            let event = if connection.stalled_for(now) > self.config.message_timeout {
                OrbEvent::Stalled { peer: peer() }
            } else if connection.unread_for(now) > self.config.output_timeout {
                OrbEvent::RepliesUnread { peer: peer() }
            } else {
                continue;
            };
            let found = Arc::clone(&connection);
            drop(connection);
            core.events().report(&event);
            found.close();
            self.give_up(core, &found);
        }
    }

    /// Ends a connection that has been closed.
    #[cold]
    fn give_up(&self, core: &Arc<Core>, connection: &Connection) {
        self.ended(core, connection.place);
        self.go_on_ending(core, connection.place);
    }

    /// The connections hold more than they may together: closes those that hold most.
    #[cold]
    fn make_room(&self, core: &Arc<Core>) {
        self.budget.answer();
        while self.budget.is_exceeded() {
            let served = self.connections.iter().map(|connection| Arc::clone(&connection));
            let largest = served.chain(self.endings.each()).max_by_key(|connection| connection.account().held());
            let Some(connection) = largest.filter(|connection| connection.account().held() > 0) else { return };
            // At once, though it ends when its requests have run and is told of before: nobody else is to be closed for it, nor it twice.
            let Some(octets) = connection.account().forfeit() else { continue };
            core.events().report(&OrbEvent::HeldTooMuch { peer: connection.stream.peer().clone(), octets });
            connection.close();
            self.give_up(core, &connection);
        }
    }
}

/// The turn of a thread to which another one left a note: something has come.
fn told(mut turn: TurnGuard<'_, Reading>) -> TurnGuard<'_, Reading> {
    turn.with(|reading| reading.drained = false);
    turn
}

/// What the descriptor of the connection at a place is reported as.
fn token(place: (u32, u32)) -> u64 {
    (u64::from(place.0) << 32) | u64::from(place.1)
}

/// Slot and generation of a connection's token.
#[inline]
pub(super) fn place(token: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = token.to_be_bytes();
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}
