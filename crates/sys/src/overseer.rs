//! Threads that may use only so much processor time at their priority: one that has used it up is lowered while it runs.
//!
//! Each such thread has a timer of the kernel's over its own processor clock ([`Allowance`]). What the timer tells goes to the thread of
//! an [`Overseer`], which alone waits for that signal: no handler is installed, and neither the lowered thread nor any other is
//! interrupted in what it does. The kernel looks at processor clocks when its own clock ticks, so a thread is lowered up to a tick (1 to
//! 10 ms) late, and never early.
//!
//! Invariant: a thread is lowered only under the lock of its allowance, and takes that lock before the allowance ends: what has not
//! happened by then does not happen.

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::call;
use crate::clock::timespec;
use crate::lock::{PiMutex, Scope};
use crate::thread::{Builder, JoinHandle, Scheduling, Tid, current_tid, set_scheduling};
use crate::usage::{clock_time, thread_time};

/// Directed at the overseer's thread alone, and blocked there. Whoever else uses the number is not disturbed.
fn signal() -> libc::c_int {
    libc::SIGRTMAX() - 1
}

/// The thread that lowers others.
#[derive(Debug)]
pub struct Overseer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    /// The thread, once it has blocked the signal.
    tid: OnceLock<Tid>,
    /// By the number that their timers tell.
    allowances: PiMutex<Vec<Weak<State>>>,
}

/// What the owner and the overseer share.
#[derive(Debug)]
struct State {
    owner: Tid,
    clock: libc::clockid_t,
    inner: PiMutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Until which reading of the owner's clock, and how it is scheduled then.
    armed: Option<(Duration, Scheduling)>,
    lowered: Option<Scheduling>,
}

impl Overseer {
    /// Starts the thread. It has to run before those that it lowers: `scheduling` is above theirs, where the system permits it.
    ///
    /// # Errors
    /// The system refuses the thread, or its scheduling.
    pub fn start(name: &str, scheduling: Scheduling) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            tid: OnceLock::new(),
            allowances: PiMutex::new("allowances of processor time", Scope::Orb, Vec::new()),
        });
        let builder = Builder::new().name(name).stack_size(256 * 1024).scheduling(scheduling);
        let own = Arc::clone(&shared);
        let thread = builder.spawn(move || {
            let set = blocked();
            // Nobody else sets it.
            let _ = own.tid.set(current_tid());
            own.run(&set);
        })?;
        Ok(Overseer { shared, thread: Some(thread) })
    }
}

/// Blocks the signal in the calling thread.
fn blocked() -> libc::sigset_t {
    // SAFETY: a signal set is integers, for which zeroes are values.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is live and writable, the signal exists, and the old mask is not asked for. None of these can fail then.
    unsafe {
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal());
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
    set
}

impl Shared {
    fn run(&self, set: &libc::sigset_t) {
        while !self.stop.load(Ordering::Acquire) {
            // SAFETY: a siginfo is integers and addresses that nobody follows, for which zeroes are values.
            let mut told: libc::siginfo_t = unsafe { std::mem::zeroed() };
            // SAFETY: `set` and `told` are live, and the latter is writable. Interruption is harmless: it waits again.
            let waited = call::once(|| unsafe { libc::sigwaitinfo(set, &mut told) });
            if waited.is_err() || told.si_code != libc::SI_TIMER {
                continue;
            }
            // SAFETY: what a timer tells has a value, which is a number here and never followed.
            let number = unsafe { told.si_value() }.sival_ptr as usize;
            let allowance = self.allowances.lock().get(number).and_then(Weak::upgrade);
            if let Some(allowance) = allowance {
                allowance.fall();
            }
        }
    }
}

impl Drop for Overseer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let tid = self.shared.tid.wait().as_raw();
        // SAFETY: the call takes no pointers. The thread is ours and not joined yet, so the number is still its own.
        let _ = call::once(|| unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal()) });
        if let Some(thread) = self.thread.take() {
            // The thread does nothing that can panic; if it did, there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

impl State {
    fn fall(&self) {
        let mut inner = self.inner.lock();
        // What an earlier setting of the timer has told may come this late.
        if let Some((until, to)) = inner.armed
            && clock_time(self.clock) >= until
        {
            inner.armed = None;
            // The owner has not ended: it would have to take the lock first. Lowering is never refused.
            if set_scheduling(Some(self.owner), to).is_ok() {
                inner.lowered = Some(to);
            }
        }
    }
}

/// The processor time that the thread which made this may use before an [`Overseer`] lowers it.
#[derive(Debug)]
pub struct Allowance {
    timer: libc::timer_t,
    state: Arc<State>,
    /// The clock is that of this thread.
    here: PhantomData<*const ()>,
}

/// What there was of an allowance when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// None was given.
    Nothing,
    /// So much was not used, and how the thread would have been scheduled after it.
    Time(Duration, Scheduling),
    /// It was used up, and the thread is scheduled like this now.
    Lowered(Scheduling),
}

impl Allowance {
    /// A timer for the calling thread; it is not running.
    ///
    /// # Errors
    /// The system has no timers left.
    pub fn of_this_thread(overseer: &Overseer) -> io::Result<Self> {
        let mut clock = 0;
        // SAFETY: `clock` is writable, and a running thread has a clock.
        let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        let inner = PiMutex::new("allowance of processor time", Scope::Connection, Inner::default());
        let state = Arc::new(State { owner: current_tid(), clock, inner });
        let mut allowances = overseer.shared.allowances.lock();
        let number = allowances.iter().position(|other| other.strong_count() == 0).unwrap_or(allowances.len());
        // SAFETY: the structure is integers and an address that nobody follows, for which zeroes are values.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        event.sigev_value.sival_ptr = std::ptr::without_provenance_mut(number);
        event.sigev_notify_thread_id = overseer.shared.tid.wait().as_raw();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: `event` is filled and read only, `timer` is writable.
        call::once(|| unsafe { libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &mut event, &mut timer) })?;
        match allowances.get_mut(number) {
            Some(vacant) => *vacant = Arc::downgrade(&state),
            None => allowances.push(Arc::downgrade(&state)),
        }
        Ok(Allowance { timer, state, here: PhantomData })
    }

    /// The calling thread may use `time` from now on, and is scheduled like `then` after that; what held before holds no more.
    pub fn give(&mut self, time: Duration, then: Scheduling) {
        *self.state.inner.lock() = Inner { armed: Some((thread_time() + time, then)), lowered: None };
        // Zero would stop it.
        self.set(time.max(Duration::from_nanos(1)));
    }

    /// The allowance ends: the thread is not lowered for it any more.
    pub fn end(&mut self) -> Left {
        let Inner { armed, lowered } = std::mem::take(&mut *self.state.inner.lock());
        match (armed, lowered) {
            (_, Some(to)) => Left::Lowered(to),
            (Some((until, then)), None) => {
                self.set(Duration::ZERO);
                Left::Time(until.saturating_sub(thread_time()), then)
            }
            (None, None) => Left::Nothing,
        }
    }

    fn set(&self, time: Duration) {
        let none = timespec(Duration::ZERO);
        let setting = libc::itimerspec { it_interval: none, it_value: timespec(time) };
        // SAFETY: the timer is ours, `setting` is only read, and the old setting is not asked for. It cannot fail then.
        let _ = call::once(|| unsafe { libc::timer_settime(self.timer, 0, &setting, std::ptr::null_mut()) });
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        *self.state.inner.lock() = Inner::default();
        // SAFETY: the timer is ours and not used any more.
        let _ = call::once(|| unsafe { libc::timer_delete(self.timer) });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::thread::scheduling;

    /// Uses processor time until `done` or so much is used.
    fn spin(most: Duration, done: impl Fn() -> bool) -> Duration {
        let begun = thread_time();
        while !done() && thread_time() - begun < most {}
        thread_time() - begun
    }

    #[test]
    fn a_thread_is_lowered_when_it_has_used_its_allowance_and_not_before() {
        let top = *Scheduling::PRIORITIES.end();
        let overseer = Overseer::start("overseer", Scheduling::Fifo(top)).expect("SCHED_FIFO is permitted");
        let body = move || {
            let mut allowance = Allowance::of_this_thread(&overseer).unwrap();
            assert_eq!(allowance.end(), Left::Nothing);
            let time = Duration::from_millis(5);
            allowance.give(time, Scheduling::Fifo(2));
            let is_low = || scheduling(None).unwrap() == Scheduling::Fifo(2);
            let used = spin(Duration::from_secs(2), is_low);
            assert!(is_low() && used + Duration::from_millis(1) > time, "{used:?}");
            assert_eq!(allowance.end(), Left::Lowered(Scheduling::Fifo(2)));
            set_scheduling(None, Scheduling::Fifo(5)).unwrap();
            // What is waited, or comes after the end, is not used.
            allowance.give(Duration::from_millis(50), Scheduling::Fifo(2));
            std::thread::sleep(Duration::from_millis(60));
            assert!(
                matches!(allowance.end(), Left::Time(left, Scheduling::Fifo(2)) if left > Duration::from_millis(20))
            );
            spin(Duration::from_millis(60), || false);
            assert_eq!(scheduling(None).unwrap(), Scheduling::Fifo(5));
        };
        Builder::new().scheduling(Scheduling::Fifo(5)).spawn(body).unwrap().join().unwrap();
    }

    #[test]
    fn numbers_of_ended_threads_are_used_again() {
        let overseer = Overseer::start("overseer", Scheduling::Other).unwrap();
        for _ in 0..3 {
            drop(Allowance::of_this_thread(&overseer).unwrap());
        }
        assert_eq!(overseer.shared.allowances.lock().len(), 1);
    }
}
