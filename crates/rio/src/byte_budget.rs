//! The budget of a stream in received bytes, which all connections of the stream share.
//!
//! A connection reserves bytes before it reads, and gives back the bytes that it did not read. So
//! the connections together never read more than the budget in a period. Only the last bytes of a
//! connection that has ended are read without the budget. Bytes above the budget stay in the
//! kernel's receive buffers, and TCP makes the peers wait.
//!
//! A connection that finds the budget used up is listed. At the start of the next period the thread
//! of the stream makes the kernel report the unread bytes of every listed connection.

use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_sched::task::Nanos;
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, PiCondvar, PiMutex};
use corelane_sys::thread::{CpuSet, JoinHandle, Scheduling, ThreadBuilder};

use crate::budget::{Budget, BudgetError, BudgetServerKind, BudgetState};

/// A clock for periods, which tests replace.
pub(crate) type Clock = fn() -> Nanos;

/// Returns the time of the monotonic clock.
pub(crate) fn monotonic() -> Nanos {
    Monotonic::now().as_nanos()
}

/// A connection that the stream's thread can make report its unread bytes.
pub(crate) trait Throttled: Send + Sync {
    /// Makes the kernel report the unread bytes.
    fn report_unread_bytes(&self);
}

/// Result of [`ByteBudget::reserve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reservation {
    /// The connection may read up to this number of bytes, at least 1.
    Granted {
        /// Number of bytes.
        bytes: usize,
        /// Number of the period to which the bytes belong.
        period: u64,
    },
    /// No bytes are left before this time.
    Exhausted {
        /// Start of the next period.
        next_period: Nanos,
    },
}

struct State {
    budget: BudgetState,
    throttled: Vec<Weak<dyn Throttled>>,
    is_stopping: bool,
}

struct Shared {
    clock: Clock,
    state: PiMutex<State>,
    /// Notified when a connection is listed, and when the thread must end.
    changed: PiCondvar,
}

/// The budget with its thread. The thread ends when this value is dropped.
pub(crate) struct ByteBudget {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl ByteBudget {
    /// Starts the first period, and the stream's thread with the given name, scheduling and cores.
    /// Without a thread, the bytes of listed connections are not reported.
    ///
    /// # Errors
    /// [`BudgetError`] as an `InvalidInput` error; the error of a thread that cannot start.
    pub(crate) fn start(
        bytes: u32,
        period: Duration,
        clock: Clock,
        thread: Option<(&str, Option<Scheduling>, Option<CpuSet>)>,
    ) -> std::io::Result<Self> {
        let invalid = |error: BudgetError| std::io::Error::new(std::io::ErrorKind::InvalidInput, error);
        let period = Nanos::try_from(period.as_nanos()).unwrap_or(Nanos::MAX);
        let budget = Budget::of_bytes(bytes.into(), period);
        let budget = BudgetState::new(budget, BudgetServerKind::Deferrable, clock()).map_err(invalid)?;
        let state = State { budget, throttled: Vec::new(), is_stopping: false };
        let state = PiMutex::new("budget of a stream", LockScope::Lane, state);
        let shared = Arc::new(Shared { clock, state, changed: PiCondvar::new() });
        let thread = match thread {
            None => None,
            Some((name, scheduling, cores)) => {
                let shared = Arc::clone(&shared);
                let mut builder = ThreadBuilder::new().name(name).preferred_affinity(cores);
                if let Some(scheduling) = scheduling {
                    builder = builder.scheduling(scheduling);
                }
                Some(builder.spawn(move || shared.run())?)
            }
        };
        Ok(Self { shared, thread })
    }

    /// Reserves up to `wanted` bytes of the current period.
    pub(crate) fn reserve(&self, wanted: usize) -> Reservation {
        let mut state = self.shared.state.lock();
        match state.budget.reserve_bytes(wanted, (self.shared.clock)()) {
            Some((bytes, period)) => Reservation::Granted { bytes, period },
            None => Reservation::Exhausted { next_period: state.budget.next_period_at() },
        }
    }

    /// Gives back reserved bytes that were not read. They are lost if their period has passed.
    pub(crate) fn give_back(&self, bytes: usize, period: u64) {
        if bytes > 0 {
            self.shared.state.lock().budget.return_bytes(bytes, period);
        }
    }

    /// Lists a connection that may have unread bytes, so that the kernel reports these bytes in the
    /// next period. If the budget has bytes again, makes the kernel report them at once.
    pub(crate) fn list(&self, connection: Weak<dyn Throttled>) {
        let mut state = self.shared.state.lock();
        if let Some((bytes, period)) = state.budget.reserve_bytes(1, (self.shared.clock)()) {
            state.budget.return_bytes(bytes, period);
            drop(state);
            if let Some(connection) = connection.upgrade() {
                connection.report_unread_bytes();
            }
            return;
        }
        state.throttled.push(connection);
        drop(state);
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.is_stopping {
            if state.throttled.is_empty() {
                state = self.changed.wait(state);
                continue;
            }
            let due = state.budget.next_period_at();
            if (self.clock)() < due {
                state = self.changed.wait_until(state, Some(Monotonic::from_nanos(due))).0;
                continue;
            }
            self.wake_listed(state);
            state = self.state.lock();
        }
    }

    /// Makes the kernel report the unread bytes of the listed connections. Releases the lock first,
    /// because this function may drop the last pointer to a connection, and so end the connection.
    fn wake_listed(&self, mut state: corelane_sys::lock::PiMutexGuard<'_, State>) {
        let listed = std::mem::take(&mut state.throttled);
        // The period begins for the budget with the next reservation. Until then the thread must
        // not take the old period for the current one.
        if let Some((bytes, period)) = state.budget.reserve_bytes(1, (self.clock)()) {
            state.budget.return_bytes(bytes, period);
        }
        drop(state);
        for connection in listed.iter().filter_map(Weak::upgrade) {
            connection.report_unread_bytes();
        }
    }
}

impl Drop for ByteBudget {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.state.lock().is_stopping = true;
        self.shared.changed.notify_all();
        // The thread itself drops the budget if it held the last pointer to a connection.
        if thread.thread().id() != std::thread::current().id() {
            // `join` fails if the thread panicked. The panic has been reported, so the error is
            // ignored.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for ByteBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ByteBudget({:?})", self.shared.state.lock().budget.budget())
    }
}
