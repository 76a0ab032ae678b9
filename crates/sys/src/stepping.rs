//! Running threads of another process one instruction at a time, to count what nothing counts by itself: instructions, and the
//! atomic ones among them.
//!
//! For measuring programs. The other process must be a child that lives for nothing else: it runs some ten thousand times slower while it is
//! [`Stepped`], its blocked system calls are interrupted once when that begins and once when it ends, and it is killed
//! if the thread that steps it ends first. Nothing here waits without a bound but for the end of a single instruction that is no system call.

mod instruction;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::marker::PhantomData;
use std::ops::{Add, Sub};
use std::time::Duration;

use crate::call;
use crate::clock::{self, Monotonic};
use instruction::{Kind, LONGEST};

/// What a thread did in user space. The kernel's instructions are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions run to their end; one that repeats itself counts once.
    pub instructions: u64,
    /// Those with a LOCK prefix, exchanges with memory, and full fences. Atomic loads, and stores that are not sequentially
    /// consistent, are ordinary instructions on x86-64 and cost what these cost.
    pub atomics: u64,
    /// Those that enter the kernel.
    pub system_calls: u64,
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            atomics: self.atomics + other.atomics,
            system_calls: self.system_calls + other.system_calls,
        }
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            instructions: self.instructions.wrapping_sub(earlier.instructions),
            atomics: self.atomics.wrapping_sub(earlier.atomics),
            system_calls: self.system_calls.wrapping_sub(earlier.system_calls),
        }
    }
}

/// Threads of a process, which run only while [`until_all_wait`](Self::until_all_wait) lets them; dropping this lets them go.
///
/// Stays on the thread that made it, which the kernel takes for the one that traces.
#[derive(Debug)]
pub struct Stepped {
    process: u32,
    threads: Vec<Thread>,
    /// By address. Code does not change while it is stepped through.
    kinds: HashMap<u64, Kind>,
    _here: PhantomData<*const ()>,
}

#[derive(Debug)]
struct Thread {
    id: libc::pid_t,
    state: State,
    /// The instruction that is next, or being run.
    at: u64,
    kind: Kind,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Until it is made to run the next instruction, after a signal if it is to have one.
    Stopped { signal: libc::c_int, known: bool },
    /// In a system call, or about to be in one that was interrupted: it may wait there for ever.
    InKernel,
    /// The thread is no more.
    Ended,
}

/// Instructions of one thread before the others are looked at again: whoever spins for another must not keep it from running.
const BURST: usize = 2000;

/// How long the kernel may take to stop a thread.
const STOPPING: Duration = Duration::from_secs(5);

/// Between two looks at threads that all are in the kernel.
const PAUSE: Duration = Duration::from_micros(20);

impl Stepped {
    /// Stops these threads of that process, a child of ours. Its others go on.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported): not on this processor, or the kernel has no tracing.
    /// [`PermissionDenied`](io::ErrorKind::PermissionDenied): this process may not trace, as in some containers. Anything else: there is
    /// no such thread, or it is being traced.
    pub fn attach(process: u32, threads: &[u32]) -> io::Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "instructions are told apart on x86-64 only"));
        }
        let mut stepped = Self { process, threads: Vec::new(), kinds: HashMap::new(), _here: PhantomData };
        for &id in threads {
            stepped.seize(libc::pid_t::try_from(id).map_err(|_| io::ErrorKind::InvalidInput)?)?;
        }
        Ok(stepped)
    }

    fn seize(&mut self, id: libc::pid_t) -> io::Result<()> {
        // Without an end of this that detaches, whoever is stepped would stay stopped: it is killed instead.
        trace(libc::PTRACE_SEIZE as _, id, 0, libc::PTRACE_O_EXITKILL as _)?;
        // From here on it is let go when this is dropped.
        let state = State::InKernel;
        self.threads.push(Thread { id, state, at: 0, kind: Kind::Plain, counts: Counts::default() });
        trace(libc::PTRACE_INTERRUPT as _, id, 0, 0)?;
        let last = self.threads.len() - 1;
        let (thread, kinds) = (&mut self.threads[last], &mut self.kinds);
        let deadline = clock::now() + STOPPING;
        while thread.state == State::InKernel {
            if !thread.look(kinds, libc::WNOHANG)? {
                pause(deadline)?;
            }
        }
        Ok(())
    }

    /// What each thread did since the beginning, in the order in which they were named.
    pub fn counts(&self) -> impl Iterator<Item = Counts> {
        self.threads.iter().map(|thread| thread.counts)
    }

    /// Whether one of the threads is seen to have ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.threads.iter().any(|thread| thread.state == State::Ended)
    }

    /// Lets the threads run until each of them waits in the kernel or has ended. Threads that wait already are not looked at for
    /// long: whoever expects one to be woken by something outside the process asks again.
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut) at `deadline`, up to 2,000 instructions later.
    pub fn until_all_wait(&mut self, deadline: Monotonic) -> io::Result<()> {
        let mut quiet = 0;
        // Twice in a row: a thread can wake one that was looked at before it, and then wait itself.
        while quiet < 2 {
            let mut ran = false;
            for thread in &mut self.threads {
                ran |= thread.run(&mut self.kinds)?;
            }
            quiet = if !ran && self.all_wait() { quiet + 1 } else { 0 };
            if !ran && quiet == 0 {
                pause(deadline)?;
            } else if clock::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    fn all_wait(&self) -> bool {
        self.threads.iter().all(|thread| thread.state == State::Ended || waits(self.process, thread.id))
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        let deadline = clock::now() + STOPPING;
        for thread in &mut self.threads {
            // What cannot be stopped in time stays as it is, and dies with the thread that steps.
            let _ = thread.let_go(&mut self.kinds, self.process, deadline);
        }
    }
}

impl Thread {
    /// Runs instructions, for a while; answers whether there was something to do.
    fn run(&mut self, kinds: &mut HashMap<u64, Kind>) -> io::Result<bool> {
        match self.state {
            State::Ended => return Ok(false),
            State::InKernel => {
                if !self.look(kinds, libc::WNOHANG)? {
                    return Ok(false);
                }
            }
            State::Stopped { .. } => {}
        }
        for _ in 0..BURST {
            let State::Stopped { signal, known } = self.state else { break };
            self.state = State::InKernel;
            trace(libc::PTRACE_SINGLESTEP as _, self.id, 0, signal as usize)?;
            if !known || self.kind == Kind::SystemCall {
                // Most system calls are over at once.
                if !self.look(kinds, libc::WNOHANG)? {
                    break;
                }
            } else {
                // An instruction ends by itself, if only by a signal.
                self.look(kinds, 0)?;
            }
        }
        Ok(true)
    }

    /// Takes notice of what has become of a thread that was let run; false if it still runs.
    fn look(&mut self, kinds: &mut HashMap<u64, Kind>, how: libc::c_int) -> io::Result<bool> {
        let mut status = 0;
        // SAFETY: `status` is one live, writable int.
        let seen = call::restarting(|| unsafe { libc::waitpid(self.id, &raw mut status, libc::__WALL | how) });
        match seen {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            // The first thread of a process is gone when the last one is, others without being waited for.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                self.state = State::Ended;
                return Ok(true);
            }
            Err(error) => return Err(error),
        }
        if !libc::WIFSTOPPED(status) {
            self.state = State::Ended;
            return Ok(true);
        }
        let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
        let stepped = event == 0 && signal == libc::SIGTRAP;
        let at = match instruction_pointer(self.id) {
            Ok(at) => at,
            // Killed meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                self.state = State::Ended;
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        // One that repeats itself stops after each time; one that a signal came before has not been run.
        if stepped && at != self.at {
            self.counts.instructions += 1;
            match self.kind {
                Kind::Plain => {}
                Kind::Atomic => self.counts.atomics += 1,
                Kind::SystemCall => self.counts.system_calls += 1,
            }
        }
        self.at = at;
        self.kind = *kinds.entry(at).or_insert_with(|| Kind::of(&octets(self.id, at)));
        // Behind anything but a step the kernel may begin a system call again that was interrupted.
        let signal = if event == 0 && !stepped { signal } else { 0 };
        self.state = State::Stopped { signal, known: stepped };
        Ok(true)
    }

    /// Lets it run on its own.
    fn let_go(&mut self, kinds: &mut HashMap<u64, Kind>, process: u32, deadline: Monotonic) -> io::Result<()> {
        if self.state == State::InKernel {
            trace(libc::PTRACE_INTERRUPT as _, self.id, 0, 0)?;
        }
        loop {
            match self.state {
                State::Ended => return Ok(()),
                State::InKernel => {
                    if !self.look(kinds, libc::WNOHANG)? {
                        pause(deadline)?;
                    }
                }
                // The end of a step that has not been told yet would kill it.
                State::Stopped { .. } if has_pending_trap(process, self.id) => {
                    self.state = State::InKernel;
                    trace(libc::PTRACE_CONT as _, self.id, 0, 0)?;
                }
                State::Stopped { signal, .. } => {
                    self.state = State::Ended;
                    return trace(libc::PTRACE_DETACH as _, self.id, 0, signal as usize);
                }
            }
        }
    }
}

/// One request to the kernel's tracer, without pointers into this process but for the two that answer below.
fn trace(request: libc::c_long, id: libc::pid_t, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the kernel writes to `data` only for requests that read something, whose callers hand in a live word.
    let done = call::once(|| unsafe { libc::syscall(libc::SYS_ptrace, request, id, address, data) });
    match done {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOSYS) => Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel has no ptrace")),
            _ => Err(error),
        },
    }
}

/// A word of a stopped thread's memory, or of its registers.
fn peek(request: libc::c_long, id: libc::pid_t, address: usize) -> io::Result<u64> {
    let mut word: libc::c_long = 0;
    trace(request, id, address, (&raw mut word) as usize)?;
    Ok(word as u64)
}

#[cfg(target_arch = "x86_64")]
fn instruction_pointer(id: libc::pid_t) -> io::Result<u64> {
    peek(libc::PTRACE_PEEKUSER as _, id, std::mem::offset_of!(libc::user, regs.rip))
}

#[cfg(not(target_arch = "x86_64"))]
fn instruction_pointer(_: libc::pid_t) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The octets at `address`, as many as one instruction may have, fewer where memory ends.
fn octets(id: libc::pid_t, address: u64) -> Vec<u8> {
    const WORD: u64 = size_of::<u64>() as u64;
    // Aligned words do not reach into the next page.
    let first = address - address % WORD;
    let words = (0..3).map_while(|word| peek(libc::PTRACE_PEEKTEXT as _, id, (first + word * WORD) as usize).ok());
    words.flat_map(u64::to_ne_bytes).skip((address % WORD) as usize).take(LONGEST).collect()
}

/// Whether a thread sleeps until something wakes it (or is no more).
fn waits(process: u32, id: libc::pid_t) -> bool {
    let text = fs::read_to_string(format!("/proc/{process}/task/{id}/stat")).unwrap_or_default();
    // The name before the state is in parentheses and may have some itself.
    let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, None | Some('S' | 'Z' | 'X'))
}

/// Whether a SIGTRAP is on its way to that thread.
fn has_pending_trap(process: u32, id: libc::pid_t) -> bool {
    let text = fs::read_to_string(format!("/proc/{process}/task/{id}/status")).unwrap_or_default();
    let mask = text.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (libc::SIGTRAP - 1)) != 0
}

fn pause(deadline: Monotonic) -> io::Result<()> {
    if clock::now() >= deadline {
        return Err(io::ErrorKind::TimedOut.into());
    }
    std::thread::sleep(PAUSE);
    Ok(())
}

#[cfg(all(test, not(loom), target_arch = "x86_64"))]
mod tests;
