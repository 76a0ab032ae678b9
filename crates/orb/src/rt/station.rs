//! What a thread knows of itself: the lane that it serves, the priority that the kernel gives it, and the request that it runs.
//!
//! Invariant: only the thread itself writes here, and only sets what it has done.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use corelane_sys::thread::{self, Scheduling};

use super::pool::ThreadpoolId;
use crate::server::connection::Connection;
use crate::server::lane::Lane;

/// Instead of a pool: a thread of the application.
const NOWHERE: u32 = u32::MAX;
/// The pools that the ORB's builder made count as one.
pub(crate) const DEFAULT_POOL: u32 = 0;

/// A thread's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Station {
    /// The ORB.
    stamp: u64,
    pub(crate) pool: u32,
    /// Which lane of the pool.
    pub(crate) lane: u32,
    /// CORBA priority of the lane, or the default one of a pool without lanes.
    priority: i16,
    /// A lane's thread: its priority never changes.
    fixed: bool,
}

const OUTSIDE: Station = Station { stamp: 0, pool: NOWHERE, lane: 0, priority: -1, fixed: false };

/// The request that a thread runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Request {
    /// 0: a call within the process.
    connection: u64,
    handed_over: bool,
}

thread_local! {
    static STATION: Cell<Station> = const { Cell::new(OUTSIDE) };
    static NATIVE: Cell<Option<Scheduling>> = const { Cell::new(None) };
    /// How often that has been noted: spares comparing it.
    static CHANGES: Cell<u32> = const { Cell::new(0) };
    /// What the kernel said when it was asked.
    static FOUND: Cell<Option<Scheduling>> = const { Cell::new(None) };
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static REQUEST: Cell<Request> = const { Cell::new(Request { connection: 0, handed_over: false }) };
}

/// The calling thread serves `lane` from now on, scheduled like this (`None`: as it was started).
pub(crate) fn occupy(stamp: u64, lane: &Lane, native: Option<Scheduling>) {
    let station = match &lane.role {
        Some(role) => {
            Station { stamp, pool: role.pool, lane: role.index, priority: role.priority.get(), fixed: role.is_lane }
        }
        None => Station { stamp, pool: DEFAULT_POOL, lane: 0, priority: -1, fixed: false },
    };
    STATION.set(station);
    note(native);
}

/// The kernel schedules the calling thread like this.
fn note(native: Option<Scheduling>) {
    NATIVE.set(native);
    CHANGES.set(CHANGES.get().wrapping_add(1));
}

/// Where the calling thread is, as the ORB with this stamp sees it.
pub(crate) fn of_thread(stamp: u64) -> Station {
    let station = STATION.get();
    if station.stamp == stamp { station } else { OUTSIDE }
}

/// Whether the calling thread belongs to no real-time pool of any ORB.
#[inline]
pub(crate) fn is_plain() -> bool {
    let pool = STATION.with(|station| station.get().pool);
    pool == DEFAULT_POOL || pool == NOWHERE
}

impl Station {
    /// Whether the thread serves this lane of this pool.
    pub(crate) fn is_at(self, pool: u32, lane: usize) -> bool {
        self.pool == pool && usize::try_from(self.lane).is_ok_and(|own| own == lane)
    }

    /// Whether requests for POAs without a pool of their own run here.
    pub(crate) fn is_default(self) -> bool {
        self.pool == DEFAULT_POOL || self.pool == NOWHERE
    }

    /// Whether the thread's priority never changes.
    pub(crate) fn is_fixed(self) -> bool {
        self.fixed
    }
}

/// Serves another lane for a time, at its priority: a thread that was borrowed. Its own station and priority come back when this is
/// dropped.
pub(crate) struct Visit(Station, Before);

impl Visit {
    pub(crate) fn to(stamp: u64, lane: &Lane) -> Self {
        let visit = Visit(STATION.get(), Before::now());
        occupy(stamp, lane, NATIVE.get());
        if let Some(native) = lane.role.as_ref().and_then(|role| role.native) {
            // The keeper has done it already; here it is noted. Where it is refused the thread runs as it is.
            let _ = change(native);
        }
        visit
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.1.restore();
        STATION.set(self.0);
    }
}

/// How the kernel schedules the calling thread, as far as the ORB has set it; asked of the kernel otherwise.
pub(crate) fn native() -> io::Result<Scheduling> {
    match NATIVE.get() {
        Some(native) => Ok(native),
        None => {
            let native = thread::scheduling(None)?;
            note(Some(native));
            FOUND.set(Some(native));
            Ok(native)
        }
    }
}

/// Has the kernel schedule the calling thread like this; no system call if it does already.
pub(crate) fn change(to: Scheduling) -> io::Result<()> {
    if native()? != to {
        thread::set_scheduling(None, to)?;
        note(Some(to));
    }
    Ok(())
}

/// The calling thread has been lowered from outside.
pub(super) fn note_lowered(to: Scheduling) {
    note(Some(to));
}

/// How a thread was scheduled at some moment; nothing if that was not known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    native: Option<Scheduling>,
    changes: u32,
}

impl Before {
    /// The present.
    #[inline]
    pub(crate) fn now() -> Self {
        Before { native: NATIVE.get(), changes: CHANGES.get() }
    }

    /// Has the kernel schedule the calling thread as it was then.
    #[inline]
    pub(crate) fn restore(self) {
        if CHANGES.get() != self.changes {
            self.go_back();
        }
    }

    #[cold]
    fn go_back(self) {
        // Not known then: it has been asked for since, before anything was changed.
        if let Some(then) = self.native.or(FOUND.get()) {
            // Going back is never refused; if it were, the next change would try again.
            let _ = change(then);
        }
    }
}

/// How long the request that the calling thread is about to serve has waited since it was read.
pub(crate) fn set_waited(waited: Duration) {
    WAITED.set(waited);
}

/// The same, once: what is served next has not waited unless it is said again.
#[inline]
pub(crate) fn take_waited() -> Duration {
    WAITED.replace(Duration::ZERO)
}

/// At least at some priority for a time; what was before comes back when this is dropped.
pub(crate) struct Raised(Before);

impl Raised {
    /// The calling thread is scheduled like this, unless it has a higher priority (`None`: as it is).
    ///
    /// # Errors
    /// The system refuses.
    #[inline]
    pub(crate) fn to(least: Option<Scheduling>) -> io::Result<Self> {
        let raised = Raised(Before::now());
        if let Some(least) = least
            && native()?.priority() < least.priority()
        {
            change(least)?;
        }
        Ok(raised)
    }
}

impl Drop for Raised {
    #[inline]
    fn drop(&mut self) {
        self.0.restore();
    }
}

/// The request that the calling thread runs from now on; the one before comes back when this is dropped.
pub(crate) struct Serving(Request);

impl Serving {
    #[inline]
    pub(crate) fn begin(connection: &Connection) -> Self {
        let station = STATION.get();
        let handed_over = connection.origin.station != (station.pool, station.lane);
        Serving(REQUEST.replace(Request { connection: connection.origin.number, handed_over }))
    }
}

impl Drop for Serving {
    #[inline]
    fn drop(&mut self) {
        REQUEST.set(self.0);
    }
}

/// What served a request: for tests, and for servants that want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServedBy {
    /// The pool; `None` for those of the ORB's builder, and for a thread of the application.
    pub threadpool: Option<ThreadpoolId>,
    /// Index of the lane in its pool.
    pub lane: usize,
    /// CORBA priority of the lane, or the default one of the pool.
    pub priority: Option<i16>,
    /// Name of the thread.
    pub thread: String,
    /// The kernel's number of the thread.
    pub tid: i32,
    /// How the kernel schedules it, as asked of the kernel; `None` if it does not say.
    pub native: Option<Scheduling>,
    /// The core that runs it.
    pub core: Option<usize>,
    /// The connection that the request came by, a number of its own within the ORB; `None` for a call within the process.
    pub connection: Option<u64>,
    /// The request came in at another lane.
    pub handed_over: bool,
}

/// What serves the request that the calling thread runs.
#[must_use]
pub fn served_by() -> ServedBy {
    let (station, request) = (STATION.get(), REQUEST.get());
    let threadpool = (!station.is_default()).then_some(ThreadpoolId::from_number(station.pool));
    ServedBy {
        threadpool,
        lane: usize::try_from(station.lane).unwrap_or(usize::MAX),
        priority: (station.priority >= 0).then_some(station.priority),
        thread: std::thread::current().name().unwrap_or_default().to_owned(),
        tid: thread::current_tid().as_raw(),
        native: thread::scheduling(None).ok(),
        core: thread::current_core(),
        connection: (request.connection != 0).then_some(request.connection),
        handed_over: request.connection != 0 && request.handed_over,
    }
}
