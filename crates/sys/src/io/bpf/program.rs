//! XDP programs: loading, and test runs on a frame without an interface.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::{fmt, io};

use super::{Command, Map, Program, address, enter, object_name, own};

/// Result of an XDP program (include/uapi/linux/bpf.h, `enum xdp_action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XdpAction(pub u32);

impl XdpAction {
    /// The program failed: the kernel drops the frame and reports it to a tracepoint.
    pub const ABORTED: i32 = 0;
    /// The kernel drops the frame.
    pub const DROP: i32 = 1;
    /// The kernel processes the frame as it would without an XDP program.
    pub const PASS: i32 = 2;
    /// The frame leaves by the interface on which it arrived.
    pub const TRANSMIT: i32 = 3;
    /// The frame goes to the target that `bpf_redirect_map` has found in a map.
    pub const REDIRECT: i32 = 4;
}

const XDP_TYPE: u32 = 6;
pub(super) const XDP_ATTACH: u32 = 37;

const LOG_SIZE: usize = 1 << 20;

/// The licence under which the kernel permits a program to call every helper.
const LICENCE: &CStr = c"Dual MIT/GPL";

#[repr(C)]
#[derive(Default)]
struct LoadAttributes {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestAttributes {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    padding: u32,
}

/// Error of [`load`]: the kernel did not accept the program.
#[derive(Debug)]
pub struct LoadError {
    /// The kernel's error; `InvalidInput` if a map is missing.
    pub error: io::Error,
    /// The verifier's log. Empty if the verifier did not refuse the program.
    pub log: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel refuses the program: {}", self.error)?;
        match self.log.trim_end() {
            "" => Ok(()),
            log => write!(f, "\n{log}"),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        Self { error, log: String::new() }
    }
}

/// An XDP program that the kernel has verified.
#[derive(Debug)]
pub struct LoadedProgram {
    fd: OwnedFd,
    _maps: Vec<OwnedFd>,
}

/// Loads an XDP program. `maps[n]` is the map of `MapSymbol(n)`.
///
/// # Errors
/// [`LoadError`] with `InvalidInput` if `maps` lacks a map of the program; otherwise with the
/// kernel's error, and with the verifier's log if the verifier refuses the program.
pub fn load(name: &str, program: &Program, maps: &[&Map]) -> Result<LoadedProgram, LoadError> {
    let descriptor = |map: super::MapSymbol| maps.get(map.0).map(|map| map.as_fd().as_raw_fd());
    let instructions = program
        .encode(descriptor)
        .map_err(|map| io::Error::new(io::ErrorKind::InvalidInput, format!("map {} is missing", map.0)))?;
    let kept = maps.iter().map(|map| map.as_fd().try_clone_to_owned()).collect::<io::Result<Vec<_>>>()?;
    let fd = match enter_load(name, &instructions, &mut []) {
        Ok(fd) => fd,
        Err(error) => return Err(explain(name, &instructions, error)),
    };
    Ok(LoadedProgram { fd, _maps: kept })
}

fn enter_load(name: &str, instructions: &[u64], log: &mut [u8]) -> io::Result<OwnedFd> {
    let size = |size: usize| u32::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let mut attributes = LoadAttributes {
        prog_type: XDP_TYPE,
        insn_cnt: size(instructions.len())?,
        insns: address(instructions.as_ptr()),
        license: address(LICENCE.as_ptr()),
        log_level: u32::from(!log.is_empty()),
        log_size: size(log.len())?,
        log_buf: if log.is_empty() { 0 } else { address(log.as_mut_ptr()) },
        prog_name: object_name(name),
        expected_attach_type: XDP_ATTACH,
        ..LoadAttributes::default()
    };
    // SAFETY: the attributes belong to the command. The kernel reads the instructions and the
    // terminated licence and writes at most `log_size` bytes; all three live through the call.
    let fd = unsafe { enter(Command::ProgramLoad, &mut attributes) }?;
    // SAFETY: the kernel has just returned the descriptor.
    Ok(unsafe { own(fd) })
}

#[cold]
fn explain(name: &str, instructions: &[u64], error: io::Error) -> LoadError {
    let mut log = vec![0; LOG_SIZE];
    // This second attempt to load the program fills the verifier's log. The result contains the
    // error of the first attempt.
    let _ = enter_load(name, instructions, &mut log);
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let log = String::from_utf8_lossy(log.get(..end).unwrap_or_default()).into_owned();
    LoadError { error, log }
}

/// Outcome of [`LoadedProgram::test_run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestRunResult {
    /// Result of the last run.
    pub action: XdpAction,
    /// Mean time of a run in nanoseconds.
    pub mean_nanos: u32,
}

impl LoadedProgram {
    /// Runs the program `repeat` times on a copy of `frame`, without an interface
    /// (`BPF_PROG_TEST_RUN`).
    ///
    /// # Errors
    /// `InvalidInput` for a frame that is shorter than an Ethernet header or does not fit into a
    /// page; any other error that the kernel returns.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> io::Result<TestRunResult> {
        let mut attributes = TestAttributes {
            prog_fd: self.fd.as_raw_fd().cast_unsigned(),
            data_size_in: u32::try_from(frame.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            data_in: address(frame.as_ptr()),
            repeat,
            ..TestAttributes::default()
        };
        // SAFETY: the attributes belong to the command. The kernel reads the frame, which lives
        // through the call. The kernel writes to the attributes only, because they give no buffer
        // for data or context.
        unsafe { enter(Command::TestRun, &mut attributes) }?;
        Ok(TestRunResult { action: XdpAction(attributes.retval), mean_nanos: attributes.duration })
    }
}

impl AsFd for LoadedProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::unix::thread::JoinHandleExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::super::Register::{R0, R1, R2, R3, R10};
    use super::super::{Assembler, Condition, Helper, MapKind, MapSymbol, Width, unavailable_reason};
    use super::*;

    fn assembled(write: impl FnOnce(&mut Assembler)) -> Program {
        let mut asm = Assembler::new();
        write(&mut asm);
        asm.finish().unwrap()
    }

    #[test]
    fn a_program_runs_on_a_frame() {
        if let Some(refusal) = unavailable_reason() {
            return println!("not run: {refusal}");
        }
        let program = assembled(|asm| {
            let drop = asm.label();
            asm.load(Width::Word, R2, R1, 0).load(Width::Word, R3, R1, 4);
            asm.set(R1, R2).compute(super::super::Arithmetic::Add, R1, 1);
            asm.jump_if(Condition::Greater, R1, R3, drop).load(Width::Byte, R0, R2, 0);
            asm.jump_if(Condition::NotEqual, R0, 1, drop).set(R0, XdpAction::PASS).exit();
            asm.bind(drop).set(R0, XdpAction::DROP).exit();
        });
        let program = load("first_byte", &program, &[]).unwrap();
        let action = |first: u8| program.test_run(&[first; 64], 1).unwrap().action;
        assert_eq!((action(1), action(2)), (XdpAction(2), XdpAction(1)));
        assert_eq!(program.test_run(&[1; 4], 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    extern "C" fn ignore(_: libc::c_int) {}

    /// Regression test: the run failed with EINTR, for example after the process was stopped.
    #[test]
    fn signal_does_not_end_a_test_run() {
        if let Some(refusal) = unavailable_reason() {
            return println!("not run: {refusal}");
        }
        let program = assembled(|asm| {
            asm.set(R0, XdpAction::PASS).exit();
        });
        let program = load("pass", &program, &[]).unwrap();
        let handler = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: the handler does nothing, and no other test of this program uses the signal.
        unsafe { libc::signal(libc::SIGUSR1, handler) };
        let has_begun = Arc::new(AtomicBool::new(false));
        let begun = Arc::clone(&has_begun);
        // The run takes some tenths of a second, so the signal arrives before its end.
        let run = std::thread::spawn(move || {
            begun.store(true, Ordering::Relaxed);
            program.test_run(&[0; 64], 20_000_000)
        });
        while !has_begun.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        // SAFETY: the thread is joined later, so its id is valid.
        unsafe { libc::pthread_kill(run.as_pthread_t(), libc::SIGUSR1) };
        assert_eq!(run.join().unwrap().unwrap().action, XdpAction(2));
    }

    #[test]
    fn a_program_and_the_process_share_a_map() {
        if let Some(refusal) = unavailable_reason() {
            return println!("not run: {refusal}");
        }
        let map = Map::create(MapKind::Array, "count", 4, 8, 1).unwrap();
        let program = assembled(|asm| {
            let none = asm.label();
            asm.store(Width::Word, R10, -4, 0).set(R2, R10).compute(super::super::Arithmetic::Add, R2, -4);
            asm.load_map(R1, MapSymbol(0)).call(Helper::MapLookup).jump_if(Condition::Equal, R0, 0, none);
            asm.load(Width::Double, R1, R0, 0).compute(super::super::Arithmetic::Add, R1, 1);
            asm.store(Width::Double, R0, 0, R1).bind(none).set(R0, XdpAction::DROP).exit();
        });
        let loaded = load("count", &program, &[&map]).unwrap();
        loaded.test_run(&[0; 14], 5).unwrap();
        assert_eq!(map.sum_over_processors(0).unwrap(), [5]);
        let missing = load("count", &program, &[]).unwrap_err();
        assert_eq!(missing.error.kind(), io::ErrorKind::InvalidInput);
        assert!(missing.to_string().contains("map 0 is missing"), "{missing}");
    }

    #[test]
    fn verifier_log_is_in_the_error() {
        if let Some(refusal) = unavailable_reason() {
            return println!("not run: {refusal}");
        }
        let program = assembled(|asm| {
            asm.load(Width::Word, R2, R1, 0).load(Width::Byte, R0, R2, 0).exit();
        });
        let refused = load("unchecked", &program, &[]).unwrap_err();
        assert!(refused.log.contains("invalid access to packet"), "{refused}");
    }
}
