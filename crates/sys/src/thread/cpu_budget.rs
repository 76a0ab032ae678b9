//! CPU budgets: a thread that has used up its processor time is lowered in priority while it runs.
//!
//! Each such thread has a kernel timer over its own processor clock ([`CpuBudget`]). The timer
//! signals the thread of a [`CpuBudgetMonitor`], and only this thread waits for that signal. No
//! handler is installed, and no thread is interrupted. The kernel checks processor clocks at its
//! own clock ticks, so a thread is lowered up to a tick (1 to 10 ms) late, and never early.
//!
//! Invariant: a thread is lowered only under the lock of its budget, and takes that lock to end the
//! budget. So the thread is not lowered after the budget's end.

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::clock::timespec;
use crate::lock::{PiMutex, Scope};
use crate::syscall;
use crate::thread::{JoinHandle, Scheduling, ThreadBuilder, Tid, current_tid, set_scheduling};
use crate::usage::{clock_time, thread_time};

/// Returns the signal of the timers. It goes to the monitor's thread alone and is blocked there, so
/// other users of this signal number are not disturbed.
fn signal() -> libc::c_int {
    libc::SIGRTMAX() - 1
}

/// The thread that lowers other threads.
#[derive(Debug)]
pub struct CpuBudgetMonitor {
    shared: Arc<CpuMonitorShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct CpuMonitorShared {
    stop: AtomicBool,
    /// The monitor's thread, set once it has blocked the signal.
    tid: OnceLock<Tid>,
    /// The budgets, indexed by the number that their timers send.
    budgets: PiMutex<Vec<Weak<CpuBudgetState>>>,
}

/// State shared by the owner of a budget and the monitor.
#[derive(Debug)]
struct CpuBudgetState {
    owner: Tid,
    clock: libc::clockid_t,
    inner: PiMutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The reading of the owner's clock at which it is lowered, and the scheduling that it then
    /// gets.
    armed: Option<(Duration, Scheduling)>,
    lowered: Option<Scheduling>,
}

impl CpuBudgetMonitor {
    /// Starts the monitor's thread. It has to run before the threads that it lowers, so
    /// `scheduling` should be above theirs where the system permits.
    ///
    /// # Errors
    /// If the system refuses the thread or its scheduling.
    pub fn start(name: &str, scheduling: Scheduling) -> io::Result<Self> {
        let shared = Arc::new(CpuMonitorShared {
            stop: AtomicBool::new(false),
            tid: OnceLock::new(),
            budgets: PiMutex::new("allowances of processor time", Scope::Orb, Vec::new()),
        });
        let builder = ThreadBuilder::new().name(name).stack_size(256 * 1024).scheduling(scheduling);
        let own = Arc::clone(&shared);
        let thread = builder.spawn(move || {
            let set = block_signal();
            // No other thread sets it.
            let _ = own.tid.set(current_tid());
            own.run(&set);
        })?;
        Ok(CpuBudgetMonitor { shared, thread: Some(thread) })
    }
}

fn block_signal() -> libc::sigset_t {
    // SAFETY: a signal set is integers, for which zeroes are values.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is live and writable, the signal exists, and the old mask is not requested. So
    // none of these calls can fail.
    unsafe {
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal());
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
    set
}

impl CpuMonitorShared {
    fn run(&self, set: &libc::sigset_t) {
        while !self.stop.load(Ordering::Acquire) {
            // SAFETY: a siginfo is integers and addresses that are never followed, for which zeroes
            // are values.
            let mut told: libc::siginfo_t = unsafe { std::mem::zeroed() };
            // SAFETY: `set` and `told` are live, and `told` is writable. An interruption is
            // harmless, because the loop waits again.
            let waited = syscall::once(|| unsafe { libc::sigwaitinfo(set, &mut told) });
            if waited.is_err() || told.si_code != libc::SI_TIMER {
                continue;
            }
            // SAFETY: a timer's signal has a value, which is a number here and never followed.
            let number = unsafe { told.si_value() }.sival_ptr as usize;
            let allowance = self.budgets.lock().get(number).and_then(Weak::upgrade);
            if let Some(allowance) = allowance {
                allowance.expire();
            }
        }
    }
}

impl Drop for CpuBudgetMonitor {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let tid = self.shared.tid.wait().as_raw();
        // SAFETY: the call takes no pointers. The thread is this monitor's and not joined yet, so
        // the number still belongs to it.
        let _ = syscall::once(|| unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal()) });
        if let Some(thread) = self.thread.take() {
            // The thread does nothing that can panic; if it did, there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

impl CpuBudgetState {
    fn expire(&self) {
        let mut inner = self.inner.lock();
        // A signal of an earlier setting of the timer may arrive only now.
        if let Some((until, to)) = inner.armed
            && clock_time(self.clock) >= until
        {
            inner.armed = None;
            // The owner has not ended its budget, because it would need the lock for this. Lowering
            // is never refused.
            if set_scheduling(Some(self.owner), to).is_ok() {
                inner.lowered = Some(to);
            }
        }
    }
}

/// The processor time that its thread may use before a [`CpuBudgetMonitor`] lowers the thread.
#[derive(Debug)]
pub struct CpuBudget {
    timer: libc::timer_t,
    state: Arc<CpuBudgetState>,
    /// Makes the budget neither `Send` nor `Sync`: the clock belongs to its thread.
    here: PhantomData<*const ()>,
}

/// The state of a budget when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetLeft {
    /// No budget was running.
    NotStarted,
    /// The unused time, and the scheduling that would have followed the budget's end.
    Unused(Duration, Scheduling),
    /// The budget was used up. Holds the thread's present scheduling.
    Exhausted(Scheduling),
}

impl CpuBudget {
    /// Creates a budget for the calling thread. It does not run yet.
    ///
    /// # Errors
    /// If the system has no timers left.
    pub fn for_current_thread(overseer: &CpuBudgetMonitor) -> io::Result<Self> {
        let mut clock = 0;
        // SAFETY: `clock` is writable, and a running thread has a clock.
        let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        let inner = PiMutex::new("allowance of processor time", Scope::Connection, Inner::default());
        let state = Arc::new(CpuBudgetState { owner: current_tid(), clock, inner });
        let mut allowances = overseer.shared.budgets.lock();
        let number = allowances.iter().position(|other| other.strong_count() == 0).unwrap_or(allowances.len());
        // SAFETY: the structure is integers and an address that is never followed, for which zeroes
        // are values.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        event.sigev_value.sival_ptr = std::ptr::without_provenance_mut(number);
        event.sigev_notify_thread_id = overseer.shared.tid.wait().as_raw();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: `event` is filled and read only, `timer` is writable.
        syscall::once(|| unsafe { libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &mut event, &mut timer) })?;
        match allowances.get_mut(number) {
            Some(vacant) => *vacant = Arc::downgrade(&state),
            None => allowances.push(Arc::downgrade(&state)),
        }
        Ok(CpuBudget { timer, state, here: PhantomData })
    }

    /// Gives the calling thread `time` from now on, and the scheduling `then` afterwards. Replaces
    /// a running budget.
    pub fn restart(&mut self, time: Duration, then: Scheduling) {
        *self.state.inner.lock() = Inner { armed: Some((thread_time() + time, then)), lowered: None };
        // Zero would stop the timer.
        self.set_timer(time.max(Duration::from_nanos(1)));
    }

    /// Ends the budget, which can no longer lower the thread.
    pub fn stop(&mut self) -> BudgetLeft {
        let Inner { armed, lowered } = std::mem::take(&mut *self.state.inner.lock());
        match (armed, lowered) {
            (_, Some(to)) => BudgetLeft::Exhausted(to),
            (Some((until, then)), None) => {
                self.set_timer(Duration::ZERO);
                BudgetLeft::Unused(until.saturating_sub(thread_time()), then)
            }
            (None, None) => BudgetLeft::NotStarted,
        }
    }

    fn set_timer(&self, time: Duration) {
        let none = timespec(Duration::ZERO);
        let setting = libc::itimerspec { it_interval: none, it_value: timespec(time) };
        // SAFETY: the timer is this budget's, `setting` is only read, and the old setting is not
        // requested. So the call cannot fail.
        let _ = syscall::once(|| unsafe { libc::timer_settime(self.timer, 0, &setting, std::ptr::null_mut()) });
    }
}

impl Drop for CpuBudget {
    fn drop(&mut self) {
        *self.state.inner.lock() = Inner::default();
        // SAFETY: the timer is this budget's and not used any more.
        let _ = syscall::once(|| unsafe { libc::timer_delete(self.timer) });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::thread::scheduling;

    /// Uses processor time until `done` returns true or `most` is used.
    fn spin(most: Duration, done: impl Fn() -> bool) -> Duration {
        let begun = thread_time();
        while !done() && thread_time() - begun < most {}
        thread_time() - begun
    }

    #[test]
    fn thread_is_lowered_after_its_budget_and_not_before() {
        let top = *Scheduling::PRIORITIES.end();
        let overseer = CpuBudgetMonitor::start("overseer", Scheduling::Fifo(top)).expect("SCHED_FIFO is permitted");
        let body = move || {
            let mut allowance = CpuBudget::for_current_thread(&overseer).unwrap();
            assert_eq!(allowance.stop(), BudgetLeft::NotStarted);
            let time = Duration::from_millis(5);
            allowance.restart(time, Scheduling::Fifo(2));
            let is_low = || scheduling(None).unwrap() == Scheduling::Fifo(2);
            let used = spin(Duration::from_secs(2), is_low);
            assert!(is_low() && used + Duration::from_millis(1) > time, "{used:?}");
            assert_eq!(allowance.stop(), BudgetLeft::Exhausted(Scheduling::Fifo(2)));
            set_scheduling(None, Scheduling::Fifo(5)).unwrap();
            // Time spent waiting, and time after the end, does not count.
            allowance.restart(Duration::from_millis(50), Scheduling::Fifo(2));
            std::thread::sleep(Duration::from_millis(60));
            assert!(
                matches!(allowance.stop(), BudgetLeft::Unused(left, Scheduling::Fifo(2)) if left > Duration::from_millis(20))
            );
            spin(Duration::from_millis(60), || false);
            assert_eq!(scheduling(None).unwrap(), Scheduling::Fifo(5));
        };
        ThreadBuilder::new().scheduling(Scheduling::Fifo(5)).spawn(body).unwrap().join().unwrap();
    }

    #[test]
    fn budget_numbers_of_ended_threads_are_reused() {
        let overseer = CpuBudgetMonitor::start("overseer", Scheduling::Other).unwrap();
        for _ in 0..3 {
            drop(CpuBudget::for_current_thread(&overseer).unwrap());
        }
        assert_eq!(overseer.shared.budgets.lock().len(), 1);
    }
}
