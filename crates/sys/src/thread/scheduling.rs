//! Scheduling of threads: classes, priorities, reservations of processor time, cores.

use std::cell::Cell;
use std::fs;
use std::io;
use std::time::Duration;

use crate::syscall;

/// A set of processor cores, numbered as the kernel does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CpuSet {
    bits: [u64; CpuSet::CAPACITY / 64],
}

impl CpuSet {
    /// Number of cores that a set can name.
    pub const CAPACITY: usize = 1024;

    /// Creates an empty set.
    pub const fn new() -> Self {
        Self { bits: [0; Self::CAPACITY / 64] }
    }

    /// Creates a set of one core. A number of [`CAPACITY`](Self::CAPACITY) or above gives the empty
    /// set, which the kernel refuses.
    pub const fn one(core: usize) -> Self {
        let mut set = Self::new();
        set.insert(core);
        set
    }

    /// Adds a core. A number of [`CAPACITY`](Self::CAPACITY) or above is ignored.
    pub const fn insert(&mut self, core: usize) {
        if core < Self::CAPACITY {
            self.bits[core / 64] |= 1 << (core % 64);
        }
    }

    /// Removes a core. Has no effect if the core is not in the set.
    pub const fn remove(&mut self, core: usize) {
        if core < Self::CAPACITY {
            self.bits[core / 64] &= !(1 << (core % 64));
        }
    }

    /// Returns true if the core is in the set.
    pub const fn contains(&self, core: usize) -> bool {
        core < Self::CAPACITY && self.bits[core / 64] & 1 << (core % 64) != 0
    }

    /// Iterates over the cores in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..Self::CAPACITY).filter(|&core| self.contains(core))
    }

    /// Returns the number of cores.
    pub fn len(&self) -> usize {
        self.bits.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns true if the set has no core.
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

/// The scheduling class of a thread, with its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduling {
    /// The ordinary, fair class (`SCHED_OTHER`).
    Other,
    /// First in, first out at a fixed priority, 1 (lowest) to 99 (`SCHED_FIFO`).
    Fifo(u8),
    /// First in, first out at a fixed priority, with a time slice among threads of equal priority
    /// (`SCHED_RR`).
    RoundRobin(u8),
    /// Gets almost no processor time while other threads want the core (`SCHED_IDLE`).
    Idle,
    /// A guaranteed and limited processor time in every period, before all fixed priorities
    /// (`SCHED_DEADLINE`).
    Deadline(Reservation),
}

/// Processor time that the deadline class guarantees: `runtime` within `deadline` of the beginning
/// of each `period`. The kernel admits a reservation only if the other reservations leave enough
/// processor time.
///
/// A thread with a reservation has no affinity: it may run on any core over which the scheduler
/// balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reservation {
    /// Processor time in each period; at least 1.024 microseconds and at most `deadline`.
    pub runtime: Duration,
    /// Time from the beginning of a period within which `runtime` is granted; at most `period`.
    pub deadline: Duration,
    /// Length of a period.
    pub period: Duration,
}

impl Reservation {
    /// Returns true if `runtime` is at least 1.024 microseconds and `runtime <= deadline <=
    /// period`.
    #[must_use]
    pub fn is_valid(self) -> bool {
        Duration::from_nanos(1024) <= self.runtime && self.runtime <= self.deadline && self.deadline <= self.period
    }

    fn set(self, tid: i32) -> io::Result<()> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let attributes = SchedAttr {
            policy: libc::SCHED_DEADLINE as u32,
            // Without this flag, the kernel would refuse the thread's attempts to start threads.
            flags: SCHED_FLAG_RESET_ON_FORK,
            runtime: nanoseconds(self.runtime),
            deadline: nanoseconds(self.deadline),
            period: nanoseconds(self.period),
            ..SchedAttr::EMPTY
        };
        // SAFETY: `attributes` states its own size and outlives the call, which only reads it.
        syscall::once(|| unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attributes, 0) })?;
        Ok(())
    }
}

impl Scheduling {
    /// The fixed priorities of Linux, lowest to highest.
    pub const FIXED_PRIORITIES: std::ops::RangeInclusive<u8> = 1..=99;

    /// Returns the fixed priority. The result is 0 for the ordinary class and the idle class, and
    /// 100 for the deadline class, which precedes all fixed priorities.
    #[must_use]
    pub const fn priority(self) -> u8 {
        match self {
            Self::Other | Self::Idle => 0,
            Self::Fifo(priority) | Self::RoundRobin(priority) => priority,
            Self::Deadline(_) => 100,
        }
    }

    #[inline]
    fn set(self, tid: i32) -> io::Result<()> {
        self.set_with(tid, 0)
    }

    #[inline]
    fn set_with(self, tid: i32, flag: libc::c_int) -> io::Result<()> {
        let (policy, priority) = match self {
            Self::Other => (libc::SCHED_OTHER, 0),
            Self::Idle => (libc::SCHED_IDLE, 0),
            Self::Fifo(priority) => (libc::SCHED_FIFO, priority),
            Self::RoundRobin(priority) => (libc::SCHED_RR, priority),
            Self::Deadline(reservation) => return reservation.set(tid),
        };
        // The system call is made directly, because musl has no function that changes the class of
        // a thread.
        let param = libc::c_int::from(priority);
        // SAFETY: `param` outlives the call, which only reads it.
        syscall::once(|| unsafe { libc::syscall(libc::SYS_sched_setscheduler, tid, policy | flag, &raw const param) })?;
        Ok(())
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct SchedAttr {
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
const SCHED_RESET_ON_FORK: libc::c_int = 0x4000_0000;

impl SchedAttr {
    const EMPTY: Self = SchedAttr {
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

/// The kernel's identifier of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tid(i32);

impl Tid {
    /// Returns the kernel's number.
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}

/// A thread of this process, as the kernel sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadInfo {
    /// The kernel's number of the thread (gettid(2)).
    pub tid: Tid,
    /// The first 15 bytes of the thread's name.
    pub name: String,
    /// The thread's scheduling class.
    pub scheduling: Scheduling,
    /// The cores on which the thread may run.
    pub cores: CpuSet,
}

/// Lists every thread of this process, in no particular order. Threads that begin or end during the
/// call may be missing.
///
/// # Errors
/// If `/proc` does not exist.
pub fn list_threads() -> io::Result<Vec<ThreadInfo>> {
    let look = |tid: i32| {
        let name = fs::read(format!("/proc/self/task/{tid}/comm")).ok()?;
        let name = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
        let tid = Tid(tid);
        Some(ThreadInfo { tid, name, scheduling: scheduling(Some(tid)).ok()?, cores: affinity(Some(tid)).ok()? })
    };
    let entries = fs::read_dir("/proc/self/task")?;
    Ok(entries.filter_map(|entry| look(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect())
}

/// Mark of the kernel's own threads in the flags of `/proc/TID/stat` (include/linux/sched.h,
/// proc_pid_stat(5)). The kernel alone sets it.
const PF_KTHREAD: u32 = 0x0020_0000;

/// Returns the kernel's own thread with this name; `None` if there is none. A process in a PID
/// namespace of its own sees no threads of the kernel.
///
/// # Errors
/// If `/proc` does not exist.
pub fn find_kernel_thread(name: &str) -> io::Result<Option<Tid>> {
    for entry in fs::read_dir("/proc")? {
        let Some(tid) = entry?.file_name().to_str().and_then(|tid| tid.parse::<i32>().ok()) else { continue };
        let has_name = fs::read_to_string(format!("/proc/{tid}/comm")).is_ok_and(|found| found.trim_end() == name);
        // A program may also have the name of a kernel thread and an empty command line, so the
        // flags decide.
        let flags = || {
            let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
            stat.rsplit_once(')')?.1.split_whitespace().nth(6)?.parse::<u32>().ok()
        };
        if has_name && flags().is_some_and(|flags| flags & PF_KTHREAD != 0) {
            return Ok(Some(Tid(tid)));
        }
    }
    Ok(None)
}

/// Returns the calling thread's identifier.
#[inline]
pub fn current_tid() -> Tid {
    thread_local! {
        static TID: Cell<(i32, u64)> = const { Cell::new((0, 0)) };
    }
    let generation = crate::process::fork_generation();
    TID.with(|cached| {
        let (tid, born) = cached.get();
        if tid != 0 && born == generation {
            return Tid(tid);
        }
        // SAFETY: the call takes no arguments and cannot fail.
        let tid = syscall::once(|| unsafe { libc::gettid() }).unwrap_or(0);
        cached.set((tid, generation));
        Tid(tid)
    })
}

/// Returns the core that runs the calling thread at this moment; `None` if the kernel does not
/// report it.
pub fn current_core() -> Option<usize> {
    // SAFETY: the call takes no arguments. User space answers it where possible (vDSO, rseq).
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Returns the number of cores that the machine has online, whether or not this process may use
/// them; at least 1.
pub fn online_cores() -> usize {
    // SAFETY: the call takes one integer and accesses no memory of this process.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1).max(1)
}

/// Restricts a thread (`None`: the calling one) to `cores`.
///
/// # Errors
/// `InvalidInput` if none of the cores exists and is allowed, `PermissionDenied` for a thread of
/// another user.
pub fn set_affinity(thread: Option<Tid>, cores: &CpuSet) -> io::Result<()> {
    let tid = thread.map_or(0, Tid::as_raw);
    // SAFETY: `bits` is an array of the size given, laid out as the kernel's mask: one bit per
    // core, words in native order, and the kernel only reads it.
    syscall::once(|| unsafe { libc::sched_setaffinity(tid, size_of_val(&cores.bits), cores.bits.as_ptr().cast()) })?;
    Ok(())
}

/// Returns the cores on which a thread (`None`: the calling one) may run.
///
/// # Errors
/// `ESRCH` if the thread has ended.
pub fn affinity(thread: Option<Tid>) -> io::Result<CpuSet> {
    let tid = thread.map_or(0, Tid::as_raw);
    let mut cores = CpuSet::new();
    // SAFETY: `bits` is a writable array of the size given, laid out as the kernel's mask.
    syscall::once(|| unsafe {
        libc::sched_getaffinity(tid, size_of_val(&cores.bits), cores.bits.as_mut_ptr().cast())
    })?;
    Ok(cores)
}

/// Returns true if the error of a call for a thread means that the thread has ended.
#[must_use]
pub fn is_ended_thread_error(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// Sets the scheduling class of a thread (`None`: the calling one). Threads that the thread starts
/// later inherit the class, except the deadline class.
///
/// # Errors
/// `PermissionDenied` without the privilege (`CAP_SYS_NICE` or `RLIMIT_RTPRIO`; for the deadline
/// class `CAP_SYS_NICE` and no affinity). `InvalidInput` for a priority outside
/// [`Scheduling::FIXED_PRIORITIES`] and for a [`Reservation`] that is not valid. `ResourceBusy` if
/// other reservations leave too little processor time.
pub fn set_scheduling(thread: Option<Tid>, scheduling: Scheduling) -> io::Result<()> {
    let tid = thread.map_or(0, Tid::as_raw);
    scheduling.set(tid)?;
    if thread.is_none_or(|thread| thread == current_tid()) {
        PRIORITY.set(scheduling.priority());
    }
    Ok(())
}

/// Sets the scheduling class of a thread as [`set_scheduling`] does. Threads that the thread starts
/// later are in the ordinary class (`SCHED_RESET_ON_FORK`).
///
/// Without `CAP_SYS_NICE` the kernel then refuses [`set_scheduling`] for the thread, but not this
/// function.
///
/// # Errors
/// The errors of [`set_scheduling`].
pub fn set_uninherited_scheduling(thread: Option<Tid>, scheduling: Scheduling) -> io::Result<()> {
    let tid = thread.map_or(0, Tid::as_raw);
    scheduling.set_with(tid, SCHED_RESET_ON_FORK)?;
    if thread.is_none_or(|thread| thread == current_tid()) {
        PRIORITY.set(scheduling.priority());
    }
    Ok(())
}

thread_local! {
    static PRIORITY: Cell<u8> = const { Cell::new(UNKNOWN_PRIORITY) };
}

const UNKNOWN_PRIORITY: u8 = u8::MAX;

/// Returns the [priority](Scheduling::priority) of the calling thread. The result does not follow
/// changes by other threads.
#[inline]
pub fn native_priority() -> u8 {
    match PRIORITY.get() {
        UNKNOWN_PRIORITY => query_priority(),
        known => known,
    }
}

#[cold]
fn query_priority() -> u8 {
    let priority = scheduling(None).map_or(0, Scheduling::priority);
    PRIORITY.set(priority);
    priority
}

/// Sets the maximum delay of the calling thread's timers, 50 us by default. Timers of real-time
/// threads are not delayed.
///
/// # Errors
/// Only if a filter of system calls forbids prctl(2).
pub fn set_timer_slack(slack: Duration) -> io::Result<()> {
    // At least 1, because 0 would select the slack that the thread had at its start.
    let nanoseconds = libc::c_ulong::try_from(slack.as_nanos()).unwrap_or(libc::c_ulong::MAX).max(1);
    // SAFETY: PR_SET_TIMERSLACK takes one integer and accesses no memory of this process.
    syscall::once(|| unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds) }).map(|_| ())
}

/// Returns the scheduling class of a thread (`None`: the calling one). Classes that this crate does
/// not set are reported as [`Scheduling::Other`].
///
/// # Errors
/// `ESRCH` if the thread has ended.
pub fn scheduling(thread: Option<Tid>) -> io::Result<Scheduling> {
    let tid = thread.map_or(0, Tid::as_raw);
    let mut found = SchedAttr::EMPTY;
    // SAFETY: `found` is writable, of the given size, and outlives the call. All its fields are
    // integers, so any bytes that the kernel writes are valid.
    syscall::once(|| unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut found, SchedAttr::EMPTY.size, 0) })?;
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
    use std::thread as std_thread;

    use super::super::builder::ThreadBuilder;
    use super::*;

    #[test]
    fn list_shows_threads_with_their_settings() {
        let (ended, end) = mpsc::sync_channel::<()>(0);
        let last = affinity(None).unwrap().iter().last().unwrap();
        let builder =
            ThreadBuilder::new().name("found/as it is").affinity(CpuSet::one(last)).scheduling(Scheduling::Idle);
        let thread = builder.spawn(move || end.recv()).unwrap();
        let found = list_threads().unwrap();
        let found: Vec<_> = found.iter().filter(|thread| thread.name == "found/as it is").collect();
        let [found] = found[..] else { panic!("{found:?}") };
        assert_eq!((found.scheduling, found.cores), (Scheduling::Idle, CpuSet::one(last)));
        assert_ne!(found.tid, current_tid());
        drop(ended);
        assert!(thread.join().unwrap().is_err());
    }

    #[test]
    fn process_with_an_empty_command_line_is_no_kernel_thread() {
        let folder = std::env::temp_dir().join(format!("corelane-kthread-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("napi_no-1");
        std::os::unix::fs::symlink("/bin/true", &program).unwrap();
        let mut child = std::process::Command::new(&program).spawn().unwrap();
        let file = |name: &str| format!("/proc/{}/{name}", child.id());
        let deadline = crate::clock::Monotonic::now() + Duration::from_secs(60);
        // The command line is also empty for a moment before the child has the program's name, so
        // the loop waits for both.
        while !fs::read(file("cmdline")).unwrap().is_empty()
            || fs::read_to_string(file("comm")).unwrap() != "napi_no-1\n"
        {
            assert!(!deadline.is_past());
            std_thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(find_kernel_thread("napi_no-1").unwrap(), None);
        child.wait().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn reservation_is_made_where_permitted_and_checked() {
        let milliseconds = Duration::from_millis;
        let reservation =
            Reservation { runtime: milliseconds(1), deadline: milliseconds(10), period: milliseconds(20) };
        let wanted = Scheduling::Deadline(reservation);
        let body = move || {
            let found = scheduling(None).unwrap();
            let child = ThreadBuilder::new().spawn(|| scheduling(None).unwrap()).unwrap().join().unwrap();
            set_scheduling(None, Scheduling::Other).unwrap();
            (found, native_priority(), child, scheduling(None).unwrap())
        };
        match ThreadBuilder::new().scheduling(wanted).spawn(body) {
            Ok(thread) => assert_eq!(thread.join().unwrap(), (wanted, 0, Scheduling::Other, Scheduling::Other)),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
        let late = Reservation { deadline: milliseconds(30), ..reservation };
        assert!(reservation.is_valid() && !late.is_valid());
        let refused = ThreadBuilder::new().scheduling(Scheduling::Deadline(late)).spawn(|| ()).unwrap_err();
        assert!(matches!(refused.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied), "{refused}");
    }

    #[test]
    fn native_priority_follows_the_thread() {
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
    fn uninherited_scheduling_does_not_pass_to_started_threads() {
        let thread = std_thread::spawn(|| {
            let of_started = || std_thread::spawn(|| scheduling(None).unwrap()).join().unwrap();
            match set_uninherited_scheduling(None, Scheduling::Fifo(2)) {
                Ok(()) => {
                    assert_eq!((scheduling(None).unwrap(), native_priority()), (Scheduling::Fifo(2), 2));
                    assert_eq!(of_started(), Scheduling::Other);
                    set_uninherited_scheduling(None, Scheduling::Other).unwrap();
                    assert_eq!(scheduling(None).unwrap(), Scheduling::Other);
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
            }
        });
        thread.join().unwrap();
    }

    #[test]
    fn thread_id_is_queried_once() {
        let first = current_tid();
        let before = crate::counters::snapshot();
        assert_eq!(current_tid(), first);
        assert_eq!((crate::counters::snapshot() - before).syscalls, 0);
    }

    #[test]
    fn cpu_sets_hold_cores() {
        let mut set: CpuSet = [0, 63, 64, 5000].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64]);
        set.remove(63);
        assert!(!set.contains(63) && set.contains(64) && !set.contains(5000));
        assert_eq!(set.len(), 2);
        assert!(CpuSet::one(2000).is_empty());
    }
}
