//! Threads: made in one place, with name, stack, cores and scheduling class set before they run.
//!
//! A thread whose class or affinity the kernel refuses never runs its body: [`Builder::spawn`] reports
//! the refusal, and the caller decides whether to go on without. Nothing here falls back silently.

use std::any::Any;
use std::cell::Cell;
use std::fs;
use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::thread as std_thread;
use std::time::Duration;

use crate::{call, memory};

/// A set of processor cores, numbered as the kernel does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CpuSet {
    bits: [u64; CpuSet::CAPACITY / 64],
}

impl CpuSet {
    /// Cores above this number cannot be named.
    pub const CAPACITY: usize = 1024;

    /// No core.
    pub const fn new() -> Self {
        Self { bits: [0; Self::CAPACITY / 64] }
    }

    /// One core. Numbers of [`CAPACITY`](Self::CAPACITY) and above give the empty set, which the kernel
    /// refuses.
    pub const fn one(core: usize) -> Self {
        let mut set = Self::new();
        set.insert(core);
        set
    }

    /// Adds a core; numbers that cannot be named are ignored.
    pub const fn insert(&mut self, core: usize) {
        if core < Self::CAPACITY {
            self.bits[core / 64] |= 1 << (core % 64);
        }
    }

    /// Takes a core out.
    pub const fn remove(&mut self, core: usize) {
        if core < Self::CAPACITY {
            self.bits[core / 64] &= !(1 << (core % 64));
        }
    }

    /// Whether the core is in the set.
    pub const fn contains(&self, core: usize) -> bool {
        core < Self::CAPACITY && self.bits[core / 64] & 1 << (core % 64) != 0
    }

    /// The cores, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..Self::CAPACITY).filter(|&core| self.contains(core))
    }

    /// Number of cores.
    pub fn len(&self) -> usize {
        self.bits.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is no core in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for CpuSet {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cores: I) -> Self {
        let mut set = Self::new();
        for core in cores {
            set.insert(core);
        }
        set
    }
}

impl std::fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// How the kernel schedules a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduling {
    /// The ordinary, fair class (`SCHED_OTHER`).
    Other,
    /// First in, first out at a fixed priority, 1 (lowest) to 99 (`SCHED_FIFO`).
    Fifo(u8),
    /// The same with a time slice among equals (`SCHED_RR`).
    RoundRobin(u8),
    /// Only while nothing else wants the core (`SCHED_IDLE`).
    Idle,
    /// So much processor time in every period, before all fixed priorities and never more than that (`SCHED_DEADLINE`).
    Deadline(Reservation),
}

/// What the kernel promises a thread of the deadline class, having made sure that all it promised fits: `runtime` of processor time within
/// `deadline` of the beginning of each `period`. A thread that wants more waits for the next one.
///
/// Such a thread may run on any core that the scheduler balances over: it has no affinity of its own. Threads that it starts are in the
/// ordinary class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reservation {
    /// Processor time; at least a microsecond, at most `deadline`.
    pub runtime: Duration,
    /// From the beginning of a period; at most `period`.
    pub deadline: Duration,
    /// How often.
    pub period: Duration,
}

impl Reservation {
    /// Whether the times are in order.
    #[must_use]
    pub fn is_valid(self) -> bool {
        Duration::from_nanos(1024) <= self.runtime && self.runtime <= self.deadline && self.deadline <= self.period
    }

    fn set(self, tid: i32) -> io::Result<()> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let attributes = Attributes {
            policy: libc::SCHED_DEADLINE as u32,
            // Without it the thread could start no other.
            flags: SCHED_FLAG_RESET_ON_FORK,
            runtime: nanoseconds(self.runtime),
            deadline: nanoseconds(self.deadline),
            period: nanoseconds(self.period),
            ..Attributes::EMPTY
        };
        // SAFETY: `attributes` says how large it is and outlives the call, which only reads it.
        call::once(|| unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attributes, 0) })?;
        Ok(())
    }
}

impl Scheduling {
    /// Lowest and highest fixed priority of Linux.
    pub const PRIORITIES: std::ops::RangeInclusive<u8> = 1..=99;

    /// The fixed priority; 0 in the ordinary class, 100 in the deadline class, which goes before all of them.
    #[must_use]
    pub const fn priority(self) -> u8 {
        match self {
            Self::Other | Self::Idle => 0,
            Self::Fifo(priority) | Self::RoundRobin(priority) => priority,
            Self::Deadline(_) => 100,
        }
    }

    /// Has the kernel schedule a thread so.
    fn set(self, tid: i32) -> io::Result<()> {
        let (policy, priority) = match self {
            Self::Other => (libc::SCHED_OTHER, 0),
            Self::Idle => (libc::SCHED_IDLE, 0),
            Self::Fifo(priority) => (libc::SCHED_FIFO, priority),
            Self::RoundRobin(priority) => (libc::SCHED_RR, priority),
            Self::Deadline(reservation) => return reservation.set(tid),
        };
        let param = libc::sched_param { sched_priority: priority.into() };
        // SAFETY: `param` outlives the call, which only reads it.
        call::once(|| unsafe { libc::sched_setscheduler(tid, policy, &param) })?;
        Ok(())
    }
}

/// `struct sched_attr` of Linux in its first form: 48 octets.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SCHED_FLAG_RESET_ON_FORK: u64 = 1;

impl Attributes {
    const EMPTY: Self = Attributes {
        size: size_of::<Self>() as u32,
        policy: 0,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime: 0,
        deadline: 0,
        period: 0,
    };
}

/// What a thread is to be: name, stack, cores, scheduling class. Unset parts are inherited.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    name: Option<String>,
    stack: Option<usize>,
    affinity: Option<CpuSet>,
    preferred: Option<CpuSet>,
    scheduling: Option<Scheduling>,
    prefault: bool,
}

impl Builder {
    /// Inherits everything from the thread that spawns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Role, lane and core, as in `lane2/io`; the kernel keeps its first 15 octets.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Stack size in octets; addresses are reserved, pages come when touched. 2 MiB by default.
    #[must_use]
    pub fn stack_size(mut self, octets: usize) -> Self {
        self.stack = Some(octets);
        self
    }

    /// The only cores it may run on.
    #[must_use]
    pub fn affinity(mut self, cores: CpuSet) -> Self {
        self.affinity = Some(cores);
        self
    }

    /// The cores that it runs on if the system still has them for it; else those of the thread that spawns. Nothing for `None`.
    #[must_use]
    pub fn preferred_affinity(mut self, cores: Option<CpuSet>) -> Self {
        self.preferred = cores;
        self
    }

    /// Its scheduling class and priority.
    #[must_use]
    pub fn scheduling(mut self, scheduling: Scheduling) -> Self {
        self.scheduling = Some(scheduling);
        self
    }

    /// Touches the first 128 KiB of its stack before it begins (see [`prefault_stack`]); its stack is larger than that.
    ///
    /// [`prefault_stack`]: crate::memory::prefault_stack
    #[must_use]
    pub fn prefault(mut self, prefault: bool) -> Self {
        self.prefault = prefault;
        self
    }

    /// Starts the thread; `body` begins only once affinity and scheduling are in force.
    ///
    /// # Errors
    /// `InvalidInput` for a name with NUL, `PermissionDenied` when the scheduling class is refused,
    /// `InvalidInput` for cores or priorities that do not exist, else the kernel's limits. The body has
    /// not run then, and the thread is gone.
    pub fn spawn<T: Send + 'static>(self, body: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
        let thread = self.start(Box::new(move || Box::new(body())))?;
        Ok(JoinHandle { thread, result: PhantomData })
    }

    /// Not generic: what surrounds the bodies is compiled once.
    fn start(self, body: Box<dyn FnOnce() -> Returned + Send>) -> io::Result<Thread> {
        let mut builder = std_thread::Builder::new();
        if let Some(name) = self.name {
            if name.contains('\0') {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "thread name contains NUL"));
            }
            builder = builder.name(name);
        }
        if let Some(stack) = self.stack {
            builder = builder.stack_size(stack);
        }
        let (affinity, preferred, scheduling) = (self.affinity, self.preferred, self.scheduling);
        let is_plain = affinity.is_none() && preferred.is_none() && scheduling.is_none();
        let is_prepared = Arc::new(OnceLock::new());
        let report = Arc::clone(&is_prepared);
        let thread = builder.spawn(move || {
            if let Some(cores) = preferred {
                // Refused: they have been taken away since they were noted.
                let _ = set_affinity(None, &cores);
            }
            // Nothing panics before the report: who waits for it would wait for ever.
            let prepared = prepare(affinity, scheduling);
            // Nobody else sets it.
            let _ = report.set(prepared.is_ok());
            drop(report);
            prepared?;
            if self.prefault {
                memory::prefault_stack();
            }
            Ok(body())
        })?;
        if is_plain || *is_prepared.wait() {
            return Ok(thread);
        }
        match thread.join() {
            Ok(Err(error)) => Err(error),
            // It has said that it was refused.
            Ok(Ok(_)) | Err(_) => Err(io::Error::other("the thread was refused what it asked for")),
        }
    }
}

fn prepare(affinity: Option<CpuSet>, scheduling: Option<Scheduling>) -> io::Result<()> {
    if let Some(cores) = affinity {
        set_affinity(None, &cores)?;
    }
    // What the thread inherits already needs no permission.
    if let Some(wanted) = scheduling
        && !matches!(self::scheduling(None), Ok(found) if found == wanted)
    {
        match set_scheduling(None, wanted) {
            // A process below the ordinary class (SCHED_IDLE) may not be let out of it; its threads are there with it.
            Err(error) if wanted == Scheduling::Other && error.kind() == io::ErrorKind::PermissionDenied => {}
            set => set?,
        }
    }
    Ok(())
}

/// Starts something that is to run before all threads with a fixed priority: with the highest that is permitted, else in the ordinary
/// class.
///
/// # Errors
/// That of the last try.
pub fn at_highest<T>(mut start: impl FnMut(Scheduling) -> io::Result<T>) -> io::Result<T> {
    let limit = memory::priority_limit().ok().flatten().and_then(|limit| u8::try_from(limit).ok());
    let highest = [Some(*Scheduling::PRIORITIES.end()), limit.filter(|limit| Scheduling::PRIORITIES.contains(limit))];
    for priority in highest.into_iter().flatten() {
        if let Ok(started) = start(Scheduling::Fifo(priority)) {
            return Ok(started);
        }
    }
    start(Scheduling::Other)
}

/// What a body returned, of whatever type.
type Returned = Box<dyn Any + Send>;
/// It ends with an error if its body was not to run.
type Thread = std_thread::JoinHandle<io::Result<Returned>>;

/// A running thread. Dropping it lets the thread run on by itself.
#[derive(Debug)]
pub struct JoinHandle<T> {
    thread: Thread,
    result: PhantomData<fn() -> T>,
}

impl<T: 'static> JoinHandle<T> {
    /// Waits for the end of the thread and takes what its body returned.
    ///
    /// # Errors
    /// The payload of the panic that ended it.
    pub fn join(self) -> std_thread::Result<T> {
        self.thread.join().map(|result| match result.map(|returned| returned.downcast()) {
            Ok(Ok(returned)) => *returned,
            // `spawn` gives a handle of the body's type, and only to a thread whose body runs.
            Ok(Err(_)) | Err(_) => unreachable!("a thread without a body was handed out"),
        })
    }

    /// Whether the body has ended, so that [`join`](Self::join) returns at once.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Name and identity as the standard library sees them; also to unpark it.
    pub fn thread(&self) -> &std_thread::Thread {
        self.thread.thread()
    }
}

/// A thread as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tid(i32);

impl Tid {
    /// The kernel's number.
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}

/// A thread of this process, as the kernel sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundThread {
    /// The kernel's number.
    pub tid: Tid,
    /// The first 15 octets of its name.
    pub name: String,
    /// How it is scheduled.
    pub scheduling: Scheduling,
    /// Where it may run.
    pub cores: CpuSet,
}

/// Every thread of this process, in no order. Those that end meanwhile may be missing.
///
/// # Errors
/// There is no `/proc`.
pub fn all() -> io::Result<Vec<FoundThread>> {
    let look = |tid: i32| {
        let name = fs::read(format!("/proc/self/task/{tid}/comm")).ok()?;
        let name = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
        let tid = Tid(tid);
        Some(FoundThread { tid, name, scheduling: scheduling(Some(tid)).ok()?, cores: affinity(Some(tid)).ok()? })
    };
    let entries = fs::read_dir("/proc/self/task")?;
    Ok(entries.filter_map(|entry| look(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect())
}

/// The calling thread's number; asked of the kernel once per thread, and again after a fork.
#[inline]
pub fn current_tid() -> Tid {
    thread_local! {
        static TID: Cell<(i32, u64)> = const { Cell::new((0, 0)) };
    }
    let generation = crate::process::generation();
    TID.with(|cached| {
        let (tid, born) = cached.get();
        if tid != 0 && born == generation {
            return Tid(tid);
        }
        // SAFETY: the call takes no arguments and cannot fail.
        let tid = call::once(|| unsafe { libc::gettid() }).unwrap_or(0);
        cached.set((tid, generation));
        Tid(tid)
    })
}

/// The core that runs the calling thread at this moment.
pub fn current_core() -> Option<usize> {
    // SAFETY: the call takes no arguments; it is answered in user space (vDSO, rseq) where possible.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Restricts a thread (`None`: the calling one) to `cores`.
///
/// # Errors
/// `InvalidInput` if none of the cores exists and is allowed, `PermissionDenied` for a foreign thread.
pub fn set_affinity(thread: Option<Tid>, cores: &CpuSet) -> io::Result<()> {
    let tid = thread.map_or(0, Tid::as_raw);
    // SAFETY: `bits` is an array of the size given, laid out as the kernel's mask: one bit per core,
    // words in native order, and the kernel only reads it.
    call::once(|| unsafe { libc::sched_setaffinity(tid, size_of_val(&cores.bits), cores.bits.as_ptr().cast()) })?;
    Ok(())
}

/// The cores a thread (`None`: the calling one) may run on.
///
/// # Errors
/// `NotFound`-like `ESRCH` if the thread is gone.
pub fn affinity(thread: Option<Tid>) -> io::Result<CpuSet> {
    let tid = thread.map_or(0, Tid::as_raw);
    let mut cores = CpuSet::new();
    // SAFETY: `bits` is a writable array of the size given, laid out as the kernel's mask.
    call::once(|| unsafe { libc::sched_getaffinity(tid, size_of_val(&cores.bits), cores.bits.as_mut_ptr().cast()) })?;
    Ok(cores)
}

/// Sets the scheduling class of a thread (`None`: the calling one). Children of the thread inherit it.
///
/// # Errors
/// `PermissionDenied` without the privilege (`CAP_SYS_NICE` or `RLIMIT_RTPRIO`; the deadline class: `CAP_SYS_NICE`, and no affinity),
/// `InvalidInput` for a priority outside [`Scheduling::PRIORITIES`] and for times that are not in order, `ResourceBusy` for a reservation
/// that does not fit beside the others.
pub fn set_scheduling(thread: Option<Tid>, scheduling: Scheduling) -> io::Result<()> {
    let tid = thread.map_or(0, Tid::as_raw);
    scheduling.set(tid)?;
    if thread.is_none_or(|thread| thread == current_tid()) {
        PRIORITY.set(scheduling.priority());
    }
    Ok(())
}

thread_local! {
    /// The calling thread's native priority; [`UNKNOWN`] until it is asked for.
    static PRIORITY: Cell<u8> = const { Cell::new(UNKNOWN) };
}

const UNKNOWN: u8 = u8::MAX;

/// The fixed priority of the calling thread, 0 if it has none. Asked of the kernel once per thread; changes by
/// [`set_scheduling`] on the thread itself are noted, those made from outside are not.
#[inline]
pub fn native_priority() -> u8 {
    match PRIORITY.get() {
        UNKNOWN => ask_priority(),
        known => known,
    }
}

#[cold]
fn ask_priority() -> u8 {
    // A thread can always ask about itself.
    let priority = scheduling(None).map_or(0, Scheduling::priority);
    PRIORITY.set(priority);
    priority
}

/// By how much the kernel may delay the calling thread's timers to let several expire at once; 50 us by default. It matters in the ordinary
/// class only. Threads and programs that the thread starts inherit it.
///
/// # Errors
/// The kernel refuses; none is known.
pub fn set_timer_slack(slack: Duration) -> io::Result<()> {
    // 0 would stand for the slack with which the thread began.
    let nanoseconds = libc::c_ulong::try_from(slack.as_nanos()).unwrap_or(libc::c_ulong::MAX).max(1);
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches no memory of ours.
    call::once(|| unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds) }).map(|_| ())
}

/// The scheduling class of a thread (`None`: the calling one). Classes this crate does not set are
/// reported as [`Scheduling::Other`].
///
/// # Errors
/// `ESRCH` if the thread is gone.
pub fn scheduling(thread: Option<Tid>) -> io::Result<Scheduling> {
    let tid = thread.map_or(0, Tid::as_raw);
    let mut found = Attributes::EMPTY;
    // SAFETY: `found` is writable, of the size given, and outlives the call; whatever the kernel writes into integers is a value.
    call::once(|| unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut found, Attributes::EMPTY.size, 0) })?;
    // Fixed priorities are 1 to 99, others 0.
    let priority = found.priority as u8;
    Ok(match found.policy as libc::c_int {
        libc::SCHED_FIFO => Scheduling::Fifo(priority),
        libc::SCHED_RR => Scheduling::RoundRobin(priority),
        libc::SCHED_IDLE => Scheduling::Idle,
        libc::SCHED_DEADLINE => Scheduling::Deadline(Reservation {
            runtime: Duration::from_nanos(found.runtime),
            deadline: Duration::from_nanos(found.deadline),
            period: Duration::from_nanos(found.period),
        }),
        _ => Scheduling::Other,
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_is_what_the_builder_says() {
        let cores = affinity(None).unwrap();
        let last = cores.iter().last().unwrap();
        let thread = Builder::new()
            .name("lane0/io")
            .stack_size(256 * 1024)
            .affinity(CpuSet::one(last))
            .spawn(move || {
                assert_eq!(std_thread::current().name(), Some("lane0/io"));
                assert_eq!(affinity(None).unwrap(), CpuSet::one(last));
                assert_eq!(current_core(), Some(last));
                current_tid()
            })
            .unwrap();
        assert_ne!(thread.join().unwrap(), current_tid());
        assert_eq!(affinity(None).unwrap(), cores);
    }

    #[test]
    fn a_refusal_is_reported_and_the_body_does_not_run() {
        let refused =
            Builder::new().affinity(CpuSet::one(1023)).spawn(|| panic!("must not run")).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let refused = Builder::new().scheduling(Scheduling::Fifo(0)).spawn(|| ()).unwrap_err();
        assert!(matches!(refused.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied));
    }

    #[test]
    fn a_fixed_priority_is_set_where_permitted() {
        match Builder::new().scheduling(Scheduling::Fifo(3)).spawn(|| scheduling(None).unwrap()) {
            Ok(thread) => assert_eq!(thread.join().unwrap(), Scheduling::Fifo(3)),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
        assert_eq!(scheduling(None).unwrap(), Scheduling::Other);
    }

    #[test]
    fn threads_are_found_as_they_are() {
        let (ended, end) = mpsc::sync_channel::<()>(0);
        let last = affinity(None).unwrap().iter().last().unwrap();
        let builder = Builder::new().name("found/as it is").affinity(CpuSet::one(last)).scheduling(Scheduling::Idle);
        let thread = builder.spawn(move || end.recv()).unwrap();
        let found = all().unwrap();
        let found: Vec<_> = found.iter().filter(|thread| thread.name == "found/as it is").collect();
        let [found] = found[..] else { panic!("{found:?}") };
        assert_eq!((found.scheduling, found.cores), (Scheduling::Idle, CpuSet::one(last)));
        assert_ne!(found.tid, current_tid());
        drop(ended);
        assert!(thread.join().unwrap().is_err());
    }

    #[test]
    fn cores_that_are_gone_are_not_insisted_on() {
        let own = affinity(None).unwrap();
        let last = CpuSet::one(own.iter().last().unwrap());
        for (preferred, expected) in [(None, own), (Some(last), last), (Some(CpuSet::one(1023)), own)] {
            let thread = Builder::new().preferred_affinity(preferred).spawn(|| affinity(None).unwrap()).unwrap();
            assert_eq!(thread.join().unwrap(), expected);
        }
    }

    #[test]
    fn what_is_to_run_first_ends_in_the_ordinary_class() {
        let refused = |scheduling| match scheduling {
            Scheduling::Other => Ok(scheduling),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        };
        assert_eq!(at_highest(refused).unwrap(), Scheduling::Other);
        assert_eq!(at_highest(Ok).unwrap(), Scheduling::Fifo(99));
    }

    #[test]
    fn a_reservation_is_made_where_permitted_and_checked() {
        let milliseconds = Duration::from_millis;
        let reservation =
            Reservation { runtime: milliseconds(1), deadline: milliseconds(10), period: milliseconds(20) };
        let wanted = Scheduling::Deadline(reservation);
        let body = move || {
            let found = scheduling(None).unwrap();
            let child = Builder::new().spawn(|| scheduling(None).unwrap()).unwrap().join().unwrap();
            set_scheduling(None, Scheduling::Other).unwrap();
            (found, native_priority(), child, scheduling(None).unwrap())
        };
        match Builder::new().scheduling(wanted).spawn(body) {
            Ok(thread) => assert_eq!(thread.join().unwrap(), (wanted, 0, Scheduling::Other, Scheduling::Other)),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
        let late = Reservation { deadline: milliseconds(30), ..reservation };
        assert!(reservation.is_valid() && !late.is_valid());
        let refused = Builder::new().scheduling(Scheduling::Deadline(late)).spawn(|| ()).unwrap_err();
        assert!(matches!(refused.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied), "{refused}");
    }

    #[test]
    fn the_native_priority_follows_the_thread() {
        let thread = std_thread::spawn(|| {
            assert_eq!(native_priority(), scheduling(None).unwrap().priority());
            let before = crate::counters::snapshot();
            native_priority();
            assert_eq!((crate::counters::snapshot() - before).syscalls, 0);
            if set_scheduling(None, Scheduling::Fifo(2)).is_ok() {
                assert_eq!(native_priority(), 2);
                set_scheduling(Some(current_tid()), Scheduling::Other).unwrap();
                assert_eq!(native_priority(), 0);
            }
        });
        thread.join().unwrap();
    }

    #[test]
    fn the_thread_number_is_asked_for_once() {
        let first = current_tid();
        let before = crate::counters::snapshot();
        assert_eq!(current_tid(), first);
        assert_eq!((crate::counters::snapshot() - before).syscalls, 0);
    }

    #[test]
    fn core_sets() {
        let mut set: CpuSet = [0, 63, 64, 5000].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64]);
        set.remove(63);
        assert!(!set.contains(63) && set.contains(64) && !set.contains(5000));
        assert_eq!(set.len(), 2);
        assert!(CpuSet::one(2000).is_empty());
    }
}
