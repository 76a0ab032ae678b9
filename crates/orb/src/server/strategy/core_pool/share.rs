//! The guaranteed share of requests without a task. Pinned best-effort threads run above all tasks.
//! The thread `POOL/s0` lowers the threads of a core when they have used their budget, and raises
//! them again in the next period.
//!
//! A thread that begins to work reads the clock, and wakes `POOL/s0` only if the budget could be
//! used up before the next check.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::EventFd;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::poll;
use corelane_sys::thread::{self, CpuSet, JoinHandle, Scheduling, ThreadBuilder, Tid};
use corelane_sys::usage::ThreadClock;

use super::SharedPool;
use super::deferrable_server::{DeferrableServer, ShareLevel};
use crate::event::Event;
use crate::rt::core_config::{BestEffortShare, BestEffortUse};
use crate::server::architecture::Architecture;
use crate::server::handler::RequestHandler;
use crate::server::lane::Lane;
use crate::server::nested_wait;
use crate::server::worker::Worker;
use crate::thread_context::{self, SavedScheduling};

/// Native priority of threads within their share: the highest priority below the thread that lowers
/// them.
pub(crate) const SHARE_PRIORITY: u8 = 98;

pub(super) struct BestEffortShares {
    cores: Vec<CoreShare>,
    /// Notified for a check, and for the end of the pool.
    wake: EventFd,
    started_at: Monotonic,
    /// Number of best-effort threads that have chosen their core, by which the next thread chooses.
    entered: AtomicUsize,
    /// The threads' scheduling within the share; `None` if the kernel refused the priority of
    /// `POOL/s0`, so that nothing could lower the threads in time.
    scheduling: Option<Scheduling>,
    is_ending: AtomicBool,
}

struct CoreShare {
    core: usize,
    /// Number of threads that are not waiting for work.
    working: AtomicUsize,
    /// The time until which threads that begin to work ask for a further check: the field
    /// [`ServerCheck::ask_before`](super::deferrable_server::ServerCheck::ask_before) of the last
    /// check. Written by the thread `POOL/s0`.
    ask_before: AtomicU64,
    /// True if a thread has begun to work before `ask_before` since the last check, even if its
    /// work has ended. Set by that thread.
    asked: AtomicBool,
    /// The time of the next check; the maximum if none is needed. Used by `POOL/s0` only.
    next_at: AtomicU64,
    /// Number of pieces of work that have begun.
    begun: AtomicU64,
    /// The time in nanoseconds that each piece of work costs beyond its processor time.
    request_cost: u64,
    server: PiMutex<ShareState>,
}

struct ShareState {
    server: DeferrableServer,
    threads: Vec<(Tid, ThreadClock)>,
    /// The processor time of threads that have ended.
    ended: Duration,
    is_lost: bool,
}

impl CoreShare {
    /// Returns the time in nanoseconds with which the budget has been charged since the pool was
    /// created: the processor time of the threads, and the cost of each piece of work that has
    /// begun.
    fn used(&self, state: &ShareState) -> u64 {
        let used = state.threads.iter().fold(state.ended, |sum, (_, clock)| sum.saturating_add(clock.time()));
        let costs = self.begun.load(Ordering::SeqCst).saturating_mul(self.request_cost);
        u64::try_from(used.as_nanos()).unwrap_or(u64::MAX).saturating_add(costs)
    }
}

impl ShareState {
    fn level(&self) -> ShareLevel {
        if self.is_lost { ShareLevel::Background } else { self.server.level() }
    }
}

impl BestEffortShares {
    /// Creates one share for each core in `cores`, which may contain a core twice. Threads within
    /// the share run with `scheduling`.
    pub(super) fn new(share: BestEffortShare, cores: &[usize], scheduling: Scheduling) -> io::Result<Self> {
        let of_core = |core: usize| {
            let state = ShareState {
                server: DeferrableServer::new(share),
                threads: Vec::new(),
                ended: Duration::ZERO,
                is_lost: false,
            };
            CoreShare {
                core,
                working: AtomicUsize::new(0),
                ask_before: AtomicU64::new(u64::MAX),
                asked: AtomicBool::new(false),
                next_at: AtomicU64::new(u64::MAX),
                begun: AtomicU64::new(0),
                request_cost: u64::try_from(share.request_cost.as_nanos()).unwrap_or(u64::MAX),
                server: PiMutex::new("best-effort share", LockScope::Lane, state),
            }
        };
        Ok(BestEffortShares {
            cores: cores.iter().copied().collect::<BTreeSet<_>>().into_iter().map(of_core).collect(),
            wake: EventFd::new()?,
            started_at: Monotonic::now(),
            entered: AtomicUsize::new(0),
            scheduling: (scheduling != Scheduling::Other).then_some(scheduling),
            is_ending: AtomicBool::new(false),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn scheduling(&self, level: ShareLevel) -> Scheduling {
        match level {
            ShareLevel::AboveTasks => self.scheduling.unwrap_or(Scheduling::Other),
            ShareLevel::Background => Scheduling::Other,
        }
    }

    pub(super) fn uses(&self) -> Vec<BestEffortUse> {
        let use_of = |share: &CoreShare| {
            let state = share.server.lock();
            let (used, exhausted) = state.server.use_of(share.used(&state));
            let is_above_tasks = state.level() == ShareLevel::AboveTasks;
            // The kernel may have refused the share to all threads of the core. Then none runs
            // above the tasks.
            let runs_above_tasks = self.scheduling.is_some() && is_above_tasks && !state.threads.is_empty();
            BestEffortUse {
                core: share.core,
                used_time: Duration::from_nanos(used),
                exhausted_periods: exhausted,
                runs_above_tasks,
            }
        };
        self.cores.iter().map(use_of).collect()
    }

    /// Puts the threads of a core into the background if the core is lost, or returns them to the
    /// core. After the end of the pool they stay in the background.
    pub(super) fn set_lost(&self, core: usize, is_lost: bool) {
        for share in self.cores.iter().filter(|share| share.core == core) {
            let mut state = share.server.lock();
            // After the end no thread enforces the budgets, so the threads stay in the background.
            state.is_lost = is_lost || self.is_ending.load(Ordering::Acquire);
            let scheduling = self.scheduling(state.level());
            for (tid, _) in &state.threads {
                if !is_lost {
                    // An error usually means that the core has gone again. It is ignored, because
                    // the core's watcher notices the loss.
                    let _ = thread::set_affinity(Some(*tid), &CpuSet::one(core));
                }
                let _ = thread::set_uninherited_scheduling(Some(*tid), scheduling);
            }
        }
        self.wake.notify();
    }

    /// Checks the budgets of the cores that asked for it or are due. Returns the time of the next
    /// check, `None` if no core needs one.
    fn check(&self) -> Option<u64> {
        let now = self.now();
        let check_share = |share: &CoreShare| {
            let due_at = share.next_at.load(Ordering::Relaxed);
            if due_at > now && !share.asked.load(Ordering::SeqCst) {
                return due_at;
            }
            let next_at = self.check_core(share, now).unwrap_or(u64::MAX);
            share.next_at.store(next_at, Ordering::Relaxed);
            next_at
        };
        self.cores.iter().map(check_share).min().filter(|at| *at != u64::MAX)
    }

    fn check_core(&self, share: &CoreShare, now: u64) -> Option<u64> {
        let mut state = share.server.lock();
        // Work that asked for a check counts as running until the next check, even if it has ended.
        // Otherwise each short request would ask for a check.
        let mut is_busy = share.asked.swap(false, Ordering::SeqCst) || share.working.load(Ordering::SeqCst) > 0;
        let used = share.used(&state);
        loop {
            let check = state.server.check(now, used, is_busy);
            if check.change.is_some() {
                let scheduling = self.scheduling(state.level());
                for (tid, _) in &state.threads {
                    // The kernel permitted the scheduling to the thread at its start, so no error
                    // is expected.
                    let _ = thread::set_uninherited_scheduling(Some(*tid), scheduling);
                }
            }
            share.ask_before.store(check.ask_before, Ordering::SeqCst);
            // A thread that began to work before the store may have read an older value and not
            // asked, so the check is repeated.
            if is_busy || share.working.load(Ordering::SeqCst) == 0 {
                return check.next_at;
            }
            is_busy = true;
        }
    }

    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.wake.notify();
    }

    fn begin_work(&self, share: &CoreShare) {
        share.working.fetch_add(1, Ordering::SeqCst);
        share.begun.fetch_add(1, Ordering::SeqCst);
        if self.now() < share.ask_before.load(Ordering::SeqCst) {
            share.asked.store(true, Ordering::SeqCst);
            self.wake.notify();
        }
    }

    fn end_work(share: &CoreShare) {
        share.working.fetch_sub(1, Ordering::SeqCst);
    }

    /// Pins the calling thread to the core of the share, gives it the level of the core's threads,
    /// and records it as one of them. The error is the refusal of the kernel.
    fn enter(&self, share: &CoreShare) -> Result<(), String> {
        let clock = ThreadClock::of_current_thread().map_err(|error| format!("processor clock: {error}"))?;
        let mut state = share.server.lock();
        thread::set_affinity(None, &CpuSet::one(share.core))
            .map_err(|error| format!("core {}: {error}", share.core))?;
        let scheduling = self.scheduling(state.level());
        thread::set_uninherited_scheduling(None, scheduling).map_err(|error| format!("{scheduling:?}: {error}"))?;
        state.threads.push((thread::current_tid(), clock));
        Ok(())
    }

    /// Puts the calling thread back to the level of the core's threads.
    fn return_to_level(&self, share: &CoreShare) {
        let state = share.server.lock();
        let own = thread::current_tid();
        if state.threads.iter().any(|(tid, _)| *tid == own) {
            // The kernel permitted the scheduling before, so no error is expected.
            let _ = thread::set_uninherited_scheduling(None, self.scheduling(state.level()));
        }
    }

    /// Forgets the calling thread, whose id may soon belong to another thread.
    fn leave(&self, share: &CoreShare) {
        let mut state = share.server.lock();
        let own = thread::current_tid();
        if let Some(at) = state.threads.iter().position(|(tid, _)| *tid == own) {
            let (_, clock) = state.threads.remove(at);
            state.ended = state.ended.saturating_add(clock.time());
        }
        drop(state);
        // The thread ends with its pool, so it gives up the share.
        let _ = thread::set_uninherited_scheduling(None, Scheduling::Other);
    }
}

/// Starts the thread that checks the budgets. If the kernel refuses its priority, the best-effort
/// threads get no share, because their budgets could not be enforced.
pub(super) fn start(
    share: BestEffortShare,
    cores: &[usize],
    scheduling: Scheduling,
    pool: &str,
) -> io::Result<(Arc<BestEffortShares>, JoinHandle<()>, Option<String>)> {
    let start = |of: Scheduling, at: Scheduling| {
        let shares = Arc::new(BestEffortShares::new(share, cores, of)?);
        let own = Arc::clone(&shares);
        let builder = ThreadBuilder::new().name(format!("{pool}/s0")).stack_size(256 * 1024).scheduling(at);
        let handle = builder.spawn(move || {
            while !own.is_ending.load(Ordering::Acquire) {
                let until = own.check().map(|at| own.started_at + Duration::from_nanos(at));
                // An error only makes this loop check again.
                let _ = poll::wait_readable(own.wake.as_fd(), until);
                own.wake.take_notifications();
            }
            // The best-effort threads may end after this thread, which alone lowers them, so they
            // continue in the background.
            for share in &own.cores {
                own.set_lost(share.core, true);
            }
        })?;
        Ok::<_, io::Error>((shares, handle))
    };
    let top = Scheduling::Fifo(*Scheduling::FIXED_PRIORITIES.end());
    if scheduling != Scheduling::Other {
        match start(scheduling, top) {
            Ok((shares, handle)) => return Ok((shares, handle, None)),
            Err(error) => {
                let (shares, handle) = start(Scheduling::Other, Scheduling::Other)?;
                return Ok((shares, handle, Some(format!("best-effort share, {top:?}: {error}"))));
            }
        }
    }
    let (shares, handle) = start(Scheduling::Other, Scheduling::Other)?;
    Ok((shares, handle, None))
}

/// Runs a best-effort thread that has a share of a core.
pub(super) fn run<S: Architecture<S>, H: RequestHandler>(
    pool: &SharedPool,
    shares: &BestEffortShares,
    lane: &Arc<Lane<S>>,
    handler: &Arc<H>,
) {
    let number = shares.entered.fetch_add(1, Ordering::Relaxed);
    let Some(share) = shares.cores.get(number % shares.cores.len().max(1)) else { return };
    match shares.enter(share) {
        // Only `POOL/s0` changes the thread's scheduling, so the thread's context has the ordinary
        // class. A nested call then gets no priority from the share, and a budget or a late
        // deadline finds no priority to lower and restore.
        Ok(()) => thread_context::enter_lane(lane.identity(handler.context().stamp()), Some(Scheduling::Other)),
        Err(refusal) => {
            pool.state.lock().refusal.get_or_insert(refusal);
        }
    }
    pool.report_refusal(handler.context(), &lane.config.name);
    let mut worker = Worker::new();
    nested_wait::enter(lane, handler);
    while !lane.is_stopping() {
        let scheduling = SavedScheduling::capture();
        if let Err(error) = step(shares, share, lane, handler, &mut worker) {
            let message = format!("{}: {error}", lane.config.name);
            handler.context().events().report(&Event::ThreadFailed { message });
            break;
        }
        if scheduling.has_changed() {
            shares.return_to_level(share);
        }
    }
    crate::nested_wait::uninstall();
    shares.leave(share);
    lane.wake();
}

/// Handles the next event or task of the lane, and waits if there is none.
fn step<S: Architecture<S>, H: RequestHandler>(
    shares: &BestEffortShares,
    share: &CoreShare,
    lane: &Lane<S>,
    handler: &Arc<H>,
    worker: &mut Worker,
) -> io::Result<()> {
    if lane.has_ready_or_begun() {
        shares.begin_work(share);
        // Another thread may have taken the work, so the step does not wait: a wait would count as
        // work.
        let stepped = lane.step(handler, worker, Some(Duration::ZERO));
        BestEffortShares::end_work(share);
        stepped?;
        // The step may have cleared the wake-up for a ready task or for the end of the lane, so
        // this thread does not wait.
        if lane.has_ready() || lane.is_stopping() {
            return Ok(());
        }
    }
    let event = lane.next_event(worker, None)?;
    shares.begin_work(share);
    if let Some(event) = event {
        lane.handle_or_defer(handler, worker, event);
    }
    BestEffortShares::end_work(share);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(cores: &[usize]) -> BestEffortShares {
        let share = BestEffortShare::new(Duration::from_millis(2), Duration::from_secs(3_600));
        BestEffortShares::new(share, cores, Scheduling::Fifo(SHARE_PRIORITY)).unwrap()
    }

    #[test]
    fn short_work_asks_for_one_check_of_its_core() {
        let shares = shares(&[1, 0, 1]);
        assert_eq!(shares.cores.iter().map(|share| share.core).collect::<Vec<_>>(), [0, 1]);
        let asks = |at: usize| {
            shares.begin_work(&shares.cores[at]);
            BestEffortShares::end_work(&shares.cores[at]);
            shares.cores[at].asked.load(Ordering::SeqCst)
        };
        shares.check();
        assert!(asks(0));
        assert!(shares.check().is_some());
        assert!(!asks(0));
        assert!(asks(1));
    }

    #[test]
    fn each_piece_of_work_costs_its_switches_beyond_its_processor_time() {
        let share = BestEffortShare::new(Duration::from_millis(1), Duration::from_secs(3_600));
        let share = share.request_cost(Duration::from_micros(100));
        let shares = BestEffortShares::new(share, &[0], Scheduling::Fifo(SHARE_PRIORITY)).unwrap();
        let work = |pieces: u32| {
            for _ in 0..pieces {
                shares.begin_work(&shares.cores[0]);
                shares.check_core(&shares.cores[0], shares.now());
                BestEffortShares::end_work(&shares.cores[0]);
            }
            shares.cores[0].server.lock().level()
        };
        // No thread has entered, so no processor time is used. Ten pieces of work, with the one
        // that begins the period, use up the budget.
        assert_eq!(work(9), ShareLevel::AboveTasks);
        assert_eq!(shares.uses()[0].used_time, Duration::from_micros(900));
        assert_eq!(work(1), ShareLevel::Background);
        assert_eq!(
            shares.uses()[0],
            BestEffortUse { used_time: share.budget, exhausted_periods: 1, ..shares.uses()[0] }
        );
    }

    #[test]
    fn nothing_is_guaranteed_without_threads_and_after_the_end() {
        let shares = shares(&[0]);
        assert!(!shares.uses()[0].runs_above_tasks);
        let level = || shares.cores[0].server.lock().level();
        shares.set_lost(0, true);
        shares.set_lost(0, false);
        assert_eq!(level(), ShareLevel::AboveTasks);
        shares.end();
        shares.set_lost(0, false);
        assert_eq!(level(), ShareLevel::Background);
    }
}
