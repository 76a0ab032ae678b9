//! The budget of a stream in received bytes, which all connections of the stream share.
//!
//! A connection reserves bytes before it reads, and then returns the bytes that it did not read.
//! Bytes count in the period in which they were reserved. To read the end of a connection, no bytes
//! of the budget are needed.

use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_sched::task::Nanos;
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, PiCondvar, PiMutex, PiMutexGuard};
use corelane_sys::thread::{CpuSet, JoinHandle, Scheduling, ThreadBuilder};

use crate::budget::{Budget, BudgetError, BudgetServerKind, BudgetState};
use crate::turns::{BudgetCounts, Seat, SharedBudget};

pub(crate) type Clock = fn() -> Nanos;

pub(crate) fn monotonic() -> Nanos {
    Monotonic::now().as_nanos()
}

pub(crate) trait Throttled: Send + Sync {
    /// Makes the kernel report the unread bytes of the connection's socket again, as a new edge for
    /// edge-triggered epoll instances.
    fn report_unread_bytes(&self);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reservation {
    Granted { bytes: usize, period: u64 },
    Exhausted { next_period: Nanos },
}

struct State {
    budget: SharedBudget<Weak<dyn Throttled>>,
    is_stopping: bool,
}

struct Shared {
    clock: Clock,
    state: PiMutex<State>,
    /// Notified when the first connection waits, and when the thread must end.
    changed: PiCondvar,
}

pub(crate) struct ByteBudget {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl ByteBudget {
    /// Starts the first period, and a thread that divides the bytes of each later period among the
    /// waiting connections (module `turns`). `thread` is the name, the scheduling and the preferred
    /// cores of the thread. Without a thread, bytes are divided only when a connection calls a
    /// method.
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
        let state = State { budget: SharedBudget::new(budget), is_stopping: false };
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

    pub(crate) fn join(&self, connection: Weak<dyn Throttled>) -> Seat {
        self.shared.state.lock().budget.join(connection)
    }

    pub(crate) fn leave(&self, seat: Seat) {
        let mut state = self.shared.state.lock();
        state.budget.leave(seat, (self.shared.clock)());
        self.shared.report(state);
    }

    pub(crate) fn reserve(&self, seat: Seat, wanted: usize) -> Reservation {
        let mut state = self.shared.state.lock();
        let reservation = match state.budget.reserve(seat, wanted, (self.shared.clock)()) {
            Some((bytes, period)) => Reservation::Granted { bytes, period },
            None => Reservation::Exhausted { next_period: state.budget.next_period_at() },
        };
        self.shared.report(state);
        reservation
    }

    /// Returns to the budget the reserved bytes that have not arrived, and ends the connection's
    /// turn (module `turns`). If `period` has passed, the bytes are lost, and a turn in a later
    /// period continues.
    pub(crate) fn give_back(&self, seat: Seat, bytes: usize, period: u64) {
        let mut state = self.shared.state.lock();
        state.budget.give_back(seat, bytes, period, (self.shared.clock)());
        self.shared.report(state);
    }

    /// Requests a turn for the connection: a share of the bytes that become free next (module
    /// `turns`). Returns false, and requests nothing, if the connection can reserve bytes now.
    pub(crate) fn wait(&self, seat: Seat) -> bool {
        let mut state = self.shared.state.lock();
        let was_idle = !state.budget.has_waiting();
        let waits = state.budget.wait(seat, (self.shared.clock)());
        let is_first = was_idle && state.budget.has_waiting();
        self.shared.report(state);
        if is_first {
            self.shared.changed.notify_one();
        }
        waits
    }

    /// Returns the use of the budget. Unlike the other methods, it gives no waiting connection its
    /// turn (module `turns`), because the caller may have an ordinary priority.
    pub(crate) fn counts(&self) -> BudgetCounts {
        self.shared.state.lock().budget.counts((self.shared.clock)())
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.is_stopping {
            if !state.budget.has_waiting() {
                state = self.changed.wait(state);
                continue;
            }
            let (now, due) = ((self.clock)(), state.budget.next_period_at());
            if now < due {
                state = self.changed.wait_until(state, Some(Monotonic::from_nanos(due))).0;
                continue;
            }
            state.budget.begin_period(now);
            self.report(state);
            state = self.state.lock();
        }
    }

    /// Makes the kernel report the unread bytes of the connections whose turns have begun (module
    /// `turns`). The lock is released before each report, because dropping the last pointer to a
    /// connection calls [`ByteBudget::leave`].
    fn report<'a>(&'a self, mut state: PiMutexGuard<'a, State>) {
        while let Some(connection) = state.budget.next_report() {
            drop(state);
            if let Some(connection) = connection.upgrade() {
                connection.report_unread_bytes();
            }
            state = self.state.lock();
        }
    }
}

impl Drop for ByteBudget {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.state.lock().is_stopping = true;
        self.shared.changed.notify_all();
        // If the thread itself has dropped the last pointer to a connection, it runs this function.
        // A thread cannot join itself.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for ByteBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ByteBudget({:?})", self.shared.state.lock().budget.budget())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Reported(AtomicU32);

    impl Throttled for Reported {
        fn report_unread_bytes(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn bytes_that_become_free_within_a_period_are_reported_at_once() {
        let budget = ByteBudget::start(4_000, Duration::from_secs(3_600), || 0, None).unwrap();
        let connections = [0; 2].map(|_| Arc::new(Reported::default()));
        let [first, second] = connections.each_ref().map(|connection| {
            let connection: Weak<Reported> = Arc::downgrade(connection);
            budget.join(connection)
        });
        let reports = || connections[1].0.load(Ordering::Relaxed);
        let granted = Reservation::Granted { bytes: 4_000, period: 0 };
        assert_eq!(budget.reserve(first, 9_000), granted);
        assert_eq!(budget.reserve(second, 1), Reservation::Exhausted { next_period: 3_600_000_000_000 });
        assert!(budget.wait(second));
        assert_eq!((reports(), budget.counts().waiting_connections), (0, 1));
        budget.give_back(first, 10, 0);
        assert_eq!((reports(), budget.counts().waiting_connections), (1, 0));
        assert_eq!(budget.reserve(second, 9_000), Reservation::Granted { bytes: 10, period: 0 });
    }
}
