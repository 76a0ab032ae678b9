//! The context of a thread, which this thread alone writes.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "core-pool")]
use corelane_sched::Priority;
use corelane_sys::thread::{self, Scheduling};

use crate::nested_wait;

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

const NO_POOL: u32 = u32::MAX;
pub(crate) const DEFAULT_POOL: u32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneIdentity {
    pub(crate) stamp: u64,
    pub(crate) pool: u32,
    pub(crate) lane: u32,
    /// The CORBA priority of the lane. Negative in the builder's pools, which have no priority, and
    /// outside lanes.
    pub(crate) priority: i16,
    pub(crate) has_fixed_priority: bool,
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
    /// Id of the request's connection; 0 for a collocated call, and outside requests.
    connection: u64,
    arrived_at: (u32, u32),
}

thread_local! {
    /// Stamp (a random number) of the ORB that started the thread; 0 if no ORB did.
    static OWNER: Cell<u64> = const { Cell::new(0) };
    static SERVED_LANE: Cell<LaneIdentity> = const { Cell::new(OUTSIDE_LANES) };
    static SCHEDULING: Cell<Option<Scheduling>> = const { Cell::new(None) };
    /// Number of writes to `SCHEDULING`, wrapping. Comparing two numbers costs less than comparing
    /// two schedulings.
    static SCHEDULING_CHANGES: Cell<u32> = const { Cell::new(0) };
    static INITIAL_SCHEDULING: Cell<Option<Scheduling>> = const { Cell::new(None) };
    static CURRENT_REQUEST: Cell<CurrentRequest> = const { Cell::new(CurrentRequest { connection: 0, arrived_at: (0, 0) }) };
}

pub(crate) fn set_owner(stamp: u64) {
    OWNER.set(stamp);
}

pub(crate) fn is_owned_by(stamp: u64) -> bool {
    OWNER.get() == stamp
}

/// Records the lane and the scheduling of the calling thread. `None` means the scheduling that the
/// thread had at its start.
pub(crate) fn enter_lane(lane: LaneIdentity, native: Option<Scheduling>) {
    SERVED_LANE.set(lane);
    record_scheduling(native);
}

fn record_scheduling(native: Option<Scheduling>) {
    SCHEDULING.set(native);
    SCHEDULING_CHANGES.set(SCHEDULING_CHANGES.get().wrapping_add(1));
}

/// Returns the lane of this ORB that the calling thread serves. A thread of another ORB counts as a
/// thread of the application.
pub(crate) fn current_lane(stamp: u64) -> LaneIdentity {
    let identity = SERVED_LANE.get();
    if identity.stamp == stamp { identity } else { OUTSIDE_LANES }
}

#[inline]
pub(crate) fn is_outside_rt_pools() -> bool {
    let pool = SERVED_LANE.with(|identity| identity.get().pool);
    pool == DEFAULT_POOL || pool == NO_POOL
}

impl LaneIdentity {
    pub(crate) const fn of_default_pool(stamp: u64) -> Self {
        LaneIdentity { stamp, pool: DEFAULT_POOL, ..OUTSIDE_LANES }
    }

    pub(crate) fn serves(self, pool: u32, lane: usize) -> bool {
        self.pool == pool && usize::try_from(self.lane).is_ok_and(|own| own == lane)
    }

    pub(crate) fn serves_default_pool(self) -> bool {
        self.pool == DEFAULT_POOL || self.pool == NO_POOL
    }

    pub(crate) fn has_fixed_priority(self) -> bool {
        self.has_fixed_priority
    }

    #[cfg(feature = "core-pool")]
    pub(crate) fn task_priority(self) -> Option<Priority> {
        if self.serves_task { Priority::new(self.priority) } else { None }
    }
}

pub(crate) struct LaneVisit(LaneIdentity, SavedScheduling);

impl LaneVisit {
    /// Lets the calling thread serve `lane` with the scheduling `native` until the drop. With
    /// `None` the thread keeps its present scheduling.
    pub(crate) fn begin(lane: LaneIdentity, native: Option<Scheduling>) -> Self {
        let visit = LaneVisit(SERVED_LANE.get(), SavedScheduling::capture());
        enter_lane(lane, SCHEDULING.get());
        if let Some(native) = native {
            // The lane that borrows this thread has set this scheduling before, so the kernel
            // permits it and no error is expected.
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

pub(crate) fn set_scheduling(to: Scheduling) -> io::Result<()> {
    if current_scheduling()? != to {
        thread::set_scheduling(None, to)?;
        record_scheduling(Some(to));
    }
    Ok(())
}

/// Returns true if `to` has a lower priority than `now`. Returns false if `now` is SCHED_DEADLINE,
/// because the kernel might not grant the reservation again.
pub(crate) fn can_lower(now: Scheduling, to: Scheduling) -> bool {
    !matches!(now, Scheduling::Deadline(_)) && to.priority() < now.priority()
}

pub(crate) fn record_lowered(to: Scheduling) {
    record_scheduling(Some(to));
}

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

    /// Returns true if the thread's scheduling was set since the capture, even if it was restored.
    #[cfg(feature = "core-pool")]
    pub(crate) fn has_changed(self) -> bool {
        SCHEDULING_CHANGES.get() != self.changes
    }

    #[inline]
    pub(crate) fn restore(self) {
        if SCHEDULING_CHANGES.get() != self.changes {
            self.restore_slow();
        }
    }

    #[cold]
    fn restore_slow(self) {
        // `current_scheduling` has queried the kernel before the first change of an unknown
        // scheduling, so the initial scheduling is known here.
        if let Some(then) = self.native.or(INITIAL_SCHEDULING.get()) {
            // The kernel permitted this scheduling before, so no error is expected.
            let _ = set_scheduling(then);
        }
    }
}

pub(crate) struct PriorityBoost(SavedScheduling);

impl PriorityBoost {
    /// Raises the calling thread to the scheduling `least` until the drop, unless its priority is
    /// at least as high.
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

pub(crate) struct RequestScope(CurrentRequest);

impl RequestScope {
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
    /// CORBA priority of the lane, or the default priority of the pool. `None` for a pool of the
    /// ORB's builder, and for a thread of the application.
    pub priority: Option<i16>,
    /// Name of the thread.
    pub thread: String,
    /// The kernel's id of the thread.
    pub tid: i32,
    /// The thread's scheduling as the kernel reports it; `None` if the kernel does not report it.
    pub scheduling: Option<Scheduling>,
    /// The core that runs the thread; `None` if the kernel does not report it.
    pub core: Option<usize>,
    /// Id of the request's connection, unique within the ORB; `None` for a collocated call.
    pub connection: Option<u64>,
    /// True if the request arrived at another lane than the lane that serves it.
    pub was_handed_over: bool,
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
        was_handed_over: request.connection != 0 && request.arrived_at != (identity.pool, identity.lane),
    }
}

/// The kind of thread that runs a servant. A servant that may block can check the kind: a blocked
/// thread of a connection delays the requests of one client, and a blocked thread of a pool may
/// delay the requests of all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpcallThread {
    /// The calling thread runs no request of a connection: its call is collocated, or it runs no
    /// call.
    Application,
    /// A thread that serves one connection only.
    Connection,
    /// A thread that serves all connections of a lane.
    Pool,
}

/// Returns the kind of the calling thread.
///
/// # Examples
/// ```
/// assert_eq!(corelane::upcall_thread(), corelane::UpcallThread::Application);
/// ```
#[must_use]
pub fn upcall_thread() -> UpcallThread {
    if CURRENT_REQUEST.get().connection == 0 {
        UpcallThread::Application
    } else if nested_wait::is_dedicated() {
        UpcallThread::Connection
    } else {
        UpcallThread::Pool
    }
}

/// Returns the id of the connection whose request the calling thread runs. `None` for a collocated
/// call, and outside requests.
#[cfg(feature = "keep-octets")]
pub(crate) fn current_connection() -> Option<u64> {
    let connection = CURRENT_REQUEST.get().connection;
    (connection != 0).then_some(connection)
}

/// Returns a number of the calling thread, which is never 0 and belongs to no other thread, not
/// even a later one.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.with(|own| *own)
}
