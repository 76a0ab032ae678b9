//! Counts of the instructions that threads of another process run, and of the atomic instructions
//! among them, by single-stepping.
//!
//! The process must be a child made for the measurement: it runs very slowly while a
//! [`PtraceCounter`] is attached. The kernel kills the child if the tracing thread ends first.

mod instruction;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::marker::PhantomData;
use std::ops::{Add, Sub};
use std::time::Duration;

use crate::clock::{self, Monotonic};
use crate::syscall;
use instruction::{InstructionKind, MAX_INSTRUCTION_BYTES};

/// Counts of a thread's instructions in user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstructionCounts {
    /// Instructions that were run to their end. A repeated instruction (REP prefix) counts once.
    pub instructions: u64,
    /// Instructions with a LOCK prefix, exchanges with memory, and full fences.
    pub atomics: u64,
    /// `SYSCALL` instructions, which enter the kernel.
    pub system_calls: u64,
}

impl Add for InstructionCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            atomics: self.atomics + other.atomics,
            system_calls: self.system_calls + other.system_calls,
        }
    }
}

impl Sub for InstructionCounts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            instructions: self.instructions.wrapping_sub(earlier.instructions),
            atomics: self.atomics.wrapping_sub(earlier.atomics),
            system_calls: self.system_calls.wrapping_sub(earlier.system_calls),
        }
    }
}

/// Traced threads of a process, which run only in
/// [`step_until_all_wait`](Self::step_until_all_wait). Dropping the value detaches them.
///
/// The type is not `Send`, because the kernel regards the thread that made the value as the tracer.
#[derive(Debug)]
pub struct PtraceCounter {
    process: u32,
    threads: Vec<TracedThread>,
    kinds: HashMap<u64, InstructionKind>,
    _here: PhantomData<*const ()>,
}

#[derive(Debug)]
struct TracedThread {
    id: libc::pid_t,
    state: TraceState,
    /// Address of the instruction that the thread runs next or, while it runs, of the current one.
    at: u64,
    kind: InstructionKind,
    counts: InstructionCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TraceState {
    /// The thread is stopped before its next instruction. When it continues, it gets `signal`; 0
    /// means none. `known` is false if the kernel may first repeat an interrupted system call.
    Stopped {
        signal: libc::c_int,
        known: bool,
    },
    /// The thread is in a system call, or is about to repeat an interrupted one.
    InKernel,
    Ended,
}

const STEPS_PER_TURN: usize = 2000;

const STOP_TIMEOUT: Duration = Duration::from_secs(5);

const POLL_INTERVAL: Duration = Duration::from_micros(20);

impl PtraceCounter {
    /// Stops the given threads of `process`, a child of this process. Other threads continue.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported) on other processors, and if the kernel has no
    /// tracing. [`PermissionDenied`](io::ErrorKind::PermissionDenied) if this process may not
    /// trace, as in some containers. Another error if a thread does not exist or is already traced.
    pub fn attach(process: u32, threads: &[u32]) -> io::Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "instructions are decoded on x86-64 only"));
        }
        let mut stepped = Self { process, threads: Vec::new(), kinds: HashMap::new(), _here: PhantomData };
        for &id in threads {
            stepped.seize(libc::pid_t::try_from(id).map_err(|_| io::ErrorKind::InvalidInput)?)?;
        }
        Ok(stepped)
    }

    fn seize(&mut self, id: libc::pid_t) -> io::Result<()> {
        // If this thread ends without detaching, the kernel kills the traced threads, because they
        // would stay stopped.
        trace(libc::PTRACE_SEIZE as _, id, 0, libc::PTRACE_O_EXITKILL as _)?;
        let state = TraceState::InKernel;
        self.threads.push(TracedThread {
            id,
            state,
            at: 0,
            kind: InstructionKind::Plain,
            counts: InstructionCounts::default(),
        });
        trace(libc::PTRACE_INTERRUPT as _, id, 0, 0)?;
        let last = self.threads.len() - 1;
        let (thread, kinds) = (&mut self.threads[last], &mut self.kinds);
        let deadline = clock::now() + STOP_TIMEOUT;
        while thread.state == TraceState::InKernel {
            if !thread.handle_stop(kinds, libc::WNOHANG)? {
                pause(deadline)?;
            }
        }
        Ok(())
    }

    /// Returns the counts of each thread since [`attach`](Self::attach), in the order of its
    /// argument `threads`.
    pub fn counts(&self) -> impl Iterator<Item = InstructionCounts> {
        self.threads.iter().map(|thread| thread.counts)
    }

    /// Returns true if one of the threads is known to have ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.threads.iter().any(|thread| thread.state == TraceState::Ended)
    }

    /// Lets the threads run until each of them waits in the kernel or has ended.
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut) after `deadline`; each thread may run up to 2,000
    /// instructions after it. Another error if the kernel refuses the tracing.
    pub fn step_until_all_wait(&mut self, deadline: Monotonic) -> io::Result<()> {
        let mut quiet = 0;
        // Two checks in a row must find all threads waiting: a thread can wake another thread that
        // was checked before it, and then wait itself.
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
        self.threads.iter().all(|thread| thread.state == TraceState::Ended || is_waiting(self.process, thread.id))
    }
}

impl Drop for PtraceCounter {
    fn drop(&mut self) {
        let deadline = clock::now() + STOP_TIMEOUT;
        for thread in &mut self.threads {
            // A thread that cannot be stopped in time stays traced, and the kernel kills it when
            // the tracing thread ends.
            let _ = thread.detach(&mut self.kinds, self.process, deadline);
        }
    }
}

impl TracedThread {
    fn run(&mut self, kinds: &mut HashMap<u64, InstructionKind>) -> io::Result<bool> {
        match self.state {
            TraceState::Ended => return Ok(false),
            TraceState::InKernel => {
                if !self.handle_stop(kinds, libc::WNOHANG)? {
                    return Ok(false);
                }
            }
            TraceState::Stopped { .. } => {}
        }
        for _ in 0..STEPS_PER_TURN {
            let TraceState::Stopped { signal, known } = self.state else { break };
            self.state = TraceState::InKernel;
            trace(libc::PTRACE_SINGLESTEP as _, self.id, 0, signal as usize)?;
            if !known || self.kind == InstructionKind::SystemCall {
                // A thread in a long system call makes no further steps in this call of `run`, so
                // that the other threads can run.
                if !self.handle_stop(kinds, libc::WNOHANG)? {
                    break;
                }
            } else {
                // This wait ends soon: an instruction always ends, at the latest by a signal.
                self.handle_stop(kinds, 0)?;
            }
        }
        Ok(true)
    }

    /// Handles a state change of a running thread. Returns false if its state has not changed.
    fn handle_stop(&mut self, kinds: &mut HashMap<u64, InstructionKind>, how: libc::c_int) -> io::Result<bool> {
        let mut status = 0;
        // SAFETY: `status` is one live, writable int.
        let seen =
            syscall::retry_interrupted(|| unsafe { libc::waitpid(self.id, &raw mut status, libc::__WALL | how) });
        match seen {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            // The thread is gone, and this tracer got no report of its end.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                self.state = TraceState::Ended;
                return Ok(true);
            }
            Err(error) => return Err(error),
        }
        if !libc::WIFSTOPPED(status) {
            self.state = TraceState::Ended;
            return Ok(true);
        }
        let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
        let stepped = event == 0 && signal == libc::SIGTRAP;
        let at = match instruction_pointer(self.id) {
            Ok(at) => at,
            // The thread was killed after it had stopped.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                self.state = TraceState::Ended;
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        // An unchanged address means that the instruction is not complete: a repeated instruction
        // (REP prefix) stops after each repetition, and a signal can come before the instruction
        // has run.
        if stepped && at != self.at {
            self.counts.instructions += 1;
            match self.kind {
                InstructionKind::Plain => {}
                InstructionKind::Atomic => self.counts.atomics += 1,
                InstructionKind::SystemCall => self.counts.system_calls += 1,
            }
        }
        self.at = at;
        self.kind = *kinds.entry(at).or_insert_with(|| InstructionKind::decode(&octets(self.id, at)));
        // Only after a step is the kind of the next instruction certain: after any other stop the
        // kernel may repeat an interrupted system call.
        let signal = if event == 0 && !stepped { signal } else { 0 };
        self.state = TraceState::Stopped { signal, known: stepped };
        Ok(true)
    }

    fn detach(
        &mut self,
        kinds: &mut HashMap<u64, InstructionKind>,
        process: u32,
        deadline: Monotonic,
    ) -> io::Result<()> {
        if self.state == TraceState::InKernel {
            trace(libc::PTRACE_INTERRUPT as _, self.id, 0, 0)?;
        }
        loop {
            match self.state {
                TraceState::Ended => return Ok(()),
                TraceState::InKernel => {
                    if !self.handle_stop(kinds, libc::WNOHANG)? {
                        pause(deadline)?;
                    }
                }
                // A trap that is pending after a step would kill the thread once it is detached.
                TraceState::Stopped { .. } if has_pending_trap(process, self.id) => {
                    self.state = TraceState::InKernel;
                    trace(libc::PTRACE_CONT as _, self.id, 0, 0)?;
                }
                TraceState::Stopped { signal, .. } => {
                    self.state = TraceState::Ended;
                    return trace(libc::PTRACE_DETACH as _, self.id, 0, signal as usize);
                }
            }
        }
    }
}

fn trace(request: libc::c_long, id: libc::pid_t, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the kernel writes to `data` only for requests that read something, and their callers
    // pass a live word.
    let done = syscall::once(|| unsafe { libc::syscall(libc::SYS_ptrace, request, id, address, data) });
    match done {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOSYS) => Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel has no ptrace")),
            _ => Err(error),
        },
    }
}

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

/// Returns the bytes at `address`, as many as the longest instruction has, or fewer at the end of
/// mapped memory.
fn octets(id: libc::pid_t, address: u64) -> Vec<u8> {
    const WORD: u64 = size_of::<u64>() as u64;
    // A word at an aligned address does not reach into the next page, which may not be mapped.
    let first = address - address % WORD;
    let words = (0..3).map_while(|word| peek(libc::PTRACE_PEEKTEXT as _, id, (first + word * WORD) as usize).ok());
    words.flat_map(u64::to_ne_bytes).skip((address % WORD) as usize).take(MAX_INSTRUCTION_BYTES).collect()
}

fn is_waiting(process: u32, id: libc::pid_t) -> bool {
    let text = fs::read_to_string(format!("/proc/{process}/task/{id}/stat")).unwrap_or_default();
    // The thread's name precedes the state, in parentheses, and may itself contain parentheses.
    let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, None | Some('S' | 'Z' | 'X'))
}

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
    std::thread::sleep(POLL_INTERVAL);
    Ok(())
}

#[cfg(all(test, not(loom), target_arch = "x86_64"))]
mod tests;
