//! Resources used by the process or the calling thread: processor time, context switches, memory.

use std::io;
use std::time::Duration;

use crate::syscall;

/// Resources used since the process or the thread began, as the kernel accounts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Processor time in user mode.
    pub user: Duration,
    /// Processor time that the kernel used on behalf of the program.
    pub system: Duration,
    /// Context switches because the program waited.
    pub voluntary_switches: u64,
    /// Context switches because the kernel preempted a thread to run another one.
    pub involuntary_switches: u64,
    /// Largest resident memory of the whole process so far, in bytes.
    pub peak_resident: u64,
}

/// Returns the resources used by all threads of the process, including threads that have ended.
///
/// # Errors
/// Only if a filter of system calls forbids getrusage(2).
pub fn process_usage() -> io::Result<ResourceUsage> {
    query(libc::RUSAGE_SELF)
}

/// Returns the resources used by the calling thread.
///
/// # Errors
/// Only if a filter of system calls forbids getrusage(2).
pub fn thread_usage() -> io::Result<ResourceUsage> {
    query(libc::RUSAGE_THREAD)
}

/// Returns the calling thread's processor time so far, in user mode and in the kernel.
pub fn thread_time() -> Duration {
    clock_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The processor clock of a thread, which every thread of the process may read.
#[derive(Clone, Copy, Debug)]
pub struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// Returns the clock of the calling thread.
    ///
    /// # Errors
    /// If the system has no such clock.
    pub fn of_current_thread() -> io::Result<Self> {
        let mut clock = 0;
        // SAFETY: `clock` is writable, and a running thread has a clock.
        let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        if failed == 0 { Ok(ThreadClock(clock)) } else { Err(io::Error::from_raw_os_error(failed)) }
    }

    /// Returns the processor time of the thread so far; zero if the thread has ended.
    #[must_use]
    pub fn time(self) -> Duration {
        clock_time(self.0)
    }
}

fn clock_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live, writable timespec; a clock that no longer exists leaves it
    // unchanged.
    let _ = syscall::once(|| unsafe { libc::clock_gettime(clock, &mut time) });
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the processor time that a process has used, including threads that have ended.
///
/// # Errors
/// If the process does not exist.
pub fn process_time(id: u32) -> io::Result<Duration> {
    let id = libc::pid_t::try_from(id).map_err(|_| io::ErrorKind::InvalidInput)?;
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: `clock` is a live, writable clock id.
    let code = unsafe { libc::clock_getcpuclockid(id, &raw mut clock) };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(code));
    }
    // SAFETY: `time` is a live, writable timespec.
    syscall::once(|| unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

fn query(who: libc::c_int) -> io::Result<ResourceUsage> {
    // SAFETY: the structure holds integers only, for which zeroes are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable and outlives the call.
    syscall::once(|| unsafe { libc::getrusage(who, &mut usage) })?;
    Ok(ResourceUsage {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        voluntary_switches: usage.ru_nvcsw as u64,
        involuntary_switches: usage.ru_nivcsw as u64,
        peak_resident: usage.ru_maxrss as u64 * 1024,
    })
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn process_time_includes_ended_threads() {
        let before = process_time(std::process::id()).unwrap();
        let busy = std::thread::spawn(|| {
            let began = thread_time();
            while thread_time() - began < Duration::from_millis(5) {
                std::hint::spin_loop();
            }
        });
        busy.join().unwrap();
        assert!(process_time(std::process::id()).unwrap() - before >= Duration::from_millis(5));
        assert!(process_time(u32::MAX).is_err());
    }

    #[test]
    fn waiting_is_a_voluntary_switch_and_work_uses_time() {
        let (thread_before, process_before) = (thread_usage().unwrap(), process_usage().unwrap());
        std::thread::sleep(Duration::from_millis(2));
        let began = crate::clock::now();
        while began.elapsed() < Duration::from_millis(30) {
            std::hint::spin_loop();
        }
        let (thread_after, process_after) = (thread_usage().unwrap(), process_usage().unwrap());
        assert!(thread_after.voluntary_switches > thread_before.voluntary_switches);
        assert!(thread_after.user + thread_after.system > thread_before.user + thread_before.system);
        assert!(process_after.voluntary_switches > process_before.voluntary_switches);
        assert!(process_after.peak_resident > 100_000);
    }
}
