//! The context of a thread, in thread-local variables: the lane that the thread serves, its native
//! priority and its current request.
//!
//! Invariant: only the thread itself writes its context, and it records only changes that it has
//! made.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "core-pool")]
use corelane_sched::Priority;
use corelane_sys::thread::{self, Scheduling};

/// The id of a Real-time CORBA thread pool in its ORB (`RTCORBA::ThreadpoolId`). Ids are never used
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadpoolId(u32);

impl ThreadpoolId {
    pub(crate) fn from_number(number: u32) -> Self {
        ThreadpoolId(number)
    }

    /// Returns the id as a number.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// Pool number of a thread that belongs to the application.
const NO_POOL: u32 = u32::MAX;
/// Pool number of all pools that the ORB's builder made.
pub(crate) const DEFAULT_POOL: u32 = 0;

/// The lane that a thread serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneIdentity {
    /// Stamp of the lane's ORB.
    pub(crate) stamp: u64,
    pub(crate) pool: u32,
    /// Index of the lane in its pool.
    pub(crate) lane: u32,
    /// CORBA priority of the lane, or the default priority of a pool without lanes. Negative in the
    /// builder's pools, which have no priority.
    pub(crate) priority: i16,
    /// True in a pool with lanes, whose threads never change their priority.
    pub(crate) has_fixed_priority: bool,
    /// True if the thread serves the connection of a task, whose requests run on this thread at its
    /// priority.
    #[cfg(feature = "core-pool")]
    pub(crate) serves_task: bool,
}

const OUTSIDE_LANES: LaneIdentity = LaneIdentity {
    stamp: 0,
    pool: NO_POOL,
    lane: 0,
    priority: -1,
    has_fixed_priority: false,
    #[cfg(feature = "core-pool")]
    serves_task: false,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CurrentRequest {
    /// Id of the request's connection; 0 for a collocated call.
    connection: u64,
    /// Numbers of the pool and lane at which the request arrived.
    arrived_at: (u32, u32),
}

thread_local! {
    /// Stamp of the ORB that started the thread; 0 if no ORB did. No ORB has the stamp 0.
    static OWNER: Cell<u64> = const { Cell::new(0) };
    static SERVED_LANE: Cell<LaneIdentity> = const { Cell::new(OUTSIDE_LANES) };
    static SCHEDULING: Cell<Option<Scheduling>> = const { Cell::new(None) };
    /// Number of writes to `SCHEDULING`, wrapping. Two numbers are cheaper to compare than two
    /// schedulings.
    static SCHEDULING_CHANGES: Cell<u32> = const { Cell::new(0) };
    /// The scheduling that the kernel reported at the thread's first query.
    static INITIAL_SCHEDULING: Cell<Option<Scheduling>> = const { Cell::new(None) };
    static CURRENT_REQUEST: Cell<CurrentRequest> = const { Cell::new(CurrentRequest { connection: 0, arrived_at: (0, 0) }) };
}

/// Marks the calling thread as started by the ORB with this stamp.
pub(crate) fn set_owner(stamp: u64) {
    OWNER.set(stamp);
}

/// Returns true if the ORB with this stamp started the calling thread.
pub(crate) fn is_owned_by(stamp: u64) -> bool {
    OWNER.get() == stamp
}

/// Records that the calling thread serves `lane` with the scheduling `native`. `None` means the
/// scheduling that the thread had at its start.
pub(crate) fn enter_lane(lane: LaneIdentity, native: Option<Scheduling>) {
    SERVED_LANE.set(lane);
    record_scheduling(native);
}

fn record_scheduling(native: Option<Scheduling>) {
    SCHEDULING.set(native);
    SCHEDULING_CHANGES.set(SCHEDULING_CHANGES.get().wrapping_add(1));
}

/// Returns the lane of the calling thread. A thread of another ORB counts as a thread of the
/// application.
pub(crate) fn current_lane(stamp: u64) -> LaneIdentity {
    let identity = SERVED_LANE.get();
    if identity.stamp == stamp { identity } else { OUTSIDE_LANES }
}

/// Returns true if the calling thread belongs to no real-time pool of any ORB.
#[inline]
pub(crate) fn is_outside_rt_pools() -> bool {
    let pool = SERVED_LANE.with(|identity| identity.get().pool);
    pool == DEFAULT_POOL || pool == NO_POOL
}

impl LaneIdentity {
    /// Returns the identity of a lane of the ORB with this stamp that belongs to a pool of the
    /// ORB's builder.
    pub(crate) const fn of_default_pool(stamp: u64) -> Self {
        LaneIdentity { stamp, pool: DEFAULT_POOL, ..OUTSIDE_LANES }
    }

    pub(crate) fn serves(self, pool: u32, lane: usize) -> bool {
        self.pool == pool && usize::try_from(self.lane).is_ok_and(|own| own == lane)
    }

    /// Returns true if a thread of this lane runs requests for POAs without a thread pool.
    pub(crate) fn serves_default_pool(self) -> bool {
        self.pool == DEFAULT_POOL || self.pool == NO_POOL
    }

    pub(crate) fn has_fixed_priority(self) -> bool {
        self.has_fixed_priority
    }

    /// Returns the CORBA priority of the task whose connection the thread serves.
    #[cfg(feature = "core-pool")]
    pub(crate) fn task_priority(self) -> Option<Priority> {
        if self.serves_task { Priority::new(self.priority) } else { None }
    }
}

/// The visit of a borrowed thread to another lane, at the priority of that lane. Dropping the visit
/// restores the lane and priority that the thread had before.
pub(crate) struct LaneVisit(LaneIdentity, SavedScheduling);

impl LaneVisit {
    /// Begins a visit to `lane`, whose threads have the scheduling `native`. With `None` the
    /// calling thread keeps its present scheduling.
    pub(crate) fn begin(lane: LaneIdentity, native: Option<Scheduling>) -> Self {
        let visit = LaneVisit(SERVED_LANE.get(), SavedScheduling::capture());
        enter_lane(lane, SCHEDULING.get());
        if let Some(native) = native {
            // The borrowing lane has already set this scheduling, so the call only records it. If
            // the kernel refuses, the thread keeps its present scheduling.
            let _ = set_scheduling(native);
        }
        visit
    }
}

impl Drop for LaneVisit {
    fn drop(&mut self) {
        self.1.restore();
        SERVED_LANE.set(self.0);
    }
}

/// Returns the calling thread's scheduling: the scheduling that the ORB set, otherwise the
/// scheduling that the kernel reports.
pub(crate) fn current_scheduling() -> io::Result<Scheduling> {
    match SCHEDULING.get() {
        Some(native) => Ok(native),
        None => {
            let native = thread::scheduling(None)?;
            record_scheduling(Some(native));
            INITIAL_SCHEDULING.set(Some(native));
            Ok(native)
        }
    }
}

/// Sets the calling thread's scheduling. Makes no system call if the thread already has this
/// scheduling.
pub(crate) fn set_scheduling(to: Scheduling) -> io::Result<()> {
    if current_scheduling()? != to {
        thread::set_scheduling(None, to)?;
        record_scheduling(Some(to));
    }
    Ok(())
}

/// Returns true if a thread with the scheduling `now` can temporarily get the lower scheduling
/// `to`. Returns false for a SCHED_DEADLINE reservation: the reservation bounds the thread's
/// processor time, and the kernel might not grant it again.
pub(crate) fn can_lower(now: Scheduling, to: Scheduling) -> bool {
    !matches!(now, Scheduling::Deadline(_)) && to.priority() < now.priority()
}

/// Records that the processor-time monitor has lowered the calling thread.
pub(crate) fn record_lowered(to: Scheduling) {
    record_scheduling(Some(to));
}

/// A thread's scheduling at an earlier time, to which it can be restored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedScheduling {
    native: Option<Scheduling>,
    changes: u32,
}

impl SavedScheduling {
    #[inline]
    pub(crate) fn capture() -> Self {
        SavedScheduling { native: SCHEDULING.get(), changes: SCHEDULING_CHANGES.get() }
    }

    #[inline]
    pub(crate) fn restore(self) {
        if SCHEDULING_CHANGES.get() != self.changes {
            self.restore_slow();
        }
    }

    #[cold]
    fn restore_slow(self) {
        // If the scheduling was unknown when it was saved, `current_scheduling` has queried the
        // kernel before the first change.
        if let Some(then) = self.native.or(INITIAL_SCHEDULING.get()) {
            // An error is not expected, because the kernel permitted this scheduling before. The
            // thread would keep its present scheduling until the next change.
            let _ = set_scheduling(then);
        }
    }
}

/// A minimum priority of the calling thread for a scope. Dropping the boost restores the previous
/// scheduling.
pub(crate) struct PriorityBoost(SavedScheduling);

impl PriorityBoost {
    /// Raises the calling thread to the scheduling `least`, unless the thread already has a higher
    /// priority. With `None` nothing changes.
    ///
    /// # Errors
    /// If the kernel refuses the scheduling.
    #[inline]
    pub(crate) fn at_least(least: Option<Scheduling>) -> io::Result<Self> {
        let raised = PriorityBoost(SavedScheduling::capture());
        if let Some(least) = least
            && current_scheduling()?.priority() < least.priority()
        {
            set_scheduling(least)?;
        }
        Ok(raised)
    }
}

impl Drop for PriorityBoost {
    #[inline]
    fn drop(&mut self) {
        self.0.restore();
    }
}

/// A guard for the current request of the calling thread. Dropping the guard restores the previous
/// request.
pub(crate) struct RequestScope(CurrentRequest);

impl RequestScope {
    /// Begins a request of the connection with the id `connection`. `arrived_at` has the numbers of
    /// the pool and lane at which the request arrived.
    #[inline]
    pub(crate) fn begin(connection: u64, arrived_at: (u32, u32)) -> Self {
        RequestScope(CURRENT_REQUEST.replace(CurrentRequest { connection, arrived_at }))
    }
}

impl Drop for RequestScope {
    #[inline]
    fn drop(&mut self) {
        CURRENT_REQUEST.set(self.0);
    }
}

/// The thread, lane and connection that serve a request, for tests and diagnostics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServedBy {
    /// The Real-time CORBA thread pool; `None` for a pool of the ORB's builder, and for a thread of
    /// the application.
    pub threadpool: Option<ThreadpoolId>,
    /// Index of the lane in its pool.
    pub lane: usize,
    /// CORBA priority of the lane, or the default priority of the pool.
    pub priority: Option<i16>,
    /// Name of the thread.
    pub thread: String,
    /// The kernel's id of the thread.
    pub tid: i32,
    /// The thread's scheduling as the kernel reports it; `None` if the kernel does not report it.
    pub scheduling: Option<Scheduling>,
    /// The core that runs the thread.
    pub core: Option<usize>,
    /// Id of the request's connection, unique within the ORB; `None` for a collocated call.
    pub connection: Option<u64>,
    /// True if the request arrived at another lane than the lane that serves it.
    pub handed_over: bool,
}

/// Describes the thread, lane and connection that serve the current request of the calling thread.
#[must_use]
pub fn served_by() -> ServedBy {
    let (identity, request) = (SERVED_LANE.get(), CURRENT_REQUEST.get());
    let threadpool = (!identity.serves_default_pool()).then_some(ThreadpoolId::from_number(identity.pool));
    ServedBy {
        threadpool,
        lane: usize::try_from(identity.lane).unwrap_or(usize::MAX),
        priority: (identity.priority >= 0).then_some(identity.priority),
        thread: std::thread::current().name().unwrap_or_default().to_owned(),
        tid: thread::current_tid().as_raw(),
        scheduling: thread::scheduling(None).ok(),
        core: thread::current_core(),
        connection: (request.connection != 0).then_some(request.connection),
        handed_over: request.connection != 0 && request.arrived_at != (identity.pool, identity.lane),
    }
}

/// Returns the id of the connection whose request the calling thread runs. `None` for a collocated
/// call, and outside requests.
#[cfg(feature = "keep-octets")]
pub(crate) fn current_connection() -> Option<u64> {
    let connection = CURRENT_REQUEST.get().connection;
    (connection != 0).then_some(connection)
}

/// Returns a number that identifies the calling thread. It is never 0 and never used again.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.with(|own| *own)
}
