//! The tests of the benchmark `switch`: the work of the two threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use corelane_sys::clock;
use corelane_sys::lock::{Mutex, MutexGuard, PiMutex, PiMutexGuard};
use corelane_sys::semaphore::Semaphore;
use corelane_sys::thread::JoinHandle;

use super::stage::{SwitchSetting, WakeMechanism};
use crate::Failure;
use crate::harness::MeasuredSubject;
use crate::sample::{Samples, time_calls};

const BLOCKED: Duration = Duration::from_micros(50);

/// Pause of a thread of fixed priority after a turn, so that other threads get the core.
const REST: Duration = Duration::from_millis(2);

fn rest(stage: SwitchSetting) {
    if stage.priority.is_some() {
        thread::sleep(REST);
    }
}

fn started<T>(thread: std::io::Result<T>) -> Result<T, Failure> {
    thread.map_err(|error| Failure::new(format!("the second thread cannot be started: {error}")))
}

fn ended<T: 'static>(thread: JoinHandle<T>) -> Result<T, Failure> {
    thread.join().map_err(|_| Failure::new("the second thread panicked"))
}

pub(crate) struct Yielders {
    pub(crate) stage: SwitchSetting,
}

impl MeasuredSubject for Yielders {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let shared = Arc::new((AtomicBool::new(false), AtomicUsize::new(0)));
        let other = {
            let shared = shared.clone();
            started(self.stage.builder(true).spawn(move || {
                while !shared.0.load(Ordering::Relaxed) {
                    shared.1.fetch_add(1, Ordering::Relaxed);
                    thread::yield_now();
                }
            }))?
        };
        for _ in 0..warm_up.max(1) {
            thread::yield_now();
        }
        let before = shared.1.load(Ordering::Relaxed);
        let whole = time_calls(count, into, || {
            thread::yield_now();
            Ok(())
        });
        let turns = shared.1.load(Ordering::Relaxed) - before;
        shared.0.store(true, Ordering::Relaxed);
        ended(other)?;
        rest(self.stage);
        if self.stage.preempts() && turns < count / 2 {
            return Err(Failure::new(format!(
                "the other thread ran {turns} times while this one yielded {count} times"
            )));
        }
        whole
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}

struct End {
    waker: WakeMechanism,
    semaphore: Semaphore,
    token: AtomicU32,
}

impl End {
    fn new(waker: WakeMechanism) -> Self {
        End { waker, semaphore: Semaphore::new(), token: AtomicU32::new(0) }
    }

    #[inline]
    fn wake(&self, thread: &Thread) {
        match self.waker {
            WakeMechanism::Semaphore => self.semaphore.post(),
            WakeMechanism::Futex => {
                self.token.store(1, Ordering::Release);
                thread.unpark();
            }
        }
    }

    #[inline]
    fn wait(&self) {
        match self.waker {
            WakeMechanism::Semaphore => self.semaphore.wait(),
            WakeMechanism::Futex => {
                while self.token.swap(0, Ordering::Acquire) == 0 {
                    thread::park();
                }
            }
        }
    }
}

/// A thread that wakes a second thread. A second thread that cannot preempt the first wakes the
/// first in turn.
pub(crate) struct WakingPair {
    pub(crate) stage: SwitchSetting,
    pub(crate) waker: WakeMechanism,
}

struct EndPair {
    there: End,
    back: End,
    stop: AtomicBool,
    turns: AtomicUsize,
}

impl MeasuredSubject for WakingPair {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let (there, back) = (End::new(self.waker), End::new(self.waker));
        let pair = Arc::new(EndPair { there, back, stop: AtomicBool::new(false), turns: AtomicUsize::new(0) });
        let answers = !self.stage.preempts();
        let (other, here) = (pair.clone(), thread::current());
        let second = started(self.stage.builder(false).spawn(move || {
            loop {
                other.there.wait();
                if other.stop.load(Ordering::Relaxed) {
                    return;
                }
                other.turns.fetch_add(1, Ordering::Relaxed);
                if answers {
                    other.back.wake(&here);
                }
            }
        }))?;
        let once = || {
            pair.there.wake(second.thread());
            if answers {
                pair.back.wait();
            }
            Ok::<(), Failure>(())
        };
        for _ in 0..warm_up {
            once()?;
        }
        let before = pair.turns.load(Ordering::Relaxed);
        let whole = time_calls(count, into, once);
        let turns = pair.turns.load(Ordering::Relaxed) - before;
        pair.stop.store(true, Ordering::Relaxed);
        pair.there.wake(second.thread());
        ended(second)?;
        rest(self.stage);
        if turns < count {
            return Err(Failure::new(format!("the other thread ran {turns} times when it was woken {count} times")));
        }
        whole
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}

pub(crate) trait Lock: Send + Sync + 'static {
    type Guard<'a>;
    fn take(&self) -> Self::Guard<'_>;
}

impl Lock for Mutex<()> {
    type Guard<'a> = MutexGuard<'a, ()>;
    fn take(&self) -> Self::Guard<'_> {
        self.lock()
    }
}

impl Lock for PiMutex<()> {
    type Guard<'a> = PiMutexGuard<'a, ()>;
    fn take(&self) -> Self::Guard<'_> {
        self.lock()
    }
}

pub(crate) struct LockHandover<L> {
    stage: SwitchSetting,
    shared: Arc<Locked<L>>,
}

struct Locked<L> {
    lock: L,
    begin: Semaphore,
    /// Posted when the second thread has released the lock.
    done: Semaphore,
    /// The second thread stores true, with release, just before it takes the lock. The first thread
    /// loads with acquire.
    asks: AtomicBool,
    /// Time in nanoseconds at which the second thread got the lock; stored with release and loaded
    /// with acquire.
    had: AtomicU64,
    stop: AtomicBool,
}

impl<L: Lock> LockHandover<L> {
    pub(crate) fn new(stage: SwitchSetting, lock: L) -> Self {
        let shared = Locked {
            lock,
            begin: Semaphore::new(),
            done: Semaphore::new(),
            asks: AtomicBool::new(false),
            had: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        };
        LockHandover { stage, shared: Arc::new(shared) }
    }

    fn once(&self) -> u64 {
        let shared = &self.shared;
        shared.asks.store(false, Ordering::Relaxed);
        let guard = shared.lock.take();
        shared.begin.post();
        if !(self.stage.preempts() && shared.asks.load(Ordering::Acquire)) {
            while !shared.asks.load(Ordering::Acquire) {
                thread::yield_now();
            }
            thread::sleep(BLOCKED);
        }
        let released = clock::now().as_nanos();
        drop(guard);
        shared.done.wait();
        shared.had.load(Ordering::Acquire).saturating_sub(released)
    }
}

impl<L: Lock> MeasuredSubject for LockHandover<L> {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let shared = self.shared.clone();
        shared.stop.store(false, Ordering::Relaxed);
        let second = started(self.stage.builder(false).spawn(move || {
            loop {
                shared.begin.wait();
                if shared.stop.load(Ordering::Relaxed) {
                    return;
                }
                shared.asks.store(true, Ordering::Release);
                let guard = shared.lock.take();
                shared.had.store(clock::now().as_nanos(), Ordering::Release);
                drop(guard);
                shared.done.post();
            }
        }))?;
        for _ in 0..warm_up {
            self.once();
        }
        let began = clock::now();
        for _ in 0..count {
            into.push(self.once());
        }
        let whole = began.elapsed();
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.begin.post();
        ended(second)?;
        rest(self.stage);
        Ok(whole)
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}

type Work = dyn FnMut(usize, &mut Samples) -> Result<Duration, Failure> + Send;

pub(crate) struct SingleThread {
    stage: SwitchSetting,
    work: Box<Work>,
}

impl SingleThread {
    pub(crate) fn yielding(stage: SwitchSetting) -> Self {
        let work = |count, into: &mut Samples| {
            time_calls(count, into, || {
                thread::yield_now();
                Ok(())
            })
        };
        SingleThread { stage, work: Box::new(work) }
    }

    pub(crate) fn waking(stage: SwitchSetting, waker: WakeMechanism) -> Self {
        let end = End::new(waker);
        let work = move |count, into: &mut Samples| {
            let here = thread::current();
            time_calls(count, into, || {
                end.wake(&here);
                end.wait();
                Ok(())
            })
        };
        SingleThread { stage, work: Box::new(work) }
    }

    pub(crate) fn locking<L: Lock>(stage: SwitchSetting, lock: L) -> Self {
        let work = move |count, into: &mut Samples| {
            time_calls(count, into, || {
                drop(lock.take());
                Ok(())
            })
        };
        SingleThread { stage, work: Box::new(work) }
    }
}

impl MeasuredSubject for SingleThread {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        (self.work)(warm_up, &mut Samples::with_capacity(warm_up))?;
        let whole = (self.work)(count, into);
        rest(self.stage);
        whole
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}
