//! What happens while every thread of a lane is busy. The lane's keeper reads then, and only then; it never runs a
//! servant. For each request it finds a thread (a new one, else one borrowed from a lower lane), or a place in the buffer, or
//! refuses it.
//!
//! A borrowed thread is raised to the lane's priority before it is woken, so that nothing between the two priorities holds it up,
//! runs one request, and takes its own priority back. Lanes without dynamic threads, borrowing and buffering have no keeper:
//! their requests stay in the transport.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use corelane_sched::admission::{Situation, Verdict};
use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::Wake;
use corelane_sys::lock::{Mutex, PiMutex, Scope};
use corelane_sys::poll;
use corelane_sys::roster::{Rise, Roster, Seat};
use corelane_sys::thread::{self, JoinHandle, Tid};

use super::Run;
use super::connection::Connection;
use super::lane::{Lane, Work};
use super::request;
use super::worker::{Message, Worker};
use crate::clock;
use crate::event::Event;
use crate::orb::Core;
use crate::rt::pool::Role;
use crate::rt::station;

/// How long the keeper leaves the core to a lower thread that is about to sit down.
const YIELD: Duration = Duration::from_millis(1);

/// What a lane with a keeper has beside the others.
#[derive(Debug)]
pub(crate) struct Keeper {
    roster: Roster,
    /// Tells the keeper that the last thread has risen, that one has sat down, or that the lane stops.
    bell: Wake,
    /// Those that other lanes may claim.
    places: PiMutex<Vec<Arc<Place>>>,
    /// Static threads that have been idle once: before all have, the lane is not busy but young.
    present: AtomicU32,
    /// Dynamic threads that run.
    dynamic: AtomicU32,
    /// Numbers of dynamic threads.
    started: AtomicU32,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Lanes whose threads may be borrowed, the highest first, and lanes that may borrow from this one.
    lower: OnceLock<Vec<Weak<Lane>>>,
    upper: OnceLock<Vec<Weak<Lane>>>,
    /// What its own thread and the lane's static threads run, and what takes in a request that was read. They are reached only through here:
    /// a program that makes no thread pool (RTCORBA) is without their code.
    pub(super) keep: Run,
    pub(super) run: Run,
    pub(super) admit: fn(&Lane, &Arc<Core>, &mut Worker, &Arc<Connection>, Message),
}

/// A thread that waits where others can claim it.
#[derive(Debug)]
struct Place {
    seat: Seat,
    tid: Tid,
    bell: Wake,
    /// Who has claimed it, and for what.
    loan: PiMutex<Option<(Arc<Lane>, Option<Work>)>>,
}

impl Keeper {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Keeper {
            roster: Roster::new(),
            bell: Wake::new()?,
            places: PiMutex::new("threads of a lane", Scope::Lane, Vec::new()),
            present: AtomicU32::new(0),
            dynamic: AtomicU32::new(0),
            started: AtomicU32::new(0),
            threads: Mutex::new("dynamic threads", Scope::Lane, Vec::new()),
            lower: OnceLock::new(),
            upper: OnceLock::new(),
            keep: |lane, core| lane.keep(core),
            run: |lane, core| lane.run_kept(core, false),
            admit: Lane::admit,
        })
    }

    /// Says which lanes lend to this one and borrow from it. Once, before threads run.
    pub(crate) fn set_neighbours(&self, lower: Vec<Weak<Lane>>, upper: Vec<Weak<Lane>>) {
        let _ = (self.lower.set(lower), self.upper.set(upper));
    }

    /// Threads to join, and the keeper's waking for the end.
    pub(crate) fn stop(&self) -> Vec<JoinHandle<()>> {
        self.bell.notify();
        for place in &*self.places.lock() {
            place.bell.notify();
        }
        std::mem::take(&mut *self.threads.lock())
    }

    fn lends(&self) -> bool {
        self.upper.get().is_some_and(|upper| !upper.is_empty())
    }

    fn can_borrow(&self) -> bool {
        let idle = |lane: &Weak<Lane>| {
            lane.upgrade().is_some_and(|lane| lane.keeper.as_ref().is_some_and(|keeper| keeper.roster.has_idle()))
        };
        self.lower.get().is_some_and(|lower| lower.iter().any(idle))
    }

    /// A thread has sat down: keepers that wait for one look again.
    fn tell(&self, own: bool) {
        if own {
            self.bell.notify();
        }
        for upper in self.upper.get().into_iter().flatten().filter_map(Weak::upgrade) {
            if let Some(keeper) = &upper.keeper
                && !keeper.roster.has_idle()
            {
                keeper.bell.notify();
            }
        }
    }
}

impl Lane {
    /// The loop of a thread of a lane that has a keeper; a dynamic one ends when it has been idle long enough.
    fn run_kept(self: &Arc<Self>, core: &Arc<Core>, dynamic: bool) {
        let (Some(keeper), Some(role)) = (&self.keeper, &self.role) else { return };
        let place = match Wake::new() {
            Ok(bell) => Arc::new(Place {
                seat: Seat::new(),
                tid: thread::current_tid(),
                bell,
                loan: PiMutex::new("loan", Scope::Lane, None),
            }),
            Err(error) => {
                // It will not come any more: the lane is not young for it.
                keeper.present.fetch_add(u32::from(!dynamic), Ordering::AcqRel);
                keeper.bell.notify();
                return self.failed(core, &error);
            }
        };
        keeper.places.lock().push(Arc::clone(&place));
        super::serving::enter(self, core);
        // Known before another lane can raise the thread, so that it can take its own priority back.
        let _ = station::native();
        if !dynamic {
            keeper.present.fetch_add(1, Ordering::AcqRel);
        }
        let mut worker = Worker::new();
        while !self.stops() {
            match self.serve_one(core, &mut worker, keeper, role, &place, dynamic) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.failed(core, &error);
                    break;
                }
            }
        }
        super::serving::leave();
        keeper.places.lock().retain(|other| !Arc::ptr_eq(other, &place));
        // The next thread finds the flag too.
        self.wake();
    }

    /// One piece of work, waited for. False when a dynamic thread has waited long enough.
    fn serve_one(
        self: &Arc<Self>,
        core: &Arc<Core>,
        worker: &mut Worker,
        keeper: &Keeper,
        role: &Role,
        place: &Place,
        dynamic: bool,
    ) -> io::Result<bool> {
        if self.has_ready() {
            self.step(core, worker, Some(Duration::ZERO))?;
            return Ok(true);
        }
        keeper.tell(keeper.roster.sit(&place.seat));
        let mut until = dynamic.then(|| Monotonic::now() + role.idle_time);
        if self.has_ready() || self.stops() {
            // Listed while it sat down: it does not wait.
            until = Some(Monotonic::now());
        }
        let lends = keeper.lends();
        let waited = if lends {
            // What is reported is taken afterwards, by a thread that nobody can claim any more.
            poll::wait_either(place.bell.as_fd(), self.readiness(), until).map(|(called, _)| {
                if called {
                    place.bell.drain();
                }
                None
            })
        } else {
            self.next_event(until.map(Monotonic::remaining))
        };
        // Also when waiting failed: it is not idle any more.
        match keeper.roster.rise(&place.seat) {
            Rise::Busy => {}
            Rise::Last => keeper.bell.notify(),
            Rise::Claimed => return self.lend(core, worker, place).map(|()| true),
        }
        let event = waited?;
        let event = if lends { self.next_event(Some(Duration::ZERO))? } else { event };
        match event {
            Some(event) => self.handle(core, worker, event),
            None if self.has_ready() => {}
            None => return Ok(!dynamic || until.is_none_or(|until| !until.is_past())),
        }
        Ok(true)
    }

    /// Runs a request of the lane that has claimed the calling thread, at that lane's priority.
    fn lend(&self, core: &Arc<Core>, worker: &mut Worker, place: &Place) -> io::Result<()> {
        let (lane, work) = loop {
            if let Some(loan) = place.loan.lock().take() {
                break loan;
            }
            if self.stops() {
                place.seat.release();
                return Ok(());
            }
            // Failing or not: who has claimed it is about to say for what.
            let _ = poll::wait_readable(place.bell.as_fd(), None);
            place.bell.drain();
        };
        {
            let _visit = station::Visit::to(core.adapters().stamp, &lane);
            if let Some(work) = work {
                lane.perform(core, worker, work);
            }
        }
        place.seat.release();
        Ok(())
    }

    /// The keeper's loop.
    fn keep(self: &Arc<Self>, core: &Arc<Core>) {
        let (Some(keeper), Some(role)) = (&self.keeper, &self.role) else { return };
        let mut worker = Worker::for_keeper();
        while !self.stops() {
            keeper.roster.watch(true);
            let is_young = keeper.present.load(Ordering::Acquire) < role.static_threads;
            if is_young || keeper.roster.has_idle() {
                keeper.roster.watch(is_young);
                if self.has_ready() {
                    self.wake_one();
                }
                if poll::wait_readable(keeper.bell.as_fd(), None).is_err() {
                    return;
                }
                keeper.bell.drain();
                continue;
            }
            if let Err(error) = self.keep_one(core, &mut worker, keeper, role) {
                return self.failed(core, &error);
            }
        }
    }

    /// One look of the keeper while no thread is idle.
    fn keep_one(
        self: &Arc<Self>,
        core: &Arc<Core>,
        worker: &mut Worker,
        keeper: &Keeper,
        role: &Role,
    ) -> io::Result<()> {
        let now = self.situation(keeper);
        if self.ready.has_request() {
            match role.rules.decide(now, 0) {
                Verdict::Spawn => return self.spawn_dynamic(core, keeper),
                Verdict::Borrow => {
                    if !self.borrow(keeper) {
                        // A lower thread is counted as idle and has not sat down yet: it needs the core for that.
                        poll::wait_readable(keeper.bell.as_fd(), Some(clock::now() + YIELD))?;
                        keeper.bell.drain();
                    }
                    return Ok(());
                }
                Verdict::Buffer | Verdict::Refuse => {}
            }
        }
        if !role.rules.may_read(now) {
            poll::wait_readable(keeper.bell.as_fd(), None)?;
            keeper.bell.drain();
            return Ok(());
        }
        if let Some(reading) = self.ready.take_reading() {
            self.perform(core, worker, reading);
            return Ok(());
        }
        let (bell, work) = poll::wait_either(keeper.bell.as_fd(), self.readiness(), None)?;
        if bell {
            keeper.bell.drain();
        }
        if work
            && !keeper.roster.has_idle()
            && let Some(event) = self.next_event(Some(Duration::ZERO))?
        {
            self.handle(core, worker, event);
        }
        Ok(())
    }

    fn situation(&self, keeper: &Keeper) -> Situation {
        let (waiting, waiting_octets) = self.ready.buffered();
        Situation {
            dynamic_threads: keeper.dynamic.load(Ordering::Acquire),
            can_borrow: keeper.can_borrow(),
            waiting,
            waiting_octets,
        }
    }

    /// Takes in a request that the keeper has read.
    fn admit(&self, core: &Arc<Core>, worker: &mut Worker, connection: &Arc<Connection>, message: Message) {
        let (Some(keeper), Some(role)) = (&self.keeper, &self.role) else { return };
        let octets = message.parts().1.len() as u64;
        if role.rules.decide(self.situation(keeper), octets) == Verdict::Refuse {
            return worker.turn_away(core, connection, &message);
        }
        // In a pool without lanes the more urgent one goes first.
        let priority =
            if role.is_lane { 0 } else { request::urgency(core, connection, &message).unwrap_or(role.priority.get()) };
        self.ready.buffer(priority, connection.wait(), message, octets);
    }

    /// Starts a dynamic thread for the oldest request.
    fn spawn_dynamic(self: &Arc<Self>, core: &Arc<Core>, keeper: &Keeper) -> io::Result<()> {
        let Some(work) = self.ready.take_request() else { return Ok(()) };
        let first = Arc::new(PiMutex::new("first request", Scope::Lane, Some(work)));
        let given = Arc::clone(&first);
        let run = move |lane: &Arc<Lane>, core: &Arc<Core>| {
            if let Some(work) = { given.lock().take() } {
                lane.perform(core, &mut Worker::new(), work);
            }
            lane.run_kept(core, true);
            if let Some(keeper) = &lane.keeper {
                keeper.dynamic.fetch_sub(1, Ordering::AcqRel);
                keeper.bell.notify();
            }
        };
        let mut threads = keeper.threads.lock();
        if self.stops() {
            // Whoever ends the lane has taken the threads to wait for.
            return Ok(());
        }
        keeper.dynamic.fetch_add(1, Ordering::AcqRel);
        let name = format!("{}/d{}", self.config.name, keeper.started.fetch_add(1, Ordering::Relaxed));
        match super::spawn(self, core, name, run) {
            Ok(thread) => {
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
            }
            Err(error) => {
                drop(threads);
                keeper.dynamic.fetch_sub(1, Ordering::AcqRel);
                core.events().report(&Event::ThreadFailed { message: format!("{}: {error}", self.config.name) });
                // The request waits for a thread that becomes idle.
                let work = first.lock().take();
                self.ready.put_back(work);
                poll::wait_readable(keeper.bell.as_fd(), None)?;
                keeper.bell.drain();
            }
        }
        Ok(())
    }

    /// Claims an idle thread of a lower lane for the oldest request here, if there still is one. False if no thread could be claimed.
    fn borrow(self: &Arc<Self>, keeper: &Keeper) -> bool {
        let mut lower = keeper.lower.get().into_iter().flatten().filter_map(Weak::upgrade);
        lower.any(|lower| self.borrow_from(&lower))
    }

    fn borrow_from(self: &Arc<Self>, lower: &Lane) -> bool {
        let Some(lender) = &lower.keeper else { return false };
        let places = lender.places.lock();
        if !self.ready.has_request() {
            return true;
        }
        let claimed = places.iter().find_map(|place| Some((Arc::clone(place), lender.roster.claim(&place.seat)?)));
        drop(places);
        let Some((place, last)) = claimed else { return false };
        // A thread of this lane may have taken it meanwhile: then the borrowed one finds nothing to do.
        let work = self.ready.take_request();
        if let Some(native) = self.role.as_ref().and_then(|role| role.native) {
            // Before it is woken: it may have to wait for the core otherwise. Where the system refuses it runs as it is.
            let _ = thread::set_scheduling(Some(place.tid), native);
        }
        *place.loan.lock() = Some((Arc::clone(self), work));
        place.bell.notify();
        if last {
            lender.bell.notify();
        }
        true
    }

    fn failed(&self, core: &Core, error: &io::Error) {
        core.events().report(&Event::ThreadFailed { message: format!("{}: {error}", self.config.name) });
    }
}
