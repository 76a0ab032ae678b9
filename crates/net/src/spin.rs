//! Polling for a bounded time before a thread sleeps.
//!
//! Polling *helps* in a wait if data arrives before the polling ends. It then saves a wake-up by
//! the peer; in any case it costs processor time. A [`SpinPolicy`] states whether the threads that
//! read a stream may poll.
//!
//! Under every policy, one wait polls for at most the policy's time, and fewer threads of a process
//! poll at the same time than the machine has cores.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::thread;

/// Policy for how long threads that read a stream poll before they sleep.
///
/// A time above [`SpinPolicy::MAX_SPIN`] counts as `MAX_SPIN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpinPolicy {
    /// Threads sleep at once.
    Never,
    /// Threads poll as long as polling helps in enough of their waits, if the peer runs on another
    /// core or machine. Threads with a fixed priority or a reservation (SCHED_FIFO, SCHED_RR,
    /// SCHED_DEADLINE) sleep at once.
    Adaptive {
        /// Maximum time for which a thread polls in one wait.
        max_spin: Duration,
    },
    /// Threads poll in each wait unless too many threads of the process poll already, in every
    /// scheduling class and even if polling has never helped. Over shared memory they poll only if
    /// the peer was last seen on another core.
    Always {
        /// Maximum time for which a thread polls in one wait.
        max_spin: Duration,
    },
}

impl SpinPolicy {
    /// Maximum time of polling in one wait, under every policy.
    pub const MAX_SPIN: Duration = Duration::from_millis(100);

    /// The policy of sockets whose policy was not set: adaptive, for at most 50 us.
    pub const DEFAULT: Self = SpinPolicy::Adaptive { max_spin: Duration::from_micros(50) };

    fn encode(self) -> u64 {
        let nanos = |time: Duration| u64::try_from(time.min(Self::MAX_SPIN).as_nanos()).unwrap_or(0) * 2;
        match self {
            SpinPolicy::Adaptive { max_spin } => nanos(max_spin),
            SpinPolicy::Always { max_spin } if !max_spin.is_zero() => nanos(max_spin) | 1,
            SpinPolicy::Never | SpinPolicy::Always { .. } => 0,
        }
    }
}

const FULL_SUCCESS: u32 = 1024;
/// Minimum success (of [`FULL_SUCCESS`]) for polling in every wait. With less success, a thread
/// polls in one of many waits.
const MIN_SUCCESS: u32 = FULL_SUCCESS / 4;
/// Number of waits between two attempts to poll after an attempt that helped. The number doubles
/// with each failed attempt, up to `MAX_RETRY_INTERVAL`.
const MIN_RETRY_INTERVAL: u32 = 64;
const MAX_RETRY_INTERVAL: u32 = 4096;
/// Time after which a thread that finds message after message by polling yields its core.
const YIELD_INTERVAL: Duration = Duration::from_micros(100);
/// Duration of a yield above which another thread has probably run.
const MAX_IDLE_YIELD: Duration = Duration::from_micros(3);
const POLLS_PER_CLOCK_READ: u32 = 64;
/// Number of polling rounds without the processor's pause instruction, which would delay an answer
/// that arrives soon.
const ROUNDS_WITHOUT_PAUSE: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextWait {
    Sleep,
    Spin(Duration),
    /// Poll for at most this time if the peer runs on another core or machine.
    Try(Duration),
}

/// The policy of one direction of a stream, with the success of polling so far.
pub(crate) struct AdaptiveSpin {
    policy: AtomicU64,
    success: AtomicU32,
    /// Number of waits until the next attempt to poll.
    waits_left: AtomicU32,
    retry_interval: AtomicU32,
    /// Time in nanoseconds of the monotonic clock at which the reading thread last yielded its
    /// core, or began to find messages by polling. Zero if its last wait slept.
    awake_since: AtomicU64,
}

impl fmt::Debug for AdaptiveSpin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdaptiveSpin")
    }
}

impl AdaptiveSpin {
    /// Creates the state of a direction for which polling is assumed to help.
    pub(crate) fn new(policy: SpinPolicy) -> Self {
        AdaptiveSpin { success: AtomicU32::new(FULL_SUCCESS / 2), ..Self::untried(policy) }
    }

    /// Creates the state of a direction whose first wait is [`NextWait::Try`].
    pub(crate) fn untried(policy: SpinPolicy) -> Self {
        AdaptiveSpin {
            policy: AtomicU64::new(policy.encode()),
            success: AtomicU32::new(0),
            waits_left: AtomicU32::new(0),
            retry_interval: AtomicU32::new(MIN_RETRY_INTERVAL),
            awake_since: AtomicU64::new(0),
        }
    }

    pub(crate) fn set_policy(&self, policy: SpinPolicy) {
        self.policy.store(policy.encode(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_allowed(&self) -> bool {
        self.policy.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn next_wait(&self) -> NextWait {
        let policy = self.policy.load(Ordering::Relaxed);
        let max_spin = Duration::from_nanos(policy / 2);
        if policy & 1 != 0 {
            return NextWait::Spin(max_spin);
        }
        if policy == 0 || thread::native_priority() > 0 {
            return NextWait::Sleep;
        }
        if self.success.load(Ordering::Relaxed) >= MIN_SUCCESS {
            return NextWait::Spin(max_spin);
        }
        let left = self.waits_left.load(Ordering::Relaxed);
        if left > 0 {
            self.waits_left.store(left - 1, Ordering::Relaxed);
            return NextWait::Sleep;
        }
        NextWait::Try(max_spin)
    }

    /// Makes the next wait poll, and later waits as long as polling helps.
    pub(crate) fn encourage(&self) {
        self.success.store(MIN_SUCCESS, Ordering::Relaxed);
    }

    /// Begins a wait that may poll. Returns `None` if the policy, the success of earlier polling,
    /// or the peer's core forbids polling, or if too many threads poll.
    pub(crate) fn begin(&self, is_peer_elsewhere: impl FnOnce() -> bool) -> Option<SpinWait<'_>> {
        let max_spin = match self.next_wait() {
            NextWait::Sleep => return None,
            NextWait::Spin(max_spin) => max_spin,
            NextWait::Try(max_spin) => {
                if !is_peer_elsewhere() {
                    self.record(false);
                    return None;
                }
                self.encourage();
                max_spin
            }
        };
        let (permit, begun) = self.begin_polling()?;
        Some(SpinWait { adaptive: self, started_at: begun, end: begun + max_spin, _permit: permit })
    }

    /// Acquires a permit to poll, and returns it with the present time. Returns `None` if too many
    /// threads poll, or if another thread waited for this core.
    ///
    /// A thread that finds message after message never sleeps, and would keep other threads from
    /// its core until the kernel's next tick. So it yields the core now and then.
    #[inline]
    pub(crate) fn begin_polling(&self) -> Option<(SpinPermit, Monotonic)> {
        let now = Monotonic::now();
        // Relaxed: the time publishes no other data.
        let now = match self.awake_since.load(Ordering::Relaxed) {
            0 => {
                self.awake_since.store(now.as_nanos(), Ordering::Relaxed);
                now
            }
            since if now.since(Monotonic::from_nanos(since)) < YIELD_INTERVAL => now,
            _ => self.yield_core(now)?,
        };
        Some((SpinPermit::acquire()?, now))
    }

    /// Yields the core, and returns the present time. Returns `None` if another thread has run and
    /// the policy is adaptive: polling would delay that thread again.
    #[cold]
    fn yield_core(&self, begun: Monotonic) -> Option<Monotonic> {
        if thread::native_priority() > 0 {
            // A yield would reorder threads of equal priority, and end the period of a reservation.
            // So the thread keeps its core.
            return Some(begun);
        }
        let now = after_yield(begun);
        self.awake_since.store(now.as_nanos(), Ordering::Relaxed);
        let is_adaptive = self.policy.load(Ordering::Relaxed) & 1 == 0;
        if is_adaptive && now.since(begun) > MAX_IDLE_YIELD {
            self.success.store(0, Ordering::Relaxed);
            self.record(false);
            return None;
        }
        Some(now)
    }

    /// Records whether polling helped in a wait.
    pub(crate) fn record(&self, helped: bool) {
        if !helped {
            self.awake_since.store(0, Ordering::Relaxed);
        }
        let success = self.success.load(Ordering::Relaxed);
        let success = success - success / 8 + if helped { FULL_SUCCESS / 8 } else { 0 };
        self.success.store(success, Ordering::Relaxed);
        if helped {
            self.retry_interval.store(MIN_RETRY_INTERVAL, Ordering::Relaxed);
        } else if success < MIN_SUCCESS {
            let interval = self.retry_interval.load(Ordering::Relaxed);
            self.waits_left.store(interval, Ordering::Relaxed);
            self.retry_interval.store((2 * interval).min(MAX_RETRY_INTERVAL), Ordering::Relaxed);
        }
    }

    /// Calls `is_there` until it returns true, for at most the policy's time. Returns false after
    /// this time, and at once if the thread must not poll. The caller must know that the peer runs
    /// on another core.
    #[inline]
    pub(crate) fn spin_until(&self, is_there: impl Fn() -> bool) -> bool {
        self.is_allowed() && self.spin_if_worthwhile(is_there)
    }

    fn spin_if_worthwhile(&self, is_there: impl Fn() -> bool) -> bool {
        let (NextWait::Spin(max_spin) | NextWait::Try(max_spin)) = self.next_wait() else { return false };
        let Some((_permit, now)) = self.begin_polling() else { return false };
        let end = now + max_spin;
        let mut rounds = 0;
        let is_found = loop {
            if (0..POLLS_PER_CLOCK_READ).any(|_| {
                if rounds >= ROUNDS_WITHOUT_PAUSE {
                    std::hint::spin_loop();
                }
                is_there()
            }) {
                break true;
            }
            rounds += 1;
            if end.is_past() {
                break false;
            }
        };
        self.record(is_found);
        is_found
    }
}

/// Yields the core to other threads, and returns the time afterwards.
#[cfg(not(test))]
fn after_yield(_begun: Monotonic) -> Monotonic {
    std::thread::yield_now();
    Monotonic::now()
}

#[cfg(test)]
fn after_yield(begun: Monotonic) -> Monotonic {
    begun + tests::YIELD.get()
}

/// A wait during which the calling thread may poll until [`is_over`](Self::is_over) returns true.
#[derive(Debug)]
pub struct SpinWait<'s> {
    adaptive: &'s AdaptiveSpin,
    started_at: Monotonic,
    end: Monotonic,
    _permit: SpinPermit,
}

impl SpinWait<'_> {
    /// Returns the time at which the wait began.
    #[must_use]
    pub fn started_at(&self) -> Monotonic {
        self.started_at
    }

    /// Returns true if the time for polling is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.end.is_past()
    }

    /// Ends the wait, and records whether the thread found data by polling.
    pub fn finish(self, is_found: bool) {
        // Data that arrives after the limit counts as a failure: the polling may have delayed the
        // thread that sends it.
        self.adaptive.record(is_found && !self.is_over());
    }
}

static SPINNING: AtomicUsize = AtomicUsize::new(0);

/// A permit to poll. A process has one permit fewer than the machine has cores.
#[derive(Debug)]
pub(crate) struct SpinPermit(());

impl SpinPermit {
    #[inline]
    pub(crate) fn acquire() -> Option<Self> {
        static LIMIT: OnceLock<usize> = OnceLock::new();
        let limit = *LIMIT.get_or_init(|| thread::online_cores().saturating_sub(1));
        // Relaxed: the counter publishes no other data.
        let taken =
            SPINNING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < limit).then_some(taken + 1));
        taken.is_ok().then(|| SpinPermit(()))
    }
}

impl Drop for SpinPermit {
    #[inline]
    fn drop(&mut self) {
        SPINNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the number of threads of this process that poll at this moment.
pub fn spinning_thread_count() -> usize {
    SPINNING.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use corelane_sys::lock::{LockScope, Mutex};

    use super::*;

    const SHORT: Duration = Duration::from_nanos(1);

    std::thread_local! {
        /// Duration of each yield of a test's thread.
        pub(super) static YIELD: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// Begins a wait as if the last yield were long past.
    fn polls_after_interval(spin: &AdaptiveSpin) -> bool {
        spin.awake_since.store(1, Ordering::Relaxed);
        spin.spin_until(|| true)
    }

    #[test]
    fn stream_is_not_polled_while_other_threads_want_the_core() {
        let _alone = ALONE.lock();
        if thread::online_cores() == 1 {
            return;
        }
        let spin = AdaptiveSpin::new(SpinPolicy::Adaptive { max_spin: SHORT });
        assert!((0..100).all(|_| polls_after_interval(&spin)));
        YIELD.set(MAX_IDLE_YIELD + SHORT);
        // The number of waits between two attempts doubles: 64, 128, 256, ...
        let waits_until_attempt = || {
            let wait = || spin.next_wait() == NextWait::Sleep;
            assert!(!polls_after_interval(&spin));
            std::iter::repeat_with(wait).take_while(|sleeps| *sleeps).count()
        };
        assert_eq!([(); 3].map(|()| waits_until_attempt()), [64, 128, 256]);
        YIELD.set(MAX_IDLE_YIELD);
        assert!(polls_after_interval(&spin));
        spin.set_policy(SpinPolicy::Always { max_spin: SHORT });
        YIELD.set(2 * MAX_IDLE_YIELD);
        assert!((0..100).all(|_| polls_after_interval(&spin)));
    }

    fn polls(spin: &AdaptiveSpin, is_there: bool) -> usize {
        let polls = |_: &i32| {
            let polled = Cell::new(false);
            spin.spin_until(|| {
                polled.set(true);
                is_there
            });
            polled.get()
        };
        (0..1000).filter(polls).count()
    }

    // The tests of this file run one after the other, because they need the few permits of the
    // process.
    static ALONE: Mutex<()> = Mutex::new("tests of polling", LockScope::Lane, ());

    #[test]
    fn spinning_stops_when_useless_and_resumes_when_useful() {
        let _alone = ALONE.lock();
        if thread::online_cores() == 1 {
            return;
        }
        let spin = AdaptiveSpin::new(SpinPolicy::Adaptive { max_spin: SHORT });
        assert!(polls(&spin, false) < 20);
        assert!(polls(&spin, false) < 3);
        let resumed = (0..10).position(|_| polls(&spin, true) == 1000);
        assert!(resumed.is_some_and(|thousands| thousands <= 4), "{resumed:?}");
        assert_eq!(polls(&AdaptiveSpin::new(SpinPolicy::Never), true), 0);
        spin.set_policy(SpinPolicy::Never);
        assert_eq!(polls(&spin, true), 0);
        spin.set_policy(SpinPolicy::Always { max_spin: SHORT });
        assert_eq!(polls(&spin, false), 1000);
    }

    #[test]
    fn threads_of_fixed_priority_spin_only_if_always() {
        let _alone = ALONE.lock();
        let next = |policy| {
            let decide = move || {
                let spin = AdaptiveSpin::new(policy);
                thread::set_scheduling(None, thread::Scheduling::Fifo(1)).ok().map(|()| spin.next_wait())
            };
            std::thread::spawn(decide).join().unwrap()
        };
        // The machine may not permit fixed priorities; then the test ends here.
        let Some(adaptive) = next(SpinPolicy::Adaptive { max_spin: SHORT }) else { return };
        assert_eq!(adaptive, NextWait::Sleep);
        assert_eq!(next(SpinPolicy::Always { max_spin: SHORT }), Some(NextWait::Spin(SHORT)));
    }

    #[test]
    fn fewer_threads_than_cores_spin_at_once() {
        let _alone = ALONE.lock();
        let mut permits = Vec::new();
        while let Some(permit) = SpinPermit::acquire() {
            permits.push(permit);
            assert!(permits.len() < thread::online_cores());
        }
        assert_eq!(permits.len(), thread::online_cores() - 1);
        permits.pop();
        assert_eq!(SpinPermit::acquire().is_some(), thread::online_cores() > 1);
    }

    #[test]
    fn spin_time_is_bounded() {
        let longest = SpinPolicy::Always { max_spin: Duration::MAX };
        assert_eq!(AdaptiveSpin::new(longest).next_wait(), NextWait::Spin(SpinPolicy::MAX_SPIN));
        assert!(!AdaptiveSpin::new(SpinPolicy::Always { max_spin: Duration::ZERO }).is_allowed());
        assert!(!AdaptiveSpin::new(SpinPolicy::Adaptive { max_spin: Duration::ZERO }).is_allowed());
    }
}
