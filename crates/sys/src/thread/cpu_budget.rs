//! CPU budgets: a running thread that has used up its budget of processor time loses its priority.
//!
//! Each budget has a high-resolution timer over the monotonic clock ([`CpuBudget`]). The timer
//! signals the monitor's thread alone, which waits for the signal. The monitor then reads the
//! processor clock of the budget's thread, and lowers the thread if nothing is left of the budget.
//! Otherwise it sets the timer again for the rest, at least [`MIN_CHECK_INTERVAL`]. So a thread is
//! never lowered early. A thread that waits within its budget costs the monitor a wake-up each time
//! the rest of the budget has passed.
//!
//! The monitor lowers a thread only under the lock of the thread's budget, and the thread takes
//! this lock to end the budget. So the monitor never lowers a thread after the budget's end.

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::clock::timespec;
use crate::lock::{LockScope, PiMutex};
use crate::syscall;
use crate::thread::{JoinHandle, Scheduling, ThreadBuilder, Tid, current_tid, set_scheduling};
use crate::usage::{ThreadClock, thread_time};

/// The shortest time between two checks of one budget, unless the budget is restarted between them.
pub const MIN_CHECK_INTERVAL: Duration = Duration::from_micros(100);

/// Returns the signal of the timers. Other uses of the signal are not disturbed: a timer signals
/// the monitor's thread alone, which blocks the signal.
fn signal() -> libc::c_int {
    libc::SIGRTMAX() - 1
}

/// The thread that lowers the priority of threads whose CPU budgets are used up. Dropping the value
/// ends the thread.
#[derive(Debug)]
pub struct CpuBudgetMonitor {
    shared: Arc<CpuMonitorShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct CpuMonitorShared {
    stop: AtomicBool,
    /// Id of the monitor's thread, set once the thread has blocked the signal.
    tid: OnceLock<Tid>,
    /// The budgets, indexed by the number that their timers send with the signal.
    budgets: PiMutex<Vec<Weak<CpuBudgetState>>>,
}

#[derive(Debug)]
struct CpuBudgetState {
    owner: Tid,
    clock: ThreadClock,
    timer: Timer,
    inner: PiMutex<Inner>,
}

#[derive(Debug)]
struct Timer(libc::timer_t);

// SAFETY: the value names a timer of the process. The C library and the kernel permit every thread
// to set the timer, and no code follows the value as a pointer.
unsafe impl Send for Timer {}
// SAFETY: every thread may set the timer, at any time.
unsafe impl Sync for Timer {}

impl Timer {
    /// Makes the timer expire once after `time`. A time of zero stops the timer.
    fn set(&self, time: Duration) {
        let none = timespec(Duration::ZERO);
        let setting = libc::itimerspec { it_interval: none, it_value: timespec(time) };
        // SAFETY: the timer lives until the drop of this value, `setting` is only read, and the old
        // setting is not requested. So the call cannot fail.
        let _ = syscall::once(|| unsafe { libc::timer_settime(self.0, 0, &setting, std::ptr::null_mut()) });
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer is this value's, and no code uses it afterwards.
        let _ = syscall::once(|| unsafe { libc::timer_delete(self.0) });
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// The reading of the owner's processor clock at which the monitor lowers the owner's priority,
    /// and the scheduling that the owner then gets. `None` while no budget runs.
    armed: Option<(Duration, Scheduling)>,
    lowered: Option<Scheduling>,
}

impl CpuBudgetMonitor {
    /// Starts the monitor's thread. Its priority in `scheduling` should be higher than the
    /// priorities of the threads that it lowers.
    ///
    /// # Errors
    /// If the system refuses the thread or its scheduling.
    pub fn start(name: &str, scheduling: Scheduling) -> io::Result<Self> {
        let shared = Arc::new(CpuMonitorShared {
            stop: AtomicBool::new(false),
            tid: OnceLock::new(),
            budgets: PiMutex::new("CPU budgets", LockScope::Orb, Vec::new()),
        });
        let builder = ThreadBuilder::new().name(name).stack_size(256 * 1024).scheduling(scheduling);
        let own = Arc::clone(&shared);
        let thread = builder.spawn(move || {
            let set = block_signal();
            let _ = own.tid.set(current_tid());
            own.run(&set);
        })?;
        Ok(CpuBudgetMonitor { shared, thread: Some(thread) })
    }

    /// Returns a handle to the budgets of this monitor, which other threads may use.
    #[must_use]
    pub fn budgets(&self) -> CpuBudgets {
        CpuBudgets(Arc::clone(&self.shared))
    }
}

/// The budgets of a [`CpuBudgetMonitor`].
#[derive(Clone, Debug)]
pub struct CpuBudgets(Arc<CpuMonitorShared>);

impl CpuBudgets {
    /// Sets the scheduling of a thread. If the thread's budget is used up, changes nothing: the
    /// thread keeps the lower scheduling, and the caller must set the scheduling again when the
    /// budget has ended.
    ///
    /// # Errors
    /// If the kernel refuses the scheduling.
    pub fn set_scheduling(&self, thread: Tid, to: Scheduling) -> io::Result<()> {
        let own = self.0.budgets.lock().iter().filter_map(Weak::upgrade).find(|budget| budget.owner == thread);
        // While this thread holds the lock, the monitor does not lower the thread of the budget.
        let inner = own.as_ref().map(|budget| budget.inner.lock());
        if inner.as_ref().is_some_and(|inner| inner.lowered.is_some()) {
            return Ok(());
        }
        set_scheduling(Some(thread), to)
    }
}

fn block_signal() -> libc::sigset_t {
    // SAFETY: a signal set is integers, for which zeroes are valid.
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
            // SAFETY: a siginfo consists of integers and of addresses that are never followed, for
            // which zeroes are valid.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            // SAFETY: `set` and `info` are live, and `info` is writable. The loop repeats an
            // interrupted wait.
            let waited = syscall::once(|| unsafe { libc::sigwaitinfo(set, &mut info) });
            if waited.is_err() || info.si_code != libc::SI_TIMER {
                continue;
            }
            // SAFETY: the signal of a timer carries a value. Here it is a number, and it is never
            // dereferenced.
            let number = unsafe { info.si_value() }.sival_ptr as usize;
            let budget = self.budgets.lock().get(number).and_then(Weak::upgrade);
            if let Some(budget) = budget {
                budget.expire();
            }
        }
    }
}

impl Drop for CpuBudgetMonitor {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let tid = self.shared.tid.wait().as_raw();
        // SAFETY: the call takes no pointers. The monitor's thread is not joined yet, so its number
        // belongs to no other thread.
        let _ = syscall::once(|| unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal()) });
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl CpuBudgetState {
    fn expire(&self) {
        let mut inner = self.inner.lock();
        let Some((until, to)) = inner.armed else { return };
        // The signal may be late and belong to an earlier setting of the timer, so the clock
        // decides.
        let left = until.saturating_sub(self.clock.time());
        if !left.is_zero() {
            return self.timer.set(left.max(MIN_CHECK_INTERVAL));
        }
        inner.armed = None;
        // This thread holds the budget's lock, so the owner has not ended the budget.
        if set_scheduling(Some(self.owner), to).is_ok() {
            inner.lowered = Some(to);
        }
    }
}

/// Processor time that a thread may use before a [`CpuBudgetMonitor`] lowers its priority.
#[derive(Debug)]
pub struct CpuBudget {
    state: Arc<CpuBudgetState>,
    /// Makes the budget neither `Send` nor `Sync`, because [`restart`](Self::restart) reads the
    /// processor clock of the calling thread.
    here: PhantomData<*const ()>,
}

/// State of a budget at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetOutcome {
    /// No budget was running, or the budget was used up and the kernel refused to lower the thread.
    NotStarted,
    /// The budget was not used up. The values are the unused time, and the scheduling that
    /// [`CpuBudget::restart`] set for the end of the budget.
    Unused(Duration, Scheduling),
    /// The budget was used up. The value is the scheduling to which the thread was lowered.
    Exhausted(Scheduling),
}

impl CpuBudget {
    /// Creates a budget for the calling thread. [`restart`](Self::restart) starts it.
    ///
    /// # Errors
    /// If the system has no timers left.
    pub fn for_current_thread(monitor: &CpuBudgetMonitor) -> io::Result<Self> {
        let clock = ThreadClock::of_current_thread()?;
        let mut budgets = monitor.shared.budgets.lock();
        let number = budgets.iter().position(|other| other.strong_count() == 0).unwrap_or(budgets.len());
        // SAFETY: the structure is integers and an address that is never followed, for which zeroes
        // are valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        event.sigev_value.sival_ptr = std::ptr::without_provenance_mut(number);
        event.sigev_notify_thread_id = monitor.shared.tid.wait().as_raw();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: the call reads `event`, which is filled, and writes `timer`. Both outlive the call.
        syscall::once(|| unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) })?;
        let inner = PiMutex::new("CPU budget", LockScope::Connection, Inner::default());
        let state = Arc::new(CpuBudgetState { owner: current_tid(), clock, timer: Timer(timer), inner });
        match budgets.get_mut(number) {
            Some(vacant) => *vacant = Arc::downgrade(&state),
            None => budgets.push(Arc::downgrade(&state)),
        }
        Ok(CpuBudget { state, here: PhantomData })
    }

    /// Starts a budget of `time` for the calling thread. When the budget is used up, the thread
    /// gets the scheduling `then`. A running budget is replaced.
    pub fn restart(&mut self, time: Duration, then: Scheduling) {
        *self.state.inner.lock() = Inner { armed: Some((thread_time() + time, then)), lowered: None };
        self.state.timer.set(time.max(Duration::from_nanos(1)));
    }

    /// Ends the budget. After the call the monitor does not lower the thread.
    pub fn stop(&mut self) -> BudgetOutcome {
        let Inner { armed, lowered } = std::mem::take(&mut *self.state.inner.lock());
        match (armed, lowered) {
            (_, Some(to)) => BudgetOutcome::Exhausted(to),
            (Some((until, then)), None) => {
                self.state.timer.set(Duration::ZERO);
                BudgetOutcome::Unused(until.saturating_sub(thread_time()), then)
            }
            (None, None) => BudgetOutcome::NotStarted,
        }
    }
}

impl Drop for CpuBudget {
    fn drop(&mut self) {
        // The monitor may use the state for a moment longer, and must not lower the thread in this
        // time.
        *self.state.inner.lock() = Inner::default();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::thread::scheduling;

    fn spin(most: Duration, done: impl Fn() -> bool) -> Duration {
        let begun = thread_time();
        while !done() && thread_time() - begun < most {}
        thread_time() - begun
    }

    #[test]
    fn thread_is_lowered_after_its_budget_and_not_before() {
        let top = *Scheduling::FIXED_PRIORITIES.end();
        let monitor = CpuBudgetMonitor::start("monitor", Scheduling::Fifo(top)).expect("SCHED_FIFO is permitted");
        let body = move || {
            let mut budget = CpuBudget::for_current_thread(&monitor).unwrap();
            assert_eq!(budget.stop(), BudgetOutcome::NotStarted);
            let time = Duration::from_millis(5);
            budget.restart(time, Scheduling::Fifo(2));
            let is_low = || scheduling(None).unwrap() == Scheduling::Fifo(2);
            let used = spin(Duration::from_secs(2), is_low);
            assert!(is_low() && used + Duration::from_millis(1) > time, "{used:?}");
            assert_eq!(budget.stop(), BudgetOutcome::Exhausted(Scheduling::Fifo(2)));
            set_scheduling(None, Scheduling::Fifo(5)).unwrap();
            // Neither the time of a wait nor the time after the end of a budget counts.
            budget.restart(Duration::from_millis(50), Scheduling::Fifo(2));
            std::thread::sleep(Duration::from_millis(60));
            assert!(
                matches!(budget.stop(), BudgetOutcome::Unused(left, Scheduling::Fifo(2)) if left > Duration::from_millis(20))
            );
            spin(Duration::from_millis(60), || false);
            assert_eq!(scheduling(None).unwrap(), Scheduling::Fifo(5));
            // After a wait a part of the budget is left, so the monitor checks the budget again.
            budget.restart(time, Scheduling::Fifo(2));
            std::thread::sleep(3 * time);
            let used = spin(Duration::from_secs(2), is_low);
            assert!(is_low() && used + Duration::from_millis(1) > time, "{used:?}");
            assert_eq!(budget.stop(), BudgetOutcome::Exhausted(Scheduling::Fifo(2)));
        };
        ThreadBuilder::new().scheduling(Scheduling::Fifo(5)).spawn(body).unwrap().join().unwrap();
    }

    #[test]
    fn budget_numbers_of_ended_threads_are_reused() {
        let monitor = CpuBudgetMonitor::start("monitor", Scheduling::Other).unwrap();
        for _ in 0..3 {
            drop(CpuBudget::for_current_thread(&monitor).unwrap());
        }
        assert_eq!(monitor.shared.budgets.lock().len(), 1);
    }
}
